"""One run in the form that the page needs: plain texts, numbers and lists, for any contents of its folder."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fpdfp._sections import SECTIONS
from fpdfp._typing import Array
from fpdfp.engines.result import COLUMNS, INNER, SENT, History
from fpdfp.errors import RunFolderError
from fpdfp.report.sections import as_list, mapping, number, read_section, text, texts
from fpdfp.runs import SavedRun, load
from fpdfp.runs.folder import relative_error
from fpdfp.traffic import KINDS, Traffic

#: This many evaluations are drawn; of more, every second or third and so on.
MOST_ROWS = 2000
#: This many clients are drawn; of more, some of all sizes.
MOST_CLIENTS = 400
#: This many features are listed, those with the largest coefficients, and this many edges drawn, the heaviest.
MOST_FEATURES = 400
MOST_EDGES = 2000
#: Coefficients this small relative to the largest count as zero, which iterates approach but do not reach.
NEGLIGIBLE = 1e-8
TOTALS = ("rounds", "planned_rounds", *Traffic().totals, "seconds", "elapsed", "seed")
#: What is said of a site: how often it was asked and answered, and what that took.
VISITS = ("asked", "answered", "absent", "refused", "healed", "waited", "bytes_down", "bytes_up")
CERTIFICATE = ("gap", "relative_gap", "primal", "dual", "violation")

T = TypeVar("T")


def describe(folder: Path) -> dict[str, Any]:
    """Read a run folder; missing or damaged parts are null, and ``trouble`` describes them."""
    trouble: list[str] = []
    run = _try(lambda: load(folder), trouble)
    if run is None:
        run = SavedRun(folder, {})
    info = run.info
    history = _try(lambda: run.history, trouble) or History()
    columns = _columns(history)
    reference, objective = number(info.get("reference")), number(info.get("objective"))
    if objective is None and columns["objective"]:
        objective = columns["objective"][-1]
    metrics = [name for name in columns if name not in {*COLUMNS, *INNER}]
    step = max(1, math.ceil(history.rows / MOST_ROWS))
    # Seeds of one setting are one series, and have one name.
    name = text(info.get("name")).removesuffix(f", seed {info.get('seed')}") or folder.resolve().name
    settings = _settings(_try(lambda: run.config, trouble) or {})
    return {
        "name": name,
        "series": _series(folder, name, info, settings),
        "settings": {key: _show(value) for key, value in settings.items()},
        "kind": text(info.get("kind")),
        "status": text(info.get("status")) or "unknown",
        "message": text(info.get("message")),
        "method": text(info.get("method")),
        "messages": texts(info.get("messages")),
        "created": text(info.get("created")),
        "ended": text(info.get("ended")),
        "objective": objective,
        "reference": reference,
        "error": number(relative_error(objective, reference)),
        **{name: number(info.get(name)) for name in TOTALS},
        "traffic": _traffic(info.get("traffic")),
        "ends": {metric: columns[metric][-1] for metric in metrics if columns[metric]},
        "certificate": _certificate(info.get("certificate")),
        "versions": {str(name): text(version) for name, version in mapping(info.get("versions")).items()},
        "clients": _clients(info),
        "sites": [
            {"name": text(site.get("name")), "last_refusal": text(site.get("last_refusal"))}
            | {name: number(site.get(name)) for name in VISITS}
            for site in as_list(info.get("sites"))
            if isinstance(site, dict)
        ],
        "columns": {
            **{name: columns[name] for name in ("round", "objective", *SENT, "seconds", *metrics)},
            "error": [number(relative_error(value, reference)) for value in columns["objective"]],
        },
        "metrics": metrics,
        "evaluations": history.rows,
        "every": step,
        "model": _try(lambda: model_of(run), trouble),
        **{name: _try(functools.partial(read_section, folder, name), trouble) for name in SECTIONS},
        # Reports are shared, so they do not contain paths of this machine.
        "trouble": [one.replace(f"{folder}{os.sep}", "") for one in trouble],
    }


def _settings(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return settings by dotted keys, all but the seed and the name."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found |= _settings(value, f"{before}{key}.")
        elif f"{before}{key}" not in ("name", "run.seed", "run.seeds"):
            found[f"{before}{key}"] = value
    return found


def _series(folder: Path, name: str, info: dict[str, Any], settings: dict[str, Any]) -> str:
    """Return a digest of all but the seed: runs are seeds of one series where folder, problem and settings agree."""
    known = {key: info.get(key) for key in ("method", "messages", "planned_rounds", "kind", "problem", "clients")}
    whole = [str(folder.resolve().parent), name, known, settings]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _show(value: Any) -> str:
    """Return a setting as text; of a path only the name of the file, since reports are shared."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(_show, value)) or "none"
    if isinstance(value, str) and Path(value).is_absolute():
        return text(Path(value).name)
    return f"{value:g}" if isinstance(value, float) else text(str(value))


