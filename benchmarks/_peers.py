"""Solvers that a person would use instead of `fpdfp.minimize`, each with a ladder of settings from loose to tight.

Every solver takes a task and a rung of its ladder, and returns x. ``None`` stands for what it cannot solve. Data come
in the layout that it likes best, which is made before anything is timed.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

import fpdfp
from benchmarks._dual_path import solve_dual_path


class Task(NamedTuple):
    """min (1/n) Σ φ(a_jᵀx, y_j) + l2/2 ‖x‖² + l1 ‖Bx‖₁, or with the norms of groups of equal size.

    φ is the logistic loss, that of counts (Poisson, with a logarithm as its link), or half a square.
    """

    name: str
    X: Any
    y: np.ndarray
    logistic: bool
    l1: float
    l2: float = 0.0
    group_size: int = 1
    B: Any = None
    clients: int = 1
    counts: bool = False

    def problem(self) -> fpdfp.Problem:
        """Return it as a problem among clients with equally many rows."""
        rows, features = self.X.shape
        owner = np.arange(rows) * self.clients // rows
        if self.counts:
            losses: fpdfp.losses.Losses = fpdfp.losses.GLM(
                self.by_row(), self.y, clients=owner, family="poisson", l2=self.l2
            )
        else:
            kind = fpdfp.losses.Logistic if self.logistic else fpdfp.losses.LeastSquares
            losses = kind(self.by_row(), self.y, clients=owner, l2=self.l2)
        groups = np.arange(features) // self.group_size
        grouped = fpdfp.penalties.GroupL12(self.l1, groups=groups) if self.group_size > 1 else None
        return fpdfp.Problem(losses, grouped or fpdfp.penalties.L1(self.l1), self.B, weights="samples")

    def by_column(self) -> Any:
        """Return X by columns."""
        if not scipy.sparse.issparse(self.X):
            return np.asfortranarray(self.X)
        return _with_short_indices(scipy.sparse.csc_matrix(self.X))

    def by_row(self) -> Any:
        """Return X by rows, sparse ones as a copy, since scikit-learn sorts their entries in place."""
        if not scipy.sparse.issparse(self.X):
            return self.X
        return _with_short_indices(scipy.sparse.csr_matrix(self.X, copy=True))


def _with_short_indices(X: Any) -> Any:
    """Return a sparse matrix with indices of 32 bits, since several peers take no others."""
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


class Peer(NamedTuple):
    """A solver: what prepares a task, what solves it for a rung, and the ladder; ``package`` must be installed."""

    package: str
    prepare: Callable[[Task], Callable[[float], Any] | None]
    ladder: Sequence[float]

    @property
    def is_there(self) -> bool:
        """Whether the package is installed."""
        return importlib.util.find_spec(self.package) is not None


def _saga(task: Task) -> Callable[[float], Any] | None:
    from sklearn.linear_model import LogisticRegression

    if not task.logistic or task.group_size > 1:
        return None
    total = task.l1 + task.l2
    settings = {"C": 1.0 / (total * len(task.y)), "l1_ratio": task.l1 / total, "fit_intercept": False, "tol": 1e-14}
    X = task.by_row()
    return lambda steps: LogisticRegression(solver="saga", max_iter=int(steps), **settings).fit(X, task.y).coef_[0]


def _liblinear(task: Task) -> Callable[[float], Any] | None:
    from sklearn.linear_model import LogisticRegression

    if not task.logistic or task.group_size > 1 or task.l2 > 0:
        return None
    settings = {"C": 1.0 / (task.l1 * len(task.y)), "l1_ratio": 1.0, "fit_intercept": False, "max_iter": 10_000}
    X = task.by_row()
    return lambda tol: LogisticRegression(solver="liblinear", tol=tol, **settings).fit(X, task.y).coef_[0]


def _elastic_net(task: Task) -> Callable[[float], Any] | None:
    from sklearn.linear_model import ElasticNet

    if task.logistic or task.counts or task.group_size > 1:
        return None
    total, X = task.l1 + task.l2, task.by_column()
    settings = {"alpha": total, "l1_ratio": task.l1 / total, "fit_intercept": False, "max_iter": 100_000}
    return lambda tol: ElasticNet(tol=tol, **settings).fit(X, task.y).coef_


def _skglm(task: Task) -> Callable[[float], Any] | None:
    from skglm import GeneralizedLinearEstimator, datafits, penalties, solvers
    from skglm.utils.data import grp_converter

    X, features = task.by_column(), task.X.shape[1]
    if task.group_size == 1:
        total = task.l1 + task.l2
        penalty = penalties.L1_plus_L2(total, task.l1 / total) if task.l2 else penalties.L1(task.l1)
        datafit = datafits.Poisson() if task.counts else datafits.Logistic() if task.logistic else datafits.Quadratic()
        solver = solvers.ProxNewton if task.logistic or task.counts else solvers.AndersonCD
    else:
        if scipy.sparse.issparse(task.X):
            return None
        indices, pointers = grp_converter(task.group_size, features)
        penalty = penalties.WeightedGroupL2(task.l1, np.ones(len(pointers) - 1), pointers, indices)
        datafit = (datafits.LogisticGroup if task.logistic else datafits.QuadraticGroup)(pointers, indices)
        solver = solvers.GroupProxNewton if task.logistic else solvers.GroupBCD

    def solve(tol: float) -> Any:
        one = solver(tol=tol, fit_intercept=False, max_iter=1000)
        return GeneralizedLinearEstimator(datafit, penalty, one).fit(X, task.y).coef_.ravel()

    return solve


def _celer(task: Task) -> Callable[[float], Any] | None:
    import celer

    X = task.by_column()
    if task.counts:
        return None
    if task.logistic:
        if task.l2 or task.group_size > 1:
            return None
        C = 1.0 / (task.l1 * len(task.y))
        return lambda tol: celer.LogisticRegression(C=C, tol=tol, fit_intercept=False).fit(X, task.y).coef_.ravel()
    if task.group_size > 1:
        make = functools.partial(celer.GroupLasso, task.group_size, alpha=task.l1)
    elif task.l2:
        total = task.l1 + task.l2
        make = functools.partial(celer.ElasticNet, alpha=total, l1_ratio=task.l1 / total)
    else:
        make = functools.partial(celer.Lasso, alpha=task.l1)
    return lambda tol: make(tol=tol, fit_intercept=False).fit(X, task.y).coef_.ravel()


def _glum(task: Task) -> Callable[[float], Any] | None:
    from glum import GeneralizedLinearRegressor

    # It makes a dense Hessian of all features.
    if task.group_size > 1 or task.X.shape[1] > 5000:
        return None
    total, X = task.l1 + task.l2, task.by_column()
    y = (task.y + 1) / 2 if task.logistic else task.y
    settings = {"alpha": total, "l1_ratio": task.l1 / total, "fit_intercept": False, "max_iter": 1000}
    family = "poisson" if task.counts else "binomial" if task.logistic else "normal"

    def solve(tol: float) -> Any:
        return GeneralizedLinearRegressor(family=family, gradient_tol=tol, **settings).fit(X, y).coef_

    return solve


def _adelie(task: Task) -> Callable[[float], Any] | None:
    import adelie

    features, total = task.X.shape[1], task.l1 + task.l2
    groups = np.arange(0, features, task.group_size)
    X = task.by_column()
    matrix = adelie.matrix.sparse(X, method="naive", n_threads=1) if scipy.sparse.issparse(task.X) else X
    y = (task.y + 1) / 2 if task.logistic else task.y
    kinds = adelie.glm
    glm = (kinds.poisson if task.counts else kinds.binomial if task.logistic else kinds.gaussian)(y, dtype=np.float64)
    settings = {
        "groups": groups, "alpha": task.l1 / total, "penalty": np.ones(len(groups)), "lmda_path": [total],
        "intercept": False, "progress_bar": False, "n_threads": 1, "early_exit": False,
    }  # fmt: skip

    def solve(tol: float) -> Any:
        extra = {"irls_tol": tol} if task.logistic or task.counts else {}
        found = adelie.grpnet(X=matrix, glm=glm, tol=tol, **settings, **extra)
        return np.asarray(found.betas.todense()).ravel()

    return solve


def _cvxpy(solver: str, settings: Callable[[float], dict[str, Any]]) -> Callable[[Task], Callable[[float], Any]]:
    def prepare(task: Task) -> Callable[[float], Any]:
        def solve(tol: float) -> Any:
            import cvxpy

            x = cvxpy.Variable(task.X.shape[1])
            if task.logistic:
                loss = cvxpy.sum(cvxpy.logistic((scipy.sparse.diags_array(-task.y) @ task.X) @ x)) / len(task.y)
            else:
                # a triangle instead of all rows: ‖Xx − y‖² = ‖Rx − c‖² + const with XᵀX = RᵀR
                root = np.linalg.cholesky(task.X.T @ task.X).T
                right = scipy.linalg.solve_triangular(root, task.X.T @ task.y, trans="T")
                loss = cvxpy.sum_squares(root @ x - right) / (2 * len(task.y))
            objective = loss + task.l2 / 2 * cvxpy.sum_squares(x) + task.l1 * cvxpy.norm1(task.B @ x)
            cvxpy.Problem(cvxpy.Minimize(objective)).solve(solver=solver, **settings(tol))
            return x.value

        return solve

    return prepare


def _pyproximal(task: Task) -> Callable[[float], Any] | None:
    if task.logistic:
        return None  # it has no logistic loss
    import pylops
    import pyproximal

    rows, features = task.X.shape
    # The ridge as further rows.
    stacked = np.vstack([task.X / np.sqrt(rows), np.sqrt(task.l2) * np.eye(features)])
    right = np.append(task.y / np.sqrt(rows), np.zeros(features))
    data = pylops.MatrixMult(stacked, dtype=np.float64)
    B = pylops.MatrixMult(scipy.sparse.csr_matrix(task.B).toarray(), dtype=np.float64)
    norm = float(np.linalg.norm(B.A, 2)) ** 2
    tau, mu = 0.99 / norm, 0.99

    def solve(count: float) -> Any:
        fit = pyproximal.L2(Op=data, b=right, densesolver="factorize")
        penalty = pyproximal.L1(sigma=task.l1)
        return pyproximal.optimization.primaldual.PrimalDual(
            fit, penalty, B, tau=tau, mu=mu, x0=np.zeros(features), niter=int(count)
        )

    return solve


def _osqp(task: Task) -> Callable[[float], Any] | None:
    if task.logistic:
        return None
    import osqp

    rows, features = task.X.shape
    B = scipy.sparse.csc_matrix(task.B)
    count = B.shape[0]
    room = scipy.sparse.identity(count, format="csc")
    both = scipy.sparse.bmat([[B, -room], [B, room]], format="csc")
    low = np.append(np.full(count, -np.inf), np.zeros(count))
    high = np.append(np.zeros(count), np.full(count, np.inf))

    def solve(tol: float) -> Any:
        # min ½xᵀHx − bᵀx + l1 Σt subject to −t ≤ Bx ≤ t, with the small H instead of all rows
        hessian = scipy.sparse.csc_matrix(task.X.T @ task.X / rows + task.l2 * np.eye(features))
        P = scipy.sparse.block_diag([scipy.sparse.triu(hessian), scipy.sparse.csc_matrix((count, count))], format="csc")
        q = np.append(-(task.X.T @ task.y) / rows, np.full(count, task.l1))
        solver = osqp.OSQP()
        solver.setup(P, q, both, low, high, eps_abs=tol, eps_rel=tol, max_iter=100_000, verbose=False)
        return solver.solve().x[:features]

    return solve


def _dual_path(task: Task) -> Callable[[float], Any] | None:
    if task.logistic or task.B.shape[0] >= task.B.shape[1]:
        return None  # it needs a B with independent rows
    return lambda _: solve_dual_path(task.X, task.y, scipy.sparse.csr_array(task.B), task.l1, task.l2)


def _fista(task: Task) -> Callable[[float], Any] | None:
    """Return FISTA whose proxes are ten accelerated dual steps from the last dual, with NumPy and SciPy alone."""
    if not task.logistic:
        return None
    X, y, (rows, features) = task.X, task.y, task.X.shape
    B = scipy.sparse.csr_matrix(task.B)
    back, norm = B.T.tocsr(), float(scipy.sparse.linalg.norm(B, 1) * scipy.sparse.linalg.norm(B, np.inf))

    def solve(count: float) -> Any:
        lipschitz = float(np.linalg.norm(X, 2)) ** 2 / (4 * rows) + task.l2
        x = ahead = np.zeros(features)
        v, theta = np.zeros(B.shape[0]), 1.0
        for _ in range(int(count)):
            slope = X.T @ (-y / (1.0 + np.exp(y * (X @ ahead)))) / rows + task.l2 * ahead
            target, point, inner = ahead - slope / lipschitz, v, 1.0
            for _ in range(10):
                new = np.clip(point + lipschitz / norm * (B @ (target - back @ point / lipschitz)), -task.l1, task.l1)
                following = (1.0 + np.sqrt(1.0 + 4.0 * inner * inner)) / 2.0
                point, v, inner = new + (inner - 1.0) / following * (new - v), new, following
            before, x = x, target - back @ v / lipschitz
            theta = 1.0 if (ahead - x) @ (x - before) > 0 else theta
            following = (1.0 + np.sqrt(1.0 + 4.0 * theta * theta)) / 2.0
            ahead, theta = x + (theta - 1.0) / following * (x - before), following
        return x

    return solve


TOLERANCES = tuple(10.0**-k for k in range(2, 15))
STEPS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
SPECIALISTS = {
    "scikit-learn, SAGA": Peer("sklearn", _saga, STEPS),
    "scikit-learn, liblinear": Peer("sklearn", _liblinear, TOLERANCES),
    "scikit-learn, coordinate descent": Peer("sklearn", _elastic_net, TOLERANCES),
    "skglm": Peer("skglm", _skglm, TOLERANCES),
    "celer": Peer("celer", _celer, TOLERANCES),
    "glum": Peer("glum", _glum, TOLERANCES),
    "adelie": Peer("adelie", _adelie, TOLERANCES),
}
GENERIC = {
    "cvxpy, Clarabel": Peer(
        "clarabel",
        _cvxpy("CLARABEL", lambda tol: {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol}),
        (1e-4, 1e-6, 1e-8, 1e-10, 1e-12),
    ),
    "cvxpy, SCS": Peer("scs", _cvxpy("SCS", lambda tol: {"eps": tol, "max_iters": 10**6}), (1e-3, 1e-5, 1e-7, 1e-9)),
    "OSQP": Peer("osqp", _osqp, (1e-4, 1e-6, 1e-8, 1e-10)),
    "dual path": Peer("scipy", _dual_path, (0.0,)),
    "FISTA, NumPy": Peer("scipy", _fista, (100, 300, 1000, 2000, 4000, 8000, 16_000, 32_000)),
    "PyProximal, primal-dual": Peer("pyproximal", _pyproximal, (100, 300, 1000, 3000, 10_000)),
}
