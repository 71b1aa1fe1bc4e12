"""What a study reports, on public data sets that come with R: the data themselves, and R's answers."""

from __future__ import annotations

from typing import Any

PRELUDE = r"""
suppressPackageStartupMessages({library(quantreg); library(sandwich)})
columns <- function(data, ...) {
  data <- data[, c(...), drop = FALSE]
  factors <- Filter(is.factor, as.list(data))
  convert <- function(v) if (is.factor(v) || is.character(v)) as.character(v) else as.numeric(v)
  list(columns = lapply(as.list(data), convert),
       levels = if (length(factors)) lapply(factors, levels),
       ordered = if (length(factors)) as.list(names(Filter(is.ordered, factors))))
}
data(engel)
quantile_errors <- function(fit) {
  of <- function(...) unname(summary(fit, ...)$coefficients[, 2])
  set.seed(1)
  list(coefficients = unname(coef(fit)), errors = of(se = "nid"), kernel = of(se = "ker"),
       pairs = of(se = "boot", R = 5000, bsmethod = "xy"))
}
tight <- glm.control(epsilon = 1e-15, maxit = 200)
named <- transform(birthwt, race = c("white", "black", "other")[race])
timed <- list(lung = transform(lung, event = status - 1), veteran = transform(veteran, event = status),
              pbc = transform(pbc, event = as.numeric(status == 2)),
              colon = transform(subset(colon, etype == 2), event = status))
curve <- function(data) {
  fit <- survfit(Surv(time, event) ~ 1, data)
  list(time = fit$time, survival = fit$surv, error = fit$surv * fit$std.err)
}
concord <- function(data, formula, cluster, ...) {
  fit <- coxph(formula, data, ties = "breslow", x = TRUE); data$risk <- drop(fit$x %*% coef(fit))
  data$own <- data[[cluster]]
  found <- concordance(Surv(time, event) ~ risk, data, cluster = own, reverse = TRUE, timewt = "n")
  list(coefficients = unname(coef(fit)), index = found$concordance, error = sqrt(found$var))
}
both <- transform(colon, event = status)  # two rows of each subject
rows <- function(fit) {
  s <- coef(summary(fit))
  list(names = rownames(s), coefficients = unname(s[, 1]), errors = unname(s[, 2]), deviance = deviance(fit),
       df = fit$df.residual, aliased = as.list(names(which(is.na(coef(fit))))))
}
zph <- function(formula, data, ties) {
  zph_data <<- data  # where cox.zph looks for it again
  fit <- coxph(formula, zph_data, ties = ties, control = coxph.control(eps = 1e-14, iter.max = 100))
  of <- function(transform) { t <- cox.zph(fit, transform)$table; list(names = rownames(t), chi2 = unname(t[, 1]),
    df = unname(t[, 2]), p = unname(t[, 3])) }
  list(identity = of("identity"), log = of("log"))
}
fit_quasi <- function(formula, family, data, weights = "one", cluster = NULL) {
  data$one <- 1; data$used_weight <- data[[weights]]
  fit <- glm(formula, family, data, weights = used_weight, control = tight); s <- summary(fit); table <- coef(s)
  of <- function(labels) unname(sqrt(diag(vcovCL(fit, cluster = labels, type = "HC0", cadjust = FALSE))))
  grouped <- if (!is.null(cluster)) of(data[[cluster]])
  list(coefficients = unname(table[, 1]), errors = unname(table[, 2]), p = unname(table[, 4]),
       dispersion = s$dispersion, deviance = fit$deviance, df = fit$df.residual, clustered = grouped)
}
describe <- function(data, by, numbers, factors) {
  own <- factor(data[[by]])
  each <- function(name) {
    x <- data[[name]]
    test <- if (nlevels(own) == 2) t.test(x ~ own) else oneway.test(x ~ own)
    list(known = as.numeric(tapply(!is.na(x), own, sum)), means = as.numeric(tapply(x, own, mean, na.rm = TRUE)),
         deviations = as.numeric(tapply(x, own, sd, na.rm = TRUE)), p = test$p.value,
         ranks = kruskal.test(x ~ own)$p.value,
         wilcoxon = if (nlevels(own) == 2) wilcox.test(x ~ own, exact = FALSE, correct = FALSE)$p.value,
         quartiles = lapply(levels(own), function(g) {
           as.numeric(quantile(x[own == g], 1:3 / 4, type = 1, na.rm = TRUE)) }))
  }
  count <- function(name) {
    cells <- table(data[[name]], own)
    test <- suppressWarnings(chisq.test(cells, correct = FALSE))
    fisher <- all(dim(cells) == 2) && min(test$expected) < 5
    list(counts = unclass(cells)[, ], p = if (fisher) fisher.test(cells)$p.value else test$p.value)
  }
  list(groups = levels(own), rows = as.numeric(table(own)),
       numbers = setNames(lapply(numbers, each), numbers), factors = setNames(lapply(factors, count), factors))
}
fit_polr <- function(formula, data, weights) {
  data$used_weight <- data[[weights]]
  fit <- polr(formula, data, used_weight, Hess = TRUE, control = list(reltol = 1e-15, maxit = 1000))
  table <- coef(summary(fit))
  list(coefficients = unname(table[, 1]), errors = unname(table[, 2]))
}
"""

