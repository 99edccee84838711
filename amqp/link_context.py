"""What the links and nodes of one connection see of it: the broker, limits, claims, and what they may ask for.

Knows everything that is the same for all links of a connection. Does not know bytes, frames and the socket: the
connection does, which is a context itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable
from typing import Final

import structlog

from ..broker.access import Access
from ..broker.broker import Broker
from ..broker.clock import Clock
from ..broker.errors import BrokerError
from ..conditions.engine import Conditions
from .limits import Limits
from .nodes.claims import Claims
from .quotas import MemoryAccount, MemoryUse
from .tracking import Tracker
from .watch import Watch
from .wire.engine import AttachRequest, Pointer
from .wire.link import ConnectionState

JMS_PROPERTY: Final = "com.microsoft:is-client-provider"
"""True in the `open` of a client of JMS 2.0: the library azure-servicebus-jms sets it, plain Qpid JMS does not."""


class LinkContext(ConnectionState):
    """A connection as its links and nodes see it; `number` identifies it in the log."""

    def __init__(
        self,
        broker: Broker,
        access: Access,
        clock: Clock,
        limits: Limits,
        memory_in_all: Counter[MemoryUse],
        conditions: Conditions,
        number: int,
    ) -> None:
        super().__init__(limits.pending_bytes_max, structlog.get_logger().bind(connection=number))
        self.number = number
        self.client: dict[str, str] = {}
        """What the client says of itself: container, product, version; and its address."""
        self.broker = broker
        self.clock = clock
        self.conditions = conditions
        self.limits = limits
        self.tracker = Tracker(broker, clock, number, self.client)
        self.claims = Claims(access, clock, limits.claims_max, self.claims_expired)
        self.container_id = ""
        self.opened_at = 0
        """When the client's open came (Unix ms)."""
        self.open_properties: dict[str, object] = {}
        self.watch: Watch | None = None
        """What is noted while conditions are on."""
        self.memory = MemoryAccount(limits, memory_in_all, lambda: self.is_stranger)

    def observe(self, watch: Watch | None) -> None:
        """Note uses in `watch` from now on, or no more."""
        self.watch = watch

    def opened_by(self, container_id: str, properties: dict[str, object]) -> None:
        """The client's open has come."""
        self.container_id = container_id
        self.opened_at = self.clock.now_ms()
        self.open_properties = properties

    @property
    def client_name(self) -> str:
        """The client for people: product and version, or container, with its address."""
        known = self.client
        product = " ".join(filter(None, (known.get("product"), known.get("version")))) or known.get("container", "")
        return f"{product} at {known.get('peer', '')}, connection {self.number}"

    @property
    def is_jms_library(self) -> bool:
        """Whether the client says that it is the library for JMS 2.0."""
        return self.open_properties.get(JMS_PROPERTY) is True

    @property
    def is_stranger(self) -> bool:
        """Whether the client has yet to show a valid token or key."""
        return not self.claims.were_shown

    def tracked_refusal(self, error: BrokerError, link: Pointer) -> BrokerError:
        """An error with the tail that refusals of deliveries have."""
        return self.tracker.refused(error, link)

    @abstractmethod
    def claims_expired(self) -> None:
        """Close the links that the claims that are left don't cover."""

    @abstractmethod
    def accepted_late(self, pointer: Pointer, request: AttachRequest) -> None:
        """An attach that was held has been answered."""

    @abstractmethod
    def confirm(self) -> None:
        """Write the outcomes that have gathered before whatever is sent from now on."""

    @abstractmethod
    def run(self, work: Awaitable[None]) -> None:
        """Run work to its end; whatever it raises closes the connection."""

    @abstractmethod
    def crash(self, error: BaseException) -> None:
        """Close the connection because of an exception that must not reach the broker; log it once."""

    @abstractmethod
    def close(self, error: BrokerError) -> None:
        """Close in good order: `close` with `error`, then the socket."""

    @property
    @abstractmethod
    def is_websocket(self) -> bool:
        """Whether the connection goes over a WebSocket."""

    @abstractmethod
    def release_bytes(self) -> None:
        """Let bytes that are held on purpose pass at once."""

    @abstractmethod
    def abort(self) -> None:
        """Cut the socket."""
