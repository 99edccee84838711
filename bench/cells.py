"""The cells of the comparison: what is sent and received in each, by name, and how their figures become a table.

Knows names, sizes and counts. Does not know brokers or processes.

A cell is `MODE-KIND` or `MODE-KIND-FORM`: `send-plain`, `receive-part-properties`. The form without a name is a bare body;
all others have a message id and an application property, as SDKs send them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median
from typing import Final

MODES: Final = ("send", "receive")
KINDS: Final[Mapping[str, str]] = {"plain": "plain", "part": "partitioned"}
"""Names of the kinds of entity in cells -> addresses of the queues."""

BARE: Final = "bare"


@dataclass(frozen=True, slots=True)
class Form:
    """What is sent: bytes in a body, outstanding messages, messages in a run, and what messages have besides bodies."""

    size_bytes: int
    window: int
    messages: int
    shape: str = "properties"


FORMS: Final[Mapping[str, Form]] = {
    BARE: Form(1024, 1000, 40_000, "bare"),
    "properties": Form(1024, 1000, 40_000),
    "w20": Form(1024, 20, 10_000),
    "w1": Form(1024, 1, 1_500),
    "100b": Form(100, 1000, 40_000),
    "64k": Form(65_536, 1000, 4_000),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement."""

    mode: str
    kind: str
    form: str

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return f"{self.mode}-{self.kind}" + (f"-{self.form}" if self.form != BARE else "")


CELLS: Final[Mapping[str, Cell]] = {
    cell.name: cell for cell in (Cell(mode, kind, form) for form in FORMS for kind in KINDS for mode in MODES)
}


def chosen(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names that match a pattern such as `send-*`, in their own order. Raises ValueError for one without a match."""
    known = list(names)
    wanted: set[str] = set()
    for pattern in patterns:
        found = {name for name in known if fnmatchcase(name, pattern)}
        if not found:
            raise ValueError(f"no cell is named {pattern!r}; the cells are {', '.join(known)}")
        wanted |= found
    return [name for name in known if name in wanted]


def ratio(these: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios round by round: a slow minute of the machine hits both sides of a round."""
    return median(this / other for this, other in zip(these, others, strict=True) if other)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if number == 0 else text.rjust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
