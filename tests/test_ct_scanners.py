"""Scans in the layouts of scanners: small made-up files, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fpdfp import ct
from fpdfp._typing import Array
from fpdfp.ct.command import read_scan
from fpdfp.errors import DataSetError

VIEWS, ROWS, COLUMNS = 12, 10, 16
STEP = 360.0 / VIEWS
SCAN = ct.ConeBeam.circular((10, 10, 6), (COLUMNS, ROWS), views=VIEWS, source=100.0, panel=150.0, pixel=1.0)
WHITE = 60000.0


def counts() -> tuple[Array, Array]:
    """Return images with rows from the top, and their line integrals."""
    exact = 0.05 * ct.phantoms.thorax(SCAN).project(SCAN)
    return np.round(WHITE * np.exp(-exact)).astype(np.uint16).swapaxes(1, 2)[:, ::-1], exact


def check(found: ct.Scan, exact: Array, *, rtol: float = 1e-6) -> None:
    np.testing.assert_allclose(found.projections, exact, atol=2e-3)
    for name in ("sources", "panels", "u", "v"):
        np.testing.assert_allclose(getattr(found.geometry, name), getattr(SCAN, name), rtol=rtol, atol=1e-9)


def write_tiffs(folder: Path, prefix: str, images: Array, first: int, digits: int) -> None:
    for number, image in enumerate(images, first):
        Image.fromarray(np.ascontiguousarray(image)).save(folder / f"{prefix}{number:0{digits}d}.tif")


NIKON = f"""[XTekCT]
Name=chest
VoxelsX=10
DetectorPixelsX={COLUMNS}
DetectorPixelsY={ROWS}
DetectorPixelSizeX=1.0
DetectorPixelSizeY=1.0
SrcToObject=100.0
SrcToDetector=150.0
InitialAngle=0.0
AngularStep={STEP}
Projections={VIEWS}
WhiteLevel={WHITE:g}
[Xrays]
XraykV=120
"""


def test_nikon(tmp_path: Path) -> None:
    raw, exact = counts()
    write_tiffs(tmp_path, "chest_", raw, 1, 4)
    file = tmp_path / "chest.xtekct"
    file.write_text(NIKON)
    check(ct.load_scan(file), exact)
    check(read_scan(tmp_path), exact)  # the command finds the only file of its kind
    lines = ["Projs\tDelta angle\tInit angle", f"{VIEWS}\t30\t0", "Projection\tAngle(deg)\tTime(s)"]
    lines += [f"{view + 1}:\t{30.0 * view + 5.0}\t{view}" for view in range(VIEWS)]
    (tmp_path / "chest_ctdata.txt").write_text("\n".join(lines))
    turned = ct.load_scan(file).geometry
    np.testing.assert_allclose(turned.sources[0], [100 * np.cos(np.radians(5)), 100 * np.sin(np.radians(5)), 0])
    (tmp_path / "chest_0007.tif").unlink()
    with pytest.raises(DataSetError, match="announces 12 images, but there are 11 named chest"):
        ct.load_scan(file)
    file.write_text(NIKON.replace("SrcToDetector=150.0", "SrcToDetector=far"))
    (tmp_path / "chest_0007.tif").write_bytes((tmp_path / "chest_0006.tif").read_bytes())
    with pytest.raises(DataSetError, match="SrcToDetector must be a number, got 'far'"):
        ct.load_scan(file)


BRUKER = f"""[System]
Scanner=SkyScan1172
[Acquisition]
Filename Prefix=bone_
Number of Files={VIEWS}
Number of Rows={ROWS}
Number of Columns={COLUMNS}
Object to Source (mm)=100.000
Camera to Source (mm)=150.000
Camera Pixel Size (um)=500.00
CameraBinning=2x2
Image Pixel Size (um)=666.6666666667
Rotation Step (deg)={STEP:.3f}
Use 360 Rotation=YES
"""


def test_bruker(tmp_path: Path) -> None:
    exact = np.zeros((VIEWS, COLUMNS, ROWS))
    exact[:, 5:10] = 0.5  # air on both sides, since no file has its intensity
    raw = np.round(WHITE * np.exp(-exact)).astype(np.uint16).swapaxes(1, 2)[:, ::-1]
    write_tiffs(tmp_path, "bone_", raw, 0, 8)
    (tmp_path / "bone_.log").write_text(BRUKER)
    check(ct.load_scan(tmp_path / "bone_.log"), exact)


def test_data_exchange_and_nxtomo(tmp_path: Path) -> None:
    h5py: Any = pytest.importorskip("h5py")
    raw, exact = counts()
    flat, dark = np.full((3, ROWS, COLUMNS), WHITE + 100), np.full((2, ROWS, COLUMNS), 100.0)
    degrees = STEP * np.arange(VIEWS)
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["exchange/data"], file["exchange/theta"] = raw + np.uint16(100), degrees
        file["exchange/data_white"], file["exchange/data_dark"] = flat, dark
    check(ct.load_scan(tmp_path / "scan.h5", source=100, panel=150, pixel=1), exact)
    with pytest.raises(ValueError, match="source must be given in mm"):
        ct.load_scan(tmp_path / "scan.h5")
    with h5py.File(tmp_path / "scan.nxs", "w") as file:
        part = file.create_group("entry1/tomo_entry")
        part["instrument/detector/data"] = np.concatenate([dark, flat, raw + 100.0])
        part["instrument/detector/image_key"] = np.repeat([2, 1, 0], [2, 3, VIEWS])
        part["sample/rotation_angle"] = np.concatenate([np.zeros(5), degrees])
        for name, value, unit in (("x_pixel_size", 1000.0, "um"), ("distance", 50.0, "mm")):
            part[f"instrument/detector/{name}"] = value
            part[f"instrument/detector/{name}"].attrs["units"] = unit
        part["instrument/source/distance"] = -0.1  # m, upstream
    check(ct.load_scan(tmp_path / "scan.nxs"), exact)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["values"] = raw
    with pytest.raises(DataSetError, match="has neither exchange/data"):
        ct.load_scan(tmp_path / "other.h5")
    (tmp_path / "bad.h5").write_bytes(b"nothing")
    with pytest.raises(DataSetError, match="is not an HDF5 file"):
        ct.load_scan(tmp_path / "bad.h5")


def test_dicom(tmp_path: Path) -> None:
    pydicom: Any = pytest.importorskip("pydicom")
    raw, exact = counts()
    file = pydicom.dataset.FileDataset(
        str(tmp_path / "scan.dcm"), {}, file_meta=pydicom.dataset.FileMetaDataset(), preamble=b"\0" * 128
    )
    file.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    file.file_meta.MediaStorageSOPClassUID = pydicom.uid.XRayAngiographicImageStorage
    file.file_meta.MediaStorageSOPInstanceUID = file.SOPInstanceUID = pydicom.uid.generate_uid()
    file.SOPClassUID, file.Modality = pydicom.uid.XRayAngiographicImageStorage, "XA"
    file.Rows, file.Columns, file.NumberOfFrames = ROWS, COLUMNS, VIEWS
    file.BitsAllocated, file.BitsStored, file.HighBit, file.PixelRepresentation = 16, 16, 15, 0
    file.SamplesPerPixel, file.PhotometricInterpretation = 1, "MONOCHROME2"
    file.PixelIntensityRelationship = "LIN"
    file.DistanceSourceToPatient, file.DistanceSourceToDetector = "100", "150"
    file.ImagerPixelSpacing = ["1", "1"]
    file.PositionerPrimaryAngle = "0"
    file.PositionerPrimaryAngleIncrement = [str(STEP * view) for view in range(VIEWS)]
    file.PixelData = np.ascontiguousarray(raw).tobytes()
    file.save_as(tmp_path / "scan.dcm")
    found = ct.load_scan(tmp_path / "scan.dcm", binning=2)
    assert found.projections.shape == (VIEWS, COLUMNS // 2, ROWS // 2) == found.geometry.data_shape
    np.testing.assert_allclose(found.geometry.sources, SCAN.sources, atol=1e-9)
    # The air beside the object is what is known of the intensity: the chest covers it here.
    means = exact.reshape(VIEWS, COLUMNS // 2, 2, ROWS // 2, 2).mean(axis=(2, 4))
    assert float(np.std(found.projections - means)) < 0.2
    file.PixelIntensityRelationship = "LOG"
    file.save_as(tmp_path / "scan.dcm")
    with pytest.raises(DataSetError, match="must be linear in the intensity"):
        ct.load_scan(tmp_path / "scan.dcm")


def test_matrices_are_those_of_the_scan() -> None:
    tilted = ct.ConeBeam(
        SCAN.volume, SCAN.detector, SCAN.sources + np.array([0.0, 0.0, 3.0]), SCAN.panels, SCAN.u + 0.1 * SCAN.v, SCAN.v
    )
    for scan in (SCAN, tilted):
        matrices = []
        for source, panel, u, v in zip(scan.sources, scan.panels, scan.u, scan.v, strict=True):
            # X − s = w (p − s + a u + b v)
            inverse = np.linalg.inv(np.stack([u, v, panel - source], axis=1))
            matrices.append(-3.0 * np.column_stack([inverse, -inverse @ source]))
        found = ct.ConeBeam.from_matrices(matrices, scan.volume, scan.detector)
        np.testing.assert_allclose(found.sources, scan.sources, atol=1e-9)
        x = np.random.default_rng(0).random(scan.volume)
        np.testing.assert_allclose(ct.XRayTransform(found).apply(x), ct.XRayTransform(scan).apply(x), atol=1e-9)
    with pytest.raises(ValueError, match="matrices must have a source at a finite place"):
        ct.ConeBeam.from_matrices(np.eye(3, 4)[None] * [1, 1, 0, 0], (4, 4, 4), (4, 4))
    with pytest.raises(ValueError, match="matrices must be an array of shape"):
        ct.ConeBeam.from_matrices(np.eye(4)[None], (4, 4, 4), (4, 4))


#: As ITK-RTK 2.7 writes it for AddProjection(100, 150, 0) and AddProjection(100, 150, 30, 2, 0).
RTK = """<?xml version="1.0"?>
<!DOCTYPE RTKGEOMETRY>
<RTKThreeDCircularGeometry version="3">
    <SourceToIsocenterDistance>100</SourceToIsocenterDistance>
    <SourceToDetectorDistance>150</SourceToDetectorDistance>
  <Projection>
    <GantryAngle>0</GantryAngle>
    <ProjectionOffsetX>0</ProjectionOffsetX>
    <Matrix>
                     -150                   0                   0                   0
                        0                -150                   0                   0
                        0                   0                   1                -100
    </Matrix>
  </Projection>
  <Projection>
    <GantryAngle>30</GantryAngle>
    <ProjectionOffsetX>2</ProjectionOffsetX>
    <Matrix>
        -130.903810567666                   0    73.2679491924311                 200
                        0                -150                   0                   0
                      0.5                   0   0.866025403784439                -100
    </Matrix>
  </Projection>
