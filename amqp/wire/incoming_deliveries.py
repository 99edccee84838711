"""Links on which the client sends: deliveries in, outcomes out, and the credit for more.

Everything here happens once per message. Knows how a delivery is taken from Proton, whole or part by part, and counts
the credit that goes back with outcomes. Does not know what a delivery means: subclasses do, in `receive`. Plain
deliveries of one read of the socket travel together, as an `IncomingRun`, where the link takes runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ...broker.api import RunDone
from ...broker.errors import BrokerError, Condition
from ...broker.service_errors import too_large
from ...codec.sections import data_sections_max
from .engine import Pointer, ffi, lib
from .flow import LinkState
from .link import COUNT_MASK, ConnectionState, Done, Link, drop, link_credit, reject
from .loops import ACCEPTED, SCRATCH_BYTES, Handle, accept, delivery_of, scratch, take_deliveries
from .transaction_states import TRANSACTIONAL, set_state_data, transaction_of, transactional_state

RUN_MESSAGES_MAX: Final = 256
RUN_BYTES_MAX: Final = 256 * 1024
KEEPING_BYTES: Final = 512
"""About what Proton and we need to keep one delivery besides its bytes: many small ones count, too."""
MEMBER_BYTES: Final = 256
"""A quarter of what it costs to keep one message of a batch until it is stored, its bytes aside: 350 bytes parsed
(measured with 4 500 empty ones), about as much as a row and in pages of the store. `PENDING_FACTOR` does the rest."""

_readable, _partial, _pending = lib.pn_delivery_readable, lib.pn_delivery_partial, lib.pn_delivery_pending
_recv, _advance, _flow = lib.pn_link_recv, lib.pn_link_advance, lib.pn_link_flow
_settled, _settle, _update = lib.pn_delivery_settled, lib.pn_delivery_settle, lib.pn_delivery_update
_remote_state = lib.pn_delivery_remote_state
_buffer = ffi.buffer
_scratch, _scratch_view = scratch, _buffer(scratch)


class IncomingDeliveries(Link):
    """A link on which the client sends. Subclasses say in `receive` what happens to a whole delivery."""

    __slots__ = (
        "_credit_half",
        "_flow",
        "_given",
        "_holds_credit",
        "_initial_count",
        "_is_batch",
        "_outcomes",
        "_owed",
        "_partial_bytes",
        "_run",
        "answers",
        "bytes_max",
        "takes_runs",
    )

    def __init__(self, state: ConnectionState, pointer: Pointer, *, bytes_max: int, credit: int) -> None:
        super().__init__(state, pointer)
        self.answers: dict[int, tuple[int, bytes]] = {}
        """For deliveries (by serial) whose success is not plainly accepted: the state and its encoded fields."""
        self.bytes_max = bytes_max
        self.takes_runs = False
        """Whether plain deliveries go to `receive_run`, those of one read of the socket together."""
        self._run: IncomingRun | None = None
        self._flow = state.flow
        self._outcomes = state.outcomes
        self._is_batch = False  # the delivery that is arriving
        self._credit_half = credit // 2
        self._owed = 0  # credit that goes back to the client
        self._given = credit
        self._holds_credit = False
        self._partial_bytes = 0
        self._initial_count = 0
        _flow(pointer, credit)

    # ---- what subclasses do

    def receive(self, data: bytes, batch: bool, done: Done) -> None:
        """Take a whole delivery; `done` gets its outcome, at once or later."""
        raise AssertionError(data, batch, done)

    def receive_run(self, run: Sequence[bytes], done: RunDone) -> None:
        """Take whole deliveries, each on its own; `done` gets their outcomes by position, at once or later."""
        raise AssertionError(run, done)

    def receive_in(self, transaction: bytes, data: bytes, batch: bool, done: Done) -> None:
        """As `receive`, for a delivery that is part of a transaction."""
        del transaction, data, batch
        done(BrokerError(Condition.NOT_ALLOWED, "What comes over this link can't be part of a transaction."))

    # ---- deliveries

    def expect_batch(self) -> None:
        """The delivery that comes next is a batch."""
        self._is_batch = True

    def take_run(self, collector: Handle) -> bool:
        """Take plain deliveries at the head of `collector` into the run of this link; False if there is none."""
        if not self.takes_runs or self._is_batch or self._partial_bytes:
            return False
        run = self._run
        if run is None:
            run = self._run = IncomingRun(self, self._outcomes.next_serial())
            self.state.begin_run(run)
        data, bytes_max = run.data, RUN_BYTES_MAX - run.size_bytes
        taken_bytes = take_deliveries(
            collector, self.handle, run.deliveries, data, self.bytes_max, RUN_MESSAGES_MAX, bytes_max
        )
        run.size_bytes += taken_bytes
        if taken_bytes > bytes_max or len(data) >= RUN_MESSAGES_MAX:
            self.end_run(run)
        return taken_bytes > 0

    def on_delivery(self, delivery: Pointer) -> None:
        """Take a whole delivery that is no plain one; drop what exceeds the limit while it arrives."""
        if not _readable(delivery):
            return  # settled by the client before our outcome: Proton then writes none
        size = _pending(delivery)
        if _partial(delivery):
            self._on_part(size)
            return
        if self._partial_bytes:
            self._set_partial(0)
        if size > self.bytes_max:
            self._on_excess(size)
            drop(delivery, self.state.tracked_refusal(too_large(size, self.bytes_max), self.pointer))
            return
        pointer = self.pointer
        if size > SCRATCH_BYTES:
            data = _large(pointer, size)
        else:
            taken = _recv(pointer, _scratch, size)
            data = _scratch_view[:taken] if taken > 0 else b""
            if taken < 0 < size:
                self._on_abort(delivery)
                return
        presettled = _settled(delivery)
        transaction = transaction_of(delivery) if _remote_state(delivery) == TRANSACTIONAL else None
        _advance(pointer)
        self._receive_alone(delivery, data, transaction, presettled=bool(presettled))

    def _receive_alone(self, delivery: Pointer, data: bytes, transaction: bytes | None, *, presettled: bool) -> None:
        """Take a delivery that is no part of a run: a batch, in a transaction, settled by its sender, or on a node."""
        self.state.end_runs()
        batch, self._is_batch = self._is_batch, False
        cost = len(data) + KEEPING_BYTES
        if batch:
            cost += MEMBER_BYTES * data_sections_max(data)
        outcomes = self._outcomes
        serial = outcomes.next_serial()
        if presettled:
            _settle(delivery)
            self._open[serial] = (None, cost)
        else:
            self._open[serial] = (delivery, cost)
        self._flow.begin(cost)
        done = partial(outcomes.add, serial, self, serial)
        if transaction is None:
            self.receive(data, batch, done)
        else:
            self.answers[serial] = (TRANSACTIONAL, transactional_state(transaction, ACCEPTED))
            self.receive_in(transaction, data, batch, done)

    def end_run(self, run: IncomingRun) -> None:
        """Hand over a run that is complete; nothing if it was, or its link has gone."""
        if self._run is run:
            self._run = None
            data = run.take_data()
            if data:
                self._open[run.serial] = run
                self._flow.begin(run.waiting_cost)
                self.receive_run(data, run.done)

    def _on_part(self, size: int) -> None:
        """Some frames of a delivery are here; `size` bytes are kept by Proton."""
        if size > self.bytes_max:
            self._on_excess(size)
            _recv(self.pointer, _scratch, SCRATCH_BYTES)
        else:
            self._set_partial(size)

    def _set_partial(self, size: int) -> None:
        """Count the bytes of the delivery that is arriving."""
        self._flow.change_partial(size - self._partial_bytes)
        self._partial_bytes = size

    def _on_excess(self, size: int) -> None:
        """A delivery is too large, as far as it has come: like the service, close the link at its first excess byte."""
        self.state.log.warning("delivery too large", size_bytes=size, bytes_max=self.bytes_max)
        self.state.detach(self.pointer, too_large(size, self.bytes_max))

    def _on_abort(self, delivery: Pointer) -> None:
        """The client has aborted a delivery: nothing is received, its credit comes back."""
        self._is_batch = False
        _advance(self.pointer)
        _settle(delivery)
        self._owe_credit()

    # ---- outcomes

    def finish(self, key: int, error: BrokerError | None) -> None:
        """Answer with accepted or rejected, and give the credit back.

        A refusal of a delivery that the client has settled closes the link: the client must learn of the loss.
        """
        entry = self._open.pop(key, None)
        if entry is None:
            if error is not None:
                self.state.log.info("delivery refused after its link", reason=str(error))
            return
        delivery, cost = entry
        self._flow.end(cost)
        answer = self.answers.pop(key, None) if self.answers else None
        if delivery is not None:
            if error is not None:
                reject(delivery, self.state.tracked_refusal(error, self.pointer))
            elif answer is None:
                _update(delivery, ACCEPTED)
            else:
                code, encoded = answer
                set_state_data(delivery, encoded)
                _update(delivery, code)
            _settle(delivery)
        elif error is not None:
            self.state.log.warning("settled delivery refused", reason=str(error))
            self.state.detach(self.pointer, error)
            return
        self._owe_credit()

    def finish_run(self, run: IncomingRun) -> None:
        """Answer the deliveries of a run that have an outcome, in their order, and give their credit back."""
        positions, errors, cost = run.take_outcomes()
        if run.serial not in self._open:
            for error in errors.values():
                self.state.log.info("delivery refused after its link", reason=str(error))
            return
        if not errors:
            accept(run.deliveries, positions)
        else:
            for position in positions:
                if position in errors:
                    delivery = delivery_of(run.deliveries[position])
                    reject(delivery, self.state.tracked_refusal(errors[position], self.pointer))
                    _settle(delivery)
                else:
                    accept(run.deliveries, (position,))
        self._flow.end(cost)
        if not run.waiting_cost:
            del self._open[run.serial]
        self._owe_credit(len(positions))

    # ---- credit

    def _owe_credit(self, count: int = 1) -> None:
        """The credit of deliveries goes back, together with that of others."""
        self._owed += count
        if self._owed > self._credit_half and not self._holds_credit:
            self._give_credit()

    def hold_credit(self, *, is_new: bool) -> None:
        """Give no credit until `give_credit`; a link that `is_new`, of which the client knows nothing yet, has none."""
        self._holds_credit = True
        if is_new:
            left = link_credit(self.pointer)
            _flow(self.pointer, -left)
            self._given -= left
            self._owed += left

    def give_credit(self) -> None:
        """Give the credit that was held."""
        if self._holds_credit:
            self._holds_credit = False
            self._give_credit()

    def _give_credit(self) -> None:
        """Give the credit back that is owed."""
        _flow(self.pointer, self._owed)
        self._given += self._owed
        self._owed = 0

    def on_flow(self) -> None:
        """The client's delivery-count shows where it began to count."""
        if self._wants_reply:
            self._initial_count = self._peer_count + link_credit(self.pointer) - self._given
        super().on_flow()

    def link_state(self) -> LinkState:
        """The delivery-count is the client's first one plus the credit that was used up since."""
        credit = link_credit(self.pointer)
        return LinkState((self._initial_count + self._given - credit) & COUNT_MASK, credit)

    def gone(self) -> None:
        """As in `Link`; the bytes of the link's deliveries count no longer."""
        self._flow.end(sum(_cost_of(entry) for entry in self._open.values()))
        self._set_partial(0)
        self._run = None
        self.answers.clear()
        super().gone()


