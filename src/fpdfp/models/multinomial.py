"""Federated multinomial regression, with standard errors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.engines.options import RunOptions
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.formula.coding import Imputation
from fpdfp.losses import Losses, Multinomial
from fpdfp.methods.base import Method
from fpdfp.models import codecs
from fpdfp.models.base import unscale
from fpdfp.models.categories import CategoryModel, ClassLikelihood
from fpdfp.models.penalty import Columns, ModelPenalty, Name
from fpdfp.models.rows import column


class FederatedMultinomialRegression(CategoryModel):
    r"""Multinomial logistic regression against a reference class, with standard errors; rows stay at their sites.

    Each class but the reference has coefficients: :math:`\log(P(y = k)/P(y = \text{reference})) = x^T w_k + b_k`.
    Without a penalty it is the maximum likelihood estimate of R's ``multinom``, by Newton steps that are one exchange
    with all sites each, and :meth:`summary` shows standard errors for each class.

    Parameters
    ----------
    reference
        The class that others are compared with; by default the first.
    penalty, bounds, start
        As in :class:`FederatedLogisticRegression`; by default ``"none"``. Differences to the reference are penalised,
        so a penalised model depends on it. Groups of :class:`fpdfp.Group` have the coefficients of all classes.
    site_effects
        ``"none"``, or ``"fixed"`` for an intercept of each site, as differences to the first, which are not penalised:
        of each class.
    fit_intercept
        Whether each class has an intercept.
    standardize, method, inference, run
        As in :class:`FederatedGLM`.

    Attributes
    ----------
    classes_, reference_, others_
        The classes, the reference, and the others, which are the rows of ``coef_``.
    coef_, intercept_
        Of shape (classes − 1, features) and (classes − 1,).
    coefficients_
        By class and name.
    deviance_, null_deviance_
        Minus twice the log-likelihood, and that of the intercepts alone.
    sites_, rows_, left_out_, n_iter_, bits_up_, bits_down_, history_, result_
        As in :class:`FederatedGLM`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import fpdfp
    >>> X, y = load_iris(return_X_y=True)
    >>> sepals = X[:, :2] - X[:, :2].mean(axis=0)
    >>> model = fpdfp.FederatedMultinomialRegression(reference=1, penalty=fpdfp.Ridge(0.01))
    >>> model = model.fit(sepals, y, groups=y + X[:, 1] > 3)
    >>> model.others_, model.coef_.shape
    (array([0, 2]), (2, 2))
    """

    _kind = "Multinomial"
    _kept = CategoryModel._kept | {"reference_": codecs.LABEL, "others_": codecs.LABELS, "_effects": codecs.MATRIX}

    def __init__(
        self,
        reference: Any = None,
        *,
        penalty: Name | ModelPenalty = "none",
        bounds: Any = None,
        start: Any = None,
        site_effects: Literal["none", "fixed"] = "none",
        fit_intercept: bool = True,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            penalty, bounds=bounds, start=start, fit_intercept=fit_intercept, standardize=standardize, method=method,
            inference=inference, run=run,
        )  # fmt: skip
        self.reference = reference
        self.site_effects = site_effects

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        weights: str | None = None,
        missing: Imputation = "drop",
        levels: Any = "shared",
        on_refusal: Literal["stop", "exclude"] = "stop",
    ) -> FederatedMultinomialRegression:
        """Fit the model to rows X with classes y, or a formula y to a table or a federation X.

        Parameters
        ----------
        X, y, groups
            As in :meth:`FederatedGLM.fit`; the response of a formula is a column of classes.
        sample_weight
            The weight of each row.
        offset
            What is added to the linear predictors of each row: a number for all classes but the reference, as
            ``offset(…)`` in a formula is, or a column for each of the classes, in their order.
        weights
            With a formula: the column that weighs rows, or an expression of columns.
        missing, levels
            With a formula: as in :meth:`FederatedLogisticRegression.fit`.
        on_refusal
            With a federation: ``"stop"`` raises an error with what all sites that refuse say; ``"exclude"`` fits
            the model without these sites, which ``excluded_`` and the summary name.
        """
        self._fit_classes(X, y, groups, sample_weight, offset, weights, missing, levels, on_refusal)
        return self

    def _arrange_classes(self, classes: list[Any], *, ordered: bool) -> list[Any]:
        reference = classes[0] if self.reference is None else self.reference
        if reference not in classes:
            shown = ", ".join(map(repr, classes))
            raise ArgumentError("reference", f"must be one of the classes {shown}, got {reference!r}")
        first = classes[classes.index(reference)]
        others = [one for one in classes if one != first]
        self.reference_, self.others_ = first, np.array(others)
        return [first, *others]

    def _read_offset(self, offset: Any, rows: int) -> Array:
        """Return a number for each row, or differences to the reference for each of the other classes."""
        if np.ndim(offset) < 2:
            return column("offset", offset, rows)
        shape = (rows, len(self.classes_))
        given = _checks.float_array("offset", offset, dtype=np.float64)
        if given.shape != shape:
            raise ArgumentError("offset", f"must be a number for each row, or of shape {shape}, got {given.shape}")
        other = self.classes_ != self.reference_
        return given[:, other] - given[:, ~other]

    def _make_losses(self, X: Any, y: Array, **options: Any) -> Losses:
        return Multinomial(X, y, n_classes=len(self.others_) + 1, **options)

    def _columns(self, features: int, intercept: bool, classes: int | None, effects: int) -> Columns:
        return Columns(features, intercept, classes, effects, flat=True)

    def _take(self, x: Array, columns: Columns, centre: Array, scale: Array) -> tuple[Array, Array]:
        count = len(self.others_)
        x = x.reshape(count, columns.all)
        model = self._undo_scaling(x, centre, scale, columns.intercept)
        self._effects = x[:, columns.all - columns.effects :].astype(np.float64)
        self.coef_, self.intercept_ = model[:, :-1], model[:, -1]
        return np.kron(np.eye(count), unscale(columns, centre, scale)), model

    def _path_labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.others_))

    def _check_loaded(self) -> None:
        others = [one for one in self.classes_ if one != self.reference_]
        if others != list(self.others_) or len(self.classes_) != len(others) + 1 or len(self.coef_) != len(others):
            raise MessageError("classes_ must be the reference and the others, which have a row of coef_ each")
        super()._check_loaded()

    def _null_places(self, columns: Columns) -> IntArray:
        if not columns.intercept:
            return np.zeros(0, dtype=np.int64)
        return np.arange(len(self.others_)) * columns.all + columns.features

    def _outcome_kind(self) -> tuple[str, Any]:
        return "multinomial", [self.reference_, *self.others_]

    def _family(self) -> Any:
        return ClassLikelihood("multinomial", "logit")

    @property
    def coefficients_(self) -> dict[str, Any]:
        """The coefficients by class and name, the intercept first, and intercepts of sites last."""
        return {str(label): row for label, row in zip(self.others_, self._by_name(), strict=True)}

    def _by_name(self) -> list[dict[str, float]]:
        names = self._effect_names(self._effects.shape[1])
        return [
            row | dict(zip(names, map(float, effects), strict=True))
            for row, effects in zip(super()._by_name(), self._effects, strict=True)
        ]

    @property
    def _flat(self) -> tuple[list[str], Array]:
        found = [
            (f"{label}: {name}", row[name])
            for label, row in zip(self.others_, self._by_name(), strict=True)
            for name in sorted(row, key=lambda one: (one.startswith("site["), one == "Intercept"))
        ]
        return [name for name, _ in found], np.array([value for _, value in found])

    def _order(self, names: list[str]) -> list[int]:
        each = len(names) // len(self.others_)
        return sorted(range(len(names)), key=lambda j: (j // each, not names[j].endswith(": Intercept")))

    def _is_intercept(self, name: str) -> bool:
        return name.endswith(": Intercept") or ": site[" in name

    def variance_inflation(self) -> dict[str, tuple[float, int, float]]:
        """Refuse: variance inflation is that of one linear predictor."""
        raise ArgumentError("model", "must have one linear predictor for variance inflation; this one has several")

    def decision_function(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the linear predictor of each class, 0 for the reference; with two classes that of the second.

        The arguments are those of :meth:`predict`.
        """
        scores = self._scores(X)
        scores = scores + self._site_shifts(site, len(scores)).T.reshape(len(scores), -1)
        scores = scores + self._shifted(np.zeros(len(scores)), X, None)[:, None]
        if offset is not None:
            scores = scores + self._read_offset(offset, len(scores)).reshape(len(scores), -1)
        whole = np.zeros((len(scores), len(self.classes_)))
        whole[:, self.classes_ != self.reference_] = scores
        return whole[:, 1] - whole[:, 0] if len(self.classes_) == 2 else whole

    def predict_proba(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the classes' probabilities, in the order of ``classes_``; see :meth:`predict`."""
        from scipy.special import softmax

        scores = self.decision_function(X, offset=offset, site=site)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        chances: Array = softmax(scores, axis=1)
        return chances
