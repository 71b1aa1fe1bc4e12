"""What a model is about, in words for its summary."""

from __future__ import annotations

from typing import Any

from fpdfp.formula.coding import Design
from fpdfp.formula.tree import Coded


def name_outcome(response: str, kind: str, classes: Any) -> str:
    """Return what is modelled: the level whose chance rises with a positive coefficient, or the order of classes.

    Parameters
    ----------
    response
        The response as the formula has it; ``"y"`` for a matrix.
    kind
        ``"survival"``, ``"ordinal"``, ``"multinomial"``, ``"classes"`` of which each has coefficients, ``"event"`` for
        one of two, or ``"number"``.
    classes
        The classes, in the order of the model; empty for numbers.

    Examples
    --------
    >>> name_outcome("died", "event", ["no", "yes"])
    'died = yes'
    >>> name_outcome("pain", "ordinal", ["low", "medium", "high"])
    'pain: low < medium < high'
    >>> name_outcome("Surv(months, died)", "survival", [])
    'the hazard of died = 1'
    """
    if kind == "survival":
        return f"the hazard of {response.removeprefix('Surv(').removesuffix(')').rpartition(',')[2].strip() or 'y'} = 1"
    shown = [str(one) for one in classes]
    if kind == "ordinal":
        return f"{response}: {' < '.join(shown)}"
    if kind == "multinomial":
        return f"{response}, against {shown[0]}: {', '.join(shown[1:])}"
    if kind == "classes":
        return f"{response}: {', '.join(shown)}"
    return f"{response} = {shown[-1] if shown else 1}" if kind == "event" else response


def name_ratio(family: str, link: str) -> str | None:
    """Return what exp of a coefficient is; None where it is nothing.

    >>> name_ratio("binomial", "logit"), name_ratio("poisson", "log"), name_ratio("gaussian", "identity")
    ('odds ratio', 'rate ratio', None)
    """
    if family == "Cox" or link == "cloglog":
        return "hazard ratio"
    if link == "logit":
        return "odds ratio"
    if link in ("log", "log(mu-1)"):
        ratios = {"poisson": "rate ratio", "negative binomial": "rate ratio", "binomial": "risk ratio"}
        return ratios.get(family.removeprefix("quasi-"), "ratio of means") if link == "log" else None
    return None


def name_references(design: Design) -> dict[str, str]:
    """Return the reference level of each categorical factor that has one."""
    factors = [factor for term in design.terms for factor in term.factors if isinstance(factor, Coded)]
    return {one.name: str(one.levels[one.reference]) for one in factors if one.reference is not None}
