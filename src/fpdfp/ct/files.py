"""Volumes in files: NumPy, MATLAB, NIfTI-1, and stacks of TIFF images."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import math
import os
import re
import struct
import tokenize
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.ct.geometry import Triple, triple
from fpdfp.errors import ArgumentError, ArgumentTypeError, DataSetError

TIFF = (".tif", ".tiff")
_ACCEPTED = ".npy, .mat, .nii, .nii.gz, .tif, or a folder of .tif files"
#: The first bytes of HDF5 files, which MATLAB files are from version 7.3 on, after a header of 512 bytes.
HDF5 = b"\x89HDF\r\n\x1a\n"
#: Kinds of variables that cannot be a volume.
NOT_ARRAYS = ("cell", "struct", "object", "opaque", "function", "char", "sparse", "unknown")
#: NIfTI-1 files are a header of this many bytes, then the voxels, x fastest.
HEADER = 348
#: Where the voxels begin in the files that are written here: after the header and four bytes for "no extension".
OFFSET = 352
#: The types of voxels, by the number that stands for each in the header.
KINDS = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8"
}  # fmt: skip
#: Units of length, as multiples of 1 mm, by their number; 0 means unknown.
UNITS = {0: 1.0, 1: 1e3, 2: 1.0, 3: 1e-3}
#: Read in pieces, so that a damaged header cannot request more memory than there are bytes in the file.
PIECE = 1 << 24


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
        A file of NumPy (.npy), MATLAB (.mat), or NIfTI-1 (.nii, .nii.gz), or slices as TIFF images. Slices are one file
        with many pages, or a folder of files in the order of their names, with 2 before 10.
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
        raise FileNotFoundError(f"path: {place}: file or folder not found")
    ending = "folder" if place.is_dir() else _ending(place)
    if variable is not None and ending != ".mat":
        raise ValueError(f"variable={variable!r} is for .mat files, got {place}")
    order = _order(axes, "zyx" if ending == "folder" or ending in TIFF else "xyz")
    voxel: Triple | None = None
    if ending == ".npy":
        array = _read_npy(place)
    elif ending == ".mat":
        array = _read_matlab(place, variable)
    elif ending in (".nii", ".nii.gz"):
        array, voxel = _read_nifti(place)
    else:
        array = _read_tiff(place)
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
        _write_nifti(place, image, triple("voxel", 1.0 if voxel is None else voxel, positive=True))


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError("path", f"must be the path of a file, got {_checks.kind(path)}")
    return Path(path).expanduser()


def _ending(path: Path) -> str:
    name = path.name.lower()
    for ending in (".npy", ".mat", ".nii", ".nii.gz", *TIFF):
        if name.endswith(ending):
            return ending
    raise ArgumentError("path", f"must be {_ACCEPTED}, got {path}")


def _order(axes: Any, usual: str) -> tuple[int, int, int]:
    """The places of x, y and z among the axes of the file."""
    names = usual if axes is None else axes
    if not isinstance(names, str) or sorted(names) != ["x", "y", "z"]:
        raise ValueError(f"axes must name x, y and z in the order of the file, such as 'zyx', got {axes!r}")
    return names.index("x"), names.index("y"), names.index("z")


def _read_npy(path: Path) -> Array:
    try:
        # Mapped, not read: a damaged header cannot request more memory than the file has bytes.
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError, tokenize.TokenError) as error:
        raise DataSetError(f"path: {path} is not a .npy file of numbers, or damaged: {error}") from error


def _read_matlab(path: Path, variable: str | None) -> Array:
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


def _read_nifti(path: Path) -> tuple[Array, Triple | None]:
    """Return the voxels, scaled by the header's factors, and their sides in mm."""
    try:
        # The first bytes show whether a file is compressed; some .nii files are.
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            found = _read_voxels(path, cast(BinaryIO, stream))
            # To the end of what is compressed, where its checksum is.
            while packed and stream.read(PIECE):
                pass
            return found
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataSetError(f"path: {path} is damaged or cut off: {error}") from error


def _read_voxels(path: Path, stream: BinaryIO) -> tuple[Array, Triple | None]:
    header = _bytes(stream, HEADER)
    order = _byte_order(path, header)
    n_axes, *lengths = struct.unpack_from(order + "8h", header, 40)
    code = struct.unpack_from(order + "h", header, 70)[0]
    sides = struct.unpack_from(order + "8f", header, 76)[1:4]
    offset, slope, intercept = struct.unpack_from(order + "3f", header, 108)
    if not 1 <= n_axes <= 7 or min(lengths[:n_axes]) < 1:
        raise DataSetError(f"path: {path} has a damaged header: its axes are {lengths[: max(n_axes, 0)]}")
    shape = tuple(lengths[:n_axes])
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if code not in KINDS:
        raise DataSetError(
            f"path: {path} has voxels of NIfTI type {code}; integers and floats are accepted, types {sorted(KINDS)}"
        )
    if not HEADER <= offset < 2**31:
        raise DataSetError(f"path: {path} has a damaged header: its voxels would begin at byte {offset:g}")
    kind = np.dtype(order + KINDS[code])
    stream.seek(int(offset))
    needed = math.prod(shape) * kind.itemsize
    body = _bytes(stream, needed)
    if len(body) < needed:
        raise DataSetError(f"path: {path} is cut off: {shape} voxels take {needed} bytes, but there are {len(body)}")
    voxels: Array = np.frombuffer(body, dtype=kind).reshape(shape, order="F")
    # By the standard, a slope of 0 means no scaling.
    if slope != 0 and math.isfinite(slope) and math.isfinite(intercept) and (slope, intercept) != (1.0, 0.0):
        voxels = voxels * float(slope) + float(intercept)
    unit = UNITS.get(header[123] & 7, 1.0)
    x, y, z = (abs(side) * unit for side in sides)
    known = all(math.isfinite(side) and side > 0 for side in (x, y, z))
    return voxels, (x, y, z) if known else None


