"""Links over Proton's low-level functions: what both directions have in common, and the loop over Proton's events.

Why not the wrapper classes: through them a minimal broker did 28 000 messages/s in and 40 000 out, through these calls
several times as many. What happens once per message is in here and in `incoming_deliveries` and `outgoing_deliveries`,
and nothing else is. Knows Proton's pointers and its traps; knows nothing of the broker: subclasses in `links` do.

The traps:

* `advance` before `settle`: the other order frees the delivery while its event is at the head of the collector, the
  next delivery reuses the address, its event is merged away, and every second transfer is lost.
* Tags are bytes here (lock tokens are no UTF-8).
* A pointer to a delivery is valid until we settle it or free its link. `_open` holds exactly what is unsettled: the
  runs of a client that sends, by serial; the deliveries to one that receives, by token, with the run of those that wait
  for an outcome or are part of a transaction. Settling takes an entry out, and the end of the link empties it. An
  outcome that comes later finds nothing and is dropped.
* Proton merges dispositions into ranges only when they are updated in order of their ids (`run`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from ...broker.errors import BrokerError
from ...broker.ledger import MemoryAccount
from .buffers import DELIVERY_BYTES, buffers
from .engine import Engine, Pointer, lib, session_of, set_condition
from .flow import FlowControl, FlowReplies, LinkState
from .loops import Handle, handle_of
from .run import Run, serial_of

PN_DELIVERY: Final = int(lib.PN_DELIVERY)
PN_LINK_FLOW: Final = int(lib.PN_LINK_FLOW)
REJECTED: Final = int(lib.PN_REJECTED)
RELEASED: Final = int(lib.PN_RELEASED)
MODIFIED: Final = int(lib.PN_MODIFIED)
RECEIVED: Final = int(lib.PN_RECEIVED)

LOOK_EVERY: Final = 8
"""Events: looking at the time costs a tenth of the cheapest one."""

COUNT_MASK: Final = 0xFFFF_FFFF
"""Of a delivery-count: a serial number of 32 bits."""
_peek, _pop, _type = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_event_delivery, _event_link, _delivery_link = lib.pn_event_delivery, lib.pn_event_link, lib.pn_delivery_link
_credit = lib.pn_link_credit

Handler = Callable[[Pointer], None]
"""Handles an event of Proton, or a delivery."""
Done = Callable[[BrokerError | None], None]
"""Called once with the outcome of a delivery: None is success."""


class ConnectionState:
    """What a link sees of its connection. `schedule_flush` has outcomes applied and Proton's output written at the end
    of this turn of the event loop; `detach` closes or refuses a link from our side; `refusal` gives an error the tail
    that refusals of deliveries have."""

    def __init__(
        self,
        log: Any,
        memory: MemoryAccount,
        schedule_flush: Callable[[], None],
        detach: Callable[[Pointer, BrokerError], None],
        refusal: Callable[[BrokerError, Pointer], BrokerError],
    ) -> None:
        self.log = log
        self.memory = memory
        """What the ledger holds against the client."""
        self.schedule_flush = schedule_flush
        self.detach = detach
        self.refusal = refusal
        self.links: dict[Pointer, Link] = {}
        """The attached links."""
        self.flow = FlowControl()
        self.replies = FlowReplies()
        self.runs: list[Run] = []
        """Those that gather; `end_runs` ends them before anything else is done on the connection."""
        self.answered: list[Run] = []
        """Those with outcomes that gather during a turn of the event loop; `finish_runs` gives them to Proton."""
        self.serials = count(1)
        """Of runs, in the order in which they begin."""
        self.sending: set[Link] = set()
        """Links of which Proton may have deliveries."""
        self.sends_without_tokens = False
        """Whether deliveries may be in Proton's output whose tags are to be empty."""

    def end_runs(self) -> None:
        """Hand the runs over that have gathered, in the order of their beginnings; to be called if there are any."""
        while self.runs:
            ended = self.runs[:]
            self.runs.clear()
            for run in ended:
                run.link.end_run(run)

    def finish_runs(self) -> None:
        """Give Proton the outcomes that have gathered; to be called if there are any."""
        while self.answered:
            answered, self.answered = self.answered, []
            answered.sort(key=serial_of)
            for run in answered:
                run.link.finish(run)

    def expect_deliveries_without_tokens(self) -> None:
        """From now on Proton's output may have deliveries whose tags are to be empty."""
        self.sends_without_tokens = True


