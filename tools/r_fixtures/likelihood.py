"""Firth's penalty and profile likelihoods on public data sets that come with R, and R's answers.

Estimates of logistic and Poisson models with Firth's penalty are brglm2's; for Cox models, and for the limits of all
profile likelihoods, the likelihood is maximised here, with R's own ``glm.fit`` and ``coxph`` for each value.
"""

from __future__ import annotations

from typing import Any

from tools.r_fixtures import study

PRELUDE = (
    study.PRELUDE
    + r"""
suppressPackageStartupMessages(library(brglm2))
data("endometrial", package = "brglm2")
sited <- function(data, n) { data$site <- (seq_len(nrow(data)) - 1) %% n; data }
# Firth's score with some coefficients held; the penalty is that of all columns.
firth_rows <- function(X, y, mean, start, held = integer(0)) {
  b <- start; free <- setdiff(seq_along(b), held)
  for (i in 1:500) {
    m <- mean(drop(X %*% b)); I <- crossprod(X, X * m$weight)
    h <- rowSums((X %*% solve(I)) * X)
    U <- drop(crossprod(X, y - m$mu + h * m$bend / 2))
    step <- solve(I[free, free, drop = FALSE], U[free])
    b[free] <- b[free] + step / max(1, max(abs(step)) / 2)
    if (max(abs(step)) < 1e-13) break
  }
  m <- mean(drop(X %*% b))
  list(b = b, value = m$loglik(y) + 0.5 * as.numeric(determinant(crossprod(X, X * m$weight))$modulus))
}
means <- list(
  binomial = function(eta) { p <- plogis(eta); list(mu = p, weight = p * plogis(-eta), bend = p * plogis(-eta) *
    (plogis(-eta) - p), loglik = function(y) sum(plogis(ifelse(y > 0.5, eta, -eta), log.p = TRUE))) },
  poisson = function(eta) { m <- exp(eta); list(mu = m, weight = m, bend = m, loglik = function(y) sum(y * eta - m)) })
search <- function(profile, best, error, top, drop) {  # both limits, for one coefficient
  f <- function(b) 2 * (top - profile(b)) - drop
  side <- function(s) { far <- 2; while (f(best + s * far * error) < 0 && far < 200) far <- far * 1.5
    uniroot(f, sort(c(best, best + s * far * error)), tol = 1e-13)$root }
  c(side(-1), side(1))
}
firth_glm <- function(formula, family, data) {
  plain <- model.frame(formula, data); X <- model.matrix(formula, plain); y <- model.response(plain)
  if (is.factor(y)) y <- as.numeric(y) - 1
  fit <- glm(y ~ X - 1, family, method = "brglmFit", type = "AS_mean",
             control = list(epsilon = 1e-13, maxit = 5000, slowit = 1))
  b <- unname(coef(fit)); m <- means[[family]]; own <- firth_rows(X, y, m, b)
  errors <- unname(sqrt(diag(solve(crossprod(X, X * m(drop(X %*% own$b))$weight)))))
  limits <- lapply(seq_along(b), function(j) {
    profile <- function(v) { s <- own$b; s[j] <- v; firth_rows(X, y, m, s, j)$value }
    c(search(profile, own$b[j], errors[j], own$value, qchisq(0.95, 1)), 2 * (own$value - profile(0))) })
  list(names = colnames(X), coefficients = unname(own$b), brglm = b, errors = errors,
       limits = do.call(rbind, limits))
}
firth_cox <- function(formula, data, ties) {
  cox_data <<- data
  still <- coxph.control(iter.max = 0)
  at <- function(b) suppressWarnings(coxph(formula, cox_data, init = b, ties = ties, control = still))
  begin <- coxph(formula, cox_data, ties = ties, control = coxph.control(iter.max = 1))
  value <- function(b) { fit <- at(b); fit$loglik[2] - 0.5 * as.numeric(determinant(fit$var)$modulus) }
  slope <- function(b, j, h) { e <- replace(0 * b, j, h)
    (8 * (value(b + e) - value(b - e)) - (value(b + 2 * e) - value(b - 2 * e))) / (12 * h) }
  climb <- function(b, held = integer(0)) {
    free <- setdiff(seq_along(b), held)
    if (length(free)) for (i in 1:100) {
      var <- at(b)$var; I <- solve(var); h <- 3e-3 / sqrt(diag(I))
      U <- sapply(free, function(j) slope(b, j, h[j]))
      step <- solve(I[free, free, drop = FALSE], U)
      b[free] <- b[free] + step
      if (max(abs(step) / sqrt(diag(var))[free]) < 1e-9) break
    }
    list(b = b, value = value(b))
  }
  top <- climb(0 * coef(begin)); errors <- sqrt(diag(at(top$b)$var))
  limits <- lapply(seq_along(top$b), function(j) {
    profile <- function(v) climb(replace(top$b, j, v), j)$value
    c(search(profile, top$b[j], errors[j], top$value, qchisq(0.95, 1)), 2 * (top$value - profile(0))) })
  list(names = names(coef(begin)), coefficients = unname(top$b), errors = errors, limits = do.call(rbind, limits))
}
profile_glm <- function(formula, family, data) {
  plain <- model.frame(formula, data); X <- model.matrix(formula, plain); y <- model.response(plain)
  if (is.factor(y)) y <- as.numeric(y) - 1
  fit <- glm(y ~ X - 1, family, control = tight); s <- summary(fit)
  phi <- s$dispersion; known <- fit$family$family %in% c("binomial", "poisson")
  drop <- if (known) qchisq(0.95, 1) else qf(0.95, 1, fit$df.residual)
  limits <- lapply(seq_along(coef(fit)), function(j) {
    profile <- function(v) -glm(y ~ X[, -j] - 1 + offset(v * X[, j]), family, control = tight)$deviance / (2 * phi)
    top <- -fit$deviance / (2 * phi)
    c(search(profile, coef(fit)[j], coef(s)[j, 2], top, drop), 2 * (top - profile(0))) })
  list(names = colnames(X), coefficients = unname(coef(fit)), limits = do.call(rbind, limits))
}
varying <- function(data, entry, time, event, formula, ties, grow) {
  cuts <- sort(unique(data[[time]][data[[event]] == 1]))
  data$from <- if (is.null(entry)) -1 else data[[entry]]; data$to <- data[[time]]; data$died <- data[[event]]
  s <- survSplit(Surv(from, to, died) ~ ., data, cut = cuts)
  s$grows <- grow(s)
  fit <- coxph(formula, s, ties = ties, control = coxph.control(eps = 1e-14, iter.max = 100))
  list(coefficients = unname(coef(fit)), errors = unname(sqrt(diag(fit$var))), loglik = fit$loglik)
}
profile_cox <- function(formula, data, ties) {
  cox_data <<- data
  exact <- coxph.control(eps = 1e-15, toler.chol = 1e-15, iter.max = 100)
  fit <- coxph(formula, cox_data, ties = ties, control = exact, x = TRUE); s <- sqrt(diag(fit$var))
  X <- fit$x; strata <- if (is.null(fit$strata)) rep(1, nrow(X)) else fit$strata; y <- fit$y
  fit <- coxph(y ~ X + strata(strata), ties = ties, control = exact)
  limits <- lapply(seq_along(s), function(j) {
    profile <- function(v) if (length(s) == 1) coxph(y ~ X + strata(strata), init = v, ties = ties,
      control = coxph.control(iter.max = 0))$loglik[2] else
      coxph(y ~ X[, -j] + offset(v * X[, j]) + strata(strata), ties = ties, control = exact)$loglik[2]
    c(search(profile, coef(fit)[j], s[j], fit$loglik[2], qchisq(0.95, 1)), 2 * (fit$loglik[2] - profile(0))) })
  list(names = colnames(X), coefficients = unname(coef(fit)), limits = do.call(rbind, limits))
}
"""
)

