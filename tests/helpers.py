"""Small problems that many tests run on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import scipy.sparse

import fpdfp
from fpdfp.engines import choice


def take_shifted(monkeypatch: Any) -> None:
    """Have runs without a method take ShiftedPDFP where Newton's method would be cheaper."""
    monkeypatch.setattr(choice, "MOST_COEFFICIENTS", 0)


def graph_guided(
    *,
    clients: int = 5,
    rows: int = 40,
    d: int = 12,
    l2: float = 0.05,
    weight: float = 0.02,
    seed: int = 0,
    **kwargs: Any,
) -> fpdfp.Problem:
    """Graph-guided logistic regression with B = [G; I], as in the paper, with clients that differ."""
    X, y, owner = classification(clients=clients, rows=rows, d=d, seed=seed)
    losses = fpdfp.losses.Logistic(X, y, clients=owner, l2=l2)
    return fpdfp.Problem(losses, fpdfp.penalties.L1(weight), graph(d, seed), **kwargs)


def classification(*, clients: int = 5, rows: int = 40, d: int = 12, seed: int = 0) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), rows)
    X = generator.standard_normal((clients * rows, d)) + 0.3 * generator.standard_normal((clients, d))[owner]
    truth = np.where(np.arange(d) < d // 2, 1.0, 0.0)
    y = np.where(X @ truth + generator.logistic(size=len(X)) > 0, 1.0, -1.0)
    return X, y, owner


def graph(d: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed + 1)
    G = np.triu(generator.random((d, d)) < 0.25, 1) * generator.uniform(-1, 1, (d, d))
    return scipy.sparse.vstack([scipy.sparse.csr_array(G + G.T), scipy.sparse.eye_array(d)]).tocsr()


def fused_regression(
    *, clients: int = 6, rows: int = 20, d: int = 8, weight: float = 0.1, seed: int = 0, spread: float = 1.0
) -> fpdfp.Problem:
    """Strongly convex least squares with the (d − 1) × d difference matrix, which has full row rank."""
    generator = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), rows)
    X = generator.standard_normal((clients * rows, d))
    truth = np.repeat([2.0, -1.0], d // 2) + spread * generator.standard_normal((clients, d))
    y = (X * truth[owner]).sum(axis=1) + 0.1 * generator.standard_normal(len(X))
    losses = fpdfp.losses.LeastSquares(X, y, clients=owner)
    return fpdfp.Problem(losses, fpdfp.penalties.L1(weight), fpdfp.linops.Difference(d))


def softmax(*, clients: int = 5, rows: int = 40, d: int = 12, classes: int = 3, seed: int = 0) -> tuple[Any, Any, Any]:
    """Rows of several classes, with clients that differ."""
    X, _, owner = classification(clients=clients, rows=rows, d=d, seed=seed)
    generator = np.random.default_rng(seed + 2)
    truth = generator.standard_normal((classes, d)) * (np.arange(d) < d // 2)
    return X, (X @ truth.T + generator.gumbel(size=(len(X), classes))).argmax(axis=1), owner


def reaches(
    problem: fpdfp.Problem, method: Any, rounds: int, *, every: int = 20, error: float = 1e-10, **arguments: Any
) -> bool:
    """Whether a run comes within a relative error of the optimum; it is looked at every so many rounds."""
    best = fpdfp.minimize(problem, tol=1e-12).objective

    def close(run: fpdfp.Run) -> bool:
        return run.round % every == 0 and run.problem.objective(run.x) <= best * (1 + error)

    done = fpdfp.solve(problem, method, rounds=rounds, callbacks=[close], evaluate_every=rounds, **arguments)
    return done.status == "stopped"


def prepare(problem: fpdfp.Problem, method: Any, **options: Any) -> Any:
    """Return the algorithm that ``solve`` would run."""
    from fpdfp.engines.prepare import RunOptions, prepare

    return prepare(problem, method, RunOptions(**{"rounds": 10} | options)).algorithm


def slow(values: Any, is_slow: bool) -> Any:
    """Return the values of a test's parameters, marked where it takes longer than a person waits for."""
    import pytest

    many = values if isinstance(values, tuple) else (values,)
    return pytest.param(*many, marks=[pytest.mark.slow] if is_slow else [])


def conventions(*estimators: Any, having: str = "", beside: Collection[str] = ()) -> Any:
    """Parametrize a test with scikit-learn's checks whose names have a word, but for those ``beside``."""
    import pytest
    from sklearn.utils.estimator_checks import estimator_checks_generator

    checks = []
    for estimator in estimators:
        for made, check in estimator_checks_generator(estimator):
            name = check.func.__name__
            if having in name and name not in beside:
                given = ",".join(f"{key}={value}" for key, value in check.keywords.items())
                checks.append(pytest.param(made, check, id=f"{estimator}-{name}{given and f'({given})'}"))
    return pytest.mark.parametrize(("estimator", "check"), checks)


def zoo() -> dict[str, fpdfp.Problem]:
    """One problem of every kind."""
    X, y, owner = classification()
    logistic = fpdfp.losses.Logistic(scipy.sparse.csr_array(X * (abs(X) > 1)), y, clients=owner, l2=0.05)
    squares = fpdfp.losses.LeastSquares(X, y, clients=owner, l2=0.01)
    labels = np.arange(12) // 3
    image = fpdfp.losses.OperatorLeastSquares(
        [
            fpdfp.linops.Wrapped(_dense(rows, 24, i), in_shape=(4, 6), out_shape=(rows,))
            for i, rows in enumerate((9, 12, 15))
        ],
        [np.linspace(-1, 1, rows) for rows in (9, 12, 15)],
        l2=0.05,
    )
    X, classes, owner = softmax()
    several = fpdfp.losses.Softmax(X, classes, clients=owner, l2=np.linspace(0.02, 0.05, 12))
    p, linops = fpdfp.penalties, fpdfp.linops
    return {
        "graph-guided": graph_guided(),
        "lasso": fpdfp.Problem(squares, p.L1(0.1)),
        "weighted lasso": fpdfp.Problem(squares, p.L1(np.linspace(0, 0.3, 12))),
        "group lasso": fpdfp.Problem(squares, p.GroupL12(0.1, groups=labels)),
        "fused": fused_regression(),
        "sparse logistic, samples": fpdfp.Problem(logistic, p.L1(0.02), weights="samples"),
        "box": fpdfp.Problem(squares, p.Box(-0.1, 0.2)),
        "non-negative": fpdfp.Problem(logistic, p.NonNegative()),
        "smooth": fpdfp.Problem(logistic, p.Zero(), graph(12)),
        "softmax": fpdfp.Problem(several, p.GroupL12(0.03, axis=0)),
        "isotropic TV": fpdfp.Problem(image, p.GroupL12(0.05, axis=0), linops.Gradient((4, 6))),
        "TV and non-negative": fpdfp.Problem(
            image,
            p.Stacked([p.GroupL12(0.05, axis=0), p.NonNegative()], shapes=[(2, 4, 6), (4, 6)]),
            linops.VStack([linops.Gradient((4, 6)), linops.Identity((4, 6))]),
        ),
    }


def _dense(rows: int, columns: int, seed: int) -> Any:
    from scipy.sparse.linalg import aslinearoperator

    return aslinearoperator(np.random.default_rng(seed).standard_normal((rows, columns)))


def mean_of(sent: Any, double: tuple[str, ...]) -> Any:
    """Return the mean over the client axis of each field, summed in the order of clients; some in float64."""
    from fpdfp.cohorts.local import RunningMean

    total = RunningMean(double)
    total.add(sent)
    return total.mean()
