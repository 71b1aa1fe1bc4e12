"""Ask R: data go in as CSV, one expression is evaluated for each case, numbers come back with all their digits."""

from __future__ import annotations

import csv
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

# Writes nested lists as JSON. A named list or vector becomes an object, anything else an array or a number.
PRELUDE = r"""
number <- function(v) {
  ifelse(is.na(v), "null", ifelse(is.infinite(v), ifelse(v > 0, "Infinity", "-Infinity"), sprintf("%.15g", v)))
}
text <- function(s) paste0('"', gsub('"', '\\\\"', s), '"')
json <- function(v) {
  if (is.null(v)) return("null")
  join <- function(parts) paste0("[", paste(parts, collapse = ", "), "]")
  if (is.matrix(v)) return(join(apply(v, 1, function(r) join(number(r)))))
  if (is.factor(v)) v <- as.character(v)
  parts <- if (is.list(v)) lapply(v, json) else if (is.character(v)) text(v) else number(v)
  if (!is.null(names(v))) return(paste0("{", paste0(text(names(v)), ": ", parts, collapse = ", "), "}"))
  if (is.list(v) || length(v) != 1) join(parts) else parts[[1]]
}
ask <- function(expression) {
  said <- character(0)
  value <- withCallingHandlers(expression, warning = function(w) {
    said <<- c(said, conditionMessage(w)); invokeRestart("muffleWarning") })
  c(value, list(warnings = as.list(said)))
}
"""


def ask(data: dict[str, dict[str, list[Any]]], prelude: str, cases: dict[str, str]) -> dict[str, Any]:
    """Evaluate each expression in R, every data set being a data frame of its name, and return the answers by case."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            PRELUDE,
            'case <- ""; options(error = quote({message("case: ", case); q(status = 1)}))',
            "suppressPackageStartupMessages({library(MASS); library(survival); library(glmnet)})",
        ]
        for name, columns in data.items():
            path = Path(folder, f"{name}.csv")
            with path.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                rows = zip(*columns.values(), strict=True)
                writer.writerows(["NA" if value is None else value for value in row] for row in rows)
            lines.append(f'{name} <- read.csv("{path}", stringsAsFactors = TRUE)')
        lines += [prelude, "answers <- list()"]
        lines += [f'case <- "{name}"; answers[[case]] <- ask({expression})' for name, expression in cases.items()]
        answers = Path(folder, "answers.json")
        lines.append(f'writeLines(json(answers), "{answers}")')
        script = Path(folder, "script.R")
        script.write_text("\n".join(lines))
        done = subprocess.run(["Rscript", "--vanilla", str(script)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"R stopped:\n{done.stdout}{done.stderr}")
        found: dict[str, Any] = json.loads(answers.read_text())
        return found


def version() -> str:
    """Return the version of R and of its packages."""
    code = 'cat(R.version$major, R.version$minor, sapply(c("MASS", "survival", "glmnet", "nnet", "nlme"), '
    code += "function(p) as.character(packageVersion(p))))"
    done = subprocess.run(["Rscript", "--vanilla", "-e", code], capture_output=True, text=True, check=True)
    major, minor, mass, survival, glmnet, nnet, nlme = done.stdout.split()
    return f"R {major}.{minor}, MASS {mass}, survival {survival}, glmnet {glmnet}, nnet {nnet}, nlme {nlme}"
