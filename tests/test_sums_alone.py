"""Nothing above cohorts holds the numbers of one site, but through ``ask_each``."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts.local import Clients
from tests.loopback import Loopback

SOURCE = Path(fpdfp.__file__).parent
#: What carries single answers: the modules of the package that no other may enter, and who builds on them.
INSIDE = ("collector", "remote", "requests", "site")
#: Who carries requests, or answers them; the road of a run starts and ends an engine, and counts its constants.
ALLOWED = ("cohorts/", "federation/", "ct/losses.py", "engines/solve.py", "engines/prepare.py")


@pytest.fixture
def sums_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cohorts that answer in sums alone."""

    def refuse(self: Any, question: Any) -> Any:
        raise AssertionError(f"{question.name} is asked of single clients")

    monkeypatch.setattr(Clients, "ask_each", refuse)


def problem(l2: float = 0.01) -> fpdfp.Problem:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((90, 5)), rng.choice([-1.0, 1.0], 90)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(90) % 3, l2=l2)
    return fpdfp.Problem(losses, fpdfp.penalties.L1(0.02))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (None, {"rounds": 100, "tol": 1e-5}),
        (fpdfp.ShiftedPDFP(), {"rounds": 30, "tol": 1e-3, "compressor": fpdfp.QSGD(7)}),
        (fpdfp.NewtonPDFP(), {"rounds": 5}),
        (fpdfp.ProximalNewton(), {"rounds": 10, "tol": 1e-6}),
        (fpdfp.FedMiD(), {"rounds": 3, "clients_per_round": 2}),
    ],
)
def test_runs_with_sites_need_sums_alone(sums_alone: None, method: Any, options: dict[str, Any]) -> None:
    here, crew = problem(), Loopback(problem(), sites=3)
    there = fpdfp.Problem(crew.losses(), here.penalty)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        away, local = (fpdfp.solve(one, method, progress=False, **options) for one in (there, here))
    np.testing.assert_array_equal(away.x, local.x)
    assert away.objective == local.objective
    assert away.certificate.gap == pytest.approx(local.certificate.gap, rel=1e-6)


def test_many_problems_need_sums_alone(sums_alone: None) -> None:
    here, crew = problem(), Loopback(problem(), sites=3)
    there = fpdfp.Problem(crew.losses(), here.penalty)
    found = [
        fpdfp.solve_many([one, one], held_out=[None, 0], folds=fpdfp.Folds(3), progress=False) for one in (there, here)
    ]
    np.testing.assert_array_equal(found[0].x, found[1].x)


def test_losses_at_sites_have_no_single_values() -> None:
    losses = Loopback(problem(), sites=3).losses()
    x, everyone = np.zeros(5), np.arange(3)
    assert losses.value(x, np.full(3, 1 / 3)) == pytest.approx(np.log(2))
    for ask in (losses.values, losses.gradients):
        with pytest.raises(NotImplementedError, match="single clients"):
            ask(x, everyone)


def test_no_other_module_enters_what_carries_single_answers() -> None:
    entered = set()
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        homes = {str(node.module).removeprefix("fpdfp.cohorts.") for node in imports}
        entered |= {(name, home) for home in homes & set(INSIDE) if not name.startswith(ALLOWED)}
    assert entered == set()
