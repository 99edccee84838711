"""What entities remember of messages, to drop those that come twice.

After a fault it may be open when a message came, or whether it did: then it is open how long it is remembered.
"""

from __future__ import annotations

from collections.abc import Collection

from .shapes import WINDOW_MS

Identity = tuple[str, str, str | None]
"""The path of an entity, a message id and, if the entity is partitioned, a key."""


class DuplicateMemory:
    """Until when (Unix ms) each identity is remembered at least and at most."""

    def __init__(self) -> None:
        self._until: dict[Identity, tuple[int, int]] = {}
        self._open: dict[Identity, tuple[int, bool]] = {}  # those that come before the next rest: since when, and if

    def has(self, identity: Identity, earliest: int, latest: int) -> bool | None:
        """Whether an identity is remembered between two instants; None if that is open."""
        least, most = self._until.get(identity, (0, 0))
        if least > latest:
            return True
        return None if most > earliest or identity in self._open else False

    def add(self, identity: Identity, earliest: int, latest: int, *, is_sure: bool = True) -> None:
        """A message came between two instants; not `is_sure` if it may not have come."""
        if identity in self._open:
            since, was_sure = self._open[identity]
            self._open[identity] = min(since, earliest), was_sure or is_sure
            return
        least, most = self._until.get(identity, (0, 0))
        if least > latest:
            return  # it was dropped
        if most <= earliest and is_sure:
            least = earliest + WINDOW_MS
        self._until[identity] = least, max(most, latest + WINDOW_MS)

    def expect(self, identity: Identity, earliest: int, *, is_sure: bool = True) -> None:
        """A message comes between an instant and the next rest; not `is_sure` if it may not come."""
        self._open.setdefault(identity, (earliest, False))
        self.add(identity, earliest, earliest, is_sure=is_sure)

    def rested(self, now: int) -> None:
        """What was expected has come."""
        expected, self._open = self._open, {}
        for identity, (earliest, is_sure) in expected.items():
            self.add(identity, earliest, now, is_sure=is_sure)

    def drop(self, paths: Collection[str]) -> None:
        """Entities are deleted."""
        for known in (self._until, self._open):
            for identity in [identity for identity in known if identity[0] in paths]:
                del known[identity]