class IncomingRun:
    """Deliveries of one link that go to the broker together, and their outcomes, by position."""

    __slots__ = (
        "_accepted",
        "_refused",
        "_sizes",
        "data",
        "deliveries",
        "link",
        "serial",
        "size_bytes",
        "waiting_cost",
    )

    def __init__(self, link: IncomingDeliveries, serial: int) -> None:
        self.link = link
        self.serial = serial
        self.deliveries: list[Handle] = []
        self.data: list[bytes] = []
        self.size_bytes = 0
        self.waiting_cost = 0
        """About how many bytes Proton and we keep for those that wait for their outcome, once the run has ended."""
        self._sizes: list[int] = []
        self._accepted: list[Sequence[int]] = []
        self._refused: list[tuple[Sequence[int], BrokerError]] = []

    def end(self) -> None:
        """Hand it over."""
        self.link.end_run(self)

    def take_data(self) -> list[bytes]:
        """Return the deliveries' bytes, once, and keep their sizes."""
        data, self.data = self.data, []
        self._sizes = list(map(len, data))
        self.waiting_cost = self.size_bytes + KEEPING_BYTES * len(data)
        return data

    def done(self, positions: Sequence[int], error: BrokerError | None) -> None:
        """Deliveries have their outcome, which is given to Proton at the end of the turn."""
        if not (self._accepted or self._refused):
            self.link.state.outcomes.add(self.serial, self, None, None)
        if error is None:
            self._accepted.append(positions)
        else:
            self._refused.append((positions, error))

    def take_outcomes(self) -> tuple[Sequence[int], dict[int, BrokerError], int]:
        """The positions that have an outcome since the last call, in order; the errors of those refused; their cost."""
        accepted, self._accepted = self._accepted, []
        refused, self._refused = self._refused, []
        errors = {each: error for positions, error in refused for each in positions}
        if len(accepted) == 1 and not errors:
            positions = accepted[0]
        else:  # Proton merges outcomes that come in order
            positions = sorted([*errors, *(each for some in accepted for each in some)])
        cost = KEEPING_BYTES * len(positions) + sum(map(self._sizes.__getitem__, positions))
        self.waiting_cost -= cost
        return positions, errors, cost

    def finish(self, key: object, error: BrokerError | None) -> None:
        """Give Proton the outcomes."""
        del key, error
        self.link.finish_run(self)


def _cost_of(entry: Any) -> int:
    """What an unsettled delivery, or a run with some, counts in the flow control."""
    return entry.waiting_cost if isinstance(entry, IncomingRun) else entry[1]


def _large(pointer: Pointer, size: int) -> bytes:
    """The bytes of a delivery that the scratch buffer can't hold."""
    buffer: Any = ffi.new("char[]", size)
    taken = _recv(pointer, buffer, size)
    return _buffer(buffer, taken)[:] if taken > 0 else b""
