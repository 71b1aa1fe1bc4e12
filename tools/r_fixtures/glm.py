"""Generalised linear models: `glm`, `MASS::glm.nb`, `MASS::polr`, `nnet::multinom`, `MASS::glmmPQL`."""

from __future__ import annotations

from typing import Any

PRELUDE = r"""
tight <- glm.control(epsilon = 1e-15, maxit = 200)
# Robust errors by the sandwich formula, without a factor for small samples; scores of a site may be added first.
sandwich <- function(fit, site = NULL) {
  scores <- residuals(fit, "working") * weights(fit, "working") * model.matrix(fit)
  if (!is.null(site)) scores <- rowsum(scores, site)
  bread <- summary(fit)$cov.unscaled
  bread %*% crossprod(scores) %*% bread
}
describe <- function(fit, quick, data) {
  s <- summary(fit); table <- coef(s); limits <- confint.default(fit)
  used <- data[rownames(model.frame(fit)), , drop = FALSE]
  list(names = names(coef(fit)), coefficients = unname(coef(fit)), errors = unname(table[, 2]),
       statistic = unname(table[, 3]), p = unname(table[, 4]), lower = unname(limits[, 1]), upper = unname(limits[, 2]),
       covariance = vcov(fit),
       robust = unname(sqrt(diag(sandwich(fit)))), by_site = unname(sqrt(diag(sandwich(fit, used$site)))),
       deviance = fit$deviance, null_deviance = fit$null.deviance, aic = fit$aic,
       log_likelihood = as.numeric(logLik(fit)), dispersion = s$dispersion, pearson = sum(residuals(fit, "pearson")^2),
       df_residual = fit$df.residual,
       df_null = fit$df.null, rows = nobs(fit), iterations = quick$iter)
}
fit_glm <- function(formula, family, data, weights = "one") {
  data$one <- 1; data$used_weight <- data[[weights]]
  start <- NULL
  # Here R asks for a start: the mean.
  if (paste(family$family, family$link) %in% c("binomial log", "poisson identity", "inverse.gaussian 1/mu^2")) {
    frame <- model.frame(formula, data)
    start <- c(family$linkfun(mean(model.response(frame))), rep(0, ncol(model.matrix(formula, frame)) - 1))
  }
  describe(glm(formula, family, data, weights = used_weight, start = start, control = tight),
           glm(formula, family, data, weights = used_weight, start = start), data)
}
tweedie <- function(power) {
  log_link <- make.link("log")
  dev <- function(y, mu, wt) 2 * wt * (ifelse(y > 0, y^(2 - power), 0) / ((1 - power) * (2 - power)) -
    y * mu^(1 - power) / (1 - power) + mu^(2 - power) / (2 - power))
  structure(c(list(family = "tweedie", link = "log", variance = function(mu) mu^power, dev.resids = dev,
    aic = function(...) NA, initialize = expression({ n <- rep(1, nobs); mustart <- y + 0.1 * (y == 0) }),
    validmu = function(mu) all(mu > 0)), log_link[c("linkfun", "linkinv", "mu.eta", "valideta")]), class = "family")
}
compare <- function(small, large, test) {
  table <- anova(small, large, test = test)
  statistic <- if (test == "F") table$F[2] else table$Deviance[2]
  list(df = table$Df[2], statistic = statistic, p = unname(table[2, ncol(table)]))
}
wald <- function(fit, part) {
  b <- coef(fit)[part]; chi2 <- drop(b %*% solve(vcov(fit)[part, part], b))
  list(chi2 = chi2, df = length(part), p = pchisq(chi2, length(part), lower.tail = FALSE))
}
# The generalised factors of Fox and Monette: determinants of the correlations of the estimates, without the intercept.
inflation <- function(fit) {
  R <- cov2cor(vcov(fit)[-1, -1]); terms <- attr(model.matrix(fit), "assign")[-1]
  each <- sapply(unique(terms), function(k) det(R[terms == k, terms == k, drop = FALSE]) *
    det(R[terms != k, terms != k, drop = FALSE]) / det(R))
  list(terms = attr(terms(fit), "term.labels"), factors = each, df = as.integer(table(terms)))
}
# One fit at each site; Cochran's Q, I squared, and the variance between sites of DerSimonian and Laird, by coefficient.
between_sites <- function(formula, family, data) {
  fits <- lapply(split(data, data$site), function(part) glm(formula, family, part, control = tight))
  b <- sapply(fits, coef); v <- sapply(fits, function(f) diag(vcov(f))); w <- 1 / v
  fixed <- rowSums(w * b) / rowSums(w); Q <- rowSums(w * (b - fixed)^2); df <- ncol(b) - 1
  tau2 <- pmax(0, (Q - df) / (rowSums(w) - rowSums(w^2) / rowSums(w))); w2 <- 1 / (v + tau2)
  list(coefficients = t(unname(b)), errors = t(unname(sqrt(v))), fixed = unname(fixed),
       fixed_errors = unname(sqrt(1 / rowSums(w))), Q = unname(Q), p = unname(pchisq(Q, df, lower.tail = FALSE)),
       I2 = unname(pmax(0, (Q - df) / Q)), tau2 = unname(tau2), random = unname(rowSums(w2 * b) / rowSums(w2)),
       random_errors = unname(sqrt(1 / rowSums(w2))))
}
# glm.nb stops early: alternate until neither theta nor the coefficients move.
fit_nb <- function(formula, data, weights = "one") {
  data$one <- 1; data$used_weight <- data[[weights]]
  fit <- glm.nb(formula, data, weights = used_weight, control = tight)
  for (k in 1:50) {
    w <- fit$prior.weights
    theta <- theta.ml(fit$y, fitted(fit), sum(w), w, limit = 100, eps = 1e-14)
    again <- glm(formula, negative.binomial(as.numeric(theta)), data, weights = used_weight, control = tight)
    moved <- max(abs(coef(again) - coef(fit)))
    fit <- again
    if (moved < 1e-13) break
  }
  s <- summary(fit, dispersion = 1)
  ll <- sum(w * dnbinom(fit$y, size = as.numeric(theta), mu = fitted(fit), log = TRUE))
  list(names = names(coef(fit)), coefficients = unname(coef(fit)), errors = unname(coef(s)[, 2]),
       p = unname(coef(s)[, 4]), theta = as.numeric(theta), theta_error = as.numeric(attr(theta, "SE")),
       deviance = fit$deviance, null_deviance = fit$null.deviance, log_likelihood = ll,
       aic = -2 * ll + 2 * (length(coef(fit)) + 1), rows = nobs(fit))
}
# polr and multinom stop early: Newton steps on the gradient, with the Hessian from its central differences.
polish <- function(par, gradient) {
  jacobian <- function(par, h = 1e-5) sapply(seq_along(par), function(j) {
    e <- replace(numeric(length(par)), j, h); (gradient(par + e) - gradient(par - e)) / (2 * h) })
  for (k in 1:20) { step <- solve(jacobian(par), gradient(par)); par <- par - step; if (max(abs(step)) < 1e-13) break }
  stopifnot(max(abs(gradient(par))) < 1e-9)
  H <- jacobian(par)
  list(par = par, covariance = solve((H + t(H)) / 2))
}
fit_polr <- function(formula, data, method) {
  fit <- polr(formula, data, method = method, Hess = TRUE, control = list(reltol = 1e-15, maxit = 1000))
  X <- model.matrix(fit)[, -1]; y <- as.integer(model.response(model.frame(fit))); p <- ncol(X); q <- max(y) - 1
  cdf <- if (method == "logistic") plogis else pnorm; pdf <- if (method == "logistic") dlogis else dnorm
  gradient <- function(par) {
    eta <- drop(X %*% par[1:p]); cuts <- c(-Inf, par[p + 1:q], Inf)
    up <- cuts[y + 1] - eta; low <- cuts[y] - eta; chance <- cdf(up) - cdf(low)
    each <- sapply(1:q, function(k) sum(((y == k) * pdf(up) - (y == k + 1) * pdf(low)) / chance))
    -c(-colSums(X * ((pdf(up) - pdf(low)) / chance)), each)
  }
  start <- c(coef(fit), fit$zeta)
  found <- polish(start, gradient)
  stopifnot(max(abs(found$par - start)) < 1e-3)
  cuts <- c(-Inf, found$par[p + 1:q], Inf); eta <- drop(X %*% found$par[1:p])
  ll <- sum(log(cdf(cuts[y + 1] - eta) - cdf(cuts[y] - eta)))
  list(names = names(start), coefficients = found$par[1:p], cuts = unname(found$par[p + 1:q]),
       errors = sqrt(diag(found$covariance)), log_likelihood = ll, aic = -2 * ll + 2 * (p + q), rows = nrow(X))
}
fit_multinom <- function(formula, data) {
  fit <- nnet::multinom(formula, data, trace = FALSE, reltol = 1e-15, abstol = 1e-12, maxit = 2000)
  frame <- model.frame(formula, data); X <- model.matrix(formula, frame)
  Y <- sapply(levels(data$kind), function(k) model.response(frame) == k)
  chances <- function(par) { e <- exp(cbind(0, X %*% matrix(par, ncol(X)))); e / rowSums(e) }
  start <- as.numeric(t(coef(fit)))
  found <- polish(start, function(par) as.numeric(crossprod(X, chances(par) - Y)[, -1]))
  stopifnot(max(abs(found$par - start)) < 1e-3)
  ll <- sum(log(chances(found$par)[Y]))
  list(names = colnames(X), levels = levels(data$kind), coefficients = t(matrix(found$par, ncol(X))),
       errors = t(matrix(sqrt(diag(found$covariance)), ncol(X))), log_likelihood = ll,
       deviance = -2 * ll, aic = -2 * ll + 2 * length(start), rows = nrow(X))
}
# glmmPQL stops early: go on with its own two steps, the working outcome and the mixed model of it.
fit_pql <- function(formula, family, data) {
  fit <- glmmPQL(formula, ~ 1 | site, family, data, verbose = FALSE, niter = 100)
  y <- model.response(model.frame(formula, data)); eta <- fitted(fit, type = "link")
  for (k in 1:200) {
    mu <- family$linkinv(eta); slope <- family$mu.eta(eta)
    data$working <- eta + (y - mu) / slope; data$variance <- family$variance(mu) / slope^2
    fit <- nlme::lme(working ~ x, data, ~ 1 | site, weights = nlme::varFixed(~variance), method = "ML",
      control = nlme::lmeControl(tolerance = 1e-13, msTol = 1e-15, niterEM = 200))
    moved <- max(abs(fitted(fit) - eta)); eta <- fitted(fit)
    if (moved < 1e-10) break
  }
  effects <- nlme::ranef(fit)
  list(coefficients = unname(nlme::fixef(fit)), errors = unname(sqrt(diag(vcov(fit)))), moved = moved,
       between = sqrt(as.numeric(nlme::getVarCov(fit))), within = fit$sigma,
       effects = as.list(setNames(effects[, 1], rownames(effects))))
}
"""

