"""Paths and cross-validation: `glmnet` from its own first weight down, and `cv.glmnet` with given folds."""

from __future__ import annotations

from typing import Any

# As in glmnet.py, gaussian() is an object: with the name glmnet divides the outcome by its deviation.
PRELUDE = r"""
glmnet.control(epsnr = 1e-16, mxitnr = 500)
X <- as.matrix(wide[paste0("z", 1:8)])
fold <- (seq_len(nrow(wide)) * 7) %% 5 + 1
y_cox <- Surv(wide$time, wide$status)
y_sites <- stratifySurv(y_cox, as.integer(wide$site))
choose_net <- function(y, family, ...) {
  first <- glmnet(X, y, family, standardize = FALSE, nlambda = 3, ...)$lambda[1]
  grid <- first * 10^seq(0, -3, length.out = 20)
  fit <- cv.glmnet(X, y, family = family, lambda = grid, foldid = fold, standardize = FALSE, grouped = TRUE,
                   thresh = 1e-22, maxit = 1e7, ...)
  list(first = first, alphas = fit$lambda, mean = fit$cvm, error = fit$cvsd, min = fit$lambda.min, se = fit$lambda.1se,
       intercept = as.numeric(fit$glmnet.fit$a0), coefficients = t(unname(as.matrix(fit$glmnet.fit$beta))))
}
"""

OUTCOMES = {
    "gaussian": ("wide$real", "gaussian()", "real"),
    "binomial": ("wide$binary", "binomial()", "binary"),
    "poisson": ("wide$count", "poisson()", "count"),
    "cox, one site": ("y_cox", '"cox"', "time"),
    "cox, by site": ("y_sites", '"cox"', "time"),
}
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "lasso": ("alpha = 1", {"mixing": 1.0}),
    "elastic net": ("alpha = 0.5", {"mixing": 0.5}),
    "weights": ("alpha = 1, weights = wide$weight", {"mixing": 1.0, "weights": "weight"}),
    "offset": ("alpha = 1, offset = wide$lean", {"mixing": 1.0, "offset": "lean"}),
}


def list_cases() -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the R expression of each case, and what a test has to know to fit the same."""
    cases: dict[str, str] = {}
    known: dict[str, dict[str, Any]] = {}
    for family, (y, made, outcome) in OUTCOMES.items():
        for option, (arguments, meaning) in OPTIONS.items():
            name = f"{family}, {option}"
            cases[name] = f"choose_net({y}, {made}, {arguments})"
            known[name] = {"data": "wide", "family": family.split(",")[0], "outcome": outcome} | meaning
            known[name] |= {"by_site": "one site" not in family}
    return cases, known
