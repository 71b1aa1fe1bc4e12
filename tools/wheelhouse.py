"""A folder of wheels from which a site, a hub or an analyst is installed on a machine without internet.

``python -m tools.wheelhouse`` (or ``make wheelhouse``) writes the wheel of this checkout and those of everything that a
federation needs, and ``requirements.txt`` with the SHA-256 of each. There::

    pip install --no-index --find-links wheelhouse --require-hashes -r wheelhouse/requirements.txt
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRA = "federation"
#: What wheels for another Python are for: Linux on the usual processors, with a C library from 2022 or older.
PLATFORMS = ("manylinux2014_x86_64", *(f"manylinux_2_{number}_x86_64" for number in range(17, 36)))


def collect(folder: Path, python: str | None = None, source: Path = ROOT) -> Path:
    """Write the wheels for a Python ("3.12", None for this one) into a new folder; return the file that lists them."""
    folder.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source)], check=True)
    (own,) = folder.glob("fpdfp-*.whl")
    download = [*pip, "download", "--only-binary", ":all:", "--dest", str(folder)]
    if python is not None:
        download += ["--python-version", python, "--implementation", "cp"]
        download += [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*download, f"{own}[{EXTRA}]"], check=True)
    return write_requirements(folder)


def write_requirements(folder: Path) -> Path:
    """List the wheels of a folder with their hashes, which pip compares before it installs any."""
    lines = []
    for wheel in sorted(folder.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        extra = f"[{EXTRA}]" if name == "fpdfp" else ""
        lines.append(f"{name}{extra}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    path = folder / "requirements.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "wheelhouse", help="a folder that is not there yet")
    parser.add_argument("--python", help='the Python of the other machine, as "3.12"; by default that of this one')
    arguments = parser.parse_args()
    listed = collect(arguments.folder, arguments.python)
    sizes = [one.stat().st_size for one in arguments.folder.glob("*.whl")]
    print(f"{len(sizes)} wheels, {sum(sizes) / 1e6:.0f} MB; take the folder there, then:")
    print(f"pip install --no-index --find-links wheelhouse --require-hashes -r wheelhouse/{listed.name}")


if __name__ == "__main__":
    main()
