"""What a site has spent of its budget: runs, requests and bits, in a file that outlives the process."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from fpdfp.engines import files
from fpdfp.federation.policy import Budget, RefusedError

FILE = "ledger.fpdfp"
FORMAT = 2
#: So many requests, and this share of the bits that may leave, are written down ahead, so that not every request waits
#: for the disk; of the bits at most so many.
AHEAD = 64
AHEAD_SHARE, MOST_AHEAD = 1 / 32, 1 << 22
#: How many points a plan may have beside those of its problems: the start of every fold, and the largest weight.
FIRST_POINTS = 100


@dataclasses.dataclass
class Spent:
    """What was spent, and for which runs and plans."""

    runs: float = 0.0
    requests: int = 0
    bits: int = 0
    refusals: int = 0
    #: Questions and models that were refused, or failed.
    misses: int = 0
    #: Each run that was begun.
    known: list[str] = dataclasses.field(default_factory=list)
    #: At how many points of each declared plan this site still answers.
    plans: dict[str, int] = dataclasses.field(default_factory=dict)
    #: What each run was begun with: the fingerprint of the site's data.
    data: dict[str, str] = dataclasses.field(default_factory=dict)
    #: What tells the models and questions apart that were answered for.
    models: list[str] = dataclasses.field(default_factory=list)

    def counts(self) -> dict[str, float]:
        """Return what the log shows."""
        return {"runs": self.runs, "requests": self.requests, "bits": self.bits, "refusals": self.refusals}


class Ledger:
    """The ledger of a site.

    What was written down ahead and not used is lost with the process: a crash costs budget and never gives any back.
    A ledger that has less than the log says, or is missing where there is a log, is an error: it was put back.

    Parameters
    ----------
    folder
        The site's folder.
    logged
        What the last line of the log says was spent; None if there is no log.
    """

    def __init__(self, folder: Path, logged: dict[str, float] | None = None) -> None:
        self.path = folder / FILE
        try:
            tree = json.loads(files.read_sealed(self.path))
            written = tree.pop("format")
            if written == 1:  # it had the plan of each run; no plan of that kind goes on
                tree |= {"known": list(tree["known"]), "plans": {}}
            elif written != FORMAT:
                raise ValueError("it was written by another version")
            self.spent = Spent(**tree)
        except FileNotFoundError:
            self.spent = Spent()
        except (ValueError, TypeError, KeyError) as error:
            raise RuntimeError(f"{self.path} cannot be used: {error}") from None
        found = self.spent.counts()
        # Refusals are forgotten when a person has looked at them.
        less = [name for name, count in (logged or {}).items() if name != "refusals" and found.get(name, 0.0) < count]
        if less:
            raise RuntimeError(
                f"{self.path} has fewer {less[0]} than the log of this site: an older one was put in its place, or it "
                "was removed; look into it, and move the log elsewhere if that was on purpose"
            )
        # What is on the disk already, and whether something is not that must be.
        self._requests, self._bits = self.spent.requests, self.spent.bits
        self._ahead_bits = 0
        self._unwritten = False

    def compare_data(self, run: str, data: str) -> None:
        """Refuse to go on with a run that was begun with other data."""
        if self.spent.data.get(run, data) != data:
            raise RefusedError("the data of this site have changed since this run began: begin a new one")

    def begin_run(self, budget: Budget, run: str, data: str = "", model: str = "") -> bool:
        """Count a run when it is first heard of, and return whether it was; refuse it if there are too many.

        ``data`` is the fingerprint of the site's data, which may not change during the run. Another ``model`` under the
        name of a run is another run.
        """
        spent, name = self.spent, f"{run} {model}".rstrip()
        if name in spent.known:
            return False
        self._spend_runs(budget, 1.0)
        spent.known.append(name)
        spent.data.setdefault(run, data)
        self.write()
        return True

    def declare(self, budget: Budget, plan: str, problems: int) -> float:
        """Count a path or a cross-validation of so many problems at once; return its price in runs."""
        if problems > budget.problems_in_plan:
            raise RefusedError(
                f"this site allows at most {budget.problems_in_plan} problems in a path or cross-validation",
                f"{problems}",
            )
        if plan in self.spent.plans:
            return 0.0
        price = 1.0 + budget.price_in_plan * (problems - 1)
        self._spend_runs(budget, price)
        self.spent.plans[plan] = FIRST_POINTS + budget.points_per_problem * problems
        self.write()
        return price

    def _spend_runs(self, budget: Budget, price: float) -> None:
        if self.spent.runs + price > budget.runs:
            raise RefusedError(
                "this site has answered as many runs as it allows", f"{self.spent.runs:g}, {price:g} more"
            )
        self.spent.runs += price

    def count_points(self, budget: Budget, plan: str, points: int) -> None:
        """Count a question about many points: as so many requests, and against the plan that it must be a part of."""
        left = self.spent.plans.get(plan)
        if left is None:
            raise RefusedError(
                "this site answers about many points at once only for a path or cross-validation that was declared",
                f"plan {plan!a}",
            )
        if points > left:
            raise RefusedError(
                "this site has answered about as many points as it allows for this path or cross-validation",
                f"{points} are asked for, and {left} left",
            )
        # One of these requests was counted when it came.
        if self.spent.requests + points - 1 > budget.requests:
            raise RefusedError("this site has answered as many requests as it allows")
        self.spent.requests += points - 1
        self.spent.plans[plan] = left - points
        self.write()

    def count_request(self, budget: Budget) -> None:
        """Count a request; refuse it if there were too many."""
        if self.spent.requests >= budget.requests:
            raise RefusedError("this site has answered as many requests as it allows")
        self.spent.requests += 1
        if self._unwritten or self.spent.requests > self._requests:
            self.write()

    def count_bits(self, budget: Budget, bits: int, values: int) -> None:
        """Count what is about to leave, of data with so many numbers; refuse it if it would be too much."""
        most = budget.bits_per_value * values
        if self.spent.bits + bits > most:
            raise RefusedError(
                "this site has told as much of its data as it allows",
                f"{self.spent.bits:,} bits, {bits:,} more, and {most:,.0f} for {values:,} numbers",
            )
        self.spent.bits += bits
        self._ahead_bits = int(min(AHEAD_SHARE * most, MOST_AHEAD))
        if self.spent.bits > self._bits:
            self.write()

    def count_model(self, budget: Budget, digest: str) -> None:
        """Count a model, or a question about one, when it is first answered for; refuse it if there are too many."""
        if digest in self.spent.models:
            return
        if len(self.spent.models) >= budget.models:
            raise RefusedError("this site has answered for as many models and questions as it allows")
        self.spent.models.append(digest)
        self.write()

    def count_miss(self) -> None:
        """Count a question or a model that was refused, or could not be answered."""
        self.spent.misses += 1
        self.write()

    def count_refusal(self) -> None:
        """Count a point that was refused: refusals tell something of the data as well."""
        self.spent.refusals += 1
        self.write()

    def forgive(self) -> None:
        """Forget what was refused: a person has looked at it."""
        self.spent.refusals = self.spent.misses = 0
        self.write()

    def write(self, *, ahead: bool = True) -> None:
        """Write the ledger, with some requests and bits ahead unless this is the end."""
        self._unwritten = True
        requests, bits = self.spent.requests + ahead * AHEAD, self.spent.bits + ahead * self._ahead_bits
        tree: dict[str, Any] = dataclasses.asdict(self.spent)
        tree |= {"format": FORMAT, "requests": requests, "bits": bits}
        text = json.dumps(tree).encode()
        files.write_sealed(self.path, lambda file: file.write(text))
        self._requests, self._bits, self._unwritten = requests, bits, False
