"""Settings in TOML files, of experiments and of policies: every error names its file, line and key."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

_PART = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEYS = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_KEYS})\s*\]")
_ENTRY = re.compile(rf"\s*({_KEYS})\s*=")
_LINE = re.compile(r" \(at line (\d+), column \d+\)")

Key = tuple[str, ...]
T = TypeVar("T")
#: Stands for a key that must be there.
REQUIRED: Any = object()
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list"}


class SettingsError(ValueError):
    """A file of settings has a mistake: the message is one paragraph with the file, the line and what is accepted."""


class Document:
    """The contents of a TOML file, and where in it each key is.

    Attributes
    ----------
    path
        The file; paths in it are relative to its folder.
    data
        What it holds.
    """

    def __init__(self, path: Path, data: dict[str, Any], places: Mapping[Key, str]) -> None:
        self.path = path
        self.data = data
        self.places = dict(places)

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a file; one that is not there or is not TOML is an error that states it."""
        try:
            text = path.read_text(encoding="utf-8")
            data = tomllib.loads(text)
        except FileNotFoundError:
            raise SettingsError(f"{path}: file not found; `fpdfp init {path}` writes an example") from None
        except tomllib.TOMLDecodeError as error:
            at = _LINE.search(str(error))
            where = "at the end" if at is None else f"line {at[1]}"
            raise SettingsError(f"{path}, {where}: this is not TOML: {_LINE.sub('', str(error))}") from None
        except UnicodeDecodeError:
            raise SettingsError(f"{path} is not a text in UTF-8") from None
        except OSError as error:
            raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from None
        return cls(path, data, {key: f"{path}, line {line}" for key, line in _lines(text, data).items()})

    def replace(self, changes: Mapping[Key, Any], places: Mapping[Key, str]) -> Document:
        """Return the document with other values for some keys, from another source."""
        data = _copy(self.data)
        for key, value in changes.items():
            table = data
            for depth, part in enumerate(key[:-1], 1):
                table = table.setdefault(part, {})
                if not isinstance(table, dict):
                    self.fail(key[:depth], f"{'.'.join(key[:depth])} is a value and not a section with keys")
            table[key[-1]] = value
        kept = {
            key: place
            for key, place in self.places.items()
            if not any(key[: len(changed)] == changed for changed in changes)
        }
        return Document(self.path, data, kept | dict(places))

    def assign(self, assignments: Sequence[str]) -> Document:
        """Return the document with other values for some keys, given as texts KEY=VALUE.

        A value is TOML; anything else is a text, so that quotes are optional: ``method.kind=FedAvg``.
        """
        changes: dict[Key, Any] = {}
        places: dict[Key, str] = {}
        for text in assignments:
            name, equals, value = text.partition("=")
            key = split_key(name.strip())
            if not equals or not key:
                raise SettingsError(f"--set {text}: must be KEY=VALUE, such as run.rounds=50")
            try:
                changes[key] = tomllib.loads(f"value = {value}")["value"]
            except tomllib.TOMLDecodeError:
                changes[key] = value.strip()
            places[key] = f"--set {text}"
        return self.replace(changes, places)

    def place(self, key: Key) -> str:
        """Return where a key is, or else the nearest thing around it."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.places:
                return self.places[key[:length]]
        return str(self.path)

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise an error that says where."""
        raise SettingsError(f"{self.place(key)}: {message}")


