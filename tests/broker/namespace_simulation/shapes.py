"""The entities of a simulated namespace as plain values, and what the broker is given for them."""

from __future__ import annotations

from dataclasses import dataclass

from emubus.broker.model.descriptions import (
    CorrelationFilter,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    Topology,
    TrueFilter,
)
from emubus.broker.model.descriptions import TopicDescription as Topic

LOCK_MS = 30_000
WINDOW_MS = 600_000
QUEUE, TOPIC, SUBSCRIPTION = "queue", "topic", "subscription"
BETWEEN = "/Subscriptions/"

ACTIONS = {
    "set session": "SET sys.SessionId = '{}'; REMOVE sys.PartitionKey",
    "session from colour": "SET sys.SessionId = colour; REMOVE sys.PartitionKey",
    "session beside key": "SET sys.SessionId = '{}'",
    "drop session": "REMOVE sys.SessionId",
    "set key": "REMOVE sys.SessionId; SET sys.PartitionKey = '{}'",
    "drop key": "REMOVE sys.PartitionKey",
    "set colour": "SET colour = '{}'",
}
"""What rules of a simulation change, as the service's SQL."""


@dataclass(frozen=True)
class Rule:
    """A rule that matches messages of a `colour`, or with None all; `action` is one of `ACTIONS`, with its `value`."""

    name: str
    colour: str | None = None
    action: str | None = None
    value: str = ""
    sql: bool = True

    def description(self) -> RuleDescription:
        if self.colour is None:
            condition: TrueFilter | SqlFilter | CorrelationFilter = TrueFilter()
        elif self.sql:
            condition = SqlFilter(f"colour = '{self.colour}'")
        else:
            condition = CorrelationFilter(properties={"colour": self.colour})
        action = None if self.action is None else ACTIONS[self.action].format(self.value)
        return RuleDescription(self.name, condition, action)


@dataclass(frozen=True)
class Shape:
    """A queue, topic or subscription; `small` is one that is soon full."""

    path: str
    kind: str = QUEUE
    partitioned: bool = False
    sessions: bool = False
    duplicates: bool = False
    small: bool = False
    ttl_ms: int | None = None
    bury_expired: bool = False
    deliveries_max: int = 3
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    rules: tuple[Rule, ...] = (Rule("all"),)
    status: str = "Active"

    @property
    def topic(self) -> str:
        """The topic of a subscription."""
        return self.path.split(BETWEEN)[0]

    def description(self) -> QueueDescription | Topic | SubscriptionDescription:
        size_mb = 1 if self.small else 1024
        status = EntityStatus(self.status)
        if self.kind == TOPIC:
            return Topic(
                self.path,
                enable_partitioning=self.partitioned,
                default_ttl_ms=self.ttl_ms,
                max_size_mb=size_mb,
                requires_duplicate_detection=self.duplicates,
                duplicate_window_ms=WINDOW_MS,
                status=status,
            )
        if self.kind == QUEUE:
            return QueueDescription(
                self.path,
                enable_partitioning=self.partitioned,
                lock_duration_ms=LOCK_MS,
                max_delivery_count=self.deliveries_max,
                default_ttl_ms=self.ttl_ms,
                dead_letter_on_expiration=self.bury_expired,
                max_size_mb=size_mb,
                requires_session=self.sessions,
                requires_duplicate_detection=self.duplicates,
                duplicate_window_ms=WINDOW_MS,
                forward_to=self.forward_to,
                forward_dead_letters_to=self.forward_dead_letters_to,
                status=status,
            )
        return SubscriptionDescription(
            self.topic,
            self.path.split(BETWEEN)[1],
            lock_duration_ms=LOCK_MS,
            max_delivery_count=self.deliveries_max,
            default_ttl_ms=self.ttl_ms,
            dead_letter_on_expiration=self.bury_expired,
            requires_session=self.sessions,
            forward_to=self.forward_to,
            forward_dead_letters_to=self.forward_dead_letters_to,
            rules=tuple(rule.description() for rule in self.rules),
            status=status,
        )


def topology(shapes: tuple[Shape, ...]) -> Topology:
    """What the broker is started with."""
    descriptions = [shape.description() for shape in shapes]
    return Topology(
        queues=tuple(each for each in descriptions if isinstance(each, QueueDescription)),
        topics=tuple(each for each in descriptions if isinstance(each, Topic)),
        subscriptions=tuple(each for each in descriptions if isinstance(each, SubscriptionDescription)),
    )
