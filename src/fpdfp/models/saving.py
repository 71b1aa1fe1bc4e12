"""Fitted models as files of JSON: every value is written in one form, and checked for what it must be when read.

Nothing that a file says is run.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp._files import write_whole
from fpdfp._typing import Array
from fpdfp.cohorts.serialization import validate
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError, MessageError, ModelFileError, StorageError
from fpdfp.families import Family
from fpdfp.federation.questions import Distribution, dump
from fpdfp.formula.coding import Design
from fpdfp.formula.tree import Level
from fpdfp.inference import Information
from fpdfp.models.cross_validation import CrossValidation
from fpdfp.models.design import Settings
from fpdfp.models.formulas import Plan
from fpdfp.models.outcomes import Classes, Compared, Numbers, Ordered, Symmetric
from fpdfp.models.penalty import KINDS as PENALTIES
from fpdfp.models.penalty import ModelPenalty, Names, NoPenalty, TotalVariation, find_limits
from fpdfp.models.random_effects import Variances
from fpdfp.models.result import EventTimes, FitResult
from fpdfp.privacy.accounting import Spent
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


#: What a private fit has cost.
RELEASES = Codec(
    lambda value: [[kind, mu] for kind, mu in value],
    lambda value, name: tuple((str(kind), float(mu)) for kind, mu in validate(value, list, name)),
)
SPENT = record(Spent, epsilon=NUMBER, delta=NUMBER, mu=NUMBER, releases=RELEASES, unit=TEXT)
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
    if type(value) is NoPenalty:
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


#: What a file says that it is, and the version of the format. A file of a newer version is refused.
FORMAT, VERSION = "fpdfp model", 1
#: The largest file that is read.
LARGEST = 1 << 28


#: What a file has of a fit, by the names that models show, and how each is written; what is absent is excluded.
KEPT: dict[str, Codec] = {
    "coef_": NUMBERS, "intercept_": NUMBER_OR_NUMBERS, "effects_": MATRIX,
    "thresholds_": NUMBERS, "classes_": LABELS, "sites_": LABELS, "rows_": COUNTS,
    "left_out_": COUNTS, "n_iter_": INTEGER, "n_steps_": INTEGER, "bits_up_": INTEGER,
    "bits_down_": INTEGER, "status_": TEXT, "formula_": TEXT, "plan_": PLAN,
    "names_": LABELS, "named_": TRUTH, "has_intercept_": TRUTH, "penalty_": PENALTY,
    "refusal_": TEXT, "deviance_": NUMBER, "null_deviance_": optional(NUMBER),
    "information_": SITES, "exchanges_": COUNTS, "saturated_": NUMBER,
    "null_parameters_": INTEGER, "score_statistic_": optional(NUMBER),
    "variances_": optional(VARIANCES), "theta_": optional(NUMBER),
    "theta_standard_error_": optional(NUMBER), "effective_rows_": optional(NUMBER), "times_": TIMES, "family_": FAMILY,
    "periods_": NUMBERS, "aliased_": TEXTS, "condition_": TEXT, "privacy_": optional(SPENT),
}  # fmt: skip
#: Of these, what is not a field of the result under its own name.
APART = ("classes_", "effects_", "names_", "family_", "periods_")


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file of JSON: see :meth:`fpdfp.models.base.FederatedModel.save`."""
    from fpdfp import __version__

    values, objects = {}, []
    for name, value in model.get_params(deep=False).items():
        if (plain := write_parameter(value)) is not UNKNOWN:
            values[name] = plain
        else:
            objects.append(name)
    fit: FitResult = model.fitted_
    fields = {f"{one.name}_": getattr(fit, one.name) for one in dataclasses.fields(fit)}
    fields |= {"names_": np.array(fit.names.features, dtype=str), "effects_": np.atleast_2d(fit.effects)}
    if fit.outcome.classes is not None:
        fields["classes_"] = fit.outcome.classes
    if isinstance(fit.outcome, Numbers):
        fields |= {"family_": fit.outcome.distribution, "periods_": np.array(fit.outcome.periods)}
    for name in ("thresholds_", "plan_"):
        if fields[name] is None:
            del fields[name]
    document = {
        "format": FORMAT, "version": VERSION, "fpdfp": __version__, "estimator": type(model).__name__,
        "parameters": values, "objects": objects,
        "fitted": {name: codec.write(fields[name]) for name, codec in KEPT.items() if name in fields},
    }  # fmt: skip
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        write_whole(Path(path), text.encode("utf-8"), flush=True)
    except OSError as error:
        raise StorageError(f"the model cannot be written to {os.fspath(path)}: {error}") from error


def load_model(path: str | os.PathLike[str]) -> Any:
    """Return the fitted model in a file that ``save`` of an estimator wrote.

    It predicts, and has its summary, tables and tests, as the model that was saved. Rows to predict may be anywhere:
    at a site that had no part in the fit, this is a call on that site's own table. Nothing in the file is executed,
    and every value in it is checked.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ModelFileError
        If the file does not hold a model, is damaged, or was written by a newer version of the format.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import fpdfp
    >>> X = np.arange(12.0).reshape(6, 2) % 5
    >>> model = fpdfp.FederatedGLM("poisson").fit(X, [1, 0, 2, 3, 1, 4], groups=[0, 0, 0, 1, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(pathlib.Path(folder) / "model.json")
    ...     again = fpdfp.load_model(pathlib.Path(folder) / "model.json")
    >>> bool((again.predict(X) == model.predict(X)).all()), str(again.summary()) == str(model.summary())
    (True, True)
    """
    try:
        return _read(_parse(Path(path)))
    except (MessageError, ArgumentError) as error:
        raise ModelFileError(f"{os.fspath(path)} is not a usable fitted model: {error}") from None


