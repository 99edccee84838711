"""Stores: one that is out for a time, chosen by the seed.

Knows which store and for how long. Does not know what an outage does: the broker does.
"""

from __future__ import annotations

from typing import Final

from ...broker.api import Outage, OutageKind
from ..behaviour import Behaviour, Parameter, Row


class StoreOut(Behaviour):
    """A messaging store is out."""

    def begin(self) -> None:
        """Begin the outage."""
        on = self.on
        count, asked = len(on.broker.workers), self.number("store")
        self._index = on.chance.between("store", 0, count - 1) if asked < 0 else min(asked, count - 1)
        on.plan(on.started_at, f"store {self._index} is {self.word('kind')} for {self.number('ms')} ms")
        if on.record(f"store {self._index}", self.word("kind")):
            on.broker.begin_outage(self._index, Outage(OutageKind(self.word("kind")), 0), self.number("ms"))

    def end(self) -> None:
        """The store works again."""
        super().end()
        self.on.broker.end_outage(self._index)


ROWS: Final = (
    Row(
        "store-out",
        "Stores",
        "A messaging store is out for a time: messages with a key of a partition in it are refused.",
        "store",
        "`com.microsoft:server-busy`",
        "documentation (partitioned entities)",
        (
            Parameter("store", "Index of the store; -1: by the seed.", -1, "", -1, 99),
            Parameter("kind", "What fails.", "down", choices=("down", "failing", "full")),
            Parameter("ms", "How long.", 20_000, "ms", 1),
        ),
        StoreOut,
    ),
)