class Table:
    """A section: every value that is read is checked, and kept with its default in ``resolved``."""

    def __init__(self, document: Document, path: Key, values: Any) -> None:
        self.document, self.path = document, path
        if not isinstance(values, dict):
            document.fail(path, f"{'.'.join(path)} must be a section, [{'.'.join(path)}], got {show(values)}")
        self.values: dict[str, Any] = values
        self.resolved: dict[str, Any] = {}
        self.known: list[str] = []

    @property
    def title(self) -> str:
        """The section as it is written."""
        return f"[{'.'.join(self.path)}]" if self.path else "the file"

    def fail(self, key: str, message: str) -> NoReturn:
        """Raise an error about a key."""
        self.document.fail((*self.path, key), f"{'.'.join((*self.path, key))} {message}")

    def gives(self, key: str) -> bool:
        """Whether a key is there that may be excluded."""
        self.known.append(key)
        return key in self.values

    def accept(self, names: Iterable[str] = (), what: str = "key") -> None:
        """Refuse keys that have other names, by default than those that were read."""
        known = list(names) or list(dict.fromkeys(self.known))
        for key in self.values:
            if key not in known:
                self.document.fail((*self.path, key), f"{self.title} has no {what} {key!r}{suggest(key, known)}")

    def table(self, key: str) -> Table:
        """Return a section within this one, empty where it is not there."""
        return Table(self.document, (*self.path, key), self.values.get(key, {}))

    def make(self, kind: Callable[..., T], given: Mapping[str, Any]) -> T:
        """Return an object made of these arguments; an error about one of them names its key, if it has one."""
        try:
            return kind(**given)
        except (TypeError, ValueError) as error:
            key = getattr(error, "argument", "")
            self.document.fail((*self.path, key if key in self.values else "kind"), f"{self.title} {error}")

    def take(self, key: str, default: Any, *kinds: type) -> Any:
        """Return a value of one of the kinds; whole numbers count as numbers."""
        self.known.append(key)
        if key not in self.values:
            if default is REQUIRED:
                self.document.fail((*self.path, key), f"{self.title} must have the key {key!r}")
            self.resolved[key] = default
            return default
        value = self.values[key]
        if float in kinds and type(value) is int:
            value = float(value)
        if type(value) not in kinds:
            self.fail(key, f"must be {' or '.join(_KINDS[kind] for kind in kinds)}, got {show(value)}")
        self.resolved[key] = value
        return value

    def text(self, key: str, default: Any = REQUIRED, choices: Iterable[str] | None = None) -> str:
        """Return a text, one of the choices where there are some."""
        value: str = self.take(key, default, str)
        accepted = None if choices is None else list(choices)
        if accepted is not None and value not in accepted:
            near = suggest(value, accepted, listed=False)
            self.fail(key, f"must be one of {', '.join(map(repr, accepted))}, got {value!r}{near}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        return bool(self.take(key, default, bool))

    def integer(self, key: str, default: Any = REQUIRED, *, at_least: int = 0, at_most: float = math.inf) -> int:
        """Return a whole number in a range."""
        value: int = self.take(key, default, int)
        self._check_range(key, [value], at_least, at_most)
        return value

    def integer_or(self, key: str, word: str, default: Any, *, at_least: int) -> int | str:
        """Return a whole number, or a word that stands for something else."""
        value: int | str = self.take(key, default, int, str)
        if isinstance(value, str) and value != word:
            self.fail(key, f"must be a whole number of at least {at_least}, or {word!r}, got {value!r}")
        if not isinstance(value, str):
            self._check_range(key, [value], at_least)
        return value

    def real(
        self, key: str, default: Any = REQUIRED, *, at_least: float = -math.inf, above: float = -math.inf,
        below: float = math.inf, finite: bool = True,
    ) -> float:  # fmt: skip
        """Return a number in a range."""
        value: float = self.take(key, default, float)
        limits = {" of at least": at_least, " greater than": above, " and below": below}
        texts = [f"{words} {limit:g}" for words, limit in limits.items() if math.isfinite(limit)]
        good = math.isfinite(value) if finite else not math.isnan(value)
        if not good or value < at_least or (value <= above > -math.inf) or (value >= below < math.inf):
            self.fail(key, f"must be {'a finite' if finite else 'a'} number{''.join(texts)}, got {value:g}")
        return value

    def integers(self, key: str, default: Any = REQUIRED, *, at_least: int, length: int | None = None) -> list[int]:
        """Return a list of whole numbers."""
        values: list[int] = self.take(key, default, list)
        wanted = "whole numbers" if length is None else f"{length} whole numbers"
        if not values or (length is not None and len(values) != length) or any(type(one) is not int for one in values):
            self.fail(key, f"must be a list of {wanted}, got {show(values)}")
        self._check_range(key, values, at_least)
        return values

    def reals(self, key: str, default: Any = REQUIRED, *, above: float) -> list[float]:
        """Return a list of finite numbers above a bound."""
        values: list[float] = self.take(key, default, list)
        if not values or not all(type(one) in (int, float) and above < one < math.inf for one in values):
            self.fail(key, f"must be a list of finite numbers greater than {above:g}, got {show(values)}")
        return values

    def texts(self, key: str, default: Any) -> list[str]:
        """Return a list of texts."""
        values: list[str] = self.take(key, default, list)
        if any(not isinstance(one, str) for one in values):
            self.fail(key, f"must be a list of texts, got {show(values)}")
        return values

    def file(self, key: str, *, folder: bool = False, endings: tuple[str, ...] = ()) -> Path:
        """Return the path of a file, or folder, that is there; a relative one is relative to the file of settings."""
        given = self.text(key)
        path = (self.document.path.absolute().parent / Path(given).expanduser()).resolve()
        if endings and not path.name.lower().endswith(endings):
            self.fail(key, f"must end in {' or '.join(endings)}, got {given!r}")
        if not (path.is_dir() if folder else path.exists()):
            self.fail(key, f"must be a {'folder' if folder else 'file'} that is there, but there is none at {path}")
        self.resolved[key] = str(path)
        return path

    def _check_range(self, key: str, values: list[int], at_least: int, at_most: float = math.inf) -> None:
        for value in values:
            if not at_least <= value <= at_most:
                most = "" if math.isinf(at_most) else f" and at most {at_most}"
                self.fail(key, f"must be a whole number of at least {at_least}{most}, got {value}")


def split_key(text: str) -> Key:
    """Return the parts of a dotted key.

    >>> split_key('run."odd key"')
    ('run', 'odd key')
    """
    return tuple(part.strip("\"'") for part in re.findall(_PART, text))


def _lines(text: str, data: Mapping[str, Any]) -> dict[Key, int]:
    """Return the line of each section and key; ``tomllib`` does not report it."""
    found: dict[Key, int] = {}
    section: Key = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = split_key(header[1])
            found.setdefault(section, number)
        elif entry := _ENTRY.match(line):
            key = section + split_key(entry[1])
            # Within a long text or list a line may look like a key.
            if _holds(data, key):
                found.setdefault(key, number)
    return found


def _holds(data: Any, key: Key) -> bool:
    for part in key:
        if isinstance(data, list) and data:
            data = data[-1]
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return True


def _copy(value: Any) -> Any:
    """Copy nested tables, not what is in them."""
    return {name: _copy(one) for name, one in value.items()} if isinstance(value, dict) else value


def suggest(word: str, known: Iterable[str], *, listed: bool = True) -> str:
    """Return the end of an error: the known word that looks most like another, else all of them.

    >>> suggest("roudns", ["rounds", "seeds"])
    "; did you mean 'rounds'?"
    >>> suggest("weight", ["rounds", "seeds"])
    '; known are rounds, seeds'
    """
    names = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), list(names), n=1)
    if found:
        return f"; did you mean {names[found[0]]!r}?"
    return f"; known are {', '.join(names.values())}" if listed else ""


def show(value: Any) -> str:
    """Show a value of a file in a few words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "a table" if isinstance(value, dict) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
