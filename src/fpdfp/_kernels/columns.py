"""Some columns of a sparse matrix."""

from __future__ import annotations

from typing import Any

from numba import uint64

from fpdfp._kernels.jit import serial


@serial
def take_columns(
    data: Any, indices: Any, indptr: Any, place: Any, some_data: Any, some_indices: Any, some_indptr: Any
) -> Any:  # fmt: skip
    """Write some columns of a CSR matrix as one of their own, and return how many entries they have.

    ``place`` says where a column comes, −1 for one that does not; there is room for all entries.
    """
    found = uint64(0)
    some_indptr[0] = 0
    for row in range(indptr.size - 1):
        for p in range(uint64(indptr[row]), uint64(indptr[row + 1])):
            at = place[uint64(indices[p])]
            # what does not count is written over: there are no jumps that a processor would have to guess
            some_data[found], some_indices[found] = data[p], at
            found += uint64(at >= 0)
        some_indptr[row + 1] = found
    return found
