"""Messages that come late, and locks that end early.

Knows which messages are late and by how much. Does not know how a partition keeps them back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...broker.address import SubQueue
from ...broker.api import LockCut
from ...broker.model.descriptions import SubscriptionDescription
from ..behaviour import Behaviour, Circumstances, Parameter, Row, key_of, share
from ..chance import fraction

RECEIVING, STORES, TWICE = "Receiving", "Stores", "Twice, late, lost"


class Hiding(Behaviour):
    """Hides messages for a time: within a partition the order stays, so what is behind one waits, too."""

    delays = True

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._recorded: set[tuple[str, int]] = set()

    def hides(self, path: str, number: int, until_at: int) -> int:
        """The end of a message's time, which is recorded once; 0 if it is over, or the condition has struck enough."""
        if until_at <= self.on.clock.now_ms():
            return 0
        scope = key_of(path)
        if (scope, number) not in self._recorded:
            if not self.on.record(scope, f"message {number} late"):
                return 0
            self._recorded.add((scope, number))
            late_ms = until_at - self.on.clock.now_ms()
            self.on.broker.strikes.note_delivery(path, number, self.title, f"kept back for {late_ms} ms")
        return until_at


class AcceptedNotVisible(Hiding):
    """Messages are accepted, and receivers get them later."""

    def hidden_until(self, path: str, sub_queue: SubQueue, number: int, enqueued_at: int) -> int:
        """Hide a share of the messages that came since the start."""
        if sub_queue is not SubQueue.ACTIVE or enqueued_at < self.on.started_at or not self.covers(path):
            return 0
        if fraction(self.on.seed, self.on.row.name, key_of(path), number) >= self.ratio("share"):
            return 0
        return self.hides(path, number, enqueued_at + self.number("ms"))


class SubscriptionLag(Hiding):
    """Subscriptions get what the topic has accepted later."""

    def hidden_until(self, path: str, sub_queue: SubQueue, number: int, enqueued_at: int) -> int:
        """Hide the messages of a subscription that came since the start."""
        entity = self.on.broker.namespace.entity(path)
        if entity is None or not isinstance(entity.description, SubscriptionDescription):
            return 0
        if sub_queue is not SubQueue.ACTIVE or enqueued_at < self.on.started_at or not self.covers(path):
            return 0
        return self.hides(path, number, enqueued_at + self.number("ms"))


class DeadLetterLate(Hiding):
    """Dead letters are in their queue later."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._asked_at: dict[tuple[str, int], int] = {}

    def hidden_until(self, path: str, sub_queue: SubQueue, number: int, enqueued_at: int) -> int:
        """Hide a dead letter from the moment at which a receiver would get it."""
        if sub_queue is not SubQueue.DEAD_LETTER or not self.covers(path):
            return 0
        asked_at = self._asked_at.setdefault((key_of(path), number), self.on.clock.now_ms())
        return self.hides(path, number, asked_at + self.number("ms"))


class DueLate(Behaviour):
    """What is due happens later."""

    delays = True
    is_activation = False

    def due_late_ms(self, path: str, *, is_activation: bool) -> int:
        return self.number("ms") if is_activation is self.is_activation and self.covers(path) else 0


class ScheduledLate(DueLate):
    """Scheduled messages become active late."""

    is_activation = True


class ExpiryLate(DueLate):
    """Messages whose time to live is over stay, unless a receiver asks for them."""


class AgedLock(Behaviour):
    """The locks of an answer are older than it."""

    delays = True

    def lock_cut(self, path: str) -> LockCut | None:
        scope = key_of(path)
        if not self.covers(path) or not self.chosen(scope):
            return None
        earlier_ms, believed_ms = self.cut_of()
        return LockCut(earlier_ms, believed_ms) if self.on.record(scope, f"locks end {earlier_ms} ms early") else None

    def cut_of(self) -> tuple[int, int]:
        """How much earlier they end, and how much later than that the client believes (ms)."""
        return self.number("age_ms"), 0


class ShortLock(AgedLock):
    """The locks of an answer are short, or shorter than they say."""

    def cut_of(self) -> tuple[int, int]:
        """How much earlier they end, and how much later than that the client believes (ms)."""
        return self.number("cut_ms") + self.number("lie_ms"), self.number("lie_ms")


class ForeignCache(Behaviour):
    """Each connection's front end takes more messages of a partitioned entity than its client wants, and keeps them."""

    def cache_max(self, address: str) -> int:
        scope = key_of(address)
        entity = self.on.broker.namespace.entity(scope)
        if entity is None or len(entity.partitions) < 2 or not self.covers(address) or not self.chosen(scope):
            return 0
        return self.number("cache_max") if self.on.record(scope, "front end takes more") else 0


