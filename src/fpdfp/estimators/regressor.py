"""Federated linear regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from fpdfp._typing import Array, IntArray
from fpdfp.estimators import tables
from fpdfp.estimators.base import FederatedLinearModel
from fpdfp.formula.coding import Imputation
from fpdfp.losses import LeastSquares, Losses

if TYPE_CHECKING:
    from fpdfp.families import Family


class FederatedLinearRegression(RegressorMixin, FederatedLinearModel):
    r"""Linear regression with a structured penalty; rows stay at their sites.

    Minimises :math:`\frac{1}{2n}\|y - Xw - b\|^2` over all n rows, plus one of the penalties of
    :class:`FederatedLogisticRegression`, whose parameters and attributes it shares; ``coef_`` has shape (features,) and
    ``intercept_`` is a number. With ``penalty="l1"`` and ``"elasticnet"`` this is the objective of scikit-learn's
    ``Lasso`` and ``ElasticNet``, and ``alpha`` and ``l1_ratio`` mean the same.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> from fpdfp import FederatedLinearRegression
    >>> X, y = load_diabetes(return_X_y=True)
    >>> clinic = X[:, 0] > 0  # older patients, and younger ones
    >>> model = FederatedLinearRegression(penalty="l1", alpha=0.5, tol=1e-8).fit(X, y, groups=clinic)
    >>> bool(abs(model.coef_ - Lasso(0.5, tol=1e-10).fit(X, y).coef_).max() < 1e-3)
    True
    """

    def _family(self) -> Family | None:
        from fpdfp.families import Gaussian

        return Gaussian()

    def fit(
        self, X: Any, y: Any, groups: Any = None, *, missing: Imputation = "drop", levels: Any = "shared"
    ) -> FederatedLinearRegression:
        """Fit the model to rows X with targets y, or a formula y to a table or a federation X.

        See :meth:`FederatedLogisticRegression.fit`.
        """
        self._check_parameters()
        if isinstance(y, str):
            (model,) = self._fit_formula(X, y, groups, missing, levels)
            self.coef_, self.intercept_ = model[:-1], float(model[-1])
            return self
        X, y = validate_data(
            self, tables.rows(X), tables.targets(y), accept_sparse="csr", dtype=np.float64, y_numeric=True
        )

        def losses(rows: Any, owner: IntArray, ridge: Array) -> Losses:
            return LeastSquares(rows, y.astype(np.float64), clients=owner, l2=ridge)

        (model,) = self._fit(X, groups, None, losses)
        self.coef_, self.intercept_ = model[:-1], float(model[-1])
        return self

    def predict(self, X: Any) -> Array:
        """Return the prediction for each row."""
        return self._scores(X)[:, 0]
