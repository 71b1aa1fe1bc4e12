"""Upper bounds of the spectral norms of clients' matrices."""

from __future__ import annotations

import numpy as np

from fpdfp._typing import Array
from fpdfp.linops.norm import squared_norm_bound
from fpdfp.losses._rows import Rows

#: Where Lanczos gives a client's bound it is then at most a twentieth too large: more steps take longer than they save.
STEPS = 80


def gram_norms(rows: Rows) -> Array:
    """Return, for each client, an upper bound of ‖X_i‖², the largest eigenvalue of X_iᵀX_i.

    Clients with equally many rows, fewer than columns, go through LAPACK together; a million small clients
    then take seconds.
    """
    counts = np.diff(rows.offsets)
    columns = rows.X.shape[1]
    norms = np.empty(len(counts))
    for count in np.unique(counts):
        clients = np.flatnonzero(counts == count)
        if count < min(columns, 128):
            # No more at once than takes some ten megabytes.
            each = count * (count if rows.sparse else columns)
            for part in np.array_split(clients, max(1, len(clients) * each // (1 << 21))):
                norms[part] = _small_norms(rows, part, int(count))
        else:
            for client in clients:
                first, last = rows.offsets[client], rows.offsets[client + 1]
                norms[client] = squared_norm_bound(rows.X[first:last], STEPS)
    return norms


def _small_norms(rows: Rows, clients: Array, count: int) -> Array:
    """The largest eigenvalues of X_iX_iᵀ for clients with ``count`` rows each, padded for rounding."""
    starts, X = rows.offsets[clients], rows.X
    if rows.sparse:
        from fpdfp._kernels.grams import row_grams

        grams = np.empty((len(clients), count, count))
        row_grams(X.data, X.indices, X.indptr, starts, grams)
    else:
        block = X[(starts[:, None] + np.arange(count)).ravel()].astype(np.float64, copy=False)
        block = block.reshape(len(clients), count, X.shape[1])
        grams = block @ block.transpose(0, 2, 1)
    spectra = np.linalg.eigvalsh(grams)
    largest: Array = spectra[:, -1] * (1.0 + 16 * (count + rows.X.shape[1]) * np.finfo(np.float64).eps)
    return largest
