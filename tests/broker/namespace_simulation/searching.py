"""The long way to explain what is there: all that may have become of all copies of a message, together.

`comparing.py` explains copy after copy, and takes for each what explains most. Where something is left then, this tries
every outcome of every copy. An entity that drops duplicates takes one of several copies, whichever came first: a copy
may be gone if an outcome of another one has its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Final

from .items import Item
from .memory import Identity
from .model import Model
from .world import Row

DEPTH: Final = 4  # doubts, one after the other
OUTCOMES_MAX: Final = 256  # of one copy
STEPS_MAX: Final = 20_000
Fits = Callable[[Item, Row], bool]
Pairs = list[tuple[Item, Row]]


@dataclass(frozen=True)
class Outcome:
    """What may have become of a copy."""

    items: tuple[Item, ...] = ()
    identities: frozenset[Identity] = frozenset()
    """As what entities remember it."""

    dropped: frozenset[Identity] = frozenset()
    """As what entities dropped it, because another copy with that identity had come before."""

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(self.items + other.items, self.identities | other.identities, self.dropped | other.dropped)


def search(items: Sequence[Item], rows: Sequence[Row], model: Model, fits: Fits) -> list[Pairs] | None:
    """For each item the rows that are its, or are what became of it; None if no outcomes explain all rows."""
    choices = [
        list(islice((each for each in _outcomes(item, model) if len(each.items) <= len(rows)), OUTCOMES_MAX))
        for item in items
    ]
    steps = iter(range(STEPS_MAX))

    def explain(index: int, left: list[Row], chosen: list[Outcome], found: list[Pairs]) -> list[Pairs] | None:
        if next(steps, None) is None:
            return None
        if index == len(choices):
            return None if left or not _agree(chosen, model) else found
        for outcome in choices[index]:
            for pairs in _fitting(outcome.items, left, fits):
                taken = [row for _, row in pairs]
                rest = [row for row in left if row not in taken]
                whole = explain(index + 1, rest, [*chosen, outcome], [*found, pairs])
                if whole is not None:
                    return whole
        return None

    return explain(0, list(rows), [], [])


def _outcomes(item: Item, model: Model, depth: int = DEPTH) -> Iterator[Outcome]:
    yield Outcome((item,))
    for what in sorted(item.doubts) if depth else ():
        for possibility in model.suppose(item, what):
            remembered = frozenset(possibility.identities)
            for identity in sorted(remembered, key=repr):  # first: they are few, and copies of a topic are many
                others = [each for each in possibility.items if all(path != identity[0] for path, _ in each.trail)]
                yield Outcome(tuple(others), remembered - {identity}, frozenset({identity}))
            for later in product(*(list(_outcomes(each, model, depth - 1)) for each in possibility.items)):
                yield sum(later, Outcome((), remembered))


def _agree(chosen: Sequence[Outcome], model: Model) -> bool:
    """Whether entities that dropped copies had taken another one: of these, or before."""
    remembered = frozenset[Identity]().union(*(outcome.identities for outcome in chosen))
    dropped = frozenset[Identity]().union(*(outcome.dropped for outcome in chosen))
    return all(map(model.may_remember, dropped - remembered))


def _fitting(items: Sequence[Item], rows: Sequence[Row], fits: Fits) -> Iterator[Pairs]:
    """All ways to give each item a row that fits it."""
    if not items:
        yield []
        return
    for place, row in enumerate(rows):
        if fits(items[0], row):
            for rest in _fitting(items[1:], [*rows[:place], *rows[place + 1 :]], fits):
                yield [(items[0], row), *rest]
