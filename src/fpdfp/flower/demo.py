"""The demonstration: a whole federation on this machine that solves the template's example."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fpdfp.flower.federation import Federation
from fpdfp.flower.project import SITES, write_project

#: By this file a folder is known for one of ours, whose content may go.
OURS = ".fpdfp-flower-demo"
#: Colours of a terminal, in Flower's own lines.
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def run(
    output: Path,
    *,
    rounds: int = 20,
    sites: Sequence[str] = SITES,
    app: Path | None = None,
    timeout: float = 3600.0,
) -> Path:
    """Run the template's app, or another one, in a federation; print its lines; return where the result is."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    output = Path(output).resolve()
    _clear(output)
    if app is None:
        app = output / "app"
        write_project(app, sites=sites, rounds=rounds, host="localhost")
    state = output / "superlink"
    state.mkdir()

    console.print(f"SuperLink and {len(sites)} SuperNodes ({', '.join(sites)}), with TLS and node authentication …")
    # The app writes its checkpoint and its result where systemd would have it do so.
    environment = {"STATE_DIRECTORY": str(state)}
    with Federation(output / "federation", sites, environment=environment) as federation:
        console.print(f"up at https://{federation.address}; logs in {federation.logs}")
        run_id = federation.run(app)
        console.print(f"run {run_id}")
        status = federation.wait(
            run_id, timeout, show=lambda line: console.print(f"  {COLOURS.sub('', line)}", markup=False)
        )
        received, sent = status.bytes_received, status.bytes_sent
        console.print(f"{status}; {sent} bytes to the sites and {received} from them, as Flower counts")
    result = state / "result.npz"
    console.print(f"everything that was started has been ended; logs in {output / 'federation' / 'logs'}")
    if result.exists():
        with np.load(result, allow_pickle=False) as arrays:
            if "x" in arrays:
                x = arrays["x"]
                console.print(f"x has {np.count_nonzero(x)} of {x.size} coefficients that are not 0")
        console.print(f"result: {result}")
    return result


def _clear(output: Path) -> None:
    """Make an empty folder, in place of one that an earlier demonstration has left, and of no other."""
    if output.exists() and any(output.iterdir()):
        if not (output / OURS).exists():
            raise FileExistsError(f"output must be an empty folder or one of an earlier demonstration, got {output}")
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)
    (output / OURS).touch()
