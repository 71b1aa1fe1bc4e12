"""Methods, compressors and what they take, made by name from settings; what is accepted follows from their fields."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Mapping
from types import ModuleType, NoneType, UnionType
from typing import Any

from fpdfp import compress, methods, steps
from fpdfp._settings import REQUIRED, Table
from fpdfp.compress import Compressor
from fpdfp.methods import InnerSolve, Method
from fpdfp.precondition.cost import Network


def _of(module: ModuleType, base: type) -> dict[str, type]:
    """Return the public classes of a module that are of a kind and can be made."""
    public = getattr(module, "__all__", vars(module))
    found = {name: one for name, one in vars(module).items() if isinstance(one, type) and issubclass(one, base)}
    return {name: one for name, one in sorted(found.items()) if not inspect.isabstract(one) and name in public}


METHODS = _of(methods, Method)
COMPRESSORS = _of(compress, Compressor)
#: What a parameter may be that is a table: a schedule of steps, how exactly something is solved, a network.
INNER: dict[str, type] = {
    **{name: one for name, one in _of(steps, steps.Schedule).items() if name != "Automatic"},
    "InnerSolve": InnerSolve,
    "Network": Network,
}


class Parameter(typing.NamedTuple):
    """A field of a class: its default, and the types that it may have."""

    default: Any
    kinds: tuple[Any, ...]

    def convert(self, value: Any) -> Any:
        """Return a value of a file as the field has it: a list is a tuple there, and the word "none" None."""
        if isinstance(value, list) and any(typing.get_origin(one) is tuple for one in self.kinds):
            return tuple(value)
        return None if value == "none" and NoneType in self.kinds else value

    @property
    def tables(self) -> dict[str, type]:
        """The classes that a table may stand for."""
        classes = tuple(one for one in self.kinds if isinstance(one, type))
        return {name: one for name, one in INNER.items() if issubclass(one, classes)}


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type that a hint is."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)


@functools.cache
def parameters(kind: Any) -> dict[str, Parameter]:
    """Return what a class takes, from the types of its fields."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: Parameter(field.default, alternatives(hints[field.name]))
        for field in dataclasses.fields(kind)
        if field.init
    }


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
    for name, one in accepted.items():
        value = table.values.get(name)
        if isinstance(value, dict) and one.tables:
            given[name] = check(table.table(name), one.tables, ())
        elif name in table.values:
            given[name] = one.convert(value)
        elif one.default is dataclasses.MISSING:
            table.document.fail((*table.path, name), f"{table.title} must have the key {name!r} for {kind}")
    made = table.make(classes[kind], given)
    table.resolved.update(plain(made))
    return made


def check_messages(table: Table) -> None:
    """Check what is sent: a compressor, a word, or a section for each of the arrays of a message."""
    if table.values and all(isinstance(one, dict) for one in table.values.values()):
        for name in table.values:
            part = table.table(name)
            check(part, COMPRESSORS, ("none",))
            table.resolved[name] = part.resolved
    else:
        check(table, COMPRESSORS, ("automatic", "none"))


def plain(made: Any) -> dict[str, Any]:
    """Return the settings that make an object, all its parameters written out.

    >>> plain(compress.TopK(k=3))["k"]
    3
    """
    kind: Any = type(made)
    return {"kind": kind.__name__, **{name: _plain(getattr(made, name)) for name in parameters(kind)}}


def _plain(value: Any) -> Any:
    if value is None:
        return "none"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(value)
    return list(value) if isinstance(value, tuple) else value


def remake(settings: Mapping[str, Any], classes: Mapping[str, type]) -> Any:
    """Make what checked settings say."""
    kind = classes[settings["kind"]]
    return kind(**{
        name: remake(settings[name], one.tables) if isinstance(settings[name], Mapping) else one.convert(settings[name])
        for name, one in parameters(kind).items()
    })  # fmt: skip


def remake_messages(settings: Mapping[str, Any]) -> Any:
    """Make what checked settings say of messages, as ``fpdfp.solve`` takes it."""
    if "kind" not in settings:
        return {name: remake_messages(one) for name, one in settings.items()}
    if settings["kind"] in ("automatic", "none"):
        return "auto" if settings["kind"] == "automatic" else None
    return remake(settings, COMPRESSORS)
