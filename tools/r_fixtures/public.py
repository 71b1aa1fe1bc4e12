"""Every model on at least four public data sets that come with R: coefficients, errors and deviances."""

from __future__ import annotations

from typing import Any

from tools.r_fixtures import glm, study

PRELUDE = (
    glm.PRELUDE
    + study.PRELUDE
    + r"""
suppressPackageStartupMessages({library(nlme); library(nnet)})
sited <- function(data, n = 3) { data$site <- (seq_len(nrow(data)) - 1) %% n; data }
cars <- sited(transform(mtcars, cyl = factor(cyl)))
air <- sited(transform(airquality, Solar = Solar.R))
pain <- sited(transform(na.omit(subset(pbc, select = c(stage, age, bili, albumin, time, status))), died = status == 2))
births <- sited(named)
housed <- sited(housing, 4)
schooled <- sited(infert)
days <- sited(quine)
tumours <- sited(transform(veteran, died = status))
lungs <- sited(transform(lung, died = status - 1))
colons <- sited(transform(subset(colon, etype == 2), died = status))
few <- function(fit) {
  s <- coef(summary(fit))
  list(coefficients = unname(coef(fit)), errors = unname(s[, 2]), deviance = fit$deviance, null = fit$null.deviance)
}
short_glm <- function(formula, family, data, weights = "one") {
  data$one <- 1; data$used_weight <- data[[weights]]
  few(glm(formula, family, data, weights = used_weight, control = tight))
}
short_cox <- function(formula, data, ties) {
  cox_data <<- data
  fit <- coxph(formula, cox_data, ties = ties, control = coxph.control(eps = 1e-14, toler.chol = 1e-14, iter.max = 100))
  agreed <- concordance(fit, timewt = "n")
  list(coefficients = unname(coef(fit)), errors = unname(sqrt(diag(fit$var))), deviance = -2 * fit$loglik[2],
       null = -2 * fit$loglik[1], concordance = agreed$concordance, spread = sqrt(agreed$var))
}
short_rank <- function(formula, data) {
  found <- survdiff(formula, data); list(statistic = found$chisq)
}
classes <- function(formula, data, weights = "one") {  # Newton steps of the multinomial model, from multinom's fit
  data$one <- 1; data$used_weight <- w <- data[[weights]]
  frame <- model.frame(formula, data); X <- model.matrix(formula, frame); y <- as.integer(model.response(frame))
  k <- max(y) - 1; p <- ncol(X); hit <- outer(y, 1 + 1:k, "==") * 1
  par <- numeric(k * p)
  for (i in 1:100) {
    e <- exp(X %*% matrix(par, p)); P <- e / (1 + rowSums(e))
    H <- matrix(0, k * p, k * p)
    for (a in 1:k) for (b in 1:k) H[(a - 1) * p + 1:p, (b - 1) * p + 1:p] <-
      crossprod(X, X * (w * P[, a] * ((a == b) - P[, b])))
    step <- solve(H, c(crossprod(X, w * (hit - P)))); par <- par + step
    if (max(abs(step)) < 1e-13) break
  }
  chance <- cbind(1 - rowSums(P), P)[cbind(seq_along(y), y)]
  near <- multinom(formula, data, weights = used_weight, trace = FALSE, maxit = 1000, reltol = 1e-12)
  list(coefficients = par, errors = unname(sqrt(diag(solve(H)))), deviance = -2 * sum(w * log(chance)),
       nnet = near$deviance)
}
levels_of <- function(formula, data, method, weights = "one") {  # Newton steps of the proportional odds model
  data$one <- 1; data$used_weight <- data[[weights]]; w <- data$used_weight
  fit <- polr(formula, data, used_weight, method = method, Hess = TRUE, control = list(reltol = 1e-15, maxit = 1000))
  X <- model.matrix(fit)[, -1, drop = FALSE]; y <- as.integer(model.response(model.frame(fit)))
  p <- ncol(X); q <- max(y) - 1
  cdf <- if (method == "logistic") plogis else pnorm; pdf <- if (method == "logistic") dlogis else dnorm
  gradient <- function(par) {
    eta <- drop(X %*% par[1:p]); cuts <- c(-Inf, par[p + 1:q], Inf)
    up <- cuts[y + 1] - eta; low <- cuts[y] - eta; chance <- cdf(up) - cdf(low)
    each <- sapply(1:q, function(k) sum(w * ((y == k) * pdf(up) - (y == k + 1) * pdf(low)) / chance))
    -c(-colSums(X * (w * (pdf(up) - pdf(low)) / chance)), each)
  }
  scale <- c(apply(X, 2, sd), rep(1, q))
  found <- polish(c(coef(fit), fit$zeta) * scale, function(v) gradient(v / scale) / scale)
  eta <- drop(X %*% (found$par / scale)[1:p]); cuts <- c(-Inf, (found$par / scale)[p + 1:q], Inf)
  list(coefficients = unname(found$par / scale), errors = unname(sqrt(diag(found$covariance)) / scale),
       deviance = -2 * sum(w * log(cdf(cuts[y + 1] - eta) - cdf(cuts[y] - eta))))
}
mixed <- function(fixed, random, data) {
  fit <- lme(fixed, data, random, control = lmeControl(tolerance = 1e-12, msTol = 1e-13, msMaxIter = 500, opt = "optim",
             reltol = 1e-15))
  s <- summary(fit)$tTable
  list(coefficients = unname(s[, 1]), errors = unname(s[, 2]), variance = as.numeric(getVarCov(fit)[1, 1]))
}
"""
)