#: The data sets, with the columns that are used.
DATA: dict[str, str] = {
    "endometrial": 'columns(endometrial, "HG", "NV", "PI", "EH")',
    "birthwt": 'columns(named, "low", "age", "lwt", "race", "smoke", "ht")',
    "bacteria": 'columns(bacteria, "y", "trt", "week")',
    "infert": 'columns(infert, "case", "spontaneous", "induced", "age")',
    "warpbreaks": 'columns(warpbreaks, "breaks", "wool", "tension")',
    "quine": 'columns(quine, "Days", "Eth", "Sex", "Lrn")',
    "sprays": 'columns(InsectSprays, "count", "spray")',
    "epil": 'columns(epil, "y", "trt", "base", "age")',
    "ovarian": 'columns(sited(ovarian, 2), "futime", "fustat", "age", "rx", "resid.ds", "site")',
    "gehan": 'columns(sited(gehan, 3), "time", "cens", "treat", "site")',
    "veteran": 'columns(sited(veteran, 3), "time", "status", "trt", "karno", "age", "site")',
    "leuk": 'columns(transform(sited(leuk, 2), dead = 1, lw = log10(wbc)), "time", "dead", "ag", "lw", "site")',
    "trees": 'columns(trees, "Girth", "Height", "Volume")',
    "heart": 'columns(sited(heart, 3), "start", "stop", "event", "age", "surgery", "site")',
    "rats": 'columns(sited(subset(rats, sex == "f"), 2), "time", "status", "rx", "site")',
}
#: Where the data frame is not that of the name.
SOURCES = {
    "birthwt": "named", "sprays": "InsectSprays", "ovarian": "sited(ovarian, 2)", "gehan": "sited(gehan, 3)",
    "veteran": "sited(veteran, 3)", "leuk": "transform(sited(leuk, 2), dead = 1, lw = log10(wbc))",
    "rats": 'sited(subset(rats, sex == "f"), 2)', "heart": "sited(heart, 3)",
}  # fmt: skip

