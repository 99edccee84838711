"""Values of the test kit's verbs, how people may write them, and how they are read from answers of the control API.

ValueError, KeyError: an answer breaks its schema. BrokerError: a word that is none of those allowed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import Enum, StrEnum
from typing import Final, TypeVar

from ..broker.admin.overview import Route
from ..broker.errors import BrokerError, Condition
from ..broker.model.descriptions import SubscriptionDescription
from ..broker.names import SnapshotName
from ..conditions.condition import Planned, Struck
from ..conditions.faults import Fault, FaultKind, FaultOperation
from ..web.services import Snapshot
from .answers import Answer
from .conditions import ConditionReport

E = TypeVar("E", bound=StrEnum)
SUB_QUEUES: Final = ("active", "dead-letter", "transfer-dead-letter")
_SUBSCRIPTION: Final = re.compile(r"(?P<topic>.+?)/(?:subscriptions/)?(?P<name>[^/]+)", re.IGNORECASE)


class MessageCounts(dict[str, int]):
    """Messages of an entity by state, as attributes, or as keys in the words of the control API or of an SDK.

    `counts.dead_letter`, `counts["dead-letter"]`, `counts["dead_letter"]` and `counts["dead_letter_message_count"]`
    are the same.
    """

    __slots__ = ()

    def __missing__(self, name: str) -> int:
        """The count under another spelling of its name; KeyError names those that there are."""
        known = {_letters_and_digits(each): each for each in self}
        found = known.get(_letters_and_digits(name).removesuffix("messagecount"))
        if found is None:
            raise KeyError(f"{name}; there are: {', '.join(self)}")
        return self[found]

    @property
    def active(self) -> int:
        return self["active"]

    @property
    def scheduled(self) -> int:
        return self["scheduled"]

    @property
    def deferred(self) -> int:
        return self["deferred"]

    @property
    def dead_letter(self) -> int:
        return self["dead-letter"]

    @property
    def transfer(self) -> int:
        """Messages on their way to the target of a forward, or of a transaction."""
        return self["outbox"] + self["transfer-outbox"]

    @property
    def transfer_dead_letter(self) -> int:
        return self["transfer-dead-letter"]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.values())


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """What a client was refused, `count` times; `at` is the last time (Unix ms). `remedy` is None if none is known."""

    number: int
    at: int
    client: str
    entity: str
    code: str
    reason: str
    remedy: str | None
    count: int


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What a rule of a subscription says of a message: `matches` is None if it failed, `reason` says why not."""

    name: str
    matches: bool | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class SubscriptionVerdict:
    """What the rules of a subscription say of a message."""

    subscription: str
    takes: bool
    rules: tuple[RuleVerdict, ...]


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """What happened to a message: `text` is a sentence, `at` Unix ms, `event` a word such as sent, locked, completed.

    `is_bad`: the sender may not expect it. `verdicts` are those of a topic's subscriptions.
    """

    at: int
    event: str
    entity: str
    sequence_number: int | None
    message_id: str | None
    by: str | None
    struck_by: str | None
    text: str
    is_bad: bool
    verdicts: tuple[SubscriptionVerdict, ...]


