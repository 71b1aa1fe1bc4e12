"""The result of a fit: it is immutable, owns what a model shows, and is the same for a matrix and for a formula."""

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.models.result import FitResult
from fpdfp.models.saving import write_parameter

SOURCE = Path(fpdfp.__file__).parent


def draw(rows: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    table = pd.DataFrame(rng.standard_normal((rows, 2)), columns=["age", "dose"])
    slope = table["age"] - 0.5 * table["dose"]
    table["died"] = (slope + rng.logistic(size=rows) > 0).astype(int)
    table["visits"] = rng.poisson(np.exp(0.4 * slope))
    table["grade"] = np.digitize(slope + rng.logistic(size=rows), [-1.0, 1.0])
    table["time"] = rng.exponential(np.exp(-0.5 * slope))
    table["event"] = (rng.random(rows) < 0.8).astype(int)
    table["lean"], table["weight"] = 0.1 * table["dose"], rng.uniform(0.5, 2.0, rows)
    table["site"] = np.array(["east", "north", "south"])[np.arange(rows) % 3]
    return table


TABLE = draw()
MODELS: dict[str, tuple[Any, str]] = {
    "linear": (fpdfp.FederatedLinearRegression("none"), "dose ~ age"),
    "lasso": (fpdfp.FederatedLinearRegression(fpdfp.L1(0.1), standardize=True), "dose ~ age"),
    "logistic": (fpdfp.FederatedLogisticRegression("none"), "died ~ age + dose"),
    "softmax": (fpdfp.FederatedLogisticRegression("none"), "grade ~ age + dose"),
    "poisson": (fpdfp.FederatedGLM("poisson", site_effects="fixed"), "visits ~ age + dose"),
    "multinomial": (fpdfp.FederatedMultinomialRegression(1), "grade ~ age + dose"),
    "ordinal": (fpdfp.FederatedOrdinalRegression(), "grade ~ age + dose"),
    "cox": (fpdfp.FederatedCoxRegression(), "Surv(time, event) ~ age + dose"),
}


def as_matrix(formula: str) -> tuple[Any, Any]:
    """Return the rows and the outcomes that a formula means."""
    response, terms = formula.split(" ~ ")
    names = ["time", "event"] if response.startswith("Surv") else response
    return TABLE[terms.split(" + ")], TABLE[names].to_numpy(dtype=float) if isinstance(names, list) else TABLE[names]


@pytest.mark.parametrize("name", MODELS)
def test_a_matrix_and_a_formula_take_the_same_way(name: str) -> None:
    """The same design: to the last bits that centring and the order of sums leave."""
    kind, formula = MODELS[name]
    X, y = as_matrix(formula)
    of_formula = pickle.loads(pickle.dumps(kind.fit(TABLE, formula, groups="site").fitted_))
    of_rows = kind.fit(X, y, groups=TABLE["site"]).fitted_
    assert of_rows.flat()[0] == of_formula.flat()[0]
    np.testing.assert_allclose(of_rows.flat()[1], of_formula.flat()[1], rtol=1e-9, atol=1e-12)
    assert (of_rows.n_iter, of_rows.rows, of_rows.status) == (of_formula.n_iter, of_formula.rows, of_formula.status)
    assert of_rows.deviance == pytest.approx(of_formula.deviance, rel=1e-12)
    if of_rows.information is not None:
        for own, other in zip(of_rows.information, of_formula.information, strict=True):
            np.testing.assert_allclose(own.hessian, other.hessian, rtol=1e-9)


def test_a_result_is_immutable_and_outlives_a_second_fit() -> None:
    model = fpdfp.FederatedGLM("poisson").fit(TABLE, "visits ~ age", groups="site")
    first = model.fitted_
    shown, coefficients = str(first.summary()), first.coefficients
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.coef = np.zeros(1)  # type: ignore[misc]
    model.fit(TABLE, "visits ~ age + dose", groups="site")
    assert model.fitted_ is not first
    assert (str(first.summary()), first.coefficients) == (shown, coefficients)
    assert len(model.coef_) == 2


def test_a_model_keeps_its_result_and_what_scikit_learn_asks_for_alone() -> None:
    model = fpdfp.FederatedLogisticRegression("none")
    before = set(vars(model))
    assert before == set(model.get_params())
    with pytest.raises(AttributeError, match="'FederatedLogisticRegression' object has no attribute 'coef_'"):
        _ = model.coef_
    model.fit(TABLE[["age", "dose"]], TABLE["died"], groups=TABLE["site"])
    assert set(vars(model)) - before == {"fitted_", "n_features_in_", "feature_names_in_"}
    fit = model.fitted_
    assert isinstance(fit, FitResult)
    assert model.coef_ is fit.coef
    assert model.result_ is fit.run
    assert model.history_ is fit.run.history  # type: ignore[union-attr]
    assert model.classes_ is fit.outcome.classes
    assert not hasattr(model, "theta_")
    assert not hasattr(model, "path_")
    assert model.table().p_values.tolist() == fit.table().p_values.tolist()
    np.testing.assert_array_equal(model.predict(TABLE[["age", "dose"]]), fit.predict(TABLE[["age", "dose"]]))
    with pytest.raises(ValueError, match="X must have 2 columns, got 1"):
        fit.predict(TABLE[["age"]])


def test_no_class_borrows_the_attributes_of_another() -> None:
    """Methods know what they are called on."""
    untyped = [str(path) for path in SOURCE.rglob("*.py") if re.search(r"\bself: Any\b", path.read_text())]
    assert untyped == []


def test_parameters_of_one_kind_belong_together() -> None:
    """A penalty, the options of a run and those of a cross-validation come back from files as they were."""
    chosen = fpdfp.FederatedLogisticRegressionCV(
        fpdfp.ElasticNet(l1_ratio=[0.5, 1.0], factors={"age": 0.5}),
        cv=fpdfp.CrossValidation(3, alphas=4, ratio=0.1), run=fpdfp.RunOptions(tol=1e-5, seed=3),
    )  # fmt: skip
    written = {name: write_parameter(value) for name, value in chosen.get_params().items()}
    again = type(chosen)(**{name: fpdfp.models.read_parameter(value, name) for name, value in written.items()})
    for one in (chosen, again):
        one.fit(TABLE, "died ~ age + dose", groups="site")
    np.testing.assert_array_equal(again.coef_, chosen.coef_)
    assert again.penalty_.describe() == chosen.penalty_.describe()
