"""Consumers of JMS on topics, and unsubscribing: what an attach says about a subscription [jms 2].

Knows the names that Qpid JMS gives its links. Does not know which subscription that gets, and how long it lives
(`broker/admin/jms.py`): a subscription is an entity like others, from which a receiver link receives.
"""

from __future__ import annotations

from typing import Final

from ...broker.admin.jms import TopicConsumer
from ...broker.api import Entity
from ...broker.model.descriptions import JmsSubscription, SubscriptionDescription, TopicDescription
from ..link_context import LinkContext
from ..wire.engine import AttachRequest
from .destinations import auto_delete_on_idle_ms
from .selectors import Selector

TOPIC_CAPABILITIES: Final = frozenset(("topic", "temporary-topic"))
_NAME_END: Final = "|"  # in a link's name: what follows makes it unique on its connection
_GENERATED_CLIENT_ID: Final = "ID:"


def topic_of(context: LinkContext, request: AttachRequest) -> Entity | None:
    """The topic on which a JMS consumer attaches; None for any other link.

    Raises BrokerError (not-found).
    """
    if request.sends or not request.capabilities & TOPIC_CAPABILITIES or not context.broker.limits.jms:
        return None
    entity, _ = context.broker.namespace.find(request.address)
    return entity if isinstance(entity.description, TopicDescription) else None


def plain_subscription(context: LinkContext, topic: Entity, request: AttachRequest) -> Entity | None:
    """The subscription of JMS 1.1, which has the name of the link; the library for JMS 2.0 wants none of these."""
    if context.is_jms_library:
        return None
    found = context.broker.namespace.entity(f"{topic.path}/Subscriptions/{request.name}")
    is_plain = (
        found is not None and isinstance(found.description, SubscriptionDescription) and not found.description.jms
    )
    return found if is_plain else None


def topic_consumer(
    context: LinkContext, topic: Entity, request: AttachRequest, selector: Selector | None
) -> TopicConsumer:
    """What the attach of a consumer on a topic asks for."""
    is_shared = "shared" in request.capabilities
    is_named = request.is_durable or is_shared
    client_id = "" if "global" in request.capabilities else context.container_id
    if not is_named and client_id.startswith(_GENERATED_CLIENT_ID):
        client_id = ""
    return TopicConsumer(
        topic.path,
        request.name.partition(_NAME_END)[0] if is_named else None,
        JmsSubscription(client_id, request.is_durable, is_shared),
        None if selector is None else selector.text,
        auto_delete_on_idle_ms(context.open_properties, "subscriber"),
    )


def is_unsubscription(request: AttachRequest) -> bool:
    """Whether a client wants a durable subscription removed: it attaches with a null source, under its name."""
    return not (request.sends or request.is_dynamic or request.source)


def unsubscribe(context: LinkContext, request: AttachRequest) -> str:
    """Remove a durable subscription; the path of its topic. Raises BrokerError like `JmsEntities.unsubscribe`."""
    name, _, more = request.name.partition(_NAME_END)
    client_id = "" if more.startswith("global") else context.container_id
    return context.broker.jms.unsubscribe(name, client_id, context.claims)
