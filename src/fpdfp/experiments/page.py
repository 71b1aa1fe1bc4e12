"""The claims in words: the page that ``fpdfp reproduce`` writes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fpdfp.experiments import ties
from fpdfp.experiments.cases import LAST
from fpdfp.experiments.graph_guided import FINALISTS

OWN = """
## Each case tuned for itself

As the paper has it: the same grid and stages for each case alone. Where steps differ, differences between cases are
not those of levels and clients alone.

{table}
"""

NO_STUDIES = """
Cases tuned each for itself, and every step of the grid for several numbers of levels, were not run for {name}: they
multiply the cost. [a9a](../a9a/claims.md) has them.
"""

HEADER = ("step", "relative error at the end", "test loss", "accuracy", "Mbit up, in all")


def fill(template: str, summary: Mapping[str, Any], figures: Sequence[str], **more: Any) -> str:
    """Return a page: a template beside this file, filled with what the results say and more."""
    text = Path(__file__).with_name(f"{template}.md").read_text(encoding="utf-8")
    shown = {
        "claims": "\n".join(map(item, summary.get("claims", ()))),
        "figures": "\n\n".join(f"![{one}]({one}.png)" for one in figures),
        "confidence": 100 * ties.CONFIDENCE,
    }
    return text.format(**{**summary, **shown, **more})


def publish(output: Path, summary: Mapping[str, Any], text: str, clock: Any = "", indent: int | None = 1) -> None:
    """Write numbers and page into a folder, and print the verdicts."""
    from rich.console import Console

    numbers = json.dumps(summary, indent=indent, ensure_ascii=False)
    (output / "results.json").write_text(numbers + "\n", encoding="utf-8")
    (output / "claims.md").write_text(text, encoding="utf-8")
    console = Console()
    for claim in summary["claims"]:
        console.print(f"[bold]{claim['verdict']}[/bold]: {claim['claim']}")
    took = f"{clock}\n" if str(clock) else ""
    console.print(f"{took}results, figures and claims: {output}", highlight=False)


def write(name: str, summary: dict[str, Any], figures: Sequence[str]) -> str:
    """Return the page of a task in Markdown, from its results."""
    tuning, rounds, seeds, horizons = (summary[name] for name in ("tuning", "rounds", "seeds", "horizons"))
    own = summary["each_tuned_for_itself"]
    return fill(
        "graph_guided",
        summary,
        figures,
        name=name,
        gammas=braces(tuning["gamma0_times_L"]),
        decays=braces(tuning["c"]),
        last_part=100 * LAST,
        finalists=FINALISTS,
        count=len(seeds),
        first=seeds[0],
        last=seeds[-1],
        table=table(summary["cases"], rounds),
        own=OWN.format(table=table(own, rounds)) if own else NO_STUDIES.format(name=name),
        horizons=transpose("case", [one["error"] for one in horizons], horizons, "{:.2e}"),
        verdicts=transpose("claim", [one["verdicts"] for one in horizons], horizons, "{}"),
        verdict_table=verdict_table(summary["claims"], bool(own)),
    )


def rows(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *cells])


def table(cases: Sequence[dict[str, Any]], rounds: int) -> str:
    """The table of cases."""
    return rows([f"case ({rounds} rounds unless said)", *HEADER], list(map(row, cases)))


def transpose(what: str, columns: Sequence[dict[str, Any]], horizons: Sequence[dict[str, Any]], form: str) -> str:
    """A table with a column for each horizon."""
    header = [what, *(f"{one['rounds']:,} rounds" for one in horizons)]
    return rows(header, [[name, *(form.format(column[name]) for column in columns)] for name in columns[0]])


def verdict_table(claims: Sequence[dict[str, str]], own: bool) -> str:
    """The claims with their verdicts; with a column for cases tuned each for itself, if there are any."""
    header = ["claim", "one step for all", *(["each tuned for itself"] if own else [])]
    return rows(header, [[one["claim"], one["verdict"], *([one["own"]] if own else [])] for one in claims])


def braces(values: Sequence[float]) -> str:
    """A set of numbers."""
    return "{" + ", ".join(f"{value:g}" for value in values) + "}"


def row(case: dict[str, Any]) -> list[str]:
    """A line of the table."""
    sent = case["bits_up"]["median"][-1] / 1e6
    if "gamma0_times_L" in case:
        end = " (end of the grid)" if case["at_the_end_of_the_grid"] else ""
        label, step = case["label"], f"{case['gamma0_times_L']:g}/L, c = {case['c']:g}{end}"
        bits = f"{sent:,.1f}"
    else:
        label, step = f"{case['label']}, {case['round'][-1]} rounds", "default settings"
        once = case["bits_once_up"] / 1e6
        bits = f"{sent + once:,.1f}, of which {once:,.1f} once"
    ended = f"{statistics.median(case['error_at_the_end']):.2e}"
    test_loss, accuracy = (case[name]["median"][-1] for name in ("test_loss", "accuracy"))
    return [label, step, ended, f"{test_loss:.5f}", f"{100 * accuracy:.2f} %", bits]


def item(claim: dict[str, str]) -> str:
    """A claim, its verdict and its numbers."""
    return f"* **{claim['verdict']}**: {claim['claim']} {upper(claim['numbers'])}"


def upper(text: str) -> str:
    """A text that begins with a capital letter."""
    return text[0].upper() + text[1:]
