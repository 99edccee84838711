"""Moves: entities that go to another broker, gateways that restart, and what clients meet meanwhile.

Knows what moves when, which locks go with it, and for how long an entity has no broker. Does not know how links are
found and detached: the network does that.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import structlog

from ...broker import service_errors
from ...broker.errors import BrokerError
from .. import texts
from ..behaviour import Behaviour, Parameter, Row, key_of, share
from ..faults import FaultOperation
from ..network import Link
from ..strikes import AdminRequest, Attempt, Effect, Strike

TOPIC: Final = "Moves and trouble"
KINDS: Final = ("timeout", "internal", "busy", "any")
ALLOTTED_MS: Final = 8_000

log = structlog.get_logger(__name__)


class Refusing(Behaviour):
    """What refuses attaches while an entity has no broker."""

    def refusal(self, scope: str) -> BrokerError:
        """The error of the next attach: of the kind that is the parameter `kind`, or by chance."""
        kind = self.word("kind")
        if kind == "any":
            chance = self.on.chance.draw(f"{scope} kind")
            kind = "timeout" if chance < 0.4 else "internal" if chance < 0.8 else "busy"
        match kind:
            case "timeout":
                return texts.timed_out(ALLOTTED_MS)
            case "internal":
                return texts.internal_at_attach()
            case _:
                return texts.node_busy(self.on.broker.name, 50001)


class AttachRefused(Refusing):
    """Attaches are refused while the condition is on."""

    def strike(self, attempt: Attempt) -> Strike | None:
        if attempt.operation is not FaultOperation.ATTACH or not self.covers(attempt.address):
            return None
        scope = key_of(attempt.address)
        if not self.chosen(scope) or not self.on.record(scope, "attach refused"):
            return None
        return Strike(Effect.REFUSE, self.refusal(scope))


class BrokerMove(Refusing):
    """Entities move to another broker, one after the other."""

    def begin(self) -> None:
        on, at_ms = self.on, self.on.started_at
        for entity in sorted(on.broker.namespace.entities(), key=lambda each: each.path.lower()):
            key = entity.path.lower()
            if not self.covers(entity.path) or not self.chosen(key, "entities"):
                continue
            at_ms += self._ms_between(key, "gap")
            away_ms = self._ms_between(key, "away")
            on.plan(at_ms, f"{entity.path} moves, away for {away_ms} ms")
            self.at(at_ms, partial(self._move, entity.path, at_ms, away_ms))

    def strike(self, attempt: Attempt) -> Strike | None:
        if attempt.operation is not FaultOperation.ATTACH:
            return None
        scope = key_of(attempt.address)
        if self.on.clock.now_ms() >= self.on.shared.away_until.get(scope, 0):
            return None
        return Strike(Effect.REFUSE, self.refusal(scope)) if self.on.record(scope, "attach refused") else None

    def end(self) -> None:
        super().end()
        self.on.shared.away_until.clear()

    def _ms_between(self, key: str, name: str) -> int:
        least, most = sorted((self.number(f"{name}_min_ms"), self.number(f"{name}_max_ms")))
        return self.on.chance.between(f"{key} {name}", least, most)

    def _move(self, path: str, at_ms: int, away_ms: int) -> None:
        key = key_of(path)
        if not self.on.record(key, f"moved, away for {away_ms} ms"):
            return
        self.on.shared.away_until[key] = at_ms + away_ms
        for link in self.links_of(key):
            if self.word("locks") == "forgotten":
                link.forget_locks()
            link.detach(service_errors.session_lock_lost() if link.holds_session else _moved_error(link))

    def links_of(self, key: str) -> list[Link]:
        found = (link for connection in self.on.network.connections() for link in connection.links)
        return [link for link in found if key_of(link.address) == key]


class EntityChanged(Behaviour):
    """An entity is changed: its links are detached, now and at each update by an administration client."""

    def begin(self) -> None:
        self._detach()

    def after_admin(self, request: AdminRequest) -> None:
        if request.method == "PUT" and not request.is_create and self.covers(request.path):
            self._detach(key_of(request.path))

    def _detach(self, key: str | None = None) -> None:
        for connection in self.on.network.connections():
            for link in list(connection.links):
                if not self.covers(link.address) or (key is not None and key_of(link.address) != key):
                    continue
                if self.on.record(key_of(link.address), "link detached"):
                    if self.word("locks") == "forgotten":
                        link.forget_locks()
                    link.detach(_moved_error(link))


class SessionMoved(Behaviour):
    """The locks of message sessions are lost."""

    def begin(self) -> None:
        """Detach the links of the scope that have a message session."""
        for connection in self.on.network.connections():
            for link in list(connection.links):
                key = key_of(link.address)
                if not link.holds_session or not self.covers(link.address) or not self.chosen(key):
                    continue
                if self.on.record(key, "message session lost"):
                    link.detach(service_errors.session_lock_lost())


class GatewayRestart(Behaviour):
    """A share of the connections is lost."""

    def begin(self) -> None:
        at_ms = self.on.started_at + self.number("after_ms")
        self.on.plan(at_ms, "a gateway restarts")
        self.at(at_ms, self._restart)

    def _restart(self) -> None:
        on = self.on
        for connection in list(on.network.connections()):
            links = list(connection.links)
            if on.entity is not None and not any(self.covers(link.address) for link in links):
                continue
            scope = f"connection {connection.number}"
            if not self.chosen(scope) or not on.record(scope, f"connection lost by {self.word('how')}"):
                continue
            if self.word("how") == "reset":
                connection.cut()
            else:
                connection.close(service_errors.connection_closed(on.network.container))


class RegionFailover(Behaviour):
    """The secondary region of a namespace is promoted."""

    def begin(self) -> None:
        """Lose all connections, with the locks of messages, and what the secondary does not have."""
        on = self.on
        self._until_at = on.started_at + self.number("away_ms")
        on.plan(self._until_at, "the other region answers")
        if not on.record("namespace", f"failover, away for {self.number('away_ms')} ms"):
            return
        for connection in list(on.network.connections()):
            for link in list(connection.links):
                link.forget_locks()
            connection.cut()
        if self.number("lost_ms"):
            since = on.started_at - self.number("lost_ms")
            self._losing = asyncio.get_running_loop().create_task(on.broker.maintenance.lose_since(since))
            self._losing.add_done_callback(_tell_failure)

    def accepts(self, connection: int) -> bool:
        if self.on.clock.now_ms() >= self._until_at:
            return True
        return not self.on.record("namespace", f"connection {connection} refused")


def _tell_failure(losing: asyncio.Task[int]) -> None:
    """Say that messages stayed which a failover was to lose: a store went out meanwhile."""
    if not losing.cancelled() and (error := losing.exception()) is not None:
        log.warning("failover lost too little", cause=str(error))


class PhantomNotFound(Behaviour):
    """Metadata is in trouble: an entity that exists can't be found for a time."""

    def begin(self) -> None:
        self._only: str | None = None
        if self.word("entities") == "one":
            keys = sorted(key_of(each.path) for each in self.on.broker.namespace.entities() if self.covers(each.path))
            if keys:
                self._only = keys[self.on.chance.between("entity", 0, len(keys) - 1)]
                self.on.plan(self.on.started_at, f"{self._only} is not found for {self.number('ms')} ms")

    def strike(self, attempt: Attempt) -> Strike | None:
        on = self.on
        if attempt.operation is not FaultOperation.ATTACH or not self.covers(attempt.address):
            return None
        scope = key_of(attempt.address)
        if self._only not in (None, scope) or on.clock.now_ms() >= on.started_at + self.number("ms"):
            return None
        if not on.record(scope, "entity not found"):
            return None
        return Strike(Effect.REFUSE, texts.missing_for_now(on.broker.namespace.name_of(attempt.address)))


