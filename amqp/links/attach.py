"""What an attach becomes: one table of link kinds, asked in order.

Knows how a client's attach tells `$cbs`, `$management`, senders and receivers apart, which rights each needs and how
each is refused [wire 2.4, 4.1, 5.2, 6, 8, 9.4]. Does not know what the links do afterwards. A new kind is a file of
its own and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from ...broker.address import parse_address, strip_authority
from ...broker.errors import BrokerError, Condition
from ...broker.keys import Right
from ...broker.partition.step import ReceiveMode
from ...codec.encode import encode_map
from ...codec.types import Described, Symbol
from ..nodes.cbs import CBS_ADDRESS, cbs_answer
from ..nodes.claims import Claims, Need
from ..nodes.management import management_answer
from ..nodes.requests import Answer, Node, RequestHost
from ..wire.deliveries import Link
from ..wire.engine import AttachRequest, Pointer, accept_link, session_of
from .browsing import BrowsingHost, BrowsingLink
from .coordinator import CoordinatorLink, Scope
from .incoming import IncomingLink
from .message_sessions import SESSION_FILTER, MessageSessionHost, MessageSessionLink
from .outgoing import OutgoingLink

DESTINATION_PROPERTY: Final = "com.microsoft:transfer-destination-address"
SELECTOR_DESCRIPTORS: Final = frozenset((0x0000468C00000004, "apache.org:selector-filter:string"))


class AttachHost(MessageSessionHost, BrowsingHost, RequestHost, Protocol):
    """What an attach needs of its connection besides what its links need."""

    scopes: dict[Pointer, Scope]
    """What the AMQP sessions may reach, by session; made with the first link that matters."""
    claims: Claims
    nodes: dict[str, Node]


@dataclass(frozen=True, slots=True)
class LinkKind:
    """A row of the table: `make` accepts the link or raises BrokerError, once all that it `needs` is allowed."""

    name: str
    matches: Callable[[AttachRequest], bool]
    needs: Callable[[AttachRequest], tuple[Need, ...]]
    make: Callable[[AttachHost, Pointer, AttachRequest], Link]


def attach(host: AttachHost, pointer: Pointer, request: AttachRequest) -> tuple[str, Link]:
    """Accept the link and give its kind and handler; BrokerError says why it is refused."""
    for kind in LINK_KINDS:
        if kind.matches(request):
            needs = kind.needs(request)
            for need in needs:
                host.claims.require(need)
            link = kind.make(host, pointer, request)
            link.needs = needs
            return kind.name, link
    raise AssertionError("the last kind takes every link")


# ---- what links need


def _nothing(request: AttachRequest) -> tuple[Need, ...]:
    del request
    return ()


def _to_listen(request: AttachRequest) -> tuple[Need, ...]:
    return (Need(request.address, (Right.LISTEN,)),)


def _to_send(request: AttachRequest) -> tuple[Need, ...]:
    destination = _destination(request)
    need = Need(request.address, (Right.SEND,))
    return (need,) if destination is None else (need, Need(destination, (Right.SEND,)))


def _to_manage(request: AttachRequest) -> tuple[Need, ...]:
    """What each operation needs is looked at with the operation."""
    return (Need(parse_address(request.address).path, (Right.SEND, Right.LISTEN)),)


# ---- what is not supported


def _refuse_dynamic(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    del host, pointer, request
    raise BrokerError(Condition.NOT_IMPLEMENTED, "Dynamic nodes (temporary queues and topics) are not supported.")


def _has_selector(request: AttachRequest) -> bool:
    """Whether the client wants messages that match a selector of JMS: known by its descriptor under any key."""
    return not request.sends and any(
        key in SELECTOR_DESCRIPTORS or (isinstance(value, Described) and value.descriptor in SELECTOR_DESCRIPTORS)
        for key, value in request.filter.items()
    )


def _refuse_selector(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    del host, pointer, request
    raise BrokerError(
        Condition.NOT_IMPLEMENTED,
        "The filter 'apache.org:selector-filter:string' (a message selector of JMS) is not supported: the service has "
        "message selectors in JMS 2.0 on a Premium namespace only, and emubus has none. Receive without a selector, or "
        "from a subscription whose rule has a SQL filter.",
    )


# ---- nodes


def _is_cbs(request: AttachRequest) -> bool:
    return strip_authority(request.address).lower() == CBS_ADDRESS


def _cbs(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    return _node_link(
        host,
        pointer,
        request,
        CBS_ADDRESS,
        lambda: cbs_answer(partial(_put_token, host), host.tracker),
    )


def _put_token(host: AttachHost, token: str, audience: str) -> None:
    """Keep what a token opens; BrokerError, as from the service, also if there is no such entity.

    That a client without a valid token gets the token's error, whether or not the entity exists. While the broker can't
    find out, the token is taken: attaching says that clients shall try again.
    """
    claim = host.claims.claim_of(token, audience)
    path = parse_address(audience).entity
    if path and not path.startswith("$"):  # not the namespace, nor a node of it
        try:
            host.broker.find(audience)
        except BrokerError as error:
            if error.condition is Condition.NOT_FOUND:
                raise
    host.claims.keep(claim)


def _is_management(request: AttachRequest) -> bool:
    return parse_address(request.address).management


def _management(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    path = parse_address(request.address).path
    host.broker.find(path)
    return _node_link(
        host,
        pointer,
        request,
        path.lower(),
        lambda: management_answer(
            host.broker, path, lambda right: host.claims.require(Need(path, (right,))), host.tracker
        ),
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


def _destination(request: AttachRequest) -> str | None:
    """Where messages go that are sent through the entity of the link."""
    named = request.properties.get(DESTINATION_PROPERTY)
    return str.__str__(named) if isinstance(named, str) else None


def _sender(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    destination, properties = _destination(request), {}
    if destination is not None:
        host.broker.open_sender(destination, detached=lambda _: None).close()
        properties = {Symbol(DESTINATION_PROPERTY): request.properties[DESTINATION_PROPERTY]}
    sender = host.broker.open_sender(request.address, detached=lambda error: host.detach(pointer, error))
    _scope(host, pointer).enter(request.address)
    accept_link(pointer, max(1, sender.message_bytes_max), encode_map(properties))
    return IncomingLink(host, pointer, sender, host.limits.link_credit, destination)


def _wants_message_session(request: AttachRequest) -> bool:
    return not request.sends and SESSION_FILTER in request.filter


def _message_session(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    scope = _scope(host, pointer)
    scope.check(request.address)
    link = MessageSessionLink(host, pointer, request)
    link.ask()
    scope.enter(request.address)
    return link


def _browser(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
    link = BrowsingLink(host, pointer, request.address, presettled=request.settled_by_sender)
    consumer = host.broker.open_consumer(  # which never gets credit: it is refused and detached like others
        request.address,
        mode=ReceiveMode.PEEK_LOCK,
        deliver=lambda _: None,
        detached=lambda error: host.detach(pointer, error),
    )
    accept_link(pointer, request.message_bytes_max)
    link.start(consumer)
    return link


def _receiver(host: AttachHost, pointer: Pointer, request: AttachRequest) -> Link:
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
    LinkKind("coordinator", _is_coordinator, _nothing, _coordinator),
    LinkKind("dynamic node", lambda request: request.is_dynamic, _nothing, _refuse_dynamic),
    LinkKind("cbs", _is_cbs, _nothing, _cbs),
    LinkKind("management", _is_management, _to_manage, _management),
    LinkKind("message selector", _has_selector, _to_listen, _refuse_selector),
    LinkKind("message session", _wants_message_session, _to_listen, _message_session),
    LinkKind("sender", lambda request: request.sends, _to_send, _sender),
    LinkKind("browser", lambda request: request.copies, _to_listen, _browser),
    LinkKind("receiver", lambda _: True, _to_listen, _receiver),
)
