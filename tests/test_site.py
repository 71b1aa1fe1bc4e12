"""The documentation as a site: it builds without a warning, asks no other host, and leaves nothing public out."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import fpdfp
from tests.pages import DOCS, ROOT

mkdocs = pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings_handlers.python")

MODULES = (
    "losses", "penalties", "linops", "methods", "compress", "steps", "precondition", "datasets", "datasets.splits",
    "ct", "ct.phantoms", "estimators", "flower", "errors", "rng", "runs",
)  # fmt: skip
#: What a page of the site may load is on the site itself.
ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        # Strict: a warning, such as a link that leads nowhere, ends the build.
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.mark.filterwarnings("default")
def test_every_page_is_on_the_site(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists(), page
    for name in ("overview", "changelog", "contributing"):
        assert (site / f"{name}.html").exists()


@pytest.mark.filterwarnings("default")
def test_the_site_asks_no_other_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not ELSEWHERE.findall(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text(), sheet


@pytest.mark.filterwarnings("default")
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
            assert f'id="fpdfp.{name}.{one}"' in text, one


@pytest.mark.filterwarnings("default")
def test_the_reference_has_every_public_name_of_the_package(site: Path) -> None:
    text = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    for name in fpdfp.__all__:
        value = getattr(fpdfp, name)
        if not inspect.ismodule(value):
            assert re.search(rf'id="fpdfp\.(\w+\.)?{name}"', text), name


@pytest.mark.filterwarnings("default")
def test_formulas_of_docstrings_are_drawn_and_roles_resolved(site: Path) -> None:
    for page in (site / "reference").glob("*.html"):
        text = page.read_text()
        assert ".. math" not in text, page
        assert not re.search(r":(?:class|func|meth|mod|math|attr|data):", text), page
    assert "<math" in (site / "reference" / "losses.html").read_text()
