"""NIfTI-1 files: one header of 348 bytes, then the voxels, x fastest."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from fpdfp._typing import Array
from fpdfp.ct.geometry import Triple
from fpdfp.errors import DataSetError

HEADER = 348
#: Where the voxels begin in the files that are written here: after the header and four bytes for "no extension".
OFFSET = 352
#: The types of voxels, by the number that stands for each in the header.
KINDS = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8"
}  # fmt: skip
#: Units of length, as multiples of 1 mm, by their number; 0 means unknown.
UNITS = {0: 1.0, 1: 1e3, 2: 1.0, 3: 1e-3}
#: Read in pieces, so that a damaged header cannot ask for more memory than there are bytes in the file.
PIECE = 1 << 24


def read(path: Path) -> tuple[Array, Triple | None]:
    """Return the voxels, scaled by the header's factors, and their sides in mm."""
    try:
        # The first bytes show whether a file is compressed; some .nii files are.
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            found = _read(path, cast(BinaryIO, stream))
            # To the end of what is compressed, where its checksum is.
            while packed and stream.read(PIECE):
                pass
            return found
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataSetError(f"path: {path} is damaged or cut off: {error}") from error


def _read(path: Path, stream: BinaryIO) -> tuple[Array, Triple | None]:
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


def write(path: Path, voxels: Array, sides: Triple) -> None:
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
