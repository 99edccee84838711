"""What behaviours need of the clients that are connected; the AMQP adapter provides it.

Knows the few things that the service itself does to links and connections. Does not know frames. All of it happens on
the event loop of the connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ..broker.errors import BrokerError
from ..broker.lazy_dataclass import dataclass


class Link(Protocol):
    """A link of a client to an entity."""

    @property
    def address(self) -> str: ...

    @property
    def name(self) -> str:
        """The link as the service's texts name it."""
        ...

    @property
    def sends(self) -> bool:
        """Whether the client is the sender."""
        ...

    @property
    def is_coordinator(self) -> bool:
        """Whether it is a link to the coordinator of transactions."""
        ...

    @property
    def holds_session(self) -> bool: ...

    @property
    def used_at(self) -> int:
        """When something was last done over the link (Unix ms)."""
        ...

    @property
    def has_credit(self) -> bool:
        """Whether a receiver waits for messages."""
        ...

    def detach(self, error: BrokerError) -> None: ...

    def hold_credit(self, *, is_new: bool) -> None:
        """Give a sender no more credit until `give_credit`; none at all if it was attached in this moment."""
        ...

    def give_credit(self) -> None:
        """Give a sender the credit that was held."""
        ...

    def forget_locks(self) -> None:
        """Let every message that the link has locked be available again; its delivery count stays."""
        ...


class Connection(Protocol):
    """A connection of a client that has said its `open`."""

    @property
    def number(self) -> int:
        """Its ordinal among the connections of the server."""
        ...

    @property
    def opened_at(self) -> int:
        """When it was opened (Unix ms)."""
        ...

    @property
    def linkless_since(self) -> int | None:
        """When it lost its last link (Unix ms); None while it has one or never had any."""
        ...

    @property
    def heard_at(self) -> int:
        """When its client last wrote anything (Unix ms)."""
        ...

    @property
    def is_websocket(self) -> bool: ...

    @property
    def links(self) -> Iterable[Link]: ...

    def close(self, error: BrokerError) -> None:
        """Close it in good order because of `error`."""
        ...

    def cut(self) -> None:
        """Reset it."""
        ...

    def release_bytes(self) -> None:
        """Let bytes that are held pass at once."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Network:
    """The clients that are connected."""

    container: str
    """The name of the server's container."""
    connections: Callable[[], Iterable[Connection]]
    """Returns all connections that are open, the oldest first."""
