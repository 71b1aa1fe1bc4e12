"""Reports in a browser: what a person sees, clicks and types.

A page draws when it has been laid out, and answers clicks and keys later than the call that sends them returns. So
nothing is read once: every test waits for what it expects, with ``expect`` for elements and ``until`` for the rest.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Browser, Page, expect

import fpdfp
import fpdfp.report
from fpdfp.report import live
from tests.browser import PATIENCE, box_of, missing, until
from tests.browser import browser as started
from tests.report_runs import reconstruction, small

REASON = missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")
ARTEFACTS = Path(__file__).parent / "artefacts"
EVIL = "<img src=x onerror=alert(1)></script>"

Open = Callable[..., Page]
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as opened:
        yield opened


@pytest.fixture(scope="module")
def model_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arguments = {"method": fpdfp.FPDFP(), "compressor": fpdfp.QSGD(levels=5), "rounds": 60}
    return small(tmp_path_factory.mktemp("model"), {"automatic": {"rounds": 20}, EVIL: arguments}, (0, 1))


@pytest.fixture(scope="module")
def model_page(model_runs: Path) -> Path:
    return fpdfp.report.write(model_runs, model_runs / "report.html")


@pytest.fixture(scope="module")
def ct_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ct")
    return fpdfp.report.write(
        reconstruction(folder, "tiny", {"FPDFP": {"method": fpdfp.FPDFP(), "rounds": 5}}), folder / "report.html"
    )


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Open a page; at the end it must have had no error, no warning and no request but for itself and its data."""
    trouble: list[str] = []
    contexts = []

    def opened(where: Path | str, *, width: int = 1280, scheme: Any = "light", **options: Any) -> Page:
        url = where if isinstance(where, str) else where.as_uri()
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: None if request.url.startswith(url) else trouble.append(request.url))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    # The icon of the page is an address that holds it.
    assert [text for text in trouble if text != "data:,"] == []


def paths_of(page: Page, chart: str = "error") -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        f'[data-chart="{chart}"] path.curve', "nodes => nodes.map(node => node.getAttribute('d'))"
    )
    return found


def pixels(page: Page, panel: str) -> list[int]:
    found: list[int] = page.eval_on_selector(
        f'[data-panel="{panel}"] canvas',
        "node => { const copy = new OffscreenCanvas(node.width, node.height)"
        ".getContext('2d', { willReadFrequently: true }); copy.drawImage(node, 0, 0);"
        "return [...copy.getImageData(0, 0, node.width, node.height).data]; }",
    )
    return found


def expect_paths(page: Page, expected: list[str], chart: str = "error") -> None:
    """Wait until a chart shows these curves."""
    until(lambda: paths_of(page, chart), lambda paths: paths == expected)


def new_paths(page: Page, *seen: list[str], chart: str = "error") -> list[str]:
    """Wait until a chart shows curves, and none of those that were seen before; return them."""
    return until(lambda: paths_of(page, chart), lambda paths: bool(paths) and paths not in seen)


def drawn(page: Page, panel: str) -> list[int]:
    """Wait until a picture has been drawn, and return its pixels."""
    return until(lambda: pixels(page, panel), any)


def new_pixels(page: Page, panel: str, old: list[int]) -> None:
    """Wait until a picture is another one."""
    until(lambda: pixels(page, panel), lambda shown: shown != old)


def expect_width(page: Page, width: int) -> None:
    """Wait until nothing of a page is outside of a width."""
    until(lambda: page.evaluate("document.documentElement.scrollWidth"), lambda found: found <= width)


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    page.mouse.move(*end)
    page.mouse.up()


