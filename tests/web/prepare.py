"""Finds the browser that the page's tests drive, and installs it where it is missing: ``python tests/web/prepare.py``.

Knows the names of headless Chromium and the package it comes in. Refuses to know the tests. Uses the standard library
only. A browser that can't be installed is an error, never a test left out.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
COMMANDS = (("apt-get", "update", "-qq"), ("apt-get", "install", "-y", "-qq", "chromium"))
INSTALL_SECONDS_MAX = 900


class PrepareError(Exception):
    """There is no browser, and none could be installed; the text holds the end of what the installer said."""


def find_browser() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


def prepare() -> str:
    """The path of a Chromium, installed now if need be; only one process installs at a time. PrepareError."""
    with (Path(tempfile.gettempdir()) / "emubus-prepare-browser.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find_browser() is None:
            for command in COMMANDS:
                _run(command)
        path = find_browser()
    if path is None:
        raise PrepareError(f"there is no browser after its installation; looked for {', '.join(NAMES)}")
    return path


def _run(command: tuple[str, ...]) -> None:
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=INSTALL_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrepareError(f"the browser of the web page's tests can't be installed: {shown}: {error}") from error
    if done.returncode != 0:
        tail = done.stdout.decode(errors="replace")[-2000:]
        raise PrepareError(
            f"the browser of the web page's tests can't be installed: {shown} ended with {done.returncode}\n{tail}"
        )


if __name__ == "__main__":
    try:
        sys.stdout.write(f"browser: {prepare()}\n")
    except PrepareError as failure:
        sys.stderr.write(f"{failure}\n")
        sys.exit(1)
