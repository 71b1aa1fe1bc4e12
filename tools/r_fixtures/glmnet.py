"""Penalised models: `glmnet` with lasso and elastic net, weights, offsets, penalty factors and limits."""

from __future__ import annotations

from typing import Any

# gaussian(), binomial() and poisson() as objects: with the name "gaussian" glmnet divides the outcome by its deviation,
# and the quadratic part of the penalty is then no longer the one of its documentation.
PRELUDE = r"""
glmnet.control(epsnr = 1e-16, mxitnr = 500)
X <- as.matrix(wide[paste0("z", 1:8)])
y_cox <- stratifySurv(Surv(wide$time, wide$status), as.integer(wide$site))
fit_net <- function(y, family, lambda, ...) {
  fit <- glmnet(X, y, family, lambda = lambda, thresh = 1e-22, maxit = 1e7, ...)
  list(intercept = as.numeric(fit$a0), coefficients = t(unname(as.matrix(fit$beta))), deviance_ratio = fit$dev.ratio,
       null_deviance = fit$nulldev)
}
"""

OUTCOMES = {
    "gaussian": ("wide$real", "gaussian()", "real", [0.3, 0.05]),
    "binomial": ("wide$binary", "binomial()", "binary", [0.1, 0.02]),
    "poisson": ("wide$count", "poisson()", "count", [0.3, 0.05]),
    "cox": ("y_cox", '"cox"', "time", [0.1, 0.02]),
}
FACTORS = [0, 1, 1, 2, 1, 1, 1, 1]  # glmnet makes them add up to the number of columns: these do
# the R argument, and what it means
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "lasso": ("alpha = 1, standardize = FALSE", {"mixing": 1.0, "standardize": False}),
    "lasso, standardised": ("alpha = 1, standardize = TRUE", {"mixing": 1.0, "standardize": True}),
    "elastic net": ("alpha = 0.5, standardize = FALSE", {"mixing": 0.5, "standardize": False}),
    "elastic net, standardised": ("alpha = 0.5, standardize = TRUE", {"mixing": 0.5, "standardize": True}),
    "ridge": ("alpha = 0, standardize = FALSE", {"mixing": 0.0, "standardize": False}),
    "factors": (
        f"alpha = 1, standardize = FALSE, penalty.factor = c({', '.join(map(str, FACTORS))})",
        {"mixing": 1.0, "standardize": False, "factors": FACTORS},
    ),
    "limits": (
        "alpha = 1, standardize = FALSE, lower.limits = -0.05, upper.limits = 0.2",
        {"mixing": 1.0, "standardize": False, "lower": -0.05, "upper": 0.2},
    ),
    "weights": (
        "alpha = 1, standardize = FALSE, weights = wide$weight",
        {"mixing": 1.0, "standardize": False, "weights": "weight"},
    ),
    "offset": (
        "alpha = 1, standardize = FALSE, offset = wide$lean",
        {"mixing": 1.0, "standardize": False, "offset": "lean"},
    ),
}


def list_cases() -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the R expression of each case, and what a test has to know to fit the same."""
    cases: dict[str, str] = {}
    known: dict[str, dict[str, Any]] = {}
    for family, (y, made, outcome, lambdas) in OUTCOMES.items():
        for option, (arguments, meaning) in OPTIONS.items():
            name = f"{family}, {option}"
            cases[name] = f"fit_net({y}, {made}, c({', '.join(map(str, lambdas))}), {arguments})"
            known[name] = {"data": "wide", "family": family, "outcome": outcome, "lambdas": lambdas} | meaning
    return cases, known
