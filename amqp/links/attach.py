"""What an attach becomes: one table of link kinds, asked in order.

Knows how an attach distinguishes `$cbs`, `$management`, senders and receivers, which rights each needs and how each is
refused [wire 2.4, 4.1, 5.2, 6, 8, 9.4]. Does not know what the links do afterwards. A new kind is a file of its own and
a row here. Each connection owns one `LinkFactory`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ...broker import service_errors
from ...broker.access import Need
from ...broker.address import parse_address, strip_authority
from ...broker.api import Entity, ReceiveMode
from ...broker.errors import BrokerError, Condition
from ...broker.keys import Right
from ...broker.lazy_dataclass import dataclass
from ...codec.encode import encode_map
from ...codec.types import Described, Long, Symbol
from ..jms.destinations import TemporaryDestinationLink, make_missing, make_temporary
from ..jms.selectors import Selector, not_supported, selector_filter, selector_of
from ..jms.subscriptions import is_unsubscription, plain_subscription, topic_consumer, topic_of, unsubscribe
from ..link_context import LinkContext
from ..nodes.cbs import CBS_ADDRESS, cbs_answer
from ..nodes.requests import Answer, Node
from ..wire.engine import AttachRequest, Pointer, accept_dynamic, accept_link, accept_unsubscription, session_of
from ..wire.link import Link
from .browsing import BrowsingLink
from .coordinator import CoordinatorLink, Scope
from .incoming import IncomingLink
from .message_sessions import SESSION_FILTER, SHARED_FILTER, MessageSessionLink
from .outgoing import OutgoingLink

DESTINATION_PROPERTY: Final = "com.microsoft:transfer-destination-address"
BATCH_BYTES_PROPERTY: Final = "com.microsoft:max-message-batch-size"
SESSION_FILTERS: Final = frozenset((SESSION_FILTER, SHARED_FILTER))
NO_LOCAL_DESCRIPTORS: Final = frozenset((0x0000468C00000003, "apache.org:no-local-filter:list"))


class LinkFactory:
    """Makes the links of one connection; owns its nodes, and what its AMQP sessions may reach."""

    def __init__(self, context: LinkContext) -> None:
        self.context = context
        self._nodes: dict[str, Node] = {}
        self._scopes: dict[Pointer, Scope] = {}  # by AMQP session
        self._scope_of: dict[Pointer, Scope] = {}  # by entity link

    def attach(self, pointer: Pointer, request: AttachRequest) -> Attached:
        """Accept a link; BrokerError says why it is refused."""
        for kind in LINK_KINDS:
            if kind.matches(request):
                needs = kind.needs(request)
                for need in needs:
                    self.context.claims.require(need)
                return Attached(kind.name, kind.make(self, pointer, request), needs)
        raise AssertionError("the last kind takes every link")

    def scope(self, pointer: Pointer, *, cross_entity: bool = False) -> Scope:
        """What the AMQP session of a link may reach; its first link that matters decides whether `cross_entity`."""
        return self._scopes.setdefault(session_of(pointer), Scope(cross_entity=cross_entity))

    def enter(self, pointer: Pointer, address: str) -> None:
        """A link to an entity is opened."""
        scope = self._scope_of[pointer] = self.scope(pointer)
        scope.enter(pointer, address)

    def left(self, pointer: Pointer) -> None:
        scope = self._scope_of.pop(pointer, None)
        if scope is not None:
            scope.leave(pointer)

    def node(self, key: str, make_answer: Callable[[], Answer]) -> Node:
        """The connection's node of that address."""
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(self.context, make_answer())
        return node

    def session_ended(self, session: Pointer) -> None:
        self._scopes.pop(session, None)

    def close(self) -> None:
        self._nodes.clear()
        self._scopes.clear()
        self._scope_of.clear()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attached:
    """A link that was accepted: its kind, its handler, and what the client must be allowed as long as it is there."""

    kind: str
    link: Link
    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class LinkKind:
    """A row of the table: `make` accepts the link or raises BrokerError, once all that it `needs` is allowed."""

    name: str
    matches: Callable[[AttachRequest], bool]
    needs: Callable[[AttachRequest], tuple[Need, ...]]
    make: Callable[[LinkFactory, Pointer, AttachRequest], Link]


# ---- what links need


def _needs_nothing(request: AttachRequest) -> tuple[Need, ...]:
    return ()


def _needs_listen(request: AttachRequest) -> tuple[Need, ...]:
    return (Need(request.address, (Right.LISTEN,)),)


def _needs_send(request: AttachRequest) -> tuple[Need, ...]:
    destination = _destination(request)
    need = Need(request.address, (Right.SEND,))
    return (need,) if destination is None else (need, Need(destination, (Right.SEND,)))


def _needs_send_or_listen(request: AttachRequest) -> tuple[Need, ...]:
    """Either right; each operation checks the one that it needs."""
    return (Need(parse_address(request.address).path, (Right.SEND, Right.LISTEN)),)


# ---- what is not supported


