"""Reports in a browser: what a person sees, clicks and types."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
import fpdfp.report
from fpdfp.report import live
from tests.browser import browser as started
from tests.browser import missing
from tests.report_runs import reconstruction, small

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REASON = missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")
ARTEFACTS = Path(__file__).parent / "artefacts"
EVIL = "<img src=x onerror=alert(1)></script>"

Open = Callable[..., "Page"]


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
        page.set_default_timeout(10_000)
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


def until(holds: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait for something; the page's policy forbids the browser's own way, which evaluates texts."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    page.mouse.move(*end)
    page.mouse.up()


def test_a_report_shows_all_parts_of_a_model(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    assert page.locator("#runs-table tbody tr").count() == 2
    assert EVIL in page.locator("#runs-table").inner_text()
    titles = page.locator("figure h3").all_inner_texts()
    assert [title.split(",")[0] for title in titles] == ["Relative error of the objective", "Objective", "Accuracy"]
    # Two seeds and their median, for each of the two series.
    assert len(paths_of(page)) == 6
    assert page.locator("#graph circle.node").count() == 40
    assert page.locator("#graph path.edge").count() == 40
    assert page.locator("#clients-body .client").count() == 8
    assert page.locator("#slices").is_hidden()
    page.get_by_role("button", name="Every seed").click()
    assert page.locator("#runs-table tbody tr").count() == 4


def test_a_series_can_be_switched_off(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    button = page.locator("#legend button").nth(1)
    assert button.get_attribute("aria-pressed") == "true"
    before = paths_of(page)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert len(paths_of(page)) == 3
    name = button.get_attribute("data-series")
    assert (
        page.locator("path.curve").evaluate_all(
            "(nodes, name) => nodes.filter(n => n.dataset.series === name).length", name
        )
        == 0
    )
    button.click()
    assert paths_of(page) == before


def test_axes_can_be_chosen(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    chart = page.locator('[data-chart="error"]')
    seen = [paths_of(page)]
    assert "rounds" in (chart.locator(".plot > svg").text_content() or "")
    controls = page.locator("#curve-controls")
    controls.get_by_role("button", name="linear").click()
    total, up = ("Total bits", "all bits, up and down"), ("Total bits up", "all bits that clients send")
    for label, axis in (total, up, ("Seconds", "seconds")):
        controls.get_by_role("button", name=label, exact=True).click()
        assert axis in (chart.locator(".plot > svg").text_content() or "")
        seen.append(paths_of(page))
    controls.get_by_role("button", name="log").click()
    seen.append(paths_of(page))
    chart.get_by_role("button", name="linear").click()
    seen.append(paths_of(page))
    assert len({tuple(paths) for paths in seen}) == len(seen)
    controls.get_by_role("button", name="Total bits", exact=True).click()
    without = paths_of(page)
    page.get_by_label("with what drawing these curves sends").check()
    assert paths_of(page) != without


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
    shown = [float(text.replace(",", "")) for text in ticks_of(page)]
    assert shown == sorted(set(shown))
    assert len(shown) >= 2
    assert all(tick == int(tick) for tick in shown)
    page.locator("#curve-controls").get_by_role("button", name="log").click()
    assert all("." not in text for text in ticks_of(page))


def test_a_very_long_run_does_not_squash_the_others(visit: Open, tmp_path: Path) -> None:
    page = visit(lengths(tmp_path, 20, 30, 1000))
    controls, why = page.locator("#curve-controls"), page.locator("#axis-reason")
    assert controls.get_by_role("button", name="log").get_attribute("aria-pressed") == "true"
    assert "50 times as far as the shortest" in why.inner_text()
    first = page.eval_on_selector('[data-chart="objective"] path.curve', "node => node.getBBox().width")
    whole = page.eval_on_selector('[data-chart="objective"] rect.hit', "node => node.getBBox().width")
    assert first > 0.3 * whole
    controls.get_by_role("button", name="linear").click()
    assert why.is_hidden()
    assert page.eval_on_selector('[data-chart="objective"] path.curve', "node => node.getBBox().width") < 0.05 * whole


def test_runs_of_like_length_are_on_a_linear_axis(visit: Open, tmp_path: Path) -> None:
    path = lengths(tmp_path, 20, 40, 100)
    run = tmp_path / "rounds=1" / "seed-0"
    lengths(tmp_path, 1)
    for status in ("running", "diverged"):  # it may have just begun, or not have come far
        (run / "run.json").write_text(json.dumps({"format": 1, "name": "1 round", "status": status}))
        shown = visit(fpdfp.report.write(tmp_path, path))
        assert shown.locator("#axis-reason").is_hidden()
    shutil.rmtree(run)
    page = visit(fpdfp.report.write(tmp_path, path))
    pressed = page.locator("#curve-controls").get_by_role("button", name="linear").get_attribute("aria-pressed")
    assert pressed == "true"
    assert page.locator("#axis-reason").is_hidden()


def test_settings_that_differ_and_those_that_all_share(visit: Open, tmp_path: Path) -> None:
    path = lengths(tmp_path, 2, 3)
    for number in (2, 3):
        config = f"name = 'n'\n[loss]\nl2 = 0.5\n[run]\nrounds = {number}\nseeds = [0]\n"
        (tmp_path / f"rounds={number}" / "seed-0" / "config.toml").write_text(config)
    page = visit(fpdfp.report.write(tmp_path, path))
    assert page.locator("#settings-differ thead th").all_inner_texts() == ["Run", "run.rounds"]
    assert page.locator("#settings-differ td").all_inner_texts() == ["2", "3"]
    assert page.locator("#settings-same tbody tr").all_inner_texts() == ["loss.l2\t0.5"]


def test_dragging_zooms_and_a_double_click_resets(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    plot = page.locator('[data-chart="error"] .plot')
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    before = paths_of(page)
    reset = page.locator('[data-chart="error"] .reset')
    assert reset.is_disabled()
    start, end = (box["x"] + 200, box["y"] + 60), (box["x"] + 400, box["y"] + 200)
    drag(page, start, end)
    zoomed = paths_of(page)
    assert zoomed != before
    assert paths_of(page, "objective")  # the others stay as they were
    page.mouse.dblclick(*start)
    assert paths_of(page) == before
    drag(page, start, (end[0], start[1] + 4))
    assert paths_of(page) not in (before, zoomed)
    reset.click()
    assert paths_of(page) == before


def test_hovering_tells_the_nearest_point(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    plot = page.locator('[data-chart="error"] .plot')
    plot.scroll_into_view_if_needed()
    tip = plot.locator(".tip")
    assert tip.is_hidden()
    plot.hover(position={"x": 300, "y": 150})
    text = tip.inner_text()
    for word in ("relative error", "round", "total bits up", "seed"):
        assert word in text
    page.mouse.move(5, 5)
    assert tip.is_hidden()


def test_charts_work_with_the_keyboard(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    plot = page.locator('[data-chart="error"] .plot')
    plot.focus()
    assert "Arrow keys" in (plot.get_attribute("aria-label") or "")
    voice = page.locator('[data-chart="error"] [role=status]')
    page.keyboard.press("ArrowRight")
    first = voice.text_content()
    assert "round 0" in (first or "")
    page.keyboard.press("ArrowRight")
    second = voice.text_content()
    page.keyboard.press("ArrowDown")
    assert len({first, second, voice.text_content()}) == 3
    before = paths_of(page)
    page.keyboard.press("+")
    assert paths_of(page) != before
    page.keyboard.press("0")
    assert paths_of(page) == before
    button = page.locator("#legend button").first
    button.focus()
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "false"


def test_everything_can_be_reached_by_the_tab_key_and_has_a_name(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
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
    assert box.locator("table").count() == 0
    box.locator("summary").click()
    box.locator("table").wait_for()
    assert box.locator("thead th").all_inner_texts()[:2] == ["Series", "Round"]
    assert box.locator("tbody tr").count() == 2 * 21 + 2 * 61


def test_the_graph_names_a_feature_and_its_neighbours(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    page.locator("#graph circle.node").first.hover()
    text = page.locator("#graph .readout").inner_text()
    assert "Joined to" in text
    assert page.locator("#graph path.edge.near").count() > 0
    page.locator("#graph .graph").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#graph .readout").inner_text() != text
    assert "coefficients are zero" in page.locator("#coefficients").inner_text()
    page.get_by_role("button", name="Show all").click()
    assert page.locator(".coefficients li").count() > 24


def test_clients_are_told_one_by_one(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    readout = page.locator("#clients-body .readout")
    assert "8 clients, 160 samples" in readout.inner_text()
    page.locator("#clients-body .plot").focus()
    page.keyboard.press("End")
    assert readout.inner_text().startswith("7: 20 samples, weight")
    assert "yes" in readout.inner_text()


def test_the_slider_moves_the_picture(visit: Open, ct_page: Path) -> None:
    page = visit(ct_page)
    slider = page.locator('[data-knob="slice"]')
    slider.scroll_into_view_if_needed()
    before = {panel: pixels(page, panel) for panel in ("truth", "reconstruction", "error")}
    figures = page.locator(".figures").inner_text()
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    for panel, old in before.items():
        assert pixels(page, panel) != old
    assert page.locator(".figures").inner_text() != figures
    assert slider.get_attribute("aria-valuetext") == "7 of 8"
    for label in ("PSNR of this slice", "SSIM of this slice"):
        assert label in figures


def test_pixels_are_those_of_the_volume(visit: Open, ct_page: Path) -> None:
    page = visit(ct_page)
    (run,) = (path for path in ct_page.parent.iterdir() if path.is_dir())
    truth = fpdfp.runs.load(run).truth
    assert truth is not None
    low, high = float(truth.min()), float(truth.max())
    shown = pixels(page, "truth")[::4]
    # The first row of the picture is the top: y goes up, x to the right.
    expected = (255 * (truth[:, ::-1, 4].T - low) / (high - low)).ravel()
    assert max(abs(a - b) for a, b in zip(shown, expected, strict=True)) <= 0.51


def test_axis_and_window_can_be_chosen(visit: Open, ct_page: Path) -> None:
    page = visit(ct_page)
    size = "node => [node.width, node.height]"
    assert page.eval_on_selector('[data-panel="truth"] canvas', size) == [16, 16]
    page.get_by_role("button", name="coronal").click()
    assert page.eval_on_selector('[data-panel="truth"] canvas', size) == [16, 8]
    assert page.locator('[data-knob="slice"]').get_attribute("max") == "15"
    usual = pixels(page, "truth")
    page.locator('[data-knob="level"]').focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    assert pixels(page, "truth") != usual
    page.get_by_role("button", name="Reset window").click()
    assert pixels(page, "truth") == usual
    box = page.locator('[data-panel="truth"] canvas').bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    drag(page, middle, (middle[0] - 80, middle[1] + 10))
    assert pixels(page, "truth") != usual
    page.mouse.move(*middle)
    assert "Voxel (" in page.locator("#slices .readout").inner_text()


@pytest.mark.parametrize("which", ["model", "ct"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (375, "light")])
def test_pages_fit_and_follow_the_scheme(
    visit: Open, model_page: Path, ct_page: Path, which: str, width: int, scheme: str
) -> None:
    page = visit(model_page if which == "model" else ct_page, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 247, 249)"
    assert light == (scheme == "light")
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{which}-{width}-{scheme}.png", full_page=True)
    page.get_by_role("button", name="theme").click()
    assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 247, 249)") != light


def test_charts_follow_the_width(visit: Open, model_page: Path) -> None:
    page = visit(model_page)
    page.set_viewport_size({"width": 375, "height": 700})
    until(lambda: page.eval_on_selector("[data-chart=error] .plot > svg", "node => node.viewBox.baseVal.width < 375"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_a_finger_can_zoom_and_tell_points(visit: Open, model_page: Path) -> None:
    page = visit(model_page, width=375, has_touch=True)
    plot = page.locator('[data-chart="error"] .plot')
    plot.scroll_into_view_if_needed()
    plot.tap(position={"x": 150, "y": 100})
    assert plot.locator(".tip").is_visible()


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
        page.get_by_text("There is no run yet").wait_for()
        for name in ("first", "second"):
            grown(tmp_path / "runs" / name, model_runs / "0", 5)
        page.locator("#legend button").nth(1).wait_for()
        page.locator("#legend button").nth(1).click()
        page.locator("#curve-controls").get_by_role("button", name="Total bits up").click()
        plot = page.locator('[data-chart="objective"] .plot')
        plot.focus()
        page.keyboard.press("+")
        zoomed = page.locator('[data-chart="objective"] .reset')
        assert zoomed.is_enabled()
        before = paths_of(page)
        assert len(before) == 1
        grown(tmp_path / "runs" / "first", model_runs / "0", 12)
        until(lambda: paths_of(page) != before)
        # What was switched off, zoomed and chosen is as it was.
        assert page.locator("#legend button[aria-pressed=false]").inner_text() == "second"
        assert zoomed.is_enabled()
        assert "bits that clients send" in (page.locator('[data-chart="error"] .plot > svg').text_content() or "")
        assert page.evaluate("document.activeElement.className") == "plot"
        assert "live" in page.locator("#live").inner_text()
        shutil.rmtree(tmp_path / "runs" / "first")
        until(lambda: page.locator("#runs-table tbody tr").count() == 1)
        (tmp_path / "runs" / "second" / "history.csv").write_text("round,objective\n1,0.5\n2,")
        page.get_by_text("history.csv cannot be read").wait_for()
        page.close()


def test_the_live_page_shows_volumes_when_they_come(visit: Open, ct_page: Path, tmp_path: Path) -> None:
    (run,) = (path for path in ct_page.parent.iterdir() if path.is_dir())
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / "best.npz").unlink()
    (folder / "final.npz").rename(tmp_path / "final.npz")
    with live.serve(folder) as served:
        page = visit(served.url)
        page.locator("#runs-table tbody tr").wait_for()
        assert page.locator("#slices").is_hidden()
        (tmp_path / "final.npz").rename(folder / "final.npz")
        page.locator('[data-panel="reconstruction"] canvas').wait_for()
        assert any(pixels(page, "reconstruction")[::4])
        page.close()


def test_the_live_page_says_when_its_server_is_gone(browser: Browser, tmp_path: Path) -> None:
    served = live.serve(tmp_path)
    page = browser.new_page()
    page.goto(served.url)
    page.get_by_text("There is no run yet").wait_for()
    served.close()
    page.get_by_text("the server does not answer").wait_for(timeout=10_000)
    page.close()


def test_the_page_shows_how_good_a_model_is(visit: Open, model_runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(next(path.parent for path in sorted(model_runs.rglob("run.json"))), folder)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y, site = (X[:, 0] + rng.logistic(size=300) > 0).astype(int), np.array([EVIL, "north", "south"])[np.arange(300) % 3]
    evaluation = fpdfp.FederatedLogisticRegression(alpha=0.0).fit(X, y, groups=site).evaluate(X, y, groups=site)
    evaluation.save(folder)
    page = visit(fpdfp.report.write(folder, tmp_path / "report.html"))
    section = page.locator("#evaluation")
    assert section.locator("h3").all_inner_texts() == ["All sites", "Sites", "ROC curve", "Calibration"]
    assert f"{evaluation.overall['brier'].value:.4g}" in section.inner_text()
    assert section.locator("polyline").count() == 4
    assert section.locator("circle").count() == 10
    assert "\t2.5 %\t" in section.inner_text()
    section.locator("select").select_option("calibration slope")
    section.locator("summary").first.click()
    shown = f"{evaluation.by_site['north']['calibration slope'].value:#.4g}"
    assert shown in section.locator(".card").nth(1).inner_text()


@pytest.fixture(scope="module")
def sections_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit without a penalty and a cross-validation, with all sections, of sites and features with evil names."""
    folder, rng = tmp_path_factory.mktemp("sections"), np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 3)), columns=["age", EVIL, "dose"])
    y = (X["age"] + rng.logistic(size=400) > 0).astype(int)
    site = np.array(["east", EVIL])[np.arange(400) % 2]
    plain: Any = fpdfp.FederatedLogisticRegression(alpha=0.0).fit(X, y, groups=site)
    chosen: Any = fpdfp.FederatedLogisticRegressionCV("elasticnet", alphas=15, cv=3, l1_ratio=[0.5, 1.0])
    for name, model in ("plain", plain), ("chosen", chosen.fit(X, y, groups=site)):
        run = model.write_run(folder / name)
        model.evaluate(X, y, groups=site).save(run)
        model.learning_curve(X, y, groups=site).save(run)
    return fpdfp.report.write(folder, folder / "report.html")