def _try(read: Callable[[], T], trouble: list[str]) -> T | None:
    try:
        return read()
    except (RunFolderError, ImportError, ValueError) as error:
        trouble.append(text(str(error)))
        return None


def _columns(history: History) -> dict[str, list[float | int | None]]:
    """The table, thinned where it is long; first and last row are kept."""
    rows = history.rows
    step = max(1, math.ceil(rows / MOST_ROWS))
    kept = np.unique(np.append(np.arange(0, rows, step), rows - 1)) if rows else np.arange(0)
    whole = {name: _numbers(history[name], kept) for name in history if len(history[name]) == rows}
    return {name: whole.get(name, [None] * len(kept)) for name in (*COLUMNS, *whole)}


def _numbers(values: Array, kept: Array) -> list[float | int | None]:
    return [number(value) for value in values[kept].tolist()]


def _traffic(found: Any) -> list[dict[str, Any]]:
    """The messages of a run, a line for each kind that was sent."""
    lines = []
    for kind, meaning in KINDS.items():
        up, down = ([*map(number, as_list(mapping(found).get(kind))), None, None])[:2]
        if up or down:
            lines.append({"kind": kind, "meaning": meaning, "up": up, "down": down})
    return lines


def _certificate(found: Any) -> dict[str, float | None] | None:
    return {name: number(found.get(name)) for name in CERTIFICATE} if isinstance(found, dict) else None


def _clients(info: dict[str, Any]) -> dict[str, Any] | None:
    """The clients' data: names, samples and labels, in columns."""
    clients = [client for client in as_list(info.get("clients")) if isinstance(client, dict)]
    if not clients:
        return None
    described = len(clients)
    if described > MOST_CLIENTS:
        by_size = sorted(range(described), key=lambda i: number(clients[i].get("samples")) or 0)
        chosen = {by_size[i] for i in np.linspace(0, described - 1, MOST_CLIENTS).astype(int).tolist()}
        clients = [clients[i] for i in sorted(chosen)]
    labels = sorted({str(label) for client in clients for label in mapping(client.get("labels"))})
    return {
        "names": [text(client.get("name")) or str(i) for i, client in enumerate(clients)],
        "samples": [number(client.get("samples")) or 0 for client in clients],
        "shares": [number(client.get("share")) for client in clients],
        "labels": labels,
        "counts": [[number(mapping(client.get("labels")).get(label)) or 0 for label in labels] for client in clients],
        "of": number(info.get("clients_in_all")) or described,
    }


