"""What a report shows of a fitted model: the folder of a run, and the sections of the model in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fpdfp._sections import Section
from fpdfp._warn import warn
from fpdfp.errors import ArgumentError, StorageError
from fpdfp.inference.covariances import Kind
from fpdfp.models import codecs
from fpdfp.problem import Problem
from fpdfp.runs.recorder import linear_model, write_result


class Reporting:
    """The part of an estimator that is shown by reports.

    Attributes
    ----------
    run_folder_
        The folder of the run that a federation has written; None for rows in this process.
    """

    run_folder_: Path | None

    def write_run(
        self: Any, folder: str | os.PathLike[str] | None = None, *, name: str | None = None, errors: Kind = "model",
        level: float = 0.95, ratios: bool | None = None,
    ) -> Path:  # fmt: skip
        """Write the folder of a run with all that is known of the fit; :func:`fpdfp.report.write` makes a page of it.

        The page has the table of :meth:`summary`, how much coefficients differ between sites with forest plots, and
        after a cross-validation its curve and the path. What :meth:`evaluate` and :meth:`learning_curve` return is
        added with ``save(folder)``. Fits of a federation do this themselves, with these arguments at their defaults.

        Parameters
        ----------
        folder
            The folder. If it holds a run already, as that of a federation, sections are added to it. By default the
            one that the federation has written.
        name
            The name of the run in the page, by default that of the folder.
        errors, level, ratios
            As of :meth:`summary`.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> import fpdfp, fpdfp.report
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((300, 2))
        >>> y = X @ [1.0, -0.5] + rng.standard_normal(300)
        >>> model = fpdfp.FederatedLinearRegression("none").fit(X, y, groups=np.arange(300) % 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = model.write_run(f"{folder}/fit", level=0.9)
        ...     print(sorted(file.name for file in run.glob("*.json")))
        ...     page = fpdfp.report.write(run, f"{folder}/report.html")
        ['heterogeneity.json', 'model.json', 'run.json', 'summary.json']
        """
        check_is_fitted(self)
        if folder is None:
            folder = getattr(self, "run_folder_", None)
            if folder is None:
                raise ArgumentError("folder", "must be a folder: the model was not fitted by a federation")
        path = Path(folder)
        sections = list(self._sections(errors, level, ratios))  # before anything is written
        if not (path / "run.json").exists():
            if not hasattr(self, "result_"):
                raise ArgumentError("folder", "must be that of a run for a model that was read from a file")
            self._write_result(path, name)
        for section in sections:
            section.save(path)
        return path

    def _sections(self: Any, errors: Kind, level: float, ratios: bool | None) -> Iterator[Section]:
        """Yield what is known of the fit."""
        yield self.summary(errors=errors, level=level, ratios=ratios)
        if self.information_ is not None and self._refusal is None and len(self.rows_) > 1:
            with contextlib.suppress(ArgumentError):  # sites may have no coefficient in common
                exponential = ratios is not False and self._ratio_name() is not None
                yield self.heterogeneity_table(level=level, exponentiate=exponential)
        for name in ("path_", "curves_"):
            if hasattr(self, name):
                yield getattr(self, name)

    def _write_result(self: Any, folder: Path, name: str | None) -> None:
        rows = np.atleast_2d(self.coef_).astype(np.float64)
        names = [*self._names().features]
        intercept = None
        if "intercept_" in vars(self):
            rows = np.concatenate([rows, np.atleast_1d(self.intercept_).reshape(-1, 1)], axis=1)
            intercept, names = len(names), [*names, "Intercept"]
        classes = getattr(self, "others_", getattr(self, "classes_", None))
        model = linear_model(
            names, intercept=intercept, graph=getattr(self, "graph_", None), classes=classes, standardized=False
        )
        options = self._options()
        config = {
            "estimator": type(self).__name__, "formula": self.formula_ or "", "penalty": self.penalty_.describe(),
            "tol": options.tol or 0.0, "rounds": options.rounds, "standardize": bool(self._standardized),
        }  # fmt: skip
        write_result(
            folder, self.result_, name=name, config=config, model=model, x=rows if len(rows) > 1 else rows[0],
            clients=self.rows_, seed=options.seed,
        )  # fmt: skip

    def _note_run(self: Any, problem: Problem | None, **fit: Any) -> None:
        """Take note of the folder that a federation has written for the fit of a problem, and there of the fit."""
        engine: Any = None if problem is None else getattr(problem.losses, "engine", None)
        self.run_folder_ = getattr(engine, "run_folder", None)
        if self.run_folder_ is not None:
            parameters = {**self.get_params(deep=False), **fit}
            written = {name: codecs.write_parameter(value) for name, value in parameters.items()}
            plain = {name: value for name, value in written.items() if value is not codecs.UNKNOWN}
            objects = {name: repr(parameters[name]) for name in parameters if name not in plain}
            engine.note_fit(type(self).__name__, plain, objects, tuple(fit))

    def _add_sections(self: Any) -> None:
        """Add what is known of the fit to the folder that a federation has written."""
        if self.run_folder_ is not None:
            try:
                self.write_run()
            except StorageError as error:  # the fit is worth more than its report
                warn(f"the report has no summary of the fit: {error}", RuntimeWarning)
