"""Scans in the files of scanners: Nikon, Bruker, DICOM, HDF5 data exchange and NXtomo; and RTK's geometry."""

from __future__ import annotations

import configparser
import importlib
import math
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.ct.files import TIFF, read_pages, sort_key
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.scans import air, from_rows, line_integrals
from fpdfp.errors import ArgumentError, DataSetError

#: Voxels across the volume where none are given: as many as the panel has columns, but at most this many.
VOXELS = 128
#: The smallest transmission: smaller ones are raised to it.
CLIP = 1e-3
#: The kinds of frames in an NXtomo file.
PROJECTION, FLAT, DARK = 0, 1, 2
#: Units of length as multiples of 1 mm.
LENGTHS = {"m": 1e3, "cm": 10.0, "mm": 1.0, "um": 1e-3, "µm": 1e-3, "micron": 1e-3, "microns": 1e-3, "nm": 1e-6}


class Scan(NamedTuple):
    """Line integrals and their geometry.

    Attributes
    ----------
    projections
        ``(views, nu, nv)``.
    geometry
        The scan, in mm, with a volume that all views show whole.
    """

    projections: Array
    geometry: ConeBeam


class Images(NamedTuple):
    """Contents of a scanner's files: images with rows from the top, and facts about the scan; None if missing."""

    raw: Array
    flat: Array | None = None
    dark: Array | None = None
    white: float | None = None
    degrees: Array | None = None
    source: float | None = None
    panel: float | None = None
    pixel: float | None = None


def load_scan(
    path: str | os.PathLike[str],
    *,
    source: float | None = None,
    panel: float | None = None,
    pixel: float | None = None,
    binning: int = 1,
    voxel: float | None = None,
) -> Scan:
    """Read the scan of a scanner.

    Counts are binned before the logarithm. Without images of the beam alone, the air next to the object is used
    (:func:`fpdfp.ct.air`). The sense of rotation and the offset of the axis are left to :func:`fpdfp.ct.calibrate`.

    Parameters
    ----------
    path
        ``.xtekct`` of Nikon, ``.log`` of Bruker, ``.h5``, ``.hdf5`` or ``.nxs`` in the layout of data exchange or of
        NXtomo, or ``.dcm`` of a rotational X-ray angiography, with the images where the scanner writes them.
    source, panel, pixel
        The distances from the source to the axis and to the panel and the side of a pixel, in mm; needed where the file
        does not have them.
    binning
        The side, in pixels, of blocks that are averaged.
    voxel
        The side of a voxel in mm.

    Examples
    --------
    >>> import fpdfp
    >>> fpdfp.ct.load_scan("scan.raw")
    Traceback (most recent call last):
    ...
    fpdfp.errors.ArgumentError: path must end in .xtekct, .log, .h5, .hdf5, .nxs or .dcm, got scan.raw
    """
    place = Path(path).expanduser()
    reader = _READERS.get(place.suffix.lower())
    if reader is None:
        *endings, last = _READERS
        raise ArgumentError("path", f"must end in {', '.join(endings)} or {last}, got {place}")
    if not place.is_file():
        raise FileNotFoundError(f"path: {place}: file not found")
    factor = _checks.integer("binning", binning, at_least=1)
    found = reader(place)
    lengths: dict[str, float] = {}
    for name, given, known in (
        ("source", source, found.source), ("panel", panel, found.panel), ("pixel", pixel, found.pixel),
    ):  # fmt: skip
        value = known if given is None else _checks.real(name, given, positive=True)
        if value is None or not math.isfinite(value) or value <= 0:
            raise ArgumentError(name, f"must be given in mm: {place} does not have it")
        lengths[name] = value
    if found.degrees is None:
        raise DataSetError(f"path: {place} has no angles")
    if len(found.degrees) != len(found.raw):
        raise DataSetError(f"path: {place} has {len(found.degrees)} angles but {len(found.raw)} images")

    def upright(images: Array) -> Array:
        stack = images if images.ndim == 3 else images[None]
        return binned(from_rows(stack, first="top"), factor)

    raw = upright(found.raw)
    dark = None if found.dark is None else upright(found.dark)
    if found.flat is not None:
        flat = upright(found.flat)
    elif found.white is not None:
        flat = np.full(raw.shape[1:], found.white, dtype=np.float32)
    else:
        flat = air(raw, None if dark is None else dark.mean(axis=0))
    data = line_integrals(raw, flat, dark, clip=CLIP, dead="interpolate")
    return Scan(data, fitted(found.degrees, (data.shape[1], data.shape[2]), **lengths, binning=factor, voxel=voxel))


