"""The page itself: its parts, which are files of the package, joined into one text."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
from importlib import resources
from typing import Any

from fpdfp.report.reader import strict_json

SCRIPTS = (
    "dom.js", "format.js", "scales.js", "series.js", "chart.js", "runs.js", "curves.js", "settings.js", "clients.js",
    "sites.js", "model.js", "sections.js", "forest.js", "inference.js", "selection.js", "evaluation.js", "learning.js",
    "slices.js", "main.js",
)  # fmt: skip


@functools.cache
def part(name: str) -> str:
    """Return a file of the page."""
    return resources.files("fpdfp.report").joinpath("page", name).read_text(encoding="utf-8")


@functools.cache
def script() -> str:
    """Return all the program of the page, in a scope of its own."""
    return '(() => {\n"use strict";\n' + "\n".join(map(part, SCRIPTS)) + "})();\n"


def policy(*, live: bool) -> str:
    """Return the content security policy: this script, this style, and no network but for the data of a live page."""
    rules = [
        "default-src 'none'", f"script-src 'sha256-{_digest(script())}'",
        f"style-src 'sha256-{_digest(part('style.css'))}'", "img-src data:", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    return "; ".join([*rules, "connect-src 'self'"] if live else rules)


def page(data: dict[str, Any], volumes: dict[str, Any] | None, *, live: bool) -> str:
    """Return the whole page; names and texts of runs are in it as JSON alone, or escaped."""
    pieces = {
        "policy": html.escape(policy(live=live)),
        "title": html.escape(data["title"]),
        "style": part("style.css"),
        "data": strict_json({**data, "live": live}),
        "volumes": strict_json(volumes),
        "script": script(),
    }
    before, *rest = part("page.html").split("{{")
    text = [before]
    for piece in rest:
        name, after = piece.split("}}", 1)
        text += [pieces[name.strip()], after]
    return "".join(text)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
