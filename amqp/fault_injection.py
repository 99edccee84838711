"""What is put between a link and the broker while faults are set: a send, a receiver and an answer that may fail.

Knows how each kind of fault is done to an operation of a client, one table for all. Does not know which fault comes
next: `broker.admin.fault_table` decides. Each object belongs to the link or node that it was put into.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from ..broker import service_errors
from ..broker.address import parse_address
from ..broker.admin.fault_table import Fault, FaultKind, FaultOperation, FaultTable
from ..broker.api import Abandon, Outcome, RunDone
from ..broker.errors import BrokerError, Condition
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


@dataclass(frozen=True, slots=True)
class InjectionPoint:
    """Where faults are injected: a link (without `pointer` the management node) to `address` on a connection."""

    table: FaultTable
    connection: LinkContext
    pointer: Pointer | None
    address: str

    def next_fault(self, operation: FaultOperation) -> Fault | None:
        """The fault of an operation that happens now; a fault with a count is used up by it."""
        return self.table.next_fault(self.address, operation)

    def may_receive(self) -> bool:
        """Whether a client that gives credit gets messages; credit can't be rejected: a busy server detaches."""
        fault = self.next_fault(FaultOperation.RECEIVE)
        if fault is None:
            return True
        if fault.kind is FaultKind.DROPPED_CONNECTION:
            self.cut()
        else:
            self.detach(fault.kind)
        return False

    def detach(self, kind: FaultKind) -> None:
        """Detach the link, or those of the node, once the operation under way has returned."""
        asyncio.get_running_loop().call_soon(self._detach, kind)

    def refusal_of(self, kind: FaultKind) -> BrokerError:
        """The error with which a fault of that kind refuses an operation."""
        return REFUSALS[kind](self.connection.broker.namespace)

    def _detach(self, kind: FaultKind) -> None:
        pointers = [self.pointer] if self.pointer is not None else self._links_of_node()
        for pointer in pointers:
            self.connection.detach(pointer, reason_to_detach(self.connection, read_attach(pointer), kind))

    def _links_of_node(self) -> list[Pointer]:
        key = parse_address(self.address).key
        found: list[Pointer] = []
        for pointer in self.connection.links:
            address = parse_address(read_attach(pointer).address)
            if address.management and address.key == key:
                found.append(pointer)
        return found

    def cut(self) -> None:
        """Abort the connection once the operation under way has returned."""
        asyncio.get_running_loop().call_soon(self.connection.abort)

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call after a while of the broker's time."""
        clock = self.connection.clock
        clock.call_at(clock.now_ms() + delay_ms, call)


Work = Callable[[Done], None]


def _refused(point: InjectionPoint, fault: Fault, work: Work, done: Done) -> None:
    del work
    done(point.refusal_of(fault.kind))


def _dropped_link(point: InjectionPoint, fault: Fault, work: Work, done: Done) -> None:
    del work, done
    point.detach(fault.kind)


def _dropped_connection(point: InjectionPoint, fault: Fault, work: Work, done: Done) -> None:
    del fault, work, done
    point.cut()


def _delayed(point: InjectionPoint, fault: Fault, work: Work, done: Done) -> None:
    work(lambda error: point.later(fault.delay_ms, partial(done, error)))


def _missing(point: InjectionPoint, fault: Fault, work: Work, done: Done) -> None:
    del point, fault, done
    work(_ignore_outcome)


REFUSALS: Final[Mapping[FaultKind, Callable[[str], BrokerError]]] = {
    FaultKind.SERVER_BUSY: service_errors.throttled,
}
"""The faults that refuse an operation and do nothing else: the error, made from the namespace's name."""

EFFECTS: Final[Mapping[FaultKind, Callable[[InjectionPoint, Fault, Work, Done], None]]] = {
    **dict.fromkeys(REFUSALS, _refused),
    FaultKind.DROPPED_LINK: _dropped_link,
    FaultKind.DROPPED_CONNECTION: _dropped_connection,
    FaultKind.DELAYED_CONFIRMATION: _delayed,
    FaultKind.MISSING_CONFIRMATION: _missing,
}
"""What a fault does to work that ends in `done`; a lost lock depends on the lock and is done where that is known."""


