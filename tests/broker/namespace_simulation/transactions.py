"""Transactions: sends, also to other entities, and settlements that happen together or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emubus.broker.errors import BrokerError, Condition, UnknownOutcomeError

from . import commands as c
from .items import DEFERRED_HOMES, Item
from .world import Answer

if TYPE_CHECKING:
    from .steps import Run

TIMEOUT_MS = 121_000
RULE = "transaction: all or none"

Places = set[tuple[str, int, int | None, str]]
"""Where messages are: path, label, number, home."""


class Transacting:
    """The handler of this command."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.handlers: dict[type, Callable[[Any], None]] = {c.Transact: self._transact}

    def _transact(self, command: c.Transact) -> None:
        run = self._run
        labels = {spec.label for part in command.parts if isinstance(part, c.Send) for spec in part.specs}
        if run.world.is_slow() or command.via not in run.model.shapes or labels & run.known_labels:
            return
        run.known_labels.update(labels)
        broker = run.world.broker
        ref = broker.transactions.declare(self, lambda: broker.namespace.entity(command.via))
        sends: list[c.Send] = []
        settled: list[tuple[c.Settle, Item, bytes, bool]] = []
        failures: list[BrokerError] = []
        for part in command.parts:
            try:
                if isinstance(part, c.Send):
                    if run.model.refusal(part.to, part.specs) in ("NOT_FOUND", "ENTITY_DISABLED"):
                        continue  # there is no link over which it could be sent
                    sends.append(part)
                    sender = broker.open_sender(part.to, detached=lambda _: None)
                    sender.close()
                    for spec in part.specs:
                        broker.work.send(ref, sender, run.encoded(spec), batch=False)
                elif part.of in run.model.shapes and (stack := run.held.get((part.label, part.of))):
                    held = stack[0]
                    is_there = held.item in run.model.items.get(part.label, ()) and held.life == run.world.life
                    is_locked = is_there and held.item.lock_until > run.model.now and held.item.token == held.token
                    settled.append((part, held.item, held.token, is_locked))
                    broker.work.settle(ref, part.of, held.token, run.outcome(part))
            except BrokerError as error:
                failures.append(error)
        if command.end == "timeout":
            run.do(c.Advance(TIMEOUT_MS))
        answer = Answer()
        broker.transactions.discharge(ref, fail=command.end == "rollback", done=answer.give)
        run.world.loop.run_until_idle()
        labels = {spec.label for send in sends for spec in send.specs}
        if self._is_committed(command, answer, labels, settled, failures):
            specs = [spec for send in sends for spec in send.specs]
            with run.model.together([*(item for _, item, _, _ in settled), *specs]):
                self._commit(command, sends, settled)

    def _is_committed(
        self,
        command: c.Transact,
        answer: Answer,
        labels: set[int],
        settled: list[tuple[c.Settle, Item, bytes, bool]],
        failures: list[BrokerError],
    ) -> bool:
        run = self._run
        error = answer.error
        stored = labels & run.world.labels_stored()
        there: Places = (
            {(row.path, row.label, row.number, row.home.name) for row in run.world.rows()} if settled else set()
        )
        locked = [item for _, item, _, is_locked in settled if is_locked and not item.doubts]
        gone = [item for item in locked if not _is_there(item, there)]
        if command.end == "commit" and error is None and answer.given:
            if failures:
                run.report("answer", f"{command} is committed, though a part was refused: '{failures[0]}'")
            return True
        if command.end == "commit" and isinstance(error, UnknownOutcomeError):
            if stored and (stored < labels or any(_is_there(item, there) for item in self._leaving(settled))):
                run.report(RULE, f"{command} is answered '{error}': stored are {stored}, gone are {gone}")
            if not labels and not any(_shows(part, item) for part, item, _, _ in settled if item in locked):
                for part, item, _, is_locked in settled:  # nothing in the stores tells whether it is committed
                    run.judge_settle(part, item, answer, is_locked=is_locked)
            return bool(stored or gone)
        is_expected = {
            "commit": error is not None and (bool(failures) or not run.model.calm or self._may_fail(command)),
            "rollback": error is None,
            "timeout": error is not None and error.condition is Condition.TRANSACTION_UNKNOWN_ID,
        }[command.end]
        if not is_expected:
            run.report("answer", f"{command} is answered '{error}', its parts {[str(each) for each in failures]}")
        if command.end != "timeout" and (stored or gone):
            run.report(RULE, f"{command} is answered '{error}': stored are {stored}, gone are {[*map(str, gone)]}")
        return False

    def _leaving(self, settled: list[tuple[c.Settle, Item, bytes, bool]]) -> list[Item]:
        return [item for part, item, _, is_locked in settled if is_locked and part.outcome == "complete"]

    def _may_fail(self, command: c.Transact) -> bool:
        """Whether it holds more than sends to one entity without partitions, which must succeed."""
        run = self._run
        shape = run.model.shapes[command.via]
        return (
            shape.partitioned
            or shape.small
            or any(not isinstance(part, c.Send) or part.to != command.via for part in command.parts)
        )

    def _commit(
        self, command: c.Transact, sends: list[c.Send], settled: list[tuple[c.Settle, Item, bytes, bool]]
    ) -> None:
        run = self._run
        for part, item, token, is_locked in settled:
            stack = run.held.get((part.label, part.of), [])
            stack[:] = [held for held in stack if held.token != token]
            if not stack:
                run.held.pop((part.label, part.of), None)
            done = Answer()
            done.give(None)
            run.judge_settle(part, item, done, is_locked=is_locked)
        for send in sends:
            for spec in send.specs:
                refusal = run.model.refusal(send.to, (spec,))
                if refusal is not None:
                    run.report("answer", f"{command}: {spec} is accepted instead of {refusal}")
                if send.to == command.via:
                    run.model.accept(send.to, (spec,), sent_at=run.model.now)
                else:
                    run.model.transfer(command.via, send.to, spec)


def _is_there(item: Item, there: Places) -> bool:
    return (item.path, item.label, item.number, item.home) in there


def _shows(part: c.Settle, item: Item) -> bool:
    """Whether a settlement moves its message to another place, or removes it."""
    return part.outcome in ("complete", "dead-letter") or (part.outcome == "defer" and item.home in DEFERRED_HOMES)
