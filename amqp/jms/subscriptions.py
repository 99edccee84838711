"""Subscriptions that JMS consumers on topics make, join, replace and remove [jms 2, 4].

Knows the names that Qpid JMS gives its links, and what they say about a subscription; who may share one; when one goes.
Does not know links and messages: a subscription is an entity like others, from which a receiver link receives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...broker.api import Entity
from ...broker.errors import BrokerError, Condition
from ...broker.ids import new_message_id
from ...broker.model.descriptions import (
    DEFAULT_RULE_NAME,
    JmsSubscription,
    RuleDescription,
    SelectorFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    entity_key,
)
from ...broker.model.profiles import defaults_of
from ..link_context import LinkContext
from ..wire.engine import AttachRequest
from .lifetimes import auto_delete_on_idle_ms, delete_when_unused
from .selectors import Selector

TOPIC_CAPABILITIES: Final = frozenset(("topic", "temporary-topic"))
_NAME_END: Final = "|"  # in a link's name: what follows makes it unique on its connection
_GENERATED_CLIENT_ID: Final = "ID:"


@dataclass(frozen=True, slots=True)
class Wish:
    """The subscription that a consumer asks for; `is_named` is False for one of its own, which ends with it."""

    topic_name: str
    name: str
    jms: JmsSubscription
    is_named: bool
    rule: RuleDescription

    @property
    def full_name(self) -> str:
        """The name of the entity."""
        return f"{self.name}{self.jms.suffix}"


def topic_of(context: LinkContext, request: AttachRequest) -> Entity | None:
    """The topic on which a JMS consumer attaches; None for any other link.

    Raises BrokerError (not-found).
    """
    if request.sends or not request.capabilities & TOPIC_CAPABILITIES or not context.broker.limits.jms:
        return None
    entity, _ = context.broker.find(request.address)
    return entity if isinstance(entity.description, TopicDescription) else None


def plain_subscription(context: LinkContext, topic: Entity, request: AttachRequest) -> Entity | None:
    """The subscription of JMS 1.1, which has the name of the link; the library for JMS 2.0 wants none of these."""
    if context.is_jms_library:
        return None
    found = context.broker.entity(f"{topic.path}/Subscriptions/{request.name}")
    is_plain = (
        found is not None and isinstance(found.description, SubscriptionDescription) and not found.description.jms
    )
    return found if is_plain else None


def wish_of(context: LinkContext, topic: Entity, request: AttachRequest, selector: Selector | None) -> Wish:
    """What the attach of a consumer on a topic asks for."""
    is_shared = "shared" in request.capabilities
    is_named = request.is_durable or is_shared
    client_id = "" if "global" in request.capabilities else context.container_id
    if not is_named and client_id.startswith(_GENERATED_CLIENT_ID):
        client_id = ""
    name = request.name.partition(_NAME_END)[0] if is_named else new_message_id()
    own_filter = TrueFilter() if selector is None else SelectorFilter(selector.text)
    rule = RuleDescription(DEFAULT_RULE_NAME, own_filter)
    return Wish(topic.path, name, JmsSubscription(client_id, request.is_durable, is_shared), is_named, rule)


def subscribe(context: LinkContext, wish: Wish) -> Entity:
    """Return the subscription of a consumer, made or made anew if need be.

    Raises BrokerError: not-allowed while others use the subscription in another way, and the errors of a creation.
    """
    for known in _named(context, wish.full_name) if wish.is_named else ():
        if _is_as_wished(known, wish):
            if known.attached and not wish.jms.is_shared:
                raise _in_use(wish.full_name)
            return known
        context.broker.administration.delete(known.path)
    return context.broker.administration.create(
        SubscriptionDescription(
            wish.topic_name,
            wish.full_name,
            **defaults_of(SubscriptionDescription, context.broker.limits),
            dead_letter_on_filter_exceptions=False,
            auto_delete_on_idle_ms=auto_delete_on_idle_ms(context.open_properties, "subscriber"),
            jms=wish.jms,
            rules=(wish.rule,),
        )
    )


def is_there(context: LinkContext, wish: Wish) -> bool:
    """Whether the subscription need not be made, so that the right to listen is enough."""
    return wish.is_named and any(_is_as_wished(known, wish) for known in _named(context, wish.full_name))


def _is_as_wished(known: Entity, wish: Wish) -> bool:
    """Whether a subscription of that name serves a consumer; False if it is to be replaced. BrokerError if it can't."""
    description = known.description
    assert isinstance(description, SubscriptionDescription)
    assert description.jms is not None
    if description.jms.is_shared != wish.jms.is_shared:
        kind = "shared" if description.jms.is_shared else "not shared"
        raise BrokerError(
            Condition.NOT_ALLOWED,
            f"The subscriber {wish.full_name} is {kind}: unsubscribe it before it is used otherwise.",
        )
    is_same_topic = entity_key(description.topic_name) == entity_key(wish.topic_name)
    if is_same_topic and [rule.filter for rule in description.rules] == [wish.rule.filter]:
        return True
    if known.attached:
        raise _in_use(wish.full_name)
    return False


def when_left(context: LinkContext, subscription: Entity) -> None:
    """A consumer has gone: a subscription that is not durable goes with the last."""
    description = subscription.description
    assert isinstance(description, SubscriptionDescription)
    if description.jms is not None and not description.jms.is_durable:
        delete_when_unused(context.broker, context.clock, subscription)


# ---- unsubscribing


def is_unsubscription(request: AttachRequest) -> bool:
    """Whether a client wants a durable subscription removed: it attaches with a null source, under its name."""
    return not (request.sends or request.is_dynamic or request.source)


def subscription_to_remove(context: LinkContext, request: AttachRequest) -> Entity:
    """The durable subscription of an unsubscription, on whichever topic. Raises BrokerError: not-found, not-allowed."""
    name, _, more = request.name.partition(_NAME_END)
    client_id = "" if more.startswith("global") else context.container_id
    full_name = f"{name}{JmsSubscription(client_id, True, False).suffix}"
    for known in _named(context, full_name):
        if known.attached:
            raise _in_use(full_name)
        return known
    raise BrokerError(Condition.NOT_FOUND, f"There is no durable subscriber {full_name}.")


def _named(context: LinkContext, full_name: str) -> list[Entity]:
    """The subscriptions of JMS with that name, over all topics."""
    return [
        entity
        for entity in context.broker.entities()
        if isinstance(entity.description, SubscriptionDescription)
        and entity.description.jms is not None
        and entity_key(entity.description.name) == entity_key(full_name)
    ]


def _in_use(full_name: str) -> BrokerError:
    return BrokerError(
        Condition.NOT_ALLOWED,
        f"Cannot create a new consumer on subscriber {full_name} because there is already a subscriber using the same "
        "name with an active consumer on the same or different topic.",
    )