#: The cases by name: the data set, what a test needs to know, and the expression.
CASES: dict[str, tuple[str, dict[str, Any], str]] = {}

BINOMIAL = (
    ("endometrial", "HG ~ NV + PI + EH"),
    ("birthwt", "low ~ age + lwt + race + smoke + ht"),
    ("bacteria", "y ~ trt + week"),
    ("infert", "case ~ spontaneous + induced + age"),
)
POISSON = (
    ("warpbreaks", "breaks ~ wool + tension"),
    ("quine", "Days ~ Eth + Sex + Lrn"),
    ("sprays", "count ~ spray"),
    ("epil", "y ~ trt + base + age"),
)
COX = (
    ("ovarian", "Surv(futime, fustat) ~ age + rx + resid.ds", "efron"),
    ("gehan", "Surv(time, cens) ~ treat", "efron"),
    ("veteran", "Surv(time, status) ~ trt + karno + age", "efron"),
    ("leuk", "Surv(time, dead) ~ ag + lw", "breslow"),
    ("rats", "Surv(time, status) ~ rx", "breslow"),
)

for family, some in (("binomial", BINOMIAL), ("poisson", POISSON)):
    for name, text in some:
        about = {"family": family, "formula": text}
        source = SOURCES.get(name, name)
        CASES[f"firth {family} {name}"] = (name, about, f'firth_glm({text}, "{family}", {source})')
        if name != "endometrial":  # of which outcomes are separated
            CASES[f"profile {family} {name}"] = (name, about, f'profile_glm({text}, "{family}", {source})')
for name, text, ties in COX:
    about = {"formula": text, "ties": ties}
    by_site = f"{text} + strata(site)"
    CASES[f"firth cox {name}"] = (name, about, f'firth_cox({by_site}, {SOURCES[name]}, "{ties}")')
    CASES[f"profile cox {name}"] = (name, about, f'profile_cox({by_site}, {SOURCES[name]}, "{ties}")')
for name, text, family, call in (
    ("trees", "Volume ~ Girth + Height", "gamma", 'Gamma("log")'),
    ("epil", "y + 1 ~ trt + base + age", "inverse gaussian", 'inverse.gaussian("log")'),
    ("warpbreaks", "breaks ~ wool + tension", "gaussian", "gaussian()"),
    ("infert", "case ~ spontaneous + induced + age", "probit", 'binomial("probit")'),
):
    CASES[f"profile {family} {name}"] = (
        name, {"family": family, "formula": text}, f"profile_glm({text}, {call}, {SOURCES.get(name, name)})",
    )  # fmt: skip


#: Effects that change with time: the data, the formula here, and R's, of rows split at all events.
for name, text, entry, time, event, terms, grow, ties in (
    ("veteran", "Surv(time, status) ~ karno + karno:log(time)", "NULL", "time", "status", "karno + grows",
     "karno * log(s$to)", "efron"),
    ("ovarian", "Surv(futime, fustat) ~ age + rx + age:sqrt(futime)", "NULL", "futime", "fustat", "age + rx + grows",
     "age * sqrt(s$to)", "efron"),
    ("gehan", "Surv(time, cens) ~ treat + treat:time", "NULL", "time", "cens", "treat + grows",
     "(s$treat == 'control') * s$to", "breslow"),
    ("leuk", "Surv(time, dead) ~ ag + lw + lw:log(time)", "NULL", "time", "dead", "ag + lw + grows", "lw * log(s$to)",
     "efron"),
    ("heart", "Surv(start, stop, event) ~ age + surgery + age:log(stop)", "'start'", "stop", "event",
     "age + surgery + grows", "age * log(s$to)", "efron"),
):  # fmt: skip
    function = grow if grow.startswith("(s$") else f"s${grow}"
    call = f"Surv(from, to, died) ~ {terms} + strata(site)"
    CASES[f"varying {name}"] = (
        name, {"formula": text, "ties": ties},
        f"varying({SOURCES[name]}, {entry}, '{time}', '{event}', {call}, '{ties}', function(s) {function})",
    )  # fmt: skip


def list_cases() -> tuple[dict[str, str], dict[str, Any]]:
    """Return the expression of each case, and what is known of it."""
    expressions = {f"data {name}": text for name, text in DATA.items()}
    known: dict[str, Any] = {f"data {name}": {} for name in DATA}
    for name, (data, about, text) in CASES.items():
        expressions[name], known[name] = text, {"data": data, **about}
    return expressions, known