def _moved_error(link: Link) -> BrokerError:
    return service_errors.link_closed(link.name, sends=link.sends)


_LOCKS: Final = Parameter("locks", "What becomes of the locks of messages.", "kept", choices=("kept", "forgotten"))
_KIND: Final = Parameter(
    "kind", "The error: of a time-out, of a node in trouble, of a busy node; any: 40, 40, 20 %.", "any", choices=KINDS
)
ROWS: Final = (
    Row(
        "entity-changed",
        TOPIC,
        "A property of an entity changes: every link to it is detached. Strikes when the condition begins, and at each "
        "update of an administration client.",
        "entity",
        "detach, `amqp:link:detach-forced`, `InnerMessageReceiver was closed`",
        "documentation (maintenance); azure-sdk-for-java 6280",
        (_LOCKS,),
        EntityChanged,
    ),
    Row(
        "broker-move",
        TOPIC,
        "Entities move to another node, one after the other: links are detached, message sessions and locks are lost, "
        "and attaches are refused while the entity is away.",
        "entity",
        "as `entity-changed`, then as `attach-refused`",
        "documentation (maintenance); locks: azure-service-bus-dotnet 523",
        (
            Parameter("entities", "Share of the entities that move.", 1.0, most=1),
            Parameter("gap_min_ms", "Shortest time before a move.", 0, "ms"),
            Parameter("gap_max_ms", "Longest time before a move.", 0, "ms"),
            Parameter("away_min_ms", "Shortest time without a broker.", 3_000, "ms"),
            Parameter("away_max_ms", "Longest time without a broker.", 10_000, "ms"),
            Parameter("locks", "What becomes of the locks of messages.", "forgotten", choices=("kept", "forgotten")),
            _KIND,
        ),
        BrokerMove,
    ),
    Row(
        "session-moved",
        TOPIC,
        "A partition moves: the locks of its message sessions are lost, the messages are not.",
        "entity",
        "detach, `com.microsoft:session-lock-lost`",
        "documentation; text: azure-sdk-for-js 1051",
        (share(),),
        SessionMoved,
    ),
    Row(
        "gateway-restart",
        TOPIC,
        "A gateway restarts: a share of the connections is lost; locks stay.",
        "connection",
        "a reset, or close with `amqp:connection:forced`",
        "documentation (maintenance); the text of the close is inferred",
        (
            share(),
            Parameter("how", "How connections end.", "reset", choices=("reset", "close")),
            Parameter("after_ms", "Time before the restart.", 0, "ms"),
        ),
        GatewayRestart,
    ),
    Row(
        "region-failover",
        TOPIC,
        "The secondary region of a Premium namespace is promoted: all connections and all locks are lost, and new "
        "connections are refused for a while. A forced failover loses the newest accepted messages, too: those that "
        "are active and unlocked after it.",
        "namespace",
        "TCP reset, of new AMQP connections, too",
        "documentation (geo-replication); times inferred",
        (
            Parameter("away_ms", "Time without a region.", 10_000, "ms"),
            Parameter("lost_ms", "Of which time accepted messages are lost; 0: none.", 0, "ms"),
        ),
        RegionFailover,
    ),
    Row(
        "attach-refused",
        TOPIC,
        "An entity has no broker: attaches are refused.",
        "entity",
        "`com.microsoft:timeout`, `amqp:internal-error` or `com.microsoft:server-busy`",
        "azure-service-bus-java 439, azure-sdk-for-python 23191",
        (share(), _KIND),
        AttachRefused,
    ),
    Row(
        "phantom-not-found",
        TOPIC,
        "Metadata is in trouble: an entity that exists is not found, which no client tries again.",
        "entity",
        "`amqp:not-found` at an attach",
        "azure-sdk-for-net 7907",
        (
            Parameter("ms", "How long.", 12_000, "ms"),
            Parameter("entities", "Which ones: all, or one by the seed.", "all", choices=("all", "one")),
        ),
        PhantomNotFound,
    ),
)
