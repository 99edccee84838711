"""Links on which the client receives: deliveries out, dispositions in, and the credit that goes back.

Everything here happens once per message. Knows how deliveries are given to Proton and which of them are unsettled.
Does not know which message comes next and what an outcome does: subclasses do, in `disposed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import ClassVar, Final

from ...broker.api import Delivery, RunDone
from ...broker.errors import BrokerError
from .engine import Pointer, ffi, lib, session_of
from .flow import LinkState
from .link import COUNT_MASK, RECEIVED, ConnectionState, Done, Link, link_credit, reject
from .loops import ACCEPTED, Handle, send, take_accepted
from .transaction_states import TRANSACTIONAL, set_state_data

RUN_TOKENS_MAX: Final = 512
UNSETTLED_BYTES: Final = 920
"""What Proton and we keep of a delivery besides its message until its receiver settles it: resident memory after 50 000
copies for browsers that settle nothing."""
_NOT_OPEN: Final = object()

_settled, _settle, _update = lib.pn_delivery_settled, lib.pn_delivery_settle, lib.pn_delivery_update
_remote_state, _tag = lib.pn_delivery_remote_state, lib.pn_delivery_tag
_buffer = ffi.buffer


class OutgoingDeliveries(Link):
    """A link on which the client receives. `credit` is what the client's last flow left us."""

    __slots__ = ("_count", "_kept", "_kept_bytes", "_run", "credit", "presettled", "session")

    TAKES_RUNS: ClassVar = False
    """Whether deliveries that the client accepts go to `disposed_run`, those of one read of the socket together."""

    def __init__(self, state: ConnectionState, pointer: Pointer, *, presettled: bool) -> None:
        super().__init__(state, pointer)
        self.presettled = presettled
        if presettled:
            state.expect_deliveries_without_tokens()
        self.session = session_of(pointer)
        self.credit = 0
        self._run: DispositionRun | None = None
        self._kept = self._kept_bytes = (
            0  # unsettled deliveries when they were counted last and those since; their size
        )
        self._count = 0  # our delivery-count: deliveries given to Proton and credit given back

    # ---- deliveries

    def transfer(self, deliveries: Sequence[Delivery]) -> None:
        """Give whole messages to Proton."""
        size_bytes = send(self.handle, deliveries, self._open, self.presettled)
        count = len(deliveries)
        self.credit -= count
        self._count += count
        self._kept += count
        self._kept_bytes += size_bytes
        self.state.sent(self, size_bytes)

    def unsettled_bytes(self) -> int:
        """What is kept for deliveries that the client has yet to settle, as if all were of the same size: Proton keeps
        the buffer of each, which it makes twice as large again and again until the message fits."""
        count = len(self._open)
        self._kept_bytes = self._kept_bytes * count // self._kept if self._kept else 0
        self._kept = count
        return count * UNSETTLED_BYTES + 3 * self._kept_bytes // 2

    @property
    def unsettled_count(self) -> int:
        """How many deliveries the client has said nothing about."""
        return sum(1 for entry in self._open.values() if entry is None)

    # ---- credit

    def wants_drain(self) -> bool:
        """Whether the client's last flow said drain."""
        return bool(lib.pn_link_get_drain(self.pointer))

    def give_back(self) -> None:
        """Answer a drain: what is left of the credit goes back [wire 5.6]."""
        unused = link_credit(self.pointer)
        self.credit = 0
        self._count += unused
        if unused:  # with negative credit (an old flow) Proton would count backwards
            lib.pn_link_drained(self.pointer)
        else:
            self.state.replies.add_drained(self.pointer, self._drained_state)
        self.state.schedule_flush()

    def _drained_state(self) -> LinkState | None:
        """The answer to a drain; None while Proton has deliveries of this link to write."""
        return None if lib.pn_link_queued(self.pointer) else LinkState(self._count, 0, 0, drain=True)

    def link_state(self) -> LinkState:
        """Deliveries that Proton has not written are still available; without credit nothing is known to be."""
        queued = int(lib.pn_link_queued(self.pointer))
        credit = link_credit(self.pointer) + queued
        return LinkState((self._count - queued) & COUNT_MASK, credit, queued if credit else None, self.wants_drain())

    # ---- dispositions

    def disposed(self, token: bytes, state: int, delivery: Pointer, done: Done | None) -> None:
        """The client wants `state` for the delivery; `done` is None if it has settled: no answer follows."""
        raise AssertionError(token, state, delivery, done)

    def disposed_run(self, run: Sequence[bytes], done: RunDone | None) -> None:
        """The client accepts these deliveries; `done` is None if it has settled them: no answer follows."""
        raise AssertionError(run, done)

    def take_run(self, collector: Handle) -> bool:
        """Take settled dispositions with accepted into the run of this link; False if there is none."""
        if not self.TAKES_RUNS or self._when_settled is not None:
            return False
        run = self._run
        tokens: list[bytes] = run.tokens if run is not None and run.is_settled else []
        if not take_accepted(collector, self.handle, self._open, tokens, RUN_TOKENS_MAX):
            return False  # a run of unsettled ones goes on
        if run is None or not run.is_settled:
            run = self._begin_run(True, tokens)
        if len(tokens) >= RUN_TOKENS_MAX:
            self.end_run(run)
        return True

    def on_delivery(self, delivery: Pointer) -> None:
        """A disposition came: the first one of a delivery goes to `disposed`, or with others to `disposed_run`."""
        tag = _tag(delivery)
        token = _buffer(tag.start, tag.size)[:]
        entry = self._open.get(token, _NOT_OPEN)
        if entry is _NOT_OPEN:
            return
        state, settled = _remote_state(delivery), _settled(delivery)
        waits = type(entry) is tuple  # for the outcome of an earlier disposition
        if state == ACCEPTED and entry is None and not settled and self.TAKES_RUNS and self._when_settled is None:
            run = self._run
            if run is None or run.is_settled:
                run = self._begin_run(False, [])
            self._open[token] = (delivery, state)
            run.tokens.append(token)
            if len(run.tokens) >= RUN_TOKENS_MAX:
                self.end_run(run)
            return
        self.state.end_runs()
        if settled:
            del self._open[token]
            _settle(delivery)
            if not waits:
                self.disposed(token, state, delivery, None)
            if self._when_settled is not None and not self._open:
                self._when_settled()
        elif not waits and state and state != RECEIVED:
            outcomes = self.state.outcomes
            serial = outcomes.next_serial()
            self._open[token] = (delivery, state)
            self.disposed(token, state, delivery, partial(outcomes.add, serial, self, token))

    def _begin_run(self, settled: bool, tokens: list[bytes]) -> DispositionRun:
        """End the run of the other kind, if there is one, and begin a run with these tokens."""
        if self._run is not None:
            self._run.end()
        run = self._run = DispositionRun(self, self.state.outcomes.next_serial(), settled, tokens)
        self.state.begin_run(run)
        return run

    def end_run(self, run: DispositionRun) -> None:
        """Hand over a run that is complete; nothing if it was, or its link has gone."""
        if self._run is run:
            self._run = None
            if run.tokens:
                self.disposed_run(run.tokens, None if run.is_settled else run.done)

    def gone(self) -> None:
        """As in `Link`; a run that has not ended is lost with it."""
        super().gone()
        self._run = None
        self.state.sends_no_more(self)

    def finish(self, key: bytes, error: BrokerError | None) -> None:
        """Confirm with an outcome of the client's kind, or reject with the error [wire 5.7]."""
        entry = self._open.pop(key, None)
        if entry is None:
            return
        delivery, state = entry
        if error is None:
            _update(delivery, state)
        else:
            reject(delivery, self.state.tracked_refusal(error, self.pointer))
        if self._when_settled is None:
            _settle(delivery)
            return
        if error is None:
            self.answered_late(key, state, delivery)
        _settle(delivery)
        if not self._open:
            self._when_settled()

    def answered_late(self, token: bytes, state: int, delivery: Pointer) -> None:
        """A delivery is settled as the client wanted, and the answer comes behind that to its detach."""

    # ---- outcomes in transactions

    def enroll(self, enrolled: Enrolled) -> None:
        """Confirm that the outcome of a delivery is part of a transaction; the delivery stays live."""
        self._open[enrolled.token] = enrolled
        set_state_data(enrolled.delivery, enrolled.answer)
        self.state.outcomes.add(enrolled.serial, enrolled, enrolled.token, None)

    def settle_enrolled(self, enrolled: Enrolled) -> None:
        """The transaction is committed: settle the delivery, unless the client has settled or disposed of it since."""
        if self.is_enrolled(enrolled):
            self._open[enrolled.token] = (enrolled.delivery, TRANSACTIONAL)
            self.state.outcomes.add(enrolled.serial, self, enrolled.token, None)

    def is_enrolled(self, enrolled: Enrolled) -> bool:
        """Whether nothing has happened to the delivery since."""
        return self._open.get(enrolled.token) is enrolled


