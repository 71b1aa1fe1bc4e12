"""The graph of features of graph-guided models: given, or estimated by the graphical lasso; and its picture.

Up to 200 features scikit-learn solves the graphical lasso, by coordinate descent. With more features its regressions
often do not converge, and proximal gradient steps take its place. They minimise

    −log det Θ + tr(SΘ) + α Σ_{i≠j} |Θ_ij|      over positive definite Θ.

Features that no chain of covariances above α joins are not joined in the solution, so that groups are solved apart:

    Θ⁺ = soft(Θ − ζ (S − Θ⁻¹), ζα)      off the diagonal thresholded, with ζ from the two steps before

until the duality gap is at most the tolerance. A step costs one Cholesky factorisation and one inverse.

R. Mazumder and T. Hastie, "Exact covariance thresholding into connected components for large-scale graphical lasso",
JMLR 13 (2012); B. Rolfs, B. Rajaratnam, D. Guillot, I. Wong and A. Maleki, "Iterative thresholding algorithm for sparse
inverse covariance estimation", NeurIPS 2012.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._numbers import one_thread
from fpdfp._plotting import new_axes, save
from fpdfp._progress import Bar
from fpdfp._typing import Array
from fpdfp.datasets.moments import Moments, check_rows
from fpdfp.errors import ArgumentError

Form = Literal["weights", "differences"]
FORMS: tuple[Form, ...] = ("weights", "differences")
#: With more features, the picture has no names.
NAMED = 80
#: Tried in turn until the graphical lasso succeeds: how much of the mean variance is added to the diagonal.
SHRINKAGES = (0.0, 1e-3, 1e-2, 1e-1)
#: Tolerances of scikit-learn's regressions, tried in turn: with its default, the first, some do not converge.
TOLERANCES = (1e-4, 1e-7)
#: With more features, proximal gradient steps take the place of scikit-learn.
MANY = 200
#: The largest duality gap after proximal gradient steps.
GAP = 1e-5
#: Steps after which a group of features counts as not converging, and halvings of one step.
MOST_STEPS = 1000
MOST_HALVINGS = 60
#: The gap is computed once in this many steps: it takes a factorisation of its own.
LOOK = 5


class FeatureGraph(NamedTuple):
    """A graph of features, with the parameters of its estimation.

    Attributes
    ----------
    weights
        The weights of the edges: a symmetric CSR array without a diagonal.
    alpha
        The penalty of the graphical lasso that estimated the graph; None for a given graph.
    shrinkage
        How much of the mean variance was added to the diagonal of the covariance to make it invertible.
    """

    weights: Any
    alpha: float | None = None
    shrinkage: float = 0.0

    @property
    def edges(self) -> int:
        """The number of edges."""
        return int(self.weights.nnz) // 2

    @property
    def n_features(self) -> int:
        """The number of features."""
        return int(self.weights.shape[0])

    def plot(self, coefficients: Any = None, names: Any = None, path: Any = None) -> Any:
        """Draw the graph, with coefficients on it; see ``fpdfp.datasets.plot_graph``."""
        return plot_graph(self, coefficients, names, path)

    def signed_edges(self) -> tuple[Any, Array]:
        """Return each edge once, the upper triangle in COO form, with sign 1 or −1.

        The sign is 1 for features that increase together, whose entry of the inverse covariance is negative.
        """
        import scipy.sparse

        upper = scipy.sparse.triu(self.weights, 1).tocoo()
        return upper, np.sign(upper.data) * (1.0 if self.alpha is None else -1.0)

    def structure(self, form: Form = "weights") -> Any:
        """Return what is stacked on the identity in B, as a CSR array.

        ``"weights"`` is the paper's G, the matrix of weights itself. ``"differences"`` has a row for each edge (i, j),
        |w_ij| (x_i − s x_j): linked features then have coefficients of the same size. Here s = −1 where they move
        against each other: given weights that are negative, and positive entries of an inverse covariance.
        """
        import scipy.sparse

        if _checks.choice("form", form, FORMS) == "weights":
            return self.weights
        upper, together = self.signed_edges()
        row, size = np.arange(upper.nnz), abs(upper.data)
        entries = np.concatenate([size, -together * size])
        places = np.concatenate([row, row]), np.concatenate([upper.row, upper.col])
        return scipy.sparse.coo_array((entries, places), shape=(upper.nnz, self.n_features)).tocsr()

    def stacked(self, form: Form = "weights") -> Any:
        """Return B = [G; I] as a CSR array; ``form`` sets G, see ``structure``.

        >>> import numpy as np
        >>> as_graph([(0, 1)], 2).stacked("differences").toarray()
        array([[ 1., -1.],
               [ 1.,  0.],
               [ 0.,  1.]])
        """
        import scipy.sparse

        return scipy.sparse.vstack([self.structure(form), scipy.sparse.eye_array(self.n_features)]).tocsr()


def as_graph(graph: Any, n_features: int, feature_names: Any = None) -> FeatureGraph:
    """Return a graph of features for a matrix, a list of edges or a networkx graph.

    Parameters
    ----------
    graph
        A symmetric matrix of weights (an array, a sparse matrix or a data frame), a list of edges, a networkx graph,
        or a :class:`FeatureGraph`. Edges are (i, j) or (i, j, weight), or an array with two columns. Those of a
        networkx graph may have a ``weight``. Features are numbers from 0, or names.
    n_features
        How many features there are.
    feature_names
        Their names, if edges are given by name.

    Examples
    --------
    >>> graph = as_graph([("age", "weight", 0.5), ("weight", "height")], 3, ["age", "height", "weight"])
    >>> graph.edges
    2
    >>> graph.weights.toarray()
    array([[0. , 0. , 0.5],
           [0. , 0. , 1. ],
           [0.5, 1. , 0. ]])
    """
    n_features = _checks.integer("n_features", n_features, at_least=1)
    if isinstance(graph, FeatureGraph):
        return _of_size(graph, n_features)
    if hasattr(graph, "edges") and hasattr(graph, "is_directed"):
        if graph.is_directed():
            raise ValueError("graph must not be directed: an edge joins two features")
        numbers = _numbers(n_features, feature_names)
        for node in graph.nodes:
            _feature(node, numbers, n_features)
        return _from_edges(list(graph.edges(data="weight", default=1.0)), n_features, feature_names)
    if hasattr(graph, "to_numpy"):  # a data frame
        graph = graph.to_numpy()
    if hasattr(graph, "tocsr") or (isinstance(graph, np.ndarray) and (n_features == 2 or graph.shape[1:] != (2,))):
        return _from_matrix(graph, n_features)
    try:
        edges = [tuple(edge) for edge in graph]
    except TypeError:
        raise TypeError(
            "graph must be a matrix of weights, a list of edges, a networkx graph or a FeatureGraph, "
            f"got {_checks.kind(graph)}"
        ) from None
    return _from_edges(edges, n_features, feature_names)


def _of_size(graph: FeatureGraph, n_features: int) -> FeatureGraph:
    if graph.n_features != n_features:
        raise ValueError(f"graph must have the {n_features} features of the data, got {graph.n_features}")
    return graph


def _from_matrix(matrix: Any, n_features: int) -> FeatureGraph:
    import scipy.sparse

    if matrix.shape != (n_features, n_features):
        raise ValueError(f"graph must be a matrix of shape ({n_features}, {n_features}), got {matrix.shape}")
    dense_or_sparse = matrix if hasattr(matrix, "tocsr") else _checks.float_array("graph", matrix, dtype=np.float64)
    weights = scipy.sparse.csr_array(dense_or_sparse, dtype=np.float64, copy=True)
    _checks.finite("graph", weights.data)
    weights.sum_duplicates()
    weights.eliminate_zeros()
    if weights.diagonal().any():
        raise ValueError("graph must have a zero diagonal: an edge joins two features")
    if abs(weights - weights.T).max() > 1e-12 * abs(weights).max():
        raise ValueError("graph must be a symmetric matrix")
    return FeatureGraph(weights)


def _from_edges(edges: list[Any], n_features: int, feature_names: Any) -> FeatureGraph:
    import scipy.sparse

    numbers = _numbers(n_features, feature_names)
    seen: dict[tuple[int, int], float] = {}
    for edge in edges:
        if len(edge) not in (2, 3):
            raise ValueError(f"graph: an edge must be (i, j) or (i, j, weight), got {edge!r}")
        first, second = sorted(_feature(end, numbers, n_features) for end in edge[:2])
        weight = _checks.real("graph: the weight of an edge", edge[2]) if len(edge) == 3 else 1.0
        if first == second:
            raise ValueError(f"graph: an edge must join two features, got {edge!r}")
        if (first, second) in seen:
            raise ValueError(f"graph: the edge {edge[0]!r}, {edge[1]!r} is given twice")
        seen[first, second] = weight
    places = np.array(list(seen), dtype=np.int64).reshape(-1, 2).T
    entries = np.tile(np.array(list(seen.values()), dtype=np.float64), 2)
    row, column = np.concatenate([places[0], places[1]]), np.concatenate([places[1], places[0]])
    weights = scipy.sparse.coo_array((entries, (row, column)), shape=(n_features, n_features)).tocsr()
    weights.eliminate_zeros()
    return FeatureGraph(weights)


def _numbers(n_features: int, feature_names: Any) -> dict[Any, int]:
    """The numbers of features that have names."""
    numbers = {} if feature_names is None else {name: i for i, name in enumerate(feature_names)}
    if feature_names is not None and len(numbers) != n_features:
        raise ValueError(f"feature_names must hold {n_features} different names, got {len(numbers)}")
    return numbers


def _feature(end: Any, numbers: dict[Any, int], n_features: int) -> int:
    """Return the number of a feature that is given by number or by name."""
    if isinstance(end, Hashable) and end in numbers:
        return numbers[end]
    if isinstance(end, str):
        unnamed = "; features have no names here (feature_names, or a data frame to fit)"
        raise ValueError(f"graph: unknown feature {end!r}" + ("" if numbers else unnamed))
    return _checks.integer("graph: a feature", end, at_least=0, at_most=n_features - 1)


def feature_graph(X: Any, alpha: float = 0.1, *, clients: Any = None, progress: bool | None = None) -> FeatureGraph:
    """Estimate the graph of the columns of X with the graphical lasso.

    If the graphical lasso fails, as for a singular covariance, the covariance is shrunk towards a multiple of the
    identity, as little as necessary.

    Parameters
    ----------
    X
        Rows of features, dense or sparse; or :class:`Moments`, which need not be computed in one place: each client
        computes its own with ``Moments.of``, and the server merges them with ``Moments.total``.
    alpha
        The penalty: larger means fewer edges.
    clients
        Which client holds each row: then the moments of every client are merged, as they would be in a federation. The
        covariance equals the covariance of all rows together up to rounding, and so is the graph up to the tolerance of
        the graphical lasso.
    progress
        Whether to show a bar where there are more than 200 features; None, only where standard error is a terminal.

    References
    ----------
    O. Banerjee, L. El Ghaoui and A. d'Aspremont, "Model selection through sparse maximum likelihood estimation for
    multivariate Gaussian or binary data", JMLR 9 (2008).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a, b, c = rng.standard_normal((3, 500))
    >>> X = np.stack([a, a + 0.5 * b, c], axis=1)
    >>> graph = feature_graph(X, alpha=0.2)
    >>> graph.edges
    1
    >>> graph.stacked().shape
    (6, 3)

    The same from three clients who keep their rows:

    >>> parts = [Moments.of(rows) for rows in np.array_split(X, 3)]
    >>> feature_graph(Moments.total(parts), alpha=0.2).edges
    1
    """
    alpha = _checks.real("alpha", alpha, positive=True)
    moments = X if isinstance(X, Moments) else _moments(X, clients)
    if isinstance(X, Moments) and clients is not None:
        raise ValueError("clients must not be given with moments, which have no rows")
    if moments.scatter.ndim != 2:
        raise ValueError("X: these moments have no covariances, only variances")
    if not moments.variance.any():
        raise ArgumentError("X", "must have a column that varies; every column is constant")
    many = len(moments.covariance) > MANY
    for shrinkage, tolerance in itertools.product(SHRINKAGES, (GAP,) if many else TOLERANCES):
        covariance = _shrunk(moments.covariance, shrinkage)
        if many:
            with one_thread(), Bar(MOST_STEPS, 0, progress, sends=False) as bar:
                precision = graphical_lasso(
                    covariance, alpha, tolerance, lambda step, value: bar.update(step, value, 0)
                )
        else:
            precision = _scikit_learn(covariance, alpha, tolerance)
        if precision is not None:
            return FeatureGraph(_normalise(precision), alpha, shrinkage)
    raise ValueError(f"the graphical lasso failed with alpha={alpha:g} for every shrinkage tried; raise alpha")


def _moments(X: Any, clients: Any) -> Moments:
    rows = check_rows(X)
    if min(rows.shape) < 2:
        raise ArgumentError("X", f"must have at least two rows and two columns, got shape {rows.shape}")
    return Moments.of(rows) if clients is None else Moments.total(Moments.of_clients(rows, clients))


def _shrunk(covariance: Array, shrinkage: float) -> Array:
    """Return a covariance with some of the mean variance on its diagonal."""
    size = float(np.trace(covariance)) / len(covariance)
    shrunk: Array = (1 - shrinkage) * covariance + shrinkage * size * np.eye(len(covariance))
    return shrunk


def _scikit_learn(covariance: Array, alpha: float, tolerance: float) -> Array | None:
    """Return the sparse inverse covariance, or None where the solver fails or does not converge."""
    from sklearn.covariance import graphical_lasso
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # divisions by the variance of a constant column
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            _, precision = graphical_lasso(covariance, alpha, max_iter=200, enet_tol=tolerance)
        except (FloatingPointError, ConvergenceWarning, np.linalg.LinAlgError):
            return None
    found: Array = precision
    return found if np.isfinite(found).all() else None


def _normalise(precision: Array) -> Any:
    """The off-diagonal entries, scaled to largest absolute value 1."""
    import scipy.sparse

    weights = precision - np.diag(np.diag(precision))
    largest = abs(weights).max()
    return scipy.sparse.csr_array(weights / largest if largest > 0 else weights)


class Point(NamedTuple):
    """A positive definite Θ, its inverse, and −log det Θ + tr(SΘ)."""

    theta: Array
    inverse: Array
    smooth: float


def graphical_lasso(covariance: Array, alpha: float, tol: float, look: Callable[[int, float], None]) -> Array | None:
    """Return the sparse inverse covariance, None if it is not found; ``look`` receives the steps and the objective."""
    if not (np.diag(covariance) > 0).all():
        return None
    precision = np.diag(1.0 / np.diag(covariance))
    groups = list(_groups(covariance, alpha))
    done = 0
    for group in groups:
        found, steps = _solve(covariance[np.ix_(group, group)], alpha, tol / len(groups), done, look)
        if found is None:
            return None
        precision[np.ix_(group, group)] = found
        done += steps
    return precision


def _groups(covariance: Array, alpha: float) -> Iterator[Array]:
    """Yield the numbers of the features of each group of two or more."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(csr_array(abs(covariance) > alpha), directed=False)
    order = np.argsort(labels, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if group.size > 1:
            yield group


def _solve(
    S: Array, alpha: float, tol: float, done: int, look: Callable[[int, float], None]
) -> tuple[Array | None, int]:
    """Return the inverse covariance of a group, or None, and the steps it took."""
    start = np.diag(1.0 / np.diag(S))
    at = _point(S, start, np.sqrt(start))
    assert at is not None  # a diagonal of positive numbers
    step = float(np.diag(S).min()) ** -2
    for steps in range(1, MOST_STEPS + 1):
        following = _advance(S, alpha, at, step)
        if following is None:
            return None, steps
        moved, turned = following.theta - at.theta, at.inverse - following.inverse
        curvature = float(np.vdot(moved, turned))
        at = following
        if curvature <= 0.0:
            return at.theta, steps  # nothing moves any more
        step = float(np.vdot(moved, moved)) / curvature
        if steps % LOOK == 0:
            objective = at.smooth + alpha * _off_diagonal(at.theta)
            look(done + steps, objective)
            if objective - _dual(S, alpha, at.inverse) <= tol:
                return at.theta, steps
    return None, MOST_STEPS


def _advance(S: Array, alpha: float, at: Point, step: float) -> Point | None:
    """Return the point after a step, as long as it may be; None where rounding leaves none."""
    from scipy.linalg import lapack

    slope = S - at.inverse
    for _ in range(MOST_HALVINGS):
        theta = at.theta - step * slope
        thresholded = np.sign(theta) * np.maximum(abs(theta) - step * alpha, 0.0)
        np.fill_diagonal(thresholded, np.diag(theta))
        factor, failed = lapack.dpotrf(thresholded, lower=True, clean=True)
        if not failed:
            moved = thresholded - at.theta
            bound = at.smooth + float(np.vdot(slope, moved)) + float(np.vdot(moved, moved)) / (2.0 * step)
            if _smooth(S, thresholded, factor) <= bound + 1e-12 * abs(bound):
                return _point(S, thresholded, factor)
        step /= 2.0
    return None


def _point(S: Array, theta: Array, factor: Array) -> Point | None:
    """Return a point with its inverse, from its Cholesky factor; None where that is too near to singular."""
    from scipy.linalg import lapack

    lower, failed = lapack.dpotri(factor, lower=True)  # twice the work of the factor: for points that are kept alone
    return None if failed else Point(theta, lower + np.tril(lower, -1).T, _smooth(S, theta, factor))


def _smooth(S: Array, theta: Array, factor: Array) -> float:
    """Return −log det Θ + tr(SΘ)."""
    return -2.0 * float(np.log(np.diag(factor)).sum()) + float(np.vdot(S, theta))


def _off_diagonal(matrix: Any) -> float:
    return float(abs(matrix).sum() - abs(np.diag(matrix)).sum())


def _dual(S: Array, alpha: float, inverse: Array) -> float:
    """Return log det W + d at the matrix W near Θ⁻¹ that the dual allows; −∞ where that is not positive definite."""
    from scipy.linalg import lapack

    allowed = S + np.clip(inverse - S, -alpha, alpha)
    np.fill_diagonal(allowed, np.diag(S))
    factor, failed = lapack.dpotrf(allowed, lower=True, clean=True)
    return -np.inf if failed else 2.0 * float(np.log(np.diag(factor)).sum()) + len(S)


def plot_graph(
    graph: FeatureGraph,
    coefficients: Any = None,
    names: Sequence[str] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """Draw a graph of features on a circle, with linked features near each other.

    Lines are blue between positively linked features and red between negatively linked ones. Dots are green for
    positive coefficients, purple for negative ones and white for zero. With more than 80 features, names are omitted.

    Parameters
    ----------
    graph
        The graph.
    coefficients
        A number for each feature: the area of its dot, and its sign the colour.
    names
        The features' names; numbers by default.
    path
        A file for the picture, whose ending sets the format; None saves nothing.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Examples
    --------
    >>> figure = plot_graph(as_graph([(0, 1), (1, 2)], 3), coefficients=[1.0, -0.5, 0.0])
    >>> len(figure.axes[0].lines)
    2
    """
    if not isinstance(graph, FeatureGraph):
        raise TypeError(f"graph must be a FeatureGraph, got {_checks.kind(graph)}; as_graph makes one")
    count = graph.n_features
    values = None
    if coefficients is not None:
        values = _checks.float_array("coefficients", coefficients, shape=(count,), dtype=np.float64)
    if names is not None and len(names) != count:
        raise ValueError(f"names must have one entry for each of the {count} features, got {len(names)}")
    texts = [str(i) for i in range(count)] if names is None else [str(name) for name in names]
    angle = np.empty(count)
    angle[_order(graph)] = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    axes = new_axes(7.0, 7.0)
    _draw_edges(axes, graph, places)
    _draw_features(axes, places, values)
    if count <= NAMED:
        _write_names(axes, angle, texts)
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.75, 1.75), aspect="equal")
    axes.axis("off")
    return save(axes.figure, path)


