"""Runs the examples and writes ``docs/gallery``: a page for each, with its picture, what it prints, and its text.

python -m tools.gallery [NAME …]
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery"


class Example(NamedTuple):
    """An example: its file without ending, its title, and its pictures as the gallery's pages link to them."""

    name: str
    title: str
    pictures: tuple[str, ...]

    @property
    def script(self) -> Path:
        """The file that runs."""
        return ROOT / "examples" / f"{self.name}.py"

    @property
    def output(self) -> Path:
        """What ``--output`` is: the picture, or the folder of pictures that other pages show too."""
        first = (GALLERY / self.pictures[0]).resolve()
        return first.parent if first.parent != GALLERY else first


HOSPITALS = tuple(f"../images/hospitals-{name}.png" for name in ("coefficients", "graph", "patients"))
EXAMPLES = (
    Example("graph_guided", "Graph-guided logistic regression", ("graph_guided.png",)),
    Example("fused_lasso", "Fused lasso", ("fused_lasso.png",)),
    Example("image_denoising", "Total variation of an image", ("image_denoising.png",)),
    Example("hospitals", "Three hospitals", HOSPITALS),
    Example("tomography", "Tomography among three sites", ("../images/tomography.png",)),
    Example("quantization", "Bits against accuracy", ("quantization.png",)),
    Example("methods_compared", "Methods compared", ("methods_compared.png",)),
    Example("own_loss", "Custom loss", ("own_loss.png",)),
)

INDEX = """# Gallery

Short scripts that run in seconds, each with a picture. `make gallery` runs all of them and writes these pages. The
tests run them as well and compare their output.

"""


def run(example: Example) -> str:
    """Run an example; return what it prints."""
    command = [sys.executable, str(example.script), "--output", str(example.output)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def page(example: Example, printed: str) -> str:
    """Return the page of an example."""
    source = example.script.read_text()
    about = ast.get_docstring(ast.parse(source)) or ""
    pictures = "\n\n".join(f"![{example.title}]({picture})" for picture in example.pictures)
    return (
        f"# {example.title}\n\n{about}\n\n{pictures}\n\n"
        f"It prints\n\n```text\n{printed}```\n\n"
        f"[{example.name}.py](../../examples/{example.name}.py):\n\n```python\n{source}```\n"
    )


def index() -> str:
    """Return the page that shows them all."""
    parts = []
    for example in EXAMPLES:
        about = ast.get_docstring(ast.parse(example.script.read_text())) or ""
        first = about.splitlines()[0]
        parts.append(
            f"## [{example.title}]({example.name}.md)\n\n{first}\n\n![{example.title}]({example.pictures[0]})\n"
        )
    return INDEX + "\n".join(parts)


def main() -> None:
    """Run the examples that were named, or all."""
    names = sys.argv[1:]
    unknown = set(names) - {example.name for example in EXAMPLES}
    if unknown:
        sys.exit(f"no such example: {', '.join(sorted(unknown))}; there are {', '.join(e.name for e in EXAMPLES)}")
    GALLERY.mkdir(parents=True, exist_ok=True)
    for example in EXAMPLES:
        if not names or example.name in names:
            print(f"{example.name} …", flush=True)
            (GALLERY / f"{example.name}.md").write_text(page(example, run(example)))
    (GALLERY / "index.md").write_text(index())


if __name__ == "__main__":
    main()
