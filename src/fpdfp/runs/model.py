"""The meaning of a linear model's numbers: names of features, the intercept, the graph, the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fpdfp.datasets.graph import FeatureGraph


def linear_model(
    features: Sequence[str],
    *,
    intercept: int | None = None,
    graph: FeatureGraph | None = None,
    classes: Any = None,
    standardized: bool | None = None,
) -> dict[str, Any]:
    """Describe a linear model for a :class:`Recorder`.

    Parameters
    ----------
    features
        The names of all columns, the intercept's among them.
    intercept
        The number of the column of ones, or None.
    graph
        The graph of features, or None. It may have fewer features than there are columns.
    classes
        The names of the classes in their order; for logistic losses that of −1, then that of 1.
    standardized
        Whether coefficients are per standard deviation of their features, or per unit; None if unknown.

    Examples
    --------
    >>> import fpdfp
    >>> graph = fpdfp.datasets.as_graph([(0, 1, 0.5)], 2)
    >>> described = linear_model(["age", "weight", "one"], intercept=2, graph=graph)
    >>> described["features"], described["edges"]
    (['age', 'weight', 'one'], [[0, 1, 0.5]])
    """
    edges = []
    if graph is not None:
        import scipy.sparse

        upper = scipy.sparse.triu(graph.weights, 1).tocoo()
        edges = [[int(i), int(j), float(weight)] for i, j, weight in zip(upper.row, upper.col, upper.data, strict=True)]
    return {
        "features": [str(name) for name in features],
        "intercept": intercept,
        "edges": edges,
        "classes": None if classes is None else [str(name) for name in classes],
        "standardized": standardized,
    }
