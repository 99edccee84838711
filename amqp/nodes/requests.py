"""Request and response over a pair of links, as `$cbs` and `$management` nodes do it [wire 3].

Knows how a request is read, which link its response goes to and how a response is written; keeps responses until the
client gives credit, and makes few large ones at a time, as the client reads them. Does not know any operation: a node
is made with a function that answers. Nodes are owned by their connection, one per address; links with the same name and
opposite roles are normal.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field, replace
from functools import partial
from typing import Final, NamedTuple

from ...broker.api import Delivery, TransactionRef
from ...broker.errors import BrokerError, Condition, decode_refusal
from ...broker.lazy_dataclass import dataclass
from ...codec.decode import decode
from ...codec.encode import encode, encode_map, list_from_items
from ...codec.errors import DecodeError
from ...codec.types import Described, Uint
from ..link_context import LinkContext
from ..wire.engine import Pointer, session_of, unsent_bytes
from ..wire.incoming_deliveries import IncomingDeliveries
from ..wire.link import Done, link_credit
from ..wire.outgoing_deliveries import OutgoingDeliveries
from ..wire.run import Run

_SECTION_BY_SYMBOL: Final = {
    "amqp:header:list": 0x70,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": 0x72,
    "amqp:properties:list": 0x73,
    "amqp:application-properties:map": 0x74,
    "amqp:data:binary": 0x75,
    "amqp:amqp-value:*": 0x77,
}
READ_AT_ONCE_BYTES: Final = 16 * 1024
"""Requests that are taken apart on the loop, within 10 ms if each byte is a value; larger ones beside it: one of 2 MiB
took 250 ms (20 000 keys with lists in lists)."""
_PROPERTIES, _APPLICATION_PROPERTIES, _DATA, _VALUE = 0x73, 0x74, 0x75, 0x77
_MESSAGE_ID, _REPLY_TO, _CORRELATION_ID = 0, 4, 5

# A header with an explicit delivery-count: .NET and Java read it without a check [wire 0, rule 7].
_HEADER: Final = b"\x00\x53\x70" + list_from_items(5, b"\x40\x40\x40\x40" + encode(Uint(0)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Request:
    """A request: `message_id` and `reply_to` in the types that the client used; `transaction` is the one it is in."""

    message_id: object = None
    reply_to: object = None
    properties: Mapping[str, object] = field(default_factory=dict[str, object])
    body: object = None
    transaction: TransactionRef | None = None

    def text(self, key: str) -> str | None:
        """An application property that is a text, else None."""
        value = self.properties.get(key)
        return str.__str__(value) if isinstance(value, str) else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Response:
    """Application properties, and a body that is already encoded as an AMQP value."""

    properties: Mapping[str, object]
    body: bytes = b"\x40"


@dataclass(frozen=True, slots=True)
class ReplyRoom:
    """Room for one response: it may have `bytes_max`, and one that may be large is made within `turn()`."""

    bytes_max: int
    turn: Callable[[], AbstractAsyncContextManager[None]]


Answer = Callable[[Request, ReplyRoom], Awaitable[Response | None]]
"""Answers a request, or lets it be without an answer."""
AnswerTap = Callable[[Answer, Request, ReplyRoom], Awaitable[Response | None]]
"""Answers a request in the place of the node's own function, which it may call."""


def read_request(data: bytes) -> Request:
    """Take a request apart; BrokerError(DECODE_ERROR) if it isn't a message."""
    try:
        sections = _sections(data)
    except DecodeError as error:
        raise decode_refusal(error) from None
    fields = sections.get(_PROPERTIES)
    values: list[object] = fields if isinstance(fields, list) else []
    values = values + [None] * 6
    properties = sections.get(_APPLICATION_PROPERTIES)
    return Request(
        message_id=values[_MESSAGE_ID],
        reply_to=values[_REPLY_TO],
        properties=properties if isinstance(properties, dict) else {},
        body=sections.get(_VALUE, sections.get(_DATA)),
    )


def _sections(data: bytes) -> dict[int, object]:
    """Return the values of the sections of a message by their codes. Raises DecodeError."""
    sections: dict[int, object] = {}
    position = 0
    while position < len(data):
        section, position = decode(data, position)
        if not isinstance(section, Described):
            raise DecodeError(position, "a message section must be described")
        descriptor = section.descriptor
        code = _SECTION_BY_SYMBOL.get(descriptor) if isinstance(descriptor, str) else descriptor
        if isinstance(code, int):
            sections[code] = section.value
    return sections


