"""Administration: counts of another time, entities that are not there yet, and conflicts.

Knows which requests of administration clients are refused and which counts they see. Does not know Atom.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from ...broker.api import Home, Totals
from ...broker.errors import BrokerError
from ...broker.service_errors import not_found
from .. import texts
from ..behaviour import Behaviour, Circumstances, Parameter, Row, key_of, share
from ..faults import FaultOperation
from ..strikes import AdminRefusal, AdminRequest, Attempt, Effect, Strike

TOPIC: Final = "Administration"
SAMPLE_MS: Final = 1_000
_WRITES: Final = ("PUT", "DELETE")


class CountsStale(Behaviour):
    """Counts are those of a while ago, sampled once a second."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._samples: dict[str, deque[tuple[int, Totals]]] = {}

    def begin(self) -> None:
        self._sample(self.on.started_at)

    def totals_shown(self, path: str, totals: Totals) -> Totals:
        """The counts of a while ago; those of the oldest sample if there is none so old, zero without one."""
        if not self.covers(path):
            return totals
        samples = self._samples.get(key_of(path))
        if not samples:
            shown = Totals([0] * len(totals.messages), 0, totals.is_limited)
        else:
            before = self.on.clock.now_ms() - self.number("lag_ms")
            old = [each for at_ms, each in samples if at_ms <= before]
            shown = replace(old[-1] if old else samples[0][1], is_limited=totals.is_limited)
        if shown != totals:
            self.on.record(key_of(path), "stale counts")
        return shown

    def _sample(self, at_ms: int) -> None:
        broker, lag_ms = self.on.broker, self.number("lag_ms")
        for entity in broker.namespace.entities():
            if self.covers(entity.path):
                samples = self._samples.setdefault(key_of(entity.path), deque())
                totals = entity.totals_now()
                if not samples or samples[-1][1] != totals:
                    samples.append((at_ms, replace(totals, messages=list(totals.messages))))
                while len(samples) > 1 and samples[1][0] <= at_ms - lag_ms:
                    samples.popleft()
        self._timers.clear()  # the one that has come is no longer needed
        self.at(at_ms + SAMPLE_MS, lambda: self._sample(at_ms + SAMPLE_MS))


class CountsOdd(Behaviour):
    """The count of scheduled messages is wrong by a little, below zero too."""

    def totals_shown(self, path: str, totals: Totals) -> Totals:
        if not self.covers(path) or not self.chosen(key_of(path)) or not self.on.record(key_of(path), "odd counts"):
            return totals
        messages = list(totals.messages)
        messages[Home.SCHEDULED] -= self.number("drift")
        return replace(totals, messages=messages)


class CreateNotVisible(Behaviour):
    """What was just created is not found yet."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._until: dict[str, int] = {}

    def after_admin(self, request: AdminRequest) -> None:
        if request.is_create and self.covers(request.path):
            self._until[key_of(request.path)] = self.on.clock.now_ms() + self.number("ms")

    def before_admin(self, request: AdminRequest) -> AdminRefusal | None:
        """Refuse to read an entity, or to create something below it."""
        key = key_of(request.path)
        hidden = [each for each in self._until if (key == each or key.startswith(f"{each}/")) and self._is_hidden(each)]
        if not hidden or (key in hidden and request.method != "GET") or not self.on.record(key, "not visible yet"):
            return None
        return AdminRefusal(404, f"{texts.NO_SERVICE}.")

    def strike(self, attempt: Attempt) -> Strike | None:
        key = key_of(attempt.address)
        if attempt.operation is not FaultOperation.ATTACH or not self._is_hidden(key):
            return None
        error = not_found(self.on.broker.name, key)
        return Strike(Effect.REFUSE, error) if self.on.record(key, "not visible yet") else None

    def _is_hidden(self, key: str) -> bool:
        return self.on.clock.now_ms() < self._until.get(key, 0)


class ConflictRunning(Behaviour):
    """Another operation on the entity is under way."""

    def before_admin(self, request: AdminRequest) -> AdminRefusal | None:
        key = key_of(request.path)
        if request.method not in _WRITES or not self.covers(request.path) or not self.chosen(key):
            return None
        return AdminRefusal(409, texts.conflict_running()) if self.on.record(key, "conflict") else None


class ConflictCleanup(Behaviour):
    """An entity that was deleted is still being removed."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._until: dict[str, int] = {}

    def after_admin(self, request: AdminRequest) -> None:
        if request.method == "DELETE" and self.covers(request.path):
            self._until[key_of(request.path)] = self.on.clock.now_ms() + self.number("ms")

    def before_admin(self, request: AdminRequest) -> AdminRefusal | None:
        key = key_of(request.path)
        if not request.is_create or self.on.clock.now_ms() >= self._until.get(key, 0):
            return None
        return AdminRefusal(409, texts.conflict_cleanup()) if self.on.record(key, "clean-up pending") else None


class Admin500Done(Behaviour):
    """A write fails, and yet it is done."""

    def before_admin(self, request: AdminRequest) -> AdminRefusal | None:
        key = key_of(request.path)
        if request.method not in _WRITES or not self.covers(request.path) or not self.chosen(key):
            return None
        if not self.on.record(key, f"{request.method} answered with 500"):
            return None
        return AdminRefusal(500, texts.admin_failed(), is_done=self.word("done") == "yes")


