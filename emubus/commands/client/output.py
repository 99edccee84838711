"""The form of what commands print, and the forms of arguments that several commands have: tables, instants, durations.

Does not know terminals: `emubus/terminal.py` does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from ...exits import CommandError
from ...terminal import Heading, is_terminal, safe, write_json, write_lines
from ..declaring import Command, Parsed


def add_json(parser: Command) -> None:
    parser.switch("--json", help="print JSON")


def add_yes(parser: Command) -> None:
    parser.switch("--yes", help="do not ask, also on a terminal")


def confirm(parsed: Parsed, what: str) -> None:
    """Ask on a terminal whether to do what can't be undone; a script is not asked. CommandError: the answer is no."""
    if parsed.yes or not (sys.stdin.isatty() and is_terminal()):
        return
    from click import Abort  # only for a terminal
    from click import confirm as ask

    try:
        is_sure = ask(f"{what}?", err=True)
    except Abort:
        raise KeyboardInterrupt from None
    if not is_sure:
        raise CommandError("nothing was done; --yes does not ask")


def show(parsed: Parsed, answer: object, lines: Iterable[str]) -> None:
    """Print an answer as JSON, or as `lines` for people."""
    if parsed.json:
        write_json(answer)
    else:
        write_lines(lines)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Rows in columns below their headers; numbers to the right. A table without rows has the headers only."""
    cells = [[_cell(each) for each in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    numeric = [all(row[at].isdecimal() or row[at] == "-" for row in cells) for at in range(len(headers))]

    def line(row: Sequence[str]) -> str:
        placed = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return "  ".join(placed).rstrip()

    return [Heading(line(headers)), *(line(row) for row in cells)]


def pairs(values: Iterable[tuple[str, object]]) -> list[str]:
    """Names and values, one pair a line."""
    found = [(name, _cell(value)) for name, value in values]
    width = max((len(name) for name, _ in found), default=0)
    return [f"{name.ljust(width)}  {value}".rstrip() for name, value in found]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return safe(re.sub(r"[\r\n\t]+", " ", str(value)))


def instant(at: int | None) -> str | None:
    """An instant (Unix ms) as text in UTC."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(at)


def span_ms(text: str) -> int:
    """A duration in milliseconds: `500ms`, `30s`, `5m`, `1h`, `2d`, or ISO 8601. ValueError."""
    from ...codec.durations import parse_time  # only for an argument that is one

    try:
        return parse_time(text)
    except ValueError:
        raise ValueError(f"is {text!r}; allowed is 500ms, 30s, 5m, 1h, 2d or PT30S") from None


def numbers_of(text: str) -> list[int]:
    """Sequence numbers, separated by commas. ValueError."""
    parts = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdecimal() and len(each) <= 19 for each in parts):
        raise ValueError(f"is {text!r}; allowed are whole numbers, separated by commas")
    return [int(each) for each in parts]


def span_text(ms: int | None) -> str:
    """A duration as `span_ms` reads it, in its largest whole unit; `never` for None."""
    if ms is None:
        return "never"
    sizes = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
    return next((f"{ms // size}{unit}" for unit, size in sizes if ms and ms % size == 0), f"{ms}ms")


def size_text(size_bytes: int) -> str:
    """A number of bytes in the largest unit that makes it 1 or more."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= size:
            whole, rest = divmod(size_bytes, size)
            return f"{size_bytes / size:.1f} {unit}" if rest else f"{whole} {unit}"
    return f"{size_bytes} bytes"


def count_of(text: str) -> int:
    """A whole number of 1 or more. ValueError."""
    if not (text.isascii() and text.isdecimal() and int(text[:18]) > 0):
        raise ValueError(f"is {text!r}; allowed is a whole number of 1 or more")
    return int(text[:18])
