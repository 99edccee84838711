"""What stands between a link and the broker while faults are set: a sender, a consumer and an answerer that may fail.

Knows how each kind of fault is done to what a client does, one table for all. Does not know which fault strikes:
`broker.faults` decides. Each object belongs to the link or node that it was put into.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from ..broker import service_errors
from ..broker.address import parse_address
from ..broker.admin.fault_table import Fault, FaultKind, FaultOperation, FaultTable
from ..broker.clock import Clock
from ..broker.errors import BrokerError, Condition
from ..broker.outcomes import Abandon, Outcome
from .links.message_sessions import MessageSessionLink
from .links.outgoing import OutgoingLink
from .links.ports import BrokerPort, ConsumerPort, SenderPort
from .nodes.management import refusal
from .nodes.operations import Body
from .nodes.requests import Answer, Node, Request, Response
from .tracking import Tracker
from .wire.deliveries import Done, Link
from .wire.engine import AttachRequest, Pointer, read_attach

_OPERATIONS: Final[Mapping[str | None, FaultOperation]] = {
    "com.microsoft:renew-lock": FaultOperation.RENEW,
    "com.microsoft:renew-session-lock": FaultOperation.RENEW,
    "com.microsoft:update-disposition": FaultOperation.SETTLE,
}


class Faulty(Protocol):
    """A connection, as far as faults need it."""

    broker: BrokerPort
    clock: Clock
    links: dict[Pointer, Link]
    nodes: dict[str, Node]
    tracker: Tracker

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close a link from our side."""
        ...

    def abort(self) -> None:
        """Cut the socket."""
        ...


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a fault may strike: a link (without `pointer` the management node) to `address` on a connection."""

    table: FaultTable
    connection: Faulty
    pointer: Pointer | None
    address: str

    def strike(self, operation: FaultOperation) -> Fault | None:
        """The fault that strikes here now."""
        return self.table.strike(self.address, operation)

    def may_receive(self) -> bool:
        """Whether a client that gives credit gets messages; there is nothing to reject here: a busy server detaches."""
        fault = self.strike(FaultOperation.RECEIVE)
        if fault is None:
            return True
        if fault.kind is FaultKind.DROPPED_CONNECTION:
            self.cut()
        else:
            self.detach(Condition.SERVER_BUSY if fault.kind is FaultKind.SERVER_BUSY else Condition.DETACH_FORCED)
        return False

    def detach(self, condition: Condition = Condition.DETACH_FORCED) -> None:
        """Detach the link, or those of the node, at the end of what is going on."""
        asyncio.get_running_loop().call_soon(self._detach, condition)

    def busy(self) -> BrokerError:
        """The refusal of a server that is busy."""
        return service_errors.throttled(self.connection.broker.namespace)

    def _detach(self, condition: Condition) -> None:
        pointers = [self.pointer] if self.pointer is not None else self._links_of_node()
        for pointer in pointers:
            self.connection.detach(pointer, loss_of(self.connection, read_attach(pointer), condition))

    def _links_of_node(self) -> list[Pointer]:
        key = parse_address(self.address).key
        found: list[Pointer] = []
        for pointer in self.connection.links:
            address = parse_address(read_attach(pointer).address)
            if address.management and address.key == key:
                found.append(pointer)
        return found

    def cut(self) -> None:
        """Cut the connection at the end of what is going on."""
        asyncio.get_running_loop().call_soon(self.connection.abort)

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call after a while of the broker's time."""
        clock = self.connection.clock
        clock.call_at(clock.now_ms() + delay_ms, call)


Work = Callable[[Done], None]


def _busy(spot: Spot, fault: Fault, work: Work, done: Done) -> None:
    del fault, work
    done(spot.busy())


def _dropped_link(spot: Spot, fault: Fault, work: Work, done: Done) -> None:
    del fault, work, done
    spot.detach()


def _dropped_connection(spot: Spot, fault: Fault, work: Work, done: Done) -> None:
    del fault, work, done
    spot.cut()


def _delayed(spot: Spot, fault: Fault, work: Work, done: Done) -> None:
    work(lambda error: spot.later(fault.delay_ms, partial(done, error)))


def _missing(spot: Spot, fault: Fault, work: Work, done: Done) -> None:
    del spot, fault, done
    work(_tell_nobody)


EFFECTS: Final[Mapping[FaultKind, Callable[[Spot, Fault, Work, Done], None]]] = {
    FaultKind.SERVER_BUSY: _busy,
    FaultKind.DROPPED_LINK: _dropped_link,
    FaultKind.DROPPED_CONNECTION: _dropped_connection,
    FaultKind.DELAYED_CONFIRMATION: _delayed,
    FaultKind.MISSING_CONFIRMATION: _missing,
}
"""What a fault does to work that ends in `done`; a lost lock depends on the lock and is done where that is known."""


