"""A whole Flower federation on this machine (SuperLink, SuperNodes, TLS, node authentication) that runs an app.

python -m examples.flower.demo --rounds 4                       # the template's example
python -m examples.flower.demo --app project --sites north,east,south
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from examples.flower.federation import Federation
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
    """Run the template's app, or another one, in a federation; print its lines; return where the result is.

    An app of your own runs for ``rounds`` rounds if its ``pyproject.toml`` names ``rounds`` among its settings.
    """
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    output = Path(output).resolve()
    settings = run_config(app, rounds)
    if app is not None and Path(app).resolve().is_relative_to(output):
        raise ValueError(f"output must be a folder that does not hold the app, for what is in it goes; got {output}")
    _clear(output)
    if app is None:
        app = output / "app"
        write_project(app, sites=sites, rounds=rounds, host="localhost")
    elif settings:
        console.print(f"{rounds} rounds, in place of what {Path(app) / 'pyproject.toml'} says")
    else:
        console.print(f"--rounds does not apply: {Path(app) / 'pyproject.toml'} has no setting of that name")
    state = output / "superlink"
    state.mkdir()

    console.print(f"SuperLink and {len(sites)} SuperNodes ({', '.join(sites)}), with TLS and node authentication …")
    # The app writes its checkpoint and its result where systemd would have it do so.
    environment = {"STATE_DIRECTORY": str(state)}
    with Federation(output / "federation", sites, environment=environment) as federation:
        console.print(f"up at https://{federation.address}; logs in {federation.logs}")
        run_id = federation.run(app, settings)
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


def run_config(app: Path | None, rounds: int) -> dict[str, str | int | float | bool]:
    """What a run is told beside its app's settings: Flower refuses a setting that the app does not name."""
    if app is None:
        return {}
    settings = tomllib.loads((Path(app) / "pyproject.toml").read_text())
    for name in ("tool", "flwr", "app", "config"):
        settings = settings.get(name, {})
    return {"rounds": rounds} if "rounds" in settings else {}


def _clear(output: Path) -> None:
    """Make an empty folder, in place of one that an earlier demonstration has left, and of no other."""
    if output.exists() and any(output.iterdir()):
        if not (output / OURS).exists():
            raise FileExistsError(f"output must be an empty folder or one of an earlier demonstration, got {output}")
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)
    (output / OURS).touch()


def main() -> None:
    """Run the demonstration from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("flower-demo"), help="a folder; what is in it goes")
    parser.add_argument("--rounds", type=int, default=20, help="communication rounds, some five seconds each")
    parser.add_argument("--sites", default=",".join(SITES), help="the names of the sites, with commas between them")
    parser.add_argument("--app", type=Path, help="the folder of an app of your own, in place of the example")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds after which it is given up")
    given = parser.parse_args()
    sites = [site.strip() for site in given.sites.split(",") if site.strip()]
    try:
        run(given.output, rounds=given.rounds, sites=sites, app=given.app, timeout=given.timeout)
    except KeyboardInterrupt:
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        sys.exit(130)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
