"""What the server keeps for a connection's client, within limits of its own and limits over all connections (R6).

Knows bytes by what they are kept for. Does not know who counts them: links and connections say how many there are,
and get a BrokerError when they are too many. Owned by a connection, which calls `close`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum

from ..broker.errors import BrokerError, Condition
from .limits import Limits


class Kept(Enum):
    """For what; the value is what an error calls it."""

    ATTACHES = "attached links"
    PARTIAL = "unfinished deliveries"
    REPLIES = "unread responses"


_LIMITS = {
    Kept.ATTACHES: ("attach_bytes_max", "attach_bytes_in_all_max"),
    Kept.PARTIAL: ("partial_bytes_max", "partial_bytes_in_all_max"),
    Kept.REPLIES: ("replies_bytes_max", "replies_bytes_in_all_max"),
}


class Held:
    """Bytes of one connection; `in_all` are those of all connections. `is_stranger` says which limits hold now."""

    def __init__(self, limits: Limits, in_all: Counter[Kept], is_stranger: Callable[[], bool]) -> None:
        self._limits = limits
        self._in_all = in_all
        self._is_stranger = is_stranger
        self._own: Counter[Kept] = Counter()

    def change(self, kept: Kept, by_bytes: int) -> None:
        """Count more bytes, or fewer; BrokerError (resource-limit-exceeded) if there are too many now."""
        self._own[kept] += by_bytes
        self._in_all[kept] += by_bytes
        if by_bytes <= 0:
            return
        limits, (own_name, all_name) = self._limits, _LIMITS[kept]
        own_max, all_max = getattr(limits, own_name), getattr(limits, all_name)
        if self._own[kept] > own_max:
            raise _too_many(kept, self._own[kept], f"at most {own_max} per connection")
        if self._in_all[kept] > all_max:
            raise _too_many(kept, self._in_all[kept], f"at most {all_max} for all connections; please retry later")
        total = sum(self._own.values())
        if total > limits.stranger_bytes_max and self._is_stranger():
            raise _too_many(kept, total, f"at most {limits.stranger_bytes_max} before a token was put")

    def put(self, kept: Kept, size_bytes: int) -> None:
        """Count `size_bytes` from now on, whatever it was before; BrokerError as above."""
        if size_bytes != self._own[kept]:
            self.change(kept, size_bytes - self._own[kept])

    def close(self) -> None:
        """The connection is gone with all that was kept for it."""
        self._in_all.subtract(self._own)
        self._own.clear()


def _too_many(kept: Kept, size_bytes: int, allowed: str) -> BrokerError:
    return BrokerError(
        Condition.RESOURCE_LIMIT_EXCEEDED, f"There are {size_bytes} bytes of {kept.value}; allowed are {allowed}."
    )
