"""Links on which the client receives: deliveries out, dispositions in, and the credit that goes back.

Everything here happens once per message. Knows how deliveries are given to Proton and which of them are unsettled.
Does not know which message comes next and what an outcome does: subclasses do, in `disposed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from ...broker.api import Delivery
from ...broker.errors import BrokerError
from .engine import Pointer, ffi, lib
from .flow import LinkState
from .link import COUNT_MASK, RECEIVED, ConnectionState, Link, link_credit, reject
from .loops import ACCEPTED, Handle, send, take_accepted
from .run import Run
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

    __slots__ = ("_count", "_kept", "_kept_bytes", "_run", "credit", "presettled")

    TAKES_RUNS: ClassVar = False
    """Whether deliveries that the client accepts go to `disposed` together, those of one read of the socket."""

    def __init__(self, state: ConnectionState, pointer: Pointer, *, presettled: bool) -> None:
        super().__init__(state, pointer)
        self.presettled = presettled
        if presettled:
            state.expect_deliveries_without_tokens()
        self.credit = 0
        self._run: Run | None = None
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
        self.state.sending.add(self)
        self.state.memory.grew(size_bytes)

    def unsettled_bytes(self) -> int:
        """What is kept for deliveries that the client has yet to settle, as if all were of the same size: Proton keeps
        the buffer of each, which it makes twice as large again and again until the message fits."""
        count = len(self._open)
        self._kept_bytes = self._kept_bytes * count // self._kept if self._kept else 0
        self._kept = count
        return count * UNSETTLED_BYTES + 3 * self._kept_bytes // 2

    def unsettled_tokens(self) -> list[bytes]:
        return list(self._open)

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

    def disposed(self, run: Run) -> None:
        """The client wants `run.outcome` for the deliveries `run.items`; `run.done` gets what became of each.

        If the client has settled them (`run.is_settled`), no answer follows.
        """
        raise AssertionError(run)

    def take_run(self, collector: Handle) -> bool:
        """Take settled dispositions with accepted into the run of this link; False if there is none."""
        if not self.TAKES_RUNS or self._when_settled is not None:
            return False
        run = self._run
        tokens: list[bytes] = run.items if run is not None and run.is_settled else []
        if not take_accepted(collector, self.handle, self._open, tokens, RUN_TOKENS_MAX):
            return False  # a run of unsettled ones goes on
        if run is None or not run.is_settled:
            run = self._begin_run(tokens, is_settled=True)
        if len(tokens) >= RUN_TOKENS_MAX:
            self.end_run(run)
        return True

    def on_delivery(self, delivery: Pointer) -> None:
        """A disposition came: the first one of a delivery goes to `disposed`, accepted ones together."""
        tag = _tag(delivery)
        token = _buffer(tag.start, tag.size)[:]
        entry = self._open.get(token, _NOT_OPEN)
        if entry is _NOT_OPEN:
            return
        state, settled = _remote_state(delivery), _settled(delivery)
        waits = entry is not None and not entry.is_enrolled  # for the outcome of an earlier disposition
        if state == ACCEPTED and entry is None and not settled and self.TAKES_RUNS and self._when_settled is None:
            run = self._run
            if run is None or run.is_settled:
                run = self._begin_run([], is_settled=False)
            self._add(run, token, delivery)
            if len(run.items) >= RUN_TOKENS_MAX:
                self.end_run(run)
            return
        connection = self.state
        if connection.runs:
            connection.end_runs()
        if settled:
            del self._open[token]
            if not waits:
                run = Run(self, next(connection.serials), [token], outcome=state, is_settled=True)
                run.deliveries.append(delivery)
                self.disposed(run)
            _settle(delivery)
            if self._when_settled is not None and not self._open:
                self._when_settled()
        elif not waits and state and state != RECEIVED:
            run = Run(self, next(connection.serials), [], outcome=state)
            self._add(run, token, delivery)
            self.disposed(run)

    def _begin_run(self, tokens: list[bytes], *, is_settled: bool) -> Run:
        """End the run of the other kind, if there is one, and begin one of deliveries that the client accepts."""
        connection = self.state
        if self._run is not None:
            self.end_run(self._run)
        run = self._run = Run(self, next(connection.serials), tokens, outcome=ACCEPTED, is_settled=is_settled)
        connection.runs.append(run)
        return run

    def _add(self, run: Run, token: bytes, delivery: Pointer) -> None:
        """A delivery waits for what becomes of its disposition."""
        self._open[token] = run
        run.items.append(token)
        run.deliveries.append(delivery)

    def end_run(self, run: Run) -> None:
        """Hand over a run that is complete; nothing if it was, or its link has gone."""
        if self._run is run:
            self._run = None
            if run.items:
                self.disposed(run)

    def gone(self) -> None:
        """As in `Link`; a run that has not ended is lost with it."""
        super().gone()
        self._run = None
        self.state.sending.discard(self)

    def finish(self, run: Run) -> None:
        """Confirm with an outcome of the client's kind, or reject with the error [wire 5.7]."""
        positions, errors = run.take_outcomes()
        has_settled = False
        for position in positions:
            token = run.items[position]
            if self._open.get(token) is not run:
                continue  # the client has settled it since, or disposed of it anew
            delivery = run.deliveries[position]
            if run.is_enrolled:
                _update(delivery, TRANSACTIONAL)
                continue
            del self._open[token]
            has_settled = True
            error = errors.get(position)
            if error is not None:
                reject(delivery, self.state.refusal(self.told(error), self.pointer))
            else:
                _update(delivery, run.outcome)
                if self._when_settled is not None:
                    self.answered_late(token, run.outcome, delivery)
            _settle(delivery)
        if has_settled and self._when_settled is not None and not self._open:
            self._when_settled()

    def told(self, error: BrokerError) -> BrokerError:
        """The error that a disposition is refused with instead of its own."""
        return error

    def answered_late(self, token: bytes, state: int, delivery: Pointer) -> None:
        """A delivery is settled as the client wanted, and the answer comes behind that to its detach."""

    def enroll(self, run: Run, answer: bytes) -> None:
        """Confirm that the outcome of a delivery is part of a transaction, with the encoded fields of that state; the
        delivery stays live."""
        set_state_data(run.deliveries[0], answer)
        run.enroll()
