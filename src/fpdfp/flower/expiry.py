"""Warnings before certificates end."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from fpdfp.flower.certificates import certificate_end

#: So long before the end of a certificate there are warnings.
MONTH = datetime.timedelta(days=30)


def warn_of_end(path: Path | str, *, now: datetime.datetime | None = None) -> str | None:
    """Return a sentence about a certificate that has ended or ends within a month, None for others.

    >>> import tempfile
    >>> from fpdfp.flower.certificates import make_authority
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ends = make_authority(folder, days=10).public
    ...     print(warn_of_end(ends).replace(folder, "folder"), warn_of_end(make_authority(folder + "/2").public))
    folder/ca.pem ends in 9 days: renew it before, or connections fail from then on None
    """
    left = certificate_end(path) - (now or datetime.datetime.now(datetime.UTC))
    if left >= MONTH:
        return None
    if left <= datetime.timedelta(0):
        return f"{path} has ended {-left.days} days ago: connections fail until it is renewed"
    return f"{path} ends in {left.days} days: renew it before, or connections fail from then on"


def warn_of_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a sentence for each certificate among the arguments of a command that ends soon."""
    named = [argument.rpartition("=")[2] for argument in arguments if argument.endswith(".pem")]
    return [said for path in named if Path(path).exists() and (said := warn_of_end(path))]