@dataclass(frozen=True, slots=True)
class MessageSession:
    """A message session: its active messages, the size of its state, and until when (Unix ms) which client holds it.

    The size is None without a state, the instant and the client are None if nobody holds it. `oldest_at` is when its
    first active message was enqueued (Unix ms), None without one.
    """

    session_id: str
    message_count: int
    state_bytes: int | None
    locked_until_at: int | None
    holder: str | None
    oldest_at: int | None = None


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message in an entity, decoded. Instants are Unix ms; `state` is active, deferred or scheduled.

    `properties` has the AMQP properties that are set (`message_id`, `session_id`, `subject`, …), `body` has `kind`,
    `text`, `base64` and `json`, each None if it does not apply.
    """

    partition_id: int
    sequence_number: int
    state: str
    locked_until_at: int | None
    enqueued_at: int | None
    delivery_count: int
    size_bytes: int
    header: Mapping[str, object]
    properties: Mapping[str, object]
    application_properties: Mapping[str, object]
    annotations: Mapping[str, object]
    body: Mapping[str, object]

    @property
    def text(self) -> str | None:
        """The body as text; None if it is not text."""
        text = self.body["text"]
        return text if isinstance(text, str) else None

    @property
    def message_id(self) -> object:
        """The MessageId, None if it has none."""
        return self.properties.get("message_id")


def sub_queue_of(word: object) -> str:
    """A sub-queue by the control API's word from that of any SDK: `deadletter`, `ServiceBusSubQueue.DEAD_LETTER`,
    `$DeadLetterQueue`; None is `active`."""
    text = "active" if word is None else str(word.value if isinstance(word, Enum) else word)
    known = {_letters_and_digits(each): each for each in SUB_QUEUES}
    found = known.get(_letters_and_digits(text).removesuffix("queue"))
    if found is None:
        raise BrokerError(Condition.ARGUMENT_ERROR, _not_one_of("sub_queue", text, SUB_QUEUES))
    return found


def choice_of(kind: type[E], word: E | str, what: str) -> E:
    """A member of an enumeration by its word, with hyphens or underscores."""
    for each in kind:
        if _letters_and_digits(each.value) == _letters_and_digits(word):
            return each
    raise BrokerError(Condition.ARGUMENT_ERROR, _not_one_of(what, word, [each.value for each in kind]))


def stores_of(stores: int | Collection[int]) -> list[int]:
    """The numbers of messaging stores, from one or several."""
    return [stores] if isinstance(stores, int) else list(stores)


def subscription_of(path: str) -> tuple[str, str]:
    """Topic and name, from `topic/name` or `topic/Subscriptions/name`."""
    found = _SUBSCRIPTION.fullmatch(path)
    if found is None:
        text = f"The subscription is '{path}'; name it with its topic, such as 'prices/all'."
        raise BrokerError(Condition.ARGUMENT_ERROR, text)
    return found["topic"], found["name"]


def subscription_path(path: str) -> str:
    topic, name = subscription_of(path)
    return SubscriptionDescription(topic, name).path


def unix_ms(at: datetime | int) -> int:
    """An instant in Unix milliseconds; one without a zone is in UTC, as SDKs have them."""
    if isinstance(at, int):
        return at
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _letters_and_digits(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _not_one_of(what: str, word: str, allowed: Collection[str]) -> str:
    close = get_close_matches(word.lower(), allowed, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{what} is '{word}'; {hint}allowed: {', '.join(allowed)}."


def in_ms(by: int | timedelta) -> int:
    """A duration in milliseconds, fractions rounded up."""
    return -(-by // timedelta(milliseconds=1)) if isinstance(by, timedelta) else by


def message_in(found: Answer) -> PeekedMessage:
    return PeekedMessage(
        found.number("partition_id"),
        found.number("sequence_number"),
        found.text("state"),
        found.number_or_none("locked_until_at"),
        found.number_or_none("enqueued_at"),
        found.number("delivery_count"),
        found.number("size_bytes"),
        found.members("header"),
        found.members("properties"),
        found.members("application_properties"),
        found.members("annotations"),
        found.members("body"),
    )


def route_in(found: Answer) -> Route:
    return Route(
        found.text_or_none("key"),
        found.text_or_none("key_source"),
        found.number("partition_count"),
        found.number_or_none("partition_id"),
        found.number_or_none("store"),
        found.flag("is_available"),
    )


def snapshot_in(found: Answer) -> Snapshot:
    return Snapshot(
        SnapshotName(found.text("name")),
        found.number("taken_at"),
        found.number("store_count"),
        found.number("entity_count"),
        found.number("message_count"),
        found.number("size_bytes"),
    )


def fault_in(found: Answer) -> Fault:
    return Fault(
        found.number("id"),
        FaultKind(found.text("kind")),
        found.text_or_none("entity"),
        tuple(FaultOperation(each) for each in found.texts("operations")),
        found.number_or_none("count"),
        found.fraction("probability"),
        found.number("delay_ms"),
        found.number("hit_count"),
    )


def report_in(found: Answer) -> ConditionReport:
    return ConditionReport(
        found.number("id"),
        found.text("name"),
        found.number("seed"),
        found.text_or_none("entity"),
        found.flag("is_on"),
        found.number_or_none("ends_at"),
        [Planned(each.number("at"), each.text("behaviour"), each.text("what")) for each in found.parts("plan")],
        found.number("struck_count"),
        [_struck(each) for each in found.parts("struck")],
    )


def _struck(found: Answer) -> Struck:
    return Struck(
        found.number("number"),
        found.number("at"),
        found.text("behaviour"),
        found.text("scope"),
        found.text("what"),
        found.number("decision"),
        found.text("tracking_id"),
    )


def counts_in(found: Answer) -> MessageCounts:
    return MessageCounts({state: found.number(state) for state in found})


def refusal_in(found: Answer) -> RefusedCall:
    return RefusedCall(
        found.number("number"),
        found.number("at"),
        found.text("client"),
        found.text("entity"),
        found.text("code"),
        found.text("reason"),
        found.text_or_none("remedy"),
        found.number("count"),
    )


def session_in(found: Answer) -> MessageSession:
    return MessageSession(
        found.text("session_id"),
        found.number("message_count"),
        found.number_or_none("state_bytes"),
        found.number_or_none("locked_until_at"),
        found.text_or_none("holder"),
        found.number_or_none("oldest_at"),
    )


def event_in(found: Answer) -> StoryEvent:
    return StoryEvent(
        found.number("at"),
        found.text("event"),
        found.text("entity"),
        found.number_or_none("sequence_number"),
        found.text_or_none("message_id"),
        found.text_or_none("by"),
        found.text_or_none("struck_by"),
        found.text("text"),
        found.flag("is_bad"),
        tuple(_verdict(each) for each in found.parts("verdicts")),
    )


def _verdict(found: Answer) -> SubscriptionVerdict:
    rules = tuple(_rule_verdict(each) for each in found.parts("rules"))
    return SubscriptionVerdict(found.text("subscription"), found.flag("takes"), rules)


def _rule_verdict(found: Answer) -> RuleVerdict:
    matches = None if found["matches"] is None else found.flag("matches")
    return RuleVerdict(found.text("name"), matches, found.text_or_none("reason"))
