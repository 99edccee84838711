"""What the adapter asks of the broker: its verbs and the handles they give, as protocols.

`broker.broker.Broker` fits them without knowing of them; the tests of this folder fit in a small one of their own.
All is called on the event-loop thread. `done` callables may be called at once or later, once each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..broker.commands import Delivery, ReceiveMode
from ..broker.errors import BrokerError
from ..broker.outcomes import Outcome

Done = Callable[[BrokerError | None], None]


class SenderPort(Protocol):
    """A link's way into an entity."""

    message_bytes_max: int
    batch_bytes_max: int

    def send(self, data: bytes, *, batch: bool, done: Done) -> None:
        """Store one delivery."""
        ...

    def close(self) -> None:
        """The link is gone."""
        ...


class ConsumerPort(Protocol):
    """A link's way out of an entity."""

    def set_credit(self, count: int) -> None:
        """How many more deliveries may be handed over from now on (absolute)."""
        ...

    def drain(self, drained: Callable[[], None]) -> None:
        """Hand over what there is within the credit, then call `drained()`; the credit is 0 then."""
        ...

    def settle(self, token: bytes, outcome: Outcome, done: Done | None) -> None:
        """Settle one delivery."""
        ...

    def close(self) -> None:
        """The link is gone; locks stay until they expire."""
        ...


class BrokerPort(Protocol):
    """The broker as the adapter sees it; everything raises BrokerError."""

    def open_sender(self, address: str) -> SenderPort:
        """A way to send to `address`."""
        ...

    def open_consumer(
        self,
        address: str,
        *,
        mode: ReceiveMode,
        deliver: Callable[[Sequence[Delivery]], None],
        detached: Callable[[BrokerError], None],
    ) -> ConsumerPort:
        """A way to receive from `address`."""
        ...

    async def peek(self, address: str, from_sequence_number: int, count: int, bytes_max: int) -> list[bytes]:
        """Encoded messages, unlocked."""
        ...

    async def renew_locks(self, address: str, tokens: Sequence[bytes]) -> list[int]:
        """New ends of locks, Unix ms."""
        ...

    async def settle(self, address: str, tokens: Sequence[bytes], outcome: Outcome) -> None:
        """Settle by lock token."""
        ...

    async def receive_by_sequence_number(
        self, address: str, numbers: Sequence[int], mode: ReceiveMode
    ) -> list[Delivery]:
        """Deferred messages."""
        ...