LINEAR = "x1 + x2 + group"
# name: outcome and right side, family, link, weights (a column)
MODELS: dict[str, tuple[str, str, str, str | None]] = {
    "gaussian": (f"real ~ {LINEAR}", "gaussian", "identity", None),
    "gaussian, weights": (f"real ~ {LINEAR}", "gaussian", "identity", "weight"),
    "gaussian, log": ("positive ~ x1 + x2", "gaussian", "log", None),
    "gaussian, interaction": ("real ~ x1 * group", "gaussian", "identity", None),
    "gaussian, sites": (f"real ~ {LINEAR} + site", "gaussian", "identity", None),
    "gaussian, no intercept": ("real ~ 0 + x1 + x2", "gaussian", "identity", None),
    "gaussian, intercept alone": ("real ~ 1", "gaussian", "identity", None),
    "binomial": (f"disease ~ {LINEAR}", "binomial", "logit", None),
    "binomial, weights": (f"disease ~ {LINEAR}", "binomial", "logit", "weight"),
    "binomial, probit": (f"disease ~ {LINEAR}", "binomial", "probit", None),
    "binomial, cloglog": (f"disease ~ {LINEAR}", "binomial", "cloglog", None),
    "binomial, log": ("seldom ~ x1 + x2", "binomial", "log", None),
    "binomial, shares": (f"share ~ {LINEAR}", "binomial", "logit", "trials"),
    "binomial, offset": ("disease ~ x1 + group + offset(x2)", "binomial", "logit", None),
    "poisson": (f"count ~ {LINEAR}", "poisson", "log", None),
    "poisson, offset": (f"count ~ {LINEAR} + offset(log(months))", "poisson", "log", None),
    "poisson, offset and weights": (f"count ~ {LINEAR} + offset(log(months))", "poisson", "log", "weight"),
    "poisson, sqrt": ("visits ~ x1 + x2", "poisson", "sqrt", None),
    "poisson, identity": ("visits ~ x2", "poisson", "identity", None),
    "gamma": ("cost ~ x2", "Gamma", "inverse", None),
    "gamma, log": (f"cost ~ {LINEAR}", "Gamma", "log", None),
    "gamma, log, weights": (f"cost ~ {LINEAR}", "Gamma", "log", "weight"),
    "inverse gaussian": ("delay ~ x2", "inverse.gaussian", "1/mu^2", None),
    "inverse gaussian, log": (f"delay ~ {LINEAR}", "inverse.gaussian", "log", None),
    "tweedie": (f"claim ~ {LINEAR}", "tweedie", "log", None),
    "tweedie, weights": (f"claim ~ {LINEAR}", "tweedie", "log", "weight"),
}
NEGATIVE = {
    "negative binomial": (f"crowded ~ {LINEAR}", None),
    "negative binomial, offset": ("crowded ~ x1 + offset(log(months))", None),
    "negative binomial, weights": ("crowded ~ x1 + x2", "weight"),
}
SEPARATED = {
    "complete": ("complete ~ x + other", "binomial()"),
    "quasi": ("quasi ~ other + group", "binomial()"),
    "empty group": ("none ~ other + group", "poisson()"),
}


