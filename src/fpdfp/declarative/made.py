"""Methods, compressors and what they take, made by name from settings; what is accepted follows from the classes."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from fpdfp import compress, methods, steps
from fpdfp.compress import Compressor
from fpdfp.declarative.table import REQUIRED, Table
from fpdfp.methods import InnerSolve, Method


def _of(module: ModuleType, base: type) -> dict[str, type]:
    """Return the classes of a module that are of a kind and can be made."""
    found = {name: one for name, one in vars(module).items() if isinstance(one, type) and issubclass(one, base)}
    return {name: one for name, one in sorted(found.items()) if not inspect.isabstract(one) and name in _public(module)}


def _public(module: ModuleType) -> list[str]:
    return list(getattr(module, "__all__", vars(module)))


METHODS = _of(methods, Method)
COMPRESSORS = _of(compress, Compressor)
#: What a parameter may be that is a table: a schedule of steps, or how exactly something is solved.
INNER: dict[str, type] = {
    **{name: one for name, one in _of(steps, steps.Schedule).items() if name != "Automatic"},
    "InnerSolve": InnerSolve,
}


def parameters(kind: type) -> dict[str, Any]:
    """Return what a class takes and the default of each; a field that it does not show is its own affair."""
    fields = dataclasses.fields(kind)
    return {field.name: field.default for field in fields if field.init and field.repr}


def check(table: Table, classes: Mapping[str, type], words: tuple[str, ...]) -> Any:
    """Check a section that names a class, or one of some words; keep all its parameters, and return what was made.

    A word is returned as it is.
    """
    kind = table.text("kind", words[0] if words else REQUIRED, [*words, *classes])
    if kind in words:
        table.accept(["kind"])
        return kind
    accepted = parameters(classes[kind])
    table.accept(["kind", *accepted], what="parameter")
    given = {}
    for name, default in accepted.items():
        if name in table.values:
            given[name] = _value(table, name)
        elif default is dataclasses.MISSING:
            table.document.fail((*table.path, name), f"{table.title} must have the key {name!r} for {kind}")
    try:
        made = classes[kind](**given)
    except (TypeError, ValueError) as error:
        table.document.fail((*table.path, _named(str(error), accepted)), f"{'.'.join(table.path)}: {error}")
    table.resolved.update(plain(made))
    return made


def _named(message: str, accepted: Mapping[str, Any]) -> str:
    """Return the parameter that an error is about: its first word."""
    first = re.match(r"\w+", message)
    return first[0] if first is not None and first[0] in accepted else "kind"


def _value(table: Table, name: str) -> Any:
    value = table.values[name]
    if isinstance(value, dict):
        return check(Table(table.document, (*table.path, name), value), INNER, ())
    if isinstance(value, list):
        return tuple(value)
    return None if value == "none" else value


def plain(made: Any) -> dict[str, Any]:
    """Return the settings that make an object, all its parameters written out.

    >>> plain(compress.TopK(k=3))["k"]
    3
    """
    return {
        "kind": type(made).__name__,
        **{name: _plain(getattr(made, name)) for name in parameters(type(made))},
    }


def _plain(value: Any) -> Any:
    if value is None:
        return "none"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(value)
    return list(value) if isinstance(value, tuple) else value


def remake(settings: Mapping[str, Any], classes: Mapping[str, type]) -> Any:
    """Make what checked settings say."""
    given = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            given[name] = remake(value, INNER)
        elif name != "kind":
            given[name] = tuple(value) if isinstance(value, list) else None if value == "none" else value
    return classes[settings["kind"]](**given)
