"""Fitted models as files: the same predictions and summaries, and clear errors for what is no model."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.errors import ModelFileError
from fpdfp.federation.table import SiteTable
from tests.test_cohort import patients

#: Means that are put in are no concern here.
pytestmark = pytest.mark.filterwarnings("ignore:means were put in")

TABLE = patients().assign(
    visits=np.random.default_rng(1).poisson(2.0, 240) * np.random.default_rng(2).integers(0, 3, 240)
)
FORMULA = "age + C(stage, ref='II') + scale(pressure) + smoker"
MODELS: dict[str, Any] = {
    "cox": (fpdfp.FederatedCoxRegression(), "Surv(age, died) ~ dose + smoker + strata(stage)"),
    "logistic": (fpdfp.FederatedLogisticRegression("none"), f"died ~ {FORMULA}"),
    "lasso": (fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01), standardize=True), f"died ~ {FORMULA}"),
    "softmax": (fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01), run=fpdfp.RunOptions(prefer="bits")), "grade ~ age"),
    "linear": (
        fpdfp.FederatedLinearRegression(fpdfp.L1(0.01)),
        "log(dose + 9) ~ bs(age, knots=[50], lower_bound=20, upper_bound=99)",
    ),
    "graph": (fpdfp.FederatedLinearRegression(fpdfp.Graph(0.01), standardize=True), f"dose ~ {FORMULA}"),
    "poisson": (fpdfp.FederatedGLM("poisson", site_effects="fixed"), "visits ~ age + offset(log(pressure))"),
    "gamma": (fpdfp.FederatedGLM("gamma", "log"), "I(dose + 9) ~ age"),
    "tweedie": (fpdfp.FederatedGLM(fpdfp.families.Tweedie(power=1.3)), "visits ~ age"),
    "negative binomial": (fpdfp.FederatedGLM("negative binomial"), "visits ~ age + smoker"),
    "multinomial": (fpdfp.FederatedMultinomialRegression("b"), f"grade ~ {FORMULA}"),
    "ordinal": (
        fpdfp.FederatedOrdinalRegression("probit", order=["a", "b", "c"], standardize=True),
        f"grade ~ {FORMULA}",
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request: pytest.FixtureRequest) -> Any:
    model, formula = MODELS[request.param]
    return model.fit(
        TABLE,
        formula,
        groups="hospital",
        missing="indicator" if "pressure" in formula and "offset" not in formula else "drop",
    )


def numbers(model: Any, table: Any) -> Any:
    options = {"site": "north"} if getattr(model, "site_effects", "none") == "fixed" else {}
    return getattr(model, "predict_proba", model.predict)(table, **options)


def test_a_model_comes_back(fitted: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    fitted.save(path)
    model = fpdfp.load_model(path)
    assert type(model) is type(fitted)
    # New rows at a site that had no part in it: columns in another order, and more of them.
    new = patients(30, seed=5).dropna().assign(visits=1).iloc[:, ::-1].drop(columns="hospital")
    np.testing.assert_array_equal(numbers(model, new), numbers(fitted, new))
    np.testing.assert_array_equal(numbers(model, SiteTable.read(new)), numbers(fitted, new))
    assert str(model.summary()) == str(fitted.summary())
    assert model.summary().to_json() == fitted.summary().to_json()
    assert model.summary().to_csv() == fitted.summary().to_csv()
    if model.information_ is not None and not model.fitted_.penalised:
        assert str(model.table(errors="HC1")) == str(fitted.table(errors="HC1"))
        assert {k: str(v) for k, v in model.site_tables().items()} == {
            k: str(v) for k, v in fitted.site_tables().items()
        }
    again = tmp_path / "again.json"
    model.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert "pickle" not in path.read_text()


def test_models_of_matrices(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((90, 3)), columns=["a", "b", "c"])
    y = np.digitize(X["a"] + rng.logistic(size=90), [-1.0, 1.0])
    for kind, target in (
        (fpdfp.FederatedLinearRegression(), y * 1.0),
        (fpdfp.FederatedGLM("poisson"), y * 1.0),
        (fpdfp.FederatedOrdinalRegression(order=["a", "b", "c"]), np.array(["a", "b", "c"])[y]),
        (fpdfp.FederatedMultinomialRegression(), y),
        (fpdfp.FederatedLogisticRegression(fpdfp.Graph(graph=[(0, 1)])), y > 0),
    ):
        model = kind.fit(X, target, groups=np.arange(90) % 3)
        model.save(tmp_path / "model.json")
        again = fpdfp.load_model(str(tmp_path / "model.json"))
        found, known = again.predict(X), model.predict(X)
        assert found.dtype == known.dtype
        np.testing.assert_array_equal(found, known)
        with pytest.raises(ValueError, match="feature names"):
            again.predict(X.rename(columns={"a": "z"}))


def test_objects_have_their_defaults(tmp_path: Path) -> None:
    model = fpdfp.FederatedLinearRegression(fpdfp.L1(0.1), method=fpdfp.ProximalNewton())
    model.fit(np.arange(8.0)[:, None], np.arange(8.0) % 3)
    model.save(tmp_path / "model.json")
    assert json.loads((tmp_path / "model.json").read_text())["objects"] == ["method"]
    again = fpdfp.load_model(tmp_path / "model.json")
    assert (again.method, again.penalty.weight) == (None, 0.1)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("models") / "model.json"
    fpdfp.FederatedOrdinalRegression(order=["a", "b", "c"]).fit(TABLE, "grade ~ age + stage", groups="hospital").save(
        path
    )
    return json.loads(path.read_text())


def refuse(document: Any, path: Path, match: str) -> None:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(ModelFileError, match=match):
        fpdfp.load_model(path)


def test_what_is_no_model(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    with pytest.raises(ModelFileError, match="cannot be read"):
        fpdfp.load_model(path)
    with pytest.raises(Exception, match="not fitted"):
        fpdfp.FederatedGLM().save(path)
    refuse("{", path, "not JSON")
    refuse("[" * 100_000, path, "not JSON")
    refuse("[]", path, "does not say")
    refuse('{"format": "fpdfp model", "version": NaN}', path, "NaN")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ModelFileError, match="UTF-8"):
        fpdfp.load_model(path)
    refuse(document | {"version": 2, "fpdfp": "9.0"}, path, "install a newer one")
    refuse(document | {"version": "1"}, path, "version must be a number")
    refuse(document | {"estimator": "load_model"}, path, "estimator must be one of")
    refuse(document | {"estimator": "FederatedGLM"}, path, "no parameter 'order'")
    refuse(document | {"parameters": {"link": "__import__"}}, path, "link must be")
    penalty = {"class": "L1", "fields": {"weight": -1}}
    refuse(document | {"parameters": {"penalty": penalty}}, path, "weight must be")
    refuse(document | {"parameters": {"penalty": penalty | {"class": "Logistic"}}}, path, "must be a class that")
    refuse(document | {"parameters": {"penalty": penalty | {"fields": {"x": 1}}}}, path, "has no field 'x'")
    fitted = document["fitted"]
    changes: dict[str, tuple[Any, str]] = {
        "coef_": ([1.0], "coef_ must have 3 columns"),
        "thresholds_": ([1.0, 0.0], "increasing"),
        "__class__": ("x", "nothing named '__class__'"),
        "rows_": ({"a": -1}, "rows_ must be counts"),
        "formula_": (None, "plan_ must match the formula"),
        "n_features_in_": (1 << 70, "n_features_in_"),
        "information_": ([{}], "information_ must have rows"),
        "classes_": ({"kind": "U", "labels": [1]}, "classes_"),
    }
    for name, (value, match) in changes.items():
        refuse(document | {"fitted": fitted | {name: value}}, path, match)
    for name in ("coef_", "plan_", "classes_", "sites_"):
        refuse(document | {"fitted": {k: v for k, v in fitted.items() if k != name}}, path, "fit together|plan_")


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        found += places(value, (*path, key))
    return found


def test_forged_files(document: Any, tmp_path: Path) -> None:
    """Whatever is changed in a file, the model is refused with one kind of error, or can be used."""
    rng, path = np.random.default_rng(0), tmp_path / "model.json"
    values: list[Any] = [None, True, -1, 1e308, 2**80, "x", "", [], {}, [[1.0], [1.0, 2.0]], {"family": {}}, [None]]
    where = [place for place in places(document) if place]
    new, refused = TABLE[["age", "stage"]].dropna().head(3), 0
    for _ in range(400):
        forged = copy.deepcopy(document)
        *outer, last = where[rng.integers(len(where))]
        tree = forged
        for key in outer:
            tree = tree[key]
        tree[last] = values[rng.integers(len(values))]
        path.write_text(json.dumps(forged))
        try:
            model = fpdfp.load_model(path)
        except ModelFileError:
            refused += 1
            continue
        with contextlib.suppress(fpdfp.errors.ArgumentError):  # a column that this table lacks, for instance
            assert model.predict_proba(new).shape[0] == 3
    assert refused > 200


def test_a_full_disk_is_named(fitted: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(fpdfp.errors.StorageError, match="cannot be written"):
        fitted.save(tmp_path / "file" / "model.json")
