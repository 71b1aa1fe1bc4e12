"""Volumes in files, damaged ones too, and raw scans."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from PIL import Image

from fpdfp.ct.files import load_volume, save_volume
from fpdfp.ct.scans import from_rows, line_integrals
from fpdfp.errors import AccuracyWarning, DataSetError


@pytest.fixture
def image(rng: np.random.Generator) -> Any:
    return rng.standard_normal((5, 4, 3)).astype(np.float32)


def nifti(array: Any, *, order: str = "<", **fields: Any) -> bytes:
    """A NIfTI-1 file, written by the standard's table of fields."""
    codes = {"u1": 2, "i2": 4, "i4": 8, "f4": 16, "f8": 64, "i1": 256, "u2": 512, "u4": 768, "i8": 1024, "u8": 1280}
    code = fields.get("code", codes.get(array.dtype.str[1:], 0))
    offset = fields.get("offset", 352.0)
    header = bytearray(348)
    struct.pack_into(order + "i", header, 0, fields.get("size", 348))
    dims = fields.get("dims", (array.ndim, *array.shape))
    struct.pack_into(order + f"{len(dims)}h", header, 40, *dims)
    struct.pack_into(order + "2h", header, 70, code, 8 * array.dtype.itemsize)
    struct.pack_into(order + "4f", header, 76, 1.0, *fields.get("sides", (0.5, 0.75, 2.0)))
    struct.pack_into(order + "3f", header, 108, offset, *fields.get("scale", (0.0, 0.0)))
    header[123] = fields.get("unit", 2)
    header[344:348] = fields.get("magic", b"n+1\0")
    gap = bytes(max(int(offset) - 348, 0)) if 0 <= offset < 1e6 else b""
    body: bytes = array.astype(array.dtype.newbyteorder(order)).tobytes(order="F")
    return bytes(header) + gap + body


def test_numpy_files(tmp_path: Path, image: Any) -> None:
    save_volume(tmp_path / "a.npy", image)
    volume = load_volume(str(tmp_path / "a.npy"))
    np.testing.assert_array_equal(volume.data, image)
    assert volume.voxel is None
    assert volume.source == str(tmp_path / "a.npy")
    assert volume.data.flags.c_contiguous
    assert volume.data.flags.writeable
    assert type(volume.data) is np.ndarray
    turned = load_volume(tmp_path / "a.npy", axes="zxy").data
    np.testing.assert_array_equal(turned, image.transpose(1, 2, 0))
    np.save(tmp_path / "ints.NPY", np.arange(24, dtype=np.int16).reshape(2, 3, 4))
    (tmp_path / "ints.NPY.npy").rename(tmp_path / "ints.NPY")
    assert load_volume(tmp_path / "ints.NPY").data.dtype == np.float32


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
def test_nifti_files_of_any_type_and_byte_order(tmp_path: Path, kind: str, order: str) -> None:
    array = (np.arange(24).reshape(2, 3, 4) * 3).astype(kind)
    (tmp_path / "a.nii").write_bytes(nifti(array, order=order))
    volume = load_volume(tmp_path / "a.nii")
    np.testing.assert_array_equal(volume.data, array)
    assert volume.voxel == (0.5, 0.75, 2.0)


def test_nifti_fields_are_obeyed(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)

    def read(**fields: Any) -> Any:
        (tmp_path / "a.nii").write_bytes(nifti(array, **fields))
        return load_volume(tmp_path / "a.nii")

    np.testing.assert_array_equal(read(scale=(0.5, -3.0)).data, array * 0.5 - 3.0)
    np.testing.assert_array_equal(read(scale=(np.nan, np.nan)).data, array)
    np.testing.assert_array_equal(read(offset=400.0).data, array)
    np.testing.assert_array_equal(read(dims=(5, 2, 3, 4, 1, 1)).data, array)
    assert read(unit=1).voxel == (500.0, 750.0, 2000.0)
    assert read(unit=3 | 8).voxel == pytest.approx((0.0005, 0.00075, 0.002))
    assert read(sides=(-0.5, 0.75, 2.0)).voxel == (0.5, 0.75, 2.0)
    assert read(sides=(0.0, 0.75, 2.0)).voxel is None
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(nifti(array)))
    volume = load_volume(tmp_path / "a.nii.gz", axes="zyx")
    np.testing.assert_array_equal(volume.data, array.transpose(2, 1, 0))
    assert volume.voxel == (2.0, 0.75, 0.5)
    assert volume.data.flags.writeable


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8, np.int16, bool])
def test_written_nifti_files_are_read_back(tmp_path: Path, image: Any, name: str, kind: Any) -> None:
    array = (10 * np.abs(image)).astype(kind)
    save_volume(tmp_path / name, array, voxel=(0.5, 0.25, 2))
    volume = load_volume(tmp_path / name)
    np.testing.assert_array_equal(volume.data, array.astype(np.float32))
    assert volume.voxel == (0.5, 0.25, 2.0)
    first = (tmp_path / name).read_bytes()
    save_volume(tmp_path / name, np.asfortranarray(array), voxel=(0.5, 0.25, 2))
    assert (tmp_path / name).read_bytes() == first


