"""Where faults and conditions meet the life of links: `injection.faults` implements it, which imports this room."""

from __future__ import annotations

from typing import Protocol

from ..link_context import LinkContext
from ..wire.engine import AttachRequest, Pointer


class LinkHooks(Protocol):
    """What `Endpoints` asks, and reports, of links. Without faults and conditions `are_set` is False."""

    @property
    def are_set(self) -> bool:
        """Whether `attaching` and `attached` must be called for new links."""
        ...

    def links_per_session_max(self, usual: int) -> int:
        """How many links an AMQP session may have."""
        ...

    def attaching(self, connection: LinkContext, request: AttachRequest) -> None:
        """A client attaches; BrokerError if that is to fail."""
        ...

    def attached(self, connection: LinkContext, pointer: Pointer) -> None:
        """A link is among the connection's from now on."""
        ...

    def detached(self, connection: LinkContext, pointer: Pointer) -> None:
        """A link has gone."""
        ...
