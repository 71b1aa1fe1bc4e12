"""Volumes in files."""

from __future__ import annotations

import os
import tokenize
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.ct import _matlab, _nifti, _tiff
from fpdfp.ct.geometry import Triple, triple
from fpdfp.errors import ArgumentError, ArgumentTypeError, DataSetError

_ACCEPTED = ".npy, .mat, .nii, .nii.gz, .tif, or a folder of .tif files"


class Volume(NamedTuple):
    """A volume that was read from a file.

    Attributes
    ----------
    data
        The image, a float32 array ``(nx, ny, nz)``.
    voxel
        The sides of a voxel in mm, if the file has them.
    source
        The file or folder.
    """

    data: Array
    voxel: Triple | None
    source: str


def load_volume(path: str | os.PathLike[str], *, variable: str | None = None, axes: str | None = None) -> Volume:
    """Read a volume.

    Parameters
    ----------
    path
        A file of NumPy (.npy), MATLAB (.mat), or NIfTI-1 (.nii, .nii.gz), or slices as TIFF images: one file with many
        pages, or a folder of files, in the order of their names with 2 before 10.
    variable
        The array of a .mat file; required if several have three axes.
    axes
        The order of the axes in the file, such as ``"zyx"``. ``"xyz"`` if not given; for TIFF images ``"zyx"``, slices
        across z whose rows are along x.

    Raises
    ------
    DataSetError
        If the file is damaged, or does not match its name.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, fpdfp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     name = pathlib.Path(folder) / "head.nii.gz"
    ...     fpdfp.ct.save_volume(name, np.ones((4, 3, 2), dtype=np.float32), voxel=(0.5, 0.5, 1.0))
    ...     volume = fpdfp.ct.load_volume(name)
    >>> volume.data.shape, volume.voxel
    ((4, 3, 2), (0.5, 0.5, 1.0))
    """
    place = _path(path)
    if variable is not None and not isinstance(variable, str):
        raise TypeError(f"variable must be the name of an array, got {_checks.kind(variable)}")
    if not place.exists():
        raise FileNotFoundError(f"path: there is no file or folder {place}")
    ending = "folder" if place.is_dir() else _ending(place)
    if variable is not None and ending != ".mat":
        raise ValueError(f"variable={variable!r} is for .mat files, got {place}")
    order = _order(axes, "zyx" if ending == "folder" or ending in _tiff.ENDINGS else "xyz")
    voxel: Triple | None = None
    if ending == ".npy":
        array = _read_npy(place)
    elif ending == ".mat":
        array = _matlab.read(place, variable)
    elif ending in (".nii", ".nii.gz"):
        array, voxel = _nifti.read(place)
    else:
        array = _tiff.read(place)
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"path: {place} must hold a volume with three axes, got shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"path: {place} must hold real numbers, got dtype {array.dtype}")
    if voxel is not None:
        voxel = (voxel[order[0]], voxel[order[1]], voxel[order[2]])
    with np.errstate(over="ignore"):  # overflow is checked below
        data = np.array(array.transpose(order), dtype=np.float32, order="C")
    return Volume(_checks.finite(f"path: the volume of {place}", data), voxel, str(place))


def save_volume(path: str | os.PathLike[str], array: Any, *, voxel: Any = None) -> None:
    """Write a volume ``(nx, ny, nz)`` to a file of NumPy (.npy) or NIfTI-1 (.nii, .nii.gz).

    Parameters
    ----------
    path
        The file; an existing one is replaced.
    array
        The image, on the CPU or on a GPU. Its dtype is kept if the format supports it.
    voxel
        The sides of a voxel in mm, one number or three. NIfTI files keep them, 1 mm if not given; .npy files cannot.
    """
    place = _path(path)
    ending = _ending(place)
    if ending not in (".npy", ".nii", ".nii.gz"):
        raise ArgumentError("path", f"must end in .npy, .nii or .nii.gz, got {place}")
    image = np.asarray(to_host(array))
    if image.ndim != 3 or 0 in image.shape:
        raise ValueError(f"array must be a volume (nx, ny, nz), got shape {image.shape}")
    if image.dtype.kind not in "fiub":
        raise TypeError(f"array must hold real numbers, got dtype {image.dtype}")
    if ending == ".npy":
        if voxel is not None:
            raise ValueError("voxel cannot be kept in a .npy file; write a .nii file")
        with place.open("wb") as file:  # given a name, NumPy would add an ending in small letters
            np.save(file, image, allow_pickle=False)
    else:
        _nifti.write(place, image, triple("voxel", 1.0 if voxel is None else voxel, positive=True))


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError("path", f"must be the path of a file, got {_checks.kind(path)}")
    return Path(path).expanduser()


def _ending(path: Path) -> str:
    name = path.name.lower()
    for ending in (".npy", ".mat", ".nii", ".nii.gz", *_tiff.ENDINGS):
        if name.endswith(ending):
            return ending
    raise ArgumentError("path", f"must be {_ACCEPTED}, got {path}")


def _order(axes: Any, usual: str) -> tuple[int, int, int]:
    """Where x, y and z are among the axes of the file."""
    names = usual if axes is None else axes
    if not isinstance(names, str) or sorted(names) != ["x", "y", "z"]:
        raise ValueError(f"axes must name x, y and z in the order of the file, such as 'zyx', got {axes!r}")
    return names.index("x"), names.index("y"), names.index("z")


def _read_npy(path: Path) -> Array:
    try:
        # Mapped, not read: a damaged header cannot ask for more memory than the file has bytes.
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError, tokenize.TokenError) as error:
        raise DataSetError(f"path: {path} is not a .npy file of numbers, or damaged: {error}") from error
