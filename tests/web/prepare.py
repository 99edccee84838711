"""Finds the browser that the page's tests drive, and what they and those of the control API need from Node.js.

Knows the names of headless Chromium and the package it comes in, and the folder `tests/node`. Does not know the tests.
Uses the standard library only. A browser that can't be installed is an error, never a test left out.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..building import ROOT, Build, PrepareError, build, run

__all__ = ["NODE_TOOLS", "PrepareError", "builders", "find_browser", "prepare", "prepare_node_tools"]

SHELL = "chromium-headless-shell"  # the engine alone; a whole browser takes three times its processor time
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome")
INSTALL = ("apt-get", "install", "-y", "-qq")
NODE_TOOLS = ROOT / "tests" / "node"
"""axe-core, a linter and a type generator for OpenAPI."""
_NODE_BUILD = Build(
    folder=NODE_TOOLS,
    sources=("package.json", "package-lock.json", ".npmrc"),
    output=NODE_TOOLS / "node_modules",
    commands=(("npm", "ci", "--no-audit", "--no-fund"),),
)
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


def prepare_node_tools() -> bool:
    """Install the packages of `NODE_TOOLS` unless they are there; tells whether it did now. PrepareError."""
    return build("the tools for Node.js", _NODE_BUILD)


def builders() -> dict[str, Callable[[], bool]]:
    """The things to prepare, by name."""
    return {"browser": install, "node-tools": prepare_node_tools}