#: The data sets, with the columns that are used.
DATA: dict[str, str] = {
    "engel": 'columns(engel, "income", "foodexp")',
    "housing": 'columns(housing, "Sat", "Infl", "Type", "Cont", "Freq")',
    "lung": 'columns(timed$lung, "time", "event", "age", "sex", "ph.ecog", "inst")',
    "veteran": 'columns(timed$veteran, "time", "event", "trt", "celltype", "karno", "age", "prior")',
    "pbc": 'columns(timed$pbc, "time", "event", "age", "edema", "bili", "albumin", "protime", "stage")',
    "colon": 'columns(timed$colon, "time", "event", "rx", "sex", "age", "nodes", "differ", "extent")',
    "both": 'columns(na.omit(both), "id", "time", "event", "rx", "sex", "age", "nodes")',
    "epil": 'columns(epil, "y", "trt", "base", "age", "V4", "subject")',
    "menarche": 'columns(transform(menarche, share = Menarche / Total), "Age", "share", "Total")',
    "quine": 'columns(quine, "Days", "Eth", "Sex", "Age", "Lrn")',
    "birthwt": 'columns(named, "low", "age", "lwt", "race", "smoke", "ptl", "ht", "ui", "ftv", "bwt")',
}

#: The cases by name: the data set, what a test needs to know, and the expression.
CASES: dict[str, tuple[str, dict[str, Any], str]] = {}

for level in (0.25, 0.5, 0.75):
    fit = f"rq(foodexp ~ income, tau = {level}, data = engel)"
    told = f"quantile_errors({fit})"
    CASES[f"quantile {level}"] = ("engel", {"level": level}, told)

CASES["polr"] = ("housing", {}, 'fit_polr(Sat ~ Infl + Type + Cont, housing, "Freq")')

for name in ("lung", "veteran", "pbc", "colon"):
    CASES[f"survfit {name}"] = (name, {}, f"curve(timed${name})")

for name, text, cluster, rows in (
    ("both", "Surv(time, event) ~ nodes + age", "id", "na.omit(both)"),
    ("lung", "Surv(time, event) ~ age + sex", "inst", "subset(timed$lung, !is.na(inst))"),
):
    CASES[f"concordance {name}"] = (
        name, {"formula": text, "cluster": cluster}, f'concord({rows}, {text}, "{cluster}")',
    )  # fmt: skip
#: In quine no child of the age F3 is a slow learner.
for text in ("Days ~ Age * Lrn", "Days ~ Eth + Sex * Age * Lrn", "Days ~ Sex + Lrn * Age"):
    CASES[f"aliased {text}"] = ("quine", {"formula": text}, f"rows(glm({text}, poisson, quine, control = tight))")

