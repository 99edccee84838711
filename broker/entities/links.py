"""The broker's end of a link: `Sender`, `Receiver`, `SessionReceiver`, and `SessionAccept` for a pending accept.

Knows credit as demand, and the wait for a session. Does not know frames (`amqp/`) and does not decide about messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from .. import service_errors
from ..address import SubQueue
from ..clock import Clock, Timer
from ..errors import BrokerError, Condition
from ..message.message import Message
from ..message.stored import parse_stored
from ..outcomes import Outcome, Release
from ..partition.contract import Delivery, Received, ReceiveMode, Selection, SessionGrant, SharedLock
from ..partition.records import Record
from ..partition.requests import (
    AcceptSession,
    LockMessages,
    Receive,
    ReceiveFromSession,
    ReleaseSession,
    Request,
    RunDone,
)
from .dispatcher import Demand
from .entity import Entity

SESSION_TAKE_MAX = 256
# How long a receiver that has nothing to settle stays attached once its session lock has ended. The service is not
# exact there either: Java's live tests testSendSceduledMessageAndReceive(AndCancel) receive until nothing comes, which
# ends some 100 ms after the lock, and are not thrown out.
IDLE_LOSS_MS = 1_500

Deliver = Callable[[Sequence[Delivery]], None]
Detached = Callable[[BrokerError], None]
Matches = Callable[[Message, int], bool]


def _row_matches(matches: Matches, row: bytes) -> bool:
    record = Record.unpack(row)
    return matches(parse_stored(record.stored), record.delivery_count)


class Sender:
    """Sends to a queue or topic."""

    def __init__(
        self, entity: Entity, message_bytes_max: int, batch_bytes_max: int, detached: Detached, client: str = ""
    ) -> None:
        self.entity = entity
        self._client = client
        self.entity_path = entity.path
        self.message_bytes_max = message_bytes_max
        self.batch_bytes_max = batch_bytes_max
        self._detached = detached
        entity.attached.add(detached)

    def send(self, run: Sequence[bytes], done: RunDone, *, whole: bool = False) -> None:
        """Store a run of deliveries of one message each, each on its own; with `whole` one batch, all of it or nothing.

        `done(positions, None)` comes after the commit; `done(positions, BrokerError)` says why nothing of these is
        stored.
        """
        bytes_max = self.batch_bytes_max if whole else self.message_bytes_max
        if max(map(len, run)) <= bytes_max:
            self.entity.send(run, done, self._client, whole=whole)
            return
        positions: list[int] = []
        for position, data in enumerate(run):
            if len(data) <= bytes_max:
                positions.append(position)
            else:
                done((position,), service_errors.too_large(len(data), bytes_max))
        if positions:
            fitting = [run[position] for position in positions]
            ended: RunDone = lambda found, error: done([positions[each] for each in found], error)  # noqa: E731
            self.entity.send(fitting, ended, self._client)

    def size_refusal(self, data: bytes, *, batch: bool) -> BrokerError | None:
        """Return the error for a delivery over the limit, or None."""
        size_bytes_max = self.batch_bytes_max if batch else self.message_bytes_max
        return service_errors.too_large(len(data), size_bytes_max) if len(data) > size_bytes_max else None

    def close(self) -> None:
        """Close the sender; accepted deliveries are still stored."""
        self.entity.attached.discard(self._detached)


class Receiver:
    """Receives from a sub-queue of a queue or subscription, with `matches` only those messages of which it is true.

    `matches` gets a message and its delivery count.
    """

    def __init__(
        self,
        entity: Entity,
        sub_queue: SubQueue,
        mode: ReceiveMode,
        clock: Clock,
        deliver: Deliver,
        detached: Detached,
        matches: Matches | None = None,
        client: str = "",
    ) -> None:
        self.entity = entity
        self._clock = clock
        self.address = f"{entity.path}/{sub_queue.value}" if sub_queue else entity.path
        self._sub_queue = sub_queue
        self._selection = None if matches is None else Selection(partial(_row_matches, matches))
        self._dispatcher = (
            entity.dispatchers[sub_queue] if matches is None else entity.dispatcher_for_selection(sub_queue)
        )
        self._detached = detached

        def take(count: int, reply: Callable[[Received[Delivery]], None]) -> Request:
            return Receive(sub_queue, count, mode, reply, self._selection, client)

        def give_back(_: int, deliveries: Sequence[Delivery]) -> None:
            # In receive-and-delete mode they are removed.
            if mode is ReceiveMode.PEEK_LOCK:
                entity.settle([delivery.token for delivery in deliveries], Release(), None, sub_queue)

        self._demand = Demand(take, deliver, give_back)
        self.settle: Callable[[Sequence[bytes], Outcome, RunDone | None], None] = partial(
            entity.settle, sub_queue=sub_queue
        )
        """Ends the locks of a run of tokens with an outcome, each on its own; `done(positions, error or None)`."""
        entity.attached.add(detached)

    def set_credit(self, count: int) -> None:
        """Allow at most `count` more messages from now on (absolute, not added)."""
        if _may_receive(self, count, self._clock):
            self._dispatcher.set_demand(self._demand, count)

    @property
    def is_waiting(self) -> bool:
        return self._demand.wanted > 0

    def detach(self, error: BrokerError) -> None:
        """Detach the link with `error`, unless it is closed."""
        if self._detached in self.entity.attached:
            self._detached(error)

    def drain(self, drained: Callable[[], None]) -> None:
        """Deliver available messages within the credit, then set the credit to 0 and call `drained()`."""
        self._dispatcher.drain(self._demand, drained)

    def close(self) -> None:
        """Close the receiver; its locks stay until they expire [wire 5.8]. What it completed waits no more."""
        self.entity.store_late()
        self._dispatcher.close(self._demand)
        if self._selection is not None:
            self._selection.close()
            self.entity.selecting[self._sub_queue].discard(self._dispatcher)
        self.entity.receive_quota.leave(self)
        self.entity.attached.discard(self._detached)


class SessionReceiver:
    """Receives from one message session; `SessionAccept` makes it when the session is granted.

    Calls `detached(error)` with session-lock-lost when the session lock expires, or when the entity goes away; if no
    message was locked then, `IDLE_LOSS_MS` later.
    """

    def __init__(
        self, entity: Entity, grant: SessionGrant, mode: ReceiveMode, clock: Clock, detached: Detached, client: str
    ) -> None:
        self.entity = entity
        self._client = client
        self._clock = clock
        self.address = entity.path
        self.session_id = grant.session_id
        self.locked_until_at = grant.until_at
        self.lock_token = grant.token
        self.deliver: Deliver = _deliver_nothing
        """The callback for messages; set it before the first credit."""
        self._mode = mode
        self._grant = grant
        self._handle = entity.partitions[grant.partition_index]
        self._detached = detached
        self._wanted = 0
        self._asking = False
        self._more = True
        self._closed = False
        self._drained: Callable[[], None] | None = None
        self._loss: Timer | None = None
        entity.attached.add(self.detach)

    def set_credit(self, count: int) -> None:
        """Allow at most `count` more messages from now on (absolute, not added)."""
        if not _may_receive(self, count, self._clock):
            return
        self._wanted = count
        self._ask()

    @property
    def is_waiting(self) -> bool:
        return self._wanted > 0

    @property
    def holds_session(self) -> bool:
        """Whether it has the session's lock, as far as it knows."""
        return not self._closed and self._loss is None

    def detach(self, error: BrokerError) -> None:
        """Release the session and detach the link with `error`, unless it is closed."""
        if not self._closed:
            self._handle.submit(ReleaseSession(self._grant.grant))
            self.lost(error)

    def drain(self, drained: Callable[[], None]) -> None:
        """Deliver available messages within the credit, then set the credit to 0 and call `drained()`."""
        self._drained = drained
        self._ask()

    async def lock(self, numbers: Sequence[int]) -> list[Delivery]:
        """Lock available and deferred messages of the session by sequence number; those that are locked or gone are
        left out. Raises BrokerError (session-lock-lost)."""
        ask = partial(LockMessages, SubQueue.ACTIVE, numbers, grant=self._grant.grant)
        found: list[Delivery] = await self._handle.request(ask)
        return found

    def settle(self, run: Sequence[bytes], outcome: Outcome, done: RunDone | None) -> None:
        """End the locks of a run of tokens with `outcome`, each on its own; `done(positions, error or None)`."""
        self.entity.settle(run, outcome, done)

    def close(self) -> None:
        """Close the receiver; the session is free at once, and no delivery count rises [wire 6.4]."""
        if not self._closed:
            self._end()
            self._handle.submit(ReleaseSession(self._grant.grant))

    def announce(self, argument: None) -> None:
        """Ask for messages: the session has some (again)."""
        self._more = True
        self._ask()

    def lost(self, error: BrokerError) -> None:
        """End the receiver: the session lock was lost."""
        if not self._closed:
            self._end()
            self._detached(error)

    def ended_idle(self, ended_at: int) -> None:
        """End the receiver a while later: the session lock ended at `ended_at` (Unix ms), and no message was locked."""
        if not self._closed:
            lost = partial(self.lost, service_errors.session_lock_lost())
            self._loss = self._clock.call_at(ended_at + IDLE_LOSS_MS, lost)

    def _end(self) -> None:
        self._closed = True
        self.entity.receive_quota.leave(self)
        self.entity.attached.discard(self.detach)
        if self._loss is not None:
            self._loss.cancel()

    def _ask(self) -> None:
        if self._asking or self._closed:
            return
        if self._wanted > 0 and self._more and self._loss is None:
            self._asking = True
            self._more = False
            count = min(self._wanted, SESSION_TAKE_MAX)
            self._handle.submit(ReceiveFromSession(self._grant.grant, count, self._mode, self._taken, self._client))
        elif self._drained is not None:
            drained, self._drained = self._drained, None
            self._wanted = 0
            drained()

    def _taken(self, taken: Received[Delivery]) -> None:
        self._asking = False
        self._more = self._more or taken.more
        if taken.deliveries and not self._closed:  # after close they go back with the session
            self._wanted = max(0, self._wanted - len(taken.deliveries))
            self.deliver(taken.deliveries)
        self._ask()


