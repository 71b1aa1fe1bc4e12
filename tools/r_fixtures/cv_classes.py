"""Paths and cross-validation of three classes: `cv.glmnet(family = "multinomial")` with given folds."""

from __future__ import annotations

from typing import Any

from tools.r_fixtures import cv

PRELUDE = (
    cv.PRELUDE
    + r"""
classes <- factor(pmin(wide$count, 2))
choose_classes <- function(type, ...) {
  first <- glmnet(X, classes, "multinomial", standardize = FALSE, nlambda = 3, type.multinomial = type, ...)$lambda[1]
  grid <- first * 10^seq(0, -3, length.out = 12)
  fit <- cv.glmnet(X, classes, family = "multinomial", lambda = grid, foldid = fold, standardize = FALSE,
                   type.multinomial = type, thresh = 1e-18, maxit = 1e7, ...)
  list(first = first, alphas = fit$lambda, mean = fit$cvm, error = fit$cvsd, min = fit$lambda.min, se = fit$lambda.1se,
       intercept = t(unname(as.matrix(fit$glmnet.fit$a0))),
       coefficients = lapply(unname(fit$glmnet.fit$beta), function(one) t(unname(as.matrix(one)))))
}
"""
)

OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "lasso": ('"ungrouped", alpha = 1', {"mixing": 1.0}),
    "elastic net": ('"ungrouped", alpha = 0.5', {"mixing": 0.5}),
    "weights": ('"ungrouped", alpha = 1, weights = wide$weight', {"mixing": 1.0, "weights": "weight"}),
    "grouped": ('"grouped", alpha = 1', {"grouped": True}),
}


def list_cases() -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the R expression of each case, and what a test has to know to fit the same."""
    cases = {name: f"choose_classes({arguments})" for name, (arguments, _) in OPTIONS.items()}
    return cases, {
        name: {"data": "wide", "outcome": "count", "most": 2} | known for name, (_, known) in OPTIONS.items()
    }
