"""What clients of JMS make: subscriptions for consumers on topics, temporary destinations, and what they find missing.

Knows the subscriptions' names, who may share one, which are replaced, and when each of these entities goes [jms 4].
Does not know links and capabilities (`amqp/jms`), nor messages: a subscription of JMS is one like others. Owned by the
`Broker`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from ..access import Need
from ..claims import Claims
from ..entities.entity import Entity
from ..entities.namespace import Namespace
from ..errors import BrokerError, Condition
from ..ids import new_message_id
from ..keys import Right
from ..lazy_dataclass import dataclass
from ..model.descriptions import (
    DEFAULT_RULE_NAME,
    EntityDescription,
    JmsSubscription,
    QueueDescription,
    RuleDescription,
    SelectorFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    entity_key,
)
from ..model.profiles import defaults_of
from .administration import Administration

RETRY_AFTER_MS: Final = 1_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TopicConsumer:
    """What a consumer on a topic asks for; without a `name` it gets a subscription of its own, which ends with it."""

    topic_name: str
    name: str | None
    jms: JmsSubscription
    selector: str | None = None
    auto_delete_on_idle_ms: int | None = None

    @property
    def rule(self) -> RuleDescription:
        return RuleDescription(
            DEFAULT_RULE_NAME, TrueFilter() if self.selector is None else SelectorFilter(self.selector)
        )


class JmsEntities:
    """The entities that JMS makes in `namespace`."""

    def __init__(self, namespace: Namespace, administration: Administration) -> None:
        self._namespace = namespace
        self._administration = administration

    def delete_left_over(self) -> None:
        """At a start: delete the entities whose clients are gone since the last run."""
        for entity in self._namespace.entities():
            if is_passing(entity.description) and self._is_there(entity):  # else it has gone with its topic
                try:
                    self._administration.delete(entity.path)
                except BrokerError as error:
                    log.warning("entity of a JMS client not deleted", entity=entity.path, cause=str(error))

    # ---- destinations

    def make(
        self,
        kind: type[QueueDescription | TopicDescription],
        claims: Claims,
        name: str | None = None,
        auto_delete_on_idle_ms: int | None = None,
    ) -> Entity:
        """Make a queue or topic that a client misses; without a `name` a temporary one.

        Needs Manage on it, a temporary one on the namespace. Raises BrokerError (unauthorized-access), and like
        `create`.
        """
        claims.require(Need(name or "", (Right.MANAGE,)))
        description = kind(
            new_message_id() if name is None else name,
            **defaults_of(kind, self._namespace.limits),
            auto_delete_on_idle_ms=auto_delete_on_idle_ms,
            is_temporary=name is None,
        )
        return self._administration.create(description)

    def delete(self, entity: Entity) -> None:
        """Delete a temporary destination, also if links are attached; while a messaging store is out, later."""
        self._delete(entity, lambda: self.delete(entity))

    # ---- subscriptions

    def subscribe(self, consumer: TopicConsumer, claims: Claims) -> Entity:
        """Return the subscription of a consumer; create it, in place of one of its name that does not fit.

        To make one needs Manage on its topic, to replace one Manage on the topic of that. A subscription on a topic to
        which the caller may not listen does not exist for it: it is neither replaced nor told of.

        Raises BrokerError: not-allowed while others use the subscription in another way, unauthorized-access, and the
        errors of a creation.
        """
        known = self._subscriptions_of_consumer(consumer, claims)
        for each in known:
            if _fits_consumer(each, consumer):
                if each.attached and not consumer.jms.is_shared:
                    raise _in_use(each.description.name)
                return each
        for topic_name in (consumer.topic_name, *map(_topic_of, known)):
            claims.require(Need(topic_name, (Right.MANAGE,)))
        for each in known:
            self._administration.delete(each.path)
        return self._administration.create(
            SubscriptionDescription(
                consumer.topic_name,
                f"{new_message_id() if consumer.name is None else consumer.name}{consumer.jms.suffix}",
                **defaults_of(SubscriptionDescription, self._namespace.limits),
                dead_letter_on_filter_exceptions=False,
                auto_delete_on_idle_ms=consumer.auto_delete_on_idle_ms,
                jms=consumer.jms,
                rules=(consumer.rule,),
            )
        )

    def left(self, subscription: Entity) -> None:
        """A consumer has gone: a subscription that is not durable goes with the last."""
        if is_passing(subscription.description) and not subscription.attached:
            self._delete(subscription, lambda: self.left(subscription))

    def unsubscribe(self, name: str, client_id: str, claims: Claims) -> str:
        """Delete a durable subscription, on whichever topic; the path of the topic. Needs Manage on it.

        One on a topic to which the caller may not listen does not exist for it, as in `subscribe`.

        Raises BrokerError: not-found, unauthorized-access, not-allowed while it is used, server-busy.
        """
        full_name = f"{name}{JmsSubscription(client_id, True, False).suffix}"
        known = self._visible_subscriptions(full_name, claims)
        if not known:
            if not claims.any_valid():
                claims.require(Need("", (Right.MANAGE,)))
            raise BrokerError(Condition.NOT_FOUND, f"There is no durable subscriber {full_name}.")
        for each in known:
            claims.require(Need(_topic_of(each), (Right.MANAGE,)))
        for each in known:
            if each.attached:
                raise _in_use(full_name)
        for each in known:
            self._administration.delete(each.path)
        return _topic_of(known[0])

    def _subscriptions_of_consumer(self, consumer: TopicConsumer, claims: Claims) -> list[Entity]:
        """The subscriptions that have the consumer's name, over all topics, that of its own topic first."""
        if consumer.name is None:
            return []
        found = self._visible_subscriptions(f"{consumer.name}{consumer.jms.suffix}", claims)
        return sorted(found, key=lambda each: not _is_on(each, consumer.topic_name))

    def _visible_subscriptions(self, full_name: str, claims: Claims) -> list[Entity]:
        """The subscriptions of that name, on all topics, that the caller may know of."""
        found = self._namespace.jms_subscriptions(full_name)
        return [each for each in found if claims.allows(Need(_topic_of(each), (Right.LISTEN,)))]

    # ---- the end

    def _delete(self, entity: Entity, again: Callable[[], None]) -> None:
        """Delete an entity; while a messaging store is out, call `again` later."""
        if not self._is_there(entity):
            return
        try:
            self._administration.delete(entity.path)
        except BrokerError:
            self._namespace.clock.call_after(RETRY_AFTER_MS, again)

    def _is_there(self, entity: Entity) -> bool:
        """Whether this very entity is there: another one may have its path, after a restore for instance."""
        return self._namespace.entity(entity.path) is entity