SOURCES = {
    "cars": 'columns(cars, "mpg", "wt", "cyl", "hp", "site")',
    "air": 'columns(air, "Ozone", "Wind", "Temp", "Solar", "site")',
    "trees": 'columns(sited(trees), "Girth", "Height", "Volume", "site")',
    "breaks": 'columns(sited(warpbreaks), "breaks", "wool", "tension", "site")',
    "births": 'columns(births, "low", "age", "lwt", "race", "smoke", "ht", "bwt", "ftv", "site")',
    "schooled": 'columns(schooled, "case", "education", "spontaneous", "induced", "age", "site")',
    "bacteria": 'columns(sited(bacteria), "y", "trt", "week", "site")',
    "menarche": 'columns(sited(transform(menarche, share = Menarche / Total)), "Age", "share", "Total", "site")',
    "days": 'columns(days, "Days", "Eth", "Sex", "Age", "Lrn", "site")',
    "sprays": 'columns(sited(InsectSprays), "count", "spray", "site")',
    "epil": 'columns(sited(epil), "y", "trt", "base", "age", "site")',
    "tumours": 'columns(tumours, "time", "died", "trt", "celltype", "karno", "age", "site")',
    "lungs": 'columns(lungs, "time", "died", "age", "sex", "ph.ecog", "wt.loss", "site")',
    "colons": 'columns(colons, "time", "died", "rx", "sex", "age", "nodes", "site")',
    "pain": 'columns(pain, "time", "died", "stage", "age", "bili", "albumin", "site")',
    "housed": 'columns(housed, "Sat", "Infl", "Type", "Cont", "Freq", "site")',
    "teeth": 'columns(as.data.frame(Orthodont), "distance", "age", "Subject")',
    "oats": 'columns(oats, "Y", "V", "N", "B")',
    "machines": 'columns(as.data.frame(Machines), "score", "Machine", "Worker")',
    "boys": 'columns(as.data.frame(Oxboys), "height", "age", "Subject")',
}
FRAMES = {
    "trees": "sited(trees)", "breaks": "sited(warpbreaks)", "bacteria": "sited(bacteria)",
    "menarche": "sited(transform(menarche, share = Menarche / Total))", "sprays": "sited(InsectSprays)",
    "epil": "sited(epil)", "teeth": "as.data.frame(Orthodont)", "machines": "as.data.frame(Machines)",
    "boys": "as.data.frame(Oxboys)",
}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, Any], str]] = {}


def add(model: str, name: str, about: dict[str, Any], call: str) -> None:
    """Add a case; the data frame is the last but for options."""
    CASES[f"{model}: {name}"] = (name, {"model": model, **about}, call)


