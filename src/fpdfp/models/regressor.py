"""Federated linear regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from fpdfp._typing import Array, IntArray
from fpdfp.engines.options import RunOptions
from fpdfp.families import Gaussian
from fpdfp.formula.coding import Imputation
from fpdfp.losses import GLM, LeastSquares, Losses
from fpdfp.methods.base import Method
from fpdfp.models import tables
from fpdfp.models.base import FederatedLinearModel
from fpdfp.models.penalty import ModelPenalty, Name
from fpdfp.models.rows import column, refuse_column, refuse_of_rows, row_weights

if TYPE_CHECKING:
    from fpdfp.families import Family


class FederatedLinearRegression(RegressorMixin, FederatedLinearModel):
    r"""Linear regression with a structured penalty; rows stay at their sites.

    Minimises :math:`\frac{1}{2n}\|y - Xw - b\|^2` over all n rows, plus one of the penalties of
    :class:`FederatedLogisticRegression`, whose attributes it shares; ``coef_`` has shape (features,) and
    ``intercept_`` is a number. With :class:`fpdfp.L1` and :class:`fpdfp.ElasticNet` this is the objective of
    scikit-learn's ``Lasso`` and ``ElasticNet``: their ``alpha`` is ``weight``, and ``l1_ratio`` means the same.

    Parameters
    ----------
    penalty, bounds, start, fit_intercept, standardize, method, inference, run
        As in :class:`FederatedLogisticRegression`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> import fpdfp
    >>> X, y = load_diabetes(return_X_y=True)
    >>> clinic = X[:, 0] > 0  # older patients, and younger ones
    >>> model = fpdfp.FederatedLinearRegression(fpdfp.L1(0.5), run=fpdfp.RunOptions(tol=1e-8)).fit(X, y, groups=clinic)
    >>> bool(abs(model.coef_ - Lasso(0.5, tol=1e-10).fit(X, y).coef_).max() < 1e-3)
    True
    """

    def __init__(
        self,
        penalty: Name | ModelPenalty | None = None,
        *,
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

    def _family(self) -> Family | None:
        return Gaussian()

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
    ) -> FederatedLinearRegression:
        """Fit the model to rows X with targets y, or a formula y to a table or a federation X.

        See :meth:`FederatedLogisticRegression.fit`; with weights the mean of squares is a weighted one.
        """
        self._check_parameters()
        if isinstance(y, str):
            refuse_of_rows(sample_weight=sample_weight, offset=offset)
            self._take_model(self._fit_formula(X, y, groups, missing, levels, on_refusal, weights=weights))
            self._add_sections()
            return self
        refuse_column(weights)
        X, y = validate_data(
            self, tables.rows(X), tables.targets(y), accept_sparse="csr", dtype=np.float64, y_numeric=True
        )
        targets = y.astype(np.float64)
        row_weight, scale = row_weights(sample_weight, len(targets))
        shifts = None if offset is None else column("offset", offset, len(targets))
        self._by_glm = row_weight is not None or shifts is not None

        def losses(rows: Any, owner: IntArray, ridge: Array) -> Losses:
            if not self._by_glm:
                return LeastSquares(rows, targets, clients=owner, l2=ridge)
            return GLM(rows, targets, clients=owner, l2=ridge, weights=row_weight, weight_scale=scale, offset=shifts)

        self._take_model(self._fit(X, groups, None, losses))
        return self

    def _distribution(self, found: Any) -> Any:
        self._by_glm = found.design.weights is not None or found.design.offset is not None
        return Gaussian() if self._by_glm else None

    def predict(self, X: Any, *, offset: Any = None) -> Array:
        """Return the prediction for each row; ``offset`` is added, beside that of the formula."""
        return self._shifted(self._scores(X)[:, 0], X, offset)
