"""A rehearsal on one machine: a hub and every site as real processes, on one's own table or on made-up patients."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from sklearn.base import clone

from fpdfp import _checks
from fpdfp.datasets.patients import patients
from fpdfp.errors import ArgumentError
from fpdfp.federation import keys
from fpdfp.federation.analyst import Federation
from fpdfp.federation.keys import Study
from fpdfp.federation.table import read_frame

#: Seconds for all sites to come.
PATIENCE = 120.0
FAMILIES = (
    "auto", "logistic", "linear", "cox", "ordinal", "multinomial", "gaussian", "binomial", "poisson", "gamma",
    "inverse gaussian", "negative binomial", "tweedie", "quantile", "quasi-poisson", "quasi-binomial",
)  # fmt: skip


class Process:
    """A command of this package in a process of its own, which ends with ours.

    Parameters
    ----------
    arguments
        Those of the command.
    log
        The file that takes what it prints.
    """

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            # A session of its own: Ctrl-C at the terminal reaches us, and we end the rest in order.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fpdfp", "federation", *arguments],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, umask=0o077,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait(10)

    def stop(self, patience: float = 10.0) -> None:
        """Ask it to end, and kill it if it does not."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()

    def text(self) -> str:
        """Return what it has printed."""
        return self.log.read_text(errors="replace")


class Rehearsal:
    """A study whose hub and sites run on this machine.

    Parameters
    ----------
    folder
        Where everything is.
    tables
        The file of each site.
    policy
        The policy of all sites; None for the safe one of the package.
    """

    def __init__(self, folder: Path, tables: dict[str, Path], policy: Path | None = None) -> None:
        self.folder, self._tables, self._policy = folder, tables, policy
        self.study = Study.create(folder / "study", list(tables), hosts=["127.0.0.1"], port=free_port())
        self.hub: Process | None = None
        self.sites: dict[str, Process] = {}

    def __enter__(self) -> Self:
        try:
            self.start_hub()
            for site in self._tables:
                self.start_site(site)
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_hub(self) -> None:
        """Start the hub, and wait until it listens."""
        self.hub = Process(["serve", str(self.study.folder), "--bind", "127.0.0.1"], self.folder / "hub.log")
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.study.port), timeout=1.0):
                return
            if self.hub.ended is not None or time.monotonic() > until:
                raise RuntimeError(f"the hub has ended: {self.hub.text()[-2000:]}")
            time.sleep(0.05)

    def start_site(self, site: str) -> None:
        """Start a site."""
        invitation = self.study.folder / "invitations" / f"invitation-{site}.zip"
        policy = [] if self._policy is None else ["--policy", str(self._policy)]
        arguments = ["join", str(invitation), "--data", str(self._tables[site]), "--folder", str(self.folder / site)]
        self.sites[site] = Process([*arguments, *policy], self.folder / f"{site}.log")

    def wait(self) -> None:
        """Wait until all sites are connected; raise an error that describes what one that has ended printed."""
        until = time.monotonic() + PATIENCE
        with Federation(self.study.folder) as federation:
            while not all(site.online for site in federation.status().sites):
                for name, process in self.sites.items():
                    if process.ended is not None:
                        raise RuntimeError(f"{name} has ended: {process.text().strip()[-2000:]}")
                if time.monotonic() > until:
                    raise RuntimeError(f"not all sites are connected after {PATIENCE:g} s")
                time.sleep(0.1)

    def stop(self) -> None:
        """End all processes."""
        for process in self.sites.values():
            process.stop()
        if self.hub is not None:
            self.hub.stop()


