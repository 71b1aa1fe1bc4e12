"""Federated logistic regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from fpdfp._typing import Array, IntArray
from fpdfp.compress.plain import plain_bits
from fpdfp.engines.options import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.families import Binomial
from fpdfp.formula.coding import Imputation
from fpdfp.losses import GLM, Logistic, Losses, Multinomial, Softmax
from fpdfp.methods.base import Method
from fpdfp.models import tables
from fpdfp.models.base import FederatedLinearModel
from fpdfp.models.penalty import Columns, ModelPenalty, Name
from fpdfp.models.rows import (
    check_class_weight,
    class_weights,
    column,
    refuse_column,
    refuse_of_rows,
    row_weights,
)
from fpdfp.models.stepping import Scaled

if TYPE_CHECKING:
    from fpdfp.families import Family


class FederatedLogisticRegression(ClassifierMixin, FederatedLinearModel):
    r"""Logistic regression with a structured penalty; rows stay at their sites.

    Minimises the mean of the logistic losses (of the softmax losses for three or more classes) over all rows, plus a
    penalty of the coefficients w. The intercept is not penalised. scikit-learn's C is 1/(weight · n) for n rows.

    Parameters
    ----------
    penalty
        A penalty with its weight: :class:`fpdfp.L1`, :class:`fpdfp.ElasticNet`, :class:`fpdfp.Group`,
        :class:`fpdfp.SparseGroup`, :class:`fpdfp.MCP`, :class:`fpdfp.SCAD`, :class:`fpdfp.Fused`, :class:`fpdfp.Graph`
        or :class:`fpdfp.Ridge`. Or the name of one with its defaults: ``"l1"``, ``"elasticnet"``, ``"group"``,
        ``"sparse group"``, ``"mcp"``, ``"scad"``, ``"fused"``, ``"graph"``, ``"ridge"``; or ``"none"``. None means
        ``"none"`` for a formula, so that the summary has standard errors, and ``"l1"`` for a matrix.
    bounds
        The least and the largest value of coefficients (not of the intercept), for features as they are given: a pair
        of numbers or arrays, None or infinite for no limit, or a dictionary of such pairs by feature or term. There are
        no standard errors then.
    start
        Where coefficients start from: an array of a number for each feature, perhaps with the intercept after them (a
        row for each of several classes), or a dictionary by feature, term and ``"Intercept"``.
    class_weight
        What multiplies the losses of the rows of each class: a dictionary by class (1 for all others), or
        ``"balanced"`` for n / (classes · rows of the class), with the counts of all sites.
    fit_intercept
        Whether there is an intercept.
    standardize
        Whether features are scaled to unit variance (and, if dense, centred) by the moments of all sites together;
        coefficients are for the original features. None means that they are if a formula is fitted with a penalty,
        which then does not depend on units. The moments are those of all rows, in cross-validation too. In a pipeline,
        ``StandardScaler`` would need all rows in one place.
    method
        As in :func:`fpdfp.solve`; None chooses one.
    inference
        Whether sites are asked for the sums that standard errors need: ``"auto"`` asks where there is no penalty.
    run
        :class:`fpdfp.RunOptions`: rounds, tolerance, participation, messages, seed and progress bar of the run, as in
        :func:`fpdfp.solve`. None is for at most 1,000 rounds, a tolerance of 1e-6 and no progress bar; a
        ``tol`` that is not given is this one as well, and ``tol=0`` runs all rounds.
        Predictions have about half the digits of the objective: the test of sample weights in scikit-learn's
        ``check_estimator`` compares them to 1e-7 and needs ``RunOptions(tol=1e-11)``.

    Attributes
    ----------
    coef_, intercept_
        Of shape (1, features) and (1,) for two classes, (classes, features) and (classes,) for more.
    classes_
        The classes.
    sites_
        The names of the sites.
    graph_
        The graph, for :class:`fpdfp.Graph`.
    penalty_
        The penalty, with its weight.
    n_iter_
        Rounds.
    bits_up_, bits_down_
        All bits that sites and server sent, including those before the first round.
    history_, result_
        The history of the run, and the result of :func:`fpdfp.solve`.

    n_steps_
        How many problems were solved, more than one for MCP and SCAD; rounds and bits are those of all, ``result_`` is
        that of the last.

    Notes
    -----
    X may be an array, a sparse matrix, or a table of pandas or Polars with numeric columns.

    ``groups`` of ``fit`` is the site of each row; without it there is one site. In cross-validation scikit-learn passes
    ``groups`` to the splitter. To pass it to the estimator as well, enable metadata routing and call
    ``set_fit_request(groups=True)``. Otherwise a warning says that all rows are fitted as one site.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> import fpdfp
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> hospital = (X[:, 0] > 12).astype(int) + (X[:, 0] > 15)
    >>> model = fpdfp.FederatedLogisticRegression(fpdfp.Graph(weight=0.01), standardize=True)
    >>> model.fit(X, y, groups=hospital).score(X, y) > 0.96
    True
    >>> len(model.sites_), model.n_iter_ < 100, model.graph_.edges > 100
    (3, True, True)
    """

    def __init__(
        self,
        penalty: Name | ModelPenalty | None = None,
        *,
        class_weight: Any = None,
        bounds: Any = None,
        start: Any = None,
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
        self.class_weight = class_weight

    def _family(self) -> Family | None:
        return Binomial() if len(self.classes_) == 2 else None

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
    ) -> FederatedLogisticRegression:
        """Fit the model to rows X with classes y; ``groups`` is the site of each row.

        Or to a formula y: then X is a table (a data frame, or a file) with ``groups`` the name of the column of sites,
        or a federation.

        Parameters
        ----------
        X, y
            Rows and classes; or a table or a federation, and a formula such as ``"died ~ age + C(stage)"``.
        groups
            The site of each row, or the name of the column that says so.
        sample_weight
            The weight of each row; their mean is made 1, so that the weight of the penalty means the same.
        offset
            What is added to the score of each row, for two classes.
        weights
            With a formula, for two classes: the column that weighs rows, or an expression of columns. The formula has
            ``offset(…)``.
        missing
            With a formula: ``"drop"`` leaves out rows with missing values, ``"mean"`` puts in the mean over all sites
            (and leaves out rows whose response or category is missing), ``"indicator"`` also adds a column that says
            where, and a level for categories.
        levels
            With a formula: ``"shared"`` refuses a level that only one of several sites has, ``"any"`` accepts it, and
            lists by column say which levels there are, in order.
        on_refusal
            With a federation: ``"stop"`` raises an error with what all sites that refuse say; ``"exclude"`` fits
            the model without these sites, which ``excluded_`` and the summary name.
        """
        self._check_parameters()
        check_class_weight(self.class_weight)
        if isinstance(y, str):
            refuse_of_rows(sample_weight=sample_weight, offset=offset)
            self._take_model(self._fit_formula(X, y, groups, missing, levels, on_refusal, weights=weights))
            self._add_sections()
            return self
        refuse_column(weights)
        X, y = validate_data(self, tables.rows(X), tables.targets(y), accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        shifts = None if offset is None else column("offset", offset, len(y))
        row_weight, _ = row_weights(sample_weight, len(y))
        if row_weight is not None and not row_weight.all():
            kept = row_weight > 0
            self._mark_rows(kept)
            X, y, row_weight = X[kept], y[kept], row_weight[kept]
            shifts = None if shifts is None else shifts[kept]
            groups = None if groups is None else np.asarray(groups)[kept]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ArgumentError("y", f"must hold at least two classes, got one class: {self.classes_[0]}")
        many = len(self.classes_) > 2
        if many and shifts is not None:
            raise ArgumentError("offset", f"must be None for more than two classes, got {len(self.classes_)} classes")
        by_class = class_weights(self.class_weight, self.classes_, np.bincount(codes))
        factors = None if row_weight is None else row_weight * (len(y) / row_weight.sum())
        if by_class is not None:
            factors = by_class[codes] if factors is None else factors * by_class[codes]
        self._by_glm = not many and (factors is not None or shifts is not None)

        def losses(rows: Any, owner: IntArray, ridge: Array) -> Losses:
            if many:
                kind = Multinomial if self._by_reference else Softmax
                return kind(rows, codes, clients=owner, l2=ridge, weights=factors)
            if not self._by_glm:
                return Logistic(rows, codes, clients=owner, l2=ridge)
            return GLM(rows, codes, clients=owner, family="binomial", l2=ridge, weights=factors, offset=shifts)

        model = self._fit(X, groups, len(self.classes_) if many else None, losses)
        if isinstance(self.class_weight, str):  # sites have sent how many rows of each class they have
            self.bits_up_ += len(self.sites_) * plain_bits((len(self.classes_),), np.dtype(np.float64))
        self._take_model(model)
        return self

    def _mark_rows(self, used: Array) -> None:
        """Take note of the rows that are used; a cross-validation has folds of all of them."""

    def _take_model(self, model: Array) -> None:
        """Keep coefficients and intercepts; of several classes these add up to 0, as they may grow alike."""
        if self._by_reference:
            model = np.concatenate([np.zeros((1, model.shape[1])), model])
            model = model - model.mean(axis=0)
        self.coef_, self.intercept_ = model[:, :-1], model[:, -1]
        if len(self.classes_) > 2:
            self.intercept_ = self.intercept_ - self.intercept_.mean()

    def _columns(self, features: int, intercept: bool, classes: int | None, effects: int) -> Columns:
        # Without a penalty classes are compared with the first, which Newton's method can do in a few exact rounds.
        plain = Columns(features, intercept, None if classes is None else len(self.classes_) - 1, effects, flat=True)
        free = self.bounds is None and self.start is None
        self._by_reference = classes is not None and free and self._suits_newton(plain.all * (plain.classes or 1))
        return plain if self._by_reference else super()._columns(features, intercept, classes, effects)

    def _unscale_many(self, x: Array, columns: Columns, scaled: Scaled) -> tuple[Array, Array]:
        coef, intercept = super()._unscale_many(x, columns, scaled)
        return coef, intercept if columns.classes is None else intercept - intercept.mean(axis=1, keepdims=True)

    def _path_labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes_)) if len(self.classes_) > 2 else ()

    def _undo_scaling(self, x: Array, centre: Array, scale: Array, intercept: bool) -> Array:
        rows = x.reshape(len(self.classes_) - 1, -1) if self._by_reference else x
        return super()._undo_scaling(rows, centre, scale, intercept)

    def _distribution(self, found: Any) -> Any:
        extra = self.class_weight is not None or found.design.weights is not None or found.design.offset is not None
        if extra and len(found.classes) > 2:
            raise ArgumentError(
                "formula:",
                f"the response has {len(found.classes)} classes; weights, class_weight and offsets take two here",
            )
        self._by_glm = extra
        return Binomial() if extra else None

    def _class_weights(self, found: Any) -> tuple[float, ...]:
        weights = class_weights(self.class_weight, found.classes, np.array(found.counts))
        return () if weights is None else tuple(map(float, weights))

    def decision_function(self, X: Any, *, offset: Any = None) -> Array:
        """Return the scores of rows: one number each for two classes, one for each class for more.

        With two classes ``offset`` is added; with a formula that has an offset, in addition to that.
        """
        scores = self._scores(X)
        if len(self.classes_) == 2:
            return self._shifted(scores[:, 0], X, offset)
        if offset is not None:
            raise ArgumentError("offset", f"must be None for more than two classes, got {len(self.classes_)} classes")
        return scores

    def predict(self, X: Any, *, offset: Any = None) -> Array:
        """Return the most probable class of each row; ``offset`` is that of :meth:`decision_function`."""
        scores = self.decision_function(X, offset=offset)
        chosen: Array = self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
        return chosen

    def predict_log_proba(self, X: Any, *, offset: Any = None) -> Array:
        """Return the logarithms of the classes' probabilities."""
        from scipy.special import log_softmax

        scores = self.decision_function(X, offset=offset)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        logarithms: Array = log_softmax(scores, axis=1)
        return logarithms

    def predict_proba(self, X: Any, *, offset: Any = None) -> Array:
        """Return the classes' probabilities."""
        probabilities: Array = np.exp(self.predict_log_proba(X, offset=offset))
        return probabilities
