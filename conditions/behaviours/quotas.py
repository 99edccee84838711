"""Quotas: limits that are lower than usual, and what a sender meets at them.

Knows what is refused when. Does not know how a connection, an AMQP session or a link ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ...broker import service_errors
from ...broker.errors import BrokerError
from ...broker.model.descriptions import TopicDescription
from ..behaviour import Behaviour, Circumstances, Parameter, Row, key_of, share
from ..faults import FaultOperation
from ..network import Link
from ..strikes import Attempt, Effect, Strike


class LinksPerSession(Behaviour):
    """An AMQP session may have few links; one more ends it with all of them."""

    def links_per_session_max(self) -> int | None:
        return self.number("max")


class UnsettledWindow(Behaviour):
    """An AMQP session with many unsettled messages gets no more."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._full: set[str] = set()

    def room(self, address: str, unsettled: Callable[[], int]) -> int | None:
        """What is left up to the limit; noted when nothing is."""
        if not self.covers(address):
            return None
        scope, left = key_of(address), self.number("max") - unsettled()
        if left > 0:
            self._full.discard(scope)
            return left
        if scope not in self._full and not self.on.record(scope, "too many messages unsettled"):
            return None
        self._full.add(scope)
        return 0


class Connections(Behaviour):
    """The namespace may have few connections."""

    def opening(self) -> BrokerError | None:
        count = sum(1 for _ in self.on.network.connections())
        if count < self.number("max") or not self.on.record("namespace", "connection refused"):
            return None
        return service_errors.connections_quota_exceeded(self.on.broker.name)


class EntityFull(Behaviour):
    """An entity may hold few bytes."""

    def strike(self, attempt: Attempt) -> Strike | None:
        broker, scope = self.on.broker, key_of(attempt.address)
        if attempt.operation is not FaultOperation.SEND or not self.covers(attempt.address):
            return None
        entity = broker.namespace.entity(scope)
        if entity is None:
            return None
        is_topic = isinstance(entity.description, TopicDescription)
        totals = broker.namespace.totals_of_topic(entity) if is_topic else entity.totals_now()
        used, most = totals.bytes_used, self.number("max")
        if used + attempt.size_bytes <= most or not self.on.record(scope, f"send refused at {used} bytes"):
            return None
        kind = "Topic" if is_topic else "Queue"
        return Strike(Effect.REFUSE, service_errors.entity_full(kind, entity.name_in_errors, used, most))


class BatchTooLarge(Behaviour):
    """A batch is larger than a batch may be, although the link takes messages of that size."""

    def strike(self, attempt: Attempt) -> Strike | None:
        if attempt.operation is not FaultOperation.SEND or not attempt.is_batch or not self.covers(attempt.address):
            return None
        scope, size = key_of(attempt.address), attempt.size_bytes
        if size <= self.number("max") or not self.on.record(scope, f"batch of {size} bytes"):
            return None
        return Strike(Effect.DETACH, service_errors.batch_empty(attempt.link()))


class NoCredit(Behaviour):
    """Senders get no credit for a while after they attach; those that are attached get no more."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._held: dict[tuple[int, str], Link] = {}
        self._begun: set[tuple[int, str]] = set()

    def begin(self) -> None:
        self._hold(is_new=False)

    def changed(self) -> None:
        self._hold(is_new=True)

    def end(self) -> None:
        super().end()
        for name in list(self._held):
            self._give(name)

    def _hold(self, *, is_new: bool) -> None:
        there: set[tuple[int, str]] = set()
        for connection in self.on.network.connections():
            for link in connection.links:
                name = (connection.number, link.name)
                there.add(name)
                if name in self._begun or not link.sends or link.is_coordinator or not self.covers(link.address):
                    continue
                self._begun.add(name)
                scope = key_of(link.address)
                if self.chosen(scope) and self.on.record(scope, "no credit"):
                    link.hold_credit(is_new=is_new)
                    self._held[name] = link
                    self.at(self.on.clock.now_ms() + self.number("ms"), partial(self._give, name))
        self._begun &= there  # a link of that name may come again

    def _give(self, name: tuple[int, str]) -> None:
        link = self._held.pop(name, None)
        if link is not None:
            link.give_credit()


ROWS: Final = (
    Row(
        "links-per-session",
        "Quotas",
        "An AMQP session may have few links: with one more the session ends, with all its links.",
        "AMQP session",
        "end, `amqp:resource-limit-exceeded`; the connection stays",
        "azure-sdk-for-java 32211",
        (Parameter("max", "Links of an AMQP session.", 255, "links", 1, 255),),
        LinksPerSession,
    ),
    Row(
        "unsettled-window",
        "Quotas",
        "A client leaves messages unsettled, also when their locks are long over: its AMQP session gets no more.",
        "entity",
        "nothing, although there are messages and credit",
        "azure-amqp 152, azure-sdk-for-net 6450",
        (Parameter("max", "Unsettled messages of an AMQP session.", 5_000, "messages", 1, 5_000),),
        UnsettledWindow,
    ),
    Row(
        "connections",
        "Quotas",
        "The namespace may have few connections.",
        "namespace",
        "close, `amqp:resource-limit-exceeded`",
        "documentation (quotas); the AMQP form is inferred",
        (Parameter("max", "Connections of the namespace.", 5_000, "connections", 0, 5_000),),
        Connections,
    ),
    Row(
        "entity-full",
        "Quotas",
        "An entity may hold few bytes; dead letters and scheduled messages count, and for a topic its subscriptions.",
        "entity",
        "rejected, `amqp:resource-limit-exceeded`, `QuotaType: EntitySize`",
        "azure-service-bus 683; documentation (quotas)",
        (Parameter("max", "Bytes of an entity.", 1_000_000, "bytes", 0, 1 << 40),),
        EntityFull,
    ),
    Row(
        "batch-too-large",
        "Sending",
        "A batch is larger than 1 MiB although the link takes messages of that size: the broker takes it for an empty "
        "one.",
        "entity",
        "detach, `amqp:not-allowed`, `received a batch message with no data in it`",
        "azure-sdk-for-python 38260, azure-sdk-for-js 33278; the condition is inferred",
        (Parameter("max", "Bytes of a batch.", 1 << 20, "bytes", 0, 100 << 20),),
        BatchTooLarge,
    ),
    Row(
        "no-credit",
        "Sending",
        "A sender that attaches gets no credit for a while, and one that is attached gets no more than it has.",
        "entity",
        "no flow",
        "inferred",
        (share(), Parameter("ms", "How long.", 10_000, "ms", 1)),
        NoCredit,
    ),
)
