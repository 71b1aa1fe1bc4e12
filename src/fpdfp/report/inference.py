"""The coefficients of a fit with their errors, and how much sites differ, as the page shows them."""

from __future__ import annotations

from typing import Any

from fpdfp.report.plain import as_list, mapping, number, numbers, text

#: So many rows of a table, and sites of a coefficient, are shown at most.
MOST_ROWS, MOST_SITES = 400, 200


def clean_summary(tree: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a summary."""
    names = [text(name) for name in as_list(tree.get("names"))[:MOST_ROWS]]
    columns = [
        {"name": text(name), "values": values}
        for name, found in mapping(tree.get("columns")).items()
        if len(values := numbers(found, MOST_ROWS)) == len(names)
    ]
    return {
        "title": text(tree.get("title")),
        "formula": text(tree.get("formula")),
        "facts": [[text(one) for one in fact] for fact in as_list(tree.get("facts")) if _is_pair(fact)],
        "notes": [text(note) for note in as_list(tree.get("notes"))],
        "level": number(tree.get("level")),
        "refused": tree.get("refused") is True,
        "names": names,
        "columns": columns,
        "of": number(tree.get("of")) or len(names),
        "sites": [
            [text(site[0]), number(site[1]), number(site[2])]
            for site in as_list(tree.get("sites"))[:MOST_SITES]
            if isinstance(site, list) and len(site) == 3
        ],
    }


def clean_heterogeneity(tree: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of coefficients at several sites."""
    level = number(tree.get("level"))
    found = [_coefficient(mapping(one)) for one in as_list(tree.get("coefficients"))[:MOST_ROWS]]
    return {
        "level": 0.95 if level is None else level,
        "exponentiate": tree.get("exponentiate") is True,
        "coefficients": found,
        "of": number(tree.get("of")) or len(found),
    }


def _coefficient(one: dict[str, Any]) -> dict[str, Any]:
    sites = [
        [text(site[0]), *numbers(site[1:], 4)]
        for site in as_list(one.get("sites"))[:MOST_SITES]
        if isinstance(site, list) and len(site) == 5
    ]
    return {
        "name": text(one.get("name")),
        **{key: number(one.get(key)) for key in ("q", "df", "p", "i_squared", "tau_squared")},
        "sites": sites,
        "sites_in_all": number(one.get("sites_in_all")) or len(sites),
        **{key: numbers(one.get(key), 3) for key in ("fixed", "random", "prediction")},
    }


def _is_pair(fact: Any) -> bool:
    return isinstance(fact, list) and len(fact) == 2
