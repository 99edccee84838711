"""Links and connections as behaviours see them (`conditions/network.py`).

Knows where each fact is and how each act is done. Does not know when.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...broker.errors import BrokerError
from ...broker.lazy_dataclass import dataclass
from ..link_context import LinkContext
from ..links.coordinator import CoordinatorLink
from ..links.incoming import IncomingLink
from ..links.message_sessions import MessageSessionLink
from ..links.outgoing import OutgoingLink, address_of
from ..nodes.cbs import CBS_ADDRESS
from ..watch import Watch
from ..wire.engine import AttachRequest, Pointer, read_attach
from ..wire.outcomes import RELEASE


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeenLink:
    """A link as behaviours see it."""

    connection: LinkContext
    pointer: Pointer
    request: AttachRequest
    watch: Watch

    @property
    def address(self) -> str:
        """The address that the client attached to; of a JMS consumer on a topic that of its subscription."""
        return address_of(self.connection, self.pointer)

    @property
    def name(self) -> str:
        return self.connection.tracker.name_of_link(self.request.name)

    @property
    def sends(self) -> bool:
        return self.request.sends

    @property
    def is_coordinator(self) -> bool:
        return isinstance(self.connection.wire.links.get(self.pointer), CoordinatorLink)

    @property
    def holds_session(self) -> bool:
        return isinstance(self.connection.wire.links.get(self.pointer), MessageSessionLink)

    @property
    def used_at(self) -> int:
        return self.watch.used_at(self.pointer)

    @property
    def has_credit(self) -> bool:
        link = self.connection.wire.links.get(self.pointer)
        return isinstance(link, OutgoingLink) and link.credit > 0

    def detach(self, error: BrokerError) -> None:
        self.connection.requests.detach(self.pointer, error)

    def hold_credit(self, *, is_new: bool) -> None:
        link = self.connection.wire.links.get(self.pointer)
        if isinstance(link, IncomingLink):
            link.hold_credit(is_new=is_new)

    def give_credit(self) -> None:
        link = self.connection.wire.links.get(self.pointer)
        if isinstance(link, IncomingLink):
            link.give_credit()
            self.connection.requests.schedule_flush()

    def forget_locks(self) -> None:
        link = self.connection.wire.links.get(self.pointer)
        if isinstance(link, OutgoingLink) and link.receiver is not None and not link.presettled:
            link.receiver.settle(link.unsettled_tokens(), RELEASE, None)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeenConnection:
    """A connection as behaviours see it."""

    connection: LinkContext
    watch: Watch

    @property
    def number(self) -> int:
        return self.connection.tracker.number

    @property
    def opened_at(self) -> int:
        return self.watch.opened_at

    @property
    def linkless_since(self) -> int | None:
        return self.watch.linkless_since

    @property
    def heard_at(self) -> int:
        return self.watch.heard_at

    @property
    def is_websocket(self) -> bool:
        return self.connection.requests.is_websocket

    @property
    def links(self) -> Iterator[SeenLink]:
        """Its links to entities; those for tokens belong to none."""
        for pointer in list(self.connection.wire.links):
            request = read_attach(pointer)
            if request.address.strip("/").lower() != CBS_ADDRESS:
                yield SeenLink(self.connection, pointer, request, self.watch)

    def close(self, error: BrokerError) -> None:
        self.connection.requests.close(error)

    def cut(self) -> None:
        self.connection.requests.abort()

    def release_bytes(self) -> None:
        self.connection.requests.release_bytes()
