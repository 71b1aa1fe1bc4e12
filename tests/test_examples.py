"""The gallery: every example runs, draws its picture and prints what its page says."""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path

import pytest
from tools import gallery

from tests.pages import ROOT, blocks, compare

#: What other pages show too is run with those (tests/test_readme.py).
ELSEWHERE = ("tomography",)
RUN_HERE = [example for example in gallery.EXAMPLES if example.name not in ELSEWHERE]


def name(example: gallery.Example) -> str:
    return example.name


def page(example: gallery.Example) -> Path:
    return gallery.GALLERY / f"{example.name}.md"


@pytest.mark.parametrize("example", RUN_HERE, ids=name)
def test_an_example_draws_a_picture_and_prints_what_its_page_says(
    example: gallery.Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = len(example.pictures) > 1
    output = tmp_path if several else tmp_path / "picture.png"
    monkeypatch.setattr("sys.argv", [str(example.script), "--output", str(output)])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(example.script), run_name="__main__")
    (shown,) = [block.text for block in blocks(page(example)) if block.language == "text"]
    compare(shown, printed.getvalue())
    pictures = {Path(name).name for name in example.pictures} if several else {"picture.png"}
    assert {file.name for file in tmp_path.iterdir()} == pictures
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in pictures)


@pytest.mark.parametrize("example", gallery.EXAMPLES, ids=name)
def test_a_page_of_the_gallery_is_that_of_its_example(example: gallery.Example) -> None:
    (output,) = [block.text for block in blocks(page(example)) if block.language == "text"]
    assert page(example).read_text() == gallery.page(example, output), "make gallery writes it anew"


def test_the_gallery_has_all_examples() -> None:
    assert {example.script for example in gallery.EXAMPLES} == set((ROOT / "examples").glob("[!_]*.py"))
    assert (gallery.GALLERY / "index.md").read_text() == gallery.index(), "make gallery writes it anew"
    pages = {page(example) for example in gallery.EXAMPLES}
    assert pages == set(gallery.GALLERY.glob("*.md")) - {gallery.GALLERY / "index.md"}


def test_pictures_of_the_gallery_are_small() -> None:
    pictures = {(gallery.GALLERY / one).resolve() for example in gallery.EXAMPLES for one in example.pictures}
    assert set(gallery.GALLERY.glob("*.png")) <= pictures
    for picture in gallery.GALLERY.glob("*.png"):
        assert picture.stat().st_size < 100_000, picture