def write_response(request: Request, response: Response) -> bytes:
    """The encoded response; its correlation-id has the very type of the request's message-id [wire 0, rule 9]."""
    fields = b"\x40" * _CORRELATION_ID + encode(request.message_id)
    return b"".join(
        (
            _HEADER,
            b"\x00\x53\x73" + list_from_items(_CORRELATION_ID + 1, fields),
            b"\x00\x53\x74" + encode_map(response.properties),
            b"\x00\x53\x77" + response.body,
        )
    )


class Arrival(NamedTuple):
    """A request as it came."""

    session: Pointer
    data: bytes
    done: Done
    transaction: TransactionRef | None


class Node:
    """One `$cbs` or `$management` node of one connection."""

    def __init__(self, context: LinkContext, answer: Answer) -> None:
        self._context = context
        self._answer = answer
        self.tap: AnswerTap | None = None
        """Where faults stand between the node and what answers."""
        self._replies: list[ReplyLink] = []
        self.requester_count = 0
        """How many links for requests there are."""
        self._unread: deque[Arrival] = deque()  # the first one is being read
        self._making = asyncio.Semaphore(context.limits.large_replies_max)

    def add_requester(self, pointer: Pointer) -> RequestLink:
        self.requester_count += 1
        return RequestLink(self._context, pointer, self)

    def add_replier(
        self, pointer: Pointer, name: str, target: str | None, *, presettled: bool, bytes_max: int
    ) -> ReplyLink:
        """A link for responses; `bytes_max` is the client's largest message, 0 if it named none."""
        limit = self._context.limits.reply_bytes_max
        link = ReplyLink(
            self._context, pointer, self, name, target, presettled=presettled, bytes_max=min(bytes_max or limit, limit)
        )
        self._replies.append(link)
        return link

    def remove(self, link: ReplyLink) -> None:
        self._replies.remove(link)
        self._context.wire.flow.resume_replies()  # who waited for its room has another link now, or none

    def received(self, session: Pointer, data: bytes, done: Done, transaction: TransactionRef | None = None) -> None:
        """Answer a request that came on a link of `session`; `done` goes out with the response.

        Requests begin in the order in which they came, so that the later one of two states is the one that is kept.
        """
        arrival = Arrival(session, data, done, transaction)
        if self._unread or len(data) > READ_AT_ONCE_BYTES:
            self._unread.append(arrival)
            if len(self._unread) == 1:
                self._context.requests.run(self._read_on())
            return
        try:
            request = read_request(data)
        except BrokerError as error:
            done(error)
        else:
            self._begin(request, arrival)

    async def _read_on(self) -> None:
        """Read a large request beside the loop, and those that came meanwhile."""
        unread, aside = self._unread, self._context.aside
        while unread:
            arrival = unread[0]
            try:
                request = await aside.run(partial(read_request, arrival.data), len(arrival.data))
            except BrokerError as error:
                arrival.done(error)
            else:
                self._begin(request, arrival)
            unread.popleft()

    def _begin(self, request: Request, arrival: Arrival) -> None:
        request = replace(request, transaction=arrival.transaction)
        self._context.requests.run(self._respond(request, arrival.session, arrival.done))

    async def _respond(self, request: Request, session: Pointer, done: Done) -> None:
        link = self._link_for(request, session)
        bytes_max = link.bytes_max if link is not None else self._context.limits.reply_bytes_max
        room = ReplyRoom(bytes_max, partial(self._turn, request, session))
        answer = self._answer if self.tap is None else partial(self.tap, self._answer)
        response = await answer(request, room)
        done(None)
        # uAMQP's C library takes a response that comes before the request's outcome for a failure.
        self._context.requests.write_outcomes()
        link = self._link_for(request, session)  # links may have come and gone meanwhile
        if link is not None and response is not None:
            link.reply(write_response(request, response))

    @asynccontextmanager
    async def _turn(self, request: Request, session: Pointer) -> AsyncIterator[None]:
        """Make a large response, once the client has read those before it: of a thousand requests for messages that
        a client pipelines, the server would hold the answers to all."""
        async with self._making:
            flow = self._context.wire.flow
            while flow.is_over or ((link := self._link_for(request, session)) is not None and not link.has_room):
                await flow.room_for_replies()  # ends the request of a connection that is over
            with self._context.counted_copies(self._context.limits.reply_bytes_max):
                yield

    def _link_for(self, request: Request, session: Pointer) -> ReplyLink | None:
        """Reply-to names a link's target or the link; Python names none, it has only one."""
        links = [link for link in self._replies if link.session == session] or self._replies
        named = [link for link in links if request.reply_to in (link.target, link.name)]
        found = named or links
        return found[-1] if found else None


