"""Simulated namespaces with subscriptions of JMS: durable ones, with a selector or without."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from emubus.broker.model.descriptions import (
    DEFAULT_RULE_NAME,
    JmsSubscription,
    QueueDescription,
    RuleDescription,
    SelectorFilter,
    SubscriptionDescription,
    TrueFilter,
)
from emubus.broker.model.descriptions import TopicDescription as Topic

from .generator import COLOURS, namespace
from .shapes import SUBSCRIPTION, TOPIC, Rule, Shape


@dataclass(frozen=True)
class JmsShape(Shape):
    """A durable subscription; the colour of its only rule is that of its selector."""

    def description(self) -> QueueDescription | Topic | SubscriptionDescription:
        """The broker's subscription, with a selector in place of the rule."""
        plain = super().description()
        assert isinstance(plain, SubscriptionDescription)
        (rule,) = self.rules
        own = TrueFilter() if rule.colour is None else SelectorFilter(f"colour = '{rule.colour}' AND JMSPriority = 4")
        jms = JmsSubscription("client", is_durable=True, is_shared=False)
        return replace(
            plain, jms=jms, dead_letter_on_filter_exceptions=False, rules=(RuleDescription(DEFAULT_RULE_NAME, own),)
        )


def namespace_with_jms(chance: random.Random) -> tuple[Shape, ...]:
    """A random namespace, and a topic whose subscriptions JMS has made."""
    own = [
        JmsShape(
            f"jms/Subscriptions/{name}$client$D",
            SUBSCRIPTION,
            deliveries_max=chance.randint(1, 3),
            bury_expired=chance.random() < 0.5,
            rules=(Rule(DEFAULT_RULE_NAME, colour),),
        )
        for name, colour in (("red", COLOURS[0]), ("green", COLOURS[1]), ("all", None))
    ]
    topic = Shape("jms", TOPIC, duplicates=chance.random() < 0.3)
    return (*namespace(chance), topic, *own)
