"""The folder of a run in a federation: what a simulation leaves, and what sites, waiting and the network did."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any

from fpdfp.engines.result import Result
from fpdfp.engines.run import Run
from fpdfp.errors import ArgumentTypeError
from fpdfp.federation.engine import FederationEngine
from fpdfp.federation.link import Link
from fpdfp.problem import Problem
from fpdfp.runs import writing
from fpdfp.runs.recorder import Recorder

FILE = "federation.json"


class FederationRecorder(Recorder):
    """Write the folder of a run, with ``federation.json`` beside the rest.

    That file has the sites, the exchanges, the bytes between this process and the hub, the seconds that were waited, in
    all and for each site, and what sites refused.

    Parameters
    ----------
    folder, problem, options
        As for :class:`fpdfp.runs.Recorder`; the problem has losses of a federation.
    link
        The way to the sites.
    """

    def __init__(self, folder: str | Path, problem: Problem, *, link: Link, **options: Any) -> None:
        engine = getattr(problem.losses, "engine", None)
        if not isinstance(engine, FederationEngine):
            raise ArgumentTypeError("problem", f"must have losses of a federation, got {problem.losses!r}")
        super().__init__(folder, problem, **options)
        self._engine, self._link = engine, link
        self._usage_before = copy.deepcopy(link.usage)

    def solve(self, method: Any = None, **options: Any) -> Any:
        """Call ``fpdfp.solve`` with the federation's engine, and with the given options."""
        return super().solve(method, **{"engine": self._engine, **options})

    def evaluated(self, run: Run) -> None:
        super().evaluated(run)
        self._note()

    def finished(self, run: Run, result: Result) -> None:
        super().finished(run, result)
        self._note()

    def failed(self, run: Run, error: BaseException) -> None:
        super().failed(run, error)
        with contextlib.suppress(OSError):
            self._note()

    @property
    def _kind(self) -> str:
        # Sites do not say more of their losses than is needed; who names the coefficients knows that it is linear.
        return "other" if self.model is None else "linear"

    def _note(self) -> None:
        now, before, totals = self._link.usage, self._usage_before, self._engine.totals
        sites = {
            name: {
                "waited": now.waited_for.get(name, 0.0) - before.waited_for.get(name, 0.0),
                "refusals": [why for site, why in self._engine.refusals if site == name],
            }
            for name in self._engine.names
        }
        writing.write_json(
            self.folder / FILE,
            {
                "sites": sites,
                "exchanges": now.exchanges - before.exchanges,
                "bytes_up": now.up - before.up,
                "bytes_down": now.down - before.down,
                "waited": now.waited - before.waited,
                "absent": totals.absent,
                "refused": totals.refused,
                "healed": totals.healed,
                "latency": self._link.measured.latency,
                "bandwidth": self._link.measured.bandwidth,
            },
        )
