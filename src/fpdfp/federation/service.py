"""Files to run a hub or a site as a service: a unit for systemd, and a container."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import fpdfp

TEMPLATE = Path(__file__).parent / "template"


def write_service(kind: str, folder: Path, **values: object) -> list[Path]:
    """Write a unit and a container file for a ``"hub"`` or a ``"site"`` into its folder, and return them.

    ``values`` are what stands in the templates: the study, and for a site its name, its data, policy and invitation.
    """
    filled = {
        "PROGRAM": shutil.which("fpdfp") or f"{sys.executable} -m fpdfp",
        "FOLDER": folder.resolve(),
        "VERSION": fpdfp.__version__,
        "HARDENING": (TEMPLATE / "hardening.in").read_text().rstrip(),
        **{name.upper(): value for name, value in values.items()},
    }
    written = []
    for end in ("service", "container"):
        text = (TEMPLATE / f"{kind}.{end}.in").read_text()
        for name, value in filled.items():
            text = text.replace(f"@{name}@", str(value))
        left = re.search(r"@[A-Z_]+@", text)
        assert left is None, f"nothing is given for {left and left[0]}"
        path = folder / f"{kind}.{end}"
        path.write_text(text)
        path.chmod(0o600)
        written.append(path)
    return written