class AdminLimited(Behaviour):
    """A partition is unhealthy: the entity is `Limited`, and writes fail."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._until: dict[str, int] = {}

    def totals_shown(self, path: str, totals: Totals) -> Totals:
        if not self.covers(path) or not self.on.record(key_of(path), "limited"):
            return totals
        return replace(totals, is_limited=True)

    def before_admin(self, request: AdminRequest) -> AdminRefusal | None:
        """Refuse a write; the next one meets what the first has left behind."""
        key, now = key_of(request.path), self.on.clock.now_ms()
        if request.method not in _WRITES or not self.covers(request.path):
            return None
        if now < self._until.get(key, 0):
            return AdminRefusal(409, texts.conflict_cleanup()) if self.on.record(key, "clean-up pending") else None
        if not self.on.record(key, f"{request.method} failed"):
            return None
        self._until[key] = now + self.number("cleanup_ms")
        return AdminRefusal(500, texts.admin_failed())


class RuleLate(Behaviour):
    """Changed rules are used later; messages meet the old ones."""

    delays = True

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._held: dict[int, Callable[[], None]] = {}
        self._held_count = 0

    def holds_rules(self, path: str, use: Callable[[], None]) -> bool:
        if not self.covers(path) or not self.on.record(key_of(path), "rules late"):
            return False
        self._held_count += 1
        self._held[self._held_count] = use
        self.at(self.on.clock.now_ms() + self.number("ms"), partial(self._use, self._held_count))
        return True

    def end(self) -> None:
        super().end()
        for number in list(self._held):
            self._use(number)

    def _use(self, number: int) -> None:
        self._held.pop(number)()


class Rule500(Behaviour):
    """After a rule that is not there was removed, no rule can be added for a while."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._until: dict[str, int] = {}

    def strike(self, attempt: Attempt) -> Strike | None:
        if attempt.operation is not FaultOperation.REQUEST or not self.covers(attempt.address):
            return None
        key, now = key_of(attempt.address), self.on.clock.now_ms()
        if attempt.request == "remove-rule" and not self._is_there(key, attempt.body.get("rule-name")):
            self._until[key] = now + self.number("ms")
        if attempt.request != "add-rule" or now >= self._until.get(key, 0):
            return None
        return Strike(Effect.REFUSE, texts.internal()) if self.on.record(key, "add-rule") else None

    def _is_there(self, path: str, name: object) -> bool:
        try:
            rules = self.on.broker.administration.rules(path)
        except BrokerError:  # no subscription has that path
            return True
        return not isinstance(name, str) or any(each.name.lower() == name.lower() for each in rules)


ROWS: Final = (
    Row(
        "counts-stale",
        TOPIC,
        "Counts and sizes that administration clients see are those of a while ago. They are sampled once a second.",
        "entity",
        "HTTP 200 with older counts",
        "documentation (counters); the lag is inferred",
        (Parameter("lag_ms", "Age of the counts.", 30_000, "ms", 1, 600_000),),
        CountsStale,
    ),
    Row(
        "counts-odd",
        TOPIC,
        "The count of scheduled messages is too low, below zero too.",
        "entity",
        "HTTP 200 with a wrong count",
        "azure-service-bus 254, 653",
        (share(), Parameter("drift", "By how much.", 1, "messages", 1, 1_000)),
        CountsOdd,
    ),
    Row(
        "create-not-visible",
        TOPIC,
        "What was just created is not found yet.",
        "entity",
        "HTTP 404; attach: `amqp:not-found`",
        "docs.particular.net 5998",
        (Parameter("ms", "How long.", 3_000, "ms", 1),),
        CreateNotVisible,
    ),
    Row(
        "conflict-running",
        TOPIC,
        "Another change of the same entity is under way.",
        "entity",
        "HTTP 409, `SubCode=40901`",
        "durabletask 14",
        (share(),),
        ConflictRunning,
    ),
    Row(
        "conflict-cleanup",
        TOPIC,
        "An entity is created again soon after it was deleted: the old one is still being removed.",
        "entity",
        "HTTP 409 without a sub-code, `background clean up is still pending`",
        "azure-sdk-for-js 6276",
        (Parameter("ms", "How long after a delete.", 10_000, "ms", 1),),
        ConflictCleanup,
    ),
    Row(
        "admin-500-done",
        TOPIC,
        "A change fails, and yet it is done.",
        "entity",
        "HTTP 500, `SubCode=50000`",
        "azure-service-bus 178",
        (share(), Parameter("done", "Whether it is done.", "yes", choices=("yes", "no"))),
        Admin500Done,
    ),
    Row(
        "admin-limited",
        TOPIC,
        "A partition of an entity is unhealthy: its counts are incomplete, and writes fail. After a failed write the "
        "next one conflicts with it.",
        "entity",
        "HTTP 200, `EntityAvailabilityStatus` `Limited`; writes: 500, then 409, `background clean up is still pending`",
        "azure-service-bus-dotnet 371; the status of a write is inferred",
        (Parameter("cleanup_ms", "How long a write that failed is in the way.", 10_000, "ms"),),
        AdminLimited,
    ),
    Row(
        "rule-500",
        TOPIC,
        "A client removes a rule that is not there: for a while no rule can be added.",
        "subscription",
        "request `add-rule`: 500, `amqp:internal-error`",
        "azure-service-bus 36",
        (Parameter("ms", "How long.", 10_000, "ms", 1),),
        Rule500,
    ),
    Row(
        "rule-late",
        TOPIC,
        "Rules of a subscription are changed: messages that are sent soon after meet the old ones. Requests for rules "
        "show the new ones.",
        "subscription",
        "nothing: copies that the new rules would not make, or none",
        "inferred; NServiceBus.Transport.AzureServiceBus 779",
        (Parameter("ms", "How long after a change.", 5_000, "ms", 1),),
        RuleLate,
    ),
)