def test_coefficients_have_errors_and_forests(visit: Open, sections_page: Path) -> None:
    page = visit(sections_page)
    assert (
        "No standard errors: they hold for fits without a penalty" in page.locator("#summary-card .note").inner_text()
    )
    assert page.locator("#heterogeneity-card").count() == 0
    page.locator("#inference select").first.select_option(label="plain")
    card = page.locator("#summary-card")
    heads = card.locator("thead th").all_inner_texts()[:7]
    assert heads == ["", "coefficient", "standard error", "z", "p", "2.5 %", "97.5 %"]
    assert card.locator("tbody tr th").all_inner_texts()[:4] == ["Intercept", "age", EVIL, "dose"]
    assert "intervals at 95 %" in card.inner_text()
    assert "null deviance" in card.inner_text()
    assert page.locator("#heterogeneity-card tbody tr").count() == 4
    forest = page.locator("#forest-card")
    # A square for each site and a diamond for each pooled estimate, and the value of no effect.
    assert (forest.locator("rect").count(), forest.locator("svg path").count()) == (2, 2)
    assert forest.locator("line.cross").count() == 1
    before = forest.locator("svg").inner_html()
    forest.locator("select").select_option(label=EVIL)
    assert forest.locator("svg").inner_html() != before
    assert "random effects" in (forest.locator("svg").text_content() or "")
    forest.locator("summary").click()
    forest.locator("tbody tr").first.wait_for()
    assert forest.locator("tbody tr").count() == 4


