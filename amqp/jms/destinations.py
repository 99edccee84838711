"""Queues and topics that clients of JMS make: temporary ones, and those that the library for JMS 2.0 finds missing.

Knows the capabilities by which a client says what it wants, and the properties of what is made [jms 4]. Does not know
what flows over the links.
"""

from __future__ import annotations

from typing import Final

from ...broker.address import SubQueue, parse_address
from ...broker.api import Entity
from ...broker.errors import BrokerError, Condition
from ...broker.ids import new_message_id
from ...broker.keys import Right
from ...broker.model.descriptions import QueueDescription, TopicDescription
from ...broker.model.profiles import defaults_of
from ..link_context import LinkContext
from ..nodes.claims import Need
from ..wire.engine import AttachRequest, Pointer
from ..wire.link import Link, drop
from .lifetimes import auto_delete_on_idle_ms, delete_with_link

_QUEUE: Final = frozenset(("queue",))
_TOPIC: Final = frozenset(("topic",))
_TEMPORARY_QUEUE: Final = frozenset(("temporary-queue",))
_TEMPORARY_TOPIC: Final = frozenset(("temporary-topic",))


class TemporaryDestinationLink(Link):
    """The link with which a temporary queue or topic lives; the client sends nothing over it."""

    __slots__ = ("_context", "_entity")

    def __init__(self, context: LinkContext, pointer: Pointer, entity: Entity) -> None:
        super().__init__(context, pointer)
        self._context = context
        self._entity = entity

    def on_delivery(self, delivery: Pointer) -> None:
        """There is no credit for any."""
        drop(delivery, BrokerError(Condition.NOT_ALLOWED, "Open a sender on the address of the temporary destination."))

    def gone(self) -> None:
        """The client has deleted it, or has lost its connection."""
        super().gone()
        delete_with_link(self._context.broker, self._context.clock, self._entity)


def make_temporary(context: LinkContext, request: AttachRequest) -> Entity:
    """Make the queue or topic of a dynamic node. Raises BrokerError: not-implemented, unauthorized-access, quotas."""
    if not context.broker.limits.jms or not request.sends:
        raise BrokerError(Condition.NOT_IMPLEMENTED, "Dynamic nodes (temporary queues and topics) are not supported.")
    name = new_message_id()
    if request.capabilities & _TEMPORARY_TOPIC:
        return _make(context, TopicDescription, name, None, is_temporary=True)
    if request.capabilities & _TEMPORARY_QUEUE:
        return _make(context, QueueDescription, name, None, is_temporary=True)
    raise BrokerError(
        Condition.NOT_IMPLEMENTED, "A dynamic node must have the capability temporary-queue or temporary-topic."
    )


def make_missing(context: LinkContext, request: AttachRequest) -> None:
    """Make the queue or topic that the library for JMS 2.0 attaches to, unless there is one.

    Raises BrokerError (unauthorized-access) for a client that may not manage it.
    """
    address = parse_address(request.address)
    if (
        not context.is_jms_library
        or not request.capabilities & (_QUEUE | _TOPIC)
        or address.sub_queue is not SubQueue.ACTIVE
        or "/subscriptions/" in address.key
        or context.broker.entity(address.entity) is not None
    ):
        return
    properties = context.open_properties
    if request.capabilities & _TOPIC:
        _make(context, TopicDescription, address.entity, auto_delete_on_idle_ms(properties, "topic"))
    else:
        _make(context, QueueDescription, address.entity, auto_delete_on_idle_ms(properties, "queue"))


def _make(
    context: LinkContext,
    kind: type[QueueDescription | TopicDescription],
    name: str,
    idle_ms: int | None,
    *,
    is_temporary: bool = False,
) -> Entity:
    context.claims.require(Need(name, (Right.MANAGE,)))
    values = defaults_of(kind, context.broker.limits)
    description = kind(name, **values, auto_delete_on_idle_ms=idle_ms, is_temporary=is_temporary)
    return context.broker.administration.create(description)
