"""The pictures of reports in the documentation: ``python -m tests.screenshots`` writes them to ``docs/images``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fpdfp
import fpdfp.report
from tests.browser import browser, missing, until
from tests.report_runs import graph_guided, reconstruction

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MODEL: dict[str, dict[str, Any]] = {
    "automatic": {"rounds": 60},
    **{
        f"FPDFP, s = {levels}": {"method": fpdfp.FPDFP(), "compressor": fpdfp.QSGD(levels=levels), "rounds": 1500}
        for levels in (5, 20)
    },
    "FPDFP, exact": {"method": fpdfp.FPDFP(), "rounds": 1500},
}
CT: dict[str, dict[str, Any]] = {"automatic": {"rounds": 20}, "FPDFP": {"method": fpdfp.FPDFP(), "rounds": 20}}
MARGIN = 14


def picture(opened: Browser, page: Path, name: str, shown: str, first: str, last: str, **options: Any) -> None:
    """Take a picture of a page from one element to another, when an element of it is shown."""
    context = opened.new_context(**{"viewport": {"width": 1180, "height": 900}, **options})
    tab = context.new_page()
    tab.goto(page.as_uri())
    tab.locator(shown).first.wait_for()
    tab.locator(last).first.wait_for()
    # Without scrolling: the clip of a picture is in coordinates of the page.
    top, bottom = (until(tab.locator(one).bounding_box, lambda box: box is not None) for one in (first, last))
    assert top is not None
    assert bottom is not None
    size = tab.viewport_size
    assert size is not None
    start = max(0.0, top["y"] - MARGIN)
    height = bottom["y"] + bottom["height"] + MARGIN - start
    path = IMAGES / f"report-{name}.png"
    tab.screenshot(path=path, full_page=True, clip={"x": 0, "y": start, "width": size["width"], "height": height})
    context.close()
    sys.stdout.write(f"{path.relative_to(IMAGES.parents[1])}: {path.stat().st_size / 1000:.0f} kB\n")


def main(folder: Path) -> None:
    """Run what the pictures show, keep the runs in a folder, and take the pictures."""
    model, ct = folder / "model", folder / "ct"
    if not model.exists():
        graph_guided(model, MODEL, seeds=(0, 1, 2))
    if not ct.exists():
        reconstruction(ct, "small", CT)
    first = fpdfp.report.write(model, folder / "model.html", title="Graph-guided logistic regression")
    second = fpdfp.report.write(ct, folder / "ct.html", title="Cone-beam CT among 17 clients")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with browser() as opened:
        picture(opened, first, "progress", "path.curve", ".top", "#charts")
        picture(opened, first, "model", "#clients .client", "#model", "#clients")
        picture(opened, second, "ct", "#slices canvas", "#slices", "#slices", color_scheme="dark")
        phone = {"viewport": {"width": 375, "height": 800}, "color_scheme": "dark"}
        picture(opened, second, "phone", "#slices canvas", "#slices", ".panels", **phone)


if __name__ == "__main__":
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