class SessionAccept:
    """A pending accept of a message session: a named one (granted or refused at once), or the next idle one.

    Calls exactly one of `granted(SessionReceiver)` and `refused(BrokerError)`, unless `cancel` comes first.
    """

    def __init__(
        self,
        entity: Entity,
        session_id: str | None,
        mode: ReceiveMode,
        timeout_ms: int,
        clock: Clock,
        granted: Callable[[SessionReceiver], None],
        refused: Callable[[BrokerError], None],
        detached: Detached,
        client: str = "",
        shared: SharedLock | None = None,
    ) -> None:
        self._entity = entity
        self._client = client
        self._session_id = session_id
        self._shared = shared
        self._mode = mode
        self._granted = granted
        self._refused = refused
        self._detached = detached
        self._receiver: SessionReceiver | None = None
        self._over = False
        self._demand: Demand[SessionGrant] | None = None
        self._timer: Timer | None = None
        self._clock = clock
        entity.received_at = clock.now_ms()
        entity.attached.add(self._refuse)
        if session_id is None:
            self._timer = clock.call_at(clock.now_ms() + timeout_ms, self._time_out)
            self._demand = Demand(self._accept, self._deliver, self._give_back)
            entity.session_dispatcher.set_demand(self._demand, 1)
        else:
            entity.partitions[entity.partition_index_of_session(session_id)].submit(self._accept(1, self._answered))

    def cancel(self) -> None:
        """Cancel the accept; a session granted afterwards is released at once."""
        self._end()

    def _accept(self, count: int, reply: Callable[[Received[SessionGrant]], None]) -> Request:
        ways = self._announce, self._lost, self._ended_idle
        return AcceptSession(self._session_id, *ways, reply, self._client, self._shared)

    def _answered(self, taken: Received[SessionGrant]) -> None:
        if taken.error is not None:
            self._refuse(taken.error)
        elif self._over:
            self._give_back(0, taken.deliveries)
        else:
            self._deliver(taken.deliveries)

    def _deliver(self, grants: Sequence[SessionGrant]) -> None:
        self._end()
        self._receiver = SessionReceiver(self._entity, grants[0], self._mode, self._clock, self._detached, self._client)
        self._granted(self._receiver)

    def _give_back(self, index: int, grants: Sequence[SessionGrant]) -> None:
        for grant in grants:
            self._entity.partitions[grant.partition_index].submit(ReleaseSession(grant.grant))

    def _time_out(self) -> None:
        self._refuse(
            BrokerError(
                Condition.TIMEOUT,
                "The operation did not complete within the allotted time: no message session became available.",
            )
        )

    def _refuse(self, error: BrokerError) -> None:
        if not self._over:
            self._end()
            self._refused(error)

    def _end(self) -> None:
        self._over = True
        self._entity.attached.discard(self._refuse)
        if self._timer is not None:
            self._timer.cancel()
        if self._demand is not None:
            self._entity.session_dispatcher.close(self._demand)

    def _announce(self, argument: None) -> None:
        if self._receiver is not None:
            self._receiver.announce(argument)

    def _lost(self, error: BrokerError) -> None:
        if self._receiver is not None:
            self._receiver.lost(error)

    def _ended_idle(self, ended_at: int) -> None:
        if self._receiver is not None:
            self._receiver.ended_idle(ended_at)


def _may_receive(receiver: Receiver | SessionReceiver, count: int, clock: Clock) -> bool:
    """Account for new credit; return False, and refuse the receiver in the next turn, if too many receivers wait."""
    entity = receiver.entity
    if not count:
        entity.receive_quota.leave(receiver)
        return True
    entity.received_at = clock.now_ms()
    if receiver in entity.receive_quota.receivers or entity.receive_quota.enter(receiver):
        return True
    error = service_errors.too_many_receives(entity.path, entity.receive_quota.count_max or 0)
    asyncio.get_running_loop().call_soon(receiver.detach, error)
    return False


def _deliver_nothing(deliveries: Sequence[Delivery]) -> None:
    """The callback before the link sets its own."""
    raise AssertionError(f"{len(deliveries)} deliveries before a callback for them")
