"""Splines, orthogonal polynomials, numbers of trials and inverse probability weights, on data sets that come with R."""

from __future__ import annotations

from typing import Any

PRELUDE = r"""
suppressPackageStartupMessages({library(splines); library(sandwich); library(survey)})
columns <- function(data, ...) {
  data <- data[, c(...), drop = FALSE]
  convert <- function(v) if (is.factor(v) || is.character(v)) as.character(v) else as.numeric(v)
  list(columns = lapply(as.list(data), convert))
}
tight <- glm.control(epsilon = 1e-15, maxit = 200)
exact <- coxph.control(eps = 1e-14, iter.max = 100)
complete <- list(
  birthwt = birthwt, pbc = transform(pbc[1:312, ], event = as.numeric(status == 2), arm = trt - 1),
  lung = transform(lung, event = status - 1, female = sex - 1),
  infert = transform(infert, induced1 = as.numeric(induced > 0)),
  menarche = transform(menarche, No = Total - Menarche), snails = transform(snails, Alive = N - Deaths),
  esoph = transform(esoph, agegp = as.character(agegp), alcgp = as.character(alcgp), tobgp = as.character(tobgp)),
  retinopathy = transform(retinopathy, event = status, arm = trt),
  budworm = data.frame(dead = c(1, 4, 9, 13, 18, 20, 0, 2, 6, 10, 12, 16), sex = rep(c("M", "F"), each = 6),
                       alive = 20 - c(1, 4, 9, 13, 18, 20, 0, 2, 6, 10, 12, 16), ldose = rep(0:5, 2)))
rows <- function(fit) {
  s <- coef(summary(fit))
  list(coefficients = unname(s[, 1]), errors = unname(s[, 2]), deviance = deviance(fit), df = fit$df.residual,
       aic = AIC(fit))
}
fit_glm <- function(formula, family, data) rows(glm(formula, family, complete[[data]], control = tight))
fit_cox <- function(formula, data) {
  own <- complete[[data]]; own$site <- (seq_len(nrow(own)) - 1) %% 3  # each site has its own hazard
  fit <- coxph(update(formula, . ~ . + strata(site)), own, control = exact)
  list(coefficients = unname(coef(fit)), errors = unname(sqrt(diag(vcov(fit)))), deviance = -2 * fit$loglik[2])
}
used <- function(data, treatment, outcome) {
  data <- complete[[data]]; data$site <- (seq_len(nrow(data)) - 1) %% 3
  data[complete.cases(data[, all.vars(treatment)]) & complete.cases(data[, all.vars(outcome)]), ]
}
# The treatment's model has all rows in which its own columns are there.
weigh <- function(data, treatment, own, estimand, link = "logit") {
  fit <- glm(treatment, binomial(link), complete[[data]], control = tight)
  p <- predict(fit, own, type = "response"); a <- own[[all.vars(treatment)[1]]]
  if (estimand == "all") ifelse(a == 1, 1 / p, 1 / (1 - p)) else ifelse(a == 1, 1, p / (1 - p))
}
inverse <- function(data, treatment, outcome, family, estimand = "all", link = "logit") {
  own <- used(data, treatment, outcome); own$inverse <- weigh(data, treatment, own, estimand, link)
  fit <- suppressWarnings(glm(outcome, family, own, weights = inverse, control = tight))
  sampled <- svyglm(outcome, svydesign(~1, weights = ~inverse, data = own), family = family, control = tight)
  list(coefficients = unname(coef(fit)), errors = unname(sqrt(diag(vcovHC(fit, type = "HC0")))), rows = nrow(own),
       survey = unname(sqrt(diag(vcov(sampled)))))
}
inverse_cox <- function(data, treatment, outcome, estimand = "all") {
  own <- used(data, treatment, outcome); own$inverse <- weigh(data, treatment, own, estimand)
  fit <- coxph(update(outcome, . ~ . + strata(site)), own, weights = inverse, robust = TRUE, control = exact)
  list(coefficients = unname(coef(fit)), errors = unname(sqrt(diag(vcov(fit)))), rows = nrow(own))
}
"""

