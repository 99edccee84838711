"""What the links and nodes of one connection see of it: the broker, limits, claims, and what they may ask for.

Knows everything that is the same for all links of a connection. Does not know bytes, frames and the socket: the
connection does, which has a context and takes its `Requests`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Protocol

import structlog

from ..broker.access import Access
from ..broker.aside import Aside
from ..broker.broker import Broker
from ..broker.claims import Claims
from ..broker.clock import Clock
from ..broker.errors import BrokerError
from ..broker.ledger import MemoryAccount, Use
from ..conditions.engine import Conditions
from .limits import Limits
from .past_links import PastLinks
from .tracking import Tracker
from .watch import Watch
from .wire.engine import AttachRequest, Pointer, unsent_bytes
from .wire.link import ConnectionState

JMS_PROPERTY: Final = "com.microsoft:is-client-provider"
"""True in the `open` of a client of JMS 2.0: the library azure-servicebus-jms sets it, plain Qpid JMS does not."""

PENDING_FACTOR: Final = 4
"""A delivery that waits is kept as it came, as the row of its store's batch and in pages of the store, and the
allocator needs room between them: 60 senders with 32 MiB each took 4.2 GB. With the factor 2 they still took 476 MiB,
with 4 284 to 319 (`pytest tests/attack/test_holding.py`)."""


class Requests(Protocol):
    """What links, nodes and faults ask of the connection that they are on: `connection.Connection`, which makes the
    context and is a storey above."""

    @property
    def is_websocket(self) -> bool:
        """Whether the connection goes over a WebSocket."""
        ...

    def schedule_flush(self) -> None:
        """Have outcomes applied and Proton's output written at the end of this turn of the event loop."""
        ...

    def write_outcomes(self) -> None:
        """Write the outcomes that have gathered before whatever is sent from now on."""
        ...

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close or refuse a link from our side; the client's answer frees it."""
        ...

    def accepted_late(self, pointer: Pointer, request: AttachRequest) -> None:
        """An attach that was held has been answered."""
        ...

    def identified(self, identity: str) -> None:
        """The client has shown a valid token or key, of that name."""
        ...

    def claims_expired(self) -> None:
        """Close the links that the claims that are left don't cover."""
        ...

    def run(self, work: Awaitable[None]) -> None:
        """Run work to its end; what it raises closes the connection."""
        ...

    def observe(self, watch: Watch | None) -> None:
        """Note uses in `watch` from now on, or no more; conditions see the bytes as long as there is one."""
        ...

    def release_bytes(self) -> None:
        """Let bytes that are held on purpose pass at once."""
        ...

    def crash(self, error: BaseException) -> None:
        """Close because of an exception that must not reach the broker; log it once."""
        ...

    def close(self, error: BrokerError) -> None:
        """Close in good order: `close` with `error`, then the socket."""
        ...

    def abort(self) -> None:
        """Cut the socket."""
        ...


class LinkContext:
    """What is the same for all links of a connection; `number` identifies it in the log."""

    def __init__(
        self,
        requests: Requests,
        broker: Broker,
        access: Access,
        clock: Clock,
        limits: Limits,
        conditions: Conditions,
        aside: Aside,
        number: int,
        account: MemoryAccount,
    ) -> None:
        self.client: dict[str, str] = {}
        """What the client says of itself: container, product, version; and its address."""
        self.tracker = Tracker(broker, clock, number, self.client)
        log = structlog.get_logger().bind(connection=number)
        self.wire = ConnectionState(log, account, requests.schedule_flush, requests.detach, self.tracker.refused)
        """The part of it that frames touch: links, runs, flow."""
        self.log = log
        self.memory = account
        """What the ledger holds against the client."""
        self.requests = requests
        self.number = number
        self.broker = broker
        self.clock = clock
        self.conditions = conditions
        self.aside = aside
        self.limits = limits
        self.past_links = PastLinks()
        self.claims = Claims(access, clock, limits.claims_max, requests.claims_expired, requests.identified)
        self.container_id = ""
        self.opened_at = 0
        """When the client's open came (Unix ms)."""
        self.open_properties: dict[str, object] = {}
        self.watch: Watch | None = None
        """What is noted while conditions are on."""
        self._copying = asyncio.Lock()
        self._copies_bytes = self._replies_bytes = self._endpoints_bytes = 0
        account.enter(Use.PENDING, lambda: PENDING_FACTOR * self.wire.flow.pending_bytes)
        account.enter(Use.BUFFERS, lambda: max(0, self.wire.flow.kept_bytes - self.wire.flow.delivery_bytes))
        account.enter(Use.PARTIAL, lambda: self.wire.flow.partial_bytes)
        account.enter(Use.COPIES, lambda: self._copies_bytes)
        account.enter(Use.REPLIES, lambda: self._replies_bytes)
        account.enter(Use.LINKS, lambda: self._endpoints_bytes)
        account.enter(Use.OUTPUT, self._unread_bytes)
        account.enter(Use.TRANSACTIONS, lambda: broker.transactions.bytes_of(self))

    def note_uses(self, watch: Watch | None) -> None:
        """Note uses in `watch` from now on, or no more."""
        self.watch = watch

    def opened_by(self, container_id: str, properties: dict[str, object]) -> None:
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

    # ---- what is held for the client

    def _unread_bytes(self) -> int:
        """What Proton keeps of deliveries until they are settled, and until they are written for want of window."""
        kept = dict[Pointer, int]()  # by AMQP session
        for link in list(self.wire.sending):
            size_bytes = link.unsettled_bytes()
            if not size_bytes and not unsent_bytes(link.session):
                self.wire.sending.discard(link)
            kept[link.session] = kept.get(link.session, 0) + size_bytes
        return sum(max(size_bytes, unsent_bytes(session)) for session, size_bytes in kept.items())

    def unsent_bytes(self) -> int:
        """What Proton has yet to write of deliveries, most often for want of windows."""
        return sum(unsent_bytes(session) for session in {link.session for link in self.wire.sending})

    def replies_wait(self, by_bytes: int) -> None:
        """More bytes of responses wait for credit, or fewer."""
        self._replies_bytes += by_bytes
        self.memory.grew(max(0, by_bytes))

    def endpoints_cost(self, by_bytes: int) -> None:
        """AMQP sessions and links of so many bytes came, or went."""
        self._endpoints_bytes += by_bytes
        self.memory.grew(max(0, by_bytes))

    @asynccontextmanager
    async def copying(self, size_bytes: int) -> AsyncIterator[None]:
        """Copies of messages of up to so many bytes are being made: by one link at a time, since each holds the loop
        for milliseconds, and counted before they are there."""
        async with self._copying:
            with self.counted_copies(size_bytes):
                yield

    @contextmanager
    def counted_copies(self, size_bytes: int) -> Iterator[None]:
        """Count copies of messages of up to so many bytes while they are being made."""
        self._copies_bytes += size_bytes
        self.memory.read()
        try:
            yield
        finally:
            self._copies_bytes -= size_bytes
            self.memory.read()
