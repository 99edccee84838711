"""What an operator does with messages, a batch at a time: delete, dead-letter, defer, resubmit, move, copy.

Each message succeeds or fails by itself. A message is locked before it leaves, so that no receiver has it meanwhile,
and its session until the end of the job; a scheduled one is cancelled instead. A message that moves is sent before it
is removed: whatever fails, it is not lost. Does not know which messages are meant (`jobs`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from ...broker.address import SubQueue
from ...broker.admin.overview import Overview, Seen
from ...broker.api import Complete, DeadLetter, Defer, Delivery, Entity, Outcome, Release
from ...broker.broker import Broker
from ...broker.errors import BrokerError, Condition
from ...broker.model.descriptions import SubscriptionDescription, TopicDescription
from ...codec.errors import DecodeError
from ..long_work import Pace
from ..single_send import Sent, send_each
from .annotations import SCHEDULED, state_of
from .changes import SCHEDULED_FOR, Changes, changed
from .sessions import HeldSessions, session_of

NOT_FREE: Final = "it is locked, scheduled or gone"
GONE: Final = "it is locked or gone"
DUPLICATE: Final = "it would be dropped as a duplicate: give it another MessageId"
NOT_SCHEDULED: Final = "it is not scheduled"
KEPT: Final = "it was copied, but stays: {}"
CLIENT: Final = "a job of the web page or the control API ({})"


class Verb(StrEnum):
    """What is done with each message."""

    DELETE = "delete"
    COMPLETE = "complete"
    DEAD_LETTER = "dead-letter"
    DEFER = "defer"
    RESUBMIT = "resubmit"
    MOVE = "move"
    COPY = "copy"
    DELIVER_NOW = "deliver-now"


DONE: Final[Mapping[Verb, str]] = {
    Verb.DELETE: "deleted",
    Verb.COMPLETE: "completed",
    Verb.DEAD_LETTER: "dead-lettered",
    Verb.DEFER: "deferred",
    Verb.RESUBMIT: "resubmitted",
    Verb.MOVE: "moved",
    Verb.COPY: "copied",
    Verb.DELIVER_NOW: "delivered now",
}
"""The word for a message with which it was done."""

SENDING: Final = frozenset({Verb.RESUBMIT, Verb.MOVE, Verb.COPY})
"""Verbs with a target: where the messages go, by default the queue or topic that they came from."""

Failures = dict[int, str]
"""Why messages stay as they are, by sequence number."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with messages of a sub-queue of the entity `path`; `reason` and `description` of dead letters,
    `changes` of those that move or are copied."""

    verb: Verb
    path: str
    sub_queue: SubQueue
    target: str | None = None
    changes: Changes = field(default_factory=Changes)
    reason: str | None = None
    description: str | None = None


class PlanRun:
    """Carries out one plan. BrokerError (not-found, not-allowed) for a plan that does not fit the entity."""

    def __init__(self, broker: Broker, plan: Plan) -> None:
        self._broker = broker
        self._plan = plan
        self.entity = Overview(broker.namespace).entity(plan.path)
        if isinstance(self.entity.description, TopicDescription):
            raise BrokerError(
                Condition.NOT_ALLOWED, f"The topic '{plan.path}' holds no messages: its subscriptions do."
            )
        sub_queue = plan.sub_queue
        self._address = f"{self.entity.path}/{sub_queue.value}" if sub_queue else self.entity.path
        self._generation = broker.messages.generation(self.entity.path)
        self.target = self._target() if plan.verb in SENDING else None
        self._locks_sessions = self.entity.requires_session and sub_queue is SubQueue.ACTIVE
        self._sessions = HeldSessions(broker, CLIENT.format(plan.verb), skips_refused=True)
        if plan.verb in (Verb.DEAD_LETTER, Verb.DELIVER_NOW) and sub_queue is not SubQueue.ACTIVE:
            raise BrokerError(Condition.NOT_ALLOWED, f"'{plan.verb}' is for messages outside of sub-queues.")
        if plan.verb is Verb.RESUBMIT and sub_queue is not SubQueue.DEAD_LETTER:
            raise BrokerError(Condition.NOT_ALLOWED, "'resubmit' is for dead letters.")

    def _target(self) -> Entity:
        description = self.entity.description
        own = description.topic_name if isinstance(description, SubscriptionDescription) else self.entity.path
        return Overview(self._broker.namespace).entity(self._plan.target or own)

    def close(self) -> None:
        """Release the message sessions that were locked."""
        self._sessions.close()

    async def carry_out(self, batch: Sequence[Seen]) -> Failures:
        """Do it with these messages; the failures. BrokerError if the entity is another one by now."""
        if self._broker.messages.generation(self.entity.path) != self._generation:
            raise BrokerError(Condition.NOT_FOUND, f"'{self.entity.path}' was deleted, or restored from a snapshot.")
        try:
            return await self._dispatch(batch)
        except BrokerError as error:
            return dict.fromkeys(_numbers(batch), error.description)

    async def _dispatch(self, batch: Sequence[Seen]) -> Failures:
        match self._plan.verb:
            case Verb.DELETE:
                return await self._delete(batch)
            case Verb.COMPLETE:
                return await self._lock_and_settle(batch, Complete())
            case Verb.DEAD_LETTER:
                return await self._lock_and_settle(batch, DeadLetter(self._plan.reason, self._plan.description))
            case Verb.DEFER:
                return await self._lock_and_settle(batch, Defer())
            case Verb.RESUBMIT:
                return await self._resubmit(batch)
            case Verb.MOVE:
                return await self._move(batch)
            case Verb.COPY:
                return _failures_in(await self._send({seen.sequence_number: seen.encoded for seen in batch}))
            case Verb.DELIVER_NOW:
                return await self._each_scheduled(batch, self._deliver, NOT_SCHEDULED)

    # ---- verbs

    async def _resubmit(self, batch: Sequence[Seen]) -> Failures:
        assert self.target is not None
        answer = await self.entity.resubmit(_numbers(batch), self.target)
        return {number: error.description for number, error in answer.items() if error is not None}

    async def _move(self, batch: Sequence[Seen]) -> Failures:
        locked, failures = await self._lock_batch(batch)
        waiting = {seen.sequence_number: seen for seen in batch if state_of(seen.encoded) == SCHEDULED}
        there = {number: each.payload for number, each in locked.items()}
        there |= {number: seen.encoded for number, seen in waiting.items() if number not in locked}
        try:
            sent = await self._send(there)
        except BrokerError:
            await self._release(list(locked.values()))
            raise
        missing = {number: NOT_FREE for number in _numbers(batch) if number not in there}
        failures = missing | failures | _failures_in(sent)
        left = [number for number in there if number not in failures]
        kept = await self._settle({number: locked[number] for number in left if number in locked}, Complete())
        failures |= {number: KEPT.format(text) for number, text in kept.items()}
        await self._release([locked[number] for number in failures if number in locked])
        gone = await self._each_scheduled([waiting[number] for number in left if number not in locked], self._cancel)
        return failures | {number: KEPT.format(text) for number, text in gone.items()}

    async def _delete(self, batch: Sequence[Seen]) -> Failures:
        failures = await self._lock_and_settle(batch, Complete())
        busy = {number for number, text in failures.items() if text == NOT_FREE}
        waiting = [each for each in batch if each.sequence_number in busy and state_of(each.encoded) == SCHEDULED]
        cancelled = await self._each_scheduled(waiting, self._cancel)
        done = set(_numbers(waiting)) - cancelled.keys()
        return {
            number: cancelled.get(number, GONE if number in busy else text)
            for number, text in failures.items()
            if number not in done
        }

    # ---- helpers

    async def _lock_and_settle(self, batch: Sequence[Seen], outcome: Outcome) -> Failures:
        """Lock messages and settle them, each by itself."""
        locked, held = await self._lock_batch(batch)
        failures = await self._settle(locked, outcome)
        await self._release([locked[number] for number in failures])
        return {number: NOT_FREE for number in _numbers(batch) if number not in locked} | held | failures

    async def _lock_batch(self, batch: Sequence[Seen]) -> tuple[dict[int, Delivery], Failures]:
        """Lock messages; those that are locked now, and why the sessions of others can't be."""
        if self._locks_sessions:
            there = [seen for seen in batch if state_of(seen.encoded) != SCHEDULED]
            asked = {seen.sequence_number: session_of(seen.encoded) for seen in there}
            locked, failures = await self._sessions.lock(self.entity, asked)
            return {each.delivery.sequence_number: each.delivery for each in locked}, failures
        found = await self._broker.messages.lock_by_number(self._address, _numbers(batch))
        return {each.sequence_number: each for each in found}, {}

    async def _settle(self, locked: Mapping[int, Delivery], outcome: Outcome) -> Failures:
        if not locked:
            return {}
        numbers, failures = list(locked), Failures()
        left = len(numbers)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(positions: Sequence[int], error: BrokerError | None) -> None:
            nonlocal left
            left -= len(positions)
            if error is not None:
                failures.update({numbers[position]: error.description for position in positions})
            if not left and not ended.done():
                ended.set_result(None)

        self.entity.settle([each.token for each in locked.values()], outcome, done, self._plan.sub_queue)
        await ended
        return failures

    async def _release(self, deliveries: Sequence[Delivery]) -> None:
        """Give locked messages back; where that fails, too, their locks expire."""
        await self._settle({each.sequence_number: each for each in deliveries}, Release())

    async def _send(self, encoded: Mapping[int, bytes]) -> dict[int, Sent]:
        """Send these messages, by their numbers where they are now. BrokerError if the target takes none."""
        assert self.target is not None
        ready: dict[int, bytes] = {}
        sent: dict[int, Sent] = {}
        pace = Pace()
        for number, data in encoded.items():
            await pace.step()
            try:
                ready[number] = changed(data, self._changes_of(data))
            except (DecodeError, TypeError, ValueError) as error:
                sent[number] = BrokerError(Condition.ARGUMENT_ERROR, f"it can't be changed: {error}")
        answers = await send_each(self._broker, self.target, list(ready.values()))
        return sent | dict(zip(ready, answers, strict=True))

    def _changes_of(self, data: bytes) -> Changes:
        """The plan's changes; a message that was delivered before its time is not scheduled again."""
        changes = self._plan.changes
        if SCHEDULED_FOR in changes.annotations or SCHEDULED_FOR.encode() not in data:
            return changes
        if state_of(data) == SCHEDULED:
            return changes
        return replace(changes, annotations={**changes.annotations, SCHEDULED_FOR: None})

    async def _cancel(self, number: int) -> None:
        await self._broker.messages.cancel_scheduled(self.entity.path, [number])

    async def _deliver(self, number: int) -> None:
        await self._broker.messages.deliver_scheduled(self.entity.path, number)

    async def _each_scheduled(
        self, batch: Sequence[Seen], act: Callable[[int], Awaitable[None]], missing: str = GONE
    ) -> Failures:
        failures: Failures = {}
        for number in _numbers(batch):
            try:
                await act(number)
            except BrokerError as error:
                is_gone = error.condition is Condition.MESSAGE_NOT_FOUND
                failures[number] = missing if is_gone else error.description
        return failures


def _numbers(batch: Sequence[Seen]) -> list[int]:
    return [seen.sequence_number for seen in batch]


def _failures_in(sent: Mapping[int, Sent]) -> Failures:
    texts = {number: DUPLICATE for number, each in sent.items() if each is None}
    return texts | {number: each.description for number, each in sent.items() if isinstance(each, BrokerError)}
