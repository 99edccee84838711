"""The facade: a namespace with the verbs that adapters call. Addresses go in; senders, receivers and answers come out.

Does not decide about messages (`partition/`), does not create entities (`admin/`), and speaks no protocol. Owned by
the composition root; everything here runs on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..storage import Store, no_failpoint
from . import service_errors
from .address import Address, SubQueue
from .admin.administration import Administration
from .admin.jms import JmsEntities
from .admin.maintenance import Maintenance
from .admin.refusal_log import RefusalLog
from .clock import Clock
from .entities import scheduling, several_partitions
from .entities.entity import RECEIVE_REFUSED, SEND_REFUSED, Entity, PartitionHandle
from .entities.links import Deliver, Detached, Matches, Receiver, Sender, SessionAccept, SessionReceiver
from .entities.namespace import Namespace
from .entities.transaction import TransactionRef
from .errors import BrokerError, Condition
from .message.message import Message
from .model.catalog import Catalog
from .model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription, Topology
from .model.profiles import Limits, message_bytes_max
from .outcomes import Outcome
from .partition.requests import GetSessionState, ReleaseSession, RenewSession, SetSessionState
from .partition.step import Delivery, Extent, Observer, ReceiveMode, SharedLock
from .repeated_lines import RepeatedLines


class Broker(Namespace):
    """A namespace with the verbs that adapters call."""

    def __init__(
        self,
        catalog: Catalog,
        stores: Sequence[Store],
        clock: Clock,
        limits: Limits,
        failpoint: Callable[[str], None] = no_failpoint,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(catalog, stores, clock, limits, failpoint, observer)
        self.administration = Administration(self)
        self.maintenance = Maintenance(self, self.administration)
        self.jms = JmsEntities(self, self.administration)
        self.refusals = RefusalLog(lambda: (each.path for each in self.entities()))
        self.lines = RepeatedLines(clock)
        """Writes what any client can make the log say."""

    # ---- life

    def start(self, topology: Topology, *, only_if_new: bool = False) -> None:
        """Merge `topology` into the catalog and start working. Raises CatalogError if they contradict each other.

        With `only_if_new` the topology is merged at the first start only, so that deleted entities stay deleted.
        """
        is_new = self.catalog.store_count is None
        self.topology = topology
        self.catalog.fix_store_count(len(self.workers), self.clock.now_ms())
        if is_new or not only_if_new:
            self.catalog.merge(topology, self.clock.now_ms())
        self._work()

    async def stop(self) -> None:
        """Finish the accepted requests, then close the stores."""
        if self.away is None:
            await self._close_stores()
        self.pool.shutdown()

    async def give_up_stores(self, detached: BrokerError, away: BrokerError) -> None:
        """Detach all links with `detached`, finish the accepted requests and close the stores.

        Until `go_on_with`, every look-up of an entity raises `away`.
        """
        self.away = away
        for entity in self.entities():
            entity.detach_all(detached)
        self.transactions.close()
        await self._close_stores()
        self._forget_entities()

    def go_on_with(self, catalog: Catalog, stores: Sequence[Store]) -> None:
        """Continue with these stores after `give_up_stores`. Raises CatalogError if their number has changed."""
        catalog.fix_store_count(len(stores), self.clock.now_ms())
        self._use_stores(catalog, stores)
        self._work()
        self.away = None

    def _work(self) -> None:
        self._load()
        self.administration.start()
        self.jms.delete_left_over()

    async def _close_stores(self) -> None:
        await self.administration.stop()
        await self._stop_workers()
        self.administration.idle.remember_access()
        self.catalog.close()

    # ---- links

    def open_sender(self, address: str, *, detached: Detached, client: str = "") -> Sender:
        """Open a sender to `address` (as the client wrote it). The entity calls `detached(error)` to close the link.

        Here and below `client` says who it is, for an observer.

        Raises BrokerError: not-found, entity-disabled, not-allowed (a sub-queue or a subscription).
        """
        entity, parsed = self.find(address)
        description = entity.description
        if parsed.sub_queue is not SubQueue.ACTIVE or isinstance(description, SubscriptionDescription):
            raise BrokerError(
                Condition.NOT_ALLOWED, f"Messages can't be sent to '{parsed.path}': it takes no messages from senders."
            )
        if description.status in SEND_REFUSED:
            raise entity.disabled()
        size_bytes_max = message_bytes_max(description, self.limits)
        return Sender(entity, size_bytes_max, self.limits.batch_bytes_max, detached, client)

    def open_receiver(
        self,
        address: str,
        *,
        mode: ReceiveMode,
        deliver: Deliver,
        detached: Detached,
        matches: Matches | None = None,
        client: str = "",
    ) -> Receiver:
        """Open a receiver on `address`. `deliver(deliveries)` gets messages, `detached(error)` the reason for a detach.

        With `matches(message, delivery count)` it gets only messages for which that is true, in their order.

        Raises BrokerError: not-found, entity-disabled, not-allowed (the entity requires message sessions, or forwards
        its messages).
        """
        entity, parsed = self._receivable(address)
        target = getattr(entity.description, "forward_dead_letters_to", None)
        if target is not None and parsed.sub_queue is SubQueue.DEAD_LETTER:
            raise service_errors.forwards()
        if entity.requires_session and parsed.sub_queue is SubQueue.ACTIVE:
            raise service_errors.session_receiver_required()
        return Receiver(entity, parsed.sub_queue, mode, self.clock, deliver, detached, matches, client)

    def accept_session(
        self,
        address: str,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        timeout_ms: int,
        granted: Callable[[SessionReceiver], None],
        refused: Callable[[BrokerError], None],
        detached: Detached,
        client: str = "",
        is_operator: bool = False,
        shared: SharedLock | None = None,
    ) -> SessionAccept:
        """Accept a message session: the named one, or with None the next idle one, waiting up to `timeout_ms`.

        With `shared` the lock has a token, and may be that of another receiver, which loses it. Calls
        `granted(receiver)` or `refused(error)` later: session-cannot-be-locked, com.microsoft:timeout. Raises
        BrokerError at once: not-found, not-allowed (an entity without sessions), and, if `is_operator` is false,
        entity-disabled.
        """
        entity, parsed = self.find(address) if is_operator else self._receivable(address)
        if not entity.requires_session or parsed.sub_queue is not SubQueue.ACTIVE:
            raise service_errors.session_not_supported()
        ways = granted, refused, detached
        return SessionAccept(entity, session_id, mode, timeout_ms, self.clock, *ways, client, shared)

    # ---- requests (`$management`)

    async def peek(
        self,
        address: str,
        from_sequence_number: int,
        count: int,
        bytes_max: int,
        session_id: str | None = None,
        partition_id: int | None = None,
        deferred_only: bool = False,
    ) -> list[bytes]:
        """Return up to `count` encoded messages, about `bytes_max` bytes in all, from `from_sequence_number` on (P23).

        `partition_id` limits the peek to one partition, where it can be of deferred messages only. Raises BrokerError
        while its store is out.
        """
        entity, parsed = self.find(address)
        if partition_id is not None:
            return await entity.peek_partition(
                parsed.sub_queue,
                partition_id,
                from_sequence_number,
                count,
                bytes_max,
                session_id,
                deferred_only=deferred_only,
            )
        return await entity.peek(parsed.sub_queue, from_sequence_number, count, bytes_max, session_id)

    async def renew_locks(self, address: str, tokens: Sequence[bytes]) -> list[int]:
        """Renew locks; return their new ends (Unix ms) in order. Raises BrokerError (message-lock-lost)."""
        entity, parsed = self.find(address)
        return await several_partitions.renew(entity, parsed.sub_queue, tokens)

    async def settle(
        self, address: str, tokens: Sequence[bytes], outcome: Outcome, session_id: str | None = None
    ) -> None:
        """Settle by lock token, without the receiving link. Raises BrokerError (message-lock-lost).

        With the `session_id` of messages whose session is held; without, a lost lock there is session-lock-lost.
        """
        entity, parsed = self.find(address)
        try:
            await several_partitions.settle(entity, parsed.sub_queue, tokens, outcome)
        except BrokerError as error:
            if error.condition is Condition.SESSION_LOCK_LOST and entity.holds_session(session_id):
                raise service_errors.lock_lost() from error
            raise

    async def receive_by_sequence_number(
        self, address: str, numbers: Sequence[int], mode: ReceiveMode, session_id: str | None = None
    ) -> list[Delivery]:
        """Receive deferred messages by sequence number. Raises BrokerError (message-not-found) if one is missing."""
        entity, parsed = self.find(address)
        return await several_partitions.take_deferred(entity, parsed.sub_queue, numbers, mode, session_id)

    async def lock_by_number(self, address: str, numbers: Sequence[int]) -> list[Delivery]:
        """Lock available and deferred messages by sequence number; those that are locked or gone are left out."""
        entity, parsed = self.find(address)
        return await several_partitions.lock(entity, parsed.sub_queue, numbers)

    async def schedule(self, address: str, encoded: Sequence[bytes]) -> list[int]:
        """Schedule encoded messages for the times in them; return their sequence numbers in order."""
        entity, messages = self._to_schedule(address, encoded)
        numbers, handle = await scheduling.schedule(entity, messages)
        if handle is not None:
            await self.forwarder.round_of(handle)
        return numbers

    async def cancel_scheduled(self, address: str, numbers: Sequence[int]) -> None:
        """Remove scheduled messages, all or none. Raises BrokerError (message-not-found) with the missing numbers."""
        await scheduling.cancel(self.find(address)[0], numbers)

    async def deliver_scheduled(self, address: str, number: int) -> None:
        """Deliver a scheduled message now. Raises BrokerError (message-not-found)."""
        await scheduling.deliver_now(self.find(address)[0], number)

    async def delete_messages(self, address: str, count: int, before_at: int, session_id: str | None = None) -> int:
        """Delete up to `count` available messages enqueued before `before_at` (Unix ms); return how many."""
        entity, parsed = self.find(address)
        return await entity.delete_messages(
            parsed.sub_queue, min(count, self.limits.messages_per_delete_max), before_at, session_id
        )

    def generation(self, address: str) -> str:
        """Return what tells this entity from another one that had the path before, or has it after a restore."""
        return self.catalog.generation_of(self.find(address)[0].path)

    async def extents(self, address: str) -> list[Extent | None]:
        """Return first and next sequence number and count per partition; None for an unreachable partition."""
        entity, parsed = self._receivable(address)
        return await entity.extents(parsed.sub_queue)

    async def list_numbers(self, address: str, partition_id: int, first: int, count: int) -> list[int]:
        """Return the first `count` sequence numbers that a partition has from `first` on, of messages in any state.

        Raises BrokerError while its store is out.
        """
        entity, parsed = self._receivable(address)
        return await entity.list_numbers(parsed.sub_queue, partition_id, first, count)

    async def delete_before(self, address: str, partition_id: int, number: int, count: int) -> int:
        """Delete up to `count` available messages of a partition below sequence number `number`; return how many."""
        entity, parsed = self._receivable(address)
        count = min(count, self.limits.messages_per_range_delete_max)
        return await entity.delete_before(parsed.sub_queue, partition_id, number, count)

    async def delete_by_number(self, address: str, numbers: Sequence[int]) -> int:
        """Delete those of these messages that are available, of the first that one request may delete; return how many.

        Raises BrokerError if a partition can't; those of partitions before it may be deleted then.
        """
        entity, parsed = self._receivable(address)
        some = numbers[: self.limits.messages_per_range_delete_max]
        return await entity.delete_by_number(parsed.sub_queue, some)

    async def claim(
        self, address: str, partition_id: int, before: int, count: int, properties: Mapping[str, object]
    ) -> list[int]:
        """Defer up to `count` available messages of a partition below sequence number `before`; return their numbers.

        `properties` are application properties to add. Raises BrokerError: not-allowed (an entity with sessions).
        """
        entity, parsed = self._receivable(address)
        return await several_partitions.claim(entity, parsed.sub_queue, partition_id, before, count, properties)

    async def renew_session(self, address: str, session_id: str) -> int:
        """Renew the lock of a session; return its new end (Unix ms). Raises BrokerError (session-lock-lost)."""
        return int(await self._session_partition(address, session_id).request(partial(RenewSession, session_id)))

    def release_session(self, address: str, session_id: str) -> None:
        """End the lock of a session, if a receiver holds it; the receiver is detached with session-lock-lost."""
        self._session_partition(address, session_id).submit(ReleaseSession(0, session_id))

    async def set_session_state(self, address: str, session_id: str, state: bytes | None) -> None:
        """Store the state of a held session, None clears it. BrokerError: session-lock-lost, message-size-exceeded."""
        self._check_state(address, state)
        await self._session_partition(address, session_id).request(partial(SetSessionState, session_id, state))

    async def session_state(self, address: str, session_id: str) -> bytes | None:
        """Return the state of a held session. Raises BrokerError (session-lock-lost)."""
        answer = await self._session_partition(address, session_id).request(partial(GetSessionState, session_id))
        return answer if isinstance(answer, bytes) else None

    async def message_sessions(self, address: str, updated_after: int | None) -> list[str]:
        """List the sessions with active messages or state, or those whose state changed after an instant (Unix ms)."""
        entity, _ = self.find(address)
        if not entity.requires_session:
            raise service_errors.session_not_supported()
        return await entity.list_sessions(updated_after)

    # ---- transactions

    def transactional_send(self, ref: TransactionRef, sender: Sender, data: bytes, *, batch: bool) -> None:
        """Add a delivery to a transaction. Raises BrokerError if the transaction can't contain it."""
        with self.transactions.working(ref):
            error = sender.size_refusal(data, batch=batch)
            if error is not None:
                raise error
        self.transactions.send(ref, sender.entity, data, batch=batch)

    async def transactional_schedule(self, ref: TransactionRef, address: str, encoded: Sequence[bytes]) -> list[int]:
        """Add scheduled messages to a transaction; return the sequence numbers reserved for them."""
        entity, messages = self._to_schedule(address, encoded)
        return await self.transactions.schedule(ref, entity, messages)

    async def transactional_cancel(self, ref: TransactionRef, address: str, numbers: Sequence[int]) -> None:
        """Add a cancellation of scheduled messages to a transaction. Raises BrokerError (message-not-found)."""
        await self.transactions.cancel(ref, self.find(address)[0], numbers)

    async def transactional_set_state(
        self, ref: TransactionRef, address: str, session_id: str, state: bytes | None
    ) -> None:
        """Add a new state of a held session to a transaction. Raises BrokerError like `set_session_state`."""
        with self.transactions.working(ref):
            self._check_state(address, state)
            self._session_partition(address, session_id)  # refuses an entity without sessions
        entity, _ = self.find(address)
        await self.transactions.set_state(ref, entity, session_id, state)

    def transactional_settle(
        self,
        ref: TransactionRef,
        address: str,
        token: bytes,
        outcome: Outcome,
        *,
        settled: bool = False,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        """Add a settlement to a transaction. Raises BrokerError if the lock is lost or doesn't fit.

        `settled`: the receiver has settled the delivery, so a rollback abandons it. A commit calls `on_commit()`.
        """
        entity, parsed = self.find(address)
        of = parsed.sub_queue
        self.transactions.settle(ref, entity, of, token, outcome, settled=settled, on_commit=on_commit)

    # ---- helpers

    def _receivable(self, address: str) -> tuple[Entity, Address]:
        entity, parsed = self.find(address)
        description = entity.description
        if isinstance(description, TopicDescription):
            raise BrokerError(Condition.NOT_ALLOWED, f"Nothing can be received from the topic '{entity.path}' itself.")
        if description.status in RECEIVE_REFUSED:
            raise entity.disabled()
        if description.forward_to is not None and parsed.sub_queue is SubQueue.ACTIVE:
            raise service_errors.forwards()
        return entity, parsed

    def _to_schedule(self, address: str, encoded: Sequence[bytes]) -> tuple[Entity, list[Message]]:
        """Parse the messages to schedule. Raises the same errors as `open_sender` and `Sender.send`."""
        sender = self.open_sender(address, detached=lambda _: None)
        sender.close()
        messages: list[Message] = []
        for data in encoded:
            error = sender.size_refusal(data, batch=False)
            if error is not None:
                raise error
            messages += sender.entity.parse(data, batch=False)
        return sender.entity, messages

    def _check_state(self, address: str, state: bytes | None) -> None:
        """Raise BrokerError (message-size-exceeded) for a state above the limit of a message."""
        description = self.find(address)[0].description
        limit = (
            message_bytes_max(description, self.limits)
            if isinstance(description, QueueDescription)
            else self.limits.message_bytes_max
        )
        if state is not None and len(state) > limit:
            raise service_errors.too_large(len(state), limit)

    def _session_partition(self, address: str, session_id: str) -> PartitionHandle:
        entity, _ = self.find(address)
        if not entity.requires_session:
            raise service_errors.session_not_supported()
        return entity.partitions[entity.partition_index_of_session(session_id)]
