"""What clients remember, in memory, or in files where it is too much."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._array import namespace
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.errors import ArgumentError
from fpdfp.methods.base import Remembering

#: Arrays of more bytes than this are kept in a file, where there is a folder for it.
SPILLED = 1 << 26
#: The server's copies of what clients elsewhere remember are kept in a file in any case if they have more bytes.
SPILLED_COPIES = 1 << 28


def allocate(algorithm: Remembering, n_clients: int, folder: Path | None) -> Any:
    """Return what clients remember before the first round; in files in ``folder`` where arrays are large.

    Neither takes room before it is written to: what clients remember that have not taken part costs nothing.
    """
    one = algorithm.init_memory(1)
    if folder is None or all(size_of(array, n_clients) <= SPILLED for array in one):
        try:
            return algorithm.init_memory(n_clients)
        except MemoryError:
            total = sum(size_of(array, n_clients) for array in one)
            raise ArgumentError(
                "scratch",
                f"must be a folder with room for {total / 1e9:.3g} GB, what clients remember, which is more than this "
                "machine has of memory; stateless=True is for clients that remember nothing",
            ) from None
    return type(one)(*(_extend(array, n_clients, folder) for array in one))


def size_of(one: Array, n_clients: int) -> int:
    """Return the bytes of an array like that of one client for so many."""
    return int(one.nbytes) * n_clients


def empty_like(memory: Any, count: int, folder: Path | None) -> Any:
    """Return room for what ``count`` clients remember."""
    return type(memory)(*(_empty((count, *array.shape[1:]), array.dtype, folder) for array in memory))


def _extend(one: Array, n_clients: int, folder: Path) -> Array:
    """Return an array with the same for each of n clients."""
    if namespace(one) is not np or size_of(one, n_clients) <= SPILLED:
        repeated: Array = namespace(one).repeat(one, n_clients, axis=0)
        return repeated
    array = _empty((n_clients, *one.shape[1:]), one.dtype, folder)
    if one.any():  # a new file holds zeros
        array[:] = one
    return array


def _empty(shape: Shape, dtype: Any, folder: Path | None) -> Array:
    """Return an array in memory, or, if it is large and there is a folder, in a file that goes with it."""
    if folder is None or math.prod(shape) * np.dtype(dtype).itemsize <= SPILLED:
        return np.empty(shape, dtype=dtype)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix=".fpdfp-memory-", dir=folder) as file:
            # A view without the methods of memory maps, so that rows of it are plain arrays. The map keeps the file.
            return np.memmap(file, dtype=dtype, mode="w+", shape=shape).view(np.ndarray)
    except OSError as error:
        raise ArgumentError("scratch", f"must be a folder that can be written to, got {folder}: {error}") from None


def put_back(here: Array, saved: Array) -> Array:
    """Return saved rows: in the file of an array that is in one, else as they are."""
    if not is_spilled(here):
        return saved
    here[:] = saved
    return here


def is_spilled(array: Array) -> bool:
    """Whether an array is in a file."""
    return isinstance(getattr(array, "base", None), np.memmap)


def take(memory: Any, clients: IntArray) -> Any:
    """Return what some clients remember, in ascending order: without a copy where they follow each other."""
    if not memory:
        return ()
    if len(clients) and clients[-1] - clients[0] + 1 == len(clients):
        rows = slice(int(clients[0]), int(clients[-1]) + 1)
        return type(memory)(*(array[rows] for array in memory))
    return type(memory)(*(array[clients] for array in memory))
