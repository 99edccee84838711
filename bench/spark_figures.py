"""What the Spark benchmark has measured, as lines: medians, processor time, and ratios.

Ratios are to Spark alone, to AMQP links and to another commit. Does not know how anything was measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

ROWS, MS, MIB = "rows/s", "ms", "MiB"
OWN_BATCH: Final = "Spark's own source to nothing"
MICRO_BATCH: Final = "micro-batch"


class Key(NamedTuple):
    """A line: body bytes, what was measured, and which columns or what kind."""

    size_bytes: int
    what: str
    kind: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: its figure in a unit, and processor time of broker and Spark in microseconds for each row (0: none)."""

    size_bytes: int
    what: str
    kind: str
    figure: float
    unit: str = ROWS
    broker_us: float = 0.0
    spark_us: float = 0.0

    @property
    def key(self) -> Key:
        """Its line."""
        return Key(self.size_bytes, self.what, self.kind)


Cells = Mapping[Key, Sequence[Measured]]


def by_key(runs: Iterable[Measured]) -> dict[Key, list[Measured]]:
    """All runs of each line."""
    cells: dict[Key, list[Measured]] = defaultdict(list)
    for run in runs:
        cells[run.key].append(run)
    return cells


def lines(cells: Cells, other: Cells | None = None) -> list[str]:
    """One line for each key; with the ratios to another commit's cells if there are such."""
    return [_line(key, cells, other or {}) for key in sorted(cells)]


def _line(key: Key, cells: Cells, other: Cells) -> str:
    runs = cells[key]
    figures = [run.figure for run in runs]
    text = f"spark  {key.size_bytes:6} B  {key.what:18} {key.kind:30} {median(figures):11,.0f} {runs[0].unit:6}"
    text += f"  [{min(figures):,.0f} to {max(figures):,.0f}]{_beside(key, cells)}"
    if runs[0].broker_us:
        text += f"  broker {_median(runs, 'broker_us'):5.1f}"
        text += f", Spark {_median(runs, 'spark_us'):5.1f}" if runs[0].spark_us else ""
        text += " us CPU/row"
    if key in other:
        text += f"  this / other: {median(_ratios(runs, other[key], 'figure')):5.2f} x {runs[0].unit}"
        for name, shown in (("broker_us", "broker's CPU"), ("spark_us", "Spark's CPU")):
            if ratios := _ratios(runs, other[key], name):
                text += f", {median(ratios):5.2f} x {shown}"
    return text


def _beside(key: Key, cells: Cells) -> str:
    """Ratios to what else was measured on the same side in the same rounds."""
    besides: dict[str, Key] = {}
    if key.what in (links := {"source": "link receive", "sink": "link send"}):
        besides = {"ceiling": Key(key.size_bytes, f"{key.what} ceiling", key.kind)}
        besides[links[key.what]] = Key(key.size_bytes, links[key.what], "")
    elif key.what == MICRO_BATCH and key.kind != OWN_BATCH:
        besides = {"Spark's own": key._replace(kind=OWN_BATCH)}
    found = [(name, each) for name, each in besides.items() if each in cells]
    return "".join(f"  {median(_ratios(cells[key], cells[each], 'figure')):5.3f} x {name}" for name, each in found)


def _ratios(runs: Sequence[Measured], others: Sequence[Measured], name: str) -> list[float]:
    """Ratios within each round; processor time that was too short for the kernel's ticks has none."""
    pairs = [(getattr(run, name), getattr(other, name)) for run, other in zip(runs, others, strict=False)]
    return [own / other for own, other in pairs if own and other]


def _median(runs: Sequence[Measured], name: str) -> float:
    return float(median(getattr(run, name) for run in runs))
