"""The comparisons of the results pages: nobody is left out, and a part taken away is one part."""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from benchmarks import _ablation_thresholds, _contenders, ablation

import fpdfp
from fpdfp import methods, tuning
from fpdfp.tuning import Choice, Outcome, Totals
from tests import helpers

STEP = fpdfp.steps.Constant(0.1)


def test_every_method_is_in_the_table() -> None:
    public = {kind for kind in vars(methods).values() if isinstance(kind, type) and issubclass(kind, methods.Method)}
    run = {type(one.make(STEP)) for one in _contenders.CONTENDERS.values()} - {type(None)}
    # FPDFP runs as FPDFPIdentity where B is the identity, which it is not there.
    assert run == public - {methods.Method, methods.FPDFPIdentity}


@pytest.mark.parametrize("name", _contenders.CONTENDERS)
def test_a_contender_has_the_grid_that_it_can_take(name: str) -> None:
    contender, grid = _contenders.CONTENDERS[name], _contenders.grid_of(name)
    method = contender.make(STEP)
    if not contender.tuned:
        assert grid == [_contenders.UNTUNED]
        return
    compresses = method.traits.compression
    assert len(grid) == 8 * (3 if contender.falling else 1) * (3 if compresses else 1)
    assert all((one.levels is not None) == compresses for one in grid)
    assert contender.everyone or contender.central or method.traits.partial_participation
    if contender.falling:
        contender.make(fpdfp.steps.Decreasing(0.1, 0.01))


def reached(rounds: float | None) -> Totals:
    one = None if rounds is None else {"round": rounds, "bits_up": 1000.0 * rounds, "bits_down": 0.0, "seconds": 0.0}
    return {"0.01": one}


def test_seeds_that_do_not_get_there_count_as_slowest() -> None:
    choice = Choice(1.0, 0.0, None)
    some = _contenders.cell([reached(7.0), reached(None), reached(5.0)], 0.01, choice)
    assert some is not None
    assert (some.rounds.median, some.rounds.least, some.rounds.largest) == (7.0, 5.0, math.inf)
    assert str(some) == "7 (5 to never) · 7 kbit (5 kbit to never)"
    assert _contenders.cell([reached(7.0), reached(None), reached(None)], 0.01, choice) is None
    assert str(_contenders.cell([reached(7.0)], 0.01, choice)) == "7 · 7 kbit"


@pytest.mark.parametrize(("gamma", "levels"), [(2.0, 5), (300.0, 5), (0.03, 200), (3.0, 1), (1e9, 1e9)])
def test_tuning_goes_on_beyond_the_ends_of_the_grid(gamma: float, levels: int) -> None:
    lengths: dict[Choice, list[int]] = {}

    def compute(some: Any, rounds: int) -> list[Outcome]:
        for one in some:
            lengths.setdefault(one, []).append(rounds)
        away = [
            math.log2(one.gamma / gamma) ** 2 + math.log2((one.levels or 1) / levels) ** 2 + one.decay for one in some
        ]
        return [Outcome(error, {"0.01": None, "1e-06": None}) for error in away]

    found = tuning.search(tuning.choices(), 2000, compute)
    best = min(found, key=lambda one: found[one].error)
    assert best.levels is not None
    inside = gamma < 1e9
    if inside:
        assert abs(math.log2(best.gamma / gamma)) <= 0.5
        assert abs(math.log2((best.levels or 1) / levels)) <= 1
    else:
        assert best.gamma == tuning.LIMITS["gamma"][1]
    assert tuning.at_the_end(best) != inside
    assert best.decay == 0.0
    assert lengths[best][-1] == 2000
    assert {250, 1000, 2000} == {rounds for some in lengths.values() for rounds in some}


@pytest.mark.parametrize("name", ablation.MECHANISMS)
def test_an_ablation_switches_a_mechanism_off_and_on_again(name: str) -> None:
    mechanism = ablation.MECHANISMS[name]
    job = ablation.Job("on" if mechanism.on else "off", name, "diabetes", 1e-3, 1)
    patched = {(patch.getter(), patch.attribute): None for patch in job.patches}
    before = {one: getattr(*one) for one in patched}
    assert before or mechanism.options or mechanism.on
    with contextlib.ExitStack() as stack:
        for patch in job.patches:
            stack.enter_context(patch)
        assert all(getattr(*one) is not value for one, value in before.items())
    assert all(getattr(*one) == value for one, value in before.items())
    for place, _ in mechanism.where:
        assert callable(ablation.present(place))


