"""Times of events: who is at risk when, survival curves, tests and measures that are sums over sites."""

from fpdfp.survival.response import Times

__all__ = ["Times"]
