"""The conventions of scikit-learn for the estimators that choose their weight."""

from __future__ import annotations

from typing import Any

import pytest

import fpdfp
from tests.helpers import conventions

#: Some checks have twenty rows whose three classes are separated: with a thousandth of the largest weight one problem
#: of twelve stalls there, with a warning.
FEW: dict[str, Any] = {"cv": fpdfp.CrossValidation(3, alphas=3, ratio=0.1)}
#: Weights of rows and repeated rows give the same model up to the tolerance of a fit. The check asks for 1e-7, which a
#: duality gap of 1e-6 does not promise; with Efron's ties they are not the same model. Fits by Newton steps pass.
DIGITS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_class_weight_classifiers",
)
#: The linear predictor of a generalised linear model has this name.
NAMED = ("check_regressors_no_decision_function",)
#: Classes that are texts are refused where no order is declared.
TEXTS = ("check_classifiers_classes",)


@pytest.mark.slow
@conventions(  # type: ignore[untyped-decorator]
    fpdfp.FederatedLogisticRegressionCV(**FEW),
    fpdfp.FederatedLinearRegressionCV(**FEW),
    fpdfp.FederatedCoxRegressionCV(**FEW),
    beside=DIGITS,
)
def test_conventions(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@conventions(  # type: ignore[untyped-decorator]
    fpdfp.FederatedGLMCV(**FEW),
    fpdfp.FederatedMultinomialRegressionCV(**FEW),
    beside=NAMED,
)
def test_conventions_with_weights(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@conventions(fpdfp.FederatedOrdinalRegressionCV(**FEW), beside=TEXTS)  # type: ignore[untyped-decorator]
def test_conventions_of_ordered_classes(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@conventions(  # type: ignore[untyped-decorator]
    fpdfp.FederatedCoxRegressionCV(ties="breslow", **FEW, run=fpdfp.RunOptions(tol=1e-12)),
    fpdfp.FederatedLinearRegressionCV(method=fpdfp.ProximalNewton(), **FEW, run=fpdfp.RunOptions(tol=1e-12)),
    having="weight_equivalence",
)
def test_weights_with_more_digits(estimator: Any, check: Any) -> None:
    check(estimator)
