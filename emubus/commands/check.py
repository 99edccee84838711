"""`emubus check`: verify the data folder of a stopped server."""

from __future__ import annotations

import argparse
from pathlib import Path

from .options import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder."""
    parser.add_argument("dir", type=Path, metavar="DIR", help="the data folder")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print what the folder holds; the exit code. ConfigError, StoreError."""
    directory: Path = parsed.dir
    if not directory.is_dir():
        raise ConfigError(f"there is no folder {directory}")
    from ..server import check_data

    return check_data(directory)
