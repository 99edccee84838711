"""What a test can do to an emubus, wherever it runs: the verbs that `EmubusServer` and `RemoteEmubus` share.

Knows their names, arguments and results, all in milliseconds and Unix milliseconds unless named otherwise. Refuses to
know how they are done. Every verb may be called from any thread, and waits for milliseconds only, so that
asynchronous tests call them as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from ..broker.admin.fault_table import Fault, FaultKind, FaultOperation
from ..broker.admin.overview import Route
from ..broker.api import OutageKind
from ..broker.errors import Condition
from ..broker.model.catalog import Description
from ..broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from ..web.services import Snapshot


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message as it lies in an entity, decoded. Instants are Unix ms; `state` is active, deferred or scheduled.

    `properties` has the AMQP properties that are set (`message_id`, `session_id`, `subject`, …), `body` has `kind`,
    `text`, `base64` and `json`, None for what it is not.
    """

    partition_id: int
    sequence_number: int
    state: str
    locked_until_at: int | None
    enqueued_at: int | None
    delivery_count: int
    size_bytes: int
    header: Mapping[str, Any]
    properties: Mapping[str, Any]
    application_properties: Mapping[str, Any]
    annotations: Mapping[str, Any]
    body: Mapping[str, Any]

    @property
    def text(self) -> str | None:
        """The body as text; None if it is none."""
        text: str | None = self.body["text"]
        return text

    @property
    def message_id(self) -> Any:
        """The MessageId, None if it has none."""
        return self.properties.get("message_id")


class Emubus(Protocol):
    """A running emubus. What is refused is a BrokerError whose description names the thing, the value and the limit."""

    # ---- where it is

    @property
    def connection_string(self) -> str:
        """What a Service Bus SDK wants to know: its clients for data and for administration alike."""
        ...

    # ---- entities

    def create(self, description: Description) -> None:
        """Create a queue, topic or subscription."""
        ...

    def create_queue(self, queue: QueueDescription | str) -> None:
        """Create a queue; of one that is only named the profile decides the rest, as it does for clients."""
        ...

    def create_topic(self, topic: TopicDescription | str) -> None:
        """Create a topic, in the same way."""
        ...

    def create_subscription(self, subscription: SubscriptionDescription) -> None:
        """Create a subscription of a topic, with its rules; without any it gets everything."""
        ...

    def update(self, description: Description) -> None:
        """Change an entity's properties, but not what is chosen at creation; the rules of a subscription stay."""
        ...

    def delete(self, path: str) -> None:
        """Delete an entity with everything in it."""
        ...

    # ---- what is in them

    def peek(self, path: str, sub_queue: str = "active") -> list[PeekedMessage]:
        """All messages of an entity, which are neither locked nor counted as used by that.

        `sub_queue` is active (with deferred and scheduled ones), dead-letter or transfer-dead-letter.
        """
        ...

    def message_counts(self, path: str) -> dict[str, int]:
        """How many messages an entity has, by where they are: `active`, `scheduled`, `dead-letter`, …"""
        ...

    def route(self, path: str, key: str | None = None) -> Route:
        """Where a message with a key (SessionId or PartitionKey) would go: its partition, and the store of that."""
        ...

    def purge(self, path: str | None = None) -> int:
        """Remove all messages and session states of an entity, without a path of all; how many messages it were.

        Links to it are detached, and clients attach again by themselves.
        """
        ...

    def reset(self) -> None:
        """As at the start: the same entities without messages, no others, no outages, no faults, the machine's time.

        Links are detached, and clients attach again by themselves. Snapshots are kept.
        """
        ...

    def snapshot(self, name: str) -> Snapshot:
        """Keep all entities and messages as they are now."""
        ...

    def restore(self, name: str) -> Snapshot:
        """Bring all entities and messages back to what they were; clients attach again by themselves."""
        ...

    # ---- time

    def now_ms(self) -> int:
        """What the clock shows."""
        ...

    def advance(self, by: int | timedelta) -> None:
        """Move the clock forward, by milliseconds or a timedelta: what falls due happens at once."""
        ...

    def freeze(self) -> None:
        """Stop the clock; `advance` still moves it."""
        ...

    def thaw(self) -> None:
        """Let the clock go on from where it stands."""
        ...

    # ---- what goes wrong

    def begin_outage(
        self, stores: Sequence[int], kind: OutageKind, *, delay_ms: int = 0, duration_ms: int | None = None
    ) -> None:
        """Let messaging stores be down, slow, failing their commits or full, for a time or until `end_outage` (P18)."""
        ...

    def end_outage(self, stores: Sequence[int]) -> None:
        """The stores work again."""
        ...

    def add_fault(
        self,
        kind: FaultKind,
        *,
        entity: str | None = None,
        operations: Collection[FaultOperation] = (),
        count: int | None = None,
        probability: float = 1.0,
        delay_ms: int = 0,
    ) -> Fault:
        """Let something go wrong when clients use an entity, or any: `count` times or until `clear_faults`."""
        ...

    def clear_faults(self) -> int:
        """Let nothing go wrong any more; how many faults were set."""
        ...

    def drop_connections(self, entity: str | None = None) -> int:
        """Cut the TCP connections of all clients, or of those with a link to `entity`; how many it were."""
        ...

    def drop_links(self, entity: str, condition: Condition = Condition.DETACH_FORCED) -> int:
        """Detach every link to `entity`, its sub-queues and its `$management` node; how many it were."""
        ...


class ManualClock:
    """The clock of an emubus, stopped: time passes by `advance` only."""

    def __init__(self, emubus: Emubus) -> None:
        self._emubus = emubus
        emubus.freeze()

    @property
    def now(self) -> datetime:
        """What it shows, in UTC."""
        return datetime.fromtimestamp(self._emubus.now_ms() / 1000, UTC)

    @property
    def now_ms(self) -> int:
        """The same in Unix milliseconds."""
        return self._emubus.now_ms()

    def advance(self, by: int | timedelta) -> None:
        """Move it forward, by milliseconds or a timedelta; locks end, messages expire or become due, at once."""
        self._emubus.advance(by)


def in_ms(by: int | timedelta) -> int:
    """A span as milliseconds, a fraction rounded up, so that what ends within it has ended."""
    return -(-by // timedelta(milliseconds=1)) if isinstance(by, timedelta) else by