def test_other_readers_would_find_the_voxels(tmp_path: Path, image: Any) -> None:
    save_volume(tmp_path / "a.nii", image)
    written = (tmp_path / "a.nii").read_bytes()
    assert len(written) == 352 + image.nbytes
    assert struct.unpack_from("<8h", written, 40) == (3, 5, 4, 3, 1, 1, 1, 1)
    assert struct.unpack_from("<hh", written, 70) == (16, 32)
    np.testing.assert_array_equal(np.frombuffer(written, "<f4", offset=352).reshape(3, 4, 5), image.T)
    # The affine map puts the middle voxel at 0.
    affine = np.array(struct.unpack_from("<12f", written, 280)).reshape(3, 4)
    np.testing.assert_allclose(affine @ [2, 1.5, 1, 1], 0.0)


def test_matlab_files(tmp_path: Path, image: Any) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"img": image, "note": "text", "table": np.eye(3)})
    np.testing.assert_array_equal(load_volume(path).data, image)
    scipy.io.savemat(path, {"img": image, "mask": image > 0}, do_compression=True)
    np.testing.assert_array_equal(load_volume(path, variable="mask").data, (image > 0).astype(np.float32))
    with pytest.raises(
        ValueError, match=r"variable must name .* several arrays .*'img' \(5, 4, 3\), 'mask' \(5, 4, 3\)"
    ):
        load_volume(path)
    with pytest.raises(ValueError, match=r"variable must name an array of .*got 'head'; its arrays: 'img'"):
        load_volume(path, variable="head")
    scipy.io.savemat(path, {"table": np.eye(3), "words": np.array(["a", "b"], dtype=object)})
    with pytest.raises(ValueError, match=r"no array with three axes; its arrays: 'table' \(3, 3\)$"):
        load_volume(path)
    with pytest.raises(ValueError, match=r"must hold a volume with three axes, got shape \(3, 3\)"):
        load_volume(path, variable="table")
    scipy.io.savemat(path, {"img": image * 1j})
    with pytest.raises(ValueError, match="must hold real numbers, got dtype complex"):
        load_volume(path)


def test_matlab_files_of_version_7_3(tmp_path: Path, image: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["img"] = image.T
        file.create_group("#refs#")
    np.testing.assert_array_equal(load_volume(path).data, image)
    with pytest.raises(ValueError, match="variable must name"):
        load_volume(path, variable="other")
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(DataSetError, match="not a MATLAB file, or damaged"):
        load_volume(path)


def test_without_h5py_version_7_3_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "a.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(DataSetError, match=r"version 7\.3 .*pip install h5py.*'-v7'"):
        load_volume(tmp_path / "a.mat")


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32, np.float32])
def test_tiff_stacks(tmp_path: Path, kind: Any) -> None:
    slices = (np.arange(12 * 4 * 5).reshape(12, 4, 5) % 251).astype(kind)
    for number, pixels in enumerate(slices):
        Image.fromarray(pixels).save(tmp_path / f"slice_{number + 1}.tif")  # 10 comes after 9, not after 1
    (tmp_path / "notes.txt").write_text("not an image")
    volume = load_volume(tmp_path)
    np.testing.assert_array_equal(volume.data, slices.transpose(2, 1, 0))
    pages = [Image.fromarray(pixels) for pixels in slices]
    pages[0].save(tmp_path / "all.tiff", save_all=True, append_images=pages[1:])
    np.testing.assert_array_equal(load_volume(tmp_path / "all.tiff").data, volume.data)
    np.testing.assert_array_equal(load_volume(tmp_path / "all.tiff", axes="zxy").data, slices.transpose(1, 2, 0))