</RTKThreeDCircularGeometry>
"""


def test_rtk(tmp_path: Path) -> None:
    file = tmp_path / "geometry.xml"
    file.write_text(RTK)
    how: dict[str, Any] = {"voxel": (1.0, 2.0, 3.0), "pixel": (1.5, 0.5)}
    found = ct.load_rtk_geometry(file, (8, 6, 4), (12, 10), **how)
    for view, (angle, offset) in enumerate([(0.0, 0.0), (30.0, 2.0)]):
        exact = ct.ConeBeam.circular(
            (8, 6, 4), (12, 10), angles=[angle], unit="degrees", source=100.0, panel=150.0, offset=(offset, 0.0), **how
        )
        for name in ("sources", "panels", "u", "v"):
            np.testing.assert_allclose(getattr(found, name)[view], getattr(exact, name)[0], atol=1e-9)
    file.write_text(RTK.replace("Matrix", "Matrices"))
    with pytest.raises(DataSetError, match="must have projections, each with a Matrix"):
        ct.load_rtk_geometry(file, (8, 6, 4), (12, 10))
    file.write_text(RTK.replace("<!DOCTYPE RTKGEOMETRY>", '<!DOCTYPE RTKGEOMETRY [<!ENTITY a "b">]>'))
    with pytest.raises(DataSetError, match="defines entities"):
        ct.load_rtk_geometry(file, (8, 6, 4), (12, 10))
