"""Stacks of TIFF images: a folder of files, or one file of several pages."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import DataSetError

ENDINGS = (".tif", ".tiff")


def read(path: Path) -> Array:
    """Return the images of a stack, ``(images, rows, columns)``."""
    if path.is_dir():
        names = sorted((file for file in path.iterdir() if file.suffix.lower() in ENDINGS), key=_natural)
        if not names:
            raise DataSetError(f"path: the folder {path} has no .tif files")
        images = [image for name in names for image in _pages(name)]
    else:
        images = list(_pages(path))
        if len(images) == 1:
            raise ValueError(f"path: {path} is one image, not a volume; give the folder of all its slices")
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise DataSetError(f"path: the images of {path} differ in size: {', '.join(map(str, sorted(shapes)))}")
    return np.stack(images)


def _pages(path: Path) -> list[Array]:
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


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """The order of names in which 2 comes before 10."""
    parts = re.split(r"(\d+)", path.name.lower())
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]
