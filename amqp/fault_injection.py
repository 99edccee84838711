"""What is put between a link and the broker while faults or conditions are on: a send, a receiver and an answer that
may fail.

Knows how each effect is done to an operation of a client, one table for all. Does not know which comes next:
`conditions.fault_table` and `conditions.engine` decide. Each object belongs to the link or node that it was put into.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ..broker import service_errors
from ..broker.address import parse_address
from ..broker.api import Abandon, Outcome, RunDone
from ..broker.clock import Timer
from ..broker.errors import BrokerError, Condition
from ..broker.message.message import parse_message, split_batch
from ..conditions.engine import Conditions
from ..conditions.fault_table import Fault, FaultKind, FaultOperation, FaultTable
from ..conditions.strikes import Attempt, Effect, Strike
from .link_context import LinkContext
from .links.incoming import Send
from .links.message_sessions import MessageSessionLink
from .links.outgoing import OutgoingLink, ReceiverHandle
from .nodes.management import refusal
from .nodes.operations import Body
from .nodes.requests import Answer, Request, Response
from .wire.engine import AttachRequest, Pointer, read_attach
from .wire.link import Done

_OPERATIONS: Final[Mapping[str | None, FaultOperation]] = {
    "com.microsoft:renew-lock": FaultOperation.RENEW,
    "com.microsoft:renew-session-lock": FaultOperation.RENEW,
    "com.microsoft:update-disposition": FaultOperation.SETTLE,
}
_FAULT_EFFECTS: Final[Mapping[FaultKind, Effect]] = {
    FaultKind.SERVER_BUSY: Effect.REFUSE,
    FaultKind.DROPPED_LINK: Effect.DETACH,
    FaultKind.DROPPED_CONNECTION: Effect.CUT,
    FaultKind.LOST_LOCK: Effect.LOSE_LOCK,
    FaultKind.DELAYED_CONFIRMATION: Effect.DELAY,
    FaultKind.MISSING_CONFIRMATION: Effect.FORGET,
}
ASSOCIATED_LINK: Final = "associated-link-name"


def _one() -> int:
    return 1


def _no_key() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class InjectionPoint:
    """Where faults are injected: a link (without `pointer` the management node) to `address` on a connection."""

    table: FaultTable
    conditions: Conditions
    connection: LinkContext
    pointer: Pointer | None
    address: str

    def next_strike(
        self,
        operation: FaultOperation,
        count: Callable[[], int] = _one,
        *,
        request: str = "",
        has_key: Callable[[], bool] = _no_key,
    ) -> Strike | None:
        """What happens to an operation that is done now; a fault with a count is used up by it."""
        watch = self.connection.watch
        if watch is not None and self.pointer is not None:
            watch.used(self.pointer)
        fault = self.table.next_fault(self.address, operation)
        if fault is not None:
            return self._strike_of(fault)
        if not self.conditions.are_on:
            return None
        return self.conditions.strike(Attempt(operation, self.address, count, request, has_key))

    def _strike_of(self, fault: Fault) -> Strike:
        effect = _FAULT_EFFECTS[fault.kind]
        error = service_errors.throttled(self.connection.broker.namespace) if effect is Effect.REFUSE else None
        return Strike(effect, error, fault.delay_ms)

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
            loss = error or loss_of(self.connection, read_attach(pointer), Condition.DETACH_FORCED)
            self.connection.detach(pointer, loss)

    def _links_of_node(self) -> list[Pointer]:
        key = parse_address(self.address).key
        found: list[Pointer] = []
        for pointer in self.connection.links:
            address = parse_address(read_attach(pointer).address)
            if address.management and address.key == key:
                found.append(pointer)
        return found

    def used(self, link_name: str | None) -> None:
        """Something was done for the link of that name by a request."""
        watch = self.connection.watch
        if watch is not None and link_name is not None:
            for pointer in self.connection.links:
                if read_attach(pointer).name == link_name:
                    watch.used(pointer)

    def cut(self) -> None:
        """Abort the connection once the operation under way has returned."""
        asyncio.get_running_loop().call_soon(self.connection.abort)

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


def _refused(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    del point, work
    done(strike.error)


def _ended(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    del work, done
    point.end(strike)


def _ignored(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    del point, strike, work, done


def _held(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    point.later(strike.delay_ms, partial(work, done))


def _delayed(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    work(lambda error: _ignore_timer(point.later(strike.delay_ms, partial(done, error))))


def _forgotten(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    del point, strike, done
    work(_ignore_outcome)


def _forgotten_and_cut(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    del strike, done
    work(lambda _: point.cut())


def _forgotten_and_detached(point: InjectionPoint, strike: Strike, work: Work, done: Done) -> None:
    del done
    work(lambda _: point.detach(strike.error))


EFFECTS: Final[Mapping[Effect, Callable[[InjectionPoint, Strike, Work, Done], None]]] = {
    Effect.REFUSE: _refused,
    Effect.DETACH: _ended,
    Effect.CUT: _ended,
    Effect.IGNORE: _ignored,
    Effect.HOLD: _held,
    Effect.DELAY: _delayed,
    Effect.FORGET: _forgotten,
    Effect.FORGET_AND_CUT: _forgotten_and_cut,
    Effect.FORGET_AND_DETACH: _forgotten_and_detached,
}
"""What an effect does to work that ends in `done`. A lost lock depends on the lock, a limit on what is limited: both
are done where that is known."""


class FaultySend:
    """Stores a delivery, or fails."""

    def __init__(self, inner: Send, point: InjectionPoint) -> None:
        self._inner = inner
        self._point = point

    def __call__(self, data: bytes, *, batch: bool, done: Done) -> None:
        """Store one delivery, or fail."""
        strike = self._point.next_strike(
            FaultOperation.SEND,
            lambda: _message_count(data, batch=batch),
            has_key=lambda: _has_key(data, batch=batch),
        )
        work = partial(self._inner, data, batch=batch)
        if strike is None:
            work(done=done)
        else:
            EFFECTS[strike.effect](self._point, strike, lambda then: work(done=then), done)


class FaultyConsumer:
    """A way out of an entity on which receiving and settling may fail, and messages may come late."""

    def __init__(self, inner: ReceiverHandle, point: InjectionPoint, link: OutgoingLink) -> None:
        self._inner = inner
        self.address = inner.address
        self._point = point
        self._link = link
        self._wanted = 0
        self._allowed = 0
        self._timer: Timer | None = None
        """Set while some of the credit is kept back."""
        link.observe(self.delivered)

    def set_credit(self, count: int) -> None:
        """Pass credit on, some of it later, or fail."""
        self._wanted = count
        if self._timer is not None or not count:
            self._allow(min(self._allowed, count) if self._timer is not None else count)
            return
        strike = self._point.next_strike(FaultOperation.RECEIVE, lambda: count)
        if strike is None:
            self._allow(count)
        elif strike.effect is Effect.LIMIT:
            self._timer = self._point.later(strike.delay_ms, self._go_on)
            self._allow(min(count, strike.count))
        else:
            self._point.end(strike)

    def _allow(self, count: int) -> None:
        self._allowed = count
        self._inner.set_credit(count)

    def _go_on(self) -> None:
        self._timer = None
        self.set_credit(self._wanted)

    def delivered(self, count: int) -> None:
        """The client got messages."""
        point = self._point
        self._wanted = max(0, self._wanted - count)
        self._allowed = max(0, self._allowed - count)
        if point.connection.watch is not None and point.pointer is not None:
            point.connection.watch.used(point.pointer)
        point.conditions.delivered(point.address, count)

    def drain(self, drained: Callable[[], None]) -> None:
        """Pass a drain on."""
        self._inner.drain(drained)

    def settle(self, token: bytes, outcome: Outcome, done: Done | None) -> None:
        """Settle one delivery, or fail."""
        strike = self._point.next_strike(FaultOperation.SETTLE)
        if strike is None:
            self._inner.settle(token, outcome, done)
        elif strike.effect is Effect.LOSE_LOCK:
            self._lose(token, done or _ignore_outcome)
        else:
            work = partial(self._inner.settle, token, outcome)
            EFFECTS[strike.effect](self._point, strike, work, done or _ignore_outcome)

    def settle_run(self, run: Sequence[bytes], outcome: Outcome, done: RunDone | None) -> None:
        """Settle deliveries, each of which may fail."""
        for position, token in enumerate(run):
            self.settle(token, outcome, None if done is None else partial(done, (position,)))

    def close(self) -> None:
        """The link is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._inner.close()

    def _lose(self, token: bytes, done: Done) -> None:
        """End the lock as its time would: the attempt counts. In a message session it is the session's lock."""
        link = self._link
        if isinstance(link, MessageSessionLink):
            error = service_errors.session_lock_lost()
            self._inner.close()
            done(error)
            link.lose(error)
        else:
            self._inner.settle(token, Abandon({}), lambda _: done(service_errors.lock_lost()))


