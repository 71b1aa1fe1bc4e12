"""Fitted models as files of JSON: written, and read again without running anything that a file says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fpdfp._files import write_whole
from fpdfp.errors import ArgumentError, MessageError, ModelFileError, StorageError
from fpdfp.models import codecs
from fpdfp.models.codecs import Codec

#: What a file says that it is, and the version of the format. A file of a newer version is refused.
FORMAT, VERSION = "fpdfp model", 1
#: The largest file that is read.
LARGEST = 1 << 28


class Saving:
    """The part of an estimator that is written to files."""

    #: What is kept of a fitted model, and how it is written; what is absent is left out.
    _kept: ClassVar[dict[str, Codec]] = {
        "coef_": codecs.NUMBERS, "intercept_": codecs.NUMBER_OR_NUMBERS, "classes_": codecs.LABELS,
        "sites_": codecs.LABELS, "rows_": codecs.COUNTS, "left_out_": codecs.COUNTS, "n_iter_": codecs.INTEGER,
        "bits_up_": codecs.INTEGER, "bits_down_": codecs.INTEGER, "status_": codecs.TEXT, "formula_": codecs.TEXT,
        "plan_": codecs.PLAN, "n_features_in_": codecs.INTEGER, "feature_names_in_": codecs.LABELS,
        "deviance_": codecs.NUMBER, "null_deviance_": codecs.optional(codecs.NUMBER), "information_": codecs.SITES,
        "exchanges_": codecs.COUNTS, "_saturated": codecs.NUMBER, "_null_parameters": codecs.INTEGER,
        "_effects": codecs.NUMBERS, "aliased_": codecs.TEXTS, "penalty_": codecs.PENALTY,
    }  # fmt: skip

    def save(self: Any, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file of JSON, which :func:`fpdfp.load_model` reads.

        The file has the coefficients, the formula with its coding, means for missing values, the family with its
        parameters, the classes, the sites with their rows and sums for standard errors, and how it was fitted; not the
        history of the run. Parameters that are objects, such as a method or a graph, are named in it, and have their
        defaults in the model that is read. With ``sites_`` of few rows the sums may tell about them: a file is as
        confidential as :attr:`information_`.

        Parameters
        ----------
        path
            The file, ``"model.json"`` for instance. An older one is replaced.
        """
        from fpdfp import __version__

        check_is_fitted(self)
        values, objects = {}, []
        for name, value in self.get_params(deep=False).items():
            if (plain := codecs.write_parameter(value)) is not codecs.UNKNOWN:
                values[name] = plain
            else:
                objects.append(name)
        document = {
            "format": FORMAT, "version": VERSION, "fpdfp": __version__, "estimator": type(self).__name__,
            "parameters": values, "objects": objects,
            "fitted": {name: self._kept[name].write(vars(self)[name]) for name in self._kept if name in vars(self)},
        }  # fmt: skip
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            write_whole(Path(path), text.encode("utf-8"), flush=True)
        except OSError as error:
            raise StorageError(f"the model cannot be written to {os.fspath(path)}: {error}") from error

    def _check_loaded(self: Any) -> None:
        """Refuse what does not fit together."""
        d, rows = self.n_features_in_, np.atleast_2d(self.coef_)
        plan = getattr(self, "plan_", None)
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        if rows.ndim != 2 or rows.shape[1] != d:
            raise MessageError(f"coef_ must have {d} columns, got shape {self.coef_.shape}")
        if np.shape(self.intercept_) not in ((), (len(rows),)):
            raise MessageError(f"intercept_ must be a number for each of {len(rows)} rows of coef_")
        if names is not None and len(names) != d:
            raise MessageError(f"feature_names_in_ must be {d} names")
        known = [] if names is None else list(names)
        if (plan is None) != (self.formula_ is None) or (plan is not None and known != plan.design.names):
            raise MessageError("plan_ must be that of the formula, with the features of the model")
        if len(self.sites_) != len(self.rows_) or set(self.rows_) != set(self.left_out_):
            raise MessageError("sites_, rows_ and left_out_ must be of the same sites")
        if self.information_ is not None:
            count = len(self._flat[0])
            if len(self.information_) != len(self.sites_) or any(len(one.score) != count for one in self.information_):
                raise MessageError(f"information_ must have sums of {count} coefficients for each site")


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
        raise ModelFileError(f"{os.fspath(path)} is no fitted model that can be used: {error}") from None


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
        model._check_parameters()
    except (ValueError, TypeError) as error:
        raise MessageError(f"its parameters: {error}") from None
    strange = [one for one in fitted if one not in kind._kept]
    if strange:
        raise MessageError(f"{name} has nothing named {strange[0]!a}")
    for one, value in fitted.items():
        setattr(model, one, kind._kept[one].read(value, one))
    try:
        model._check_loaded()
    except (AttributeError, KeyError, ValueError, TypeError, IndexError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"its parts do not fit together: {error}") from None
    return model
