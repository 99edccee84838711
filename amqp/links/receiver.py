"""What a receiver link has of the broker: one way out of an entity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...broker.api import Outcome, RunDone


class ReceiverHandle(Protocol):
    """The broker's `Receiver` or `SessionReceiver`."""

    address: str

    def set_credit(self, count: int) -> None:
        """How many more deliveries may be handed over from now on (absolute)."""
        ...

    def drain(self, drained: Callable[[], None]) -> None:
        """Hand over what is available within the credit, then call `drained()`; the credit is 0 then."""
        ...

    def settle(self, run: Sequence[bytes], outcome: Outcome, done: RunDone | None) -> None:
        """Settle deliveries, each on its own."""
        ...

    def close(self) -> None:
        """The link is gone; locks stay until they expire."""
        ...