class DispositionRun:
    """Deliveries of one link that the client accepts together, settled by it or not, and the outcomes, by position."""

    __slots__ = ("_answers", "is_settled", "link", "serial", "tokens")

    def __init__(self, link: OutgoingDeliveries, serial: int, is_settled: bool, tokens: list[bytes]) -> None:
        self.link = link
        self.serial = serial
        self.is_settled = is_settled
        self.tokens = tokens
        self._answers: list[tuple[Sequence[int], BrokerError | None]] = []

    def end(self) -> None:
        """Hand it over."""
        self.link.end_run(self)

    def done(self, positions: Sequence[int], error: BrokerError | None) -> None:
        """Dispositions have their outcome, which is given to Proton at the end of the turn."""
        if not self._answers:
            self.link.state.outcomes.add(self.serial, self, None, None)
        self._answers.append((positions, error))

    def finish(self, key: object, error: BrokerError | None) -> None:
        """Give Proton the outcomes, in the order of the deliveries: it merges those then."""
        del key, error
        answers, self._answers = self._answers, []
        if len(answers) == 1:
            in_order = [(position, answers[0][1]) for position in answers[0][0]]
        else:
            in_order = sorted(
                ((position, error) for positions, error in answers for position in positions), key=itemgetter(0)
            )
        finish, tokens = self.link.finish, self.tokens
        for position, refusal in in_order:
            finish(tokens[position], refusal)


class Enrolled:
    """A delivery whose outcome is part of a transaction [AMQP 4.4.2]: an entry of `_open` that takes dispositions.

    An unsettled disposition says that the outcome is in the transaction. A commit settles the delivery. A rollback
    leaves it as it was before: the client settles it anew.
    """

    __slots__ = ("answer", "delivery", "link", "serial", "token")

    def __init__(self, link: OutgoingDeliveries, token: bytes, delivery: Pointer, answer: bytes) -> None:
        self.link = link
        self.token = token
        self.delivery = delivery
        self.serial = link.state.outcomes.last_serial
        self.answer = answer
        """The encoded fields of the transactional-state."""

    def finish(self, key: bytes, error: BrokerError | None) -> None:
        """Confirm without settling; nothing if the client has settled or disposed of the delivery since."""
        del key, error
        if self.link.is_enrolled(self):
            _update(self.delivery, TRANSACTIONAL)

    def committed(self) -> None:
        """The transaction is committed."""
        self.link.settle_enrolled(self)