def _order(graph: FeatureGraph) -> Array:
    """An order in which linked features are near each other: reverse Cuthill and McKee."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order: Array = np.asarray(reverse_cuthill_mckee(abs(graph.weights).tocsr(), symmetric_mode=True))
    return order


def _draw_edges(axes: Any, graph: FeatureGraph, places: Array) -> None:
    """Draw lines as wide as the weights, with a colour for each sign."""
    upper, together = graph.signed_edges()
    size = abs(upper.data) / max(float(abs(upper.data).max(initial=0.0)), 1e-300)
    for i, j, width, sign in zip(upper.row, upper.col, size, together, strict=True):
        colour = "#4477aa" if sign > 0 else "#cc6677"
        axes.plot(*places[[i, j]].T, color=colour, linewidth=0.4 + 2.6 * width, alpha=0.25 + 0.6 * width, zorder=1)


def _draw_features(axes: Any, places: Array, values: Array | None) -> None:
    if values is None:
        axes.scatter(*places.T, s=40, color="black", zorder=2)
        return
    area = 30 + 370 * abs(values) / max(float(abs(values).max(initial=0.0)), 1e-300)
    zero = abs(values) <= 1e-6 * float(abs(values).max(initial=0.0))
    colours = np.where(zero, "white", np.where(values > 0, "#228833", "#aa3377"))
    axes.scatter(
        *places.T, s=np.where(zero, 30, area), c=colours.tolist(), edgecolors="black", linewidths=0.6, zorder=2
    )


def _write_names(axes: Any, angle: Array, texts: list[str]) -> None:
    for at, text in zip(angle, texts, strict=True):
        left = np.cos(at) < 0
        turn = np.degrees(at) + (180 if left else 0)
        axes.text(
            1.1 * np.cos(at), 1.1 * np.sin(at), text, rotation=turn, rotation_mode="anchor",
            ha="right" if left else "left", va="center", fontsize=8,
        )  # fmt: skip