def _parse(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST:
            raise MessageError(f"it has more than {LARGEST:,} bytes")
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError:
        raise MessageError("it is not a text in UTF-8") from None

    def refuse(constant: str) -> Any:
        raise MessageError(f"it has the number {constant}")

    try:
        tree = json.loads(text, parse_constant=refuse)
    except (RecursionError, ValueError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"it is not JSON ({type(error).__name__})") from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise MessageError(f'it does not say "format": "{FORMAT}"')
    version = tree.get("version")
    if type(version) is not int or version < 1:
        raise MessageError(f"its version must be a number, got {version!a}")
    if version > VERSION:
        raise MessageError(
            f"its format has the version {version}, written by fpdfp {tree.get('fpdfp')!a}; this is fpdfp for version "
            f"{VERSION}: install a newer one"
        )
    return tree


def _read(tree: dict[str, Any]) -> Any:
    from fpdfp import models

    name, given, fitted = tree.get("estimator"), tree.get("parameters"), tree.get("fitted")
    kinds = [one for one in models.__all__ if one.startswith("Federated")]
    if not isinstance(name, str) or name not in kinds:
        raise MessageError(f"its estimator must be one of {', '.join(kinds)}, got {name!a}")
    if not isinstance(given, dict) or not isinstance(fitted, dict):
        raise MessageError("it must have parameters, and what was fitted")
    kind: Any = getattr(models, name)
    model = kind()
    known = model.get_params(deep=False)
    strange = [one for one in given if one not in known]
    if strange:
        raise MessageError(f"{name} has no parameter {strange[0]!a}")
    for one, value in given.items():
        setattr(model, one, read_parameter(value, one))
    try:
        settings = model._settings()
    except (ValueError, TypeError) as error:
        raise MessageError(f"its parameters: {error}") from None
    strange = [one for one in fitted if one not in KEPT]
    if strange:
        raise MessageError(f"{name} has nothing named {strange[0]!a}")
    found = {one: KEPT[one].read(value, one) for one, value in fitted.items()}
    try:
        fit = _make(model, found, settings)
        _check(fit)
    except (AttributeError, KeyError, ValueError, TypeError, IndexError, AssertionError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"its parts do not fit together: {error}") from None
    model.fitted_ = fit
    model.n_features_in_ = len(fit.names.features)
    if fit.named:
        model.feature_names_in_ = np.array(fit.names.features, dtype=object)
    return model


def _make(model: Any, found: dict[str, Any], settings: Settings) -> FitResult:
    """Return the result that parts of a file are."""
    plan, names = found.get("plan_"), [str(one) for one in found["names_"]]
    outcome = model._outcome_of(plan, found.get("classes_"))
    if isinstance(outcome, Numbers):
        outcome = dataclasses.replace(
            outcome, distribution=found["family_"], periods=tuple(map(float, found["periods_"]))
        )
    if (plan is None) != (found["formula_"] is None) or (plan is not None and names != plan.design.names):
        raise MessageError("plan_ must match the formula and the features of the model")
    terms = names if plan is None else list(plan.design.term_of_each)
    effects = found["effects_"] if isinstance(outcome, Compared) else found["effects_"].ravel()
    fields = {name.removesuffix("_"): value for name, value in found.items() if name not in APART}
    columns = Names(names, terms)
    return FitResult(
        **{"thresholds": None, "plan": None} | fields, title=type(model).__name__, outcome=outcome, names=columns,
        effects=effects, limits=find_limits(settings.bounds, columns),
    )  # fmt: skip


def _check(fit: FitResult) -> None:
    """Refuse what does not fit together."""
    d, rows, outcome = len(fit.names.features), np.atleast_2d(fit.coef), fit.outcome
    if rows.ndim != 2 or rows.shape[1] != d:
        raise MessageError(f"coef_ must have {d} columns, got shape {fit.coef.shape}")
    if np.shape(fit.intercept) not in ((), (len(rows),)):
        raise MessageError(f"intercept_ must be a number for each of {len(rows)} rows of coef_")
    if isinstance(outcome, Classes):
        several = len(outcome.labels) - int(isinstance(outcome, Compared))
        if len(rows) != (several if isinstance(outcome, Compared | Symmetric) else 1):
            raise MessageError("classes_ must belong to the model, whose coefficients are the rows of coef_")
    if isinstance(outcome, Ordered) and (
        fit.thresholds is None
        or fit.thresholds.shape != (len(outcome.labels) - 1,)
        or not (np.diff(fit.thresholds) > 0).all()
    ):
        raise MessageError("thresholds_ must be increasing, one between each two neighbouring classes")
    if len(fit.sites) != len(fit.rows) or set(fit.rows) != set(fit.left_out):
        raise MessageError("sites_, rows_ and left_out_ must be of the same sites")
    if fit.information is not None:
        count = len(fit.flat()[0])
        shown = len(fit.information) in (1, len(fit.sites))
        if not shown or any(len(one.score) != count for one in fit.information):
            raise MessageError(f"information_ must have sums of {count} coefficients for each site")
