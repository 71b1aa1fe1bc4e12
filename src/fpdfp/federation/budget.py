"""The budget of a site: analyses, divisions of rows and refusals, in a file that outlives the process."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from fpdfp import _files as files
from fpdfp.federation.policy import Policy, refuse

FILE = "budget.fpdfp"
FORMAT = 1
#: An analysis is answered at this many points, and for this many scalings of its columns; each as many again cost
#: another. A fit takes some 20 points, a path of 100 weights with five folds some 3,000.
POINTS, MODELS = 5000, 8
#: So many coefficients are known of a design.
FITS = 100
#: Points are written down so many ahead, so that not every request waits for the disk.
AHEAD = 64
#: Of so many runs it is known what data they were begun with.
RUNS = 1000


@dataclasses.dataclass
class Spent:
    """The spent budget.

    Attributes
    ----------
    analyses
        The price of each analysis so far, by its digest.
    points, models
        At how many points each was answered, and the digests of its models.
    refusals
        How many models and points were refused since a person has looked.
    divisions
        The folds of each division of rows, by the number of rows.
    data
        What each run was begun with: the fingerprint of the site's data.
    times
        A digest of the times at which each column of times was sent.
    conditions
        Those of rows that were answered about.
    edges
        Those at which columns were counted.
    columns
        Those that were used.
    knots
        Those of splines, by column.
    fitted
        Digests of the coefficients of models, by their designs, of which standard errors were asked.
    """

    analyses: dict[str, int] = dataclasses.field(default_factory=dict)
    points: dict[str, int] = dataclasses.field(default_factory=dict)
    models: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    refusals: int = 0
    divisions: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    data: dict[str, str] = dataclasses.field(default_factory=dict)
    times: dict[str, str] = dataclasses.field(default_factory=dict)
    conditions: list[str] = dataclasses.field(default_factory=list)
    edges: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    columns: list[str] = dataclasses.field(default_factory=list)
    knots: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    fitted: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def total(self) -> int:
        """The price of all analyses."""
        return sum(self.analyses.values())

    def counts(self) -> dict[str, float]:
        """Return what the log shows."""
        return {"analyses": self.total, "points": sum(self.points.values()), "refusals": self.refusals}


class Budget:
    """The budget of a site.

    Points that were written down ahead and not used are lost with the process: a crash costs budget and never gives any
    back. A file that has less than the log says, or is missing where there is a log, is an error: it was put back.

    Parameters
    ----------
    folder
        The site's folder.
    policy
        What the site allows.
    logged
        What the last line of the log says was spent; None without a log.
    """

    def __init__(self, folder: Path, policy: Policy, logged: dict[str, float] | None = None) -> None:
        self.path, self.policy = folder / FILE, policy
        try:
            tree = json.loads(files.read_sealed(self.path))
            if tree.pop("format") != FORMAT:
                raise ValueError("it was written by another version")
            self.spent = Spent(**tree)
        except FileNotFoundError:
            self.spent = Spent()
        except (ValueError, TypeError, KeyError) as error:
            raise RuntimeError(f"{self.path} cannot be used: {error}") from None
        found = self.spent.counts()
        # Refusals are forgotten when a person has looked at them.
        less = [name for name, count in found.items() if name != "refusals" and count < (logged or {}).get(name, 0)]
        if less:
            raise RuntimeError(
                f"{self.path} has fewer {less[0]} than the log of this site: an older one was put in its place, or it "
                "was removed; look into it, and move the log elsewhere if that was on purpose"
            )
        self._written, self._unwritten = dict(self.spent.points), False

    def begin(self, analysis: str, model: str = "") -> bool:
        """Pay for an analysis, or for a model of one, when it is first heard of; return whether it was."""
        spent = self.spent
        new = analysis not in spent.analyses
        models = spent.models.get(analysis, [])
        fresh = bool(model) and model not in models
        price = int(new) or int(fresh and len(models) > 0 and len(models) % MODELS == 0)
        self._afford(price)
        if new or fresh:
            spent.analyses[analysis] = spent.analyses.get(analysis, 0) + price
            spent.models[analysis] = [*models, model] if fresh else models
            self.write()
        return new

    def spend_points(self, analysis: str, points: int) -> None:
        """Count points at which an analysis is answered."""
        spent = self.spent
        before = spent.points.get(analysis, 0)
        price = (before + points) // POINTS - before // POINTS
        self._afford(price)
        spent.analyses[analysis] = spent.analyses.get(analysis, 0) + price
        spent.points[analysis] = before + points
        if self._unwritten or price or before + points > self._written.get(analysis, 0):
            self.write()

    def _afford(self, price: int) -> None:
        wrong, allowed = price and self.spent.total + price > self.policy.analyses, self.policy.analyses
        self.policy.refuse_if(wrong, "analyses", f"{self.spent.total} analyses", analyses=allowed)

    def divide(self, rows: int, key: str, folds: int) -> None:
        """Note a division of rows into folds; refuse one too many, since together they reveal as much as coefficients.

        With as many folds in all as there are rows, sums over folds are single rows; models with other missing values
        divide nearly the same rows.
        """
        known = self.spent.divisions.setdefault(str(rows), {})
        if key in known:
            return
        so_far = sum(sum(found.values()) for found in self.spent.divisions.values())
        too_many = so_far + folds - 1 > self.policy.parameters * rows
        self.policy.refuse_if(too_many, "divided", f"{so_far} folds, {rows} rows")
        known[key] = folds - 1
        self.write()

    def fix_times(self, column: str, times: str) -> None:
        """Note the times at which a column of times is sent, the first time; refuse others.

        Counts up to two times differ by the rows between them, so that a search by times finds each row's.
        """
        known = self.spent.times.setdefault(column, times)
        self.policy.refuse_if(known != times, "fixed")
        self.write()

    def note_fitted(self, design: str, x: str) -> None:
        """Note coefficients of which standard errors are asked: the latest ones of a design."""
        known = self.spent.fitted.setdefault(design, [])
        if x not in known:
            known.append(x)
            del known[:-FITS]
            self.write()

    def note_knots(self, column: str, knots: list[float]) -> None:
        """Note all knots of splines of a column that were used."""
        if self.spent.knots.get(column) != knots:
            self.spent.knots[column] = knots
            self.write()

    def note_columns(self, names: list[str]) -> None:
        """Note columns that were used."""
        if names:
            self.spent.columns += names
            self.write()

    def note_condition(self, condition: str) -> None:
        """Note the condition of rows that are answered about."""
        if condition not in self.spent.conditions:
            self.spent.conditions.append(condition)
            self.write()

    def compare_data(self, run: str, data: str) -> None:
        """Refuse to continue a run that was begun with other data; write down first what could not be before."""
        if self._unwritten:
            self.write()
        if self.spent.data.get(run, data) != data:
            raise refuse("changed")
        self.spent.data[run] = data
        if len(self.spent.data) > RUNS:
            self.spent.data.pop(next(iter(self.spent.data)))

    def count_refusal(self) -> bool:
        """Count a refusal, and return whether there were too many: refusals reveal something of the data as well."""
        self.spent.refusals += 1
        self.write()
        return self.policy.goes_by("budget") and self.spent.refusals >= self.policy.refusals

    def forgive(self) -> None:
        """Forget what was refused: a person has looked at it."""
        self.spent.refusals = 0
        self.write()

    def write(self, *, ahead: bool = True) -> None:
        """Write the file, with some points ahead unless this is the end."""
        self._unwritten = True
        written = {name: count + ahead * AHEAD for name, count in self.spent.points.items()}
        tree: dict[str, Any] = dataclasses.asdict(self.spent) | {"format": FORMAT, "points": written}
        text = json.dumps(tree).encode()
        files.write_sealed(self.path, lambda file: file.write(text))
        self._written, self._unwritten = written, False
