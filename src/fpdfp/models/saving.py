"""Fitted models as files of JSON: written, and read again without running anything that a file says."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._files import write_whole
from fpdfp.errors import ArgumentError, MessageError, ModelFileError, StorageError
from fpdfp.models import codecs
from fpdfp.models.by_feature import Names, find_limits
from fpdfp.models.codecs import Codec
from fpdfp.models.design import Settings
from fpdfp.models.outcomes import Classes, Compared, Numbers, Ordered, Symmetric
from fpdfp.models.result import FitResult

#: What a file says that it is, and the version of the format. A file of a newer version is refused.
FORMAT, VERSION = "fpdfp model", 1
#: The largest file that is read.
LARGEST = 1 << 28


#: What a file has of a fit, by the names that models show, and how each is written; what is absent is excluded.
KEPT: dict[str, Codec] = {
    "coef_": codecs.NUMBERS, "intercept_": codecs.NUMBER_OR_NUMBERS, "effects_": codecs.MATRIX,
    "thresholds_": codecs.NUMBERS, "classes_": codecs.LABELS, "sites_": codecs.LABELS, "rows_": codecs.COUNTS,
    "left_out_": codecs.COUNTS, "n_iter_": codecs.INTEGER, "n_steps_": codecs.INTEGER, "bits_up_": codecs.INTEGER,
    "bits_down_": codecs.INTEGER, "status_": codecs.TEXT, "formula_": codecs.TEXT, "plan_": codecs.PLAN,
    "names_": codecs.LABELS, "named_": codecs.TRUTH, "has_intercept_": codecs.TRUTH, "penalty_": codecs.PENALTY,
    "refusal_": codecs.TEXT, "deviance_": codecs.NUMBER, "null_deviance_": codecs.optional(codecs.NUMBER),
    "information_": codecs.SITES, "exchanges_": codecs.COUNTS, "saturated_": codecs.NUMBER,
    "null_parameters_": codecs.INTEGER, "score_statistic_": codecs.optional(codecs.NUMBER),
    "variances_": codecs.optional(codecs.VARIANCES), "theta_": codecs.optional(codecs.NUMBER),
    "theta_standard_error_": codecs.optional(codecs.NUMBER), "times_": codecs.TIMES, "family_": codecs.FAMILY,
    "periods_": codecs.NUMBERS, "aliased_": codecs.TEXTS,
}  # fmt: skip
#: Of these, what is not a field of the result under its own name.
APART = ("classes_", "effects_", "names_", "family_", "periods_")


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file of JSON: see :meth:`fpdfp.models.base.FederatedModel.save`."""
    from fpdfp import __version__

    values, objects = {}, []
    for name, value in model.get_params(deep=False).items():
        if (plain := codecs.write_parameter(value)) is not codecs.UNKNOWN:
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

    It predicts, and has its summary, tables and tests, as the model that was saved; rows to predict may be anywhere:
    at a site that had no part in the fit, this is a call on that site's own table. Nothing in the file is executed,
    and every value in it is checked.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ModelFileError
        If the file is no model, is damaged, or was written by a newer version of the format.

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
        setattr(model, one, codecs.read_parameter(value, one))
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