def test_paths_and_cross_validations_are_drawn(visit: Open, sections_page: Path) -> None:
    page = visit(sections_page)
    curve = page.locator('[data-chart="cross-validation"]')
    assert curve.locator("path.curve").count() == curve.locator("path.bars").count() == 2
    assert [text[:3] for text in curve.locator("text.chosen").all_text_contents()][:1] == ["min"]
    path = page.locator('[data-chart="path"]')
    assert path.locator("path.curve").count() == 3
    assert path.locator("line.chosen").count() == curve.locator("line.chosen").count()
    assert any(text.startswith(EVIL[:10]) for text in path.locator("text.name").all_text_contents())
    # Weights go from strong to weak.
    ticks = path.locator(".plot > svg text[text-anchor=middle]").all_text_contents()
    weights = [float(text) for text in ticks if text.startswith("0.")]
    assert weights == sorted(weights, reverse=True)
    plot = path.locator(".plot")
    plot.scroll_into_view_if_needed()
    plot.focus()
    page.keyboard.press("End")
    assert "weight" in path.locator(".tip").inner_text()
    assert path.locator("path.curve.near").count() == 1
    before = paths_of(page, "path")
    page.keyboard.press("+")
    assert paths_of(page, "path") != before
    page.keyboard.press("0")
    assert paths_of(page, "path")[:3] == before[:3]
    box = plot.bounding_box()
    assert box is not None
    drag(page, (box["x"] + 200, box["y"] + 100), (box["x"] + 400, box["y"] + 110))
    assert paths_of(page, "path")[:3] != before[:3]
    path.locator("summary").click()
    assert path.locator("tbody tr").count() == 45


def test_learning_curves_by_rounds_and_bits(visit: Open, sections_page: Path) -> None:
    page = visit(sections_page)
    section = page.locator("#learning")
    assert section.locator("path.curve").count() == 2
    seen = [paths_of(page, "learning")]
    for label in ("Total bits", "Total bits up"):
        section.get_by_role("button", name=label, exact=True).click()
        seen.append(paths_of(page, "learning"))
    section.locator("select").select_option(label="brier")
    seen.append(paths_of(page, "learning"))
    assert len({tuple(one) for one in seen}) == 4
    assert "bits that sites send" in (section.locator(".plot > svg").text_content() or "")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sections_fit_a_phone(visit: Open, sections_page: Path, scheme: str) -> None:
    page = visit(sections_page, width=375, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    page.locator("#inference select").first.select_option(label="plain")
    for section in ("inference", "selection", "evaluation", "learning"):
        assert page.locator(f"#{section}").is_visible()
        outside = page.eval_on_selector_all(
            f"#{section} .plot > svg text",
            "nodes => nodes.map(node => [node.textContent, node.getBoundingClientRect()])"
            ".filter(([_, box]) => box.left < 0 || box.right > 376).map(([text]) => text)",
        )
        assert outside == []
