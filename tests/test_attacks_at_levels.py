"""The attacks at the levels ``sums`` and ``private``: at each, one that succeeds without what the level has, and fails.

Here are the series of the attack generator. What other files of attacks ask is asked at these levels too, by a fixture
of ``levels.py``, in a slow test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fpdfp.cohorts.losses import At
from fpdfp.federation import protected
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import ModelSpec
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.tree import Column, Numeric
from fpdfp.privacy.releases import GRID, Release
from tests import attacks
from tests.attacks import FRAME, MEASURED, SITES, Site, run

pytest.importorskip("cryptography")
OPEN = Policy.allowing_everything()


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    def begin(level: str, policy: Policy) -> Site:
        made = SITES[level](tmp_path / f"{level} {len(policy.off)}", policy)
        request.addfinalizer(made.guard.close)
        return made

    return begin


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attacks", "hostile_models", "designs", "many_policy"])
def test_other_attacks_at_these_levels(name: str) -> None:
    tests = Path(__file__).with_name(f"test_{name}.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", str(tests)]
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    given["FPDFP_ALL_LEVELS"] = "1"
    done = subprocess.run(command, check=False, env=given, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("one", attacks.SINGLE, ids=lambda one: one.__name__)
@pytest.mark.parametrize("level", ["sums", "private"])
def test_an_attack_of_one_idea_finds_no_row(level: str, one: Any, site: Any) -> None:
    rng = np.random.default_rng(0)
    default = site(level, Policy())
    assert not any(one(default, rng) for _ in range(4))


#: Attacks that single out a row where rules are off. The level ``sums`` refuses the others by what it has besides: no
#: models without an intercept, no points far from the usual curvature, no constants, and a schema that is declared.
SUCCEED = ("cuts", "combination", "weights", "folds", "rounding")


@pytest.mark.parametrize("name", SUCCEED)
def test_without_the_rules_of_the_filter_colluding_members_find_a_row(name: str, site: Any) -> None:
    rng = np.random.default_rng(0)
    without = site("sums", Policy(off=OPEN.off))
    assert any(getattr(attacks, f"attack_by_{name}")(without, rng) for _ in range(4))


@pytest.mark.parametrize("level", ["sums", "private"])
def test_the_generator_finds_no_row(level: str) -> None:
    found = run(Policy(), 150, 60, seed=1, level=level)
    assert found.rows == 0
    assert found.answers.total() > 20


def two_steep_planes(site: Site) -> bool:
    """Ask for gradients at planes on both sides of a row, which no rule at the level ``private`` refuses."""
    values = np.sort(FRAME.pressure)
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(MEASURED))
    about = ModelSpec(Design(Column("died"), terms, MEASURED), np.zeros(0), np.zeros(3), np.ones(3), True, "Logistic",
                      (0, 1), np.zeros(4))  # fmt: skip
    told = []
    for place in (200, 201):
        x = 1e9 * np.array([0.0, 1.0, 0.0, -values[place : place + 2].mean()])
        told.append(site.ask(about, At(x, ["gradients"]))[0])
    row = (told[1] - told[0]) / (told[1] - told[0])[-1]
    own = FRAME[FRAME.pressure == values[201]].iloc[0]
    return bool(np.allclose(row[:3], own[list(MEASURED)].to_numpy(float), atol=0.01))


def test_steep_planes_find_a_row_where_there_is_no_noise(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not two_steep_planes(site("private", Policy()))
    without = site("private", Policy(off=frozenset({"kinds"})))

    def add_nothing(release: Release, total: Any, radius: float, *_: Any) -> Any:
        return np.rint(total / (release.sensitivity(radius) / GRID)).astype(np.int64)

    monkeypatch.setattr(protected, "add_noise", add_nothing)
    assert two_steep_planes(without)