def binned(images: Array, factor: int) -> Array:
    """Return the means of blocks of pixels; the last columns and rows may be excluded."""
    count, nu, nv = images.shape
    columns, rows = nu // factor, nv // factor
    blocks = images[:, : columns * factor, : rows * factor].reshape(count, columns, factor, rows, factor)
    means: Array = blocks.mean(axis=(2, 4), dtype=np.float32)
    return means


def fitted(
    degrees: Any, detector: tuple[int, int], *, source: float, panel: float, pixel: float, binning: int,
    voxel: float | None,
) -> ConeBeam:  # fmt: skip
    """Return a scan with a volume that fits it.

    It is the disc that the panel sees in all views, and as high as it sees at the axis; Fourier transforms of lengths
    with small factors are fast.
    """
    side = binning * pixel
    across = 0.5 * detector[0] * side
    width = 2 * source * across / math.hypot(across, panel)
    size = width / min(detector[0], VOXELS) if voxel is None else voxel
    n, layers = (fast_length(length / size) for length in (width, detector[1] * side * source / panel))
    return ConeBeam.circular(
        (n, n, layers), detector, angles=degrees, unit="degrees", source=source, panel=panel, voxel=size, pixel=side
    )


def fast_length(count: float) -> int:
    """Return a number of voxels that is at least as large and has small factors."""
    from scipy import fft

    return int(fft.next_fast_len(max(1, round(count)), real=True))


def _read_sections(path: Path) -> dict[str, str]:
    """Return the values of a file of sections; their names do not matter, nor do capitals."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, comment_prefixes=(";", "#"))
    try:
        parser.read_string(path.read_text(encoding="utf-8", errors="replace").lstrip("\ufeff"))
    except configparser.Error as error:
        raise DataSetError(f"path: {path} is not a file of sections: {str(error).splitlines()[0]}") from error
    return {key: value.strip() for section in parser.sections() for key, value in parser[section].items()}


def _number(path: Path, values: dict[str, str], *names: str) -> float:
    for name in names:
        if name.lower() in values:
            try:
                return float(values[name.lower()].replace(",", "."))
            except ValueError:
                raise DataSetError(f"path: {path}: {name} must be a number, got {values[name.lower()]!r}") from None
    raise DataSetError(f"path: {path} lacks {names[0]}")


def _images_of(path: Path, prefix: str, count: int) -> Array:
    """Return the images whose names are a prefix and a number."""
    pattern = re.compile(re.escape(prefix) + r"_?\d+(" + "|".join(map(re.escape, TIFF)) + ")$", re.IGNORECASE)
    names = sorted((file for file in path.parent.iterdir() if pattern.fullmatch(file.name)), key=sort_key)
    if len(names) < count:
        raise DataSetError(f"path: {path} announces {count} images, but there are {len(names)} named {prefix}….tif")
    pages = [page for name in names[:count] for page in read_pages(name)]
    if len({page.shape for page in pages}) > 1 or len(pages) != count:
        raise DataSetError(f"path: the images of {path} differ in size, or have several pages")
    return np.stack(pages)


def _read_nikon(path: Path) -> Images:
    """Read the parameters of Nikon's software (section XTekCT), with the angles of ``_ctdata.txt`` if it is there."""
    values = _read_sections(path)
    count = int(_number(path, values, "Projections"))
    table = path.with_name(f"{path.stem}_ctdata.txt")
    if table.is_file():
        # A line of names, one of numbers, and another of names come first.
        lines = [line.split() for line in table.read_text(encoding="utf-8", errors="replace").splitlines()[3:]]
        degrees = np.array([float(line[1]) for line in lines if len(line) >= 2][:count])
    else:
        first = _number(path, values, "InitialAngle") if "initialangle" in values else 0.0
        degrees = first + _number(path, values, "AngularStep") * np.arange(count)
    return Images(
        _images_of(path, values.get("name", path.stem), count), white=_number(path, values, "WhiteLevel"),
        degrees=degrees, source=_number(path, values, "SrcToObject"), panel=_number(path, values, "SrcToDetector"),
        pixel=_number(path, values, "DetectorPixelSizeX"),
    )  # fmt: skip


