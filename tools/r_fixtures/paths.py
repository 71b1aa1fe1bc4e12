"""Penalised models on public data sets: paths of glmnet with its own standardisation, with weights and factors.

Cox models are not here: with strata glmnet stops up to 1e-6 above the least objective; see ``glmnet``.
"""

from __future__ import annotations

from typing import Any

from tools.r_fixtures import public

PRELUDE = (
    public.PRELUDE
    + r"""
glmnet.control(epsnr = 1e-16, mxitnr = 500)
path_of <- function(formula, family, data, weights = "one", mixing = 1, standardize = TRUE) {
  data$one <- 1
  data <- data[complete.cases(data[c(all.vars(formula), weights, "site")]), ]
  X <- model.matrix(formula, data)[, -1, drop = FALSE]; y <- model.response(model.frame(formula, data))
  if (is.factor(y)) y <- as.integer(y) - 1
  of <- function(...) suppressWarnings(glmnet(X, y, family, weights = data[[weights]], alpha = mixing,
                                              standardize = standardize, ...))
  lambdas <- max(of(nlambda = 20)$lambda) * c(0.5, 0.2, 0.05)
  fit <- of(lambda = lambdas, thresh = 1e-22, maxit = 1e7)
  list(lambdas = lambdas, intercept = as.numeric(fit$a0), coefficients = t(unname(as.matrix(fit$beta))))
}
"""
)
EVENTS = (*(one[:2] for one in public.EVENTS[:3]), ("colons", "died ~ rx + sex + age"))
#: Weights of rows, of the data sets that have a column for them here.
WEIGHTS = {"trees": "Height", "air": "Temp", "births": "lwt", "epil": "base", "colons": "nodes"}
FAMILIES = {
    "gaussian": (public.SIZES, "gaussian()"), "binomial": (EVENTS, "binomial()"),
    "poisson": (public.COUNTS, "poisson()"),
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "lasso": {"mixing": 1.0, "standardize": True},
    "elastic net, as given": {"mixing": 0.5, "standardize": False},
    "ridge": {"mixing": 0.0, "standardize": True},
}


def list_cases() -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the R expression of each case, and what a test has to know to fit the same."""
    cases: dict[str, str] = {}
    known: dict[str, dict[str, Any]] = {}
    for family, (studies, made) in FAMILIES.items():
        for data, text in studies:
            weights = WEIGHTS.get(data, "one")
            for option, meaning in OPTIONS.items():
                name = f"{family}, {data}, {option}"
                flag = "TRUE" if meaning["standardize"] else "FALSE"
                frame = public.FRAMES.get(data, data)
                cases[name] = f'path_of({text}, {made}, {frame}, "{weights}", {meaning["mixing"]}, {flag})'
                known[name] = {"data": data, "family": family, "formula": text, "weights": weights} | meaning
    return cases, known