def test_tiff_errors(tmp_path: Path) -> None:
    with pytest.raises(DataSetError, match=r"has no \.tif files"):
        load_volume(tmp_path)
    Image.fromarray(np.zeros((4, 5), np.uint8)).save(tmp_path / "1.tif")
    with pytest.raises(ValueError, match="is one image, not a volume; give the folder"):
        load_volume(tmp_path / "1.tif")
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(tmp_path / "2.tif")
    with pytest.raises(DataSetError, match=r"differ in size: \(4, 5\), \(4, 6\)"):
        load_volume(tmp_path)
    Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(tmp_path / "2.tif")
    with pytest.raises(ValueError, match=r"has colours \(RGB\)"):
        load_volume(tmp_path)
    good = (tmp_path / "1.tif").read_bytes()
    for damaged in (b"", b"nonsense", good[: len(good) // 2]):
        (tmp_path / "2.tif").write_bytes(damaged)
        with pytest.raises(DataSetError, match="not a TIFF image, or damaged"):
            load_volume(tmp_path)


def test_damaged_files_are_refused(tmp_path: Path, image: Any) -> None:
    np.save(tmp_path / "a.npy", image)
    scipy.io.savemat(tmp_path / "a.mat", {"img": image}, do_compression=True)
    save_volume(tmp_path / "a.nii", image)
    save_volume(tmp_path / "a.nii.gz", image)
    for name in ("a.npy", "a.mat", "a.nii", "a.nii.gz"):
        good = (tmp_path / name).read_bytes()
        for damaged in (b"", b"nonsense" * 60, good[:100], good[:-20]):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(DataSetError, match=r"damaged|cut off|is not a|type"):
                load_volume(tmp_path / name)

    packed = bytearray(gzip.compress(nifti(image), compresslevel=0))
    packed[-100] ^= 1  # only the checksum at the end can tell
    (tmp_path / "a.nii.gz").write_bytes(packed)
    with pytest.raises(DataSetError, match="damaged or cut off: CRC check failed"):
        load_volume(tmp_path / "a.nii.gz")
    # A header of a .npy file is Python text, which may be damaged in ways of its own.
    np.save(tmp_path / "a.npy", image)
    written = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(written.replace(b"}", b"("))
    with pytest.raises(DataSetError, match="damaged"):
        load_volume(tmp_path / "a.npy")


def test_damaged_nifti_headers_are_refused(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for fields, message in (
        ({"size": 540}, "is a NIfTI-2 file"),
        ({"size": 7}, "is not a NIfTI file"),
        ({"magic": b"ni1\0"}, "a pair of files"),
        ({"magic": b"abcd"}, "is not a NIfTI-1 file"),
        ({"code": 32}, "voxels of NIfTI type 32"),
        ({"dims": (9, 2, 3, 4)}, "damaged header: its axes"),
        ({"dims": (3, 2, -3, 4)}, "damaged header: its axes"),
        ({"dims": (3, 32000, 32000, 32000)}, "is cut off: .* take 65536000000000 bytes, but there are 48"),
        ({"offset": 10.0}, "would begin at byte 10"),
        ({"offset": np.nan}, "would begin at byte nan"),
    ):
        for name, packed in (("a.nii", False), ("a.nii.gz", True)):
            written = nifti(array, **fields)
            (tmp_path / name).write_bytes(gzip.compress(written) if packed else written)
            with pytest.raises(DataSetError, match=message):
                load_volume(tmp_path / name)


def test_what_is_no_volume_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"

    def refused(array: Any, message: str) -> None:
        np.save(path, array)
        with pytest.raises(ValueError, match=message):
            load_volume(path)

    refused(np.zeros((3, 4)), r"a\.npy must hold a volume with three axes, got shape \(3, 4\)")
    refused(np.full((2, 2, 2), np.nan), "must be finite, but 8 of its 8 entries")
    refused(np.full((2, 2, 2), 1e300), "must be finite")
    refused(np.zeros((2, 2, 2), complex), "must hold real numbers, got dtype complex128")
    refused(np.full((2, 2, 2), "a"), "must hold real numbers, got dtype <U1")
    np.save(path, np.full((2, 2, 2), None), allow_pickle=True)
    with pytest.raises(DataSetError, match=r"not a \.npy file of numbers"):
        load_volume(path)


def test_wrong_arguments_of_files(tmp_path: Path, image: Any) -> None:
    np.save(tmp_path / "a.npy", image)
    with pytest.raises(FileNotFoundError, match=r"path: .*b\.npy: file or folder not found"):
        load_volume(tmp_path / "b.npy")
    (tmp_path / "a.dcm").write_bytes(b"")
    with pytest.raises(ValueError, match=r"path must be \.npy, \.mat, \.nii, .* got .*a\.dcm"):
        load_volume(tmp_path / "a.dcm")
    with pytest.raises(TypeError, match="path must be the path of a file, got int"):
        load_volume(3)
    with pytest.raises(ValueError, match=r"variable='img' is for \.mat files"):
        load_volume(tmp_path / "a.npy", variable="img")
    with pytest.raises(TypeError, match="variable must be the name of an array"):
        load_volume(tmp_path / "a.npy", variable=3)
    for axes in ("xy", "xxz", "abc", 3):
        with pytest.raises(ValueError, match="axes must name x, y and z"):
            load_volume(tmp_path / "a.npy", axes=axes)
    for name, array, voxel, message in (
        ("a.tif", image, None, r"path must end in \.npy, \.nii or \.nii\.gz"),
        ("a.npy", image, 1.0, r"voxel cannot be kept in a \.npy file"),
        ("a.nii", image, -1.0, "voxel must be a finite number greater than 0"),
        ("a.nii", image, (1.0, 2.0), "voxel must be one number or three"),
        ("a.nii", image[0], None, "array must be a volume"),
        ("a.nii", np.zeros((40_000, 1, 1)), None, "array is too long for NIfTI-1"),
    ):
        with pytest.raises(ValueError, match=message):
            save_volume(tmp_path / name, array, voxel=voxel)
    with pytest.raises(TypeError, match="array must hold real numbers"):
        save_volume(tmp_path / "a.nii", image * 1j)


def test_the_head(data_dir: Path) -> None:
    volume = load_volume(data_dir / "head.mat")
    assert volume.data.shape == (256, 256, 256)
    assert (volume.data.min(), volume.data.max()) == (0.0, 1.0)
    # z is the last axis: the neck is cut off at one end, and there is air above the crown.
    assert (volume.data[:, :, 0] > 0.1).mean() > 0.2
    assert (volume.data[:, :, -40:] < 0.1).all()


# ---- raw scans ----


def recorded(rng: np.random.Generator, views: int = 3, panel: tuple[int, int] = (6, 4)) -> tuple[Any, Any, Any, Any]:
    lines = rng.uniform(0, 4, (views, *panel))
    dark = rng.uniform(90, 110, panel)
    flat = dark + rng.uniform(5e4, 6e4, panel)
    return lines, dark + (flat - dark) * np.exp(-lines), flat, dark


def test_line_integrals_undo_the_law_of_beer(rng: np.random.Generator) -> None:
    lines, raw, flat, dark = recorded(rng)
    found = line_integrals(raw, flat, dark)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, lines, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(line_integrals(raw - dark, flat - dark), lines, rtol=1e-5, atol=1e-6)
    # Several flat and dark images are averaged; recorded integers are not rounded further.
    stack = np.stack([flat - 1, flat, flat + 1])
    np.testing.assert_allclose(line_integrals(raw, stack, dark[None]), lines, rtol=1e-5, atol=1e-6)
    counts = np.round(raw).astype(np.uint16)
    expected = -np.log((counts.astype(float) - dark) / (flat - dark))
    np.testing.assert_allclose(line_integrals(counts, flat, dark), expected, rtol=1e-5, atol=1e-6)


def test_no_transmission_is_clipped_with_a_warning(rng: np.random.Generator) -> None:
    lines, raw, flat, dark = recorded(rng)
    raw[0, 1, 2] = dark[1, 2] - 5
    raw[2, 0, 0] = dark[0, 0]
    with pytest.warns(AccuracyWarning, match="2 of 72 pixels have a transmission below 0.0001"):
        found = line_integrals(raw, flat, dark, clip=1e-4)
    assert found[0, 1, 2] == found[2, 0, 0] == np.float32(-np.log(1e-4))
    np.testing.assert_allclose(found[1], lines[1], rtol=1e-5, atol=1e-6)


def test_dead_pixels(rng: np.random.Generator) -> None:
    lines, raw, flat, dark = recorded(rng)
    dead = flat.copy()
    for a, b in ((2, 1), (3, 1), (0, 3), (5, 0), (4, 0)):
        dead[a, b] = dark[a, b]
    with pytest.raises(ValueError, match=r"in 5 of 24 pixels, the first of them \(u, v\) = \(0, 3\).*interpolate"):
        line_integrals(raw, dead, dark)
    found = line_integrals(raw, dead, dark, dead="interpolate")
    np.testing.assert_allclose(found[:, 2, 1], (2 * lines[:, 1, 1] + lines[:, 4, 1]) / 3, rtol=1e-5)
    np.testing.assert_allclose(found[:, 3, 1], (lines[:, 1, 1] + 2 * lines[:, 4, 1]) / 3, rtol=1e-5)
    np.testing.assert_allclose(found[:, 0, 3], lines[:, 1, 3], rtol=1e-5)
    np.testing.assert_allclose(found[:, 4:, 0], lines[:, 3:4, 0].repeat(2, 1), rtol=1e-5)
    kept = dead > dark
    np.testing.assert_allclose(found[:, kept], lines[:, kept], rtol=1e-5, atol=1e-6)
    dead[:, 2] = 0.0
    with pytest.raises(ValueError, match="row v = 2 has no such pixel"):
        line_integrals(raw, dead, dark, dead="interpolate")


def test_wrong_arguments_of_scans(rng: np.random.Generator) -> None:
    _, raw, flat, dark = recorded(rng)
    bad = raw.copy()
    bad[1, 2, 3] = np.nan
    for arguments, options, message in (
        ((raw[0], flat, dark), {}, r"raw must have shape \(views, nu, nv\)"),
        ((raw, flat.T, dark), {}, r"flat must be images of shape \(6, 4\)"),
        ((raw, flat, dark[0]), {}, "dark must be images"),
        ((bad, flat, dark), {}, r"raw: view 1 must be finite, .* index \(2, 3\)"),
        ((raw, flat * np.inf, dark), {}, "flat must be finite"),
        ((raw, flat, dark), {"clip": 0.0}, "clip must be a finite number greater than 0"),
        ((raw, flat, dark), {"dead": "keep"}, "dead must be one of 'error', 'interpolate'"),
    ):
        with pytest.raises(ValueError, match=message):
            line_integrals(*arguments, **options)
    with pytest.raises(TypeError, match="raw must hold real numbers"):
        line_integrals(raw * 1j, flat)
    with pytest.raises(ValueError, match="images must have shape"):
        from_rows(raw[0])
    with pytest.raises(ValueError, match="first must be one of"):
        from_rows(raw, first="left")


def test_images_by_rows_become_projections() -> None:
    images = np.arange(24).reshape(2, 3, 4)
    found = from_rows(images)
    assert found.shape == (2, 4, 3)
    assert found.flags.c_contiguous
    assert found[1, 3, 0] == images[1, 0, 3]
    np.testing.assert_array_equal(from_rows(images, first="top"), found[:, :, ::-1])


def test_dead_pixels_may_hold_anything_and_masks_are_refused() -> None:
    raw, flat = np.full((2, 4, 3), 0.5), np.ones((4, 3))
    flat[1, 1] = 0.0
    raw[:, 1, 1] = np.nan
    np.testing.assert_allclose(line_integrals(raw, flat, dead="interpolate"), np.log(2), rtol=1e-6)
    with pytest.raises(TypeError, match="raw must not be a masked array"):
        line_integrals(np.ma.masked_array(np.ones((2, 4, 3)), mask=True), np.ones((4, 3)))
    with pytest.raises(TypeError, match="images must not be a masked array"):
        from_rows(np.ma.masked_array(np.ones((2, 4, 3)), mask=True))


def test_endings_in_capital_letters(tmp_path: Path) -> None:
    save_volume(tmp_path / "A.NPY", np.ones((2, 3, 4)))
    assert load_volume(tmp_path / "A.NPY").data.shape == (2, 3, 4)
