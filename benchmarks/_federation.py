"""The a9a-sized problem of the engines' benchmarks, in this process, in actors, and at the sites of a federation."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import fpdfp

ROWS, D, CLIENTS = 26_053, 123, 20
SITES = ("north", "east", "south")
WEIGHT, L2 = 1e-4, 1e-3
QUANTIZER = fpdfp.QSGD(20, norm="max")

METHODS = ("FPDFP", "shifted")
#: Relative errors; FPDFP with its fixed quantizer needs too many rounds for the smaller one.
ERRORS = {"FPDFP": (1e-3,), "shifted": (1e-3, 1e-6)}

APP = """\
[build-system]
requires = ["setuptools>=69"]
build-backend = "setuptools.build_meta"

[project]
name = "trial"
version = "1.0.0"
license = "BSD-3-Clause"
dependencies = []

[tool.setuptools]
packages = ["trial"]

[tool.flwr.app]
publisher = "local"

[tool.flwr.app.components]
serverapp = "trial.server:app"
clientapp = "trial.client:app"

"""


def data() -> tuple[Any, Any, Any]:
    """One-hot groups, as in a9a: 14 ones among 123 columns in every row; labels that depend on them."""
    generator = np.random.default_rng(0)
    edges = np.linspace(0, D, 15).astype(int)
    columns = np.stack([generator.integers(a, b, ROWS) for a, b in itertools.pairwise(edges)], axis=1)
    X = scipy.sparse.csr_array((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 14)), (ROWS, D))
    truth = generator.standard_normal(D)
    y = np.where(X @ truth + generator.logistic(size=ROWS) > 0, 1.0, -1.0)
    return X, y, np.sort(generator.integers(0, CLIENTS, ROWS))


def graph() -> Any:
    G = scipy.sparse.random_array((D, D), density=0.05, rng=np.random.default_rng(1))
    return scipy.sparse.vstack([G, scipy.sparse.eye_array(D)]).tocsr()


def penalty() -> fpdfp.penalties.Penalty:
    return fpdfp.penalties.L1(WEIGHT)


def load(clients: Any) -> fpdfp.losses.Losses:
    """The losses of some clients."""
    X, y, owner = data()
    mine = np.isin(owner, clients)
    return fpdfp.losses.Logistic(X[mine], y[mine], clients=owner[mine], l2=L2)


def problem() -> fpdfp.Problem:
    """The whole problem, in this process."""
    return fpdfp.Problem(load(np.arange(CLIENTS)), penalty(), graph())


def options(method: str) -> dict[str, Any]:
    """The arguments of ``solve`` for a method."""
    return {"method": fpdfp.FPDFP(), "compressor": QUANTIZER} if method == "FPDFP" else {}


def times_to(where: fpdfp.Problem, method: str, best: float, engine: Any = None) -> dict[str, Any]:
    """The rounds and the seconds by the clock to each error, with an evaluation after every round."""
    found: dict[str, Any] = {}
    started = time.perf_counter()

    def near(run: fpdfp.Run) -> bool:
        error = float(run.history.last()["objective"]) / best - 1.0
        for one in ERRORS[method]:
            if error <= one and f"{one:g}" not in found:
                found[f"{one:g}"] = {"rounds": run.round, "seconds": time.perf_counter() - started}
        return len(found) == len(ERRORS[method])

    fpdfp.solve(where, rounds=20_000, evaluate_every=1, callbacks=[near], engine=engine, **options(method))
    if len(found) < len(ERRORS[method]):
        raise RuntimeError(f"{method} did not come to {ERRORS[method]}")
    return found


def load_site(site: str, config: Mapping[str, Any]) -> fpdfp.losses.Losses:
    """The losses of a site's clients, from a file that is made once."""
    path = Path(str(config["state"])) / "rows.npz"
    if not path.exists():
        X, y, owner = data()
        mine = np.isin(owner, np.array_split(np.arange(CLIENTS), len(SITES))[SITES.index(site)])
        part = path.with_suffix(f".{os.getpid()}.npz")
        rows = X[mine]
        np.savez(part, data=rows.data, indices=rows.indices, indptr=rows.indptr, y=y[mine], owner=owner[mine])
        part.replace(path)
    with np.load(path) as kept:
        rows = scipy.sparse.csr_array((kept["data"], kept["indices"], kept["indptr"]), (len(kept["y"]), D))
        return fpdfp.losses.Logistic(rows, kept["y"], clients=kept["owner"], l2=L2)


def client() -> Any:
    from fpdfp.flower import client_app

    return client_app(load_site)


def server() -> Any:
    """The server's app; what it runs, and where it writes, is in the environment of SuperLink."""
    from fpdfp.flower import server_app

    folder = Path(os.environ["TRIAL_FOLDER"])
    plan = json.loads((folder / "plan.json").read_text())
    ticks = folder / "ticks.txt"

    def tick(run: fpdfp.Run) -> None:
        with ticks.open("a") as file:
            file.write(f"{time.time()} {run.round}\n")

    return server_app(
        penalty(), graph(), sites=SITES, weights="uniform", rounds=plan["rounds"], deadline=plan.get("deadline", 60.0),
        min_clients=CLIENTS // 2, callbacks=[tick], output=folder / "result.npz", **options(plan["method"]),
    )  # fmt: skip


def write_app(folder: Path) -> Path:
    """Write a Flower app that is this module."""
    package = folder / "trial"
    package.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(APP)
    (package / "__init__.py").write_text("")
    for part in ("server", "client"):
        (package / f"{part}.py").write_text(f"from benchmarks import _federation\n\napp = _federation.{part}()\n")
    return folder


def plan(folder: Path, method: str, rounds: int, **others: Any) -> None:
    """Say what the server's app is to run next."""
    (folder / "ticks.txt").unlink(missing_ok=True)
    (folder / "result.npz").unlink(missing_ok=True)
    (folder / "plan.json").write_text(json.dumps({"method": method, "rounds": rounds, **others}))


def seconds_a_round(folder: Path) -> float:
    """The mean time from one round to the next, after the first."""
    times = [float(line.split()[0]) for line in (folder / "ticks.txt").read_text().splitlines()]
    return (times[-1] - times[0]) / (len(times) - 1)


def result(folder: Path) -> tuple[Any, dict[str, Any]]:
    """What the server's app has written: x, and the summary."""
    with np.load(folder / "result.npz") as kept:
        return kept["x"], json.loads(str(kept["summary"]))
