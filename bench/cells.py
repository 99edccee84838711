"""The cells of the comparison: what is sent and received in each, by name.

Knows names, sizes and counts, and how figures of both sides become a table. Does not know brokers or processes.

A cell is `MODE-KIND` or `MODE-KIND-FORM`: `send-plain`, `receive-part-batch`. The form without a name is a bare body;
all others have a message id and an application property, as SDKs send them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import exp, log, nan
from statistics import median
from typing import Final

MODES: Final = ("send", "receive")
KINDS: Final[Mapping[str, str]] = {"plain": "plain", "part": "partitioned"}
"""Names of the kinds of entity in cells -> beginnings of their addresses."""

BARE: Final = "bare"
STEP: Final = 100
"""Messages in a run are a multiple of this: whole batches, and the same number for each session and subscription."""


@dataclass(frozen=True, slots=True)
class Form:
    """What is sent, and where: bytes in a body, outstanding messages, messages in a run, what messages have besides."""

    size_bytes: int
    window: int
    messages: int
    shape: str = "properties"
    entity: str = ""
    """End of the entity's address."""

    subscriptions: int = 0
    transactions: bool = False

    def words(self, mode: str, address: str) -> list[str]:
        """Options of the load client."""
        words = ["--window", str(self.window)]
        if mode == "send" or self.entity == "-sessions":
            words += ["--shape", self.shape]
        if mode == "receive":
            words += [
                word
                for number in range(self.subscriptions)
                for word in ("--source", f"{address}/Subscriptions/s{number}")
            ]
        return [*words, "--transactions"] if self.transactions else words

    def count(self, part: int) -> int:
        """Messages in a run that is `1 / part` of the whole."""
        return max(STEP, self.messages // part // STEP * STEP)


FORMS: Final[Mapping[str, Form]] = {
    BARE: Form(1024, 1000, 40_000, "bare"),
    "properties": Form(1024, 1000, 40_000),
    "w20": Form(1024, 20, 10_000),
    "w1": Form(1024, 1, 1_500),
    "100b": Form(100, 1000, 40_000),
    "64k": Form(65_536, 1000, 4_000),
    "batch": Form(1024, 1000, 40_000, "batch"),
    "sessions": Form(1024, 1000, 20_000, "sessions", "-sessions"),
    "topic": Form(1024, 1000, 20_000, entity="-topic", subscriptions=10),
    "tx": Form(1024, 100, 5_000, "keys", transactions=True),
}
FLOOR_FORMS: Final = frozenset({BARE, "properties", "w20", "w1", "100b", "64k"})
"""What the floor server can do."""


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
STALLS: Final[Mapping[str, Cell]] = {
    f"stall-{mode}-{kind}": Cell(mode, kind, "properties") for kind in KINDS for mode in MODES
}


def chosen(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names that match a pattern such as `send-*`, in their own order.

    Raises ValueError for a pattern without a match.
    """
    known = list(names)
    wanted: set[str] = set()
    for pattern in patterns:
        found = {name for name in known if fnmatchcase(name, pattern)}
        if not found:
            raise ValueError(f"no cell is named {pattern!r}; the cells are {', '.join(known)}")
        wanted |= found
    return [name for name in known if name in wanted]


Results = Mapping[tuple[str, str], Sequence[Mapping[str, float]]]
"""Cell and side -> the figures of each round."""


def ratio(these: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios round by round: a slow minute of the machine hits both sides of a round.

    It is the median of their logarithms, so that exchanging the sides gives the reciprocal. NaN without rounds.
    """
    logs = [log(this / other) for this, other in zip(these, others, strict=True) if this > 0 and other > 0]
    return exp(median(logs)) if logs else nan


def comparison(results: Results, names: Iterable[str], sides: Sequence[str], keys: Mapping[str, str]) -> str:
    """A table with a row for each cell: medians of the figures `keys` (name -> format) of each side, and ratios.

    The first side is compared with each of the others. A side without figures for a cell has empty columns.
    """
    first, *others = sides
    pairs = [(side, key) for side in others for key in keys]
    head = [f"{side} {key}" for side in sides for key in keys] + [f"{first}/{side} {key}" for side, key in pairs]
    rows = [["cell", *head]]
    for name in names:
        of = {
            (side, key): [run[key] for run in results.get((name, side), ()) if key in run]
            for side in sides
            for key in keys
        }
        if not of[first, next(iter(keys))]:
            continue
        row = [name, *(format(median(of[side, key]), keys[key]) if of[side, key] else "" for side, key in of)]
        row += [f"{ratio(of[first, key], of[side, key]):.2f}" if of[side, key] else "" for side, key in pairs]
        rows.append(row)
    return table(rows)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, the others to the right. Words of a heading stand one below another."""
    head, *body = rows
    height = max(len(text.split()) for text in head)
    heads = [[""] * (height - len(text.split())) + text.split() for text in head]
    lines = [*map(list, zip(*heads, strict=True)), *body]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for number, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