def _row(
    name: str,
    topic: str,
    about: str,
    wire: str,
    source: str,
    make: Callable[..., Behaviour],
    *parameters: Parameter,
) -> Row:
    return Row(name, topic, about, "entity", wire, source, parameters, make)


ROWS: Final = (
    _row(
        "accepted-not-visible",
        STORES,
        "A store in trouble is bridged: a message is accepted, and receivers get it later, with the enqueued time of "
        "its acceptance. Messages behind it in its partition wait, too. Peeks and counts show it.",
        "nothing",
        "documentation (asynchronous messaging)",
        AcceptedNotVisible,
        share(),
        Parameter("ms", "How long.", 30_000, "ms", 1, 900_000),
    ),
    _row(
        "subscription-lag",
        RECEIVING,
        "A subscription has a message later than its topic. Peeks and counts show it.",
        "nothing",
        "inferred",
        SubscriptionLag,
        Parameter("ms", "How long.", 2_000, "ms", 1),
    ),
    _row(
        "dead-letter-late",
        RECEIVING,
        "A dead letter has left its queue, and receivers of the dead-letter queue get it later: counted from the "
        "moment at which a receiver would get it.",
        "nothing",
        "inferred",
        DeadLetterLate,
        Parameter("ms", "How long.", 5_000, "ms", 1),
    ),
    _row(
        "scheduled-late",
        RECEIVING,
        "A scheduled message becomes active late: enqueued time and sequence number are those of that moment.",
        "nothing",
        "documentation; azure-sdk-for-net 37861",
        ScheduledLate,
        Parameter("ms", "How late.", 15_000, "ms", 0, 3_600_000),
    ),
    _row(
        "expiry-late",
        RECEIVING,
        "A message whose time to live is over stays in counts and peeks until a receiver asks for messages, or until "
        "it is swept. No receiver gets it.",
        "peeks and counts with messages that have expired",
        "documentation; azure-docs 74821",
        ExpiryLate,
        Parameter("ms", "Time until it is swept.", 120_000, "ms", 0, 3_600_000),
    ),
    _row(
        "foreign-cache",
        STORES,
        "The front end of a connection takes more messages of a partitioned entity than its client wants, and keeps "
        "them locked for the next receive on that link. To others the entity looks empty until the locks end; that "
        "attempt counts.",
        "nothing, although there are messages",
        "documentation (partitioned entities); the count is inferred",
        ForeignCache,
        share(),
        Parameter("cache_max", "Messages that a front end keeps.", 16, "messages", 1, 1_000),
    ),
    _row(
        "aged-lock",
        STORES,
        "A message has waited for its receiver, locked, in a front end: its lock is older than its delivery, and may "
        "be over.",
        "transfers with `x-opt-locked-until` earlier than usual, even past",
        "azure-service-bus 255, 155, azure-sdk-for-python 6178",
        AgedLock,
        share(),
        Parameter("age_ms", "The age of the lock.", 30_000, "ms", 1),
    ),
    _row(
        "short-lock",
        TWICE,
        "A lock is shorter than the LockDuration, and may end earlier than the client believes. A renewed lock is not.",
        "transfers with `x-opt-locked-until` earlier than usual",
        "documentation (prefetch); azure-service-bus-dotnet 688",
        ShortLock,
        share(),
        Parameter("cut_ms", "How much earlier it ends, as the client knows.", 10_000, "ms"),
        Parameter("lie_ms", "How much earlier still, as the client does not know.", 0, "ms"),
    ),
)
