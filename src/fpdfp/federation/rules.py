"""What a site's policy says of questions, models and requests: each rule by itself, and in words where it refuses."""

from __future__ import annotations

import math
from typing import Any

from fpdfp._typing import Array
from fpdfp.engines.evaluations import Evaluations
from fpdfp.engines.held_scores import HeldScores
from fpdfp.engines.requests import Request
from fpdfp.engines.site import Site
from fpdfp.federation.asked import columns_of
from fpdfp.federation.designs import check_columns
from fpdfp.federation.exposure import Watched
from fpdfp.federation.policy import PARTS, Policy, RefusedError, matches


def check_names(tree: Any, policy: Policy) -> None:
    """Refuse columns that models may not use."""
    for column in columns_of(tree):
        if not policy.data.allows(column):
            raise RefusedError("this site does not answer for one of the columns of the model", f"{column!a}")


def check_width(asked: Any, rows: int, policy: Policy) -> None:
    """Refuse designs with more columns than a model may have, before any is computed."""
    width, most = width_of(asked), policy.data.most_parameters
    if width > most * rows:
        raise RefusedError(
            f"this site answers for at most {most:g} coefficients for each of its rows", f"{width} columns, {rows} rows"
        )


def width_of(asked: Any) -> int:
    """Return how many columns the design of a question or a model has; 0 where it has none."""
    return int(getattr(getattr(asked, "design", None), "width", 0))


def check_rows(X: Array, policy: Policy, *, diagonal: bool) -> None:
    """Refuse moments of too few rows, of columns that tell few rows apart, and those of pairs where these stay."""
    data = policy.data
    if X.shape[0] < data.least_rows:
        raise RefusedError(f"this site takes part with at least {data.least_rows} rows only", f"{X.shape[0]}")
    check_columns(X, data.least_rows_per_level)
    if not diagonal:
        check_moments(X.shape[0], X.shape[1], policy)


def check_moments(rows: int, features: int, policy: Policy) -> None:
    """Refuse products of pairs of features where these stay, or there are too few rows for them."""
    moments = policy.moments
    if not moments.allowed:
        raise RefusedError("this site does not tell second moments of its rows")
    if rows < moments.least_rows_per_feature * features:
        raise RefusedError(
            f"this site tells second moments of at least {moments.least_rows_per_feature:g} rows a feature only",
            f"{rows} rows, {features} features",
        )


def hide(schema: dict[str, Any], policy: Policy) -> dict[str, Any]:
    """Return a schema without columns that may not be used, rare levels, and the values of single rows."""
    data, columns = policy.data, []
    least = data.least_rows_per_level
    for column in schema.get("columns", ()):
        if not data.allows(column["name"]):
            continue
        shown = dict(column)
        often = [count >= least for count in column.get("counts", ())]
        for name in ("levels", "counts"):
            shown[name] = [one for one, enough in zip(column.get(name, ()), often, strict=True) if enough]
        if not data.ranges:
            shown |= {"least": None, "largest": None}
        if 0 < column.get("missing", 0) < least:
            shown["missing"] = least
        columns.append(shown)
    rows = schema.get("rows")
    return schema | {"columns": columns, "rows": None if rows is None or rows < data.least_rows else rows}


def check_sums(sums: dict[str, Any], question: Any, policy: Policy) -> None:
    """Refuse sums over too few rows, and counts of levels with too few."""
    data = policy.data
    if sums["used"] < data.least_rows or any(0 < int(known) < data.least_rows for known in sums["known"]):
        raise RefusedError(f"this site takes part with at least {data.least_rows} rows only")
    counts = [int(one) for part in (*sums["levels"], sums["classes"]) for one in part]
    if any(0 < count < data.least_rows_per_level for count in counts):
        raise RefusedError(f"this site answers for levels of at least {data.least_rows_per_level} rows only")
    # A term may be written so that it is no number in any rows one likes: to count these would count anything.
    bad = [place for place, count in enumerate(sums.get("invalid", ())) if count]
    if bad:
        often = [place for place in bad if sums["invalid"][place] >= data.least_rows]
        terms = [f"the term {term.names[0]!a}" for term in question.design.terms]
        which = f": {['the response', *terms][often[0]][:200]}" if often else ""
        raise RefusedError(
            f"the model has terms that are no finite numbers in some rows of this site{which}",
            f"the response and the terms in order: {list(map(int, sums['invalid']))} rows",
        )


def check_request(site: Site, request: Request, policy: Policy) -> None:
    """Refuse questions and methods that the policy does not allow."""
    requests = policy.requests
    rows, features = int(site.whole.sizes.min()), int(site.whole.shape[-1])
    for question in request.questions:
        part = part_of(question.name)
        if part not in requests.parts:
            raise RefusedError(f"this site does not answer what solvers ask under {part!a}")
        if question.tells_pairs:
            many = isinstance(question, Evaluations)
            check_moments(rows, math.prod(site.whole.shape) if many else features, policy)
        if (about := many_points(question)) is not None:
            check_divisions(site, about, policy)
    if request.about.job is not None:
        algorithm = request.about.job.algorithm
        method = type(getattr(algorithm, "method", algorithm)).__name__
        if not matches(method, requests.methods):
            raise RefusedError(f"this site does not take part in runs of {method}")
        if "hessian" in algorithm.reply_shapes():
            check_moments(rows, features, policy)


def part_of(name: str) -> str:
    """Return the part of requests, as a policy names it, that a question belongs to."""
    return name if name in PARTS else "gather"


def check_divisions(site: Site, question: Evaluations, policy: Policy) -> None:
    """Refuse folds that tell few rows, in any of the divisions that a question names: it is told how large all are."""
    folds = question.folds
    if folds is None:
        return
    if folds.given:
        raise RefusedError("this site has no folds of its own: it divides its rows by a number of folds and a seed")
    if folds.repeats > policy.points.most_divisions:
        raise RefusedError(
            f"this site divides the same rows into folds in at most {policy.points.most_divisions} ways "
            "(most_divisions under [points] of its policy.toml)",
            f"{folds.repeats} are asked for",
        )
    if isinstance(site.whole, Watched):
        for labels in question.draw_folds(site.whole):
            site.whole.admit_folds(labels)


def many_points(exchange: Any) -> Evaluations | None:
    """Return the points of a question about many, None for another."""
    return (
        exchange.about if isinstance(exchange, HeldScores) else exchange if isinstance(exchange, Evaluations) else None
    )
