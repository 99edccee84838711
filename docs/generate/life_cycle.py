"""Writes docs/architecture/life-cycle.md: `python -m docs.generate.life_cycle`. A test compares them.

The page is generated from the code: its states are the members of `Home`, and its edges are the moves that were seen
when partitions were driven through every request of their handler table. `moves` runs the scenarios, `requests` lists
the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proton import timestamp

from docs import DOCS
from emubus.broker.address import SubQueue
from emubus.broker.api import PARTITION_SHIFT, Abandon, Complete, DeadLetter, Defer, Home, Outcome, ReceiveMode, Release
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.partition import HANDLERS, SESSION_HANDLERS
from emubus.broker.partition.records import HOMES, MESSAGES, SCHEDULED_ELSEWHERE, Due, Record, message_key
from emubus.broker.partition.requests import (
    AcceptSession,
    CancelScheduled,
    ClaimMessages,
    Commit,
    DeleteForwarded,
    DeleteMessages,
    DeleteRows,
    ExpireLocks,
    ProcessDue,
    Receive,
    ReceiveDeferred,
    ReceiveFromSession,
    Redirect,
    ReleaseSession,
    Request,
    Resubmit,
    Schedule,
    Send,
    SendDeadLetters,
    Settle,
    StoreForwarded,
    Transfer,
    Undeliverable,
)
from tests.broker.driving import Driver, encoded

PAGE = DOCS / "architecture" / "life-cycle.md"
QUEUE = QueueDescription("q", lock_duration_ms=30_000)
LOCK, DELETE = ReceiveMode.PEEK_LOCK, ReceiveMode.RECEIVE_AND_DELETE
DEAD, TRANSFER_DEAD = SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER
DETAILS = {LOCK: "peek-lock", DELETE: "receive-and-delete", Due.EXPIRE: "expires", Due.ACTIVATE: "activates"}
MEANINGS = {
    Home.ACTIVE: "available, or locked by a receiver",
    Home.DEFERRED: "received by its sequence number only",
    Home.SCHEDULED: "waits for its time",
    Home.DEAD_LETTER: "in the dead-letter queue",
    Home.DEAD_LETTER_DEFERRED: "deferred by a receiver of the dead-letter queue",
    Home.TRANSFER_DEAD_LETTER: "in the transfer dead-letter queue",
    Home.TRANSFER_DEAD_LETTER_DEFERRED: "deferred by a receiver of the transfer dead-letter queue",
    Home.OUTBOX: "on its way to the entity of ForwardTo, or to another partition",
    Home.DEAD_LETTER_OUTBOX: "from the dead-letter queue on its way to the entity of ForwardDeadLetteredMessagesTo",
    Home.TRANSFER_OUTBOX: "on its way to the destination of a transaction, or scheduled for another partition",
}


@dataclass(frozen=True, order=True)
class Move:
    """What a request did to one message: `source` and `target` are homes, -1 is outside of the partition."""

    source: int
    target: int
    label: str


class Observer(Driver):
    """A partition that notes what each request does to its only message."""

    def __init__(self, description: QueueDescription = QUEUE, **place: Any) -> None:
        super().__init__(description, **place)
        self.moves: set[Move] = set()

    def stored(self) -> set[tuple[int, int]]:
        """Home and number of each message."""
        with self.store.view() as view:
            rows = view.scan(MESSAGES, message_key(self.place.queue_id, 0, 0), b"\xff" * 13, 1 << 20)
        return {(key[4], int.from_bytes(key[-8:], "big")) for key, _ in rows}

    def locked(self) -> set[int]:
        return set() if self.partition is None else set(self.partition.state.locks.by_number)

    def run(self, *commands: Request) -> None:
        (command,) = commands
        before, locked = self.stored(), self.locked()
        super().run(command)
        gone, new = before - self.stored(), self.stored() - before
        label = label_of(command)
        if gone or new:
            ((source, _),) = gone or {(-1, 0)}
            ((target, _),) = new or {(-1, 0)}
            self.moves.add(Move(source, target, label))
        elif locked != self.locked():
            ((home, _),) = before
            self.moves.add(Move(home, home, f"{label}: {'unlocks' if locked else 'locks'}"))

    # ---- what scenarios are made of

    def number(self) -> int:
        ((_, number),) = self.stored()
        return number

    def sent(self, **fields: Any) -> Observer:
        self.send(encoded(**fields))
        return self

    def lock(self, sub_queue: SubQueue = SubQueue.ACTIVE) -> bytes:
        (delivery,) = self.take(sub_queue=sub_queue)
        return delivery.token

    def end(self, outcome: Outcome, sub_queue: SubQueue = SubQueue.ACTIVE) -> Observer:
        """Lock the message and settle it."""
        self.settle(self.lock(sub_queue), outcome)
        return self

    def leaving(self) -> Observer:
        """The dead letter goes into the outbox."""
        self.ask(SendDeadLetters, 1)
        return self

    def deferred(self, sub_queue: SubQueue = SubQueue.ACTIVE, mode: ReceiveMode = LOCK) -> bytes:
        """Receive the deferred message by its number."""
        (delivery,) = self.ask(ReceiveDeferred, sub_queue, [self.number()], mode, None)
        token: bytes = delivery.token
        return token

    def wait(self, ms: int) -> Observer:
        """Let time pass; what is due is done."""
        self.now += ms
        self.run(ProcessDue(self.due_rows()))
        return self


def label_of(command: Request) -> str:
    """A request in the diagram: its class, and what tells its cases apart."""
    detail: str | None = None
    match command:
        case Settle():
            detail = type(command.outcome).__name__
        case ReceiveDeferred(expires=True):
            detail = "expires"
        case Receive() | ReceiveFromSession() | ReceiveDeferred():
            detail = DETAILS[command.mode]
        case ProcessDue():
            detail = DETAILS[Due(command.rows[0][1])]
        case Commit():
            detail = type(command.operations[0][1]).__name__
        case Undeliverable():
            detail = "with a reason" if command.reason else "without a reason"
        case StoreForwarded(records=[(_, record)]) if record.other_path == SCHEDULED_ELSEWHERE:
            detail = "scheduled here"
    name = type(command).__name__
    return name if detail is None else f"{name} ({detail})"


# ---- the scenarios: each drives one message


def _runs() -> Iterator[Observer]:
    observer = Observer()
    observer.run(Send([parse_message(encoded())], (0,), lambda *_: None, lambda *_: None))
    observer.run(Settle([observer.lock()], (0,), Complete(), None))
    yield observer


def _plain() -> Iterator[Observer]:
    for outcome in (Complete(), Release(), Abandon(), Defer(), DeadLetter("r", None, {})):
        yield Observer().sent().end(outcome)
    deleting = Observer().sent()
    deleting.take(mode=DELETE)
    yield deleting
    yield Observer(replace(QUEUE, max_delivery_count=1)).sent().end(Abandon())
    for attempts in (1, 2):
        expiring = Observer(replace(QUEUE, max_delivery_count=attempts)).sent()
        expiring.lock()
        expiring.now += 30_000
        expiring.run(ExpireLocks())
        yield expiring
    for dead_letter in (False, True):
        yield Observer(replace(QUEUE, dead_letter_on_expiration=dead_letter)).sent(ttl=1.0).wait(2_000)
    deleted = Observer().sent()
    deleted.ask(DeleteMessages, SubQueue.ACTIVE, 1, deleted.now + 1, None)
    yield deleted
    cleared = Observer().sent()
    cleared.ask(DeleteRows, 10)
    yield cleared


def _deferred() -> Iterator[Observer]:
    for outcome in (Complete(), Abandon(), DeadLetter("r", None, {})):
        observer = Observer().sent().end(Defer())
        observer.settle(observer.deferred(), outcome)
        yield observer
    observer = Observer().sent().end(Defer())
    observer.deferred(mode=DELETE)
    yield observer
    for dead_letter in (False, True):
        observer = Observer(replace(QUEUE, dead_letter_on_expiration=dead_letter)).sent(ttl=1.0).end(Defer())
        observer.now += 2_000
        observer.ask(partial(ReceiveDeferred, expires=True), SubQueue.ACTIVE, [observer.number()], LOCK, None)
        yield observer
    claimed = Observer().sent()
    claimed.ask(ClaimMessages, SubQueue.ACTIVE, 1, claimed.number() + 1, {}, ())
    claimed.ask(ClaimMessages, SubQueue.ACTIVE, 0, 0, {}, [(claimed.number(), 1)])
    yield claimed


def _dead_letters() -> Iterator[Observer]:
    for outcome in (Complete(), Abandon(), Defer()):
        yield Observer().sent().end(DeadLetter("r", None, {})).end(outcome, DEAD)
    observer = Observer().sent().end(DeadLetter("r", None, {})).end(Defer(), DEAD)
    observer.settle(observer.deferred(DEAD), Complete())
    yield observer
    resubmitted = Observer().sent().end(DeadLetter("r", None, {}))
    resubmitted.ask(Resubmit, [resubmitted.number()], resubmitted.place)
    yield resubmitted


def _scheduled() -> Iterator[Observer]:
    for cancelled in (False, True):
        observer = Observer()
        message = parse_message(encoded())
        message.scheduled_enqueue_at = observer.now + 1_000
        observer.ask(Schedule, [message])
        if cancelled:
            observer.ask(CancelScheduled, [observer.number()])
        else:
            observer.wait(1_000)
        yield observer
    observer = Observer()
    yield observer.sent(annotations={"x-opt-scheduled-enqueue-time": timestamp(observer.now + 1_000)})


def _outboxes() -> Iterator[Observer]:
    forwarding = replace(QUEUE, forward_to="other")
    burying = replace(QUEUE, forward_dead_letters_to="graves")
    for reason in ("MessagingEntityNotFound", None):
        observer = Observer(forwarding).sent()
        observer.place.description = QUEUE  # a message without a reason stays, because nothing is forwarded any more
        observer.ask(Undeliverable, Home.OUTBOX, observer.number(), reason, "")
        yield observer
    starts: dict[Home, Callable[[], Observer]] = {
        Home.OUTBOX: lambda: Observer(forwarding).sent(),
        Home.DEAD_LETTER_OUTBOX: lambda: Observer(burying).sent().end(DeadLetter("r", None, {})).leaving(),
        Home.TRANSFER_OUTBOX: _transferring,
    }
    for home, start in starts.items():
        observer = start()
        observer.ask(Redirect, [(home, observer.number(), 1)])
        observer.ask(DeleteForwarded, [(home, observer.number())])
        yield observer
        observer = start()
        observer.ask(Undeliverable, home, observer.number(), "MessagingEntityNotFound", "")
        yield observer
    observer = starts[Home.DEAD_LETTER_OUTBOX]()
    observer.ask(Undeliverable, Home.DEAD_LETTER_OUTBOX, observer.number(), None, "")
    yield observer
    for outcome in (Complete(), Abandon(), Defer()):
        observer = _transferring()
        observer.ask(Undeliverable, Home.TRANSFER_OUTBOX, observer.number(), "MessagingEntityNotFound", "")
        yield observer.end(outcome, TRANSFER_DEAD)
    observer = _transferring()
    observer.ask(Undeliverable, Home.TRANSFER_OUTBOX, observer.number(), "MessagingEntityNotFound", "")
    observer.end(Defer(), TRANSFER_DEAD)
    observer.settle(observer.deferred(TRANSFER_DEAD), Complete())
    yield observer


def _transferring() -> Observer:
    observer = Observer()
    observer.ask(Commit, [(observer.place, Transfer(parse_message(encoded()), "elsewhere"))])
    return observer


def _arriving() -> Iterator[Observer]:
    stored = parse_message(encoded()).stored(0, None)
    scheduled = Record(stored, 0, 0, (3 << PARTITION_SHIFT) + 9, other_path=SCHEDULED_ELSEWHERE)
    for record, description in (
        (Record(stored, 0, 0, 1), QUEUE),
        (Record(stored, 0, 0, 1), replace(QUEUE, forward_to="other")),
        (scheduled, QUEUE),
    ):
        observer = Observer(description)
        observer.ask(StoreForwarded, 5, 0, [(1, record)])
        yield observer


def _sessions() -> Iterator[Observer]:
    for first in (LOCK, DELETE):
        observer = Observer(replace(QUEUE, requires_session=True)).sent(group_id="s")
        grant = observer.ask(AcceptSession, "s", _ignore, _ignore, _ignore).deliveries[0].grant
        observer.ask(ReceiveFromSession, grant, 1, first)
        observer.run(ReleaseSession(grant))
        yield observer


def _ignore(argument: object) -> None:
    """What the holder of a session hears is not part of a life cycle."""


SCENARIOS: tuple[Callable[[], Iterator[Observer]], ...] = (
    _runs,
    _plain,
    _deferred,
    _dead_letters,
    _scheduled,
    _outboxes,
    _arriving,
    _sessions,
)


def moves() -> list[Move]:
    """What was seen in all scenarios."""
    found: set[Move] = set()
    for scenario in SCENARIOS:
        for observer in scenario():
            observer.check()
            found |= observer.moves
    return sorted(found)


def requests() -> set[type]:
    """Every request that a partition handles."""
    return {*HANDLERS, *SESSION_HANDLERS}


# ---- the page

HEAD = """# Life cycle of a message

