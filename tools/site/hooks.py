"""Pages outside ``docs/``: the README as the front page, the changelog, how to contribute, and what they link to.

On a code host their links go to ``docs/…``; on the site the same links go to its pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
#: Files of the root as pages of the site.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
#: What else pages link to, as it is.
ASSETS = ("CITATION.cff", "LICENSE", *sorted(f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")))
#: Files of settings whose comments are their reference, as pages with a title.
SETTINGS = {
    "reference/experiment-keys.md": ("Keys of experiment files", "declarative/example.toml"),
    "reference/policy-keys.md": ("Keys of policy.toml", "federation/policy.toml"),
}
LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that lie outside the folder of documents."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=LINK.sub(from_root, (ROOT / source).read_text())))
    for target, (title, source) in SETTINGS.items():
        text = (ROOT / "src" / "fpdfp" / source).read_text()
        files.append(File.generated(config, target, content=f"# {title}\n\n```toml\n{text}```\n"))
    for name in ASSETS:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Lead links that go up out of ``docs/`` to where the site has these files; keep stored results out of search."""
    if page.file.src_uri.startswith("results/") and page.file.src_uri != "results/index.md":
        page.meta["search"] = {"exclude": True}
    above = "../" * (page.file.src_uri.count("/") + 1)

    def within(found: re.Match[str]) -> str:
        name, hash_, anchor = found[1].partition("#")
        if not name.startswith(above):
            return found[0]
        name = name.removeprefix(above)
        return f"]({above[3:]}{PAGES.get(name, name)}{hash_}{anchor})"

    return LINK.sub(within, markdown)


def from_root(found: re.Match[str]) -> str:
    """Return a link of a page in the root as one of a page in ``docs/``."""
    name, hash_, anchor = found[1].partition("#")
    name = PAGES.get(name, name.removeprefix("docs/"))
    return f"]({name}{hash_}{anchor})"
