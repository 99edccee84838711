"""`emubus check`: verify the data folder of a stopped server, with those of all namespaces."""

from __future__ import annotations

from pathlib import Path

from ..exits import EXIT_FAILED, EXIT_OK
from ..options import ConfigError
from ..terminal import write_lines
from .declaring import Command, Parsed


def add_arguments(parser: Command) -> None:
    parser.argument("dir", convert=Path, metavar="DIR", help="the data folder")
    parser.run = run


def run(parsed: Parsed) -> int:
    """Print what the folder holds; the exit code. ConfigError, StoreError."""
    directory: Path = parsed.dir
    if not directory.is_dir():
        raise ConfigError(f"there is no folder {directory}")
    return check_data(directory)


def check_data(folder: Path) -> int:
    """Verify the data folder of a stopped emubus and print what it holds; 0 if it is sound, else 1. Writes nothing.

    Namespaces beside the first have folders in it, which are checked, too.
    """
    from ..broker.admin.folder_view import NAMESPACES_FOLDER
    from ..broker.admin.verify import check_data_folder  # after the folder is known to be there

    others = folder / NAMESPACES_FOLDER
    folders = [folder, *(sorted(others.iterdir()) if others.is_dir() else ())]
    is_sound = True
    for each in folders:
        report = check_data_folder(each)
        write_lines(report.lines())
        is_sound = is_sound and report.sound
    return EXIT_OK if is_sound else EXIT_FAILED
