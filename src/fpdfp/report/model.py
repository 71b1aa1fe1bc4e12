"""The coefficients of a linear model and the graph of its features, laid out."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.runs import SavedRun

#: So many features are listed, those with the largest coefficients, and so many edges drawn, the heaviest.
MOST_FEATURES = 400
MOST_EDGES = 2000
#: Coefficients this small relative to the largest count as zero, which iterates approach but do not reach.
NEGLIGIBLE = 1e-8


def model_of(run: SavedRun) -> dict[str, Any] | None:
    """Return names, coefficients and graph of a linear model; None where the folder does not have them."""
    model, x = run.model, run.x
    if not isinstance(model, dict) or x is None:
        return None
    features = model.get("features")
    if not isinstance(features, list) or not features or x.size % len(features) or x.dtype.kind != "f":
        raise ValueError(f"{run.path / 'model.json'} names other features than x has")
    # A row for each class; binary and least-squares models have one.
    rows = np.where(np.isfinite(x), x, 0.0).reshape(-1, len(features))
    rows[np.abs(rows) <= NEGLIGIBLE * np.abs(rows).max()] = 0.0
    kept = _columns(rows, model.get("intercept"))
    places = {int(feature): place for place, feature in enumerate(kept)}
    edges = _edges(model.get("edges"), places)
    classes = model.get("classes")
    names = [str(one) for one in classes] if isinstance(classes, list) else []
    return {
        "features": [str(features[i]) for i in kept],
        "values": rows[:, kept].tolist(),
        "zeros": [int(np.count_nonzero(np.delete(row, _intercept(model, len(features))) == 0)) for row in rows],
        "of": len(features) - len(_intercept(model, len(features))),
        "intercepts": rows[:, _intercept(model, len(features))].ravel().tolist(),
        "classes": names if len(names) == len(rows) else [str(i) for i in range(len(rows))] if len(rows) > 1 else [],
        # A single row separates two classes: that of negative values and that of positive ones.
        "between": names if len(rows) == 1 and len(names) == 2 else [],
        "standardized": model.get("standardized") if isinstance(model.get("standardized"), bool) else None,
        "edges": edges,
        "edges_in_all": len(_valid(model.get("edges"), len(features))),
        "order": circle_order(len(kept), edges),
    }


def circle_order(count: int, edges: list[list[float]]) -> list[int]:
    """Return an order for nodes on a circle in which neighbours are near: by reverse Cuthill-McKee, loners last.

    >>> circle_order(4, [[0, 2, 1.0], [2, 3, 1.0]])
    [3, 2, 0, 1]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ends = np.array([[i, j] for i, j, _ in edges], dtype=np.int32).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    order = reverse_cuthill_mckee((graph + graph.T).tocsr(), symmetric_mode=True).tolist()
    joined = set(ends.ravel().tolist())
    return [i for i in order if i in joined] + [i for i in range(count) if i not in joined]


def _intercept(model: dict[str, Any], count: int) -> list[int]:
    """The column of the intercept, if there is one."""
    found = model.get("intercept")
    return [found] if isinstance(found, int) and 0 <= found < count else []


def _columns(rows: Array, intercept: Any) -> Array:
    """The features to show: all but the intercept, or those with the largest coefficients."""
    size = np.abs(rows).max(axis=0)
    columns = np.array([i for i in range(rows.shape[1]) if i != intercept], dtype=np.int64)
    if len(columns) > MOST_FEATURES:
        columns = np.sort(columns[np.argsort(-size[columns], kind="stable")[:MOST_FEATURES]])
    return columns


def _valid(edges: Any, count: int) -> list[list[float]]:
    """The edges that join two features."""
    return [
        [edge[0], edge[1], float(edge[2])]
        for edge in (edges if isinstance(edges, list) else [])
        if isinstance(edge, list)
        and len(edge) == 3
        and all(isinstance(end, int) and 0 <= end < count for end in edge[:2])
        and edge[0] != edge[1]
        and isinstance(edge[2], int | float)
        and np.isfinite(edge[2])
    ]


def _edges(edges: Any, places: dict[int, int]) -> list[list[float]]:
    """The heaviest edges among the features that are shown, by their places."""
    count = max(places, default=-1) + 1
    found = [[places[int(i)], places[int(j)], w] for i, j, w in _valid(edges, count) if i in places and j in places]
    return sorted(found, key=lambda edge: -abs(edge[2]))[:MOST_EDGES]
