"""Who asks a site something."""

from __future__ import annotations

from typing import NamedTuple


class Asker(NamedTuple):
    """Who asks, as the hub has verified by mutual TLS.

    Attributes
    ----------
    name, role
        Who it is, mostly an analyst.
    fingerprint
        The SHA-256 of the certificate.
    study
        The name of the study.
    """

    name: str
    role: str
    fingerprint: str
    study: str