#: The data sets, with the columns that are used.
DATA: dict[str, str] = {
    "birthwt": 'columns(birthwt, "low", "age", "lwt", "race", "smoke", "ptl", "ht", "bwt")',
    "pbc": 'columns(complete$pbc, "time", "event", "arm", "age", "bili", "albumin", "protime", "platelet")',
    "lung": 'columns(complete$lung, "time", "event", "female", "age", "ph.karno", "wt.loss", "meal.cal")',
    "infert": 'columns(complete$infert, "case", "age", "parity", "induced", "induced1", "spontaneous")',
    "menarche": 'columns(complete$menarche, "Age", "Menarche", "No")',
    "snails": 'columns(complete$snails, "Species", "Exposure", "Rel.Hum", "Temp", "Deaths", "Alive")',
    "esoph": 'columns(complete$esoph, "agegp", "alcgp", "tobgp", "ncases", "ncontrols")',
    "budworm": 'columns(complete$budworm, "sex", "ldose", "dead", "alive")',
    "retinopathy": 'columns(complete$retinopathy, "futime", "event", "arm", "age", "risk")',
}
#: The data, the formula of a model, its spline, and the knots and bounds that stand in its place in R: quantiles over
#: three sites, row by row in turn, as the package rounds them.
SPLINES: list[tuple[str, str, str, list[float], list[float]]] = [
    ("birthwt", "low ~ {} + smoke", "ns(age, df=4)", [19.0, 23.0, 26.0], [16.0, 32.0]),
    ("birthwt", "low ~ {} + ht", "bs(lwt, df=5)", [115.0, 132.0], [79.0, 250.0]),
    ("infert", "case ~ {} + induced", "ns(age, df=3)", [28.0, 34.0], [24.0, 40.0]),
    ("pbc", "Surv(time, event) ~ {} + age", "ns(albumin, df=3)", [3.38, 3.7], [2.76, 4.14]),
    ("pbc", "Surv(time, event) ~ {} + bili", "bs(age, df=4, degree=2)", [45.0, 55.0], [26.0, 79.0]),
    ("lung", "Surv(time, event) ~ {} + female", "ns(age, df=2)", [63.0], [44.0, 75.0]),
    ("retinopathy", "Surv(futime, event) ~ {} + arm", "ns(age, df=5)", [9.0, 13.0, 20.0, 36.0], [3.0, 50.0]),
]
#: The data, the family in R, and the formula.
MODELS: list[tuple[str, str, str]] = [
    ("birthwt", "binomial", "low ~ poly(age, 2) + poly(lwt, 3)"),
    ("birthwt", "gaussian", "bwt ~ poly(lwt, 3) * smoke"),
    ("infert", "binomial", "case ~ poly(age, 1) + spontaneous"),
    ("pbc", "cox", "Surv(time, event) ~ poly(albumin, 2) + age"),
    ("retinopathy", "cox", "Surv(futime, event) ~ poly(age, 3)"),
    ("menarche", "binomial", "cbind(Menarche, No) ~ Age"),
    ("snails", "binomial", "cbind(Deaths, Alive) ~ Species + Exposure + Rel.Hum + Temp"),
    ("esoph", "binomial", "cbind(ncases, ncontrols) ~ alcgp + tobgp"),
    ("budworm", "binomial", "cbind(dead, alive) ~ sex * ldose"),
    ("budworm", "quasibinomial", "cbind(dead, alive) ~ sex + ldose"),
]
#: The data, the treatment's model, the outcome's, its family in R, and other arguments.
INVERSE: list[tuple[str, str, str, str, str]] = [
    ("birthwt", "smoke ~ age + lwt + factor(race)", "low ~ smoke", "quasibinomial", ""),
    ("birthwt", "smoke ~ age + lwt + factor(race)", "bwt ~ smoke + ht", "gaussian", ""),
    ("birthwt", "smoke ~ age + lwt + factor(race)", "bwt ~ smoke", "gaussian", ', "treated"'),
    ("infert", "induced1 ~ age + parity", "case ~ induced1", "quasibinomial", ', link = "probit"'),
    ("lung", "female ~ age + ph.karno", "Surv(time, event) ~ female", "cox", ""),
    ("pbc", "arm ~ age + bili + platelet", "Surv(time, event) ~ arm", "cox", ""),
    ("retinopathy", "arm ~ age + risk", "Surv(futime, event) ~ arm", "cox", ', "treated"'),
    ("lung", "female ~ age + ph.karno", "wt.loss ~ female", "gaussian", ""),
]


def list_cases() -> tuple[dict[str, str], dict[str, Any]]:
    """Return the expression of each case, and what is known of it."""
    cases = {f"data {name}": text for name, text in DATA.items()}
    known: dict[str, Any] = {f"data {name}": {} for name in DATA}
    for data, formula, spline, knots, bounds in SPLINES:
        column, _, options = spline.partition("(")[2].rstrip(")").partition(",")
        degree = f", degree = {options.partition('degree=')[2]}" if "degree=" in options else ""
        at = f"c({', '.join(map(str, knots))})"
        ends = f"c({', '.join(map(str, bounds))})"
        there = f"{spline[:2]}({column}, knots = {at}, Boundary.knots = {ends}{degree})"
        name, text = f"spline {data} {spline}", formula.format(there)
        cases[name] = f'fit_cox({text}, "{data}")' if "Surv" in text else f'fit_glm({text}, binomial, "{data}")'
        known[name] = {"data": data, "formula": formula.format(spline), "knots": knots, "bounds": bounds}
    for data, family, formula in MODELS:
        name = f"model {data} {family} {formula}"
        cases[name] = f'fit_cox({formula}, "{data}")' if family == "cox" else f'fit_glm({formula}, {family}, "{data}")'
        known[name] = {"data": data, "family": family, "formula": formula}
    for data, treatment, outcome, family, more in INVERSE:
        name = f"inverse {data} {outcome} {family}{more}".replace('"', "")
        call = "inverse_cox" if family == "cox" else "inverse"
        kind = "" if family == "cox" else f", {family}"
        cases[name] = f'{call}("{data}", {treatment}, {outcome}{kind}{more})'
        known[name] = {"data": data, "treatment": treatment, "outcome": outcome, "family": family,
                       "estimand": "treated" if "treated" in more else "all",
                       "link": "probit" if "probit" in more else "logit"}  # fmt: skip
    return cases, known