def rehearse(
    data: Path | str,
    by: str,
    model: str,
    *,
    policy: Path | str | None = None,
    family: str = "auto",
    estimator: Any = None,
    penalty: str | None = None,
    cv: int | str | None = None,
    keep: Path | str | None = None,
    say: Callable[[str], Any] = print,
) -> Any:
    """Fit a model in a federation of real processes on this machine, and return its summary.

    Parameters
    ----------
    data, by
        A table with the rows of all sites, and the column that names each row's site.
    model
        A formula.
    policy
        The policy of all sites; None for the safe one of the package.
    family
        ``"logistic"``, ``"linear"``, ``"cox"``, ``"ordinal"``, ``"multinomial"``, or a family of
        :class:`fpdfp.FederatedGLM`. ``"auto"`` takes the first for a response of two values, ``"cox"`` for one of
        times, ``"multinomial"`` for other texts, else the second.
    estimator
        The model itself, any that a federation fits; family, penalty and cv are then those that it has.
    penalty
        As in :class:`fpdfp.FederatedLogisticRegression`; by default none, and ``"l1"`` with ``cv``.
    cv
        In how many folds each site divides its rows to choose the weight of the penalty, or ``"sites"`` to exclude
        one site at a time; None for the weight that the estimator has by default.
    keep
        A new folder to keep everything in; None for one that is removed at the end.
    say
        Called with what is being done.
    """
    _checks.choice("family", family, FAMILIES)
    with _folder(keep) as folder, _ending():
        tables = split(Path(data), by, folder / "tables")
        fitted = _estimator(Path(data), model, family, penalty, cv) if estimator is None else clone(estimator)
        policy = None if policy is None else Path(policy)
        say(f"{len(tables)} sites: {', '.join(tables)}")
        started = time.monotonic()
        with (
            Rehearsal(folder, tables, policy) as rehearsal,
            Federation(rehearsal.study.folder, run="rehearsal") as sites,
        ):
            say(f"hub and sites are running, after {time.monotonic() - started:.1f} s")
            for line in str(sites.describe()).splitlines():
                say(line)
            started = time.monotonic()
            summary = fitted.fit(sites, model).summary()
            usage = sites.usage
            if hasattr(fitted, "alphas_"):
                say(_describe_choice(fitted))
            say(
                f"fitted in {time.monotonic() - started:.1f} s: {usage.exchanges} exchanges, {usage.up:,} bytes up and "
                f"{usage.down:,} bytes down on the wire"
            )
            if keep is not None:
                say(f"fpdfp report {rehearsal.study.folder / 'runs'} makes a page of it")
            return summary


def _estimator(path: Path, model: str, family: str, penalty: str | None, cv: int | str | None) -> Any:
    """Return the estimator of a family."""
    import fpdfp

    kind = _family(path, model) if family == "auto" else family
    names = {"logistic": "LogisticRegression", "linear": "LinearRegression", "cox": "CoxRegression",
             "ordinal": "OrdinalRegression", "multinomial": "MultinomialRegression"}  # fmt: skip
    options: dict[str, Any] = {} if kind in names else {"family": kind}
    options |= {} if penalty is None else {"penalty": penalty}
    options |= {} if cv is None else {"cv": cv}
    return getattr(fpdfp, f"Federated{names.get(kind, 'GLM')}{'' if cv is None else 'CV'}")(**options)


def _describe_choice(model: Any) -> str:
    """Say which weight was chosen, and how good it is."""
    place = int((model.alphas_ == model.alpha_).argmax())
    folds, weights = model.scores_.shape[1], len(model.alphas_)
    return (
        f"{weights * (folds + 1)} problems ({weights} weights, all rows and {folds} folds) in {model.path_.rounds} "
        f"exchanges: the chosen weight is {model.alpha_:.3g}, with a deviance of {model.mean_score_[place]:.4f} ± "
        f"{model.score_error_[place]:.4f} of the rows left out; within one standard error is {model.alpha_1se_:.3g}"
    )


def split(path: Path, by: str, folder: Path) -> dict[str, Path]:
    """Write the rows of each site into a file of its own, without the column that names the site."""
    frame = read_frame(path)
    if by not in frame.columns:
        raise ArgumentError(
            "by", f"must be a column of {path}, one of {', '.join(map(str, frame.columns))}, got {by!r}"
        )
    if frame[by].isna().any():
        raise ArgumentError("by", f"must name a site for every row, but {by!r} is missing in some")
    keys.make_private_folder(folder)
    tables = {}
    for value, rows in frame.groupby(by, sort=True):
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", str(value)).strip("-_")[:64]
        if not name or name in tables:
            raise ArgumentError("by", f"must name sites by letters and digits that differ, got {value!r}")
        tables[name] = folder / f"{name}.csv"
        rows.drop(columns=by).to_csv(tables[name], index=False)
    return tables


def _family(path: Path, model: str) -> str:
    """Return what the response looks like."""
    response = model.partition("~")[0].strip()
    if response.startswith("Surv("):
        return "cox"
    column = read_frame(path).get(response)
    if column is None:
        return "linear"  # a transformation, of numbers
    if column.dropna().nunique() == 2:
        return "logistic"
    return "linear" if column.dtype.kind in "fi" else "multinomial"


@contextlib.contextmanager
def _folder(keep: Path | str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="fpdfp-rehearsal-") as name:
            yield Path(name)
        return
    folder = Path(keep)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} exists already, and is not overwritten")
    keys.make_private_folder(folder)
    yield folder


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Within this, SIGTERM ends as Ctrl-C does, with all that was started."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def free_port() -> int:
    """Return a port of this machine that no one listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def write_patients(path: Path, rows: int = 900) -> Path:
    """Write a table of simulated patients as a CSV file; an existing file is not overwritten."""
    table = patients(rows)
    with path.open("x", encoding="utf-8", newline="") as file:
        table.to_csv(file, index=False)
    return path
