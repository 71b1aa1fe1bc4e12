"""The report of a reconstruction in a browser: three slices, window and level, quick at 512³."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fpdfp.ct.viewer import write_page
from tests import browser as browsers

if reason := browsers.missing():
    pytest.skip(reason, allow_module_level=True)

from playwright.sync_api import Browser, Page

#: The shades of the canvas across an axis, row by row from the top.
SHADES = """(axis) => {
  const canvas = document.querySelectorAll("canvas")[axis];
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return Array.from({ length: data.length / 4 }, (_, i) => data[4 * i]);
}"""
#: Milliseconds from a change of a knob until its slices are drawn and read back: the shortest of some
#: changes, since the machine may do other work as well.
SHORTEST = """([name, values]) => {
  const knob = document.querySelector(`input[name="${name}"]`), seconds = [];
  for (const value of values) {
    const before = performance.now();
    knob.value = value;
    knob.dispatchEvent(new Event("input"));
    for (const canvas of document.querySelectorAll("canvas")) canvas.getContext("2d").getImageData(0, 0, 1, 1);
    seconds.push(performance.now() - before);
  }
  return Math.min(...seconds);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.browser() as opened:
        yield opened


def shown(browser: Browser, path: Path, volume: np.ndarray, trouble: list[str]) -> Page:
    write_page(path, volume, title="a <volume>", numbers={"tilt": 1.25, "status": "<b>"}, curves=b"")
    page = browser.new_page()
    # That reading back often is slow is only of interest here.
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.set_default_timeout(120_000)
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    return page


def test_slices_are_those_of_the_volume(browser: Browser, tmp_path: Path) -> None:
    volume = np.random.default_rng(0).integers(0, 256, (6, 5, 4)).astype(np.float32)
    volume[0, 0, :2] = 0.0, 255.0
    trouble: list[str] = []
    page = shown(browser, tmp_path / "volume.html", volume, trouble)
    page.evaluate(SHORTEST, ["level", [127.5]])
    page.evaluate(SHORTEST, ["window", [255.0]])
    for axis, (name, place) in enumerate(zip("xyz", (5, 0, 2), strict=True)):
        page.evaluate(SHORTEST, [name, [place]])
        expected = np.take(volume, place, axis=axis).T[::-1].ravel()
        np.testing.assert_allclose(page.evaluate(SHADES, axis), expected, atol=1.0)
    page.evaluate(SHORTEST, ["window", [2.0]])
    assert set(page.evaluate(SHADES, 0)) <= {0, 64, 128, 191, 192, 255}
    assert page.inner_text("h1") == "a <volume>"
    assert "<b>" in page.inner_text("table")
    assert trouble == []


@pytest.mark.slow
def test_a_slice_of_512_takes_less_than_a_tenth_of_a_second(browser: Browser, tmp_path: Path) -> None:
    volume = np.zeros((512, 512, 512), dtype=np.float32)
    volume[::3] = 1.0
    volume[:, 100:300, 5:40] = 2.0
    trouble: list[str] = []
    page = shown(browser, tmp_path / "volume.html", volume, trouble)
    times = {name: page.evaluate(SHORTEST, [name, [3, 400, 77, 250, 500]]) for name in "xyz"}
    times["level"] = page.evaluate(SHORTEST, ["level", [0.5, 0.7, 1.1]])
    print({name: round(value, 1) for name, value in times.items()})
    assert max(times[name] for name in "xyz") < 100.0, times
    assert trouble == []
