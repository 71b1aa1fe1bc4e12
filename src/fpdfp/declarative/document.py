"""A TOML file whose mistakes can be told with the line they are in."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_PART = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEYS = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_KEYS})\s*\]")
_ENTRY = re.compile(rf"\s*({_KEYS})\s*=")
_LINE = re.compile(r" \(at line (\d+), column \d+\)")

Key = tuple[str, ...]


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
        self._places = dict(places)

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a file; one that is not there or is not TOML is an error that says so."""
        try:
            text = path.read_text(encoding="utf-8")
            data = tomllib.loads(text)
        except FileNotFoundError:
            raise SettingsError(f"there is no file {path}; `fpdfp init {path}` writes an example") from None
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
        """Return the document with other values for some keys, told to be elsewhere."""
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
            for key, place in self._places.items()
            if not any(key[: len(changed)] == changed for changed in changes)
        }
        return Document(self.path, data, kept | dict(places))

    def assign(self, assignments: Sequence[str]) -> Document:
        """Return the document with other values for some keys, given as texts KEY=VALUE.

        A value is TOML; what is not is a text, so that quotes can be left out: ``method.kind=FedAvg``.
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

    def without(self, section: str) -> Document:
        """Return the document without a section."""
        return Document(self.path, {key: one for key, one in self.data.items() if key != section}, self._places)

    def place(self, key: Key) -> str:
        """Return where a key is, or else the nearest thing around it."""
        for length in range(len(key), 0, -1):
            if key[:length] in self._places:
                return self._places[key[:length]]
        return str(self.path)

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise an error that says where."""
        raise SettingsError(f"{self.place(key)}: {message}")


def split_key(text: str) -> Key:
    """Return the parts of a dotted key.

    >>> split_key('run."odd key"')
    ('run', 'odd key')
    """
    return tuple(part.strip("\"'") for part in re.findall(_PART, text))


def _lines(text: str, data: Mapping[str, Any]) -> dict[Key, int]:
    """Return the line of each section and key; ``tomllib`` does not tell."""
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
