"""`emubus check`: verify the data folder of a stopped server, with those of all namespaces."""

from __future__ import annotations

from pathlib import Path

from ..exits import EXIT_FAILED, EXIT_OK
from ..options import ConfigError
from ..terminal import write_json, write_lines
from .declaring import Command, Parsed


def add_arguments(parser: Command) -> None:
    parser.argument("dir", convert=Path, metavar="DIR", help="the data folder")
    parser.switch("--json", help="print JSON")
    parser.run = run


def run(parsed: Parsed) -> int:
    """Print what the folder holds; the exit code. ConfigError, StoreError."""
    directory: Path = parsed.dir
    if not directory.is_dir():
        raise ConfigError(f"there is no folder {directory}")
    return check_data(directory, as_json=parsed.json)


def check_data(folder: Path, *, as_json: bool = False) -> int:
    """Verify the data folder of a stopped emubus and print what it holds; 0 if it is sound, else 1. Writes nothing.

    Namespaces beside the first have folders in it, which are checked, too.
    """
    from ..broker.admin.folder_view import NAMESPACES_FOLDER
    from ..broker.admin.verify import check_data_folder  # after the folder is known to be there

    others = folder / NAMESPACES_FOLDER
    folders = [folder, *(sorted(others.iterdir()) if others.is_dir() else ())]
    reports = [(each, check_data_folder(each)) for each in folders]
    is_sound = all(report.sound for _, report in reports)
    if as_json:
        shown = [{"folder": str(each), "is_sound": report.sound, "lines": report.lines()} for each, report in reports]
        write_json({"is_sound": is_sound, "folders": shown})
    else:
        write_lines(line for _, report in reports for line in report.lines())
    return EXIT_OK if is_sound else EXIT_FAILED
