"""What models of several classes with standard errors share."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.federation.questions import Family
from fpdfp.losses import Losses
from fpdfp.models import tables
from fpdfp.models.base import FederatedLinearModel
from fpdfp.models.formulas import Plan
from fpdfp.models.penalty import Columns
from fpdfp.models.rows import column, refuse_column, refuse_of_rows, row_weights
from fpdfp.models.site_effects import effects_of
from fpdfp.problem import Problem


@dataclasses.dataclass(frozen=True)
class ClassLikelihood:
    """What inference asks of a family of outcomes, for classes: the deviance is −2 log-likelihood."""

    name: str
    link: str
    has_dispersion: bool = False
    is_likelihood: bool = True

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        """Return the log-likelihood."""
        return -0.5 * deviance


class CategoryModel(ClassifierMixin, FederatedLinearModel):
    """Models of classes whose coefficients are one vector, fitted by Newton steps."""

    _exact = True
    _tol = 1e-8
    _kind: Family
    site_effects: Literal["none", "fixed"]
    _aliases = False

    @abc.abstractmethod
    def _arrange_classes(self, classes: list[Any], *, ordered: bool) -> list[Any]:
        """Return the classes in the order of the model, given in their own order; refuse what does not fit.

        ``ordered`` says whether their own order is declared.
        """

    @abc.abstractmethod
    def _make_losses(self, X: Any, y: Array, **options: Any) -> Losses:
        """Return the losses of rows."""

    @abc.abstractmethod
    def _take(self, x: Array, columns: Columns, centre: Array, scale: Array) -> tuple[Array, Array]:
        """Keep the coefficients of x, and return what takes x back to features as they were given."""

    def _adopt(self, x: Array, columns: Columns, centre: Array, scale: Array) -> None:
        self._take(x, columns, centre, scale)

    def _fit_classes(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, offset: Any, weights: Any, missing: Any, levels: Any,
        on_refusal: Any,
    ) -> None:  # fmt: skip
        self._check_parameters()
        effects = _checks.choice("site_effects", self.site_effects, ("none", "fixed")) == "fixed"
        if isinstance(y, str):
            refuse_of_rows(sample_weight=sample_weight, offset=offset)
            self._fit_formula(X, y, groups, missing, levels, on_refusal, weights=weights, effects=effects)
            self._add_sections()
            return
        refuse_column(weights)
        scale = tables.scale_of(y)
        X, y = validate_data(self, tables.rows(X), tables.targets(y), accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        found = list(np.unique(y))
        if len(found) < 2:
            raise ArgumentError("y", f"must hold at least two classes, got one class: {found[0]}")
        if scale is not None:
            found.sort(key=scale.index)
        arranged = self._arrange_classes(found, ordered=scale is not None)
        self.classes_ = self._show_classes(found, arranged)
        place = {label: code for code, label in enumerate(arranged)}
        codes = np.array([place[label] for label in y])
        own_weights, weight_scale = row_weights(sample_weight, len(codes))
        if own_weights is not None:
            empty = [label for label in arranged if not own_weights[codes == place[label]].any()]
            if empty:
                raise ArgumentError("sample_weight", f"must not be zero for all rows of the class {empty[0]!r}")
        options: dict[str, Any] = {"weights": own_weights, "weight_scale": weight_scale}
        if offset is not None:
            options["offset"] = self._read_offset(offset, len(codes))

        def losses(rows: Any, owner: IntArray, ridge: Array) -> Losses:
            return self._make_losses(rows, codes, clients=owner, l2=ridge, **options)

        self._fit(X, groups, len(arranged) - 1, losses, effects=effects)

    def _read_offset(self, offset: Any, rows: int) -> Array:
        """Return what is added to the linear predictors of rows."""
        return column("offset", offset, rows)

    def _site_shifts(self, site: Any, rows: int) -> Array:
        """Return the intercepts of the sites of rows, in the last axis; zeros without site effects."""
        if self.site_effects == "none":
            return np.zeros(rows)
        return effects_of(site, self.sites_, self._effects, rows)

    def _show_classes(self, found: list[Any], arranged: list[Any]) -> Array:
        """Return ``classes_``: the classes in their own order, or in that of the model."""
        return np.array(found)

    def _arrange(self, found: Plan) -> Plan:
        classes = list(found.classes)
        arranged = self._arrange_classes(classes, ordered=found.ordered)
        self.classes_ = self._show_classes(classes, arranged)
        return found._replace(classes=tuple(arranged))

    def _losses_of(self, found: Plan) -> tuple[Family, int | None]:
        return self._kind, len(found.classes) - 1

    def _conclude(self, problem: Problem, columns: Columns, centre: Array, scale: Array) -> Array:
        back, model = self._take(self.result_.x, columns, centre, scale)
        self._ask(problem, back, columns)
        return model

    def _ask_zero(self, problem: Problem, columns: Columns) -> None:
        sums = self._ask_sums(problem, np.zeros(problem.losses.shape), "null deviance", robust=False)
        self.null_deviance_ = float(sums.numbers[3])

    def _names_of_x(self, columns: Columns) -> list[str]:
        return list(self._flat[0])

    @abc.abstractmethod
    def predict_proba(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the classes' probabilities, in the order of ``classes_``; see :meth:`predict`."""

    def predict(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the most probable class of each row.

        Parameters
        ----------
        X
            Rows, or a table with the columns of the formula.
        offset
            What is added to the linear predictors, as in ``fit``; with a formula that has an offset, in addition to it.
        site
            With site effects: the site of the rows, or of each.
        """
        check_is_fitted(self)
        chosen: Array = self.classes_[self.predict_proba(X, offset=offset, site=site).argmax(axis=1)]
        return chosen

    def predict_log_proba(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the logarithms of the classes' probabilities; see :meth:`predict`."""
        with np.errstate(divide="ignore"):
            logarithms: Array = np.log(self.predict_proba(X, offset=offset, site=site))
        return logarithms

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None, site: Any = None) -> float:
        """Return the share of rows, weighted, whose most probable class is theirs; see :meth:`predict`."""
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(X, offset=offset, site=site), sample_weight=sample_weight))
