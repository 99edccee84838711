"""Faults made on purpose on the connections of a listener, so that users see what their clients make of them.

Knows how to find the links that a fault is meant for, and how each fault is done. Refuses to know who asks for it and
when. A fault is a `Target` (whom it hits) and a method of `Faults` (what happens); each tells how many it has hit.
Everything here runs on the event loop of the connections, which belong to the listener.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ..broker.address import parse_address
from ..broker.errors import BrokerError, Condition
from .engine import Pointer, read_attach
from .fastpath import Link

AS_ASKED_FOR: Final = "The link is detached, as was asked for."


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


class Faulty(Protocol):
    """A connection, as far as faults need it."""

    links: dict[Pointer, Link]

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close a link from our side."""
        ...

    def abort(self) -> None:
        """Cut the socket."""
        ...


class Faults:
    """What can be done to the connections of one listener."""

    def __init__(self, connections: Collection[Faulty]) -> None:
        self._connections = connections

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
            connection.detach(pointer, BrokerError(condition, AS_ASKED_FOR))
        return len(doomed)


def _links(connection: Faulty, target: Target) -> Iterator[Pointer]:
    """The links of a connection that are meant, each by its pointer."""
    links: Mapping[Pointer, Link] = connection.links
    return (pointer for pointer in links if target.covers(read_attach(pointer).address))
