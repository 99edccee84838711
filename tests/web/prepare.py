"""Finds the browser that the page's tests drive, and installs it where it is missing.

Knows the names of headless Chromium and the package it comes in. Does not know the tests. Uses the standard library
only. A browser that can't be installed is an error, never a test left out.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..building import ROOT, PrepareError, run

__all__ = ["PrepareError", "builders", "find_browser", "prepare"]

SHELL = "chromium-headless-shell"  # the engine alone; a whole browser takes three times its processor time
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome")
INSTALL = ("apt-get", "install", "-y", "-qq")
BROWSER = "the browser of the web page's tests"


def find_browser() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


def install() -> bool:
    """Install a Chromium if there is none; tells whether it was installed now. PrepareError.

    Only one process installs at a time.
    """
    with (Path(tempfile.gettempdir()) / "emubus-prepare-browser.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find_browser() is not None:
            return False
        run(BROWSER, ("apt-get", "update", "-qq"), ROOT)
        try:
            run(BROWSER, (*INSTALL, SHELL), ROOT)
        except PrepareError:  # older distributions don't have it
            run(BROWSER, (*INSTALL, "chromium"), ROOT)
        return True


def prepare() -> str:
    """The path of a Chromium, installed now if need be; PrepareError."""
    install()
    path = find_browser()
    if path is None:
        raise PrepareError(f"there is no browser after its installation; looked for {', '.join(NAMES)}")
    return path


def builders() -> dict[str, Callable[[], bool]]:
    """The things to prepare, by name."""
    return {"browser": install}
