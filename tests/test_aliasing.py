"""Columns that others determine, in models of several linear predictors: as the model without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fpdfp import FederatedMultinomialRegression, FederatedOrdinalRegression, load_model


def table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 240))
    kind = rng.choice(["u", "v", "w"], 240)
    z = 0.8 * a - 0.5 * b + (kind == "v") + rng.logistic(size=240)
    return pd.DataFrame({
        "a": a, "b": b, "both": 2.0 * a - b + 1.0, "kind": kind, "flag": (kind != "u") * 1.0,
        "y": np.array(["low", "mid", "top"])[np.digitize(z, [-0.7, 1.0])], "site": np.arange(240) % 3,
    })  # fmt: skip


SEVERAL = ("mid: both", "mid: kind[T.w]", "top: both", "top: kind[T.w]")
ONE = ("both", "kind[T.w]")


@pytest.mark.parametrize("options", [{}, {"standardize": True}, {"site_effects": "fixed"}])
@pytest.mark.parametrize("ordinal", [False, True])
def test_the_fit_is_that_without_them(ordinal: bool, options: dict[str, Any], tmp_path: Any) -> None:
    def make() -> Any:
        order: Any = ["low", "mid", "top"]
        return (
            FederatedOrdinalRegression(order=order, **options) if ordinal else FederatedMultinomialRegression(**options)
        )

    data = table()
    data["v"] = 1.0 * (data["kind"] == "v")
    whole = make().fit(data, "y ~ a + b + both + flag + kind", groups="site")
    less = make().fit(data, "y ~ a + b + flag + v", groups="site")
    assert whole.aliased_ == (ONE if ordinal else SEVERAL)
    found, small, summary = whole.table(), less.table(), str(whole.summary())
    assert "not estimated, since other columns determine them" in summary
    np.testing.assert_allclose(found.coefficients, small.coefficients, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.standard_errors, small.standard_errors, rtol=1e-6)
    np.testing.assert_allclose(found.coefficients, _flat(whole.coefficients_, found.names), rtol=1e-12)
    site = data["site"] if "site_effects" in options else None
    np.testing.assert_allclose(whole.predict_proba(data, site=site), less.predict_proba(data, site=site), atol=1e-7)
    if ordinal:
        inflation = whole.variance_inflation()
        assert inflation["a"] == pytest.approx(less.variance_inflation()["a"], rel=1e-6)
    whole.save(tmp_path / "model.json")
    assert str(load_model(tmp_path / "model.json").summary()) == summary
    one, other = (
        model.profile_intervals(data, groups="site", names=[model.table().names[1]]) for model in (whole, less)
    )  # fmt: skip
    np.testing.assert_allclose([one.lower, one.upper], [other.lower, other.upper], rtol=1e-6)


def _flat(coefficients: Any, names: Any) -> Any:
    """Return coefficients, of classes or of one linear predictor, in the order of a table."""
    every = {
        f"{name}: {one}" if isinstance(value, dict) else name: number
        for name, value in coefficients.items()
        for one, number in (value.items() if isinstance(value, dict) else [("", value)])
    }
    return [every[name] for name in names]
