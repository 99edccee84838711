"""Requests about messages that are there: receive by number, renew a lock, peek, purge."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from emubus.broker.address import SubQueue
from emubus.broker.api import SEQUENCE_NUMBER_MAX, ReceiveMode
from emubus.broker.errors import BrokerError, Condition, UnknownOutcomeError
from emubus.broker.partition.receive import PEEK_HOMES

from . import commands as c
from .comparing import fits, is_row
from .items import ACTIVE, DEFERRED, Item
from .shapes import LOCK_MS, TOPIC
from .world import Answer, Row

if TYPE_CHECKING:
    from .steps import Run

PEEKED_BYTES_MAX = 1 << 20
SUB_QUEUES = {
    c.ACTIVE: ("", SubQueue.ACTIVE),
    c.DEAD_LETTERS: ("/$DeadLetterQueue", SubQueue.DEAD_LETTER),
    c.TRANSFER_DEAD_LETTERS: ("/$Transfer/$DeadLetterQueue", SubQueue.TRANSFER_DEAD_LETTER),
}
NUMBER_NAME = b"x-opt-sequence-number"
LOST = (Condition.MESSAGE_LOCK_LOST, Condition.SESSION_LOCK_LOST)


class Requests:
    """The handlers of these commands."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.handlers: dict[type, Callable[[Any], None]] = {
            c.ReceiveDeferred: self._receive_deferred,
            c.Renew: self._renew,
            c.Peek: self._peek,
            c.Purge: self._purge,
        }

    def _ask(self, coroutine: Any) -> Answer:
        answer = self._run.world.ask(coroutine)
        self._run.world.loop.run_until_idle()
        return answer

    # ---- by number

    def _receive_deferred(self, command: c.ReceiveDeferred) -> None:
        run = self._run
        if self._is_away(command.of):
            return
        items = [
            item
            for item in run.model.at(command.of, DEFERRED)
            if item.label in command.labels and item.number is not None
        ]
        if not items or len({item.session for item in items}) > 1:
            return
        shape = run.model.shapes[command.of]
        name = items[0].session if shape.sessions else None
        holding = None if name is None else run.model.holdings.get((command.of, name))
        mode = ReceiveMode.RECEIVE_AND_DELETE if command.delete else ReceiveMode.PEEK_LOCK
        numbers = [item.number or 0 for item in items]
        answer = self._ask(run.world.broker.messages.receive_by_sequence_number(command.of, numbers, mode, name))
        if answer.error is not None:
            is_held = not shape.sessions or (holding is not None and holding.is_sure)
            self._judge_refused(command, items, answer.error, is_held=is_held)
            return
        got = {delivery.sequence_number for delivery in answer.result}
        if got != set(numbers):
            run.report("by number: all or none", f"{command} gets {sorted(got)} of {sorted(numbers)}")
        for delivery in answer.result:
            run.delivered(command, DEFERRED, delivery, delete=command.delete, holding=holding)

    def _judge_refused(
        self, command: c.ReceiveDeferred, items: list[Item], error: BrokerError, *, is_held: bool
    ) -> None:
        run = self._run
        if isinstance(error, UnknownOutcomeError) and command.delete:
            for item in items:
                item.doubts.add("taken")
        # A lock whose end could not be counted may go on until its store works.
        is_available = all(not item.lock_until and not item.doubts and item.count[0] == item.count[1] for item in items)
        is_busy = error.condition is Condition.SERVER_BUSY and not run.model.calm
        is_known = (not is_available and error.condition is Condition.MESSAGE_NOT_FOUND) or (
            error.condition is Condition.SESSION_LOCK_LOST and not (is_held and run.model.calm)
        )
        if not is_busy and not is_known:
            run.report("answer", f"{command} is answered '{error}'; {[str(item) for item in items]}")

    # ---- renew

    def _renew(self, command: c.Renew) -> None:
        run = self._run
        stack = run.held.get((command.label, command.of))
        if not stack or self._is_away(command.of):
            return
        held = stack[0]
        item = held.item
        is_there = item in run.model.items.get(item.label, ()) and held.life == run.world.life
        is_locked = is_there and item.lock_until > run.model.now and item.token == held.token
        answer = self._ask(run.world.broker.messages.renew_locks(command.of, [held.token]))
        error = answer.error
        needs_session = run.model.shapes[command.of].sessions and item.home in (ACTIVE, DEFERRED)
        if error is None:
            until = run.model.now + LOCK_MS
            if answer.result != [until]:
                run.report("answer", f"{command} is renewed until {answer.result}, not {until}")
            if not is_locked and item.lock_sure:
                run.report("answer", f"{command} is accepted, though {item} is not locked")
            if is_there and not item.is_in_session:
                item.lock_until = until
        elif error.condition in LOST:
            if is_locked and item.lock_sure:
                run.report("answer", f"{command}: the lock is lost, though {item} is locked")
        elif error.condition is Condition.NOT_ALLOWED and run.model.shapes[command.of].sessions:
            if not needs_session and is_there:
                return
        elif not (error.condition is Condition.SERVER_BUSY and not run.model.calm):
            run.report("answer", f"{command} is answered '{error}'")

    # ---- peek

    def _peek(self, command: c.Peek) -> None:
        run = self._run
        shape = run.model.shapes.get(command.of)
        if self._is_away(command.of) or shape is None or shape.kind == TOPIC:
            return
        suffix, sub_queue = SUB_QUEUES[command.home]
        before = self._rows(command.of, sub_queue)
        seen: list[int] = []
        first = 0
        while True:
            answer = self._ask(
                run.world.broker.messages.peek(command.of + suffix, first, command.page, PEEKED_BYTES_MAX)
            )
            if not answer.given:
                run.report("peek", f"{command} from {first:#x} is not answered")
                return
            if answer.error is not None:
                troubled = sorted(run.world.troubled())
                if answer.error.condition is not Condition.SERVER_BUSY or not troubled:
                    run.report("peek", f"{command} from {first:#x} is answered '{answer.error}'")
                    return
                for store in troubled:
                    run.world.mend(store)
                run.world.loop.run_until_idle()
                continue
            page = [number_shown(payload) for payload in answer.result]
            if not page:
                break
            seen += page
            first = page[-1] + 1
        self._check_pages(command, seen, before, self._rows(command.of, sub_queue))

    def _check_pages(self, command: c.Peek, seen: list[int], before: set[int], after: set[int]) -> None:
        if seen != sorted(set(seen)):
            self._run.report("peek", f"{command} shows {[hex(number) for number in seen]}: not in order, or twice")
        missing, strange = (before & after) - set(seen), set(seen) - (before | after)
        if missing or strange:
            self._run.report("peek", f"{command} does not show {sorted(missing)}; it shows {sorted(strange)} besides")

    def _rows(self, path: str, sub_queue: SubQueue) -> set[int]:
        homes = PEEK_HOMES[sub_queue]
        return {row.number for row in self._run.world.rows() if row.path == path and row.home in homes}

    # ---- purge

    def _purge(self, command: c.Purge) -> None:
        run = self._run
        shape = run.model.shapes.get(command.of)
        if self._is_away(command.of) or shape is None or not run.model.is_receivable(command.of):
            return
        if shape.forward_to is not None:
            return
        if command.home == "dead letters" and shape.forward_dead_letters_to and not run.model.calm:
            return  # behind one whose store fails, others wait in the dead-letter queue, and would be deleted
        suffix, sub_queue = SUB_QUEUES[command.home]
        home = PEEK_HOMES[sub_queue][0]
        before = [row for row in run.world.rows() if (row.path, row.home) == (command.of, home)]
        before = [row for row in before if not 0 < row.expires_at <= run.model.now]  # those expire instead
        broker = run.world.broker
        if run.model.is_partitioned(command.of):
            before = [row for row in before if row.number >> 48 == command.partition]
            request = broker.messages.delete_before(
                command.of + suffix, command.partition, SEQUENCE_NUMBER_MAX, command.count
            )
        else:
            request = broker.messages.delete_messages(command.of + suffix, command.count, run.model.now + 1)
        answer = self._ask(request)
        left = {(row.path, row.home, row.number) for row in run.world.rows()}
        gone = [row for row in before if (row.path, row.home, row.number) not in left]
        late = sum(1 for row in gone if self._is_settled_late(row))  # executed before the purge, which counts its own
        if answer.error is None and not len(gone) - late <= answer.result <= len(gone):
            run.report("purge", f"{command} says {answer.result}, and {len(gone)} are gone")
        elif answer.error is not None and (answer.error.condition is not Condition.SERVER_BUSY or run.model.calm):
            run.report("purge", f"{command} is answered '{answer.error}'")
        self._check_purged(command, gone, [row for row in before if row not in gone])

    def _check_purged(self, command: c.Purge, gone: list[Row], left: list[Row]) -> None:
        run = self._run
        last = max((row.number for row in gone if not self._is_settled_late(row)), default=-1)
        for row in gone:
            item = self._item_of(row)
            if item is None and run.happened(row.label, partial(is_row, row)):
                item = self._item_of(row)
            if item is None:
                run.report("stray", f"{command} deletes {row}")
                continue
            if item.lock_until and item.lock_sure and not self._is_settled_late(row):
                run.report("purge", f"{command} deletes {item}, which is locked")
            run.model.confirm(item)
            run.model.remove(item)
        for row in left:
            item = self._item_of(row)
            is_free = item is not None and not item.lock_until and not item.doubts
            if run.model.calm and row.number < last and is_free:
                run.report("purge", f"{command} leaves {item}, and deletes later ones")

    def _is_settled_late(self, row: Row) -> bool:
        """Whether a client completed it without asking for an answer, which the broker may keep back for a time."""
        item = self._item_of(row)
        return item is not None and "taken" in item.doubts

    def _item_of(self, row: Row) -> Item | None:
        return next((each for each in self._run.model.items.get(row.label, ()) if fits(each, row)), None)

    def _is_away(self, path: str) -> bool:
        return self._run.world.is_slow() or path not in self._run.model.shapes


def number_shown(payload: bytes) -> int:
    """The sequence number of a message that was shown: a long of AMQP, short or full."""
    at = payload.index(NUMBER_NAME) + len(NUMBER_NAME)
    size = {0x55: 1, 0x81: 8}[payload[at]]
    return int.from_bytes(payload[at + 1 : at + 1 + size], "big", signed=True)
