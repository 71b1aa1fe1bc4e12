"""Survival: `coxph`, `survfit`, `survdiff`, `concordance`, and hazards in discrete time by `glm`."""

from __future__ import annotations

from typing import Any

PRELUDE = r"""
tight <- coxph.control(eps = 1e-14, iter.max = 100, toler.chol = 1e-15)
curve <- function(s) {
  strata <- if (is.null(s$strata)) rep("all", length(s$time)) else rep(sub(".*=", "", names(s$strata)), s$strata)
  split(data.frame(time = s$time, n_risk = s$n.risk, n_event = s$n.event, survival = s$surv, error = s$surv * s$std.err,
    lower = s$lower, upper = s$upper, hazard = s$cumhaz)[s$n.event > 0, ], strata[s$n.event > 0])
}
fit_cox <- function(formula, data, ties, people = NULL, weights = NULL) {
  data$used_weight <- if (is.null(weights)) rep(1, nrow(data)) else data[[weights]]
  fit <- do.call(coxph, list(formula, data, weights = quote(used_weight), ties = ties, robust = FALSE, control = tight,
    x = TRUE, model = TRUE))
  # Rows of a subject belong together; without subjects each row is by itself.
  data$own_cluster <- if (is.null(data$id)) seq_len(nrow(data)) else data$id
  robust <- do.call(coxph, list(formula, data, weights = quote(used_weight), ties = ties, cluster = quote(own_cluster),
    control = tight))
  s <- summary(fit)
  base <- basehaz(fit, centered = FALSE)
  if (is.null(base$strata)) base$strata <- "all"
  # Rows with the same covariates are ties, whatever rounding says.
  fit$linear.predictors <- round(fit$linear.predictors, 10)
  seen <- concordance(fit)
  curves <- if (is.null(people)) NULL else lapply(seq_len(nrow(people)), function(i)
    curve(survfit(fit, people[i, ], stype = 2, ctype = if (ties == "efron") 2 else 1)))
  counts <- if (is.matrix(seen$count)) colSums(seen$count) else seen$count
  list(names = names(coef(fit)), coefficients = unname(coef(fit)), errors = unname(sqrt(diag(vcov(fit)))),
       covariance = vcov(fit), robust = unname(sqrt(diag(robust$var))), statistic = unname(coef(s)[, "z"]),
       p = unname(coef(s)[, ncol(coef(s))]), log_likelihood = fit$loglik[2], null_log_likelihood = fit$loglik[1],
       score_test = fit$score, wald_test = unname(fit$wald.test), rows = fit$n,
       events = fit$nevent, iterations = fit$iter,
       hazard = lapply(split(base[c("time", "hazard")], sub(".*=", "", base$strata), drop = TRUE), as.list),
       concordance = unname(seen$concordance), concordance_error = sqrt(as.numeric(seen$var)),
       pairs = as.list(counts), curves = curves)
}
kaplan_meier <- function(formula, data, ...) {
  s <- survfit(formula, data, ...); q <- quantile(s, c(0.25, 0.5, 0.75), conf.int = FALSE)
  list(curves = curve(s), quartiles = if (is.matrix(q)) q else as.numeric(q))
}
log_rank <- function(formula, data) {
  d <- survdiff(formula, data)
  add <- function(m) if (is.matrix(m)) rowSums(m) else m
  list(observed = as.numeric(add(d$obs)), expected = as.numeric(add(d$exp)), variance = d$var, chi2 = d$chisq)
}
# A row for each of six periods of two months that a subject ends, or has an event in; later times are left out.
expand <- function(data, width = 2, last = 6) {
  data$ends <- ifelse(data$status == 1, ceiling(data$time / width), floor(data$time / width))
  data$period <- pmin(data$ends, last)
  long <- data[rep(seq_len(nrow(data)), data$period), ]
  long$at <- sequence(data$period)
  long$event <- as.integer(long$at == long$ends & long$status == 1)
  long
}
discrete <- function(link) {
  long <- expand(survival)
  fit <- glm(event ~ 0 + factor(at) + age + treated, binomial(link), long, control = glm.control(1e-15, 200))
  list(names = names(coef(fit)), coefficients = unname(coef(fit)), errors = unname(sqrt(diag(vcov(fit)))),
       deviance = fit$deviance, rows = nrow(long))
}
"""

# formula, data, weights; each with both rules for ties
COX: dict[str, tuple[str, str, str | None]] = {
    "plain": ("Surv(time, status) ~ age + treated + grade", "survival", None),
    "sites": ("Surv(time, status) ~ age + treated + grade + strata(site)", "survival", None),
    "sites, weights": ("Surv(time, status) ~ age + treated + grade + strata(site)", "survival", "weight"),
    "sites, offset": ("Surv(time, status) ~ age + treated + offset(lean) + strata(site)", "survival", None),
    "sites, entry": ("Surv(entry, time, status) ~ age + treated + grade + strata(site)", "survival", None),
    "sites, start and stop": ("Surv(start, stop, status) ~ age + treated + marker + strata(site)", "counting", None),
    "sites, entry, weights": (
        "Surv(entry, time, status) ~ age + treated + grade + strata(site)",
        "survival",
        "weight",
    ),
    "sites and grades": ("Surv(time, status) ~ age + treated + strata(site, grade)", "survival", None),
}


def list_cases() -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the R expression of each case, and what a test has to know to fit the same."""
    cases: dict[str, str] = {}
    known: dict[str, dict[str, Any]] = {}
    for name, (formula, data, weights) in COX.items():
        for ties in ("efron", "breslow"):
            more = f', weights = "{weights}"' if weights else ""
            people = ", people = survival[c(1, 100), ]" if name == "sites" else ""
            cases[f"cox, {name}, {ties}"] = f'fit_cox({formula}, {data}, "{ties}"{people}{more})'
            known[f"cox, {name}, {ties}"] = {"data": data, "formula": formula, "ties": ties, "weights": weights}
    by_hand = {
        "kaplan-meier": "kaplan_meier(Surv(time, status) ~ 1, survival)",
        "kaplan-meier, treated": "kaplan_meier(Surv(time, status) ~ treated, survival)",
        "kaplan-meier, sites": "kaplan_meier(Surv(time, status) ~ site, survival)",
        "kaplan-meier, entry": "kaplan_meier(Surv(entry, time, status) ~ 1, survival)",
        "kaplan-meier, log-log": 'kaplan_meier(Surv(time, status) ~ 1, survival, conf.type = "log-log")',
        "log-rank": "log_rank(Surv(time, status) ~ grade, survival)",
        "log-rank, sites": "log_rank(Surv(time, status) ~ grade + strata(site), survival)",
        "discrete, logit": 'discrete("logit")',
        "discrete, cloglog": 'discrete("cloglog")',
        "separated": "with(list(fit = coxph(Surv(time, status) ~ other + group + strata(site), separated)), "
        "list(largest = max(abs(coef(fit)))))",
    }
    cases |= by_hand
    known |= {name: {"data": "separated" if name == "separated" else "survival"} for name in by_hand}
    return cases, known
