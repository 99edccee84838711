"""`emubus serve`: run the server."""

from __future__ import annotations

import argparse
from typing import Final

from ..config import OPTIONS, load_config
from ..logging import configure_logging
from .options import add_option

DESCRIPTION: Final = "Run the server until SIGINT or SIGTERM. Each option can be set in the environment too."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every option."""
    for option in OPTIONS:
        add_option(parser, option)


def run(parsed: argparse.Namespace) -> int:
    """Serve until a signal; the exit code. ConfigError."""
    config = load_config({option.name: getattr(parsed, option.name) for option in OPTIONS})
    from ..server import run as run_server  # only now: a configuration error is shown at once

    configure_logging(config.log_format, config.log_level)
    return run_server(config)
