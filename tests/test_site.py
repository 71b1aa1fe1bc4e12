"""The documentation as a site: it builds without a warning, asks no other host, and leaves nothing public out."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fpdfp
from tests import browser
from tests.pages import DOCS, ROOT

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings_handlers.python")

pytestmark = pytest.mark.slow

MODULES = (
    "losses", "penalties", "linops", "methods", "compress", "steps", "precondition", "datasets", "datasets.splits",
    "ct", "ct.phantoms", "models", "errors", "rng", "runs", "report", "loggers",
)  # fmt: skip
#: What a page of the site may load is on the site itself.
ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Strict: a warning, such as a broken link, ends the build. With --quiet, warnings would not be counted.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists(), page
    for name in ("index", "changelog", "contributing"):
        assert (site / f"{name}.html").exists()


def test_the_site_asks_no_other_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not ELSEWHERE.findall(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text(), sheet


@pytest.mark.parametrize("name", MODULES)
def test_the_reference_has_every_public_name(site: Path, name: str) -> None:
    module = importlib.import_module(f"fpdfp.{name}")
    text = (site / "reference" / f"{name.split('.')[0]}.html").read_text()
    public = getattr(module, "__all__", None) or [
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    for one in public:
        if not inspect.ismodule(getattr(module, one)):
            # A function that has the name of its file is listed there.
            assert re.search(rf'id="fpdfp\.{re.escape(name)}\.({one}\.)?{one}"', text), one


def test_the_reference_has_every_public_name_of_the_package(site: Path) -> None:
    text = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    for name in fpdfp.__all__:
        value = getattr(fpdfp, name)
        if not inspect.ismodule(value):
            assert re.search(rf'id="fpdfp\.(\w+\.)?{name}"', text), name


def test_formulas_of_docstrings_are_drawn_and_roles_resolved(site: Path) -> None:
    for page in (site / "reference").glob("*.html"):
        text = page.read_text()
        assert ".. math" not in text, page
        assert not re.search(r":(?:class|func|meth|mod|math|attr|data):", text), page
    assert "<math" in (site / "reference" / "losses.html").read_text()


def test_the_reference_gives_every_parameter_its_own_default() -> None:
    import griffe
    from tools.site.docstrings import ReStructuredText

    package = griffe.load(
        "fpdfp",
        search_paths=[ROOT / "src"],
        extensions=griffe.load_extensions(ReStructuredText()),
        docstring_parser="numpy",
    )
    wrong, checked = [], 0
    todo: list[Any] = [package]
    while todo:
        members: list[Any] = [one for one in todo.pop().members.values() if not one.is_alias]
        todo += [one for one in members if one.is_module or one.is_class]
        for one in members:
            if not (one.docstring and (one.is_class or one.is_function)):
                continue
            defaults = {parameter.name: parameter.default for parameter in one.parameters}
            sections = [section.value for section in one.docstring.parsed if section.kind.value == "parameters"]
            for parameter in [parameter for section in sections for parameter in section]:
                if parameter.name in defaults:
                    checked += 1
                    if parameter.default != defaults[parameter.name]:
                        wrong.append(f"{one.path}: {parameter.name}")
    assert checked > 900
    assert not wrong


@pytest.mark.skipif(browser.missing() is not None, reason=str(browser.missing()))
def test_search_works_from_disk(site: Path) -> None:
    with browser.browser() as opened:
        page = opened.new_page()
        page.goto((site / "tutorials" / "hospitals.html").as_uri())
        page.locator(".md-search__input").fill("heterogeneity")
        found = page.locator(".md-search-result__item").first
        found.wait_for(timeout=browser.PATIENCE)
        assert "eterogeneity" in found.inner_text()