class FaultyAnswer:
    """Answers requests to a management node, or fails."""

    def __init__(self, inner: Answer, point: InjectionPoint) -> None:
        self._inner = inner
        self._point = point

    async def __call__(self, request: Request, bytes_max: int) -> Response | None:
        """The response; None is none at all."""
        name = request.text("operation") or ""
        point = self._point
        point.used(request.text(ASSOCIATED_LINK))
        strike = point.next_strike(
            _OPERATIONS.get(name, FaultOperation.REQUEST),
            lambda: _messages_asked(request),
            request=name.removeprefix("com.microsoft:"),
        )
        if strike is None:
            return await self._inner(request, bytes_max)
        match strike.effect:
            case Effect.REFUSE:
                return refusal(request, self._tracked(strike.error or service_errors.lock_lost()))
            case Effect.LOSE_LOCK:
                return refusal(request, self._tracked(await self._lose(request)))
            case Effect.DETACH | Effect.CUT:
                point.end(strike)
                return None
            case Effect.IGNORE:
                return None
            case Effect.HOLD:
                await point.wait(strike.delay_ms)
            case Effect.LIMIT:
                body = request.body if isinstance(request.body, dict) else {}
                request = replace(request, body={**body, "message-count": strike.count})
            case _:
                pass
        response = await self._inner(request, bytes_max)
        return await self._after(strike, response)

    async def _after(self, strike: Strike, response: Response | None) -> Response | None:
        """What becomes of the response of a request that is done."""
        match strike.effect:
            case Effect.DELAY:
                await self._point.wait(strike.delay_ms)
            case Effect.FORGET:
                return None
            case Effect.FORGET_AND_CUT:
                self._point.cut()
                return None
            case Effect.FORGET_AND_DETACH:
                self._point.detach(strike.error)
                return None
            case _:
                pass
        return response

    def _tracked(self, error: BrokerError) -> BrokerError:
        return self._point.connection.tracker.answered(error, self._point.address)

    async def _lose(self, request: Request) -> BrokerError:
        """End the locks that a request names; returns the error of the response."""
        if isinstance(request.body, dict) and "session-id" in request.body and "lock-tokens" not in request.body:
            return service_errors.session_lock_lost()
        with suppress(BrokerError):  # they are lost already, or there are none
            await self._point.connection.broker.settle(
                self._point.address, Body(request.body).lock_tokens(), Abandon({})
            )
        return service_errors.lock_lost()


