"""Queues and topics that clients of JMS make: temporary ones, and those that the library for JMS 2.0 finds missing.

Knows the capabilities by which a client says what it wants, and the idle times in its `open`
[jms 1.1, 4]. Does not know the properties and the life of what is made (`broker/admin/jms.py`), nor what flows over the
links.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...broker.address import SubQueue, parse_address
from ...broker.api import Entity
from ...broker.errors import BrokerError, Condition
from ...broker.model.descriptions import QueueDescription, TopicDescription
from ..link_context import LinkContext
from ..wire.engine import AttachRequest, Pointer
from ..wire.link import Link, drop

_QUEUE: Final = frozenset(("queue",))
_TOPIC: Final = frozenset(("topic",))
_TEMPORARY_QUEUE: Final = frozenset(("temporary-queue",))
_TEMPORARY_TOPIC: Final = frozenset(("temporary-topic",))


class TemporaryDestinationLink(Link):
    """The link with which a temporary queue or topic lives; the client sends nothing over it."""

    __slots__ = ("_context", "_entity")

    def __init__(self, context: LinkContext, pointer: Pointer, entity: Entity) -> None:
        super().__init__(context.wire, pointer)
        self._context = context
        self._entity = entity

    def on_delivery(self, delivery: Pointer) -> None:
        """There is no credit for any."""
        drop(delivery, BrokerError(Condition.NOT_ALLOWED, "Open a sender on the address of the temporary destination."))

    def gone(self) -> None:
        """The client has deleted it, or has lost its connection."""
        super().gone()
        self._context.broker.jms.delete(self._entity)


def make_temporary(context: LinkContext, request: AttachRequest) -> Entity:
    """Make the queue or topic of a dynamic node. Raises BrokerError: not-implemented, unauthorized-access, quotas."""
    if not context.broker.limits.jms or not request.sends:
        raise BrokerError(Condition.NOT_IMPLEMENTED, "Dynamic nodes (temporary queues and topics) are not supported.")
    if not request.capabilities & (_TEMPORARY_TOPIC | _TEMPORARY_QUEUE):
        raise BrokerError(
            Condition.NOT_IMPLEMENTED, "A dynamic node must have the capability temporary-queue or temporary-topic."
        )
    kind = TopicDescription if request.capabilities & _TEMPORARY_TOPIC else QueueDescription
    return context.broker.jms.make(kind, context.claims)


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
        or context.broker.namespace.entity(address.entity) is not None
    ):
        return
    kind = TopicDescription if request.capabilities & _TOPIC else QueueDescription
    context.broker.jms.make(
        kind, context.claims, address.entity, auto_delete_on_idle_ms(context.open_properties, kind.kind)
    )


def auto_delete_on_idle_ms(open_properties: Mapping[str, object], kind: str) -> int | None:
    """The idle time of a client's entities of a kind (`queue`, `topic`, `subscriber`); None without one."""
    seconds = open_properties.get(f"com.microsoft:{kind}-auto-delete-on-idle-duration-in-seconds")
    return int(seconds) * 1000 if isinstance(seconds, int) and seconds > 0 else None