ODDS = (
    "(function() {{ fit <- {}; list(smoke = unname(exp(c(coef(fit)['smoke'], confint.default(fit)['smoke', ])))) }})()"
)
CASES["odds"] = ("birthwt", {}, ODDS.format("glm(low ~ smoke + age + relevel(factor(race), 'black'), binomial, named)"))

for name, by, numbers, factors in (
    ("birthwt", "smoke", ("age", "lwt", "bwt"), ("race", "low", "ht")),
    ("lung", "sex", ("age", "time"), ("event",)),
    ("quine", "Age", ("Days",), ("Eth", "Sex", "Lrn")),
    ("veteran", "celltype", ("age", "karno", "time"), ("event", "prior")),
):
    columns = {"numbers": list(numbers), "factors": list(factors)}
    sets = [f"c({', '.join(repr(one) for one in some)})" for some in (numbers, factors)]
    data = {"birthwt": "named", "quine": "quine"}.get(name, f"timed${name}")
    CASES[f"table one {name}"] = (name, {"by": by, **columns}, f"describe({data}, {by!r}, {', '.join(sets)})")
CASES["correlation"] = (
    "birthwt",
    {},
    "with(cor.test(~ age + lwt, birthwt), list(r = estimate, p = p.value, ends = conf.int))",
)

for family, data, text, weights in (
    ("quasipoisson", "quine", "Days ~ Sex + Age + Eth + Lrn", "one"),
    ("quasipoisson", "epil", "y ~ trt + base + age", "one"),
    ("quasipoisson", "birthwt", "ftv ~ age + lwt + smoke", "one"),
    ("quasipoisson", "lung", "age ~ sex", "one"),
    ("quasibinomial", "menarche", "share ~ Age", "Total"),
    ("quasibinomial", "birthwt", "low ~ age + lwt + smoke", "one"),
    ("quasibinomial", "veteran", "prior ~ age + karno", "one"),
    ("quasibinomial", "both", "event ~ nodes + age", "one"),
):
    source = {"birthwt": "named", "lung": "timed$lung", "veteran": "timed$veteran", "both": "na.omit(both)",
              "menarche": "transform(menarche, share = Menarche / Total)"}.get(data, data)  # fmt: skip
    if data == "veteran":
        source = "transform(timed$veteran, prior = prior / 10)"
    CASES[f"{family} {data}"] = (
        data, {"formula": text, "weights": weights}, f'fit_quasi({text}, {family}, {source}, "{weights}")'
    )  # fmt: skip

for family, data, text, cluster in (
    ("poisson", "epil", "y ~ trt + base + age", "subject"),
    ("binomial", "both", "event ~ nodes + age", "id"),
    ("gaussian", "both", "time ~ nodes + age + rx", "id"),
    ("poisson", "quine", "Days ~ Sex + Eth", "Age"),
):
    source = {"both": "na.omit(both)"}.get(data, data)
    CASES[f"clustered {family} {data}"] = (
        data, {"formula": text, "family": family, "cluster": cluster},
        f'fit_quasi({text}, {family}, {source}, cluster = "{cluster}")',
    )  # fmt: skip

for data, text, ties in (
    ("lung", "Surv(time, event) ~ age + sex", "efron"),
    ("veteran", "Surv(time, event) ~ trt + celltype + karno + age", "efron"),
    ("colon", "Surv(time, event) ~ rx + sex + age + nodes + strata(extent)", "breslow"),
    ("pbc", "Surv(time, event) ~ age + bili + albumin", "efron"),
):
    CASES[f"zph {data}"] = (data, {"formula": text, "ties": ties}, f'zph({text}, timed${data}, "{ties}")')


def list_cases() -> tuple[dict[str, str], dict[str, Any]]:
    """Return the expression of each case, and what is known of it."""
    expressions = {f"data {name}": text for name, text in DATA.items()}
    known: dict[str, Any] = {f"data {name}": {} for name in DATA}
    for name, (data, about, text) in CASES.items():
        expressions[name], known[name] = text, {"data": data, **about}
    return expressions, known
