"""What an attach becomes: one table of link kinds, asked in order.

Knows how a client's attach tells `$cbs`, `$management`, senders and receivers apart, which rights each needs and how
each is refused [wire 2.4, 4.1, 5.2, 6, 8, 9.4]. Refuses to know what the links do afterwards. A new kind is a file of
its own and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ..broker.access import Access, Claim, Right
from ..broker.address import parse_address, strip_authority
from ..broker.clock import Clock
from ..broker.commands import ReceiveMode
from ..broker.encoding import Symbol, encode_map
from .cbs import CBS_ADDRESS, cbs_answer
from .engine import AttachRequest, Pointer, accept_link, session_of
from .fastpath import Link
from .incoming import IncomingLink
from .management import management_answer
from .message_sessions import SESSION_FILTER, MessageSessionHost, MessageSessionLink
from .outgoing import OutgoingLink
from .requests import Answer, Node, RequestHost
from .transactions import CoordinatorLink, Scope

DESTINATION_PROPERTY: Final = "com.microsoft:transfer-destination-address"


class AttachHost(MessageSessionHost, RequestHost, Protocol):
    """What an attach needs of its connection besides what its links need."""

    scopes: dict[Pointer, Scope]
    """What the AMQP sessions may reach, by session; made with the first link that matters."""
    access: Access
    clock: Clock
    claims: list[Claim]
    nodes: dict[str, Node]

    def grant(self, claim: Claim) -> None:
        """Keep a claim."""
        ...


@dataclass(frozen=True, slots=True)
class LinkKind:
    """A row of the table: `make` accepts the link or raises BrokerError."""

    name: str
    matches: Callable[[AttachRequest], bool]
    make: Callable[[AttachHost, Pointer, AttachRequest], Link]


def attach(host: AttachHost, pointer: Pointer, request: AttachRequest) -> tuple[str, Link]:
    """Accept the link and give its kind and handler; BrokerError says why it is refused."""
    for kind in LINK_KINDS:
        if kind.matches(request):
            return kind.name, kind.make(host, pointer, request)
    raise AssertionError("the last kind takes every link")


def _require(host: AttachHost, address: str, right: Right) -> None:
    host.access.require(host.claims, address, right, host.clock.now_ms())


# ---- nodes


def _is_cbs(request: AttachRequest) -> bool:
    return strip_authority(request.address).lower() == CBS_ADDRESS


def _cbs(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    return _node_link(
        host,
        pointer,
        request,
        CBS_ADDRESS,
        lambda: cbs_answer(host.access, host.clock.now_ms, host.grant),
    )


def _is_management(request: AttachRequest) -> bool:
    return parse_address(request.address).management


def _management(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    path = parse_address(request.address).path
    now = host.clock.now_ms()
    if not host.access.claims_allow(host.claims, path, Right.SEND, now):
        _require(host, path, Right.LISTEN)
    host.broker.find(path)
    return _node_link(
        host,
        pointer,
        request,
        path.lower(),
        lambda: management_answer(host.broker, path, lambda right: _require(host, path, right)),
    )


def _node_link(
    host: AttachHost, pointer: Pointer, request: AttachRequest, key: str, make_answer: Callable[[], Answer]
) -> Link:
    node = host.nodes.get(key)
    if node is None:
        node = host.nodes[key] = Node(host, make_answer())
    if request.sends:
        accept_link(pointer, host.limits.request_bytes_max)
        return node.add_requester(pointer)
    accept_link(pointer, request.message_bytes_max)
    return node.add_replier(
        pointer,
        request.name,
        request.target,
        presettled=request.settled_by_sender,
        bytes_max=request.message_bytes_max,
    )


# ---- transactions


def _is_coordinator(request: AttachRequest) -> bool:
    return request.sends and request.is_coordinator


def _coordinator(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    del request
    scope = host.scopes.setdefault(session_of(pointer), Scope(cross_entity=True))
    accept_link(pointer, host.limits.request_bytes_max)
    return CoordinatorLink(host, pointer, scope)


def _scope(host: AttachHost, pointer: Pointer) -> Scope:
    """What the AMQP session of an entity link may reach."""
    return host.scopes.setdefault(session_of(pointer), Scope(cross_entity=False))


# ---- senders and receivers


def _sender(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    _require(host, request.address, Right.SEND)
    destination, properties = None, {}
    named = request.properties.get(DESTINATION_PROPERTY)
    if isinstance(named, str):
        destination = str.__str__(named)
        _require(host, destination, Right.SEND)
        host.broker.open_sender(destination, detached=lambda _: None).close()
        properties = {Symbol(DESTINATION_PROPERTY): named}
    sender = host.broker.open_sender(request.address, detached=lambda error: host.detach(pointer, error))
    _scope(host, pointer).enter(request.address)
    accept_link(pointer, max(1, sender.message_bytes_max), encode_map(properties))
    return IncomingLink(host, pointer, sender, host.limits.link_credit, destination)


def _wants_message_session(request: AttachRequest) -> bool:
    return not request.sends and SESSION_FILTER in request.filter


def _message_session(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    _require(host, request.address, Right.LISTEN)
    scope = _scope(host, pointer)
    scope.check(request.address)
    link = MessageSessionLink(host, pointer, request)
    link.ask()
    scope.enter(request.address)
    return link


def _receiver(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    _require(host, request.address, Right.LISTEN)
    scope = _scope(host, pointer)
    scope.check(request.address)
    link = OutgoingLink(host, pointer, presettled=request.settled_by_sender)
    consumer = host.broker.open_consumer(
        request.address,
        mode=ReceiveMode.RECEIVE_AND_DELETE if request.settled_by_sender else ReceiveMode.PEEK_LOCK,
        deliver=link.deliver,
        detached=lambda error: host.detach(pointer, error),
    )
    scope.enter(request.address)
    accept_link(pointer, request.message_bytes_max)
    link.start(consumer)
    return link


LINK_KINDS: Final[tuple[LinkKind, ...]] = (
    LinkKind("coordinator", _is_coordinator, _coordinator),
    LinkKind("cbs", _is_cbs, _cbs),
    LinkKind("management", _is_management, _management),
    LinkKind("message session", _wants_message_session, _message_session),
    LinkKind("sender", lambda request: request.sends, _sender),
    LinkKind("receiver", lambda _: True, _receiver),
)