class FaultySender:
    """A way into an entity on which sends may fail."""

    def __init__(self, inner: SenderPort, spot: Spot) -> None:
        self.inner = inner
        self.entity = inner.entity
        self.message_bytes_max = inner.message_bytes_max
        self.batch_bytes_max = inner.batch_bytes_max
        self._spot = spot

    @classmethod
    def around(cls, sender: SenderPort, spot: Spot) -> SenderPort:
        """Put one around a sender that has none."""
        return sender if isinstance(sender, cls) else cls(sender, spot)

    @staticmethod
    def bare(sender: SenderPort) -> SenderPort:
        """The sender without."""
        return sender.inner if isinstance(sender, FaultySender) else sender

    def send(self, data: bytes, *, batch: bool, done: Done) -> None:
        """Store one delivery, or fail."""
        fault = self._spot.strike(FaultOperation.SEND)
        if fault is None:
            self.inner.send(data, batch=batch, done=done)
        else:
            EFFECTS[fault.kind](self._spot, fault, lambda then: self.inner.send(data, batch=batch, done=then), done)

    def size_refusal(self, data: bytes, *, batch: bool) -> BrokerError | None:
        """The error for a delivery over the limit."""
        return self.inner.size_refusal(data, batch=batch)

    def close(self) -> None:
        """The link is gone."""
        self.inner.close()


class FaultyConsumer:
    """A way out of an entity on which receiving and settling may fail."""

    def __init__(self, inner: ConsumerPort, spot: Spot, link: OutgoingLink) -> None:
        self.inner = inner
        self.address = inner.address
        self._spot = spot
        self._link = link

    @classmethod
    def around(cls, consumer: ConsumerPort, spot: Spot, link: OutgoingLink) -> ConsumerPort:
        """Put one around a consumer that has none."""
        return consumer if isinstance(consumer, cls) else cls(consumer, spot, link)

    @staticmethod
    def bare(consumer: ConsumerPort) -> ConsumerPort:
        """The consumer without."""
        return consumer.inner if isinstance(consumer, FaultyConsumer) else consumer

    def set_credit(self, count: int) -> None:
        """Pass credit on, or fail."""
        if not count or self._spot.may_receive():
            self.inner.set_credit(count)

    def drain(self, drained: Callable[[], None]) -> None:
        """Pass a drain on."""
        self.inner.drain(drained)

    def settle(self, token: bytes, outcome: Outcome, done: Done | None) -> None:
        """Settle one delivery, or fail."""
        fault = self._spot.strike(FaultOperation.SETTLE)
        if fault is None:
            self.inner.settle(token, outcome, done)
        elif fault.kind is FaultKind.LOST_LOCK:
            self._lose(token, done or _tell_nobody)
        else:
            work = partial(self.inner.settle, token, outcome)
            EFFECTS[fault.kind](self._spot, fault, work, done or _tell_nobody)

    def close(self) -> None:
        """The link is gone."""
        self.inner.close()

    def _lose(self, token: bytes, done: Done) -> None:
        """End the lock as its time would: the attempt counts. In a message session it is the session's lock."""
        link = self._link
        if isinstance(link, MessageSessionLink):
            error = service_errors.session_lock_lost()
            self.inner.close()
            done(error)
            link.lose(error)
        else:
            self.inner.settle(token, Abandon({}), lambda _: done(service_errors.lock_lost()))


class FaultyAnswer:
    """Answers requests to a management node, or fails."""

    def __init__(self, inner: Answer, spot: Spot) -> None:
        self.inner = inner
        self._spot = spot

    @classmethod
    def around(cls, answer: Answer, spot: Spot) -> Answer:
        """Put one around an answer that has none."""
        return answer if isinstance(answer, cls) else cls(answer, spot)

    @staticmethod
    def bare(answer: Answer) -> Answer:
        """The answer without."""
        return answer.inner if isinstance(answer, FaultyAnswer) else answer

    async def __call__(self, request: Request, bytes_max: int) -> Response | None:
        """The response; None is none at all."""
        operation = _OPERATIONS.get(request.text("operation"), FaultOperation.REQUEST)
        spot = self._spot
        fault = spot.strike(operation)
        match None if fault is None else fault.kind:
            case FaultKind.SERVER_BUSY:
                return refusal(request, self._tracked(spot.busy()))
            case FaultKind.LOST_LOCK:
                return refusal(request, self._tracked(await self._lose(request)))
            case FaultKind.DROPPED_LINK:
                spot.detach()
                return None
            case FaultKind.DROPPED_CONNECTION:
                spot.cut()
                return None
        response = await self.inner(request, bytes_max)
        if fault is not None and fault.kind is FaultKind.DELAYED_CONFIRMATION:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            spot.later(fault.delay_ms, lambda: None if over.done() else over.set_result(None))
            await over
        return response if fault is None or fault.kind is FaultKind.DELAYED_CONFIRMATION else None

    def _tracked(self, error: BrokerError) -> BrokerError:
        return self._spot.connection.tracker.answered(error, self._spot.address)

    async def _lose(self, request: Request) -> BrokerError:
        """End the locks that a request names; what the client hears then."""
        if isinstance(request.body, dict) and "session-id" in request.body and "lock-tokens" not in request.body:
            return service_errors.session_lock_lost()
        with suppress(BrokerError):  # they are lost already, or there are none
            await self._spot.connection.broker.settle(self._spot.address, Body(request.body).lock_tokens(), Abandon({}))
        return service_errors.lock_lost()


def loss_of(connection: Faulty, request: AttachRequest, condition: Condition) -> BrokerError:
    """Why a link is lost that is detached on purpose: in the service's words for that condition."""
    if condition is Condition.SERVER_BUSY:
        return service_errors.throttled(connection.broker.namespace)
    return service_errors.link_closed(connection.tracker.name_of_link(request.name), condition, sends=request.sends)


def _tell_nobody(error: BrokerError | None) -> None:
    """An outcome that nobody hears."""