def _read_bruker(path: Path) -> Images:
    """Read the log of a Bruker (SkyScan) scanner; the pixel at the object belongs to the images, binned or not."""
    values = _read_sections(path)
    count = int(_number(path, values, "Number of Files"))
    source = _number(path, values, "Object to Source (mm)")
    panel = _number(path, values, "Camera to Source (mm)")
    at_object = _number(path, values, "Image Pixel Size (um)", "Pixel Size (um)")
    raw = _images_of(path, values.get("filename prefix", path.stem), count)
    degrees = _number(path, values, "Rotation Step (deg)") * np.arange(count)
    return Images(raw, degrees=degrees, source=source, panel=panel, pixel=1e-3 * at_object * panel / source)


def _read_dicom(path: Path) -> Images:
    """Read the frames of a rotational X-ray angiography: increments are the angles from the first one's."""
    pydicom = _package("pydicom", path)
    try:
        file = pydicom.dcmread(path)
        raw = np.asarray(file.pixel_array)
    except Exception as error:  # of many kinds
        raise DataSetError(f"path: {path} is not a DICOM file with images, or damaged: {error}") from error
    if str(file.get("PixelIntensityRelationship", "LIN")) != "LIN":
        raise DataSetError(
            f"path: {path}: pixels must be linear in the intensity (LIN), got {file.PixelIntensityRelationship}"
        )
    steps = file.get("PositionerPrimaryAngleIncrement")
    if raw.ndim != 3 or steps is None:
        raise DataSetError(f"path: {path} must have several frames, and PositionerPrimaryAngleIncrement")
    spacing = file.get("ImagerPixelSpacing")
    return Images(
        raw, degrees=float(file.get("PositionerPrimaryAngle", 0.0)) + np.array(steps, dtype=np.float64),
        source=_float(file.get("DistanceSourceToPatient")), panel=_float(file.get("DistanceSourceToDetector")),
        pixel=None if spacing is None else float(spacing[0]),
    )  # fmt: skip


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _package(name: str, path: Path) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise DataSetError(f"path: {path} needs the package {name}: pip install 'fpdfp[ct]'") from None


def _read_hdf5(path: Path) -> Images:
    h5py = _package("h5py", path)
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataSetError(f"path: {path} is not an HDF5 file, or damaged: {error}") from error
    with file:
        found: dict[str, Any] = {}
        file.visititems(lambda name, node: found.update({name: node}) if isinstance(node, h5py.Dataset) else None)
        if "exchange/data" in found:
            return _of_exchange(found)
        keys = [name for name in found if name.rsplit("/", 1)[-1] == "image_key"]
        if keys:
            return _of_nexus(path, found, keys[0])
    raise DataSetError(f"path: {path} has neither exchange/data (data exchange) nor an image_key (NXtomo)")


def _of_exchange(found: dict[str, Any]) -> Images:
    def maybe(name: str) -> Array | None:
        return np.asarray(found[name]) if name in found else None

    detector = "measurement/instrument/detector/"
    pixel = _length(found.get(f"{detector}pixel_size_x", found.get(f"{detector}pixel_size")), "um")
    return Images(
        np.asarray(found["exchange/data"]), maybe("exchange/data_white"), maybe("exchange/data_dark"),
        degrees=maybe("exchange/theta"), pixel=pixel,
    )  # fmt: skip


