"""Text from outside: names of a closed set of characters, and free text made harmless before anyone sees it.

Whatever becomes a file's name, stands in a template or in a command line is a *name*, and is checked by
:func:`read_name` (or :func:`fpdfp.federation.keys.host_name`) when it is read. All other text of a peer passes
:func:`printable` before it is printed, logged or raised, and :func:`refuse_unprintable` when it comes in a message.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from typing import Any

import numpy as np

from fpdfp.errors import MessageError

#: What a study, a site, an analyst and a run may be called.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,39}")
#: The parts of a path that may stand in a systemd unit and in a container file, where quotes, spaces, % and $ have
#: meanings of their own.
PATH = re.compile(r"[A-Za-z0-9._/+,=:~-]+")
#: The longest text in a message: a formula of an analyst, a warning of the hub.
LONGEST = 1 << 16


def read_name(argument: str, value: object) -> str:
    """Return ``value`` if it can be the name of a study, a site, an analyst or a run, or say why it cannot.

    >>> read_name("site", "north")
    'north'
    """
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise ValueError(
            f"{argument} must be letters, digits, - and _, at most 64 of them, a letter or digit first; "
            f"got {printable(repr(value), 100)}"
        )
    return value


def read_release(value: object) -> str:
    """Return the number of a release as a peer says it, or ``"unknown"``.

    >>> read_release("0.1.0"), read_release("0.1.0" + chr(10) + "all is well")
    ('0.1.0', 'unknown')
    """
    return value if isinstance(value, str) and RELEASE.fullmatch(value) else "unknown"


def read_path(argument: str, value: object) -> str:
    """Return a path that may stand in a unit or a container file, or say that it may not.

    >>> read_path("data", "/srv/patients.csv")
    '/srv/patients.csv'
    """
    if PATH.fullmatch(str(value)) is None:
        raise ValueError(
            f"{argument} must be a path of letters, digits and . _ / + , = : ~ - to stand in a unit, got "
            f"{printable(repr(str(value)))}: move it, or write the unit by hand"
        )
    return str(value)


def printable(value: object, most: int = 1000) -> str:
    r"""Return a text on one line, with every letter that cannot be seen written out, and shortened.

    >>> printable("age\n2  answered")
    'age\\n2  answered'
    """
    text = str(value)
    if len(text) > most:
        text = text[:most] + "…"
    if text.isprintable():
        return text
    return "".join(letter if _is_seen(letter) else ascii(letter)[1:-1] for letter in text)


def _is_seen(letter: str) -> bool:
    return letter.isprintable() or unicodedata.category(letter) == "Zs"


def refuse_unprintable(tree: Any) -> None:
    """Refuse a message in which a text, anywhere, has letters that cannot be seen, or is very long.

    >>> refuse_unprintable({"columns": ["age", "stage"]})
    """
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if len(one) > LONGEST or not (one.isprintable() or all(map(_is_seen, one))):
                raise MessageError(f"a text has control characters or is too long: '{printable(one, 100)}'")
        elif isinstance(one, dict):
            waiting += one.keys()
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += [part for part in one if not isinstance(part, bytes | np.ndarray)]


class OneLine(logging.Filter):
    """Makes each message of a log one line; a traceback is indented, so that it cannot pass for other messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change a record; none is dropped."""
        record.msg, record.args = printable(record.getMessage(), 4000), ()
        if record.exc_info and not record.exc_text:
            lines = logging.Formatter().formatException(record.exc_info).splitlines()
            record.exc_text = "\n".join(f"    {printable(line)}" for line in lines)
        return True


#: The log of hub, sites and analysts.
log = logging.getLogger("fpdfp.federation")
for _name in ("fpdfp.federation", "fpdfp.engines"):
    logging.getLogger(_name).addFilter(OneLine())
