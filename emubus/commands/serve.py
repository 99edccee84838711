"""`emubus serve`: run the server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..config import OPTIONS, load_config
from .options import add_option

DESCRIPTION: Final = "Run the server until SIGINT or SIGTERM. Each option can be set in the environment too."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every option."""
    for option in OPTIONS:
        add_option(parser, option)


def run(parsed: argparse.Namespace) -> int:
    """Serve until a signal; the exit code. ConfigError."""
    config = load_config({option.name: getattr(parsed, option.name) for option in OPTIONS})
    with _not_importable("rich"):  # structlog takes it if it is there, for tracebacks in a format that is not ours
        from ..logging import configure_logging
        from ..server import run as run_server

    configure_logging(config.log_format, config.log_level)
    return run_server(config)


@contextmanager
def _not_importable(name: str) -> Iterator[None]:
    """Let imports of a library that is optional and slow to import fail, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # what the import system takes for "there is none"
    try:
        yield
    finally:
        del sys.modules[name]
