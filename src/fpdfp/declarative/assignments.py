"""Settings from the command line: KEY=VALUE."""

from __future__ import annotations

import tomllib
from typing import Any

from fpdfp.declarative.document import Document, Key, SettingsError, split_key


def assigned(document: Document, assignments: list[str]) -> Document:
    """Return a document with other values for some keys.

    A value is TOML; what is not is a text, so that quotes can be left out: ``method.kind=FedAvg``.
    """
    changes: dict[Key, Any] = {}
    places: dict[Key, str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        key = split_key(name.strip())
        if not equals or not key:
            raise SettingsError(f"--set {text}: must be KEY=VALUE, such as run.rounds=50")
        changes[key] = _value(value.strip())
        places[key] = f"--set {text}"
    return document.changed(changes, places)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
