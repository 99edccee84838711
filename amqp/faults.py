"""Faults made on purpose on AMQP connections, so that users see what their clients make of them.

Knows how to find the links that a fault is meant for, and how each fault is done. A `broker.admin.fault_table` decides
which fault comes next. While it is empty nothing is put between a message's link and the broker: only when a fault is
set are the links wrapped (`fault_injection`), and unwrapped when the last fault has gone. Faults hit what is done
outside transactions. Everything here runs on the event loop of the connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial

from ..broker.address import parse_address
from ..broker.admin.fault_table import FaultKind, FaultOperation, FaultTable
from ..broker.errors import Condition
from .fault_injection import FaultyAnswer, FaultyConsumer, FaultySend, InjectionPoint, loss_of, reason_to_detach
from .link_context import LinkContext
from .links.browsing import BrowsingLink
from .links.incoming import IncomingLink
from .links.outgoing import OutgoingLink
from .nodes.cbs import CBS_ADDRESS
from .nodes.requests import RequestLink
from .wire.engine import AttachRequest, Pointer, read_attach


@dataclass(frozen=True, slots=True)
class Target:
    """The links that a fault hits: those of one `entity`, or all.

    An entity is named by its path in any spelling that clients may use. Its sub-queues and its `$management` node are
    part of it; the subscriptions of a topic are not, they are entities of their own.
    """

    entity: str | None = None

    def covers(self, address: str) -> bool:
        """Whether a link to `address` is meant."""
        return self.entity is None or parse_address(address).key == parse_address(self.entity).key


class Faults:
    """What can be done to connections: at once, or by a `table` of faults that come when clients do something."""

    def __init__(self, connections: Collection[LinkContext]) -> None:
        self._connections = connections
        self.table = FaultTable(self._on_table_changed)

    # ---- at once

    def drop_connections(self, target: Target) -> int:
        """Abort every connection that has a link that is meant, without an entity all; returns how many."""
        doomed = [each for each in self._connections if target.entity is None or any(_links(each, target))]
        for connection in doomed:
            connection.abort()
        return len(doomed)

    def drop_links(self, target: Target, condition: Condition = Condition.DETACH_FORCED) -> int:
        """Detach every link that is meant, because of `condition`; the connections stay; returns how many."""
        doomed = [(each, pointer) for each in self._connections for pointer in _links(each, target)]
        for connection, pointer in doomed:
            connection.detach(pointer, loss_of(connection, read_attach(pointer), condition))
        return len(doomed)

    def drop_connections_of(self, entity: str | None) -> int:
        """As `drop_connections`, of those with a link to an entity, or all."""
        return self.drop_connections(Target(entity))

    def drop_links_of(self, entity: str | None, condition: Condition) -> int:
        """As `drop_links`, of those to an entity, or all."""
        return self.drop_links(Target(entity), condition)

    # ---- when clients do something

    @property
    def are_set(self) -> bool:
        """Whether any fault is set: then `attaching` and `attached` must be called for new links."""
        return not self.table.is_empty

    def attaching(self, connection: LinkContext, request: AttachRequest) -> None:
        """A client attaches; BrokerError if that is to fail."""
        if _is_exempt(request.address):
            return
        fault = self.table.next_fault(request.address, FaultOperation.ATTACH)
        if fault is None:
            return
        if fault.kind is FaultKind.DROPPED_CONNECTION:
            asyncio.get_running_loop().call_soon(connection.abort)
        raise reason_to_detach(connection, request, fault.kind)

    def attached(self, connection: LinkContext) -> None:
        """Wrap the links of a connection: there are new ones among them."""
        for pointer, link in connection.links.items():
            address = read_attach(pointer).address
            point = InjectionPoint(self.table, connection, pointer, address)
            if isinstance(link, IncomingLink):
                link.wrap(partial(FaultySend, point=point))
            elif isinstance(link, OutgoingLink):
                link.wrap(partial(FaultyConsumer, point=point, link=link))
            elif isinstance(link, BrowsingLink):
                link.gate(point.may_receive)
            elif isinstance(link, RequestLink) and not _is_exempt(address):
                node_point = InjectionPoint(self.table, connection, None, address)
                link.node.wrap(partial(FaultyAnswer, point=node_point))

    def _on_table_changed(self) -> None:
        for connection in self._connections:
            if self.are_set:
                self.attached(connection)
            else:
                _unwrap(connection)


def _unwrap(connection: LinkContext) -> None:
    """Put nothing between the links of a connection and the broker."""
    for link in connection.links.values():
        if isinstance(link, IncomingLink | OutgoingLink | BrowsingLink):
            link.unwrap()
        elif isinstance(link, RequestLink):
            link.node.unwrap()


def _is_exempt(address: str) -> bool:
    """Whether faults spare a link: the one for tokens belongs to no entity."""
    return parse_address(address).key == CBS_ADDRESS


def _links(connection: LinkContext, target: Target) -> Iterator[Pointer]:
    """The links of a connection that are meant, each by its pointer."""
    return (pointer for pointer in connection.links if target.covers(read_attach(pointer).address))
