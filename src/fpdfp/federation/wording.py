"""What a site was asked, in words, for its log."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp.cohorts.question import questions

#: Kinds of requests, and parts of a solver's request; parts that are not here are of a preconditioner.
WORDS = {
    "schema": "which columns there are",
    "sums": "counts and sums for a design",
    "moments": "means and variances of features",
    "risk": "how many rows are at risk at which times",
    "log_rank": "sums for a log-rank test",
    "baseline": "a baseline hazard",
    "concordance": "sums for the concordance of risks and times",
    "evaluation": "how good the predictions of a model are",
    "calibration": "sums for the calibration of a model",
    "propose": "a variable to be approved, or the states of such",
    "budget": "what is left of the budget",
    "plan": "leave for a declared path or cross-validation",
    "facts": "sizes",
    "bounds": "bounds of the curvature",
    "gather": "what a preconditioner is made of",
    "constants": "constants in other coordinates",
    "at": "losses or gradients at a point",
    "sums_at": "sums for a model",
    "join": "this site's key of a run",
    "meet": "the keys of the other members",
    "release": "a sum with noise",
    "duals": "sums for an error bound",
    "answers": "a certificate",
    "memory": "all that clients remember",
    "update": "a round's work",
}


def describe(asked: dict[str, Any]) -> str:
    """Say in words what is asked.

    >>> describe({"kind": "request", "request": {"update": {"round": 3}, "at": {"parts": ["gradients"]}}})
    "a round's work (round 4); losses or gradients at a point (gradients)"
    """
    kind, request, ask = asked.get("kind"), asked.get("request"), asked.get("ask")
    if kind in ("sum", "varying") and isinstance(ask, dict):
        inner = {"kind": "request", "request": ask.get("question")} if ask.get("kind") == "losses" else ask
        return ("masked: " if kind == "sum" else "what varies, for ") + describe(inner)
    if kind == "plan":
        return f"{WORDS['plan']}: {_counted(asked, 'problems')}, {_counted(asked, 'folds')}"
    if kind != "request" or not isinstance(request, dict):
        return WORDS.get(str(kind), "something unknown")
    said = []
    known = questions()
    for name in (name for name in request if name in known):
        given = request[name] if isinstance(request[name], dict) else {}
        part, detail = name if name in WORDS else "gather", ""
        if part == "update" and type(given.get("round")) is int:
            detail = f" (round {given['round'] + 1})"
        elif part in ("at", "sums_at") and isinstance(given.get("parts"), list):
            detail = f" ({', '.join(str(one)[:16] for one in given['parts'][:2])})"
        elif part == "duals":
            detail = f" ({str(given.get('part'))[:16]})"
        elif part == "gather" and (many := describe_many(name, given)):
            said.append(many)
            continue
        said.append(WORDS[part] + detail)
    return "; ".join(said) or "nothing"


def describe_many(name: str, asked: dict[str, Any]) -> str:
    """Say what a question about many points requests; nothing of another."""
    if name not in ("many_points", "dual_sums", "held_scores"):
        return ""
    if name == "held_scores":
        about = asked.get("about")
        held = about.get("held") if isinstance(about, dict) else None
        count = held.size if isinstance(held, np.ndarray) else "some"
        return f"scores ({str(asked.get('score'))[:16]}) of the rows that are left out, at {count} points"
    held, curved, folds = (asked.get(name) for name in ("held", "curved", "folds"))
    if not (isinstance(held, np.ndarray) and isinstance(curved, np.ndarray) and held.dtype.kind == "i"):
        return ""
    without = int((held >= 0).sum())
    rows = f", at {without} of them without a fold of the rows" if without and folds is not None else ""
    if name == "dual_sums":
        return f"sums for error bounds at {held.size} points{rows}"
    return f"losses and gradients at {held.size} points{rows}; {curved.size} Hessians"


def _counted(asked: dict[str, Any], name: str) -> str:
    count = asked.get(name, 0)
    return f"{count} {name}" if type(count) is int else f"no number of {name}"


def write_design(given: dict[str, Any]) -> str:
    """Write what is asked as a formula, from the trees that are evaluated and not from the names they are given.

    >>> age = {"factors": [{"name": "x", "value": {"column": "age"}}]}
    >>> write_design({"response": {"column": "died"}, "terms": [age]})
    'died ~ age'
    """
    tree = given.get("spec", given)
    tree = tree.get("design", tree) if isinstance(tree, dict) else {}
    terms = [":".join(_write(one) for one in term.get("factors", ())) for term in tree.get("terms", ())]
    more = [f"{name}({_write(tree[name])})" for name in ("offset", "weights", "cluster", "group") if tree.get(name)]
    strata = [f"strata({', '.join(map(str, tree['strata']))})"] if tree.get("strata") else []
    return f"{_write(tree.get('response'))} ~ {' + '.join([*terms, *more, *strata]) or '1'}"[:2000]


def _write(node: Any) -> str:
    """Write a node of a tree."""
    if not isinstance(node, dict):
        return str(node)
    parts = {name: _write(one) for name, one in node.items() if one is not None}
    if "value" in node:
        return parts["value"]
    for name in ("column", "number", "text", "coded"):
        if name in node:
            return parts[name]
    sign = node.get("operator") or node.get("comparison") or node.get("logic")
    if sign:
        return f"({parts.get('left')} {sign} {parts.get('right')})"
    if "function" in node:
        return f"{node['function']}({parts.get('of')})"
    if "leaves" in node:
        return f"Surv({', '.join(parts[name] for name in ('enters', 'leaves', 'event') if name in parts)})"
    if "treatment" in node:
        return f"inverse probability of {write_design(node['treatment'])}"
    if "poly" in node:
        return f"poly({parts['poly']}, {node.get('degree')})"
    return f"{node.get('spline', 'node')}({', '.join(parts.values())})"