def test_an_ablation_sees_what_a_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers.take_shifted(monkeypatch)
    whole, without = (
        ablation.do(ablation.Job(kind, name, "diabetes", 1e-6, 1)) for kind, name in (("whole", ""), ("off", "finish"))
    )
    assert {"finish", "growth", "whitening"} <= set(whole["active"])
    assert not {"importance", "fourier", "working_set"} & set(whole["active"])
    assert (whole["status"], without["status"]) == ("converged", "converged")
    assert whole["rounds"] < without["rounds"]
    runs = {ablation.Job(*(one[name] for name in ablation.Job._fields)): one for one in (whole, without)}
    found = ablation.judge(runs, "off", "finish", ["diabetes"])
    assert (found.active, found.of, found.failures) == (1, 1, [])
    assert found.medians["few features"][0] == without["rounds"] / whole["rounds"]


SWEPT = _ablation_thresholds.THRESHOLDS | _ablation_thresholds.POOLED


@pytest.mark.parametrize("name", [name for name, one in SWEPT.items() if one.change])
def test_a_sweep_changes_a_threshold(name: str) -> None:
    one = SWEPT[name]
    for patch in one.patches(name, 2.0):
        before = getattr(patch.getter(), patch.attribute)
        with patch:
            assert getattr(patch.getter(), patch.attribute) != before
        assert getattr(patch.getter(), patch.attribute) == before


#: Files under whose names the first table of the page has numbers.
FORMER = {
    "engines/working_set": ("engines/screening", "engines/slopes"), "methods/shifted": ("methods/_acceleration",),
    "methods/_preconditioned": ("methods/_dual_prox",), "precondition/agreement": ("precondition/exchange",),
}  # fmt: skip


def numbers_of(file: str) -> set[str]:
    """The names at the top of a file that are numbers, or tuples of them."""
    module = importlib.import_module(f"fpdfp.{file.replace('/', '.')}")
    targets = list[ast.expr]()
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        targets += node.targets if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AnnAssign) else []
    names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}

    def is_number(value: Any) -> bool:
        return (
            bool(value) and all(map(is_number, value)) if isinstance(value, tuple) else isinstance(value, int | float)
        )

    return {name for name in names if name.isupper() and is_number(getattr(module, name))}


@pytest.mark.parametrize("file", _ablation_thresholds.STEERING)
def test_every_number_that_steers_is_in_the_table(file: str) -> None:
    table = _ablation_thresholds.THRESHOLDS
    page = (Path(__file__).parents[1] / "docs" / "results" / "ablation-tables.txt").read_text()
    elsewhere = {name.rpartition(":")[2] for name, one in table.items() if file in one.also}
    for name in numbers_of(file) - elsewhere:
        one = table[f"{file}:{name}"]
        assert one.change is not None or one.why.partition(":")[0] in _ablation_thresholds.REASONS
        assert any(f"| `{place}:{name}` |" in page for place in (file, *FORMER.get(file, ())))


def test_numbers_are_found() -> None:
    assert {"CHEAP", "DEAR", "FIRST"} <= numbers_of("engines/stopping")
    assert "FLOORS" in numbers_of("precondition/quantized")
    assert "UNEVEN" in numbers_of("methods/_preconditioned")


@pytest.mark.parametrize("name", [name for name, one in _ablation_thresholds.POOLED.items() if not one.change])
def test_thresholds_that_are_not_swept_are_there(name: str) -> None:
    assert _ablation_thresholds.POOLED[name].value(name) != "gone"


def test_the_page_on_the_gpu_has_the_stored_figures() -> None:
    folder = Path(__file__).parents[1] / "docs" / "results" / "gpu"
    page = (folder.parent / "ct.md").read_text()
    projector, calls, slabs = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("projector", "calls", "slabs")
    )
    shown = [f"| {name} | {ms:.1f} |" for name, ms in projector["gpu"]["milliseconds"].items()]
    shown += [
        f"| {one['name']} | {one['call']:.1f} | {one['rounds']:.1f} | {one['certificate']:.1f} |"
        for one in calls["results"]
    ]
    cases = {"fdk": "FDK", "tv": "total variation"}
    for one in [one for one in slabs["rows"] if "seconds" in one]:
        start = f"| {cases[one['case']]} | {one['side']}³ | {one['workers']} | {one['seconds']:.3g} |"
        shown.append(f"{start} {one['pool_GB']:.1f} | {one['error']} |")
    assert len(shown) == 13
    for row in shown:
        assert row in page, row
