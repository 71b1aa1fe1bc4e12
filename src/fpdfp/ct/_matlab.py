"""Arrays of MATLAB files."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import DataSetError

#: The first bytes of HDF5 files, which MATLAB files are from version 7.3 on, after a header of 512 bytes.
HDF5 = b"\x89HDF\r\n\x1a\n"
#: Kinds of variables that cannot be a volume.
NOT_ARRAYS = ("cell", "struct", "object", "opaque", "function", "char", "sparse", "unknown")


def read(path: Path, variable: str | None) -> Array:
    """Return a variable of a file, or its only array with three axes."""
    with path.open("rb") as file:
        first = file.read(520)
    if first.startswith(HDF5) or first[512:] == HDF5:
        return _read_hdf5(path, variable)
    return _read_classic(path, variable)


def _read_classic(path: Path, variable: str | None) -> Array:
    import scipy.io

    with _telling_damage(path):
        listed = scipy.io.whosmat(path)
    chosen = _choose(path, variable, {name: shape for name, shape, kind in listed if kind not in NOT_ARRAYS})
    with _telling_damage(path):
        return np.asarray(scipy.io.loadmat(path, variable_names=[chosen])[chosen])


@contextlib.contextmanager
def _telling_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the readers fail in many ways on damaged files
        raise DataSetError(f"path: {path} is not a MATLAB file, or damaged: {error}") from error


def _read_hdf5(path: Path, variable: str | None) -> Array:
    try:
        h5py: Any = importlib.import_module("h5py")
    except ImportError:
        raise DataSetError(
            f"path: {path} is a MATLAB file of version 7.3 (HDF5), which the package h5py reads: install it "
            "(pip install h5py), or save the file in MATLAB with the option '-v7'"
        ) from None
    with _telling_damage(path):
        file = h5py.File(path, "r")
    with file:
        with _telling_damage(path):
            found = {name: value for name, value in file.items() if isinstance(value, h5py.Dataset)}
            # HDF5 has the first axis slowest, MATLAB the last one.
            shapes = {name: value.shape[::-1] for name, value in found.items() if value.dtype.kind in "fiub"}
        chosen = _choose(path, variable, shapes)
        with _telling_damage(path):
            return np.asarray(found[chosen]).T


def _choose(path: Path, variable: str | None, shapes: dict[str, tuple[int, ...]]) -> str:
    listed = ", ".join(f"{name!r} {tuple(shape)}" for name, shape in shapes.items()) or "none"
    if variable is not None:
        if variable not in shapes:
            raise ValueError(f"variable must name an array of {path}, got {variable!r}; its arrays: {listed}")
        return variable
    volumes = [name for name, shape in shapes.items() if len(shape) == 3]
    if len(volumes) != 1:
        many = "several arrays" if volumes else "no array"
        raise ValueError(
            f"variable must name the array to read: {path} has {many} with three axes; its arrays: {listed}"
        )
    return volumes[0]
