"""A section of a file of settings, read key by key, each checked."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from fpdfp.declarative.document import Document, Key

#: Stands for a key that must be there.
REQUIRED: Any = object()
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a table",
}


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
        """Whether a key is there that may be left out."""
        self.known.append(key)
        return key in self.values

    def accept(self, names: Iterable[str] = (), what: str = "key") -> None:
        """Refuse keys that have other names, by default than those that were read, and tell the nearest one."""
        known = list(names) or list(dict.fromkeys(self.known))
        for key in self.values:
            if key not in known:
                near = nearest(key, known)
                self.document.fail(
                    (*self.path, key),
                    f"{self.title} has no {what} {key!r} here; "
                    + (f"the nearest is {near!r}, and " if near else "")
                    + f"all are {', '.join(known)}",
                )

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
            near = nearest(value, accepted)
            hint = f"; the nearest is {near!r}" if near else ""
            self.fail(key, f"must be one of {', '.join(map(repr, accepted))}, got {value!r}{hint}")
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


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that looks most like another; None where none does.

    >>> nearest("roudns", ["rounds", "seeds"])
    'rounds'
    >>> nearest("poisson", ["logistic", "least-squares", "softmax"])
    """
    lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), list(lower), n=1, cutoff=0.6)
    return lower[found[0]] if found else None


def show(value: Any) -> str:
    """Show a value of a file in a few words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "a table" if isinstance(value, dict) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
