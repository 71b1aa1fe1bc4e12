"""Pages outside ``docs/``: the README as the front page, the changelog, how to contribute, the command line, settings.

On a code host their links go to ``docs/…``; on the site the same links go to its pages.
"""

from __future__ import annotations

import html
import re
import runpy
import textwrap
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
#: What a page of the gallery ends with; on the site the code follows.
EXAMPLE = re.compile(r"\]\(\.\./\.\./examples/(\w+\.py)\) has the code\.\n\Z")
#: Where formulas are not typeset: blocks and spans of code, comments, and targets of links.
PLAIN = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~)|<!--.*?-->|`[^`\n]*`|\]\([^)\s]*\))", re.DOTALL | re.MULTILINE)
#: Blocks that are indented are formulas on these pages, and commands or code on others.
FORMULAS = ("mathematics.md", "results/paper.md")
INDENTED = re.compile(r"(?:^    .*\n(?:\n(?=    ))?)+", re.MULTILINE)
BRACED = r"\{((?:[^{}\n]|\{[^{}\n]*\})*)\}"
SUBSCRIPT = re.compile(rf"(?<=[^\s_`(|,])_(?:{BRACED}|(max|min|\d(?:,\d)?|[A-Za-z∞]{{1,2}}(?:[+−]1)?)(?![A-Za-z_]))")
SUPERSCRIPT = re.compile(rf"(?<=[\w)>½])\^(?:{BRACED}|\(([^()\n]*)\)|([-−]?\d+))")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that lie outside the folder of documents."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=LINK.sub(from_root, (ROOT / source).read_text())))
    for target, (title, source) in SETTINGS.items():
        text = (ROOT / "src" / "fpdfp" / source).read_text()
        files.append(File.generated(config, target, content=f"# {title}\n\n```toml\n{text}```\n"))
    commands = runpy.run_path(str(ROOT / "tools" / "commands.py"))["page"]()
    files.append(File.generated(config, "reference/commands.md", content=commands))
    for name in ASSETS:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Lead links that go up out of ``docs/`` to where the site has these files; keep stored results out of search."""
    if page.file.src_uri.startswith("results/") and page.file.src_uri != "results/index.md":
        page.meta["search"] = {"exclude": True}
    if example := EXAMPLE.search(markdown):
        source = (ROOT / "examples" / example[1]).read_text()
        markdown += f"\n```python\n{source[source.index('from __future__') :]}```\n"
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    if page.file.src_uri in FORMULAS:
        markdown = INDENTED.sub(lambda found: formula_block(found[0]), markdown)
    markdown = "".join(one if PLAIN.fullmatch(one) else typeset(one) for one in PLAIN.split(markdown))
    above = "../" * (page.file.src_uri.count("/") + 1)

    def within(found: re.Match[str]) -> str:
        name, hash_, anchor = found[1].partition("#")
        if not name.startswith(above):
            return found[0]
        name = name.removeprefix(above)
        return f"]({above[3:]}{PAGES.get(name, name)}{hash_}{anchor})"

    return LINK.sub(within, markdown)


def typeset(text: str) -> str:
    """Return text with subscripts and superscripts in place of ``_`` and ``^``.

    >>> typeset("x_k+1 in 2^(1−s) and Σ_{y_j}")
    'x<sub>k+1</sub> in 2<sup>1−s</sup> and Σ<sub>y<sub>j</sub></sub>'
    """
    text = SUBSCRIPT.sub(lambda found: f"<sub>{typeset(found[1] or found[2])}</sub>", text)
    return SUPERSCRIPT.sub(lambda found: f"<sup>{typeset(found[1] or found[2] or found[3])}</sup>", text)


def formula_block(code: str) -> str:
    """Return an indented block of formulas as preformatted text, with subscripts."""
    text = html.escape(textwrap.dedent(code).strip("\n"), quote=False)
    return f'<pre class="formula">{typeset(text)}</pre>\n'


def from_root(found: re.Match[str]) -> str:
    """Return a link of a page in the root as one of a page in ``docs/``."""
    name, hash_, anchor = found[1].partition("#")
    name = PAGES.get(name, name.removeprefix("docs/"))
    return f"]({name}{hash_}{anchor})"
