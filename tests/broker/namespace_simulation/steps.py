"""Commands, done to the broker and to the model, and whether the broker answers as the model says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from emubus.broker.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Delivery,
    OutageKind,
    Outcome,
    ReceiveMode,
    Release,
    alone,
)
from emubus.broker.errors import BrokerError, Condition, UnknownOutcomeError
from emubus.broker.message.builder import NewMessage, envelope
from emubus.broker.message.message import parse_message
from emubus.broker.partition.records import session_number

from ..tearing import Fate
from . import commands as c
from .changes import Changes
from .comparing import Tally, bears, compare, fits, latitude
from .items import ACTIVE, DEAD_LETTER, DEFERRED, DEFERRED_HOMES, SCHEDULED, TRANSFER_DEAD_LETTER, Holding, Item
from .model import Model
from .numbered import Numbered
from .requests import Requests
from .rules import BrokenRuleError
from .sending import BROKER_GONE, Sending
from .sessions import Sessions
from .shapes import Shape
from .transactions import Transacting
from .world import LIMITS, START_AT, STEP_MS, STEPS_MAX, STORES, Answer, Mark, World, label_bytes, label_of

Receiving = c.Receive | c.ReceiveDeferred | c.ReceiveInSession | c.LockByNumber
HOMES = {
    c.ACTIVE: ("", ACTIVE),
    c.DEAD_LETTERS: ("/$DeadLetterQueue", DEAD_LETTER),
    c.TRANSFER_DEAD_LETTERS: ("/$Transfer/$DeadLetterQueue", TRANSFER_DEAD_LETTER),
}
UNANSWERED = "complete, unanswered"

OUTCOMES: dict[str, tuple[Callable[[], Outcome], str]] = {
    "complete": (Complete, "taken"),
    UNANSWERED: (Complete, "taken"),
    "abandon": (Abandon, ""),
    "release": (Release, ""),
    "defer": (Defer, "deferred"),
    "dead-letter": (lambda: DeadLetter("by the client"), "dead-lettered"),
}


UNSEEN: Mapping[int, Mark] = {}
DOUBTS_MAX = 4  # that came true one after the other, unseen
DEAD = (DEAD_LETTER, DEFERRED_HOMES[DEAD_LETTER])
LOCK_LOST = (Condition.MESSAGE_LOCK_LOST, Condition.SESSION_LOCK_LOST)


@dataclass
class Pending:
    """Something that was asked and is not answered; `judge` compares the answer with the model."""

    answer: Answer
    judge: Callable[[Answer], None]
    labels: frozenset[int] = frozenset()  # of the messages that the model learns of by the answer
    foresee: Callable[[], None] | None = None  # let the model have these before


@dataclass
class Held:
    """A lock in the hands of a receiver."""

    item: Item
    token: bytes
    life: int


class Run:
    """A namespace and its model; the rules in `muted` are not kept."""

    def __init__(self, shapes: tuple[Shape, ...], muted: Collection[str] = ()) -> None:
        self.world = World(shapes)
        self.model = Model(shapes, START_AT)
        self.tally = Tally()
        self.muted = muted
        self.muted_count = 0
        self.held: dict[tuple[int, str], list[Held]] = {}
        self.known_labels: set[int] = set()
        self.are_many = False  # commands are under way at once: how much room there is depends on their order
        self._pending: list[Pending] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            c.Send: self._send,
            c.Together: self._together,
            c.Schedule: self._schedule,
            c.Cancel: self._cancel,
            c.Receive: self._receive,
            c.Settle: self._settle,
            c.Outage: self._outage,
            c.Tear: self._tear,
            c.Mend: self._mend,
            c.Restart: self._restart,
            c.Advance: self._advance,
            c.Rest: self._rest,
            c.Kill: self._kill,
        }
        self.sessions = Sessions(self)
        self._handlers |= self.sessions.handlers | Requests(self).handlers | Numbered(self).handlers
        self._handlers |= Transacting(self).handlers | Changes(self).handlers

    def do(self, command: c.Command) -> None:
        """One command; BrokenRuleError if the broker does not do as it should."""
        self._handlers[type(command)](command)
        self.go_on()
        may_wait = any(shape.small for shape in self.model.shapes.values())  # for room
        if self.model.calm and not may_wait and self.world.is_forwarding():
            self.report("late", f"behind {command} messages go to other entities only when time has passed")

    def go_on(self) -> None:
        """Let the broker work until it waits for something, and judge what it answered."""
        self.world.loop.run_until_idle()
        self._judge_answers()

    def _judge_answers(self) -> None:
        waiting: list[Pending] = []
        for each in self._pending:
            if each.answer.given:
                self._check_internal(each.answer)
                each.judge(each.answer)
            else:
                waiting.append(each)
        self._pending = waiting
        if self.world.errors or self.world.loop.exceptions:
            seen = [*self.world.errors, *map(str, self.world.loop.exceptions)]
            self.world.errors.clear()
            self.world.loop.exceptions.clear()
            self.report("broker failure", "\n".join(seen))

    def report(self, rule: str, seen: str) -> None:
        """A rule is broken: BrokenRuleError, unless it is muted."""
        if rule not in self.muted:
            raise BrokenRuleError(rule, seen)
        self.muted_count += 1

    def _check_internal(self, answer: Answer) -> None:
        if answer.error is not None and answer.error.condition is Condition.INTERNAL_ERROR:
            self.report("broker failure", str(answer.error))

    # ---- sending

    def _send(self, command: c.Send) -> None:
        self._begin_send(command)

    def _together(self, command: c.Together) -> None:
        for each in command.sends:
            self._begin_send(each)

    def _begin_send(self, command: c.Send) -> None:
        if self.known_labels & {spec.label for spec in command.specs}:
            return  # a label names one message
        self.known_labels.update(spec.label for spec in command.specs)
        refusal = self.model.refusal(command.to, command.specs)
        now = self.world.clock.now_ms()
        encoded = [self.encoded(spec) for spec in command.specs]
        data = envelope(encoded) if command.batch else encoded[0]
        sending = Sending(self, command.to, command.specs, refusal)
        answer = Answer()
        try:
            sender = self.world.broker.open_sender(command.to, detached=lambda _: None)
            sender.send([data], alone(answer.give), whole=command.batch)
            sender.close()
        except BrokerError as error:
            answer.give(error)

        def judge(answer: Answer) -> None:
            if sending.is_accepted(answer):
                self.model.accept(command.to, command.specs, sent_at=now)
            elif isinstance(answer.error, UnknownOutcomeError):
                self.model.perhaps_accept(command.to, command.specs, sent_at=now)

        self._pending.append(Pending(answer, judge))

    def encoded(self, spec: c.Spec) -> bytes:
        at = None if spec.after_ms is None else self.world.clock.now_ms() + spec.after_ms
        body = label_bytes(spec.label) + b"." * spec.size
        properties = {"message-id": spec.id, "group-id": spec.session}
        return NewMessage(body, properties, {"colour": spec.colour}, spec.key, at, spec.ttl_ms).encoded()

    def _schedule(self, command: c.Schedule) -> None:
        if self.known_labels & {spec.label for spec in command.specs}:
            return
        self.known_labels.update(spec.label for spec in command.specs)
        refusal = next(
            (found for spec in command.specs if (found := self.model.refusal(command.to, (spec,))) is not None), None
        )
        sending = Sending(self, command.to, command.specs, refusal)
        sending.is_scheduled = True
        now = self.world.clock.now_ms()
        encoded = [self.encoded(spec) for spec in command.specs]
        answer = self.world.ask(self.world.broker.messages.schedule(command.to, encoded))

        foreseen = False

        def store(numbers: list[int | None]) -> None:
            shape = self.model.shapes[command.to]
            keys = {self.model.key_of(shape, spec) for spec in command.specs}
            is_under_way = shape.partitioned and len(keys) > 1 and not self.model.calm
            for spec, number in zip(command.specs, numbers, strict=True):
                self.model.schedule(command.to, spec, number, sent_at=now, is_under_way=is_under_way)

        def judge(answer: Answer) -> None:
            if sending.is_accepted(answer) and not foreseen:
                store(answer.result if answer.error is None else self._scheduled_numbers(command))
            elif isinstance(answer.error, UnknownOutcomeError) and not foreseen:
                self.model.perhaps_accept(command.to, command.specs, sent_at=now)

        def foresee() -> None:
            nonlocal foreseen
            if not foreseen:
                foreseen = True
                store(self._scheduled_numbers(command))

        labels = frozenset(spec.label for spec in command.specs)
        self._pending.append(Pending(answer, judge, labels, foresee))

    def _scheduled_numbers(self, command: c.Schedule) -> list[int | None]:
        """The numbers of those that wait here for their time; None for one under way to its partition, or active."""
        rows = self.world.rows()
        numbers = {row.label: row.number for row in rows if (row.path, row.home.name) == (command.to, SCHEDULED)}
        return [numbers.get(spec.label) for spec in command.specs]

    def _cancel(self, command: c.Cancel) -> None:
        scheduled = {item.label: item for item in self.model.at(command.of, SCHEDULED) if item.number is not None}
        items = [scheduled[label] for label in command.labels if label in scheduled]
        if self.world.is_slow() or command.of not in self.model.shapes or (not items and command.stranger is None):
            return
        stored = {(row.path, row.label) for row in self.world.rows()}
        waiting = [item for item in items if "activated" not in item.doubts]  # the others may be taken as active ones
        dropped = [item for item in waiting if "taken" in item.doubts and (item.path, item.label) not in stored]
        numbers = [item.number or 0 for item in items]
        if command.stranger is not None:
            numbers.append((command.stranger << 48 if self.model.is_partitioned(command.of) else 0) | 0xFFFF_FFFF)
        answer = self.world.ask(self.world.broker.messages.cancel_scheduled(command.of, numbers))
        self._pending.append(
            Pending(answer, lambda answer: self._judge_cancel(command, items, dropped, numbers, answer))
        )

    def _judge_cancel(
        self, command: c.Cancel, items: list[Item], dropped: list[Item], numbers: list[int], answer: Answer
    ) -> None:
        """`dropped`: those that got a number, and were dropped as duplicates."""
        error = answer.error
        for item in dropped:
            if item in self.model.items.get(item.label, ()):
                self.model.remove(item)
        items = [item for item in items if item not in dropped]
        rows = self.world.rows()
        left = {(row.path, row.label, row.number) for row in rows}
        # These have their numbers, and a store that does not work is yet to hand them over, or to forget that it has.
        on_the_way = {row.label for row in rows if (row.path, row.home.name) == (command.of, "TRANSFER_OUTBOX")}
        there = [item for item in items if (item.path, item.label, item.number) in left]
        if error is not None:
            there += [item for item in items if item not in there and item.label in on_the_way]
        if error is None:
            missing = [item.number or 0 for item in dropped] + numbers[-1:] * (command.stranger is not None)
            if missing:
                self.report("answer", f"{command} is accepted though there are no messages {missing}")
            if there:
                self.report(
                    "cancel: all or none", f"{command} is accepted and these are there: {[str(item) for item in there]}"
                )
        else:
            delivered = [item for item in items if "activated" in item.doubts]  # perhaps, before their time
            items = [item for item in items if item not in delivered]
            there = [item for item in there if item not in delivered]
            is_any_missing = bool(dropped) or bool(delivered) or command.stranger is not None
            if isinstance(error, UnknownOutcomeError):
                for item in delivered:
                    item.doubts.add("taken")
            if not (error.condition is Condition.SERVER_BUSY and on_the_way):
                self._check_cancel_error(command, numbers, error, is_any_missing=is_any_missing)
            allowed = {0, len(items)} if isinstance(error, UnknownOutcomeError) else {len(items)}
            if isinstance(error, UnknownOutcomeError) and self._spans_stores(command, numbers):
                allowed = set(range(len(items) + 1))  # a store may fail between two removals (decision 2)
            if len(there) not in allowed:
                seen = f"{len(there)} of {len(items)} messages are left"
                self.report("cancel: all or none", f"{command} is answered '{error}', and {seen}")
        for item in items:
            if item not in there and item in self.model.items.get(item.label, ()):
                self.model.remove(item)

    def _spans_stores(self, command: c.Cancel, numbers: list[int]) -> bool:
        return self.model.is_partitioned(command.of) and len({number >> 48 for number in numbers}) > 1

    def _check_cancel_error(
        self, command: c.Cancel, numbers: list[int], error: BrokerError, *, is_any_missing: bool
    ) -> None:
        is_partitioned = self.model.is_partitioned(command.of)
        entity = self.world.broker.namespace.entity(command.of)
        assert entity is not None
        places = [entity.partitions[number >> 48 if is_partitioned else 0] for number in numbers]
        if error.condition is Condition.MESSAGE_NOT_FOUND and is_any_missing:
            return
        if error.condition is Condition.SERVER_BUSY and any(
            self.world.is_troubled(each.worker.index) for each in places
        ):
            return
        self.report("answer", f"{command} is answered '{error}'")

    # ---- receiving

    def _receive(self, command: c.Receive) -> None:
        suffix, home = HOMES[command.home]
        shape = self.model.shapes.get(command.of)
        if shape is None or not self.model.is_receivable(command.of):
            return
        if command.delete and self.world.is_slow():
            return  # what it takes after the receiver has gone is lost, and nobody knows which messages that were
        if home == ACTIVE and (shape.forward_to or shape.sessions):
            return
        if home == DEAD_LETTER and shape.forward_dead_letters_to:
            return
        marks = self.world.marks_in(command.of, home)
        got: list[Delivery] = []
        drained: list[bool] = []
        mode = ReceiveMode.RECEIVE_AND_DELETE if command.delete else ReceiveMode.PEEK_LOCK
        consumer = self.world.broker.open_receiver(
            command.of + suffix, mode=mode, deliver=got.extend, detached=lambda _: None
        )
        consumer.set_credit(command.count)
        consumer.drain(lambda: drained.append(True))
        self.world.loop.run_until_idle()
        consumer.close()
        available = self.model.available(command.of, home)
        if self.model.calm and len(got) < min(command.count, len(available)):
            self.report("everything available", f"{command} gets {len(got)} of {len(available)} messages")
        if self.model.calm and not drained:
            self.report("everything available", f"{command} is not drained")
        for delivery in got:
            self.delivered(command, home, delivery, delete=command.delete, marks=marks)
        if home == ACTIVE and not drained:
            self.model.take_late(command.of)
        if command.delete and any(disk.fate is Fate.UNCONFIRMED for disk in self.world.disks):
            self._judge_answers()  # a lock that ended meanwhile has let its message expire
            self.model.tick(self.model.now)
            for item in self.perhaps_at(command.of, home):
                item.doubts.add("taken")  # it is gone, but the receiver does not know

    def perhaps_at(self, path: str, home: str) -> list[Item]:
        """The messages that are in a place, or are there if one of their doubts is right."""

        def is_there(item: Item) -> bool:
            return (item.path, item.home) == (path, home)

        return [item for item in self.model.possible() if is_there(item) or self.model.may_become(item, is_there)]

    def delivered(
        self,
        command: Receiving,
        home: str,
        delivery: Delivery,
        *,
        delete: bool = False,
        holding: Holding | None = None,
        marks: Mapping[int, Mark] = UNSEEN,
    ) -> None:
        """A receiver got a message: the model has it there, and locks or removes it.

        `marks`: of the messages that were there before, by sequence number; those of what is locked are looked up.
        """
        label = label_of(delivery.payload)
        for each in self._pending:
            if label in each.labels and each.foresee is not None:
                each.foresee()  # it is stored, and its sender waits for a slow store that gets others
        if delivery.sequence_number not in marks and not delete:
            marks = self.world.marks_in(command.of, home)
        item = self.find(delivery, label, command.of, home, marks.get(delivery.sequence_number))
        if item is None:
            known = "; ".join(map(str, self.model.items.get(label, []))) or "nowhere"
            self.report(
                "delivery", f"{command} gets message {label}, number {delivery.sequence_number:#x}: it is {known}"
            )
            return
        item.number = delivery.sequence_number
        self.model.confirm(item)
        if item.doubts & {"deferred", "claimed"} and home == item.home == DEFERRED:
            item.count = (item.count[0], item.count[1] + 1)  # it was deferred once more, or not
        item.doubts.clear()
        if delete:
            self.model.remove(item)
            return
        self.model.lock(item, delivery.token, holding)
        held = Held(item, delivery.token, self.world.life)
        self.held.setdefault((label, command.of), []).append(held)

    def find(self, delivery: Delivery, label: int, path: str, home: str, mark: Mark | None) -> Item | None:
        """The message that a receiver got, if it may be available there; `mark` is None where nobody could look."""
        message = parse_message(delivery.payload)
        properties = message.application_properties()
        seen = properties.get("RuleName"), properties.get("colour"), properties.get("DeadLetterReason")

        def is_it(item: Item) -> bool:
            return (
                (item.path, item.home, item.session, item.key)
                == (path, home, message.session_id, message.partition_key)
                and (item.rule, item.colour, item.reason) == seen
                and (mark is None or bears(item, mark))
                and item.number in (None, delivery.sequence_number)
                and not (item.lock_until and item.lock_sure)
            )

        found = min(filter(is_it, self.model.items.get(label, ())), key=partial(latitude, mark=mark), default=None)
        if found is None and self.happened(label, is_it):
            found = min(filter(is_it, self.model.items.get(label, ())), key=partial(latitude, mark=mark), default=None)
        return found

    def happened(self, label: int, is_it: Callable[[Item], bool]) -> bool:
        """Whether doubts of a message, or another order of copies, lead to what was seen; the model follows.

        Of two copies that may have become what was seen it is the one that is no longer where it was, then the one to
        which less has happened, then the one of which less is in doubt.
        """
        items = sorted(self.model.items.get(label, ()), key=lambda item: len(item.doubts))
        rows = [row for row in self.world.rows() if row.label == label] if len(items) > 1 else []
        staying = [item for item in items if any(fits(item, row) for row in rows)]
        gone = [item for item in items if item not in staying]
        follows = (
            self.model.follow(item, is_it, depth)
            for candidates in (gone, staying)
            for depth in range(DOUBTS_MAX)
            for item in candidates
        )
        return any(follows) or self.model.came_another_way(label, is_it)

    def _settle(self, command: c.Settle) -> None:
        stack = self.held.get((command.label, command.of))
        if not stack or self.world.is_slow():
            return
        held = stack.pop(0)
        if not stack:
            del self.held[command.label, command.of]
        entity = self.world.broker.namespace.entity(command.of)
        if entity is None:
            return
        item = held.item
        is_there = item in self.model.items.get(item.label, ()) and held.life == self.world.life
        is_locked = is_there and item.lock_until > self.model.now and item.token == held.token
        make, what = OUTCOMES[command.outcome]
        if (
            command.outcome == UNANSWERED
        ):  # it comes late; not at all if a store refuses, or the broker is killed before
            entity.settle([held.token], make(), None)
            if is_there:
                item.doubts.add(what)
            return
        answer = Answer()
        entity.settle([held.token], make(), alone(answer.give))
        self._pending.append(
            Pending(answer, lambda answer: self.judge_settle(command, item, answer, is_locked=is_locked))
        )

    def outcome(self, command: c.Settle) -> Outcome:
        """How the broker is given the outcome."""
        return OUTCOMES[command.outcome][0]()

    def named(self, command: c.Settle) -> str:
        """What the outcome is in the model; empty if the message stays."""
        return OUTCOMES[command.outcome][1]

    def judge_settle(self, command: c.Settle, item: Item, answer: Answer, *, is_locked: bool) -> None:
        error = answer.error
        what = self.named(command)
        is_there = item in self.model.items.get(item.label, ())
        if error is None:
            if not is_locked and item.lock_sure:
                self.report("answer", f"{command} is accepted, though {item} is not locked")
            if is_there:
                self._settled(command, item, what)
        elif isinstance(error, UnknownOutcomeError):
            if is_there:
                if what:
                    item.doubts.add(what)
                if command.outcome == "abandon":
                    self.model.attempt_failed(item, sure=False)
                item.lock_until = 0
        elif error.condition in LOCK_LOST:
            if is_locked and item.lock_sure:
                self.report("answer", f"{command}: the lock is lost, though {item} is locked")
            elif is_locked:
                item.lock_until = 0
        elif error.condition is Condition.NOT_ALLOWED and command.outcome == "dead-letter" and item.home in DEAD:
            pass
        elif not (error.condition is Condition.SERVER_BUSY and not self.model.calm):
            self.report("answer", f"{command} is answered '{error}'")

    def _settled(self, command: c.Settle, item: Item, what: str) -> None:
        if what:
            self.model.happen(item, what)
        elif command.outcome == "abandon":
            self.model.attempt_failed(item)
        item.lock_until = 0
        self.model.tick(self.model.now)

    # ---- trouble, time, life

    def _outage(self, command: c.Outage) -> None:
        self.model.doubt_locks()
        self.world.begin_outage(command.store, OutageKind(command.kind))

    def _tear(self, command: c.Tear) -> None:
        self.model.doubt_locks()
        self.world.tear(command.store, Fate[command.fate])

    def _mend(self, command: c.Mend) -> None:
        self.world.mend(command.store)

    def _restart(self, command: c.Restart) -> None:
        if not command.crash:
            for store in range(STORES):
                self.world.mend(store)
            self.go_on()
        self.model.forget_locks()
        unanswered = [each.answer for each in self._pending if not each.answer.given]
        self.world.restart(crash=command.crash)
        for answer in unanswered:  # the client's connection is gone, and it knows nothing
            answer.given, answer.result = True, BROKER_GONE
        self.model.tick(self.world.clock.now_ms())
        self.held.clear()
        self.sessions.forget()
        self.tally.clear()

    def _kill(self, command: c.Kill) -> None:
        self.are_many = True
        for each in command.commands:
            self._handlers[type(each)](each)
        self.are_many = False
        self.world.loop.run_some(command.after)
        self._judge_answers()
        self._restart(c.Restart(crash=True))

    def _advance(self, command: c.Advance) -> None:
        due = list(self._pending) if self.model.calm and command.ms >= STEP_MS else []
        self.world.clock.advance(command.ms)
        self.go_on()
        late = [sorted(each.labels) for each in due if each in self._pending]
        if late:
            self.report("late", f"after {command.ms} ms requests have no answers, for messages {late}")
        self.model.tick(self.world.clock.now_ms())

    def _rest(self, command: c.Rest) -> None:
        del command
        for store in range(STORES):
            self.world.mend(store)
        for step in range(STEPS_MAX):
            self.go_on()
            if step > 1 and not self._pending and not self.world.is_busy():
                break
            self._advance(c.Advance(STEP_MS))
        else:
            self.report("rest", f"after {STEPS_MAX} s: {len(self._pending)} answers are missing, or forwarding goes on")
        self.model.tick(self.world.clock.now_ms())
        self.model.forward_freed()
        compare(self.model, self.world, self.tally, self.report)
        stored = self.world.states()
        for path, name in self.model.states:
            self.sessions.see_state((path, name), stored.get((path, session_number(name))))
        self.model.rested()


assert LIMITS.partition_count == STORES
