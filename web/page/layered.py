"""Places the nodes of a graph in columns, so that no line runs through a box that it has nothing to do with.

The steps are those of Sugiyama (1981): a node stands one column to the right of the last of its sources; a line over
several columns gets a place of its own in each of them; the order within a column is chosen so that few lines cross.
Knows no entities. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

SWEEPS: Final = 8
SWEPT_MAX: Final = 2_000
"""With more nodes and places of lines the order is that in which they came: sorting them would take too long."""

Line = tuple[str, str]
"""A line from a node to another one."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The column and row of each node, and the rows that each line takes in the columns between its ends."""

    nodes: Mapping[str, tuple[int, int]]
    lanes: Mapping[Line, Sequence[tuple[int, int]]]


def placed(nodes: Sequence[str], lines: Iterable[Line], fixed: Mapping[str, int] | None = None) -> Placed:
    """The places of nodes; `lines` have no loop. `fixed` nodes are at least in that column."""
    lines = list(dict.fromkeys(each for each in lines if each[0] != each[1]))
    columns = _columns(nodes, lines, fixed or {})
    ranks: list[list[str]] = [[] for _ in range(max(columns.values(), default=0) + 1)]
    for node in nodes:
        ranks[columns[node]].append(node)
    pieces: list[Line] = []
    lanes: dict[Line, list[str]] = {}
    for number, line in enumerate(lines):
        through: list[str] = []
        for column in range(columns[line[0]] + 1, columns[line[1]]):
            through.append(f"\0{number} {column}")  # no entity has such a name
            ranks[column].append(through[-1])
        lanes[line] = through
        chain = [line[0], *through, line[1]]
        pieces += pairwise(chain)
    if sum(map(len, ranks)) <= SWEPT_MAX:
        _order(ranks, pieces)
    rows = _rows(ranks, pieces)
    at = {name: (column, rows[name]) for column, rank in enumerate(ranks) for name in rank}
    return Placed({node: at[node] for node in nodes}, {line: [at[each] for each in lanes[line]] for line in lines})


def _columns(nodes: Sequence[str], lines: Sequence[Line], fixed: Mapping[str, int]) -> dict[str, int]:
    """The column of each node: one more than that of the last of its sources."""
    columns = {node: fixed.get(node, 0) for node in nodes}
    for _ in nodes:
        is_changed = False
        for source, target in lines:
            if columns[target] <= columns[source]:
                columns[target] = columns[source] + 1
                is_changed = True
        if not is_changed:
            break
    return columns


def _order(ranks: list[list[str]], pieces: Sequence[Line]) -> None:
    """Sort each column by the mean place of its neighbours, to and fro; the order with the fewest crossings stays."""
    left: dict[str, list[str]] = {}
    right: dict[str, list[str]] = {}
    for source, target in pieces:
        right.setdefault(source, []).append(target)
        left.setdefault(target, []).append(source)
    best, fewest = [list(rank) for rank in ranks], _crossings(ranks, right)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        neighbours = right if sweep % 2 else left
        columns = range(len(ranks) - 2, -1, -1) if sweep % 2 else range(1, len(ranks))
        for column in columns:
            beside = {name: place for place, name in enumerate(ranks[column + (1 if sweep % 2 else -1)])}
            here = {name: place for place, name in enumerate(ranks[column])}
            wanted = {name: _mean([beside[each] for each in neighbours.get(name, ())], here[name]) for name in here}
            ranks[column].sort(key=wanted.__getitem__)
        crossings = _crossings(ranks, right)
        if crossings < fewest:
            best, fewest = [list(rank) for rank in ranks], crossings
    ranks[:] = best


def _mean(places: Sequence[int], otherwise: int) -> float:
    return sum(places) / len(places) if places else otherwise


def _crossings(ranks: Sequence[Sequence[str]], right: Mapping[str, Sequence[str]]) -> int:
    """How many lines cross between neighbouring columns."""
    count = 0
    for rank, following in pairwise(ranks):
        place = {name: index for index, name in enumerate(following)}
        ends: list[int] = []
        for name in rank:
            here = sorted(place[each] for each in right.get(name, ()))
            count += sum(end > target for target in here for end in ends)
            ends += here
    return count


def _rows(ranks: Sequence[Sequence[str]], pieces: Sequence[Line]) -> dict[str, int]:
    """The row of each node and place of a line: beside its sources, below what stands before it in its column.

    A column grows downwards only, so no two of its places share a row.
    """
    sources: dict[str, list[str]] = {}
    for source, target in pieces:
        sources.setdefault(target, []).append(source)
    rows: dict[str, int] = {}
    for rank in ranks:
        below = 0
        for name in rank:
            near = [rows[each] for each in sources.get(name, ()) if each in rows]
            row = max(below, round(_mean(near, below)) if name.startswith("\0") else below)
            rows[name] = row
            below = row + 1
    return rows
