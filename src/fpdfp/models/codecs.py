"""Fitted models as JSON: every value is checked when it is read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts.validation import validate
from fpdfp.engines.options import RunOptions
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.families import Family
from fpdfp.federation.questions import Distribution, dump
from fpdfp.formula.coding import Design
from fpdfp.formula.tree import Level
from fpdfp.inference import Information
from fpdfp.models.cross_validation import CrossValidation
from fpdfp.models.formulas import Plan
from fpdfp.models.penalty import KINDS as PENALTIES
from fpdfp.models.penalty import ModelPenalty, NoPenalty, TotalVariation
from fpdfp.models.random_effects import Variances
from fpdfp.models.result import EventTimes
from fpdfp.survival import Baseline, Concordance

#: The kinds of labels by NumPy's letters: what each label must be, and the type of their array.
KINDS: dict[str, tuple[Any, Any]] = {
    "U": (str, np.str_), "i": (int, np.int64), "u": (int, np.int64), "b": (bool, np.bool_), "f": (float, np.float64),
    "O": (bool | int | str | float, object),
}  # fmt: skip


class Codec(NamedTuple):
    """A codec of a value; ``read(value, name)`` raises MessageError for anything else."""

    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


def _typed(hint: Any) -> Codec:
    return Codec(lambda value: value, lambda value, name: validate(value, hint, name))


def _tree(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MessageError(f"{name} must have parts with names, got {type(value).__name__}")
    return value


def _write_number(value: Any) -> Any:
    number = float(value)
    return number if math.isfinite(number) else "NaN" if math.isnan(number) else "Infinity" if number > 0 else None


def _read_number(value: Any, name: str) -> float:
    if value in ("NaN", "Infinity"):
        return float(value)
    if type(value) is int:
        return float(validate(value, int, name))
    return float(validate(value, float, name))


def _read_numbers(value: Any, name: str) -> Array:
    if not isinstance(value, list):
        raise MessageError(f"{name} must be a list of numbers, got {type(value).__name__}")
    try:
        found = np.array(value, dtype=object)
        flat = [float(one) if type(one) in (int, float) else math.nan for one in found.ravel()]
    except (ValueError, OverflowError):
        raise MessageError(f"{name} must be numbers in rows of the same length") from None
    numbers = np.array(flat).reshape(found.shape)
    if not np.isfinite(numbers).all():
        raise MessageError(f"{name} must be finite numbers in rows of the same length")
    return numbers


def _write_labels(value: Any) -> Any:
    array = np.asarray(value)
    return {"kind": array.dtype.kind, "labels": array.tolist()}


def _read_labels(value: Any, name: str) -> Array:
    tree = _tree(value, name)
    kind = tree.get("kind")
    if set(tree) != {"kind", "labels"} or not isinstance(kind, str) or kind not in KINDS:
        raise MessageError(f"{name} must be labels and their kind")
    one, dtype = KINDS[kind]
    labels: Any = validate(tree["labels"], tuple[one, ...], name)  # type: ignore[valid-type]
    return np.array(labels, dtype=dtype)


def _read_counts(value: Any, name: str) -> dict[str, int]:
    tree = _tree(value, name)
    if any(type(one) is not int or one < 0 for one in tree.values()):
        raise MessageError(f"{name} must be counts by name")
    return dict(tree)


def _write_plan(plan: Plan) -> Any:
    return {name: one.tolist() if isinstance(one, np.ndarray) else dump(one) for name, one in plan._asdict().items()}


def _read_plan(value: Any, name: str) -> Plan:
    tree = _tree(value, name)
    if set(tree) != set(Plan._fields):
        raise MessageError(f"{name} must have {', '.join(Plan._fields)}")
    try:
        design = validate(tree["design"], Design, f"{name}: design")
    except ArgumentError as error:
        raise MessageError(f"{name}: {error}") from None
    means = NUMBERS.read(tree["means"], f"{name}: means")
    if means.shape != (len(design.filled),):
        raise MessageError(f"{name}: means must have {len(design.filled)} columns")
    return Plan(
        design,
        means,
        validate(tree["classes"], tuple[Level, ...], f"{name}: classes"),
        validate(tree["intercept"], bool, f"{name}: intercept"),
        list(validate(tree["rows"], tuple[int, ...], f"{name}: rows")),
        list(validate(tree["used"], tuple[int, ...], f"{name}: used")),
        NUMBER.read(tree["weight_scale"], f"{name}: weight_scale"),
        validate(tree["counts"], tuple[int, ...], f"{name}: counts"),
        validate(tree["ordered"], bool, f"{name}: ordered"),
        validate(tree["imputed"], tuple[str, ...], f"{name}: imputed"),
    )


def _read_family(value: Any, name: str) -> Any:
    return validate(value, Distribution, name).make()


NUMBER = Codec(_write_number, _read_number)
NUMBERS = Codec(lambda value: np.asarray(value, dtype=np.float64).tolist(), _read_numbers)
INTEGER = Codec(int, lambda value, name: validate(value, int, name))
TEXT = _typed(str | None)
TRUTH = _typed(bool)
LABELS = Codec(_write_labels, _read_labels)
LABEL = Codec(lambda value: _write_labels([value]), lambda value, name: _read_labels(value, name)[0])
TEXTS = Codec(list, lambda value, name: validate(value, tuple[str, ...], name))
COUNTS = Codec(lambda value: {str(name): int(one) for name, one in value.items()}, _read_counts)
PLAN = Codec(_write_plan, _read_plan)
FAMILY = Codec(lambda value: dump(Distribution.of(value)), _read_family)


def optional(codec: Codec) -> Codec:
    """Return a codec of values that may be None."""
    return Codec(
        lambda value: None if value is None else codec.write(value),
        lambda value, name: None if value is None else codec.read(value, name),
    )


def one_or_more(value: Any) -> Any:
    """Write a number, or numbers."""
    return NUMBERS.write(value) if np.ndim(value) else NUMBER.write(value)


NUMBER_OR_NUMBERS = Codec(
    one_or_more, lambda value, name: NUMBERS.read(value, name) if isinstance(value, list) else NUMBER.read(value, name)
)


def _write_matrix(value: Array) -> Any:
    return {"shape": list(value.shape), "numbers": value.ravel().tolist()}


def _read_matrix(value: Any, name: str) -> Array:
    tree = _tree(value, name)
    if set(tree) != {"shape", "numbers"}:
        raise MessageError(f"{name} must have a shape and numbers")
    rows, columns = validate(tree["shape"], tuple[int, int], name)
    numbers: Array = NUMBERS.read(tree["numbers"], name)
    if min(rows, columns) < 0 or numbers.shape != (rows * columns,):
        raise MessageError(f"{name} must be a matrix of {rows} × {columns}")
    matrix: Array = numbers.reshape(rows, columns)
    return matrix


#: A matrix that may have no rows.
MATRIX = Codec(_write_matrix, _read_matrix)


def record(kind: Callable[..., Any], **parts: Codec) -> Codec:
    """Return the codec of a dataclass that is made of some parts."""

    def read(value: Any, name: str) -> Any:
        tree = _tree(value, name)
        if set(tree) != set(parts):
            raise MessageError(f"{name} must have {', '.join(parts)}")
        try:
            return kind(**{one: codec.read(tree[one], f"{name}: {one}") for one, codec in parts.items()})
        except ValueError as error:
            raise MessageError(f"{name}: {error}") from None

    return Codec(lambda value: {one: codec.write(getattr(value, one)) for one, codec in parts.items()}, read)


def by_name(codec: Codec) -> Codec:
    """Return the codec of values by name."""
    return Codec(
        lambda value: {str(name): codec.write(one) for name, one in value.items()},
        lambda value, name: {key: codec.read(one, f"{name}: {key}") for key, one in _tree(value, name).items()},
    )


def several(codec: Codec) -> Codec:
    """Return the codec of a list of values."""
    return Codec(
        lambda value: [codec.write(one) for one in value],
        lambda value, name: [codec.read(one, name) for one in validate(value, list, name)],
    )


#: The variances of random intercepts.
VARIANCES = record(Variances, ridge=NUMBER, variance=NUMBER, dispersion=NUMBER)
#: The sums of each site.
SITES = optional(several(record(
    Information, rows=INTEGER, weight=NUMBER, log_likelihood=NUMBER, deviance=NUMBER, pearson=NUMBER, score=NUMBERS,
    hessian=NUMBERS, meat=optional(NUMBERS),
)))  # fmt: skip


#: Baseline hazards and concordance of times of events.
TIMES = optional(record(
    EventTimes,
    baselines=optional(by_name(by_name(record(
        Baseline, times=NUMBERS, hazard=NUMBERS, variance=NUMBERS, means=MATRIX, events=NUMBERS,
    )))),
    concordance=optional(record(
        Concordance, concordant=NUMBER, discordant=NUMBER, tied=NUMBER, squares=NUMBERS, rows=INTEGER,
    )),
    refused=TEXT,
))  # fmt: skip


#: What stands for a parameter that is an object without a form in a file.
UNKNOWN: Any = object()
#: The classes of parameters that have one.
KNOWN: list[type[Any]] = [
    *(kind for kind in PENALTIES.values() if kind is not NoPenalty), TotalVariation, RunOptions, CrossValidation,
]  # fmt: skip
RECORDS: dict[str, type[Any]] = {kind.__name__: kind for kind in KNOWN}


def write_parameter(value: Any) -> Any:
    """Return a parameter of a model as JSON has it, UNKNOWN for one that has no such form.

    Numbers, texts, truth values, lists and dictionaries of these are unchanged; penalties, options of runs and
    cross-validations by the fields that differ from the default, families by their parameters.
    """
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    if value is None or isinstance(value, bool | str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Family):
        return {"family": FAMILY.write(value)}
    if isinstance(value, list | tuple):
        found = [write_parameter(one) for one in value]
        return UNKNOWN if UNKNOWN in found else found
    if isinstance(value, dict) and all(isinstance(name, str) for name in value) and not {"family", "class"} & {*value}:
        made = {name: write_parameter(one) for name, one in value.items()}
        return UNKNOWN if UNKNOWN in made.values() else made
    if type(value) in RECORDS.values():
        made = _write_fields(value)
        return UNKNOWN if UNKNOWN in made.values() else {"class": type(value).__name__, "fields": made}
    return UNKNOWN


def _write_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    pairs = [(one.name, getattr(value, one.name), one.default) for one in dataclasses.fields(value)]
    return {name: write_parameter(given) for name, given, usual in pairs if given is not usual}


def read_parameter(value: Any, name: str) -> Any:
    """Return a parameter that :func:`write_parameter` wrote; constructors check it."""
    if isinstance(value, list):
        return [read_parameter(one, name) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"family"}:
        return FAMILY.read(value["family"], name)
    if "class" not in value:
        return {key: read_parameter(one, name) for key, one in value.items()}
    fields = value.get("fields")
    if set(value) != {"class", "fields"} or value["class"] not in RECORDS or not isinstance(fields, dict):
        raise MessageError(f"{name} must be a class that models take, and its fields")
    kind = RECORDS[value["class"]]
    known = [one.name for one in dataclasses.fields(kind)]
    strange = [one for one in fields if one not in known]
    if strange:
        raise MessageError(f"{name}: {kind.__name__} has no field {strange[0]!a}")
    try:
        return kind(**{one: read_parameter(part, f"{name}: {one}") for one, part in fields.items()})
    except (TypeError, ValueError) as error:
        raise MessageError(f"{name}: {error}") from None


def _write_penalty(value: Any) -> Any:
    """Write a penalty without what has no form in a file, as a graph that is an object."""
    if isinstance(value, NoPenalty):
        return None
    fields = {name: one for name, one in _write_fields(value).items() if one is not UNKNOWN}
    return {"class": type(value).__name__, "fields": fields}


def _read_penalty(value: Any, name: str) -> ModelPenalty:
    made = NoPenalty() if value is None else read_parameter(value, name)
    if not isinstance(made, ModelPenalty):
        raise MessageError(f"{name} must be a penalty")
    return made


#: The penalty of a fit.
PENALTY = Codec(_write_penalty, _read_penalty)