Generated from the code by `python -m docs.generate.life_cycle`: the states are the members of `Home`
(`broker/partition/records.py`), and each edge is a request of the handler table of `broker/partition/partition.py` that
moved a message when a partition was driven through it. `tests/test_life_cycle.py` checks that this page is up to date
and that it shows every request that moves a message.

A message has one home, and its home is part of its key in the store. Each edge is one transaction of one messaging
store. A lock is not a home: it is in memory only, and a locked message keeps its home.

"""

TABLE = """
## Homes

"""
EDGES = """
## What each request does

`Commit` applies the operations of a transaction; it moves messages as their own requests do. Requests that are not in
this table move no message.

| From | To | Request |
|---|---|---|
"""


def name_of(home: int) -> str:
    """A state of the diagram, such as `DeadLetter`."""
    return "[*]" if home < 0 else "".join(word.title() for word in Home(home).name.split("_"))


def diagram(found: list[Move]) -> str:
    """The state diagram: an arrow per pair of homes. What only locks or unlocks is in the table."""
    arrows: dict[tuple[int, int], list[str]] = {}
    for move in found:
        if move.source != move.target:
            arrows.setdefault((move.source, move.target), []).append(_on_arrow(move.label))
    lines = ["```mermaid", "stateDiagram-v2"]
    for (source, target), labels in arrows.items():
        lines.append(f"    {name_of(source)} --> {name_of(target)}: {', '.join(dict.fromkeys(labels))}")
    return "\n".join([*lines, "```"]) + "\n"


def _on_arrow(label: str) -> str:
    """The request; of a settlement also the outcome."""
    name, _, detail = label.partition(" ")
    return f"{name} {detail.strip('()')}" if name == Settle.__name__ else name


def page() -> str:
    """The whole page."""
    found = moves()
    homes = "".join(f"* **{name_of(home)}**: {MEANINGS[home]}\n" for home in HOMES)
    rows = "".join(
        f"| {_in_table(move.source, 'new')} | {_in_table(move.target, 'gone')} | {move.label} |\n" for move in found
    )
    return HEAD + diagram(found) + TABLE + homes + EDGES + rows


def _in_table(home: int, outside: str) -> str:
    return outside if home < 0 else name_of(home)


if __name__ == "__main__":
    PAGE.write_text(page())
