"""A federation across organisations: sites dial out to one hub over mutual TLS, and answer as their policy allows."""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp.federation.analyst import Federation, FederationEngine
    from fpdfp.federation.private import Privacy

__all__ = ["Federation", "FederationEngine", "Privacy"]

__getattr__ = attach(__name__, {"analyst": "Federation FederationEngine", "private": "Privacy"})
