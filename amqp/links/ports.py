"""What the adapter asks of the broker: its verbs and the handles they give, as protocols.

`broker.broker.Broker` fits them without knowing of them; the tests of this folder fit in a small one of their own.
All is called on the event-loop thread. `done` callables may be called at once or later, once each. Entities are
opaque here: they come out of one verb and go into another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...broker.entities.transaction import TransactionRef
from ...broker.errors import BrokerError
from ...broker.model.descriptions import RuleDescription
from ...broker.outcomes import Outcome
from ...broker.partition.step import Delivery, Extent, ReceiveMode

Done = Callable[[BrokerError | None], None]
Detached = Callable[[BrokerError], None]
Deliver = Callable[[Sequence[Delivery]], None]


class SenderPort(Protocol):
    """A link's way into an entity."""

    entity: Any
    message_bytes_max: int
    batch_bytes_max: int

    def send(self, data: bytes, *, batch: bool, done: Done) -> None:
        """Store one delivery."""
        ...

    def size_refusal(self, data: bytes, *, batch: bool) -> BrokerError | None:
        """The error for a delivery over the limit."""
        ...

    def close(self) -> None:
        """The link is gone."""
        ...


class ConsumerPort(Protocol):
    """A link's way out of an entity."""

    address: str

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


class SessionConsumerPort(ConsumerPort, Protocol):
    """A link's way out of a message session; `deliver` is set before credit is given, `close` gives it back."""

    session_id: str
    locked_until_at: int
    deliver: Deliver


class SessionWaitPort(Protocol):
    """A receiver that waits for a message session."""

    def cancel(self) -> None:
        """The receiver has gone."""
        ...


class TransactionsPort(Protocol):
    """The open transactions."""

    def declare(
        self, owner: object, via: Callable[[], Any] = lambda: None, *, connection: object = None
    ) -> TransactionRef:
        """Begin one of `connection` that ends with `owner` at the latest; `via()` leads to other entities."""
        ...

    def discharge(self, ref: TransactionRef, *, fail: bool, done: Done) -> None:
        """Commit or roll back."""
        ...

    def leave(self, owner: object) -> None:
        """Roll back what `owner` left open."""
        ...

    def open_count(self) -> int:
        """How many are open."""
        ...

    def open_count_of(self, connection: object) -> int:
        """How many of them `connection` has declared."""
        ...

    def transfer(
        self, ref: TransactionRef | None, via: Any, data: bytes, destination: str, done: Done, *, batch: bool
    ) -> None:
        """Send through `via` to `destination`, in a transaction or by itself."""
        ...


class AdministrationPort(Protocol):
    """What can be changed over the wire: the rules of subscriptions."""

    def add_rule(self, path: str, rule: RuleDescription) -> None:
        """Add a rule."""
        ...

    def remove_rule(self, path: str, name: str) -> None:
        """Remove a rule."""
        ...

    def rules(self, path: str) -> tuple[RuleDescription, ...]:
        """All rules, in order."""
        ...


class BrokerPort(Protocol):
    """The broker as the adapter sees it; everything raises BrokerError."""

    @property
    def transactions(self) -> TransactionsPort:
        """The open transactions."""
        ...

    @property
    def administration(self) -> AdministrationPort:
        """Changes to entities."""
        ...

    @property
    def namespace(self) -> str:
        """The name of the namespace."""
        ...

    def find(self, address: str) -> tuple[Any, Any]:
        """The entity of an address, and the address taken apart."""
        ...

    def name_of(self, address: str) -> str:
        """How errors name the entity of an address."""
        ...

    def open_sender(self, address: str, *, detached: Detached) -> SenderPort:
        """A way to send to `address`."""
        ...

    def open_consumer(self, address: str, *, mode: ReceiveMode, deliver: Deliver, detached: Detached) -> ConsumerPort:
        """A way to receive from `address`."""
        ...

    def accept_session(
        self,
        address: str,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        timeout_ms: int,
        granted: Callable[[Any], None],
        refused: Callable[[BrokerError], None],
        detached: Detached,
    ) -> SessionWaitPort:
        """Wait for a message session; `granted` gets a SessionConsumerPort."""
        ...

    async def peek(
        self,
        address: str,
        from_sequence_number: int,
        count: int,
        bytes_max: int,
        session_id: str | None = None,
        partition_id: int | None = None,
    ) -> list[bytes]:
        """Encoded messages, unlocked; of one partition, if it is given."""
        ...

    async def renew_locks(self, address: str, tokens: Sequence[bytes]) -> list[int]:
        """New ends of locks, Unix ms."""
        ...

    async def settle(self, address: str, tokens: Sequence[bytes], outcome: Outcome) -> None:
        """Settle by lock token."""
        ...

    async def receive_by_sequence_number(
        self, address: str, numbers: Sequence[int], mode: ReceiveMode, session_id: str | None = None
    ) -> list[Delivery]:
        """Deferred messages."""
        ...

    async def schedule(self, address: str, encoded: Sequence[bytes]) -> list[int]:
        """Store messages for later; their sequence numbers."""
        ...

    async def cancel_scheduled(self, address: str, numbers: Sequence[int]) -> None:
        """Remove scheduled messages."""
        ...

    async def delete_messages(self, address: str, count: int, before_at: int, session_id: str | None = None) -> int:
        """Delete the oldest messages; how many it were."""
        ...

    async def extents(self, address: str) -> list[Extent | None]:
        """Where each partition begins and ends; None for one that can't be reached."""
        ...

    async def delete_before(self, address: str, partition_id: int, number: int, count: int) -> int:
        """Delete messages of a partition below a sequence number; how many it were."""
        ...

    async def renew_session(self, address: str, session_id: str) -> int:
        """The new end (Unix ms) of a held session."""
        ...

    async def set_session_state(self, address: str, session_id: str, state: bytes | None) -> None:
        """Keep or clear the state of a session."""
        ...

    async def session_state(self, address: str, session_id: str) -> bytes | None:
        """The state of a session."""
        ...

    async def message_sessions(self, address: str, updated_after: int | None) -> list[str]:
        """Names of sessions."""
        ...

    def transactional_send(self, ref: TransactionRef, sender: Any, data: bytes, *, batch: bool) -> None:
        """Add a delivery to a transaction."""
        ...

    async def transactional_schedule(self, ref: TransactionRef, address: str, encoded: Sequence[bytes]) -> list[int]:
        """Add messages for later to a transaction; the sequence numbers that they will have."""
        ...

    async def transactional_cancel(self, ref: TransactionRef, address: str, numbers: Sequence[int]) -> None:
        """Add the removal of scheduled messages to a transaction."""
        ...

    async def transactional_set_state(
        self, ref: TransactionRef, address: str, session_id: str, state: bytes | None
    ) -> None:
        """Add a new state of a session to a transaction."""
        ...

    def transactional_settle(
        self,
        ref: TransactionRef,
        address: str,
        token: bytes,
        outcome: Outcome,
        *,
        settled: bool = False,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        """Add a settlement to a transaction; `settled`: the receiver has let go of the delivery already."""
        ...
