"""The verbs of the test kit, shared by `EmubusServer` and `RemoteEmubus`.

Knows their names, arguments and results: durations in milliseconds, instants in Unix milliseconds, unless named
otherwise. Every verb may be called from any thread and blocks for milliseconds only, so asynchronous tests can call it
directly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from ..broker.admin.overview import Route
from ..broker.api import OutageKind
from ..broker.errors import Condition
from ..broker.model.catalog import Description
from ..broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from ..conditions.behaviour import Value
from ..conditions.fault_table import Fault, FaultKind, FaultOperation
from ..web.services import Snapshot
from .conditions import ConditionReport, Exercise, RunningCondition


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message in an entity, decoded. Instants are Unix ms; `state` is active, deferred or scheduled.

    `properties` has the AMQP properties that are set (`message_id`, `session_id`, `subject`, …), `body` has `kind`,
    `text`, `base64` and `json`, each None if it does not apply.
    """

    partition_id: int
    sequence_number: int
    state: str
    locked_until_at: int | None
    enqueued_at: int | None
    delivery_count: int
    size_bytes: int
    header: Mapping[str, object]
    properties: Mapping[str, object]
    application_properties: Mapping[str, object]
    annotations: Mapping[str, object]
    body: Mapping[str, object]

    @property
    def text(self) -> str | None:
        """The body as text; None if it is not text."""
        text = self.body["text"]
        return text if isinstance(text, str) else None

    @property
    def message_id(self) -> object:
        """The MessageId, None if it has none."""
        return self.properties.get("message_id")


class Emubus(Protocol):
    """A running emubus. A refusal is a BrokerError whose description names the entity, the value and the limit."""

    # ---- addresses

    @property
    def connection_string(self) -> str:
        """The connection string, for data and administration clients."""
        ...

    @property
    def unresolved_connection_string(self) -> str:
        """The connection string with a host that has no address: `name-unknown` of `docs/CONDITIONS.md`."""
        ...

    # ---- entities

    def create(self, description: Description) -> None:
        """Create a queue, topic or subscription."""
        ...

    def create_queue(self, queue: QueueDescription | str) -> None:
        """Create a queue; properties that are not given come from the profile, as for clients."""
        ...

    def create_topic(self, topic: TopicDescription | str) -> None:
        """Create a topic, in the same way."""
        ...

    def create_subscription(self, subscription: SubscriptionDescription) -> None:
        """Create a subscription of a topic, with its rules; without rules it receives every message."""
        ...

    def update(self, description: Description) -> None:
        """Change an entity's properties, except those fixed at creation; the rules of a subscription stay."""
        ...

    def delete(self, path: str) -> None:
        """Delete an entity with everything in it."""
        ...

    # ---- messages

    def peek(self, path: str, sub_queue: str = "active") -> list[PeekedMessage]:
        """All messages of an entity, by peeking: does not lock, does not reset AutoDeleteOnIdle.

        `sub_queue` is active (with deferred and scheduled ones), dead-letter or transfer-dead-letter.
        """
        ...

    def message_counts(self, path: str) -> dict[str, int]:
        """Messages of an entity by state: `active`, `scheduled`, `dead-letter`, …"""
        ...

    def route(self, path: str, key: str | None = None) -> Route:
        """Where a message with a key (SessionId or PartitionKey) would go: its partition and store."""
        ...

    def purge(self, path: str | None = None) -> int:
        """Remove all messages and session states of an entity, or of all; returns the number of messages.

        Links to it are detached, and SDKs reconnect on their own.
        """
        ...

    def reset(self) -> None:
        """Reset to the state at the start: its entities without messages, no faults of any kind, the machine's time.

        Links are detached, and SDKs reconnect on their own. Snapshots are kept.
        """
        ...

    def snapshot(self, name: str) -> Snapshot:
        """Take a snapshot of all entities and messages."""
        ...

    def restore(self, name: str) -> Snapshot:
        """Restore a snapshot; SDKs reconnect on their own."""
        ...

    # ---- time

    def now_ms(self) -> int:
        """The time of the clock."""
        ...

    def advance(self, by: int | timedelta) -> None:
        """Move the clock forward, by milliseconds or a timedelta: timers that fall due run at once."""
        ...

    def freeze(self) -> None:
        """Freeze the clock; `advance` still moves it."""
        ...

    def thaw(self) -> None:
        """Thaw the clock; it goes on from where it stands."""
        ...

    # ---- outages and faults

    def begin_outage(
        self, stores: Sequence[int], kind: OutageKind, *, delay_ms: int = 0, duration_ms: int | None = None
    ) -> None:
        """Begin an outage of messaging stores (down, slow, failing, full), for a time or until `end_outage` (P18)."""
        ...

    def end_outage(self, stores: Sequence[int]) -> None:
        """End outages of stores."""
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
        """Inject a fault into operations of clients on an entity, or on any: `count` times or until `clear_faults`."""
        ...

    def clear_faults(self) -> int:
        """Clear all faults; returns how many were set."""
        ...

    def start_condition(
        self,
        name: str,
        *,
        seed: int = 0,
        entity: str | None = None,
        duration_ms: int | None = None,
        count: int | None = None,
        **values: Value,
    ) -> ConditionReport:
        """Start a preset or a single behaviour: for a time, for `count` strikes, or until it is ended.

        `values` are parameters: of a single behaviour by name, of a preset as `behaviour__parameter` with underscores
        for hyphens, such as `throttle_credits__credits_per_s`.
        """
        ...

    def conditions(
        self,
        name: str,
        *,
        seed: int = 0,
        entity: str | None = None,
        duration_ms: int | None = None,
        count: int | None = None,
        **values: Value,
    ) -> RunningCondition:
        """A condition for a `with` block, with the arguments of `start_condition`."""
        ...

    def exercise(
        self, *, minutes: float = 10.0, seed: int = 0, presets: Sequence[str] = (), entity: str | None = None
    ) -> Exercise:
        """All presets, or these, one after the other in the order of the seed: a turn of a loop for each."""
        ...

    def condition(self, number: int) -> ConditionReport:
        """A condition with what struck so far; one that has ended can be read for a while."""
        ...

    def end_condition(self, number: int) -> None:
        """End a condition; nothing if it has ended."""
        ...

    def end_conditions(self) -> int:
        """End all conditions; returns how many were on."""
        ...

    def drop_connections(self, entity: str | None = None) -> int:
        """Cut the TCP connections of all clients, or of those with a link to `entity`; returns how many."""
        ...

    def drop_links(self, entity: str, condition: Condition = Condition.DETACH_FORCED) -> int:
        """Detach every link to `entity`, its sub-queues and its `$management` node; returns how many."""
        ...


class ManualClock:
    """The clock of an emubus, frozen: only `advance` moves it."""

    def __init__(self, emubus: Emubus) -> None:
        self._emubus = emubus
        emubus.freeze()

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self._emubus.now_ms() / 1000, UTC)

    @property
    def now_ms(self) -> int:
        """The time, in Unix milliseconds."""
        return self._emubus.now_ms()

    def advance(self, by: int | timedelta) -> None:
        """Move it forward, by milliseconds or a timedelta; locks expire and messages expire or fall due at once."""
        self._emubus.advance(by)


def in_ms(by: int | timedelta) -> int:
    """A duration in milliseconds, fractions rounded up."""
    return -(-by // timedelta(milliseconds=1)) if isinstance(by, timedelta) else by
