"""Runs the examples and writes ``docs/gallery``: a page for each, with its picture, what it prints, and its text.

python -m tools.gallery [NAME …]
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery"


class Example(NamedTuple):
    """An example: its file without ending, its title, and its pictures with captions, as pages link to them."""

    name: str
    title: str
    pictures: dict[str, str]

    @property
    def script(self) -> Path:
        """The file that runs."""
        return ROOT / "examples" / f"{self.name}.py"

    @property
    def output(self) -> Path:
        """The value of ``--output``: the picture, or the folder of pictures that other pages show too."""
        first = (GALLERY / next(iter(self.pictures))).resolve()
        return first.parent if first.parent != GALLERY else first


EXAMPLES = (
    Example(
        "hospitals", "Three hospitals",
        {
            "../images/hospitals-forest.png": "Odds ratio of the treatment at each hospital, and pooled.",
            "../images/hospitals-survival.png": "Kaplan–Meier curves over all hospitals, with 95 % intervals.",
            "../images/hospitals-calibration.png": "Predicted and observed shares of readmissions, new patients.",
        },
    ),
    Example(
        "coefficient_map", "A coefficient map over sites",
        {"coefficient_map.png": "The true map, the map of one site, and the map of five sites together."},
    ),
    Example(
        "tomography", "Tomography among three sites",
        {"../images/tomography.png": "The middle slice: truth, reconstruction among three sites, difference."},
    ),
    Example(
        "image_denoising", "Total variation of an image",
        {"image_denoising.png": "One camera's image, the mean of all, the reconstruction, and the truth."},
    ),
    Example(
        "graph_guided", "Graph-guided logistic regression",
        {"graph_guided.png": "Left: error against bits. Right: the coefficients found, and those at the minimum."},
    ),
    Example(
        "fused_lasso", "Fused lasso",
        {"fused_lasso.png": "The signal found by a ridge penalty, by one site alone, and by eight sites."},
    ),
    Example(
        "methods_compared", "Methods compared",
        {"methods_compared.png": "Left: error against rounds. Right: the number of coefficients each method keeps."},
    ),
    Example(
        "quantization", "Bits against accuracy",
        {"quantization.png": "Error against rounds and against bits, for several numbers of quantization levels."},
    ),
    Example(
        "own_loss", "Custom loss",
        {"own_loss.png": "Measurements with outliers, and the curves that two losses find."},
    ),
)  # fmt: skip
#: Pictures of the README, which the demonstration draws.
DEMO = ("hospitals", "scan", "methods")

INDEX = """# Gallery

Each example is a short script that draws a picture within seconds. `make gallery` runs all of them and writes these
pages.

"""


def draw_demo() -> None:
    """Run the demonstration, and keep its pictures for the README."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fpdfp", "demo", "--output", folder]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        for name in DEMO:
            shutil.copy(Path(folder) / f"{name}.png", ROOT / "docs" / "images" / f"demo-{name}.png")


def run(example: Example) -> str:
    """Run an example; return what it prints."""
    command = [sys.executable, str(example.script), "--output", str(example.output)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def page(example: Example, printed: str) -> str:
    """Return the page of an example."""
    source = example.script.read_text()
    about = ast.get_docstring(ast.parse(source)) or ""
    pictures = "\n\n".join(f"![{caption}]({picture})\n\n*{caption}*" for picture, caption in example.pictures.items())
    return (
        f"# {example.title}\n\n{about}\n\n{pictures}\n\n"
        f"The script prints\n\n```text\n{printed}```\n\n"
        f"[{example.name}.py](../../examples/{example.name}.py) has the code.\n"
    )


def index() -> str:
    """Return the page that shows them all."""
    parts = []
    for example in EXAMPLES:
        about = ast.get_docstring(ast.parse(example.script.read_text())) or ""
        first = about.splitlines()[0]
        picture, caption = next(iter(example.pictures.items()))
        parts.append(f"## [{example.title}]({example.name}.md)\n\n{first}\n\n![{caption}]({picture})\n\n*{caption}*\n")
    return INDEX + "\n".join(parts)


def main() -> None:
    """Run the named examples, or all of them."""
    names = sys.argv[1:]
    unknown = set(names) - {example.name for example in EXAMPLES}
    if unknown:
        sys.exit(f"no such example: {', '.join(sorted(unknown))}; there are {', '.join(e.name for e in EXAMPLES)}")
    GALLERY.mkdir(parents=True, exist_ok=True)
    for example in EXAMPLES:
        if not names or example.name in names:
            print(f"{example.name} …", flush=True)
            (GALLERY / f"{example.name}.md").write_text(page(example, run(example)))
    if not names:
        draw_demo()
    (GALLERY / "index.md").write_text(index())


if __name__ == "__main__":
    main()
