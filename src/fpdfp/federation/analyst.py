"""An analyst's view of a federation: its sites, what they have, and models of what they have together."""

from __future__ import annotations

import copy
import datetime
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from fpdfp import _checks
from fpdfp.cohorts.plausible import compare_answers
from fpdfp.cohorts.question import Question
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.federation import keys
from fpdfp.federation.cohort import TableCohort
from fpdfp.federation.connection import Connection, Usage
from fpdfp.federation.engine import Asking, FederationEngine, Link, gather_answers
from fpdfp.federation.keys import Identity
from fpdfp.federation.questions import ModelSpec, SchemaQuestion, dump, read_answer, write
from fpdfp.federation.text import log, read_name
from fpdfp.losses.base import Losses
from fpdfp.problem import Problem
from fpdfp.runs.recorder import Recorder, linear_model
from fpdfp.traffic import count_exchange

if TYPE_CHECKING:
    from fpdfp.federation.columns import Schemas
    from fpdfp.federation.private import Privacy


class SiteStatus(NamedTuple):
    """The state of a site at the hub."""

    name: str
    state: str
    online: bool
    since: datetime.datetime | None
    software: str | None
    certificate_ends: datetime.datetime | None
    clock: str | None

    def __str__(self) -> str:
        if not self.online:
            return f"{self.name}: {'not connected' if self.state == 'joined' else self.state}"
        clock = f", its clock is {self.clock}" if self.clock else ""
        ends = f", certificate until {self.certificate_ends:%Y-%m-%d}" if self.certificate_ends else ""
        return f"{self.name}: online since {self.since:%Y-%m-%d %H:%M} UTC, release {self.software}{ends}{clock}"


class Status(NamedTuple):
    """The state of all sites at the hub, with certificates that end soon."""

    study: str
    software: str
    sites: list[SiteStatus]
    warnings: list[str]

    def __str__(self) -> str:
        return "\n".join([f"{self.study}, release {self.software}", *map(str, self.sites), *self.warnings])


