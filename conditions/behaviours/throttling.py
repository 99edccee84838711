"""Throttling: credits by the second, a shared node at its limit, and what is lost while clients wait.

Knows costs of operations, the bucket of credits and the times of bursts. Does not know how a refusal travels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...broker import service_errors
from ...broker.errors import BrokerError
from ...broker.model.descriptions import TopicDescription
from .. import texts
from ..behaviour import Behaviour, Parameter, Row, key_of, share
from ..faults import FaultOperation
from ..strikes import AdminRefusal, AdminRequest, Attempt, Effect, Strike

TOPIC: Final = "Throttling"
ADMIN_COST: Final = 10
_CODES: Final = ("50001", "50002", "50008")


class ThrottleCredits(Behaviour):
    """A bucket of credits that is filled at the start of each second."""

    def strike(self, attempt: Attempt) -> Strike | None:
        """Take the credits of an operation, or refuse it; a receiver gets as many messages as there are credits."""
        if not self.covers(attempt.address):
            return None
        if attempt.operation is FaultOperation.RECEIVE:
            return self._receive(attempt)
        cost = self._cost(attempt)
        if self.on.shared.bucket.take(cost, self.number("credits_per_s")):
            return None
        if not self.on.record(key_of(attempt.address), f"{attempt.operation} refused, {cost} credits"):
            return None
        return Strike(Effect.REFUSE, service_errors.throttled(self.on.broker.name))

    def delivered(self, address: str, count: int, link: Callable[[], str]) -> None:
        if self.covers(address):
            self.on.shared.bucket.use(count)

    def _receive(self, attempt: Attempt) -> Strike | None:
        bucket, wanted = self.on.shared.bucket, attempt.count()
        left = max(0, bucket.left(self.number("credits_per_s")))
        if left >= wanted:
            return None
        if self.word("receive") == "detach":
            if left or not self.on.record(key_of(attempt.address), "receiver detached"):
                return None
            return Strike(Effect.REFUSE, service_errors.throttled(self.on.broker.name))
        if not left and not self.on.record(key_of(attempt.address), "receiver waits for credits"):
            return None
        return Strike(Effect.LIMIT, count=left, delay_ms=bucket.full_after_ms())

    def _cost(self, attempt: Attempt) -> int:
        match attempt.operation:
            case FaultOperation.SEND:
                return attempt.count() * (1 + self._filters(attempt.address))
            case FaultOperation.SETTLE | FaultOperation.RENEW:
                return self.number("settle_cost")
            case FaultOperation.REQUEST:
                return 1
            case _:
                return 0

    def _filters(self, address: str) -> int:
        """How many filters a message to that address meets."""
        broker = self.on.broker
        entity = broker.namespace.entity(key_of(address))
        if entity is None or not isinstance(entity.description, TopicDescription):
            return 0
        subscriptions = broker.namespace.subscriptions_of(entity.path).entities()
        return sum(len(broker.administration.rules(each.path)) for each in subscriptions)


class ThrottleAdmin(Behaviour):
    """Requests of administration clients are refused: for want of credits if the condition has them, else by chance."""

    def before_admin(self, request: AdminRequest) -> AdminRefusal | None:
        on = self.on
        if not self._is_struck(request) or not on.record(request.path.lower(), f"{request.method} refused"):
            return None
        return AdminRefusal(self.number("status"), service_errors.throttled(on.broker.name).description)

    def _is_struck(self, request: AdminRequest) -> bool:
        per_second = self.number("credits_per_s")
        if per_second:
            return not self.on.shared.bucket.take(ADMIN_COST, per_second)
        return self.covers(request.path) and self.chosen(request.path.lower())


class ThrottleNode(Behaviour):
    """A node at its limit refuses a share of the operations, in bursts."""

    def strike(self, attempt: Attempt) -> Strike | None:
        only = self.word("operations")
        if only not in ("all", attempt.operation.value) or not self.covers(attempt.address) or not self._is_burst():
            return None
        scope = key_of(attempt.address)
        if not self.chosen(scope) or not self.on.record(scope, f"{attempt.operation} refused"):
            return None
        return Strike(Effect.REFUSE, self._error())

    def _is_burst(self) -> bool:
        burst_ms, gap_ms = self.number("burst_ms"), self.number("gap_ms")
        past_ms = self.on.clock.now_ms() - self.on.started_at
        return not gap_ms or past_ms % (burst_ms + gap_ms) < burst_ms

    def _error(self) -> BrokerError:
        return texts.node_busy(self.on.broker.name, int(self.word("code")))


class ThrottleLosesLocks(Behaviour):
    """While clients wait, locks end although their time is not over."""

    def strike(self, attempt: Attempt) -> Strike | None:
        if attempt.operation is not FaultOperation.SETTLE or not self.covers(attempt.address):
            return None
        scope = key_of(attempt.address)
        if not self.chosen(scope, "lose_probability") or not self.on.record(scope, "lock lost"):
            return None
        return Strike(Effect.LOSE_LOCK)


_BURSTS: Final = (
    Parameter("burst_ms", "Length of a burst; without a gap one never ends.", 2_000, "ms"),
    Parameter("gap_ms", "Time between two bursts; 0: none.", 0, "ms"),
    Parameter(
        "operations", "Operations that are refused.", "all", choices=("all", *(each.value for each in FaultOperation))
    ),
)
ROWS: Final = (
    Row(
        "throttle-credits",
        TOPIC,
        "A Standard namespace has used up the credits of a second: a message sent or received costs 1, and 1 more for "
        "each filter that a message to a topic meets; a request to a management node costs 1.",
        "namespace",
        "send: rejected; request: 503; `com.microsoft:server-busy`, error code 50009",
        "documentation (throttling); text: azure-sdk-for-python 19376",
        (
            Parameter("credits_per_s", "Credits of a second.", 1_000, "credits/s", most=1_000_000),
            Parameter("settle_cost", "Credits of a settlement or renewal.", 0, "credits", most=1_000),
            Parameter(
                "receive",
                "What a receiver gets for want of credits: messages later, or a detach.",
                "slow",
                choices=("slow", "detach"),
            ),
        ),
        ThrottleCredits,
    ),
    Row(
        "throttle-admin",
        TOPIC,
        "Requests of administration clients are refused: each costs 10 credits of the same bucket, or with 0 credits a "
        "share of them is refused.",
        "namespace",
        "HTTP 503 with the text of error code 50009",
        "documentation (throttling); status inferred",
        (
            Parameter("credits_per_s", "Credits of a second; 0: by chance.", 0, "credits/s", most=1_000_000),
            Parameter("status", "Status of the answer.", 503, "", 400, 599),
            share(),
        ),
        ThrottleAdmin,
    ),
    Row(
        "throttle-classic",
        TOPIC,
        "The node that the namespace shares with others is at its limit.",
        "entity",
        "as `throttle-credits`, error code 50001 or 50002, `Please wait 10 seconds`",
        "documentation (exceptions)",
        (share(), Parameter("code", "Error code.", "50001", choices=_CODES), *_BURSTS),
        ThrottleNode,
    ),
    Row(
        "throttle-premium",
        TOPIC,
        "CPU or memory of the messaging units of a Premium namespace are used up.",
        "entity",
        "as `throttle-classic`, error code 50008",
        "documentation (throttling); shares inferred",
        (share(0.3), Parameter("code", "Error code.", "50008", choices=_CODES), *_BURSTS),
        ThrottleNode,
    ),
    Row(
        "throttle-loses-locks",
        TOPIC,
        "Locks end while a throttled client waits, although their time is not over.",
        "entity",
        "`com.microsoft:message-lock-lost` or `session-lock-lost` at a settlement",
        "azure-sdk-for-net 25275, 33104",
        (Parameter("lose_probability", "Probability, each settlement.", 0.01, most=1),),
        ThrottleLosesLocks,
    ),
)
