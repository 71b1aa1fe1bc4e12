"""Federated regression of ordered classes, with standard errors."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.engines.options import RunOptions
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.formula.coding import Imputation
from fpdfp.inference import Table
from fpdfp.inference.covariances import Kind
from fpdfp.losses import Losses, Ordinal
from fpdfp.losses.classes import LINKS, Link, base_of
from fpdfp.methods.base import Method
from fpdfp.models import codecs
from fpdfp.models.categories import CategoryModel, ClassLikelihood
from fpdfp.models.formulas import Plan
from fpdfp.models.penalty import Columns, ModelPenalty, Name
from fpdfp.models.stepping import Scaled


class FederatedOrdinalRegression(CategoryModel):
    r"""Regression of ordered classes with proportional odds, with standard errors; rows stay at their sites.

    A row is in one of the classes up to k with the chance :math:`F(\theta_k - x^T w)`, F the logistic or the normal
    distribution function: positive coefficients make higher classes more probable. Without a penalty it is the maximum
    likelihood estimate of ``polr`` of R's MASS, by Newton steps that are one exchange with all sites each, and
    :meth:`summary` shows standard errors of coefficients and thresholds.

    Parameters
    ----------
    link
        ``"logit"`` or ``"probit"``.
    order
        The classes from the lowest to the highest. By default numbers are sorted, and an ordered categorical column has
        its own order, as has one whose levels all sites declare. Classes that are texts have no other order.
    penalty, bounds, start
        As in :class:`FederatedLogisticRegression`; by default ``"none"``. Thresholds are not penalised.
    site_effects
        ``"none"``, or ``"fixed"`` for an intercept of each site, as differences to the first, which are not penalised.
    standardize, method, inference, run
        As in :class:`FederatedGLM`.

    Attributes
    ----------
    classes_
        The classes, from the lowest to the highest.
    coef_, thresholds_
        The coefficients of the features, and the thresholds between neighbouring classes.
    coefficients_
        Both by name; thresholds are named ``"low|high"`` by the classes at their sides.
    deviance_, null_deviance_
        Minus twice the log-likelihood, and that of the thresholds alone.
    sites_, rows_, left_out_, n_iter_, bits_up_, bits_down_, history_, result_
        As in :class:`FederatedGLM`.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((300, 1))
    >>> pain = np.digitize(x[:, 0] + rng.logistic(size=300), [-1.0, 1.0])
    >>> model = fpdfp.FederatedOrdinalRegression().fit(x, pain, groups=np.arange(300) % 3)
    >>> print(model.table())
         coefficient  standard error      z        p   2.5 %   97.5 %
    x0         1.156          0.1336   8.65  < 0.001  0.8939    1.417
    0|1       -1.218          0.1481  -8.22  < 0.001  -1.508  -0.9272
    1|2       0.9909          0.1421   6.97  < 0.001  0.7124    1.269
    """

    _kind = "Ordinal"
    _kept = {
        name: codec for name, codec in CategoryModel._kept.items() if name != "intercept_"
    } | {"thresholds_": codecs.NUMBERS}  # fmt: skip

    def __init__(
        self,
        link: Link = "logit",
        *,
        order: Any = None,
        penalty: Name | ModelPenalty = "none",
        bounds: Any = None,
        start: Any = None,
        site_effects: Literal["none", "fixed"] = "none",
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            penalty, bounds=bounds, start=start, fit_intercept=False, standardize=standardize, method=method,
            inference=inference, run=run,
        )  # fmt: skip
        self.link = link
        self.order = order
        self.site_effects = site_effects

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # of classes that have no order
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _checks.choice("link", self.link, tuple(LINKS))

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
    ) -> FederatedOrdinalRegression:
        """Fit the model to rows X with classes y, or a formula y to a table or a federation X.

        Parameters
        ----------
        X, y, groups
            As in :meth:`FederatedGLM.fit`; the response of a formula is a column of classes.
        sample_weight
            The weight of each row.
        offset
            What is added to the linear predictor of each row.
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
        if self.order is None:
            if not ordered and any(isinstance(one, str) for one in classes):
                raise ArgumentError(
                    "order",
                    f"must list the classes from the lowest to the highest, got none: {', '.join(map(repr, classes))} "
                    "are texts, and no order is declared (an ordered categorical column, or the levels of the column)",
                )
            return classes
        order = list(self.order)
        if len(set(order)) != len(order) or set(order) != set(classes):
            shown = ", ".join(map(repr, classes))
            raise ArgumentError("order", f"must have each of the classes {shown} once, got {order!r}")
        return [classes[classes.index(one)] for one in order]

    def _show_classes(self, found: list[Any], arranged: list[Any]) -> Array:
        return np.array(arranged)

    def _codes_intercept(self) -> bool:
        return True

    def _arrange(self, found: Plan) -> Plan:
        if not found.intercept:
            raise ArgumentError("formula:", "the intercept must not be left out: thresholds take its place")
        if not found.design.names:
            raise ArgumentError("formula:", "must have a term; thresholds alone are the model of the null deviance")
        return super()._arrange(found)._replace(intercept=False)

    def _spec_options(self) -> dict[str, Any]:
        return {"link": self.link}

    def _make_losses(self, X: Any, y: Array, **options: Any) -> Losses:
        return Ordinal(X, y, n_classes=len(self.classes_), link=self.link, **options)

    def _columns(self, features: int, intercept: bool, classes: int | None, effects: int) -> Columns:
        return Columns(features, intercept, None, effects, thresholds=classes or 0)

    def _take(self, x: Array, columns: Columns, centre: Array, scale: Array) -> tuple[Array, Array]:
        back = _unscale(columns, centre, scale)
        x = np.array(x, dtype=np.float64)
        x[columns.of_rows :] += base_of(self.link, len(self.classes_))
        model = back @ x
        self.coef_, self._effects, self.thresholds_ = np.split(model, [columns.features, columns.of_rows])
        self.coef_ = self._within(self.coef_)
        return back, model

    def _unscale_many(self, x: Array, columns: Columns, scaled: Scaled) -> tuple[Array, Array]:
        x = x.copy()
        x[:, columns.of_rows :] += base_of(self.link, len(self.classes_))
        model = x @ _unscale(columns, *scaled).T
        return self._within(model[:, : columns.features]), model[:, columns.of_rows :]

    def _path_labels(self) -> tuple[str, ...]:
        return tuple(self._threshold_names())

    def _threshold_names(self) -> list[str]:
        return [f"{low}|{high}" for low, high in zip(self.classes_, self.classes_[1:], strict=False)]

    def _check_loaded(self) -> None:
        if self.thresholds_.shape != (len(self.classes_) - 1,) or not (np.diff(self.thresholds_) > 0).all():
            raise MessageError("thresholds_ must be increasing, one between each two neighbouring classes")
        super()._check_loaded()

    def _null_places(self, columns: Columns) -> IntArray:
        return np.arange(columns.of_rows, columns.all)

    def _outcome_kind(self) -> tuple[str, Any]:
        return "ordinal", self.classes_

    def _family(self) -> Any:
        return ClassLikelihood("ordinal", str(self.link))

    @property
    def intercept_(self) -> float:
        """Zero: thresholds take its place."""
        return 0.0

    @property
    def coefficients_(self) -> dict[str, Any]:
        """The coefficients by name, intercepts of sites, and then the thresholds."""
        check_is_fitted(self)
        (features,) = self._by_name()
        features |= dict(zip(self._effect_names(len(self._effects)), map(float, self._effects), strict=True))
        return features | dict(zip(self._threshold_names(), map(float, self.thresholds_), strict=True))

    @property
    def _flat(self) -> tuple[list[str], Array]:
        coefficients = self.coefficients_
        return list(coefficients), np.array(list(coefficients.values()))

    def _is_intercept(self, name: str) -> bool:
        return name in list(self.coefficients_)[len(self.coef_) :]

    def table(self, *, errors: Kind = "model", level: float = 0.95, exponentiate: bool = False) -> Table:
        """Return coefficients and thresholds with standard errors; see :meth:`FederatedGLM.table`."""
        found = super().table(errors=errors, level=level, exponentiate=exponentiate)
        return dataclasses.replace(found, errors="of the model (observed information)") if errors == "model" else found

    def variance_inflation(self) -> dict[str, tuple[float, int, float]]:
        """Return the variance inflation factor of each term, as of models with an intercept."""
        from fpdfp.inference import variance_inflation

        sites, (names, _), count = self._needed(), self._flat, len(self.coef_) + len(self._effects)
        hessian = sum(sites[1:], sites[0]).hessian
        cross, inner = hessian[:count, count:], hessian[count:, count:]
        left = hessian[:count, :count] - cross @ np.linalg.solve(inner, cross.T)
        return variance_inflation(left, names[:count], self._terms())

    def linear_predictor(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return x^T w of each row: where it is on the scale of the thresholds; see :meth:`predict`."""
        scores = self._shifted(self._scores(X)[:, 0], X, offset)
        return scores + self._site_shifts(site, len(scores))

    def predict_proba(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the classes' probabilities, in their order; see :meth:`predict`."""
        scores = self.linear_predictor(X, offset=offset, site=site)
        below = LINKS[self.link].chances(self.thresholds_ - scores[:, None])
        chances: Array = np.diff(below, axis=1, prepend=0.0, append=1.0)
        return chances


def _unscale(columns: Columns, centre: Array, scale: Array) -> Array:
    """Return the matrix that takes coefficients and thresholds to those of features as they were given."""
    back, features = np.eye(columns.all), np.arange(columns.features)
    back[features, features] = 1.0 / scale
    back[columns.of_rows :, : columns.features] = centre / scale
    return back
