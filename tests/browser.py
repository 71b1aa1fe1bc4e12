"""A browser for tests: the Chromium of this machine, without a network of its own."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

T = TypeVar("T")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-default-apps", "--disable-extensions", "--disable-sync", "--no-first-run",
    "--no-default-browser-check", "--disable-features=Translate,OptimizationHints,MediaRouter",
)  # fmt: skip

#: Milliseconds that a page may take to show what is expected: it is slow where the machine does other work as well.
PATIENCE = 15_000


def missing() -> str | None:
    """Say why there is no browser; None where there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "needs playwright: pip install playwright"
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


def until(read: Callable[[], T], holds: Callable[[T], bool]) -> T:
    """Read until it holds; the page's policy forbids the browser's own way, which evaluates texts."""
    end = time.monotonic() + PATIENCE / 1000
    while not holds(found := read()):
        assert time.monotonic() < end, f"still {found!r:.1000}"
        time.sleep(0.02)
    return found


def box_of(element: Locator) -> Any:
    """Scroll to an element, and return where it is when it has come to rest."""
    element.scroll_into_view_if_needed()
    box = until(element.bounding_box, lambda found: found is not None and found == element.bounding_box())
    assert box is not None
    return box