def _of_nexus(path: Path, found: dict[str, Any], key: str) -> Images:
    folder = key.rsplit("/", 1)[0]
    angles = [name for name in found if name.rsplit("/", 1)[-1] == "rotation_angle"]
    if f"{folder}/data" not in found or not angles:
        raise DataSetError(f"path: {path} must have {folder}/data and a rotation_angle")
    frames, kinds = found[f"{folder}/data"], np.asarray(found[key])
    degrees = np.asarray(found[min(angles, key=len)], dtype=np.float64)
    if len(kinds) != len(frames) or len(degrees) != len(frames):
        raise DataSetError(f"path: {path}: image_key and rotation_angle must have an entry for each of {len(frames)}")

    def of_kind(kind: int) -> Array | None:
        return np.asarray(frames)[kinds == kind] if (kinds == kind).any() else None

    raw = of_kind(PROJECTION)
    if raw is None:
        raise DataSetError(f"path: {path} has no projections: no image_key is 0")
    upstream = _length(found.get(f"{folder.rsplit('/', 1)[0]}/source/distance"), "m")
    downstream = _length(found.get(f"{folder}/distance"), "m")
    both = upstream is not None and downstream is not None
    return Images(
        raw, of_kind(FLAT), of_kind(DARK), degrees=degrees[kinds == PROJECTION], source=upstream,
        panel=upstream + downstream if both else None,  # type: ignore[operator]
        pixel=_length(found.get(f"{folder}/x_pixel_size"), "m"),
    )  # fmt: skip


def _length(dataset: Any, unit: str) -> float | None:
    """Return a length in mm; distances upstream are negative in NeXus."""
    if dataset is None:
        return None
    given = dataset.attrs.get("units", unit)
    name = given.decode() if isinstance(given, bytes) else str(given)
    if name not in LENGTHS:
        raise DataSetError(f"path: {dataset.name} has the unit {name!r}; accepted are {', '.join(LENGTHS)}")
    return abs(float(np.ravel(dataset[()])[0])) * LENGTHS[name]


_READERS: dict[str, Callable[[Path], Images]] = {
    ".xtekct": _read_nikon, ".log": _read_bruker, ".h5": _read_hdf5, ".hdf5": _read_hdf5, ".nxs": _read_hdf5,
    ".dcm": _read_dicom,
}  # fmt: skip


def find_scan(folder: Path) -> Path | None:
    """Return the only file of a folder that :func:`load_scan` reads; None if it has another number of them."""
    names = [file for file in folder.iterdir() if file.suffix.lower() in _READERS]
    return names[0] if len(names) == 1 else None


#: RTK turns about its y: its (x, y, z) are our (y, z, x).
FROM_RTK = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])


def load_rtk_geometry(
    path: str | os.PathLike[str],
    volume: tuple[int, int, int],
    detector: tuple[int, int],
    *,
    voxel: Any = 1.0,
    pixel: Any = 1.0,
    origin: tuple[float, float] | None = None,
) -> ConeBeam:
    """Read the geometry of a scan from an XML file of RTK (``RTKThreeDCircularGeometry``).

    The matrix of each projection is used: it takes a point to a place on the panel. RTK's axis of rotation, y, becomes
    z: its (x, y, z) are our (y, z, x).

    Parameters
    ----------
    path
        The file.
    volume, detector, voxel
        As of :class:`fpdfp.ct.ConeBeam`, in our order of axes.
    pixel
        The spacing of the projections, one number or two.
    origin
        The place of the first pixel, as ITK has it; the panel is centred by default.
    """
    place = Path(path).expanduser()
    text = place.read_text(encoding="utf-8")
    if "<!ENTITY" in text:
        raise DataSetError(f"path: {place} defines entities, which are not read")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise DataSetError(f"path: {place} is not an XML file, or damaged: {error}") from error
    texts = [node.findtext("Matrix") for node in root.iter("Projection")]
    if not texts or any(text is None for text in texts):
        raise DataSetError(f"path: {place} must have projections, each with a Matrix")
    try:
        matrices = np.array([np.array(str(text).split(), dtype=np.float64).reshape(3, 4) for text in texts])
    except ValueError as error:
        raise DataSetError(f"path: {place}: a Matrix must have 3 × 4 numbers: {error}") from error
    turned = np.concatenate([matrices[:, :, :3] @ FROM_RTK, matrices[:, :, 3:]], axis=2)
    return ConeBeam.from_matrices(turned, volume, detector, voxel=voxel, pixel=pixel, origin=origin)
