"""Losses at many points at once, at each with some of the rows left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray

if TYPE_CHECKING:
    from fpdfp.losses._linear import LinearModel


class ManySums(NamedTuple):
    """What clients have at many points, with a leading client axis; without ridge, and divided by the number of rows.

    Attributes
    ----------
    values
        The sum of the losses of the rows that are not left out at a point.
    helds
        What leaving the others out takes off the loss of all rows: the sum of their losses, or for Cox's partial
        likelihood the difference.
    slopes
        The gradients of ``values``.
    """

    values: Array
    helds: Array
    slopes: Array


def evaluate_rows(losses: LinearModel, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManySums:
    """Return the sums of a model whose loss is a sum over rows of a function of one linear form."""
    from fpdfp._kernels import many

    functions = losses._functions()
    assert functions is not None
    rows, shape = losses._rows, (len(clients), len(points))
    out = ManySums(np.zeros(shape), np.zeros(shape), np.empty((*shape, losses.n_features)))
    name, matrix = ("csr", (rows.X.data, rows.X.indices, rows.X.indptr)) if rows.sparse else ("dense", (rows.X,))
    columns = np.ascontiguousarray(points.T, dtype=np.float64)
    getattr(many, f"many_{name}")(*functions, *matrix, rows.y, rows.offsets, labels, clients, columns, held, *out)
    return out


def evaluate_classes(
    losses: LinearModel, points: Array, held: IntArray, labels: IntArray, clients: IntArray, shifts: Array | None
) -> ManySums:
    """Return the sums of softmax losses; a point has a row for each class, ``shifts`` a column."""
    from fpdfp._kernels import many_classes

    rows, (count, classes, d) = losses._rows, points.shape
    shape = (len(clients), count)
    out = ManySums(np.zeros(shape), np.zeros(shape), np.empty((len(clients), count * classes, d)))
    name, matrix = ("csr", (rows.X.data, rows.X.indices, rows.X.indptr)) if rows.sparse else ("dense", (rows.X,))
    columns = np.ascontiguousarray(points.reshape(-1, d).T, dtype=np.float64)
    kernel = getattr(many_classes, f"many_{name}")
    kernel(rows.weights, shifts, *matrix, rows.y, rows.offsets, labels, clients, columns, held, *out)
    return out._replace(slopes=out.slopes.reshape(*shape, classes, d))


def evaluate_one_by_one(
    losses: LinearModel, points: Array, held: IntArray, labels: IntArray, clients: IntArray
) -> ManySums:
    """Do the same for losses of any form that can leave rows out."""
    shape = (len(clients), len(points))
    out = ManySums(np.empty(shape), np.zeros(shape), np.empty((*shape, *losses.shape)))
    ridge = losses.ridge_of_x
    for fold in np.unique(held):
        kept = losses if fold < 0 else losses.keep_rows(labels != fold)
        for p in np.flatnonzero(held == fold):
            x = points[p].astype(losses.dtype)
            found = kept.values(x, clients)
            out.helds[:, p] = losses.saturations(clients)
            if fold >= 0:
                out.helds[:, p] += losses.values(x, clients) - found - kept.saturations(clients)
            out.values[:, p] = found - 0.5 * float(ridge @ x**2)
            out.slopes[:, p] = kept.gradients(x, clients) - ridge * x
    return out