class Federation(TableCohort):
    """The sites of a study, for anyone who may ask them: the coordinator, or an analyst elsewhere.

    ::

        federation = fpdfp.Federation("study")
        model = fpdfp.FederatedLogisticRegression(fpdfp.Graph(0.01)).fit(federation, "died ~ age + C(stage)")

    Parameters
    ----------
    study
        The folder of a study, or the one that ``fpdfp federation join`` has made of an analyst's invitation.
    sites
        The names of the sites to ask, in the order in which their sums are added; by default all of the study, sorted,
        as ``groups=`` sorts them in one table.
    deadline
        Seconds after which a round continues without the sites that have not answered, if there are ``min_sites``
        others.
    min_sites
        How many sites a round needs; by default all.
    patience
        Seconds after which a run gives up that still has too few.
    norm_bound
        The largest norm that a field of a reply may have; longer ones are shortened. ``"auto"`` counts a reply as
        absent that is far larger than all it can be compared with; None for no bound.
    run
        The name of the folder of the next run, under ``runs``; by default the time. Where a run of this name was
        interrupted, the same fit continues with it, to the same bits.
    privacy
        For sites of the level ``private``: what each fit may cost, and what is public (:class:`fpdfp.Privacy`).
    """

    privacy: Privacy | None = None

    def __init__(
        self,
        study: Path | str,
        *,
        sites: Sequence[str] | None = None,
        deadline: float = 60.0,
        min_sites: int | None = None,
        patience: float = 3600.0,
        norm_bound: float | Literal["auto"] | None = "auto",
        run: str | None = None,
        privacy: Privacy | None = None,
    ) -> None:
        inner = Path(study) / "analyst"
        self.identity = Identity(inner if (inner / "identity.toml").is_file() else Path(study))
        if self.identity.about.role != "analyst":
            raise ArgumentError("study", f"must be the folder of a study or an analyst, but {study} belongs to a site")
        self.privacy: Privacy | None = privacy
        self._settle(Connection(self.identity), Path(study), deadline, min_sites, patience, norm_bound, run)
        self._chosen = None if sites is None else list(sites)

    def _settle(
        self, link: Link, folder: Path, deadline: float, min_sites: int | None, patience: float,
        norm_bound: float | Literal["auto"] | None, run: str | None,
    ) -> None:  # fmt: skip
        """Keep the connection to the sites, and how they are asked."""
        self.run = None if run is None else read_name("run", run)
        self.folder = folder
        self._deadline = _checks.real("deadline", deadline, positive=True)
        self._patience = _checks.real("patience", patience, positive=True)
        self._min_sites = None if min_sites is None else _checks.integer("min_sites", min_sites, at_least=1)
        self._norm_bound = norm_bound
        self._link, self._asking = link, Asking(link)
        self._names: list[str] | None = None
        self._level: str | None = None
        self._engine: FederationEngine | None = None

    def __repr__(self) -> str:
        return f"Federation({str(self.folder)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection to the hub; it is made again when it is needed."""
        self._link.close()

    @property
    def names(self) -> list[str]:
        """The sites that are asked, in the order in which their sums are added."""
        if self._names is None:
            known = [site.name for site in self.status().sites]
            unknown = [name for name in self._chosen or () if name not in known]
            if unknown or (self._chosen is not None and len(set(self._chosen)) < len(self._chosen)):
                raise ArgumentError("sites", f"must be different ones of {', '.join(known)}, got {self._chosen}")
            self._choose(sorted(known) if self._chosen is None else self._chosen)
        return list(self._names or ())

    def _choose(self, names: list[str]) -> None:
        """Ask these sites from now on."""
        self._names = names
        self._asking.sites = tuple(names)

    def without(self, sites: Collection[str]) -> Federation:
        """Return the federation without some sites, over the same connection."""
        made = copy.copy(self)
        made._asking, made._engine = Asking(self._link), None
        made._choose([name for name in self.names if name not in sites])
        made._whole = None if self._whole is None else self._whole.without(sites)
        made.edges = self.edges
        return made

    def _take(self, condition: str) -> Federation:
        made = copy.copy(self)
        made._engine, made.edges = None, self.edges
        return made

    def propose(self, name: str | None = None, definition: str | None = None) -> Any:
        """Propose a variable to all sites, and return a data frame with the state of each proposal at each site.

        Comparisons, arithmetic between columns, knots of splines and definitions may be used only where a site has
        approved them: ``federation.propose("elderly", "age >= 65")``, and then ``"died ~ elderly"`` or
        ``federation.filter("elderly")`` once all say yes. Definitions make a column: ``cut(age, [40, 60])`` its
        intervals, ``recode(smoking, {"former": "yes"})`` other values, ``years(birth, visit)`` a duration (also
        ``months`` and ``days``), ``convert(weight, "kg", {"lb": 0.4536})`` one unit. Formulas have them by name, or as
        they were proposed. Without a name nothing is proposed.
        """
        import pandas

        tree = {"kind": "propose", "name": name, "text": definition}
        came = gather_answers(self._asking, secrets.token_hex(8), dict.fromkeys(self.names, tree), self._patience)
        return pandas.DataFrame(came).rename_axis("variable")

    def exchange(self, run: str, trees: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Ask sites something that is needed of every one of them; return their replies by name.

        Parameters
        ----------
        run
            The name of the run.
        trees
            What each site is asked.
        """
        return gather_answers(self._asking, run, trees, self._patience)

    def budget(self) -> Any:
        """Return a data frame with what each site has spent of its budget, and what is left, in analyses.

        An analysis is a model, a curve, a test, or a path or cross-validation; what belongs to one, such as standard
        errors, a certificate or an evaluation, is free. Sites with ``level = "private"`` say it in ε.
        """
        import pandas

        trees = {name: {"kind": "budget"} for name in self.names}
        came = gather_answers(self._asking, secrets.token_hex(8), trees, self._patience)
        table = pandas.DataFrame(came).T.infer_objects()
        if "left" not in table:
            table["left"] = table["allowed"] - table["spent"]
        return table.rename_axis("site")

    @property
    def engine(self) -> FederationEngine | None:
        """The transport of the latest losses; None at first."""
        return self._engine

    @property
    def usage(self) -> Usage:
        """The traffic and waiting time so far."""
        return self._link.usage

    @property
    def latency(self) -> float | None:
        """Seconds that a short message takes there and back, as measured; None before there was one."""
        return self._link.measured.latency

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second, as measured; None before there was a long message."""
        return self._link.measured.bandwidth

    def status(self) -> Status:
        """Return which sites are online, and which certificates end soon."""
        said = self._link.status()
        sites = []
        for site in said["sites"]:
            since, ends = site.get("since"), site.get("ends")
            sites.append(
                SiteStatus(
                    name=read_name("site", site["name"]),
                    state=str(site["state"]),
                    online=bool(site["online"]),
                    since=None if since is None else datetime.datetime.fromtimestamp(since, datetime.UTC),
                    software=site.get("software"),
                    certificate_ends=None if ends is None else datetime.datetime.fromisoformat(ends),
                    clock=site.get("clock"),
                )
            )
        return Status(said["study"], said["software"], sites, [*said["warnings"], *self._warnings()])

    def _warnings(self) -> list[str]:
        own = self.identity.warn()
        return [own] if own else []

    def describe(self) -> Schemas:
        """Return the columns of all sites side by side: types, units, levels, as far as each site's policy allows."""
        from fpdfp.federation.columns import Schemas

        for line in self.status().warnings:
            log.warning("%s", line)
        return Schemas(self.names, self.ask_each(SchemaQuestion()).answers)

    def at_level(self) -> TableCohort:
        if self._level is None:
            count_exchange("level")
            trees = {name: {"kind": "budget"} for name in self.names}
            came = gather_answers(self._asking, secrets.token_hex(8), trees, self._patience)
            levels = {name: str(one.get("level", "filter")) for name, one in came.items()}
            if len(set(levels.values())) > 1:
                each = ", ".join(f"{level} at {name}" for name, level in levels.items())
                raise ArgumentError("federation", f"must have sites of one level, got {each}")
            self._level = next(iter(levels.values()))
        if self._level == "filter":
            return self
        if self._level == "private":
            from fpdfp.federation.private import PrivateCohort

            return PrivateCohort(self, self.privacy)
        from fpdfp.federation.masked import MaskedCohort

        if self.rows:
            raise ArgumentError("condition", f"must be none: sites of the level {self._level} answer about all rows")
        return MaskedCohort(self)

    def gather(self, question: Question, names: Sequence[str], *, each: bool) -> list[Any]:
        rows = {"rows": self.rows} if self.rows else {}
        trees = dict.fromkeys(names, write(question) | ({"each": True} if each else {}) | rows)
        came = gather_answers(self._asking, secrets.token_hex(8), trees, self._patience)
        answers = []
        for name in names:
            try:
                answers.append(read_answer(question, came[name]))
            except MessageError as error:
                raise MessageError(f"the answer of {name} cannot be used: {error}") from None
        compare_answers(names, answers)
        return answers

    def losses(self, spec: ModelSpec) -> Losses:
        """Return the losses of a model, a client for each site, in their order; the data stays where it is."""
        self._engine = FederationEngine(
            self._asking,
            self.names,
            dump(spec),
            deadline=self._deadline,
            min_clients=self._min_sites,
            patience=self._patience,
            norm_bound=self._norm_bound,
            rows=self.rows,
        )
        names = [*spec.design.names, *(["Intercept"] if spec.intercept else [])]
        model = linear_model(
            names, intercept=len(names) - 1 if spec.intercept else None, classes=spec.classes or None, standardized=None
        )
        self._engine.recorder = lambda problem: self.record(problem, model=model)
        return self._engine.losses()

    def record(self, problem: Problem, **options: Any) -> Recorder:
        """Return what writes the folder of a run, under ``runs`` in the study's folder; fits make one themselves.

        Parameters
        ----------
        problem
            The problem, with losses of this federation.
        options
            Those of :class:`fpdfp.runs.Recorder`.
        """
        name = self.run or datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S-%f")[:-3]
        keys.make_private_folder(self.folder / "runs")
        return Recorder(self.folder / "runs" / name, problem, **options)