def model_of(run: SavedRun) -> dict[str, Any] | None:
    """Return names, coefficients and graph of a linear model; None where the folder does not have them."""
    model, x = run.model, run.x
    if not isinstance(model, dict) or x is None:
        return None
    features = model.get("features")
    if not isinstance(features, list) or not features or x.size % len(features) or x.dtype.kind != "f":
        raise ValueError(f"{run.path / 'model.json'} names other features than x has")
    # A row for each class; binary and least-squares models have one.
    rows = np.where(np.isfinite(x), x, 0.0).reshape(-1, len(features))
    scales, standardized = _scales(model, len(features)), model.get("standardized")
    if scales is not None:
        rows, standardized = rows * scales, True
    rows[np.abs(rows) <= NEGLIGIBLE * np.abs(rows).max()] = 0.0
    kept = _shown(rows, model.get("intercept"))
    places = {int(feature): place for place, feature in enumerate(kept)}
    edges = _edges(model.get("edges"), places)
    classes = model.get("classes")
    names = [str(one) for one in classes] if isinstance(classes, list) else []
    return {
        "features": [str(features[i]) for i in kept],
        "values": rows[:, kept].tolist(),
        "zeros": [int(np.count_nonzero(np.delete(row, _intercept(model, len(features))) == 0)) for row in rows],
        "of": len(features) - len(_intercept(model, len(features))),
        "intercepts": rows[:, _intercept(model, len(features))].ravel().tolist(),
        "classes": names if len(names) == len(rows) else [str(i) for i in range(len(rows))] if len(rows) > 1 else [],
        # A single row separates two classes: that of negative values and that of positive ones.
        "between": names if len(rows) == 1 and len(names) == 2 else [],
        "standardized": standardized if isinstance(standardized, bool) else None,
        "edges": edges,
        "edges_in_all": len(_valid(model.get("edges"), len(features))),
        "order": circle_order(len(kept), edges),
    }


def circle_order(count: int, edges: list[list[float]]) -> list[int]:
    """Return an order for nodes on a circle in which neighbours are near: by reverse Cuthill-McKee, loners last.

    >>> circle_order(4, [[0, 2, 1.0], [2, 3, 1.0]])
    [3, 2, 0, 1]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ends = np.array([[i, j] for i, j, _ in edges], dtype=np.int32).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    order = reverse_cuthill_mckee((graph + graph.T).tocsr(), symmetric_mode=True).tolist()
    joined = set(ends.ravel().tolist())
    return [i for i in order if i in joined] + [i for i in range(count) if i not in joined]


def _intercept(model: dict[str, Any], count: int) -> list[int]:
    """The column of the intercept, if there is one."""
    found = model.get("intercept")
    return [found] if isinstance(found, int) and 0 <= found < count else []


def _scales(model: dict[str, Any], count: int) -> Array | None:
    """The standard deviations of the features of coefficients per unit, 1 for the intercept; None if unknown."""
    found = model.get("scales")
    if model.get("standardized") is not False or not isinstance(found, list) or len(found) != count:
        return None
    if not all(isinstance(one, int | float) and 0.0 < one < np.inf for one in found):
        return None
    return np.array(found, dtype=np.float64)


def _shown(rows: Array, intercept: Any) -> Array:
    """The features to show: all but the intercept, or those with the largest coefficients."""
    size = np.abs(rows).max(axis=0)
    columns = np.array([i for i in range(rows.shape[1]) if i != intercept], dtype=np.int64)
    if len(columns) > MOST_FEATURES:
        columns = np.sort(columns[np.argsort(-size[columns], kind="stable")[:MOST_FEATURES]])
    return columns


def _valid(edges: Any, count: int) -> list[list[float]]:
    """The edges that join two features."""
    return [
        [edge[0], edge[1], float(edge[2])]
        for edge in (edges if isinstance(edges, list) else [])
        if isinstance(edge, list)
        and len(edge) == 3
        and all(isinstance(end, int) and 0 <= end < count for end in edge[:2])
        and edge[0] != edge[1]
        and isinstance(edge[2], int | float)
        and np.isfinite(edge[2])
    ]


def _edges(edges: Any, places: dict[int, int]) -> list[list[float]]:
    """The heaviest edges among the features that are shown, by their places."""
    count = max(places, default=-1) + 1
    found = [[places[int(i)], places[int(j)], w] for i, j, w in _valid(edges, count) if i in places and j in places]
    return sorted(found, key=lambda edge: -abs(edge[2]))[:MOST_EDGES]