def _byte_order(path: Path, header: bytes) -> str:
    if len(header) < HEADER:
        raise DataSetError(f"path: {path} is cut off: a NIfTI header takes {HEADER} bytes, but there are {len(header)}")
    for order in "<>":
        size = struct.unpack_from(order + "i", header, 0)[0]
        if size == 540:
            raise DataSetError(f"path: {path} is a NIfTI-2 file; only NIfTI-1 is read")
        if size == HEADER:
            break
    else:
        raise DataSetError(f"path: {path} is not a NIfTI file: its header does not begin with its length, {HEADER}")
    magic = header[344:348]
    if magic == b"ni1\0":
        raise DataSetError(f"path: {path} is the header of a pair of files (.hdr and .img); only single files are read")
    if magic != b"n+1\0":
        raise DataSetError(f"path: {path} is not a NIfTI-1 file: it is marked {magic!r}")
    return order


def _bytes(stream: BinaryIO, count: int) -> bytes:
    """Read a number of bytes, or fewer at the end of the file."""
    pieces = []
    while count > 0:
        piece = stream.read(min(count, PIECE))
        if not piece:
            break
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _write_nifti(path: Path, voxels: Array, sides: Triple) -> None:
    """Write voxels and their sides in mm, compressed where the name ends in .gz."""
    if max(voxels.shape) > 2**15 - 1:
        raise ValueError(f"array is too long for NIfTI-1: at most {2**15 - 1} voxels along an axis, got {voxels.shape}")
    codes = {name: code for code, name in KINDS.items()}
    name = voxels.dtype.str[1:]
    if name not in codes:
        voxels, name = voxels.astype(np.float32), "f4"
    header = bytearray(OFFSET)
    put: Any = struct.pack_into
    put("<i", header, 0, HEADER)
    put("<8h", header, 40, 3, *voxels.shape, 1, 1, 1, 1)
    put("<2h", header, 70, codes[name], 8 * voxels.dtype.itemsize)
    put("<8f", header, 76, 1.0, *sides, 0.0, 0.0, 0.0, 0.0)
    put("<3f", header, 108, OFFSET, 1.0, 0.0)
    header[123] = 2  # mm
    # Where voxels are: their sides along x, y and z, the middle of the volume at 0.
    put("<2h", header, 252, 0, 1)
    for axis, (side, length) in enumerate(zip(sides, voxels.shape, strict=True)):
        row = [0.0, 0.0, 0.0, -0.5 * (length - 1) * side]
        row[axis] = side
        put("<4f", header, 280 + 16 * axis, *row)
    header[344:348] = b"n+1\0"
    body = voxels.astype(voxels.dtype.newbyteorder("<"), copy=False).tobytes(order="F")
    with path.open("wb") as file:
        if path.suffix.lower() == ".gz":
            # Without a time, so that the same volume makes the same file.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed:
                packed.write(header)
                packed.write(body)
        else:
            file.write(header)
            file.write(body)


def _read_tiff(path: Path) -> Array:
    """Return the images of a stack, ``(images, rows, columns)``."""
    if path.is_dir():
        names = sorted((file for file in path.iterdir() if file.suffix.lower() in TIFF), key=sort_key)
        if not names:
            raise DataSetError(f"path: the folder {path} has no .tif files")
        images = [image for name in names for image in read_pages(name)]
    else:
        images = list(read_pages(path))
        if len(images) == 1:
            raise ValueError(f"path: {path} is one image, not a volume; give the folder of all its slices")
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise DataSetError(f"path: the images of {path} differ in size: {', '.join(map(str, sorted(shapes)))}")
    return np.stack(images)


def read_pages(path: Path) -> list[Array]:
    """Return the images of a TIFF file."""
    from PIL import Image, ImageSequence

    try:
        # Pillow warns of tags that it cannot read, of which most do not matter; where they do, it fails.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with Image.open(path, formats=["TIFF"]) as file:
                pages = [(page.mode, np.array(page)) for page in ImageSequence.Iterator(file)]
    except Exception as error:  # Pillow fails in many ways on damaged files
        raise DataSetError(f"path: {path} is not a TIFF image, or damaged: {error}") from error
    for mode, image in pages:
        if image.ndim != 2 or mode == "P":
            raise ValueError(f"path: {path} has colours ({mode}); a volume needs one number per pixel")
    return [image for _, image in pages]


def sort_key(path: Path) -> list[tuple[int, int, str]]:
    """The order of names in which 2 comes before 10."""
    parts = re.split(r"(\d+)", path.name.lower())
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]
