"""Silence: links, connections and clients that have done nothing for too long.

Knows the timers and what counts as use. Does not know how uses are noted: the network does that. A timer is set for
the earliest end; use only moves an end back, so one that comes too early is no harm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from ...broker.clock import Timer
from .. import texts
from ..behaviour import Behaviour, Circumstances, Parameter, Row, key_of
from ..faults import FaultOperation
from ..network import Connection
from ..strikes import Attempt, Effect, Strike

TOPIC: Final = "Silence"

End = tuple[int, str, Callable[[], None]]
"""When something ends (Unix ms), the scope that it is noted for, and what ends it."""


class Idling(Behaviour, ABC):
    """Ends what has been idle for its time."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._timer: Timer | None = None
        self._is_ending = False

    @abstractmethod
    def ends(self) -> Iterator[End]:
        """What ends when, as things are."""

    def begin(self) -> None:
        self.changed()

    def changed(self) -> None:
        """End what is due, and have a timer for what is next; an end is a change itself."""
        if self._is_ending:
            return
        now = self.on.clock.now_ms()
        left: list[int] = []
        self._is_ending = True
        for at_ms, scope, end in list(self.ends()):
            if at_ms > now:
                left.append(at_ms)
            elif self.on.record(scope, "idle"):
                end()
        self._is_ending = False
        self._cancel()
        if left:
            self._timer = self.on.clock.call_at(min(left), self._look)

    def end(self) -> None:
        super().end()
        self._cancel()

    def _look(self) -> None:
        self._timer = None
        self.changed()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class IdleLink(Idling):
    """A link over which nothing is done is detached; a receiver with credit is in use."""

    def ends(self) -> Iterator[End]:
        idle_ms, now = self.number("idle_ms"), self.on.clock.now_ms()
        for connection in self.on.network.connections():
            for link in list(connection.links):
                if self.covers(link.address):
                    at_ms = (now + 1 if link.has_credit else link.used_at) + idle_ms
                    error = texts.link_idle(link.name, idle_ms, sends=link.sends)
                    yield at_ms, key_of(link.address), partial(link.detach, error)


class IdleConnection(Idling):
    """A connection without links is closed."""

    def ends(self) -> Iterator[End]:
        for each in self.on.network.connections():
            if any(True for _ in each.links):
                continue
            since, ms = each.linkless_since, self.number("later_ms")
            if since is None:
                since, ms = each.opened_at, self.number("first_ms")
            if self.word("wording") == "new":
                error = texts.connection_without_links(self.on.network.container, ms)
            else:
                error = texts.connection_inactive("LinkTracker", ms)
            yield since + ms, _connection_name(each), partial(each.close, error)


class SilentConnection(Idling):
    """A connection whose client writes nothing is closed."""

    def ends(self) -> Iterator[End]:
        ms = self.number("idle_ms")
        error = texts.connection_inactive(self.on.network.container, ms)
        for each in self.on.network.connections():
            yield each.heard_at + ms, _connection_name(each), partial(each.close, error)


class AgeLimit(Idling):
    """A connection is closed at an age."""

    def ends(self) -> Iterator[End]:
        ms = self.number("max_age_ms")
        error = texts.connection_inactive(self.on.network.container, ms)
        for each in self.on.network.connections():
            yield each.opened_at + ms, _connection_name(each), partial(each.close, error)


class RenewalsOnly(Behaviour):
    """Locks of a partitioned entity are lost if nothing but renewals went over their link for a time."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._used_at: dict[str, int] = {}

    def delivered(self, address: str, count: int, link: Callable[[], str]) -> None:
        if self._is_partitioned(address):
            self._used_at[link()] = self.on.clock.now_ms()

    def strike(self, attempt: Attempt) -> Strike | None:
        """Lose the lock of a message that is settled over a link that was not used."""
        if attempt.operation not in (FaultOperation.RECEIVE, FaultOperation.SETTLE):
            return None
        if attempt.request or not self._is_partitioned(attempt.address):
            return None
        now, link = self.on.clock.now_ms(), attempt.link()
        since = self._used_at.get(link, self.on.started_at)
        if attempt.operation is FaultOperation.SETTLE and now - since >= self.number("ms"):
            scope = key_of(attempt.address)
            return Strike(Effect.LOSE_LOCK) if self.on.record(scope, "lock lost although renewed") else None
        self._used_at[link] = now
        return None

    def _is_partitioned(self, address: str) -> bool:
        entity = self.on.broker.namespace.entity(key_of(address))
        return entity is not None and len(entity.partitions) > 1 and self.covers(address)


def _connection_name(connection: Connection) -> str:
    return f"connection {connection.number}"


ROWS: Final = (
    Row(
        "idle-link",
        TOPIC,
        "Nothing is done over a link for ten minutes: it is detached, the connection stays. A receiver with credit is "
        "in use.",
        "link",
        "detach, `amqp:link:detach-forced`, `IdleTimerExpired`",
        "documentation (AMQP errors); azure-sdk-for-python 10127",
        (Parameter("idle_ms", "Time without use.", 600_000, "ms", 1),),
        IdleLink,
    ),
    Row(
        "idle-connection",
        TOPIC,
        "A connection has no links for a minute after its start, or for five minutes later: it is closed.",
        "connection",
        "close, `amqp:connection:forced`",
        "documentation (AMQP errors); azure-sdk-for-python 36677",
        (
            Parameter("first_ms", "Time without a link after the start.", 60_000, "ms", 1),
            Parameter("later_ms", "Time since the last link.", 300_000, "ms", 1),
            Parameter("wording", "The text: since August 2024, or before.", "new", choices=("new", "old")),
        ),
        IdleConnection,
    ),
    Row(
        "silent-connection",
        TOPIC,
        "A client writes nothing at all for four minutes: its connection is closed.",
        "connection",
        "close, `amqp:connection:forced`",
        "azure-service-bus-dotnet 259",
        (Parameter("idle_ms", "Time without a frame.", 240_000, "ms", 1),),
        SilentConnection,
    ),
    Row(
        "age-limit",
        TOPIC,
        "A connection is closed at an age. No such limit of the service is known.",
        "connection",
        "close, `amqp:connection:forced`",
        "our own",
        (Parameter("max_age_ms", "The age.", 86_400_000, "ms", 1),),
        AgeLimit,
    ),
    Row(
        "partitioned-20-minutes",
        TOPIC,
        "For twenty minutes nothing but renewals of locks goes over a link to a partitioned entity: its locks are lost "
        "although they are renewed. A defect of 2019.",
        "link",
        "`com.microsoft:message-lock-lost` at a settlement",
        "azure-service-bus 276",
        (Parameter("ms", "Time with renewals only.", 1_200_000, "ms", 1),),
        RenewalsOnly,
    ),
)
