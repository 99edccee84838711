"""Faults made on purpose on AMQP connections, so that users see what their clients make of them.

Knows how to find the links that a fault is meant for, and how each fault is done. Which one strikes is decided by a
`broker.faults.FaultTable`. While it is empty nothing of this stands in the way of a message: only when a fault is set,
something is put between each link and its handle of the broker (`interposed`), and taken away when the last has gone.
Faults strike what is done outside transactions. Everything here runs on the event loop of the connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from ..broker.address import parse_address
from ..broker.admin.fault_table import FaultKind, FaultOperation, FaultTable
from ..broker.errors import Condition
from .fault_injection import Faulty, FaultyAnswer, FaultyConsumer, FaultySender, Spot, loss_of
from .links.browsing import BrowsingLink, always
from .links.incoming import IncomingLink
from .links.outgoing import OutgoingLink
from .nodes.cbs import CBS_ADDRESS
from .wire.deliveries import Link
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
    """What can be done to connections: at once, or by a `table` of faults that strike when clients do something."""

    def __init__(self, connections: Collection[Faulty]) -> None:
        self._connections = connections
        self.table = FaultTable(self._changed)

    # ---- at once

    def drop_connections(self, target: Target) -> int:
        """Cut every connection that has a link that is meant, without a word; without an entity every connection."""
        doomed = [each for each in self._connections if target.entity is None or any(_links(each, target))]
        for connection in doomed:
            connection.abort()
        return len(doomed)

    def drop_links(self, target: Target, condition: Condition = Condition.DETACH_FORCED) -> int:
        """Detach every link that is meant, because of `condition`; the connections stay."""
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
        """Whether any fault is set: then `attaching` and `attached` want to hear of links."""
        return not self.table.is_empty

    def attaching(self, connection: Faulty, request: AttachRequest) -> None:
        """A client attaches; BrokerError if that is to fail."""
        if _is_exempt(request.address):
            return
        fault = self.table.strike(request.address, FaultOperation.ATTACH)
        if fault is None:
            return
        if fault.kind is FaultKind.DROPPED_CONNECTION:
            asyncio.get_running_loop().call_soon(connection.abort)
        condition = Condition.SERVER_BUSY if fault.kind is FaultKind.SERVER_BUSY else Condition.DETACH_FORCED
        raise loss_of(connection, request, condition)

    def attached(self, connection: Faulty) -> None:
        """A connection has new links: have faults strike them, too."""
        for pointer, link in connection.links.items():
            address = read_attach(pointer).address
            spot = Spot(self.table, connection, pointer, address)
            if isinstance(link, IncomingLink):
                link.interpose(partial(FaultySender.around, spot=spot))
            elif isinstance(link, OutgoingLink):
                link.interpose(partial(FaultyConsumer.around, spot=spot, link=link))
            elif isinstance(link, BrowsingLink):
                link.may_look = spot.may_receive
        for address, node in connection.nodes.items():
            if not _is_exempt(address):
                at = Spot(self.table, connection, None, address)
                node.interpose(partial(FaultyAnswer.around, spot=at))

    def _changed(self) -> None:
        for connection in self._connections:
            if self.are_set:
                self.attached(connection)
            else:
                _restore(connection)


def _restore(connection: Faulty) -> None:
    """Take what stands between links and the broker away."""
    for link in connection.links.values():
        if isinstance(link, IncomingLink):
            link.interpose(FaultySender.bare)
        elif isinstance(link, OutgoingLink):
            link.interpose(FaultyConsumer.bare)
        elif isinstance(link, BrowsingLink):
            link.may_look = always
    for node in connection.nodes.values():
        node.interpose(FaultyAnswer.bare)


def _is_exempt(address: str) -> bool:
    """Whether no fault strikes a link: the one for tokens belongs to no entity."""
    return parse_address(address).key == CBS_ADDRESS


def _links(connection: Faulty, target: Target) -> Iterator[Pointer]:
    """The links of a connection that are meant, each by its pointer."""
    links: Mapping[Pointer, Link] = connection.links
    return (pointer for pointer in links if target.covers(read_attach(pointer).address))