def test_a_report_shows_all_parts_of_a_model(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    expect(page.locator("#runs-table tbody tr")).to_have_count(2)
    expect(page.locator("#runs-table")).to_contain_text(EVIL)
    titles = [re.compile(f"^{title}") for title in ("Relative error of the objective", "Objective", "Accuracy")]
    expect(page.locator("figure h3")).to_have_text(titles)
    # Two seeds and their median, for each of the two series.
    expect(page.locator('[data-chart="error"] path.curve')).to_have_count(6)
    expect(page.locator("#graph circle.node")).to_have_count(40)
    expect(page.locator("#graph path.edge")).to_have_count(40)
    expect(page.locator("#clients-body .client")).to_have_count(8)
    expect(page.locator("#slices")).to_be_hidden()
    page.get_by_role("button", name="Every seed").click()
    expect(page.locator("#runs-table tbody tr")).to_have_count(4)


def test_a_series_can_be_switched_off(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    button = page.locator("#legend button").nth(1)
    expect(button).to_have_attribute("aria-pressed", "true")
    curves = page.locator('[data-chart="error"] path.curve')
    expect(curves).to_have_count(6)
    before = paths_of(page)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(curves).to_have_count(3)
    name = button.get_attribute("data-series")
    until(
        lambda: page.locator("path.curve").evaluate_all("nodes => nodes.map(node => node.dataset.series)"),
        lambda series: name not in series,
    )
    button.click()
    expect_paths(page, before)


def test_axes_can_be_chosen(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    chart = page.locator('[data-chart="error"]')
    seen = [new_paths(page)]
    expect(chart.locator(".plot > svg")).to_contain_text("rounds")
    controls = page.locator("#curve-controls")
    controls.get_by_role("button", name="linear").click()
    total, up = ("Total bits", "all bits, up and down"), ("Total bits up", "all bits that clients send")
    for label, axis in (total, up, ("Seconds", "seconds")):
        controls.get_by_role("button", name=label, exact=True).click()
        expect(chart.locator(".plot > svg")).to_contain_text(axis)
        seen.append(new_paths(page, *seen))
    controls.get_by_role("button", name="log").click()
    seen.append(new_paths(page, *seen))
    chart.get_by_role("button", name="linear").click()
    seen.append(new_paths(page, *seen))
    controls.get_by_role("button", name="Total bits", exact=True).click()
    expect(chart.locator(".plot > svg")).to_contain_text(total[1])
    without = new_paths(page, *seen)
    page.get_by_label("with what drawing these curves sends").check()
    new_paths(page, without)


def ticks_of(page: Page, chart: str = "objective") -> list[str]:
    """The texts below the horizontal axis, without its name."""
    found: list[str] = page.eval_on_selector_all(
        f'[data-chart="{chart}"] .plot > svg text[text-anchor=middle]', "nodes => nodes.map(node => node.textContent)"
    )
    return found[:-1]


def lengths(folder: Path, *rounds: int) -> Path:
    for number in rounds:
        run = folder / f"rounds={number}" / "seed-0"
        run.mkdir(parents=True)
        (run / "run.json").write_text(json.dumps({"format": 1, "name": f"{number} rounds", "status": "finished"}))
        rows = [f"{k},{1 / (k + 1)},{k},{k},0.1,{k}" for k in range(number + 1)]
        (run / "history.csv").write_text("round,objective,bits_up,bits_down,step,seconds\n" + "\n".join(rows) + "\n")
    return fpdfp.report.write(folder, folder / "report.html")


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 40])
def test_rounds_are_counted_in_whole_numbers(visit: Open, tmp_path: Path, rounds: int) -> None:
    page = visit(lengths(tmp_path, rounds))
    before = until(lambda: ticks_of(page), lambda ticks: len(ticks) >= 2)
    shown = [float(text.replace(",", "")) for text in before]
    assert shown == sorted(set(shown))
    assert all(tick == int(tick) for tick in shown)
    log = page.locator("#curve-controls").get_by_role("button", name="log")
    log.click()
    expect(log).to_have_attribute("aria-pressed", "true")
    until(lambda: ticks_of(page), lambda ticks: len(ticks) > 0 and all("." not in text for text in ticks))


def test_a_very_long_run_does_not_squash_the_others(visit: Open, tmp_path: Path) -> None:
    page = visit(lengths(tmp_path, 20, 30, 1000))
    controls, why = page.locator("#curve-controls"), page.locator("#axis-reason")
    expect(controls.get_by_role("button", name="log")).to_have_attribute("aria-pressed", "true")
    expect(why).to_contain_text("50 times as far as the shortest")
    chart = page.locator('[data-chart="objective"]')

    def share() -> float:
        """Of the width of the chart, how much the shortest run takes."""
        first, whole = chart.locator("path.curve").first, chart.locator("rect.hit")
        width = "node => node.getBBox().width"
        return float(first.evaluate(width)) / float(whole.evaluate(width))

    until(share, lambda found: found > 0.3)
    controls.get_by_role("button", name="linear").click()
    expect(why).to_be_hidden()
    until(share, lambda found: found < 0.05)


def test_runs_of_like_length_are_on_a_linear_axis(visit: Open, tmp_path: Path) -> None:
    path = lengths(tmp_path, 20, 40, 100)
    run = tmp_path / "rounds=1" / "seed-0"
    lengths(tmp_path, 1)
    for status in ("running", "diverged"):  # it may have just begun, or not have come far
        (run / "run.json").write_text(json.dumps({"format": 1, "name": "1 round", "status": status}))
        shown = visit(fpdfp.report.write(tmp_path, path))
        expect(shown.locator("#curve-controls").get_by_role("button", name="linear")).to_be_visible()
        expect(shown.locator("#axis-reason")).to_be_hidden()
    shutil.rmtree(run)
    page = visit(fpdfp.report.write(tmp_path, path))
    linear = page.locator("#curve-controls").get_by_role("button", name="linear")
    expect(linear).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#axis-reason")).to_be_hidden()


def test_settings_that_differ_and_those_that_all_share(visit: Open, tmp_path: Path) -> None:
    path = lengths(tmp_path, 2, 3)
    for number in (2, 3):
        config = f"name = 'n'\n[loss]\nl2 = 0.5\n[run]\nrounds = {number}\nseeds = [0]\n"
        (tmp_path / f"rounds={number}" / "seed-0" / "config.toml").write_text(config)
    page = visit(fpdfp.report.write(tmp_path, path))
    expect(page.locator("#settings-differ thead th")).to_have_text(["Run", "run.rounds"])
    expect(page.locator("#settings-differ td")).to_have_text(["2", "3"])
    expect(page.locator("#settings-same tbody tr")).to_have_text(["loss.l2\t0.5"], use_inner_text=True)


def test_dragging_zooms_and_a_double_click_resets(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    plot = page.locator('[data-chart="error"] .plot')
    box = box_of(plot)
    before, others = new_paths(page), new_paths(page, chart="objective")
    reset = page.locator('[data-chart="error"] .reset')
    expect(reset).to_be_disabled()
    start, end = (box["x"] + 200, box["y"] + 60), (box["x"] + 400, box["y"] + 200)
    drag(page, start, end)
    zoomed = new_paths(page, before)
    expect_paths(page, others, "objective")
    page.mouse.dblclick(*start)
    expect_paths(page, before)
    drag(page, start, (end[0], start[1] + 4))
    new_paths(page, before, zoomed)
    reset.click()
    expect_paths(page, before)


def test_hovering_tells_the_nearest_point(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    plot = page.locator('[data-chart="error"] .plot')
    plot.scroll_into_view_if_needed()
    tip = plot.locator(".tip")
    expect(tip).to_be_hidden()
    plot.hover(position={"x": 300, "y": 150})
    for word in ("relative error", "round", "total bits up", "seed"):
        expect(tip).to_contain_text(word)
    page.mouse.move(5, 5)
    expect(tip).to_be_hidden()


def test_charts_work_with_the_keyboard(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    before = new_paths(page)
    plot = page.locator('[data-chart="error"] .plot')
    plot.focus()
    expect(plot).to_have_attribute("aria-label", re.compile("Arrow keys"))
    voice = page.locator('[data-chart="error"] [role=status]')
    page.keyboard.press("ArrowRight")
    expect(voice).to_contain_text("round 0")
    said = [voice.text_content()]
    for key in ("ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
        said.append(until(voice.text_content, lambda text: text not in said))
    page.keyboard.press("+")
    new_paths(page, before)
    page.keyboard.press("0")
    expect_paths(page, before)
    button = page.locator("#legend button").first
    button.focus()
    page.keyboard.press("Space")
    expect(button).to_have_attribute("aria-pressed", "false")


def test_everything_can_be_reached_by_the_tab_key_and_has_a_name(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    new_paths(page)
    expect(page.locator("#graph circle.node")).to_have_count(40)
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        element = page.evaluate(
            "() => { const e = document.activeElement; return e === document.body ? null : "
            "[e.id || e.className || e.tagName, (e.getAttribute('aria-label') || e.textContent || '').trim() || "
            "(e.labels && e.labels.length ? e.labels[0].textContent : ''), getComputedStyle(e).outlineStyle]; }"
        )
        if element is None:
            break
        reached.append(element)
    assert len(reached) > 20
    assert [name for name, label, _ in reached if not label] == []
    assert {outline for _, _, outline in reached} == {"solid"}
    assert {"theme", "plot", "graph", "scroll"} <= {name for name, _, _ in reached}


def test_the_numbers_are_there_as_a_table(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    box = page.locator('[data-chart="error"] details')
    expect(box.locator("table")).to_have_count(0)
    box.locator("summary").click()
    expect(box.locator("thead th").nth(0)).to_have_text("Series")
    expect(box.locator("thead th").nth(1)).to_have_text("Round")
    expect(box.locator("tbody tr")).to_have_count(2 * 21 + 2 * 61)


def test_the_graph_names_a_feature_and_its_neighbours(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    page.locator("#graph circle.node").first.hover()
    readout = page.locator("#graph .readout")
    expect(readout).to_contain_text("Joined to")
    text = readout.inner_text()
    expect(page.locator("#graph path.edge.near")).not_to_have_count(0)
    page.locator("#graph .graph").focus()
    page.keyboard.press("ArrowRight")
    until(readout.inner_text, lambda shown: shown != text)
    expect(page.locator("#coefficients")).to_contain_text("coefficients are zero")
    page.get_by_role("button", name="Show all").click()
    until(page.locator(".coefficients li").count, lambda count: count > 24)


def test_clients_are_told_one_by_one(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    readout = page.locator("#clients-body .readout")
    expect(readout).to_contain_text("8 clients, 160 samples")
    page.locator("#clients-body .plot").focus()
    page.keyboard.press("End")
    expect(readout).to_have_text(re.compile("^7: 20 samples, weight"))
    expect(readout).to_contain_text("yes")


def test_the_slider_moves_the_picture(visit: Open, ct_page: Path) -> None:
    page = visit(ct_page)
    slider = page.locator('[data-knob="slice"]')
    slider.scroll_into_view_if_needed()
    for label in ("PSNR of this slice", "SSIM of this slice"):
        expect(page.locator(".figures")).to_contain_text(label)
    before = {panel: drawn(page, panel) for panel in ("truth", "reconstruction", "error")}
    figures = page.locator(".figures").inner_text()
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "7 of 8")
    for panel, old in before.items():
        new_pixels(page, panel, old)
    until(page.locator(".figures").inner_text, lambda text: text != figures)


def test_pixels_are_those_of_the_volume(visit: Open, ct_page: Path) -> None:
    page = visit(ct_page)
    (run,) = (path for path in ct_page.parent.iterdir() if path.is_dir())
    truth = fpdfp.runs.load(run).truth
    assert truth is not None
    low, high = float(truth.min()), float(truth.max())
    shown = drawn(page, "truth")[::4]
    # The first row of the picture is the top: y goes up, x to the right.
    expected = (255 * (truth[:, ::-1, 4].T - low) / (high - low)).ravel()
    assert max(abs(a - b) for a, b in zip(shown, expected, strict=True)) <= 0.51


def test_axis_and_window_can_be_chosen(visit: Open, ct_page: Path) -> None:
    page = visit(ct_page)
    canvas = page.locator('[data-panel="truth"] canvas')
    expect(canvas).to_have_js_property("width", 16)
    expect(canvas).to_have_js_property("height", 16)
    drawn(page, "truth")
    page.get_by_role("button", name="coronal").click()
    expect(canvas).to_have_js_property("height", 8)
    expect(canvas).to_have_js_property("width", 16)
    expect(page.locator('[data-knob="slice"]')).to_have_attribute("max", "15")
    usual = drawn(page, "truth")
    page.locator('[data-knob="level"]').focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    new_pixels(page, "truth", usual)
    page.get_by_role("button", name="Reset window").click()
    until(lambda: pixels(page, "truth"), lambda shown: shown == usual)
    box = box_of(canvas)
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    drag(page, middle, (middle[0] - 80, middle[1] + 10))
    new_pixels(page, "truth", usual)
    page.mouse.move(*middle)
    expect(page.locator("#slices .readout")).to_contain_text("Voxel (")


@pytest.mark.parametrize("which", ["model", "ct"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (375, "light")])
def test_pages_fit_and_follow_the_scheme(
    visit: Open, model_page: Path, ct_page: Path, which: str, width: int, scheme: str
) -> None:
    page = visit(model_page if which == "model" else ct_page, width=width, scheme=scheme)
    new_paths(page, chart="objective")
    expect_width(page, width)
    colour = "getComputedStyle(document.body).backgroundColor === 'rgb(246, 247, 249)'"
    until(lambda: page.evaluate(colour), lambda light: light == (scheme == "light"))
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{which}-{width}-{scheme}.png", full_page=True)
    page.get_by_role("button", name="theme").click()
    until(lambda: page.evaluate(colour), lambda light: light != (scheme == "light"))


def test_charts_follow_the_width(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    new_paths(page)
    page.set_viewport_size({"width": 375, "height": 700})
    svg = page.locator('[data-chart="error"] .plot > svg')
    until(lambda: svg.evaluate("node => node.viewBox.baseVal.width"), lambda width: width < 375)
    expect_width(page, 375)


def test_a_finger_can_zoom_and_tell_points(visit: Open, model_page: Path) -> None:
    page = visit(model_page, width=375, has_touch=True)
    plot = page.locator('[data-chart="error"] .plot')
    plot.scroll_into_view_if_needed()
    plot.tap(position={"x": 150, "y": 100})
    expect(plot.locator(".tip")).to_be_visible()


def grown(folder: Path, source: Path, rows: int) -> None:
    """Write a run folder as it was after so many evaluations."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (source / "history.csv").read_text().splitlines(keepends=True)
    info = {
        **json.loads((source / "run.json").read_text()),
        "name": folder.name,
        "status": "running",
        "rounds": rows - 1,
    }
    for name, text in (("history.csv", "".join(lines[: rows + 1])), ("run.json", json.dumps(info))):
        (folder / f".{name}").write_text(text)
        (folder / f".{name}").replace(folder / name)


def test_the_live_page_follows_a_run_and_keeps_what_was_chosen(visit: Open, model_runs: Path, tmp_path: Path) -> None:
    with live.serve(tmp_path / "runs") as served:
        page = visit(served.url)
        expect(page.get_by_text("There is no run yet")).to_be_visible()
        for name in ("first", "second"):
            grown(tmp_path / "runs" / name, model_runs / "0", 5)
        page.locator("#legend button").nth(1).click()
        off = page.locator("#legend button[aria-pressed=false]")
        expect(off).to_have_count(1)
        page.locator("#curve-controls").get_by_role("button", name="Total bits up").click()
        svg = page.locator('[data-chart="error"] .plot > svg')
        expect(svg).to_contain_text("bits that clients send")
        plot = page.locator('[data-chart="objective"] .plot')
        plot.focus()
        page.keyboard.press("+")
        zoomed = page.locator('[data-chart="objective"] .reset')
        expect(zoomed).to_be_enabled()
        expect(page.locator('[data-chart="error"] path.curve')).to_have_count(1)
        before = paths_of(page)
        grown(tmp_path / "runs" / "first", model_runs / "0", 12)
        new_paths(page, before)
        # What was switched off, zoomed and chosen is as it was.
        expect(off).to_have_text("second")
        expect(zoomed).to_be_enabled()
        expect(svg).to_contain_text("bits that clients send")
        expect(plot).to_be_focused()
        expect(page.locator("#live")).to_contain_text("live")
        shutil.rmtree(tmp_path / "runs" / "first")
        expect(page.locator("#runs-table tbody tr")).to_have_count(1)
        (tmp_path / "runs" / "second" / "history.csv").write_text("round,objective\n1,0.5\n2,")
        expect(page.get_by_text("history.csv cannot be read")).to_be_visible()
        page.close()


def test_the_live_page_shows_volumes_when_they_come(visit: Open, ct_page: Path, tmp_path: Path) -> None:
    (run,) = (path for path in ct_page.parent.iterdir() if path.is_dir())
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / "best.npz").unlink()
    (folder / "final.npz").rename(tmp_path / "final.npz")
    with live.serve(folder) as served:
        page = visit(served.url)
        expect(page.locator("#runs-table tbody tr")).to_have_count(1)
        expect(page.locator("#slices")).to_be_hidden()
        (tmp_path / "final.npz").rename(folder / "final.npz")
        expect(page.locator('[data-panel="reconstruction"] canvas')).to_be_visible()
        until(lambda: pixels(page, "reconstruction")[::4], any)
        page.close()


def test_the_live_page_says_when_its_server_is_gone(browser: Browser, tmp_path: Path) -> None:
    served = live.serve(tmp_path)
    page = browser.new_page()
    page.goto(served.url)
    expect(page.get_by_text("There is no run yet")).to_be_visible()
    served.close()
    expect(page.get_by_text("the server does not answer")).to_be_visible()
    page.close()


def test_the_page_shows_how_good_a_model_is(visit: Open, model_runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(next(path.parent for path in sorted(model_runs.rglob("run.json"))), folder)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y, site = (X[:, 0] + rng.logistic(size=300) > 0).astype(int), np.array([EVIL, "north", "south"])[np.arange(300) % 3]
    evaluation = fpdfp.FederatedLogisticRegression("none").fit(X, y, groups=site).evaluate(X, y, groups=site)
    evaluation.save(folder)
    page = visit(fpdfp.report.write(folder, tmp_path / "report.html"))
    section = page.locator("#evaluation")
    expect(section.locator("h3")).to_have_text(["All sites", "Sites", "ROC curve", "Calibration"])
    expect(section).to_contain_text(f"{evaluation.overall['brier'].value:.4g}")
    expect(section.locator("polyline")).to_have_count(4)
    expect(section.locator("circle")).to_have_count(10)
    until(section.inner_text, lambda text: "\t2.5 %\t" in text)
    section.locator("select").select_option("calibration slope")
    section.locator("summary").first.click()
    shown = f"{evaluation.by_site['north']['calibration slope'].value:#.4g}"
    expect(section.locator(".card").nth(1)).to_contain_text(shown, use_inner_text=True)


@pytest.fixture(scope="module")
def sections_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit without a penalty and a cross-validation, with all sections, of sites and features with evil names."""
    folder, rng = tmp_path_factory.mktemp("sections"), np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 3)), columns=["age", EVIL, "dose"])
    y = (X["age"] + rng.logistic(size=400) > 0).astype(int)
    site = np.array(["east", EVIL])[np.arange(400) % 2]
    plain: Any = fpdfp.FederatedLogisticRegression("none").fit(X, y, groups=site)
    chosen: Any = fpdfp.FederatedLogisticRegressionCV(
        fpdfp.ElasticNet(l1_ratio=[0.5, 1.0]), cv=fpdfp.CrossValidation(3, alphas=15)
    )
    for name, model in ("plain", plain), ("chosen", chosen.fit(X, y, groups=site)):
        run = model.write_run(folder / name)
        model.evaluate(X, y, groups=site).save(run)
        model.learning_curve(X, y, groups=site).save(run)
    return fpdfp.report.write(folder, folder / "report.html")


def test_coefficients_have_errors_and_forests(visit: Open, sections_page: Path) -> None:
    page = visit(sections_page)
    expect(page.locator("#summary-card .note")).to_contain_text(
        "No standard errors: they hold for fits without a penalty"
    )
    expect(page.locator("#heterogeneity-card")).to_have_count(0)
    page.locator("#inference select").first.select_option(label="plain")
    card = page.locator("#summary-card")
    heads = ["", "coefficient", "standard error", "z", "p", "odds ratio", "2.5 %", "97.5 %"]
    until(card.locator("thead th").all_inner_texts, lambda texts: texts[:8] == heads)
    names = ["Intercept", "age", EVIL, "dose"]
    until(card.locator("tbody tr th").all_inner_texts, lambda texts: texts[:4] == names)
    expect(card).to_contain_text("intervals at 95 %")
    expect(card).to_contain_text("null deviance")
    expect(page.locator("#heterogeneity-card tbody tr")).to_have_count(4)
    forest = page.locator("#forest-card")
    # A square for each site and a diamond for each pooled estimate, and the value of no effect.
    expect(forest.locator("rect")).to_have_count(2)
    expect(forest.locator("svg path")).to_have_count(2)
    expect(forest.locator("line.cross")).to_have_count(1)
    before = forest.locator("svg").inner_html()
    forest.locator("select").select_option(label=EVIL)
    until(forest.locator("svg").inner_html, lambda shown: shown != before)
    expect(forest.locator("svg")).to_contain_text("random effects")
    forest.locator("summary").click()
    expect(forest.locator("tbody tr")).to_have_count(4)


def test_paths_and_cross_validations_are_drawn(visit: Open, sections_page: Path) -> None:
    page = visit(sections_page)
    curve = page.locator('[data-chart="cross-validation"]')
    expect(curve.locator("path.curve")).to_have_count(2)
    expect(curve.locator("path.bars")).to_have_count(2)
    expect(curve.locator("text.chosen").first).to_have_text(re.compile("^min"))
    path = page.locator('[data-chart="path"]')
    expect(path.locator("path.curve")).to_have_count(3)
    expect(path.locator("line.chosen")).to_have_count(curve.locator("line.chosen").count())
    until(path.locator("text.name").all_text_contents, lambda names: any(name.startswith(EVIL[:10]) for name in names))
    # Weights go from strong to weak.
    ticks = path.locator(".plot > svg text[text-anchor=middle]").all_text_contents()
    weights = [float(text) for text in ticks if text.startswith("0.")]
    assert weights == sorted(weights, reverse=True)
    plot = path.locator(".plot")
    box = box_of(plot)
    plot.focus()
    page.keyboard.press("End")
    expect(path.locator(".tip")).to_contain_text("weight")
    expect(path.locator("path.curve.near")).to_have_count(1)

    def curves() -> list[str]:
        return paths_of(page, "path")[:3]

    before = curves()
    page.keyboard.press("+")
    until(curves, lambda shown: shown != before)
    page.keyboard.press("0")
    until(curves, lambda shown: shown == before)
    drag(page, (box["x"] + 200, box["y"] + 100), (box["x"] + 400, box["y"] + 110))
    until(curves, lambda shown: shown != before)
    path.locator("summary").click()
    expect(path.locator("tbody tr")).to_have_count(45)


def test_learning_curves_by_rounds_and_bits(visit: Open, sections_page: Path) -> None:
    page = visit(sections_page)
    section = page.locator("#learning")
    expect(section.locator("path.curve")).to_have_count(2)
    seen = [new_paths(page, chart="learning")]
    for label in ("Total bits", "Total bits up"):
        section.get_by_role("button", name=label, exact=True).click()
        seen.append(new_paths(page, *seen, chart="learning"))
    section.locator("select").select_option(label="brier")
    new_paths(page, *seen, chart="learning")
    expect(section.locator(".plot > svg")).to_contain_text("bits that sites send")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sections_fit_a_phone(visit: Open, sections_page: Path, scheme: str) -> None:
    page = visit(sections_page, width=375, scheme=scheme)
    expect_width(page, 375)
    page.locator("#inference select").first.select_option(label="plain")
    expect(page.locator("#heterogeneity-card tbody tr")).to_have_count(4)
    for section in ("inference", "selection", "evaluation", "learning"):
        expect(page.locator(f"#{section}")).to_be_visible()
        texts = page.locator(f"#{section} .plot > svg text")
        if section in ("selection", "learning"):
            expect(texts).not_to_have_count(0)
        outside = (
            "nodes => nodes.map(node => [node.textContent, node.getBoundingClientRect()])"
            ".filter(([_, box]) => box.left < 0 || box.right > 376).map(([text]) => text)"
        )
        until(partial(texts.evaluate_all, outside), lambda found: found == [])
