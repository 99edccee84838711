"""Requests that name several messages, or a place in a partition: lock, deliver now, claim, settle together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from emubus.broker.errors import BrokerError, Condition, UnknownOutcomeError

from . import commands as c
from .comparing import fits, is_row
from .items import ACTIVE, DEAD_LETTER, DEFERRED_HOMES, SCHEDULED, Item
from .shapes import TOPIC
from .world import Answer, Row

if TYPE_CHECKING:
    from .steps import Held, Run

NO_LIMIT = 1 << 62
PLACES = {c.ACTIVE: ("", ACTIVE), c.DEAD_LETTERS: ("/$DeadLetterQueue", DEAD_LETTER)}
LOST = (Condition.MESSAGE_LOCK_LOST, Condition.SESSION_LOCK_LOST)


class Numbered:
    """The handlers of these commands."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.handlers: dict[type, Callable[[Any], None]] = {
            c.LockByNumber: self._lock,
            c.DeliverNow: self._deliver_now,
            c.Claim: self._claim,
            c.SettleTogether: self._settle,
        }

    def _ask(self, coroutine: Any) -> Answer:
        answer = self._run.world.ask(coroutine)
        self._run.world.loop.run_until_idle()
        return answer

    def _can_ask(self, of: str) -> bool:
        """Whether the entity is there, and no slow store would answer later."""
        run = self._run
        shape = run.model.shapes.get(of)
        return shape is not None and shape.kind != TOPIC and run.model.is_receivable(of) and not run.world.is_slow()

    # ---- lock

    def _lock(self, command: c.LockByNumber) -> None:
        run = self._run
        suffix, home = PLACES[command.home]
        if not self._can_ask(command.of) or (run.model.shapes[command.of].sessions and home == ACTIVE):
            return
        homes = (home, DEFERRED_HOMES[home])
        items = [
            item
            for each in homes
            for item in run.model.at(command.of, each)
            if item.label in command.labels and item.number is not None
        ]
        if not items:
            return
        marks = {each: run.world.marks_in(command.of, each) for each in homes}
        free = {item.number or 0 for item in items if not item.lock_until and not item.doubts}
        answer = self._ask(
            run.world.broker.messages.lock_by_number(command.of + suffix, [item.number or 0 for item in items])
        )
        if answer.error is not None:
            self._judge_busy(command, command.of, answer.error)
            return
        got = {delivery.sequence_number for delivery in answer.result}
        if run.model.calm and free - got:
            run.report("everything available", f"{command} locks {sorted(got)}, and {sorted(free - got)} are free")
        for delivery in answer.result:
            was = next(each for each in homes if delivery.sequence_number in marks[each])
            run.delivered(command, was, delivery, marks=marks[was])

    def _judge_busy(self, command: c.Command, of: str, error: BrokerError) -> None:
        """A store is out: locks that it has given may go on until it works."""
        if error.condition is not Condition.SERVER_BUSY or self._run.model.calm:
            self._run.report("answer", f"{command} is answered '{error}'")
        self._run.model.take_late(of)

    # ---- deliver now

    def _deliver_now(self, command: c.DeliverNow) -> None:
        run = self._run
        scheduled = (item for item in run.model.at(command.of, SCHEDULED) if item.label == command.label)
        item = next((each for each in scheduled if each.number is not None), None)
        if item is None or run.world.is_slow():
            return
        is_certain = run.model.calm and not item.doubts
        answer = self._ask(run.world.broker.messages.deliver_scheduled(command.of, item.number or 0))
        error = answer.error
        if error is None:
            item.doubts.clear()
            run.model.happen(item, "activated")
        elif isinstance(error, UnknownOutcomeError):
            item.doubts.add("activated")
        elif is_certain or error.condition not in (Condition.SERVER_BUSY, Condition.MESSAGE_NOT_FOUND):
            run.report("answer", f"{command} is answered '{error}'; {item}")

    # ---- claim

    def _claim(self, command: c.Claim) -> None:
        run = self._run
        if not self._can_ask(command.of):
            return
        shape = run.model.shapes[command.of]
        if shape.sessions or shape.forward_to is not None:
            return
        partition = command.partition if run.model.is_partitioned(command.of) else 0
        rows = (row for row in run.world.rows() if (row.path, row.home.name) == (command.of, ACTIVE))
        before = {row.number: row for row in rows if row.number >> 48 == partition}
        numbers = sorted(before)
        limit = NO_LIMIT if command.below is None or command.below >= len(numbers) else numbers[command.below]
        available = {item.number for item in run.model.available(command.of, ACTIVE) if item.number in before}
        request = run.world.broker.messages.claim(command.of, partition, limit, command.count, {})
        answer = self._ask(request)
        if answer.error is not None:
            self._judge_busy(command, command.of, answer.error)
            if isinstance(answer.error, UnknownOutcomeError):
                run.model.claim_late(command.of)
            return
        claimed = answer.result.numbers
        self._check_claimed(command, [before[number] for number in claimed if number in before])
        if len(claimed) > command.count or any(not each < limit for each in claimed):
            run.report("claim", f"{command} claims {claimed}")
        wanted = sorted(number for number in available if number is not None and number < limit)
        if run.model.calm and command.below is None and len(claimed) < min(command.count, len(wanted)):
            run.report("everything available", f"{command} claims {claimed} of {wanted}")

    def _check_claimed(self, command: c.Claim, rows: list[Row]) -> None:
        run = self._run
        for row in rows:
            item = self._item_of(row)
            if item is None and run.happened(row.label, partial(is_row, row)):
                item = self._item_of(row)
            if item is None:
                run.report("stray", f"{command} claims {row}")
                continue
            if item.lock_until and item.lock_sure:
                run.report("claim", f"{command} claims {item}, which is locked")
            run.model.confirm(item)
            item.number, item.count, item.lock_until = row.number, (row.deliveries, row.deliveries), 0
            item.doubts.clear()
            run.model.happen(item, "claimed")

    def _item_of(self, row: Row) -> Item | None:
        return next((each for each in self._run.model.items.get(row.label, ()) if fits(each, row)), None)

    # ---- settle together

    def _settle(self, command: c.SettleTogether) -> None:
        run = self._run
        if not self._can_ask(command.of):
            return
        suffix, home = PLACES[command.home]
        taken: list[tuple[Held, bool]] = []
        for label in dict.fromkeys(command.labels):
            stack = run.held.get((label, command.of), [])
            held = next((each for each in stack if each.item.home in (home, DEFERRED_HOMES[home])), None)
            if held is None:
                continue
            stack.remove(held)
            if not stack:
                del run.held[label, command.of]
            item = held.item
            is_there = item in run.model.items.get(item.label, ()) and held.life == run.world.life
            taken.append((held, is_there and item.lock_until > run.model.now and item.token == held.token))
        if not taken:
            return
        outcome = c.Settle(0, command.of, command.outcome)
        tokens = [held.token for held, _ in taken]
        answer = self._ask(run.world.broker.messages.settle(command.of + suffix, tokens, run.outcome(outcome)))
        if answer.error is not None and answer.error.condition in LOST:
            if all(is_locked and held.item.lock_sure for held, is_locked in taken):
                seen = [str(held.item) for held, _ in taken]
                run.report("answer", f"{command}: a lock is lost, though all are locked: {seen}")
            return
        with run.model.together([held.item for held, _ in taken]):
            for held, is_locked in taken:
                if isinstance(answer.error, UnknownOutcomeError):
                    self._doubt_settled(outcome, held.item)
                else:
                    run.judge_settle(outcome, held.item, answer, is_locked=is_locked)

    def _doubt_settled(self, command: c.Settle, item: Item) -> None:
        """Of several stores some may have settled theirs; the others keep the locks."""
        model = self._run.model
        if item not in model.items.get(item.label, ()):
            return
        until = item.lock_until
        if command.outcome == "abandon":
            model.attempt_failed(item, sure=False)
        elif command.outcome != "release":
            item.doubts.add(self._run.named(command))
        item.lock_until, item.lock_sure = until, False