SIZES = (
    ("trees", "Volume ~ Girth + Height"), ("cars", "mpg ~ wt + cyl + hp"), ("air", "Ozone ~ Wind + Temp + Solar"),
    ("breaks", "breaks ~ wool * tension"),
)  # fmt: skip
EVENTS = (
    ("births", "low ~ age + lwt + race + smoke + ht", "one"), ("schooled", "case ~ spontaneous + induced + age", "one"),
    ("bacteria", "y ~ trt + week", "one"), ("menarche", "share ~ Age", "Total"),
)  # fmt: skip
COUNTS = (
    ("breaks", "breaks ~ wool + tension"), ("days", "Days ~ Eth + Sex + Age + Lrn"), ("sprays", "count ~ spray"),
    ("epil", "y ~ trt + base + age"),
)  # fmt: skip
ZEROS = (
    ("days", "Days ~ Eth + Sex + Lrn"), ("epil", "y ~ trt + base + age"), ("births", "ftv ~ age + lwt + smoke"),
    ("sprays", "count ~ spray"),
)  # fmt: skip
for name, text in SIZES:
    for family, call in (
        ("gaussian", "gaussian()"), ("gamma", 'Gamma("log")'), ("inverse gaussian", 'inverse.gaussian("log")'),
    ):  # fmt: skip
        add(family, name, {"formula": text}, f"short_glm({text}, {call}, {FRAMES.get(name, name)})")
for name, text, weights in EVENTS:
    for link in ("logit", "probit", "cloglog"):
        call = f'short_glm({text}, binomial("{link}"), {FRAMES.get(name, name)}, "{weights}")'
        add(link, name, {"formula": text, "weights": weights}, call)
for name, text in COUNTS:
    add("poisson", name, {"formula": text}, f"short_glm({text}, poisson, {FRAMES.get(name, name)})")
    add("negative binomial", name, {"formula": text}, f"fit_nb({text}, {FRAMES.get(name, name)})")
for name, text in ZEROS:
    add("tweedie", name, {"formula": text}, f"short_glm({text}, tweedie(1.5), {FRAMES.get(name, name)})")
for name, text, arm in (
    ("tumours", "trt + celltype + karno + age", "celltype"), ("lungs", "age + sex + `ph.ecog`", "sex"),
    ("colons", "rx + sex + age + nodes", "rx"), ("pain", "age + bili + albumin", "stage"),
):  # fmt: skip
    for ties in ("efron", "breslow"):
        whole = f"Surv(time, died) ~ {text}"
        R = f"short_cox({whole.replace('`', '')} + strata(site), {name}, '{ties}')"
        add(f"cox, {ties}", name, {"formula": whole, "ties": ties}, R)
    add("log-rank", name, {"formula": f"Surv(time, died) ~ C({arm})"},
        f"short_rank(Surv(time, died) ~ {arm} + strata(site), {name})")  # fmt: skip
for name, y, text, weights in (
    ("housed", "Sat", "Infl + Type + Cont", "Freq"), ("days", "Age", "Eth + Sex + Days", "one"),
    ("pain", "stage", "age + bili + albumin", "one"), ("schooled", "education", "age + spontaneous", "one"),
):  # fmt: skip
    about = {"formula": f"{y} ~ {text}", "weights": weights}
    for link in ("logistic", "probit"):
        add(f"ordinal, {link}", name, about, f'levels_of(factor({y}) ~ {text}, {name}, "{link}", "{weights}")')
    add("multinomial", name, about, f'classes(factor({y}) ~ {text}, {name}, "{weights}")')
for name, text, group in (
    ("teeth", "distance ~ I(age)", "Subject"), ("oats", "Y ~ V + N", "B"), ("machines", "score ~ Machine", "Worker"),
    ("boys", "height ~ age", "Subject"),
):  # fmt: skip
    add("random effects", name, {"formula": text, "group": group},
        f"mixed({text}, ~ 1 | {group}, {FRAMES.get(name, name)})")  # fmt: skip
for name, text in (("trees", SIZES[0][1]), ("cars", "mpg ~ wt + hp"), ("air", SIZES[2][1]), ("boys", "height ~ age")):
    for level in (0.25, 0.5, 0.75):
        add(f"quantile {level}", name, {"formula": text, "level": level},
            f"quantile_errors(rq({text}, {level}, na.omit(data.frame({FRAMES.get(name, name)}))))")  # fmt: skip


def list_cases() -> tuple[dict[str, str], dict[str, Any]]:
    """Return the expression of each case, and what is known of it."""
    expressions = {f"data {name}": text for name, text in SOURCES.items()}
    known: dict[str, Any] = {f"data {name}": {} for name in SOURCES}
    for name, (data, about, text) in CASES.items():
        expressions[name], known[name] = text, {"data": data, **about}
    return expressions, known
