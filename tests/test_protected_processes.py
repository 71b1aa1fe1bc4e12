"""Generalised linear models of the peers' data at the level ``sums``, through a hub and sites in processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("formulaic")

import fpdfp
from fpdfp.federation.rehearse import Rehearsal
from fpdfp.federation.seal import Secret
from tests.test_protected import CASES, EXACT, PEERS, peers


def policy(folder: Path, family: str) -> Path:
    """Write the policy of all sites, whose keys are made before they join."""
    lines = ["level = 'sums'", "[members]"]
    lines += [f"{name} = '{Secret.of(folder / name).public.hex()}'" for name in "abc"]
    for name, declared in CASES[family][2].items():
        lines.append(f"[columns_of_the_table.{name}]")
        lines += [f"{key} = {value!r}" for key, value in declared.items()]
    path = folder / "policy.toml"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("family", CASES)
def test_models_of_peers_are_the_plain_ones(tmp_path: Path, family: str) -> None:
    tables = peers(family)
    formula, kind, _, _ = CASES[family]
    files = {name: PEERS / f"{family}-{name}.csv" for name in tables}
    rehearsal = Rehearsal(tmp_path, files, policy(tmp_path, family))
    with rehearsal as running, fpdfp.Federation(running.study.folder) as federation:
        found = fpdfp.FederatedGLM(kind, run=EXACT).fit(federation, formula)
        left = federation.budget()["left"]
    plain = fpdfp.FederatedGLM(kind, run=EXACT).fit(tables, formula)
    assert list(found.coefficients_) == list(plain.coefficients_)
    for name, value in plain.coefficients_.items():
        assert found.coefficients_[name] == pytest.approx(value, rel=1e-10), name
    first, second = (one.table().frame()["standard error"].to_numpy() for one in (found, plain))
    np.testing.assert_allclose(first, second, rtol=1e-10)
    assert found.deviance_ == pytest.approx(plain.deviance_, rel=1e-10)
    assert found.null_deviance_ == pytest.approx(plain.null_deviance_, rel=1e-10)
    assert (left == 99).all()
