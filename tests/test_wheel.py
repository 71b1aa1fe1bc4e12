"""What users install: a wheel of the package alone, in an environment without anything for developers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tools import wheelhouse

import fpdfp
from tests.pages import ROOT

pytestmark = pytest.mark.slow

#: What a wheel is built from.
SOURCES = ("pyproject.toml", "README.md", "LICENSE")


def run(*command: object, cwd: Path) -> str:
    """Run a command that sees neither the checkout nor the environment of the tests; return what it prints."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the wheel is built from, so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder / "probe"), "rich"]
    if subprocess.run(probe, capture_output=True, check=False, timeout=300).returncode != 0:
        pytest.skip("needs a registry of packages, and pip reaches none")
    copy = folder / "copy"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in SOURCES:
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(copy: Path) -> Path:
    folder = copy.parent
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, copy, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    information = f"fpdfp-{fpdfp.__version__}.dist-info"
    files = [path for path in (ROOT / "src" / "fpdfp").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    ours = {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert {name for name in names if name.split("/")[0] != information} == ours
    # The paper's experiments stay outside; the demonstration and the example are experiment files inside.
    assert not [name for name in names if "reproduce" in name]
    assert {"fpdfp/demo.toml", "fpdfp/declarative/example.toml"} <= names
    assert {"fpdfp/py.typed", f"{information}/licenses/LICENSE", f"{information}/entry_points.txt"} <= names


def test_the_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "clean", cwd=tmp_path)
    folder = tmp_path / "clean" / "bin"
    run(folder / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    installed = run(folder / "python", "-m", "pip", "list", "--format", "freeze", cwd=tmp_path)
    assert f"fpdfp=={fpdfp.__version__}" in installed
    assert "pytest" not in installed
    assert run(folder / "fpdfp", "--version", cwd=tmp_path).strip() == fpdfp.__version__
    # The same commands, whichever way they are called.
    called = run(folder / "python", "-m", "fpdfp", "--help", cwd=tmp_path).replace("python -m fpdfp", "fpdfp")
    assert called.split() == run(folder / "fpdfp", "--help", cwd=tmp_path).split()
    run(folder / "fpdfp", "demo", "--rounds", "20", "--output", tmp_path / "demo", cwd=tmp_path)
    assert (tmp_path / "demo" / "methods.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (tmp_path / "demo" / "report.html").read_text()


def test_a_site_is_installed_without_internet_from_a_folder_with_hashes(copy: Path, tmp_path: Path) -> None:
    """A real federation runs in what was installed; a wheel that was changed is refused."""
    folder = tmp_path / "wheelhouse"
    listed = wheelhouse.collect(folder, source=copy)
    lines = listed.read_text().splitlines()
    assert len(lines) == len(list(folder.glob("*.whl"))) > 20
    assert all("--hash=sha256:" in line for line in lines)
    run(sys.executable, "-m", "venv", tmp_path / "clean", cwd=tmp_path)
    bin_ = tmp_path / "clean" / "bin"
    # What pip would otherwise know of registries and caches is switched off, and nobody answers at the proxy.
    install = ["env", "PIP_CONFIG_FILE=/dev/null", "https_proxy=http://127.0.0.1:9", "http_proxy=http://127.0.0.1:9",
               bin_ / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-index",
               "--find-links", folder, "--require-hashes", "-r", listed]  # fmt: skip
    changed = next(folder.glob("narwhals-*.whl"))
    whole = changed.read_bytes()
    changed.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(AssertionError, match="DO NOT MATCH THE HASHES"):
        run(*install, cwd=tmp_path)
    changed.write_bytes(whole)
    run(*install, cwd=tmp_path)
    run(bin_ / "fpdfp", "federation", "example", "patients.csv", cwd=tmp_path)
    said = run(
        bin_ / "fpdfp", "federation", "rehearse", "--data", "patients.csv", "--by", "hospital", "--model", "died ~ age",
        "--keep", tmp_path / "kept", cwd=tmp_path,
    )  # fmt: skip
    assert "age" in said
    unit = run(bin_ / "fpdfp", "federation", "serve", tmp_path / "kept" / "study", "--unit", cwd=tmp_path)
    container = Path(unit.splitlines()[1]).read_text()
    assert f"python:{sys.version_info.major}.{sys.version_info.minor}-slim" in container
    assert "--no-index --find-links /wheelhouse --require-hashes -r /wheelhouse/requirements.txt" in container