def is_passing(description: EntityDescription) -> bool:
    """Whether an entity goes with the clients that use it."""
    if isinstance(description, SubscriptionDescription):
        return description.jms is not None and not description.jms.is_durable
    return description.is_temporary


def _fits_consumer(known: Entity, consumer: TopicConsumer) -> bool:
    """Whether a subscription of that name serves a consumer; False if it is to be replaced. BrokerError if it can't."""
    description = known.description
    assert isinstance(description, SubscriptionDescription)
    assert description.jms is not None
    if description.jms.is_shared != consumer.jms.is_shared:
        kind = "shared" if description.jms.is_shared else "not shared"
        raise BrokerError(
            Condition.NOT_ALLOWED,
            f"The subscriber {description.name} is {kind}: unsubscribe it before it is used otherwise.",
        )
    if _is_on(known, consumer.topic_name) and [rule.filter for rule in description.rules] == [consumer.rule.filter]:
        return True
    if known.attached:
        raise _in_use(description.name)
    return False


def _topic_of(subscription: Entity) -> str:
    description = subscription.description
    assert isinstance(description, SubscriptionDescription)
    return description.topic_name


def _is_on(subscription: Entity, topic_name: str) -> bool:
    return entity_key(_topic_of(subscription)) == entity_key(topic_name)


def _in_use(full_name: str) -> BrokerError:
    return BrokerError(
        Condition.NOT_ALLOWED,
        f"Cannot create a new consumer on subscriber {full_name} because there is already a subscriber using the same "
        "name with an active consumer on the same or different topic.",
    )
