"""Survival against R's package survival, on tied times, late entries, start–stop rows, strata, weights and offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from tests.r_cases import cases, frame, numbers, times

R = cases("survival")
COX = {name: case for name, case in R.items() if name.startswith("cox")}


def losses(case: dict[str, Any]) -> fpdfp.losses.Cox:
    data = times(case)
    return fpdfp.losses.Cox(
        data.X,
        data.time,
        data.event,
        data.clients,
        entry=data.entry,
        ties=case["ties"],
        strata=data.strata,
        weights=data.weights,
        offset=data.offset,
    )


@pytest.mark.parametrize("name", COX)
def test_the_partial_likelihood(name: str) -> None:
    cox, r = losses(COX[name]), COX[name]["r"]
    x, everyone = numbers(r["coefficients"]), np.arange(cox.n_clients)
    for point, expected in ((x, r["log_likelihood"]), (np.zeros_like(x), r["null_log_likelihood"])):
        assert -float(cox.sizes @ cox.values(point, everyone)) == pytest.approx(expected, rel=1e-9)
    assert np.abs(cox.sizes @ cox.gradients(x, everyone)).max() < 1e-6
    information = np.einsum("i,ijk->jk", cox.sizes.astype(float), cox.hessians(x, everyone))
    np.testing.assert_allclose(np.linalg.inv(information), r["covariance"], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", COX)
def test_baseline_hazards(name: str) -> None:
    cox, r = losses(COX[name]), COX[name]["r"]
    x = numbers(r["coefficients"])
    # Without newdata R's hazard is that of a row with the mean offset.
    lift = float(np.exp(frame("survival")["lean"].mean())) if "offset" in name else 1.0
    clients = np.unique(data) if (data := times(COX[name]).clients) is not None else np.array(["all"])
    for client, label in enumerate(clients):
        for found in cox.hazards(x, client):
            stratum = f"{label}, {found.stratum}" if "grades" in name else label
            known = r["hazard"][stratum]
            # R has a row for each time at which somebody leaves; between events the hazard stays.
            at = np.searchsorted(numbers(known["time"]), found.times)
            np.testing.assert_allclose(lift * np.cumsum(found.hazard), numbers(known["hazard"])[at], rtol=1e-6)
