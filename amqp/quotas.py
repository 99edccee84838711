"""Memory that the server uses for a connection's client, within limits per connection and over all of them (R6).

Knows bytes by their use. Does not count them: links and connections report how many there are, and get a BrokerError
when they are too many. Owned by a connection, which calls `close`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum

from ..broker.errors import BrokerError, Condition
from .limits import Limits


class MemoryUse(Enum):
    """What memory is used for; the value is what an error calls it."""

    ATTACHES = "attached links"
    PARTIAL = "unfinished deliveries"
    REPLIES = "unread responses"


_LIMITS = {
    MemoryUse.ATTACHES: ("attach_bytes_max", "attach_bytes_in_all_max"),
    MemoryUse.PARTIAL: ("partial_bytes_max", "partial_bytes_in_all_max"),
    MemoryUse.REPLIES: ("replies_bytes_max", "replies_bytes_in_all_max"),
}


class MemoryAccount:
    """Bytes of one connection; `in_all` has those of all connections. `is_stranger` says which limits apply."""

    def __init__(self, limits: Limits, in_all: Counter[MemoryUse], is_stranger: Callable[[], bool]) -> None:
        self._limits = limits
        self._in_all = in_all
        self._is_stranger = is_stranger
        self._own: Counter[MemoryUse] = Counter()

    def change(self, use: MemoryUse, by_bytes: int) -> None:
        """Add bytes, or free some (negative); BrokerError (resource-limit-exceeded) if they are too many."""
        self._own[use] += by_bytes
        self._in_all[use] += by_bytes
        if by_bytes <= 0:
            return
        limits, (own_name, all_name) = self._limits, _LIMITS[use]
        own_max, all_max = getattr(limits, own_name), getattr(limits, all_name)
        if self._own[use] > own_max:
            raise _too_many(use, self._own[use], f"at most {own_max} per connection")
        if self._in_all[use] > all_max:
            raise _too_many(use, self._in_all[use], f"at most {all_max} for all connections; please retry later")
        total = sum(self._own.values())
        if total > limits.stranger_bytes_max and self._is_stranger():
            raise _too_many(use, total, f"at most {limits.stranger_bytes_max} before a token was put")

    def put(self, use: MemoryUse, size_bytes: int) -> None:
        """Set the bytes of a use; BrokerError as for `change`."""
        if size_bytes != self._own[use]:
            self.change(use, size_bytes - self._own[use])

    def close(self) -> None:
        """The connection is over: its memory is free."""
        self._in_all.subtract(self._own)
        self._own.clear()


def _too_many(use: MemoryUse, size_bytes: int, allowed: str) -> BrokerError:
    return BrokerError(
        Condition.RESOURCE_LIMIT_EXCEEDED, f"There are {size_bytes} bytes of {use.value}; allowed are {allowed}."
    )
