"""A long run in a federation of real processes, in which sites, the hub and the analyst are killed again and again."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp.federation.audit import verify
from fpdfp.federation.rehearse import Rehearsal, split

FORMULA = "died ~ age + pressure + C(stage)"
#: What is tried here is that nothing is lost; a thousand rounds are more than the default budget allows.
POLICY = "analyses = 1000000\nrefusals = 1000000\n"
#: Seconds without a round after which something is wrong.
PATIENCE = 180.0
RUN = "soak"

ANALYST = """
import sys
import numpy
import fpdfp
from benchmarks._federation_soak import FORMULA, RUN, model
with fpdfp.Federation(sys.argv[1], run=RUN, deadline=20.0) as federation:
    found = model(int(sys.argv[2])).fit(federation, FORMULA)
numpy.savez(sys.argv[3], coef=found.coef_, intercept=found.intercept_)
"""


class Death(NamedTuple):
    """Who was killed, in which round, and after how many seconds there was another round."""

    who: str
    round: int
    seconds: float


def model(rounds: int) -> Any:
    """Everyone takes part in every round; the quantizer's draws depend on the seed alone."""
    return fpdfp.FederatedLogisticRegression(
        fpdfp.L1(0.001), method=fpdfp.FPDFP(), run=fpdfp.RunOptions(rounds=rounds, tol=0, compressor=fpdfp.QSGD(20))
    )


def write_table(path: Path, rows: int = 3000) -> Path:
    """Write a table of three hospitals."""
    import pandas

    generator = np.random.default_rng(0)
    age, stage = generator.normal(60, 10, rows).round(1), generator.choice(["I", "II", "III"], rows)
    pressure = generator.normal(130, 15, rows).round()
    odds = 0.05 * (age - 60) + 0.02 * (pressure - 130) + np.select([stage == "II", stage == "III"], [0.5, 1.0], 0.0)
    died = (generator.random(rows) < 1 / (1 + np.exp(0.5 - odds))).astype(int)
    hospital = generator.choice(["east", "north", "south"], rows)
    columns = {"age": age, "pressure": pressure, "stage": stage, "died": died, "hospital": hospital}
    pandas.DataFrame(columns).to_csv(path, index=False)
    return path


class Soak:
    """A run of an analyst's process with a rehearsal's hub and sites.

    Parameters
    ----------
    rehearsal
        The processes.
    rounds
        How many rounds the run has.
    """

    def __init__(self, rehearsal: Rehearsal, rounds: int) -> None:
        self._rehearsal, self._rounds = rehearsal, rounds
        self._result = rehearsal.folder / "result.npz"
        self._analyst: subprocess.Popen[bytes] | None = None
        self.deaths: list[Death] = []

    def start_analyst(self) -> None:
        """Start the analyst's process, which goes on with the run if there is one."""
        arguments = [str(self._rehearsal.study.folder), str(self._rounds), str(self._result)]
        with (self._rehearsal.folder / "analyst.log").open("ab") as log:
            self._analyst = subprocess.Popen(
                [sys.executable, "-c", ANALYST, *arguments], stdout=log, stderr=log, start_new_session=True
            )

    def progress(self) -> int:
        """Return how many rounds the run's folder says are done."""
        try:
            path = self._rehearsal.study.folder / "runs" / RUN / "run.json"
            return int(json.loads(path.read_bytes())["rounds"])
        except FileNotFoundError:
            return 0

    def wait_for(self, rounds: int) -> int:
        """Wait until so many rounds are done, and return how many are."""
        last, until = -1, time.monotonic() + PATIENCE
        while (done := self.progress()) < rounds:
            if done > last:
                last, until = done, time.monotonic() + PATIENCE
            if time.monotonic() > until:
                raise RuntimeError(f"no round after round {done} for {PATIENCE:g} s: {self.analyst_log()[-2000:]}")
            if self._analyst is not None and self._analyst.poll() is not None:
                raise RuntimeError(f"the analyst's process has ended: {self.analyst_log()[-2000:]}")
            time.sleep(0.01)
        return done

    def kill(self, who: str) -> None:
        """Kill a process as a power cut would, start it again, and wait for the next round."""
        rehearsal, started = self._rehearsal, time.monotonic()
        if who == "hub":
            assert rehearsal.hub is not None
            rehearsal.hub.kill()
            rehearsal.start_hub()
        elif who == "analyst":
            self.stop_analyst()
            self.start_analyst()
        else:
            rehearsal.sites[who].kill()
            rehearsal.start_site(who)
        done = self.progress()
        if done < self._rounds:
            # One may have been under way; the one after it needs everybody.
            self.wait_for(min(done + 2, self._rounds))
        self.deaths.append(Death(who, done, time.monotonic() - started))

    def stop_analyst(self) -> None:
        """Kill the analyst's process."""
        if self._analyst is not None:
            self._analyst.kill()
            self._analyst.wait(10)

    def finish(self) -> dict[str, Any]:
        """Wait for the end of the run; return the result."""
        assert self._analyst is not None
        if self._analyst.wait(PATIENCE * 2) != 0:
            raise RuntimeError(f"the analyst's process has failed: {self.analyst_log()[-2000:]}")
        with np.load(self._result) as file:
            return dict(file)

    def analyst_log(self) -> str:
        """Return what the analyst's process has printed."""
        return (self._rehearsal.folder / "analyst.log").read_text(errors="replace")


def schedule(rounds: int, every: int, hub: int, analyst: int) -> list[tuple[int, str]]:
    """Return who dies when: a site every so many rounds, in turn; the hub and the analyst evenly in between."""
    sites = ("east", "north", "south")
    plan = [(at, sites[number % 3]) for number, at in enumerate(range(every, rounds, every))]
    for who, count in (("hub", hub), ("analyst", analyst)):
        plan += [(int(rounds * (number + 0.6) / count), who) for number in range(count)]
    return sorted(plan)


def run(folder: Path, rounds: int, every: int, *, hub: int, analyst: int) -> dict[str, Any]:
    """Run once with deaths, and once in this process without; return what was found."""
    table = write_table(folder / "patients.csv")
    (folder / "policy.toml").write_text(POLICY)
    expected = model(rounds).fit(table, FORMULA, groups="hospital")
    started = time.monotonic()
    with Rehearsal(folder / "trial", split(table, "hospital", folder / "tables"), folder / "policy.toml") as rehearsal:
        soak = Soak(rehearsal, rounds)
        soak.start_analyst()
        try:
            for at, who in schedule(rounds, every, hub, analyst):
                soak.wait_for(at)
                soak.kill(who)
            found = soak.finish()
        finally:
            soak.stop_analyst()
        seconds = time.monotonic() - started
        saved = fpdfp.runs.load(rehearsal.study.folder / "runs" / RUN)
        sites = list(rehearsal.sites)
    damaged = [fault for site in sites for fault in verify(folder / "trial" / site).faults]
    recovery: dict[str, list[float]] = {"site": [], "hub": [], "analyst": []}
    for death in soak.deaths:
        recovery["site" if death.who in sites else death.who].append(death.seconds)
    return {
        "rounds": saved.info["rounds"],
        "killed": {who: len(each) for who, each in recovery.items()},
        "absent": sum(site["absent"] for site in saved.info["sites"]),
        "healed": sum(site["healed"] for site in saved.info["sites"]),
        "same_bits": bool(
            np.array_equal(found["coef"], expected.coef_) and np.array_equal(found["intercept"], expected.intercept_)
        ),
        "damaged_logs": damaged,
        "seconds": seconds,
        "seconds_to_go_on": {who: statistics.median(each) for who, each in recovery.items() if each},
    }
