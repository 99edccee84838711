"""Who waits for messages of an entity, and how many may [SB: service-bus-quotas].

A queue has one `Receives`; a topic has one for all its subscriptions. Must not depend on partitions and on links.
"""

from __future__ import annotations

from typing import Protocol


class Waiting(Protocol):
    """A receiver."""

    @property
    def is_waiting(self) -> bool:
        """Whether it wants messages that it has not got."""
        ...


class Receives:
    """The receivers with credit; at most `count_max` of them wait at a time."""

    def __init__(self, count_max: int | None = None) -> None:
        self.count_max = count_max
        self._receivers: set[Waiting] = set()

    def enter(self, receiver: Waiting) -> bool:
        """Note that a receiver has credit; False if too many others wait."""
        receivers = self._receivers
        receivers.add(receiver)
        if self.count_max is None or len(receivers) <= self.count_max:
            return True
        receivers.intersection_update([each for each in receivers if each is receiver or each.is_waiting])
        if len(receivers) <= self.count_max:
            return True
        receivers.discard(receiver)
        return False

    def leave(self, receiver: Waiting) -> None:
        """A receiver has no credit any more."""
        self._receivers.discard(receiver)
