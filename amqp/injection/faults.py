"""Faults made on purpose on AMQP connections, so that users see what their clients make of them.

Knows how to find the links that a fault is meant for, and how each one is done; `conditions.engine` decides what comes
next. While no fault or condition is on nothing is put between a message's link and the broker: only then do links have
taps (`links/hooks`), and none any more when the last one has gone.
Faults hit what is done outside transactions. Everything here runs on the event loop of the connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from functools import partial

from ...broker.address import parse_address
from ...broker.errors import Condition
from ...broker.lazy_dataclass import dataclass
from ...conditions.engine import Conditions
from ...conditions.faults import FaultOperation
from ...conditions.strikes import Effect
from ..link_context import LinkContext
from ..links.browsing import BrowsingLink
from ..links.coordinator import CoordinatorLink
from ..links.incoming import IncomingLink
from ..links.outgoing import OutgoingLink, address_of
from ..nodes.cbs import CBS_ADDRESS
from ..nodes.requests import RequestLink
from ..watch import Watch
from ..wire.engine import AttachRequest, Pointer, read_attach
from .point import InjectionPoint, detach_error_of
from .receiving import FaultyReceiving
from .seen import SeenConnection
from .sending import discharge_or_fail, send_or_fail


@dataclass(frozen=True, slots=True)
class Target:
    """The links that a fault hits: those of one `entity`, or all.

    An entity is named by its path in any spelling that clients may use. Its sub-queues and its `$management` node are
    part of it; the subscriptions of a topic are not, they are entities of their own.
    """

    entity: str | None = None

    def covers(self, address: str) -> bool:
        return self.entity is None or parse_address(address).key == parse_address(self.entity).key


class Faults:
    """What can be done to connections: at once, or by `conditions`, which see the `opened` connections here."""

    def __init__(
        self,
        connections: Collection[LinkContext],
        conditions: Conditions,
        opened: Collection[LinkContext] = (),
    ) -> None:
        self._connections = connections
        self._conditions = conditions
        self._opened = opened
        self._had_conditions = conditions.are_on
        conditions.watch(self._on_changed)

    # ---- at once

    def drop_connections(self, target: Target) -> int:
        """Abort every connection that has a link that is meant, without an entity all; returns how many."""
        doomed = [each for each in self._connections if target.entity is None or any(_links(each, target))]
        for connection in doomed:
            connection.requests.abort()
        return len(doomed)

    def drop_links(self, target: Target, condition: Condition = Condition.DETACH_FORCED) -> int:
        """Detach every link that is meant, because of `condition`; the connections stay; returns how many."""
        doomed = [(each, pointer) for each in self._connections for pointer in _links(each, target)]
        for connection, pointer in doomed:
            connection.requests.detach(pointer, detach_error_of(connection, read_attach(pointer), condition))
        return len(doomed)

    def drop_connections_of(self, entity: str | None) -> int:
        """As `drop_connections`, of those with a link to an entity, or all."""
        return self.drop_connections(Target(entity))

    def drop_connection(self, number: int) -> bool:
        """Abort one connection; whether there is one of that number."""
        doomed = [each for each in self._connections if each.number == number and each.client]
        for connection in doomed:
            connection.requests.abort()
        return bool(doomed)

    def drop_links_of(self, entity: str | None, condition: Condition) -> int:
        """As `drop_links`, of those to an entity, or all."""
        return self.drop_links(Target(entity), condition)

    # ---- what behaviours see

    def connections(self) -> Iterator[SeenConnection]:
        """The connections that are open, the oldest first."""
        for connection in list(self._opened):
            if connection.watch is not None:
                yield SeenConnection(connection, connection.watch)

    # ---- when clients do something

    @property
    def are_set(self) -> bool:
        """Whether any fault or condition is on: then `attaching` and `attached` must be called for new links."""
        return self._conditions.are_set

    def links_per_session_max(self, usual: int) -> int:
        """How many links an AMQP session may have."""
        return self._conditions.links_per_session_max(usual) if self._conditions.are_on else usual

    def opened(self, connection: LinkContext) -> None:
        """A client has said its `open`."""
        if self._conditions.are_on:
            connection.requests.observe(Watch(connection.clock.now_ms))
            self._conditions.changed()

    def lost(self) -> None:
        """A connection that was open is over."""
        if self._conditions.are_on:
            self._conditions.changed()

    def attaching(self, connection: LinkContext, request: AttachRequest) -> None:
        """A client attaches; BrokerError if that is to fail."""
        if _is_exempt(request.address):
            return
        point = InjectionPoint(self._conditions, connection, None, request.address)
        strike = point.next_strike(FaultOperation.ATTACH)
        if strike is None:
            return
        if strike.effect is Effect.CUT:
            asyncio.get_running_loop().call_soon(connection.requests.abort)
        raise strike.error or detach_error_of(connection, request, Condition.DETACH_FORCED)

    def attached(self, connection: LinkContext, pointer: Pointer) -> None:
        """Tap a new link."""
        self._put_tap(connection, pointer)
        if connection.watch is not None and not _is_exempt(read_attach(pointer).address):
            connection.watch.attached(pointer)
            self._conditions.changed()

    def detached(self, connection: LinkContext, pointer: Pointer) -> None:
        if connection.watch is not None:
            connection.watch.detached(pointer, is_last=not _has_links(connection))
            self._conditions.changed()

    def _put_tap(self, connection: LinkContext, pointer: Pointer) -> None:
        """Put a tap into a link or its node, unless there is one."""
        link = connection.wire.links[pointer]
        address = address_of(connection, pointer)
        point = InjectionPoint(self._conditions, connection, pointer, address)
        if isinstance(link, IncomingLink):
            link.tap = partial(send_or_fail, point)
        elif isinstance(link, OutgoingLink):
            if link.receiver is not None and link.tap is None:
                link.tap = FaultyReceiving(link.receiver.address, point, link)
                if self._conditions.are_on:
                    link.resume()
        elif isinstance(link, BrowsingLink):
            link.tap = point.may_receive
        elif isinstance(link, CoordinatorLink):
            link.tap = partial(discharge_or_fail, point)
        elif isinstance(link, RequestLink) and not _is_exempt(address):
            node_point = InjectionPoint(self._conditions, connection, None, address)
            from .answering import FaultyAnswering  # not needed for a start

            link.node.tap = FaultyAnswering(node_point)

    def _on_changed(self) -> None:
        """The first fault or condition has come, or the last has gone: credit that a condition kept back is passed on.

        A fault keeps none back, but its link may be about to be lost: with credit it would lock messages.
        """
        had_conditions, self._had_conditions = self._had_conditions, self._conditions.are_on
        for connection in self._connections:
            connection.requests.observe(Watch(connection.clock.now_ms) if self._conditions.are_on else None)
            for pointer, link in list(connection.wire.links.items()):
                if self.are_set:
                    self._put_tap(connection, pointer)
                else:
                    _untap(connection, pointer)
                    if had_conditions and isinstance(link, OutgoingLink):
                        link.resume()


def _untap(connection: LinkContext, pointer: Pointer) -> None:
    """Put nothing between a link of a connection and the broker."""
    link = connection.wire.links[pointer]
    if isinstance(link, OutgoingLink):
        tap, link.tap = link.tap, None
        if isinstance(tap, FaultyReceiving):
            tap.let_go()
    elif isinstance(link, IncomingLink | BrowsingLink | CoordinatorLink):
        link.tap = None
    elif isinstance(link, RequestLink):
        link.node.tap = None


def _is_exempt(address: str) -> bool:
    """Whether faults spare a link: the one for tokens belongs to no entity."""
    return parse_address(address).key == CBS_ADDRESS


def _has_links(connection: LinkContext) -> bool:
    """Whether a connection has a link to an entity."""
    return any(not _is_exempt(read_attach(pointer).address) for pointer in connection.wire.links)


def _links(connection: LinkContext, target: Target) -> Iterator[Pointer]:
    """The links of a connection that are meant, each by its pointer."""
    return (pointer for pointer in connection.wire.links if target.covers(address_of(connection, pointer)))