class RequestLink(IncomingDeliveries):
    """A client's link for requests to a node."""

    __slots__ = ("_context", "_session", "node")

    def __init__(self, context: LinkContext, pointer: Pointer, node: Node) -> None:
        self.node = node
        self._context = context
        self._session = session_of(pointer)
        limits = context.limits
        super().__init__(context.wire, pointer, bytes_max=limits.request_bytes_max, credit=limits.request_credit)

    def receive(self, run: Run) -> None:
        """Answer a request; whether its operation can be part of a transaction, the node says."""
        (data,), transaction = run.items, run.transaction
        ref = None if transaction is None else TransactionRef(self._context, transaction)
        self.node.received(self._session, data, run.done_one, ref)

    def gone(self) -> None:
        super().gone()
        self.node.requester_count -= 1


class ReplyLink(OutgoingDeliveries):
    """A client's link for responses of a node. Never sends more than the client gave credit for [wire 3]."""

    __slots__ = (
        "_context",
        "_node",
        "_number",
        "_waiting",
        "_waiting_bytes",
        "bytes_max",
        "name",
        "target",
    )

    def __init__(
        self,
        context: LinkContext,
        pointer: Pointer,
        node: Node,
        name: str,
        target: str | None,
        *,
        presettled: bool,
        bytes_max: int,
    ) -> None:
        super().__init__(context.wire, pointer, presettled=presettled)
        self.name = name
        self.target = target
        self.bytes_max = bytes_max
        self._context = context
        self._node = node
        self._number = 0
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether the client has taken most of the responses that it has: not of those that it has yet to settle, and
        of a connection that the ledger holds, whatever for, only if little else waits for the client to read it."""
        flow, bytes_max = self._context.wire.flow, self._context.limits.unread_replies_bytes_max
        if flow.is_full or self._waiting_bytes + unsent_bytes(self.session) > bytes_max:
            return False
        return not self._context.memory.is_held or self._context.unsent_bytes() <= bytes_max

    def reply(self, data: bytes) -> None:
        """Send now, or as soon as there is credit; with too many waiting for credit the link is closed."""
        self._waiting.append(data)
        self._waits(len(data))
        self._send_waiting()
        if len(self._waiting) > self._context.limits.replies_max:
            text = f"{len(self._waiting)} responses of {self._waiting_bytes} bytes in all wait for credit on the link."
            self._context.requests.detach(self.pointer, BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, text))

    def _waits(self, by_bytes: int) -> None:
        """More bytes wait for credit, or fewer."""
        self._waiting_bytes += by_bytes
        self._context.replies_wait(by_bytes)

    def on_flow(self) -> None:
        """Credit: send what waits, and answer a flow that asks."""
        wants_reply = self._takes_reply()
        self.credit = link_credit(self.pointer)
        self._send_waiting()
        if wants_reply and self.wants_drain():
            self.give_back()
        elif wants_reply:
            self.show_state()

    def _send_waiting(self) -> None:
        while self._waiting and self.credit > 0:
            self._number += 1
            tag = self._number.to_bytes(4, "big")
            data = self._waiting.popleft()
            self._waits(-len(data))
            self.transfer([Delivery(tag, data, 0)])
            self.state.schedule_flush()

    def disposed(self, run: Run) -> None:
        """Clients settle responses as they like: confirm, nothing depends on it."""
        if not run.is_settled:
            run.done_all(None)

    def gone(self) -> None:
        """Responses that wait are not wanted any more."""
        super().gone()
        self._waiting.clear()
        self._waits(-self._waiting_bytes)
        self._node.remove(self)
