"""What an attach becomes: one table of link kinds, asked in order.

Knows how a client's attach tells `$cbs`, `$management`, senders and receivers apart, which rights each needs and how
each is refused [wire 2.4, 4.1, 5.2, 9.4]. Refuses to know what the links do afterwards. A new kind (message sessions,
transactions) is a file of its own and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ..broker.access import Access, Claim, Right
from ..broker.address import parse_address, strip_authority
from ..broker.clock import Clock
from ..broker.commands import ReceiveMode
from ..broker.errors import BrokerError, Condition
from .cbs import CBS_ADDRESS, cbs_answer
from .engine import AttachRequest, Pointer, accept_link
from .fastpath import Link
from .incoming import IncomingLink
from .management import management_answer
from .outgoing import OutgoingHost, OutgoingLink
from .ports import BrokerPort
from .requests import Answer, Node, RequestHost

SESSION_FILTER: Final = "com.microsoft:session-filter"


class AttachHost(OutgoingHost, RequestHost, Protocol):
    """What an attach needs of its connection besides what its links need."""

    broker: BrokerPort
    access: Access
    clock: Clock
    claims: list[Claim]
    nodes: dict[str, Node]

    def grant(self, claim: Claim) -> None:
        """Keep a claim."""
        ...

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close a link from our side."""
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
    _require_entity(host.broker, path)
    return _node_link(host, pointer, request, path.lower(), lambda: management_answer(host.broker, path))


def _require_entity(broker: BrokerPort, path: str) -> None:
    """Refuse the node of an entity that doesn't exist; whether one may receive from it is not asked here."""
    try:
        broker.open_consumer(path, mode=ReceiveMode.PEEK_LOCK, deliver=lambda _: None, detached=lambda _: None).close()
    except BrokerError as error:
        if error.condition is Condition.NOT_FOUND:
            raise


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


# ---- refusals of what is not there yet


def _is_coordinator(request: AttachRequest) -> bool:
    return request.sends and request.is_coordinator


def _coordinator(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    del host, pointer, request
    raise BrokerError(Condition.NOT_IMPLEMENTED, "Transactions are not supported.")


def _wants_message_session(request: AttachRequest) -> bool:
    return not request.sends and SESSION_FILTER in request.filter


def _message_session(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    del pointer
    _require(host, request.address, Right.LISTEN)
    _require_entity(host.broker, request.address)
    raise BrokerError(
        Condition.NOT_ALLOWED,
        "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure "
        "RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior.",
    )


# ---- senders and receivers


def _sender(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    _require(host, request.address, Right.SEND)
    sender = host.broker.open_sender(request.address)
    accept_link(pointer, max(1, sender.message_bytes_max))
    return IncomingLink(host, pointer, sender, host.limits.link_credit)


def _receiver(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    _require(host, request.address, Right.LISTEN)
    link = OutgoingLink(host, pointer, presettled=request.settled_by_sender)
    consumer = host.broker.open_consumer(
        request.address,
        mode=ReceiveMode.RECEIVE_AND_DELETE if request.settled_by_sender else ReceiveMode.PEEK_LOCK,
        deliver=link.deliver,
        detached=lambda error: host.detach(pointer, error),
    )
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
