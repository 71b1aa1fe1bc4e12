"""The rules on a model's columns: those that tell few rows from all others are refused, whatever the point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.federation.policy import Policy, RefusedError
from fpdfp.losses.base import Losses
from fpdfp.losses.classes import ClassModel, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, Logistic
from fpdfp.losses.linear import LinearModel

#: A row that a combination of features tells from all others, up to this share.
MOST_LEVERAGE = 0.95
#: So many features at most: leverages are computed, and pairs of columns compared.
MANY = 2000
#: Combinations of columns that are so much shorter than the longest are only rounding.
ROUNDED = 1e-12


def effective(weights: Array) -> float:
    """Return (Σw)²/Σw² of weights of at least 0: how many rows share them; 0 where all are 0.

    >>> effective(np.array([1.0, 1.0, 1.0, 0.0])), effective(np.zeros(3))
    (3.0, 0.0)
    """
    largest = float(weights.max(initial=0.0))
    if largest == 0.0:
        return 0.0
    scaled = weights / largest  # squares of small numbers would be zero
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def uncommon(X: Any) -> Any:
    """Return in which rows each column is not at its most common value: a sparse matrix of zeros and ones."""
    from scipy.sparse import csc_array

    columns = csc_array(X)
    count, features = columns.shape
    places, ends = [], [0]
    for j in range(features):
        rows = columns.indices[columns.indptr[j] : columns.indptr[j + 1]]
        values = columns.data[columns.indptr[j] : columns.indptr[j + 1]]
        rows, values = rows[values != 0], values[values != 0]
        found, counts = np.unique(values, return_counts=True)
        if len(found) and counts.max() > count - len(rows):
            common = found[counts.argmax()]
            rows = np.concatenate([rows[values != common], np.setdiff1d(np.arange(count), rows, assume_unique=True)])
        places.append(np.sort(rows))
        ends.append(ends[-1] + len(rows))
    indices = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
    return csc_array((np.ones(len(indices)), indices, np.array(ends)), shape=(count, features))


def check_design(losses: Losses, policy: Policy) -> None:
    """Refuse a model that tells single rows whatever the point: by its rows, coefficients and columns."""
    rows = int(losses.sizes.min())
    _check_size(losses, rows, policy)
    if not isinstance(losses, LinearModel):
        return
    for client in range(losses.n_clients):
        _check_part(losses, client, np.ones(int(losses.sizes[client]), dtype=bool), policy)


def check_folds(losses: LinearModel, labels: IntArray, policy: Policy) -> None:
    """Refuse folds of rows, of one of which a model would be refused: sums over each can be told from those of all."""
    ends = np.concatenate([[0], np.cumsum(losses.sizes)])
    for client in range(losses.n_clients):
        own = labels[ends[client] : ends[client + 1]]
        for fold in np.unique(own):
            try:
                _check_size(losses, int((own == fold).sum()), policy)
                _check_part(losses, client, own == fold, policy)
            except RefusedError as error:
                raise RefusedError(f"{error.sentence}, and so for each fold", error.detail) from None


def _check_size(losses: Losses, rows: int, policy: Policy) -> None:
    """Refuse a model of too few rows for its coefficients."""
    data, moments = policy.data, policy.moments
    if rows < data.least_rows:
        raise RefusedError(f"this site takes part with at least {data.least_rows} rows only", f"there are {rows}")
    parameters = int(np.prod(losses.shape))
    if isinstance(losses, Softmax):
        parameters -= losses.n_features  # one class is determined by the others
    if parameters > data.most_parameters * rows:
        raise RefusedError(
            f"this site answers for at most {data.most_parameters:g} coefficients for each of its rows",
            f"{parameters} coefficients, {rows} rows",
        )
    if (
        isinstance(losses, LinearModel)
        and losses.form == "quadratic"
        and not (moments.allowed and rows >= moments.least_rows_per_feature * losses.n_features)
    ):
        raise RefusedError("this site does not answer for least squares, which tell second moments of its rows")


def _check_part(losses: LinearModel, client: int, some: Array, policy: Policy) -> None:
    """Refuse some rows of a client by their columns, classes and strata; the order is that in which rows are kept."""
    least = policy.data.least_rows_per_level
    names = losses.column_names if isinstance(losses, ClassModel) else losses.feature_names
    check_columns(losses._rows_of(client)[some], least, names)
    if isinstance(losses, Logistic | Softmax | ClassModel | Cox) or (
        isinstance(losses, GLM) and losses.distribution.name == "binomial"
    ):
        counts = np.unique(losses.targets_of(client)[some], return_counts=True)[1]
        if int(counts.min()) < least:
            raise RefusedError(
                f"this site answers for classes of at least {least} rows only", f"one has {counts.min()}"
            )
    if isinstance(losses, Cox):
        sizes = losses.strata_sizes(client)
        counts = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[some], minlength=len(sizes))
        if 0 < counts[counts > 0].min() < least:
            raise RefusedError(f"this site answers for strata of at least {least} rows only")
        # Robust errors with and without clusters differ by products of rows that belong together.
        several = int((losses.cluster_sizes(client) > 1).sum())
        if 0 < several < least:
            raise RefusedError(f"this site answers for clusters only if at least {least} of them have several rows")


def check_columns(X: Any, least: int, names: Sequence[str] | None = None) -> None:
    """Refuse columns, pairs of columns and combinations of columns that tell fewer rows than so many from the rest."""
    if least <= 1:
        return
    sentence = f"this site answers for columns only that tell no fewer than {least} of its rows from the others"
    members = uncommon(X)
    count, features = members.shape
    shown = [str(j) for j in range(features)] if names is None else list(names)
    sizes = np.asarray(members.sum(axis=0)).ravel()
    few = np.flatnonzero((sizes > 0) & (sizes < least))
    if few.size:
        raise RefusedError(sentence, f"column {shown[few[0]]}: {sizes[few[0]]:g} rows are not at its most common value")
    if features > MANY:
        raise RefusedError(
            f"this site answers for at most {MANY:,} columns, so that it can compare them", f"{features}"
        )
    few = np.flatnonzero(shares(X) < least - 1e-6)
    if few.size:
        raise RefusedError(sentence, f"column {shown[few[0]]}: fewer rows have nearly all of its deviations")
    # Measurements are left out: nearly every row has a value of its own there.
    coded = np.flatnonzero((sizes > 0) & (sizes <= count / 2))
    some = members[:, coded]
    apart = sizes[coded][:, None] + sizes[coded] - 2.0 * (some.T @ some).toarray()
    apart = np.minimum(apart, count - apart)
    close = np.argwhere((apart > 0) & (apart < least))
    if close.size:
        first, second = (shown[coded[one]] for one in close[0])
        raise RefusedError(sentence, f"columns {first} and {second} differ in fewer rows")
    if (largest := leverages(X).max()) > MOST_LEVERAGE:
        raise RefusedError(sentence, f"a combination of columns is one row's to {largest:.1%}")


def leverages(X: Any) -> Array:
    """Return how much of some combination of columns is each row's alone: 1 where one tells it from all others."""
    dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=np.float64)
    largest = np.abs(dense).max(axis=0, initial=0.0)
    if not largest.any():
        return np.zeros(len(dense))
    columns = dense[:, largest > 0] / largest[largest > 0]  # squares of small numbers would be zero
    columns /= np.sqrt(np.square(columns).mean(axis=0))
    # Not of products of columns: two that differ by a millionth in one row would be the same there.
    basis, triangle = np.linalg.qr(columns)
    vectors, values, _ = np.linalg.svd(triangle)
    kept = values > ROUNDED * values.max(initial=0.0)
    return np.asarray(np.square(basis @ vectors[:, : len(values)][:, kept]).sum(axis=1))


def shares(X: Any) -> Array:
    """Return for each column how many effective rows share its deviations from the middle; infinite for a constant.

    >>> shares(np.array([[1.0, 0.0, 5.0], [1.0, 0.0, 5.0], [0.0, 1e-9, 5.0], [0.0, 1.0, 5.0], [0.0, 0.0, 5.0]]))
    array([ 2.,  1., inf])
    """
    columns: Any = X.tocsc() if hasattr(X, "tocsc") else np.asarray(X)
    found = np.full(X.shape[1], np.inf)
    for j in range(X.shape[1]):
        column = columns[:, [j]].toarray().ravel() if hasattr(columns, "toarray") else columns[:, j]
        deviations = np.abs(column - np.median(column))
        if deviations.max(initial=0.0) > 0:
            found[j] = effective(deviations)
    return found