def _wants_unknown_filter(request: AttachRequest) -> bool:
    """Whether a receiver asks for a filter that is none of those that clients are known to send [wire 5.2].

    The filter of JMS that leaves out a consumer's own messages is left out of the answer instead: it is not in force.
    """
    if request.sends:
        return False
    known = selector_filter(request)
    return any(
        not (key in SESSION_FILTERS or key in known or value is None or _descriptor_of(value) in NO_LOCAL_DESCRIPTORS)
        for key, value in request.filter.items()
    )


def _descriptor_of(value: object) -> object:
    return value.descriptor if isinstance(value, Described) else None


def _refuse_filter(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    factory.context.broker.namespace.find(request.address)  # a missing entity is named first
    raise service_errors.invalid_filter(request.name)


def _make_temporary_destination(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    entity = make_temporary(factory.context, request)
    accept_dynamic(pointer, entity.path)
    return TemporaryDestinationLink(factory.context, pointer, entity)


def _wants_selector_in_session(request: AttachRequest) -> bool:
    return _wants_message_session(request) and bool(selector_filter(request))


def _refuse_selector(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    raise not_supported()


# ---- nodes


def _is_cbs(request: AttachRequest) -> bool:
    return strip_authority(request.address).lower() == CBS_ADDRESS


def _make_cbs_link(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    """A link of `$cbs`, of which a connection has one pair: Go's recovery relies on it (its internal test
    TestAMQPLinksCBSLinkStillOpen). A second receiver is taken: what the service says to it is not known [wire 2.1]."""
    context = factory.context

    def make_answer() -> Answer:
        return cbs_answer(partial(_put_token, context), context.tracker)

    if request.sends and factory.node(CBS_ADDRESS, make_answer).requester_count:
        raise BrokerError(Condition.NOT_ALLOWED, "A connection has one sender to '$cbs': close the first one.")
    return _make_node_link(factory, pointer, request, CBS_ADDRESS, make_answer)


def _put_token(context: LinkContext, token: str, audience: str) -> None:
    """Keep what a token opens; BrokerError, as from the service, also if there is no such queue or topic.

    The service's gateway takes tokens, and does not know subscriptions: who asks for one that is missing has a claim,
    and is refused at the attach (Azure/azure-sdk-for-net 6943, MicrosoftDocs/azure-docs 73870). A client without a
    valid token gets the token's error, whether or not the entity exists. While the broker can't find out, the token is
    taken: the attach is refused for a while then.
    """
    if context.conditions.are_on:
        refusal = context.conditions.putting_token(context.number, audience)
        if refusal is not None:
            raise refusal
    claim = context.claims.claim_of(token, audience)
    path = parse_address(audience).entity
    if path and not path.startswith("$"):  # not the namespace, nor a node of it
        try:
            context.broker.namespace.find(parse_address(audience).key.partition(service_errors.SUBSCRIPTIONS)[0])
        except BrokerError as error:
            if error.condition is Condition.NOT_FOUND:
                context.broker.namespace.find(audience)  # says so of the whole address
                raise
    context.claims.keep(claim)


def _is_management(request: AttachRequest) -> bool:
    return parse_address(request.address).management


def _make_management_link(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    context, path = factory.context, parse_address(request.address).path
    context.broker.namespace.find(path)

    def make_answer() -> Answer:
        from ..nodes.management import management_answer  # not needed for a start

        def require(right: Right) -> None:
            context.claims.require(Need(path, (right,)))

        own = context.limits.own_operations
        return management_answer(context.broker, path, require, context.tracker, context.past_links, own_operations=own)

    return _make_node_link(factory, pointer, request, path.lower(), make_answer)


def _make_node_link(
    factory: LinkFactory, pointer: Pointer, request: AttachRequest, key: str, make_answer: Callable[[], Answer]
) -> Link:
    node = factory.node(key, make_answer)
    if request.sends:
        accept_link(pointer, factory.context.limits.request_bytes_max)
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


def _make_coordinator_link(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    context, scope = factory.context, factory.scope(pointer, cross_entity=True)
    accept_link(pointer, context.limits.request_bytes_max)
    return CoordinatorLink(context, pointer, scope)


# ---- senders and receivers


def _destination(request: AttachRequest) -> str | None:
    """Where messages go that are sent through the entity of the link."""
    named = request.properties.get(DESTINATION_PROPERTY)
    return str.__str__(named) if isinstance(named, str) else None


def _make_sender_link(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    context, destination = factory.context, _destination(request)
    properties: dict[str, object] = {Symbol(BATCH_BYTES_PROPERTY): Long(context.broker.limits.batch_bytes_max)}
    make_missing(context, request)
    if destination is not None:
        context.broker.open_sender(destination, detached=lambda _: None).close()
        properties[Symbol(DESTINATION_PROPERTY)] = request.properties[DESTINATION_PROPERTY]
    sender = context.broker.open_sender(
        request.address, detached=partial(context.requests.detach, pointer), client=context.client_name
    )
    factory.enter(pointer, request.address)
    accept_link(pointer, max(1, sender.message_bytes_max), encode_map(properties))
    return IncomingLink(context, pointer, sender, context.limits.link_credit, destination)


def _wants_message_session(request: AttachRequest) -> bool:
    return not request.sends and not SESSION_FILTERS.isdisjoint(request.filter)


def _make_message_session_link(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    if SHARED_FILTER in request.filter and not factory.context.broker.limits.shared_sessions:
        return _refuse_filter(factory, pointer, request)
    factory.scope(pointer).check(request.address)
    link = MessageSessionLink(factory.context, pointer, request)
    link.ask()
    factory.enter(pointer, request.address)
    return link


def _make_browsing_link(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    context = factory.context
    selector = selector_of(request, context.broker.limits)
    matches = None if selector is None else selector.matches
    link = BrowsingLink(context, pointer, request.address, presettled=request.settled_by_sender, matches=matches)
    receiver = context.broker.open_receiver(  # which never gets credit: it is refused and detached like others
        request.address,
        mode=ReceiveMode.PEEK_LOCK,
        deliver=lambda _: None,
        detached=partial(context.requests.detach, pointer),
    )
    accept_link(pointer, request.message_bytes_max, source_filter=_filter_in_force(selector))
    link.start(receiver)
    return link


def _filter_in_force(selector: Selector | None) -> bytes | None:
    return None if selector is None else encode_map(selector.source_filter)


def _make_receiver_link(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    context = factory.context
    selector = selector_of(request, context.broker.limits)
    make_missing(context, request)
    topic = topic_of(context, request)
    if topic is None:
        return _make_link_from(factory, pointer, request, request.address, selector)
    subscription = plain_subscription(context, topic, request)
    if subscription is not None:
        return _make_link_from(factory, pointer, request, subscription.path, selector)
    return _make_subscriber_link(factory, pointer, request, topic, selector)


def _make_subscriber_link(
    factory: LinkFactory, pointer: Pointer, request: AttachRequest, topic: Entity, selector: Selector | None
) -> Link:
    """A JMS consumer on a topic; its selector is the filter of its subscription."""
    context = factory.context
    consumer = topic_consumer(context, topic, request, selector)
    subscription = context.broker.jms.subscribe(consumer, context.claims)
    left = partial(context.broker.jms.left, subscription)
    try:
        return _make_link_from(factory, pointer, request, subscription.path, selector, left)
    except BrokerError:
        left()
        raise


def _make_link_from(
    factory: LinkFactory,
    pointer: Pointer,
    request: AttachRequest,
    address: str,
    selector: Selector | None,
    released: Callable[[], None] | None = None,
) -> Link:
    """A link from a queue or subscription; with `released` the selector was applied before the messages arrived."""
    context = factory.context
    factory.scope(pointer).check(address)
    link = OutgoingLink(context, pointer, presettled=request.settled_by_sender, released=released)
    receiver = context.broker.open_receiver(
        address,
        mode=ReceiveMode.RECEIVE_AND_DELETE if request.settled_by_sender else ReceiveMode.PEEK_LOCK,
        deliver=link.deliver,
        detached=link.detached,
        matches=None if selector is None or released is not None else selector.matches,
        client=context.client_name,
    )
    factory.enter(pointer, address)
    accept_link(pointer, request.message_bytes_max, source_filter=_filter_in_force(selector))
    link.start(receiver)
    return link


def _make_unsubscribing_link(factory: LinkFactory, pointer: Pointer, request: AttachRequest) -> Link:
    """A link by which Qpid JMS removes a subscription; it closes the link at once."""
    context = factory.context
    if not context.broker.limits.jms:
        raise service_errors.not_found(context.broker.name, request.address)
    accept_unsubscription(pointer, unsubscribe(context, request))
    return Link(context.wire, pointer)


LINK_KINDS: Final[tuple[LinkKind, ...]] = (
    LinkKind("coordinator", _is_coordinator, _needs_nothing, _make_coordinator_link),
    LinkKind("dynamic node", lambda request: request.is_dynamic, _needs_nothing, _make_temporary_destination),
    LinkKind("unsubscription", is_unsubscription, _needs_nothing, _make_unsubscribing_link),
    LinkKind("cbs", _is_cbs, _needs_nothing, _make_cbs_link),
    LinkKind("management", _is_management, _needs_send_or_listen, _make_management_link),
    LinkKind("unknown filter", _wants_unknown_filter, _needs_listen, _refuse_filter),
    LinkKind("selector in a message session", _wants_selector_in_session, _needs_listen, _refuse_selector),
    LinkKind("message session", _wants_message_session, _needs_listen, _make_message_session_link),
    LinkKind("sender", lambda request: request.sends, _needs_send, _make_sender_link),
    LinkKind("browser", lambda request: request.copies, _needs_listen, _make_browsing_link),
    LinkKind("receiver", lambda _: True, _needs_listen, _make_receiver_link),
)
