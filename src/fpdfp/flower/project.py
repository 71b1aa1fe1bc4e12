"""A project of a federation, written from the template: the app, units for systemd, start scripts, instructions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fpdfp import _checks
from fpdfp.flower import certificates

TEMPLATE = Path(__file__).parent / "template"
#: The template's files end so: they are neither modules of this package nor settings of its tools.
SUFFIX = ".in"
SITES = ("north", "east", "south")


def write_project(
    folder: Path | str, *, sites: Sequence[str] = SITES, rounds: int = 30, host: str = "superlink.example"
) -> list[Path]:
    """Write a project for these sites into a folder; nothing that is there is overwritten.

    Parameters
    ----------
    folder
        Where the project goes; made where it does not exist.
    sites
        The names of the sites that take part.
    rounds
        Communication rounds of the run.
    host
        The name by which the sites will reach the server.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(len(write_project(folder, sites=["north", "east"])))
    12
    """
    folder = Path(folder)
    if isinstance(sites, str) or not sites:
        raise ValueError(f"sites must be a sequence of at least one name, got {sites!r}")
    names = [certificates.site_name(f"sites[{i}]", site) for i, site in enumerate(sites)]
    if len(set(names)) != len(names):
        raise ValueError(f"sites must be different names, got {', '.join(names)}")
    values = {
        "SITES": json.dumps(names),
        "SITES_COMMA": ",".join(names),
        "FIRST_SITE": names[0],
        "ROUNDS": str(_checks.integer("rounds", rounds, at_least=1)),
        # With one site missing the others go on.
        "MIN_CLIENTS": str(max(1, len(names) - 1)),
        "HOST": certificates.host_name("host", host),
    }
    sources = sorted(path for path in TEMPLATE.rglob(f"*{SUFFIX}") if path.is_file())
    targets = [folder / path.relative_to(TEMPLATE).with_suffix("") for path in sources]
    for target in targets:
        if target.exists():
            raise FileExistsError(f"{target} exists already and is not overwritten")
    for source, target in zip(sources, targets, strict=True):
        text = source.read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        if target.suffix == ".sh":
            target.chmod(0o755)
    return targets