class Link:
    """One attached link: its pointer, and what happens on it."""

    __slots__ = ("_open", "_peer_count", "_wants_reply", "_when_settled", "handle", "pointer", "session", "state")

    def __init__(self, state: ConnectionState, pointer: Pointer) -> None:
        self.state = state
        self.pointer = pointer
        self.handle = handle_of(pointer)
        self.session = session_of(pointer)
        self._wants_reply = False  # the flow that comes next wants an answer
        self._peer_count = 0  # the delivery-count in that flow
        self._when_settled: Callable[[], None] | None = None
        self._open: dict[Any, Any] = {}

    def take_run(self, collector: Handle) -> bool:
        """Take the plain deliveries or dispositions of this link at the head of `collector`; False if there is none."""
        return False

    def on_delivery(self, delivery: Pointer) -> None:
        """Something arrived for a delivery that `take_run` left: bytes, a disposition, or both."""
        raise AssertionError(delivery)

    def expect_batch(self) -> None:
        """The delivery that comes next is a batch."""

    def expect_reply(self, peer_count: int) -> None:
        """The flow that comes next wants an answer; the client's delivery-count in it is `peer_count`."""
        self._wants_reply = True
        self._peer_count = peer_count

    def on_flow(self) -> None:
        """Credit may have changed."""
        if self._takes_reply():
            self.show_state()

    def _takes_reply(self) -> bool:
        """Whether this flow wants an answer, which is given now."""
        wants_reply, self._wants_reply = self._wants_reply, False
        return wants_reply

    def show_state(self) -> None:
        """Have a flow written with the link's state [AMQP 2.6.7]."""
        self.state.replies.add_echo(self.pointer, self.link_state)
        self.state.schedule_flush()

    def link_state(self) -> LinkState:
        """The link's state, as it is once Proton's output is written."""
        raise AssertionError

    def hold(self) -> None:
        """The socket takes no more: neither does the link."""

    def end_run(self, run: Run) -> None:
        """Hand over a run that is complete; nothing if it was, or its link has gone."""
        raise AssertionError(run)

    def finish(self, run: Run) -> None:
        """Give Proton the outcomes that a run has got, but for deliveries that are not there any more."""
        raise AssertionError(run)

    def unsettled_bytes(self) -> int:
        """What is kept for deliveries that the client has yet to settle; nothing of a client that sends."""
        return 0

    def has_unsettled(self) -> bool:
        return bool(self._open)

    def linger(self, when_settled: Callable[[], None]) -> bool:
        """The link is closed: only settle from now on, until `gone`, and call `when_settled` when all is settled.

        False if nothing can be settled any more.
        """
        self._when_settled = when_settled
        return False

    def gone(self) -> None:
        """The link is closed or lost: no pointer of it may be used any more."""
        self._open.clear()


def run_events(
    events: Pointer,
    collector: Handle,
    state: ConnectionState,
    handlers: Mapping[int, Handler],
    late: Handler,
    is_late: Callable[[], bool],
) -> bool:
    """Handle the events that Proton has in its collector `events`, until `is_late()`; whether that was all of them.

    Deliveries and flows here, deliveries of links that have gone through `late(delivery)`, others through those of
    `handlers` that there are, by the type of event. `collector` is the handle of `events`. Runs of deliveries and
    dispositions go on until something else is done for an event, or the last: nothing overtakes them.
    """
    handled = 0
    peek, pop, kind_of, find, runs = _peek, _pop, _type, state.links.get, state.runs
    while True:
        event = peek(events)
        if not event:
            if runs:
                state.end_runs()
            return True
        kind = kind_of(event)
        if kind == PN_DELIVERY:
            delivery = _event_delivery(event)
            link = find(_delivery_link(delivery))
            if link is None:
                late(delivery)
            elif link.take_run(collector):
                continue
            else:
                link.on_delivery(delivery)
        elif kind == PN_LINK_FLOW:
            if runs:
                state.end_runs()
            link = find(_event_link(event))
            if link is not None:
                link.on_flow()
        elif kind in handlers:
            if runs:
                state.end_runs()
            handlers[kind](event)
        pop(events)
        handled += 1
        if not handled % LOOK_EVERY and is_late():
            if runs:
                state.end_runs()
            return False


def link_of_next(engine: Engine, kind: int, links: dict[Pointer, Link]) -> Link | None:
    """The link of the next event if that is of `kind`; to be called when its frame was pushed alone."""
    event = _peek(engine.collector)
    if not event or _type(event) != kind:
        return None
    return links.get(_delivery_link(_event_delivery(event)) if kind == PN_DELIVERY else _event_link(event))


def reject(delivery: Pointer, error: BrokerError) -> None:
    """Update a delivery with rejected(error)."""
    set_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), error)
    lib.pn_delivery_update(delivery, REJECTED)


def drop(delivery: Pointer, error: BrokerError) -> None:
    """A delivery on a link that we refused or closed: its bytes go; an unsettled one is rejected with `error`."""
    if not lib.pn_delivery_readable(delivery):
        return
    if lib.pn_delivery_partial(delivery):
        lib.pn_link_recv(_delivery_link(delivery), buffers.delivery, DELIVERY_BYTES)
        return
    lib.pn_link_advance(_delivery_link(delivery))
    if not lib.pn_delivery_settled(delivery):
        reject(delivery, error)
    lib.pn_delivery_settle(delivery)


def link_credit(pointer: Pointer) -> int:
    """The credit that is left on a link, as Proton counts it."""
    return max(0, int(_credit(pointer)))