class FaultySend:
    """Stores a delivery, or fails."""

    def __init__(self, inner: Send, point: InjectionPoint) -> None:
        self._inner = inner
        self._point = point

    def __call__(self, data: bytes, *, batch: bool, done: Done) -> None:
        """Store one delivery, or fail."""
        fault = self._point.next_fault(FaultOperation.SEND)
        work = partial(self._inner, data, batch=batch)
        if fault is None:
            work(done=done)
        else:
            EFFECTS[fault.kind](self._point, fault, lambda then: work(done=then), done)


class FaultyConsumer:
    """A way out of an entity on which receiving and settling may fail."""

    def __init__(self, inner: ReceiverHandle, point: InjectionPoint, link: OutgoingLink) -> None:
        self._inner = inner
        self.address = inner.address
        self._point = point
        self._link = link

    def set_credit(self, count: int) -> None:
        """Pass credit on, or fail."""
        if not count or self._point.may_receive():
            self._inner.set_credit(count)

    def drain(self, drained: Callable[[], None]) -> None:
        """Pass a drain on."""
        self._inner.drain(drained)

    def settle(self, token: bytes, outcome: Outcome, done: Done | None) -> None:
        """Settle one delivery, or fail."""
        fault = self._point.next_fault(FaultOperation.SETTLE)
        if fault is None:
            self._inner.settle(token, outcome, done)
        elif fault.kind is FaultKind.LOST_LOCK:
            self._lose(token, done or _ignore_outcome)
        else:
            work = partial(self._inner.settle, token, outcome)
            EFFECTS[fault.kind](self._point, fault, work, done or _ignore_outcome)

    def settle_run(self, run: Sequence[bytes], outcome: Outcome, done: RunDone | None) -> None:
        """Settle deliveries, each of which may fail."""
        for position, token in enumerate(run):
            self.settle(token, outcome, None if done is None else partial(done, (position,)))

    def close(self) -> None:
        """The link is gone."""
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
        operation = _OPERATIONS.get(request.text("operation"), FaultOperation.REQUEST)
        point = self._point
        fault = point.next_fault(operation)
        match None if fault is None else fault.kind:
            case FaultKind() as kind if kind in REFUSALS:
                return refusal(request, self._tracked(point.refusal_of(kind)))
            case FaultKind.LOST_LOCK:
                return refusal(request, self._tracked(await self._lose(request)))
            case FaultKind.DROPPED_LINK:
                point.detach(FaultKind.DROPPED_LINK)
                return None
            case FaultKind.DROPPED_CONNECTION:
                point.cut()
                return None
        response = await self._inner(request, bytes_max)
        if fault is not None and fault.kind is FaultKind.DELAYED_CONFIRMATION:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            point.later(fault.delay_ms, lambda: None if over.done() else over.set_result(None))
            await over
        return response if fault is None or fault.kind is FaultKind.DELAYED_CONFIRMATION else None

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


def reason_to_detach(connection: LinkContext, request: AttachRequest, kind: FaultKind) -> BrokerError:
    """Why a fault detaches a link, in the service's words: the error of a refusal, otherwise a forced detach."""
    if kind in REFUSALS:
        return REFUSALS[kind](connection.broker.namespace)
    return loss_of(connection, request, Condition.DETACH_FORCED)


def loss_of(connection: LinkContext, request: AttachRequest, condition: Condition) -> BrokerError:
    """Why a link is lost that is detached on purpose: in the service's words for that condition."""
    if condition is Condition.SERVER_BUSY:
        return service_errors.throttled(connection.broker.namespace)
    return service_errors.link_closed(connection.tracker.name_of_link(request.name), condition, sends=request.sends)


def _ignore_outcome(error: BrokerError | None) -> None:
    """The outcome of work whose client gets none."""