def loss_of(connection: LinkContext, request: AttachRequest, condition: Condition) -> BrokerError:
    """Why a link is lost that is detached on purpose: in the service's words for that condition."""
    if condition is Condition.SERVER_BUSY:
        return service_errors.throttled(connection.broker.namespace)
    return service_errors.link_closed(connection.tracker.name_of_link(request.name), condition, sends=request.sends)


def _ignore_outcome(error: BrokerError | None) -> None:
    """The outcome of work whose client gets none."""


def _ignore_timer(timer: Timer) -> None:
    """The timer of an outcome that comes in any case."""


# ---- what behaviours ask of an operation


def _message_count(data: bytes, *, batch: bool) -> int:
    """How many messages a delivery has; one that can't be read is refused by the broker."""
    with suppress(BrokerError):
        return len(split_batch(data)) if batch else 1
    return 1


def _has_key(data: bytes, *, batch: bool) -> bool:
    """Whether a delivery belongs to one partition: its message, or the first of its batch, has a key."""
    with suppress(BrokerError):
        message = parse_message(split_batch(data)[0] if batch else data)
        return message.session_id is not None or message.partition_key is not None
    return False


def _messages_asked(request: Request) -> int:
    count = request.body.get("message-count") if isinstance(request.body, dict) else None
    return count if isinstance(count, int) else 1
