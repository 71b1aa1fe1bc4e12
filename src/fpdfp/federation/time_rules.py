"""What a site tells of times of events: no cell of few rows, and nothing at points where few rows decide."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fpdfp.errors import ArgumentError
from fpdfp.federation.designs import check_design
from fpdfp.federation.exposure import Watched, watch
from fpdfp.federation.points import Earlier
from fpdfp.federation.policy import Policy, RefusedError, matches
from fpdfp.federation.questions import BaselineQuestion, Baselines, ConcordanceQuestion
from fpdfp.formula.tree import Arithmetic, Column, Comparison, Expression, Number, Survival, Text, columns_of
from fpdfp.losses.base import Losses
from fpdfp.survival import Concordance, LogRank, RiskCounts

#: The kinds of questions that these rules are for.
KINDS = ("risk", "log_rank", "baseline", "concordance")


def check_question(question: Any, policy: Policy) -> None:
    """Refuse counts of rows that are chosen by an expression, of which two may differ in one row, and own times."""
    if getattr(question, "times", ()) is None and not policy.data.ranges:
        raise RefusedError("this site tells of times only at those that are given: its own are times of single rows")
    response = getattr(question, "response", None)
    if isinstance(response, Survival) and not (
        _is_time(response.leaves)
        and (response.enters is None or _is_time(response.enters))
        and _is_event(response.event)
    ):
        raise RefusedError(
            "this site counts times that are a column, in any unit, and events that are a column or one of its values"
        )


def check_model(
    losses: Losses, question: BaselineQuestion | ConcordanceQuestion, policy: Policy, earlier: Earlier
) -> None:
    """Refuse hazards and concordances of models that the site would not fit, and at points it would not answer at."""
    if not matches(losses.family, policy.requests.families):
        raise RefusedError(f"this site does not answer for models of the family {losses.family}")
    check_design(losses, policy)
    watched = watch(losses, policy, earlier)
    if isinstance(watched, Watched):
        watched.look(question.x, np.arange(1))


def protect(answer: Any, policy: Policy) -> Any:
    """Return what may leave of an answer: times are put together until enough rows are at each."""
    least, rows = policy.data.least_rows_per_level, policy.data.least_rows
    sentence = f"this site tells of times only where no fewer than {least} of its rows are in a cell"
    if isinstance(answer, Baselines):
        try:
            return dataclasses.replace(answer, hazards=[one.coarsen(least) for one in answer.hazards])
        except ArgumentError as error:
            raise RefusedError(sentence, str(error)) from None
    found = {
        RiskCounts: lambda: float(answer.start.sum() + answer.entered.sum()),
        LogRank: lambda: float(answer.rows.sum()),
        Concordance: lambda: float(answer.rows),
    }[type(answer)]()
    if found < rows:
        raise RefusedError(f"this site takes part with at least {rows} rows only", f"there are {found:g}")
    if isinstance(answer, RiskCounts):
        try:
            return answer.coarsen(least)
        except ArgumentError as error:
            raise RefusedError(sentence, str(error)) from None
    if isinstance(answer, LogRank) and any(
        ((cells > 0) & (cells < least)).any() for cells in (answer.rows, answer.events, answer.rows - answer.events)
    ):
        raise RefusedError(sentence, f"groups of {answer.rows} rows with {answer.events} events")
    return answer


def shorten(tree: dict[str, Any]) -> dict[str, Any]:
    """Return counts as integers of few bits."""
    short = dict(tree)
    for name in ("start", "entered", "left"):
        if name in tree:  # what is told of risk sets; events are among those that leave
            short[name] = tree[name].astype(np.uint8 if tree[name].max(initial=0.0) < 256 else np.int32)
    if "left" in short:
        short["events"] = tree["events"].astype(short["left"].dtype)
    return short


def count_values(question: Any, rows: int) -> int:
    """Return how many numbers of the data a question is about."""
    spec = getattr(question, "spec", None)
    if spec is not None:
        return int(rows * (spec.design.width + len(list(columns_of(spec.design.response)))))
    named = [*columns_of([question.response, question.group]), *getattr(question, "strata", ())]
    return rows * len(set(named))


def _is_time(node: Expression) -> bool:
    if isinstance(node, Arithmetic) and node.operator in ("*", "/"):
        return isinstance(node.left, Column) and isinstance(node.right, Number)
    return isinstance(node, Column)


def _is_event(node: Expression) -> bool:
    if isinstance(node, Comparison) and node.comparison in ("==", "!="):
        return isinstance(node.left, Column) and isinstance(node.right, Text | Number)
    return isinstance(node, Column)
