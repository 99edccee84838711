"""Message sessions: accept, receive in one, its state, renew, close; and that nobody else has it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emubus.broker.api import Delivery, ReceiveMode, SessionReceiver, partition_for_key
from emubus.broker.errors import BrokerError, Condition, UnknownOutcomeError

from . import commands as c
from .items import ACTIVE, Holding
from .shapes import LOCK_MS
from .world import STORES, Answer, label_of

if TYPE_CHECKING:
    from .steps import Run

WAIT_MS = 60_000


class Holder:
    """A receiver that got a session."""

    def __init__(self, consumer: SessionReceiver, holding: Holding) -> None:
        self.consumer = consumer
        self.holding = holding


class Sessions:
    """The handlers of these commands; `holders` are the receivers, by path and name of what they hold."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.holders: dict[tuple[str, str], Holder] = {}
        self.handlers: dict[type, Callable[[Any], None]] = {
            c.AcceptSession: self._accept,
            c.ReceiveInSession: self._receive,
            c.SetState: self._set_state,
            c.GetState: self._get_state,
            c.RenewSession: self._renew,
            c.CloseSession: self._close,
        }

    def forget(self) -> None:
        """The process is gone, and with it all holdings."""
        self.holders.clear()

    # ---- a holding begins

    def _accept(self, command: c.AcceptSession) -> None:
        run = self._run
        shape = run.model.shapes.get(command.of)
        if run.world.is_slow() or shape is None or not shape.sessions or shape.forward_to:
            return
        if not run.model.is_receivable(command.of):
            return
        granted: list[SessionReceiver] = []
        refused: list[BrokerError] = []
        wait = run.world.broker.accept_session(
            command.of,
            command.name,
            mode=ReceiveMode.PEEK_LOCK,
            timeout_ms=WAIT_MS,
            granted=granted.append,
            refused=refused.append,
            detached=lambda error: self._lost(granted[0], error),
        )
        run.world.loop.run_until_idle()
        if granted:
            self._granted(command, granted[0])
            return
        wait.cancel()
        if refused:
            self._check_refusal(command, refused[0])
            return
        free = sorted(
            item.session
            for item in run.model.available(command.of, ACTIVE)
            if item.session is not None
            and (command.of, item.session) not in run.model.holdings
            and not self._is_left(command.of, item.session)
        )
        if run.model.calm and free:
            run.report("everything available", f"{command} gets none, though {free} have messages")

    def _granted(self, command: c.AcceptSession, consumer: SessionReceiver) -> None:
        run = self._run
        name = consumer.session_id
        key = (command.of, name)
        before = run.model.holdings.get(key)
        if command.name not in (None, name):
            run.report("answer", f"{command} gets the session '{name}'")
        if before is not None and before.is_sure:
            run.report("one holder", f"{command} gets the session '{name}', which another receiver holds")
        if before is not None:
            run.model.end_holding(*key, sure=True)
        for item in run.model.at(command.of, ACTIVE):
            if item.session == name and not item.lock_sure:
                item.lock_until = 0  # if the holding before went on, this one could not be
        place = consumer._grant.partition_index
        if run.model.is_partitioned(command.of) and place != partition_for_key(name, STORES):
            run.report("one place per key", f"{command} gets the session '{name}' of partition {place}")
        holding = run.model.hold(*key)
        if consumer.locked_until_at != holding.until:
            run.report("answer", f"{command}: locked until {consumer.locked_until_at}, not {holding.until}")
        self.holders[key] = Holder(consumer, holding)

    def _check_refusal(self, command: c.AcceptSession, error: BrokerError) -> None:
        run = self._run
        is_held = (command.of, command.name) in run.model.holdings or not run.model.calm
        is_held = is_held or any(
            item.lock_until for item in run.model.at(command.of, ACTIVE) if item.session == command.name
        )
        if error.condition is Condition.SESSION_CANNOT_BE_LOCKED and (
            is_held or self._is_left(command.of, command.name)
        ):
            return
        if error.condition is Condition.SERVER_BUSY and not run.model.calm:
            return
        run.report("answer", f"{command} is refused: '{error}'")

    def _is_left(self, path: str, name: str | None) -> bool:
        """Whether an earlier holding may go on, because a store did not hear of its end."""
        return self._run.model.left_until.get((path, name or ""), 0) > self._run.model.now

    # ---- while it lasts

    def _receive(self, command: c.ReceiveInSession) -> None:
        run = self._run
        holder = self.holders.get((command.of, command.name))
        if holder is None or run.world.is_slow():
            return
        got: list[Delivery] = []
        drained: list[bool] = []
        consumer = holder.consumer
        consumer.deliver = got.extend
        consumer.set_credit(command.count)
        consumer.drain(lambda: drained.append(True))
        run.world.loop.run_until_idle()
        consumer.set_credit(0)
        holding = holder.holding
        # by time: its receiver learns of it a while later, and gets nothing meanwhile
        if holding.until <= run.model.now:
            if got:
                run.report("one holder", f"{command} gets messages of a session that it no longer holds")
            return
        free = [item for item in run.model.available(command.of, ACTIVE) if item.session == command.name]
        is_sure = run.model.calm and holding.is_sure
        if is_sure and (len(got) < min(command.count, len(free)) or not drained):
            run.report("everything available", f"{command} gets {len(got)} of {len(free)} messages")
        for delivery in got:
            run.delivered(command, ACTIVE, delivery, holding=holding)
        numbers = [delivery.sequence_number for delivery in got]
        labels = {label_of(delivery.payload) for delivery in got}
        left = [item.number for item in free if item.label not in labels and item.number is not None]
        if numbers != sorted(numbers) or (is_sure and got and left and min(left) < numbers[-1]):
            run.report("order", f"{command} gets {numbers}; {left} are left")

    def _set_state(self, command: c.SetState) -> None:
        run = self._run
        shape = run.model.shapes.get(command.of)
        if run.world.is_slow() or shape is None or not shape.sessions:
            return
        state = None if command.value is None else command.value.encode()
        answer = self._ask(run.world.broker.sessions.set_state(command.of, command.name, state))
        states = run.model.states.setdefault((command.of, command.name), {None})
        if answer.error is None:
            states.clear()
            states.add(command.value)
        elif isinstance(answer.error, UnknownOutcomeError):
            states.add(command.value)
        self._check_held(command, answer)

    def _get_state(self, command: c.GetState) -> None:
        run = self._run
        shape = run.model.shapes.get(command.of)
        if run.world.is_slow() or shape is None or not shape.sessions:
            return
        answer = self._ask(run.world.broker.sessions.state(command.of, command.name))
        self._check_held(command, answer)
        if answer.error is None:
            found = None if answer.result is None else answer.result.decode()
            self.see_state((command.of, command.name), found)

    def see_state(self, key: tuple[str, str], found: str | None) -> None:
        """The state of a message session was seen."""
        states = self._run.model.states.setdefault(key, {None})
        if found not in states:
            self._run.report("state", f"the state of '{key[1]}' in {key[0]} is {found}, not {sorted(map(str, states))}")
        states.clear()
        states.add(found)

    def _renew(self, command: c.RenewSession) -> None:
        run = self._run
        shape = run.model.shapes.get(command.of)
        if run.world.is_slow() or shape is None or not shape.sessions:
            return
        answer = self._ask(run.world.broker.sessions.renew(command.of, command.name))
        self._check_held(command, answer)
        if answer.error is not None:
            return
        until = run.model.now + LOCK_MS
        if answer.result != until:
            run.report("answer", f"{command} is renewed until {answer.result}, not {until}")
        holding = run.model.holdings.get((command.of, command.name))
        if holding is not None:
            for item in run.model.in_hand(command.of, command.name):
                item.lock_until = until
            holding.until = until

    def _check_held(self, command: c.SetState | c.GetState | c.RenewSession, answer: Answer) -> None:
        run = self._run
        key = (command.of, command.name)
        holding = run.model.holdings.get(key)
        error = answer.error
        if error is None:
            if holding is None and run.model.left_until.get(key, 0) <= run.model.now:
                run.report("one holder", f"{command} is accepted, though nobody holds the session")
        elif error.condition is Condition.SESSION_LOCK_LOST:
            if holding is not None and holding.is_sure:
                run.report("one holder", f"{command}: the lock is lost, though a receiver holds the session")
        elif not (error.condition is Condition.SERVER_BUSY and not run.model.calm):
            run.report("answer", f"{command} is answered '{error}'")

    # ---- its end

    def _close(self, command: c.CloseSession) -> None:
        run = self._run
        key = (command.of, command.name)
        holder = self.holders.get(key)
        if holder is None or run.world.is_slow():
            return
        del self.holders[key]
        holder.consumer.close()
        run.world.loop.run_until_idle()
        if not run.model.calm:
            run.model.left_until[key] = holder.holding.until
        run.model.end_holding(*key, sure=run.model.calm)
        run.model.tick(run.model.now)

    def _lost(self, consumer: SessionReceiver, error: BrokerError) -> None:
        run = self._run
        key = next((key for key, holder in self.holders.items() if holder.consumer is consumer), None)
        if key is None:
            return
        holder = self.holders.pop(key)
        if holder.holding.until <= run.world.clock.now_ms():
            return  # by time: the model sees that, too
        if holder.holding.is_sure:
            run.report("one holder", f"the session '{key[1]}' of {key[0]} is lost before its lock ends: '{error}'")
        if run.model.holdings.get(key) is holder.holding:
            run.model.end_holding(*key, sure=True)

    def _ask(self, coroutine: Any) -> Answer:
        answer = self._run.world.ask(coroutine)
        self._run.world.loop.run_until_idle()
        return answer
