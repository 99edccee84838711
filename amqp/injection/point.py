"""Where faults and conditions strike: a link or a node, what comes to it, and how each effect is done.

Knows how each effect is done to work that ends in an outcome, one table for all. Does not know which comes next:
`conditions.engine` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ...broker import service_errors
from ...broker.address import parse_address
from ...broker.clock import Timer
from ...broker.errors import BrokerError, Condition
from ...broker.lazy_dataclass import dataclass
from ...broker.message.message import Message, parse_message, split_batch
from ...conditions.engine import Conditions
from ...conditions.faults import FaultOperation
from ...conditions.strikes import Attempt, Discharge, Effect, Strike
from ..link_context import LinkContext
from ..nodes.requests import Request
from ..wire.engine import AttachRequest, Pointer, read_attach
from ..wire.link import Done

_NOTED: Final[Mapping[FaultOperation | Discharge, str]] = {
    FaultOperation.SEND: "send",
    FaultOperation.SETTLE: "settlement",
    FaultOperation.RENEW: "renewal",
}
"""The operations with known messages, as people call them: strikes on them are part of the messages' stories."""


def _one() -> int:
    return 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InjectionPoint:
    """Where faults are injected: a link (without `pointer` the management node) to `address` on a connection."""

    conditions: Conditions
    connection: LinkContext
    pointer: Pointer | None
    address: str

    def next_strike(
        self,
        operation: FaultOperation | Discharge,
        count: Callable[[], int] = _one,
        *,
        request: Request | None = None,
        data: bytes = b"",
        batch: bool = False,
        tokens: Sequence[bytes] = (),
    ) -> Strike | None:
        """What happens to an operation that is done now; a fault with a count is used up by it.

        `request` is what a node is asked, `data` what is sent, `tokens` are the locks that it is about.
        """
        strike = self._next_strike(operation, count, request, data, batch=batch)
        if strike is not None and operation in _NOTED:
            self.note(strike.cause, _NOTED[operation], strike.what, data=data, batch=batch, tokens=tokens)
        return strike

    def note(
        self,
        cause: str,
        operation: str,
        what: str,
        *,
        data: bytes = b"",
        batch: bool = False,
        tokens: Sequence[bytes] = (),
    ) -> None:
        """Note a strike in the stories of the messages that are sent, or locked with these tokens."""
        broker = self.connection.broker
        if not broker.strikes.are_noted:
            return
        facts = {"cause": cause, "operation": operation, "what": what, "by": self.connection.client_name}
        if data:
            broker.strikes.note_send(self.address, data, facts, batch=batch)
        if tokens:
            broker.strikes.note_locks(self.address, tokens, facts)

    def _next_strike(
        self,
        operation: FaultOperation | Discharge,
        count: Callable[[], int],
        request: Request | None,
        data: bytes,
        *,
        batch: bool,
    ) -> Strike | None:
        watch = self.connection.watch
        if watch is not None and self.pointer is not None:
            watch.used(self.pointer)
        if not self.conditions.are_set:
            return None
        return self.conditions.strike(
            Attempt(
                operation,
                self.address,
                count,
                request="" if request is None else (request.text("operation") or "").removeprefix("com.microsoft:"),
                body={} if request is None or not isinstance(request.body, dict) else request.body,
                first=lambda: _first_message(data, batch=batch),
                size_bytes=len(data),
                is_batch=batch,
                link=self.name_of_link,
            )
        )

    def name_of_link(self) -> str:
        """The link as the service's texts name it."""
        return "" if self.pointer is None else self.connection.tracker.name_of_link(read_attach(self.pointer).name)

    def may_receive(self) -> bool:
        """Whether a client that gives credit gets messages; credit can't be rejected: a busy server detaches."""
        strike = self.next_strike(FaultOperation.RECEIVE)
        if strike is None or strike.effect is Effect.LIMIT:
            return True
        self.end(strike)
        return False

    def end(self, strike: Strike) -> None:
        """End the link, or the connection, in place of an operation that can't be refused."""
        if strike.effect is Effect.CUT:
            self.cut()
        else:
            self.detach(strike.error)

    def detach(self, error: BrokerError | None) -> None:
        """Detach the link, or those of the node, once the operation under way has returned; None: a forced detach."""
        asyncio.get_running_loop().call_soon(self._detach, error)

    def _detach(self, error: BrokerError | None) -> None:
        pointers = [self.pointer] if self.pointer is not None else self._links_of_node()
        for pointer in pointers:
            loss = error or detach_error_of(self.connection, read_attach(pointer), Condition.DETACH_FORCED)
            self.connection.requests.detach(pointer, loss)

    def _links_of_node(self) -> list[Pointer]:
        key = parse_address(self.address).key
        found: list[Pointer] = []
        for pointer in self.connection.wire.links:
            address = parse_address(read_attach(pointer).address)
            if address.management and address.key == key:
                found.append(pointer)
        return found

    def used(self, link_name: str | None) -> None:
        """Something was done for the link of that name by a request."""
        watch = self.connection.watch
        if watch is not None and link_name is not None:
            for pointer in self.connection.wire.links:
                if read_attach(pointer).name == link_name:
                    watch.used(pointer)

    def cut(self) -> None:
        """Abort the connection once the operation under way has returned."""
        asyncio.get_running_loop().call_soon(self.connection.requests.abort)

    def later(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        """Call after a while of the broker's time."""
        clock = self.connection.clock
        return clock.call_at(clock.now_ms() + delay_ms, call)

    async def wait(self, delay_ms: int) -> None:
        """Wait for a while of the broker's time."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.later(delay_ms, lambda: None if over.done() else over.set_result(None))
        await over


Work = Callable[[Done], None]


def _refuse(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    if strike.delay_ms:
        point.later(strike.delay_ms, partial(done, strike.error))
    else:
        done(strike.error)


def _end_only(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    point.end(strike)


def _ignore(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    pass  # no outcome, ever


def _do_later(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    point.later(strike.delay_ms, partial(work, done))


def _answer_later(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    work(lambda error: ignore_timer(point.later(strike.delay_ms, partial(done, error))))


def _forgotten(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    work(ignore_outcome)


def _forgotten_and_cut(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    work(lambda _: point.cut())


def _forgotten_and_detached(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    work(lambda _: point.detach(strike.error))


EFFECTS: Final[Mapping[Effect, Callable[[InjectionPoint, Strike, Work, Done], None]]] = {
    Effect.REFUSE: _refuse,
    Effect.DETACH: _end_only,
    Effect.CUT: _end_only,
    Effect.IGNORE: _ignore,
    Effect.HOLD: _do_later,
    Effect.DELAY: _answer_later,
    Effect.FORGET: _forgotten,
    Effect.FORGET_AND_CUT: _forgotten_and_cut,
    Effect.FORGET_AND_DETACH: _forgotten_and_detached,
}
"""What an effect does to work that ends in `done`. A lost lock depends on the lock, a limit on what is limited: both
are done where that is known."""


def detach_error_of(connection: LinkContext, request: AttachRequest, condition: Condition) -> BrokerError:
    """Why a link is lost that is detached on purpose: in the service's words for that condition."""
    if condition is Condition.SERVER_BUSY:
        return service_errors.throttled(connection.broker.name)
    return service_errors.link_closed(connection.tracker.name_of_link(request.name), condition, sends=request.sends)


def ignore_outcome(error: BrokerError | None) -> None:
    """The outcome of work whose client gets none."""


def ignore_timer(timer: Timer) -> None:
    """The timer of an outcome that comes in any case."""


def _first_message(data: bytes, *, batch: bool) -> Message | None:
    """The message of a delivery, or the first of its batch; None for one that can't be read."""
    with suppress(BrokerError):
        return parse_message(split_batch(data)[0] if batch else data)
    return None
