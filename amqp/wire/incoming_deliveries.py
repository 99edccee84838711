"""Links on which the client sends: deliveries in, outcomes out, and the credit for more.

Everything here happens once per message. Knows how a delivery is taken from Proton, whole or part by part, and counts
the credit that goes back with outcomes. Does not know what a delivery means: subclasses do, in `receive`. Plain
deliveries of one read of the socket travel together (`run`) where the link takes runs; others come one by one.
"""

from __future__ import annotations

from typing import Any, Final

from ...broker.errors import BrokerError
from ...broker.service_errors import too_large
from ...codec.sections import data_sections_max
from .buffers import DELIVERY_BYTES, buffers
from .engine import Pointer, ffi, lib
from .flow import LinkState
from .link import COUNT_MASK, ConnectionState, Link, drop, link_credit, reject
from .loops import ACCEPTED, Handle, accept, delivery_of, handle_of, take_deliveries
from .run import Run
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


class IncomingDeliveries(Link):
    """A link on which the client sends. Subclasses say in `receive` what happens to whole deliveries."""

    __slots__ = (
        "_credit_half",
        "_flow",
        "_given",
        "_holds_credit",
        "_initial_count",
        "_is_batch",
        "_owed",
        "_partial_bytes",
        "_run",
        "bytes_max",
        "takes_runs",
    )

    def __init__(self, state: ConnectionState, pointer: Pointer, *, bytes_max: int, credit: int) -> None:
        super().__init__(state, pointer)
        self.bytes_max = bytes_max
        self.takes_runs = False
        """Whether plain deliveries of one read of the socket come together."""
        self._run: Run | None = None
        self._flow = state.flow
        self._is_batch = False  # the delivery that is arriving
        self._credit_half = credit // 2
        self._owed = 0  # credit that goes back to the client
        self._given = credit
        self._holds_credit = False
        self._partial_bytes = 0
        self._initial_count = 0
        _flow(pointer, credit)

    # ---- what subclasses do

    def receive(self, run: Run) -> None:
        """Take whole deliveries: `run.items`, each on its own; `run.done` gets their outcomes, at once or later."""
        raise AssertionError(run)

    # ---- deliveries

    def expect_batch(self) -> None:
        """The delivery that comes next is a batch."""
        self._is_batch = True

    def take_run(self, collector: Handle) -> bool:
        """Take plain deliveries at the head of `collector` into the run of this link; False if there is none."""
        if not self.takes_runs or self._is_batch or self._partial_bytes:
            return False
        run, size_bytes = self._run, 0
        if run is None:
            state = self.state
            run = self._run = Run(self, next(state.serials), [])
            state.runs.append(run)
        else:
            size_bytes = sum(map(len, run.items))
        items, bytes_max = run.items, RUN_BYTES_MAX - size_bytes
        taken_bytes = take_deliveries(
            collector, self.handle, run.deliveries, items, self.bytes_max, RUN_MESSAGES_MAX, bytes_max
        )
        if taken_bytes > bytes_max or len(items) >= RUN_MESSAGES_MAX:
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
            drop(delivery, self.state.refusal(too_large(size, self.bytes_max), self.pointer))
            return
        pointer = self.pointer
        if size > DELIVERY_BYTES:
            data = _read_large(pointer, size)
        else:
            taken = _recv(pointer, buffers.delivery, size)
            data = buffers.delivery_view[:taken] if taken > 0 else b""
            if taken < 0 < size:
                self._on_abort(delivery)
                return
        presettled = _settled(delivery)
        transaction = transaction_of(delivery) if _remote_state(delivery) == TRANSACTIONAL else None
        _advance(pointer)
        self._receive_alone(delivery, data, transaction, presettled=bool(presettled))

    def _receive_alone(self, delivery: Pointer, data: bytes, transaction: bytes | None, *, presettled: bool) -> None:
        """Take a delivery that travels alone: a batch, in a transaction, settled by its sender, or on a node."""
        state = self.state
        if state.runs:
            state.end_runs()
        run = self._run = Run(
            self,
            next(state.serials),
            [data],
            is_settled=presettled,
            whole=self._is_batch,
            transaction=transaction,
            answer=None if transaction is None else (TRANSACTIONAL, transactional_state(transaction, ACCEPTED)),
        )
        self._is_batch = False
        run.deliveries.append(handle_of(delivery))
        if presettled:
            _settle(delivery)
        self.end_run(run)

    def end_run(self, run: Run) -> None:
        """Count a run that is complete, and let the subclass have it; nothing if it was, or its link has gone."""
        if self._run is not run:
            return
        self._run = None
        items = run.items
        if items:
            cost = sum(map(len, items)) + KEEPING_BYTES * len(items)
            if run.whole:
                cost += MEMBER_BYTES * data_sections_max(items[0])
            self._open[run.serial] = cost, len(items)
            self._flow.pending_bytes += cost
            self.receive(run)

    def _on_part(self, size: int) -> None:
        """Some frames of a delivery are here; `size` bytes are kept by Proton."""
        if size > self.bytes_max:
            self._on_excess(size)
            _recv(self.pointer, buffers.delivery, DELIVERY_BYTES)
        else:
            self._set_partial(size)

    def _set_partial(self, size: int) -> None:
        """Count the bytes of the delivery that is arriving."""
        self._flow.partial_bytes += size - self._partial_bytes
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

    def finish(self, run: Run) -> None:
        """Answer deliveries of a run with accepted or rejected, in their order, and give their credit back.

        A refusal of a delivery that the client has settled closes the link: the client must learn of the loss.
        """
        positions, errors = run.take_outcomes()
        waiting = self._open.pop(run.serial, None)
        if waiting is None:
            for error in errors.values():
                self.state.log.info("delivery refused after its link", reason=str(error))
            return
        waiting_cost, waiting_count = waiting
        count = len(positions)
        assert count <= waiting_count, "a delivery has one outcome"
        cost = waiting_cost if count == waiting_count else waiting_cost * count // waiting_count
        if count < waiting_count:
            self._open[run.serial] = waiting_cost - cost, waiting_count - count
        flow = self._flow
        flow.pending_bytes -= cost
        if flow.is_full:
            flow.unwritten_bytes += cost
        if run.is_settled:
            for error in errors.values():
                self.state.log.warning("settled delivery refused", reason=str(error))
                self.state.detach(self.pointer, error)
            if errors:
                return
        elif errors or run.answer is not None:
            for position in positions:
                self._answer(run, position, errors.get(position))
        else:
            accept(run.deliveries, positions)
        self._owed += count
        if self._owed > self._credit_half and not self._holds_credit:
            self._give_credit()

    def _answer(self, run: Run, position: int, error: BrokerError | None) -> None:
        """Settle a delivery of a run that is not plainly accepted as a whole."""
        delivery = delivery_of(run.deliveries[position])
        if error is not None:
            reject(delivery, self.state.refusal(error, self.pointer))
        elif run.answer is None:
            _update(delivery, ACCEPTED)
        else:
            code, encoded = run.answer
            set_state_data(delivery, encoded)
            _update(delivery, code)
        _settle(delivery)

    # ---- credit

    def _owe_credit(self) -> None:
        """The credit of a delivery goes back, together with that of others."""
        self._owed += 1
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
        self._flow.pending_bytes -= sum(cost for cost, _ in self._open.values())
        self._set_partial(0)
        self._run = None
        super().gone()


def _read_large(pointer: Pointer, size: int) -> bytes:
    """The bytes of a delivery that `buffers.delivery` can't hold."""
    buffer: Any = ffi.new("char[]", size)
    taken = _recv(pointer, buffer, size)
    return _buffer(buffer, taken)[:] if taken > 0 else b""