def list_cases() -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the R expression of each case, and what a test has to know to fit the same."""
    cases: dict[str, str] = {}
    known: dict[str, dict[str, Any]] = {}
    for name, (formula, family, link, weights) in MODELS.items():
        made = "tweedie(1.5)" if family == "tweedie" else f'{family}("{link}")'
        cases[name] = f"fit_glm({formula}, {made}, study{weigh(weights)})"
        known[name] = {"data": "study", "formula": formula, "family": family, "link": link, "weights": weights}
    for name, (formula, weights) in NEGATIVE.items():
        cases[name] = f"fit_nb({formula}, study{weigh(weights)})"
        known[name] = {"data": "study", "formula": formula, "weights": weights}
    for method in ("logistic", "probit"):
        cases[f"ordinal, {method}"] = f'fit_polr(factor(stage) ~ {LINEAR}, study, "{method}")'
        known[f"ordinal, {method}"] = {"data": "study", "formula": f"stage ~ {LINEAR}"}
    cases["multinomial"] = f"fit_multinom(kind ~ {LINEAR}, study)"
    known["multinomial"] = {"data": "study", "formula": f"kind ~ {LINEAR}"}
    for outcome, family in (("disease", "binomial"), ("count", "poisson")):
        cases[f"random intercept, {family}"] = f"fit_pql({outcome} ~ x, {family}(), clusters)"
        known[f"random intercept, {family}"] = {"data": "clusters", "formula": f"{outcome} ~ x", "family": family}
    tests = (
        ("gaussian", "real", "F"),
        ("binomial", "disease", "Chisq"),
        ("poisson", "visits", "Chisq"),
        ("Gamma", "cost", "F"),
    )
    for family, outcome, test in tests:
        made = 'Gamma("log")' if family == "Gamma" else f"{family}()"
        small, large = (f"glm({outcome} ~ {right}, {made}, complete, control = tight)" for right in ("x1", LINEAR))
        cases[f"test, {family}"] = f'local({{complete <- na.omit(study); compare({small}, {large}, "{test}")}})'
        known[f"test, {family}"] = {
            "data": "study",
            "small": f"{outcome} ~ x1",
            "large": f"{outcome} ~ {LINEAR}",
            "family": family,
        }
    full = f"glm(disease ~ {LINEAR}, binomial(), study, control = tight)"
    cases["wald, group"] = f"wald({full}, 4:6)"
    cases["inflation"] = f"inflation({full})"
    cases["between sites"] = "between_sites(disease ~ x1 + x2, binomial(), study)"
    for name, right in (("wald, group", LINEAR), ("inflation", LINEAR), ("between sites", "x1 + x2")):
        known[name] = {"data": "study", "formula": f"disease ~ {right}", "family": "binomial"}
    for name, (formula, family) in SEPARATED.items():
        cases[f"separated, {name}"] = (
            f"with(list(fit = glm({formula}, {family}, separated)), list(largest = max(abs(coef(fit)))))"
        )
        known[f"separated, {name}"] = {"data": "separated", "formula": formula, "family": family[:-2]}
    return cases, known


def weigh(column: str | None) -> str:
    """Return the argument that R's functions take for weights."""
    return f', weights = "{column}"' if column else ""
