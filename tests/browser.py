"""A browser for tests: the Chromium of this machine, without a network of its own."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-default-apps", "--disable-extensions", "--disable-sync", "--no-first-run",
    "--no-default-browser-check", "--disable-features=Translate,OptimizationHints,MediaRouter",
)  # fmt: skip


def missing() -> str | None:
    """Say why there is no browser; None where there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "needs playwright: pip install 'fpdfp[dev]'"
    return None if _program() else f"needs Chromium: none of {', '.join(NAMES)} is installed"


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start the browser, and close it at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=_program(), args=list(FLAGS))
        try:
            yield opened
        finally:
            opened.close()


def _program() -> str | None:
    return next((found for found in map(shutil.which, NAMES) if found), None)
