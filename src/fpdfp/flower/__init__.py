"""Federations across organisations, on Flower: the server's app, the sites' app, and what a deployment needs.

A site writes one function that returns its loss; everything else is here::

    # client_app.py
    app = fpdfp.flower.client_app(load=load)
    # server_app.py
    app = fpdfp.flower.server_app(penalty, linop, sites=["north", "east", "south"], rounds=30)

``fpdfp flower init DIR`` writes a whole project; ``docs/flower.md``
says how to run one between organisations.
"""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp.flower.client import client_app
    from fpdfp.flower.server import server_app

__all__ = ["client_app", "server_app"]

__getattr__ = attach(__name__, {"client": "client_app", "server": "server_app"})
