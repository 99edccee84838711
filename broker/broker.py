"""The broker: a namespace with the verbs that adapters call. Addresses go in; senders, receivers and answers come out.

Does not decide about messages (`partition/`), does not create entities (`admin/`), and speaks no protocol. Owned by
the composition root; everything here runs on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..storage import Store, no_failpoint
from . import service_errors
from .address import Address, SubQueue
from .admin.administration import Administration
from .admin.maintenance import Maintenance
from .clock import Clock
from .entities import scheduling, several_partitions
from .entities.entity import Entity
from .entities.entity_base import RECEIVE_REFUSED, SEND_REFUSED, PartitionHandle
from .entities.links import Deliver, Detached, Receiver, Sender, SessionAccept, SessionReceiver
from .entities.namespace import Namespace
from .entities.transaction import TransactionRef
from .errors import BrokerError, Condition
from .message.message import Message
from .model.catalog import Catalog
from .model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription, Topology
from .model.profiles import Limits, message_bytes_max
from .outcomes import Outcome
from .partition.requests import GetSessionState, RenewSession, SetSessionState
from .partition.step import Delivery, Extent, ReceiveMode


class Broker(Namespace):
    """A namespace with the verbs that adapters call."""

    def __init__(
        self,
        catalog: Catalog,
        stores: Sequence[Store],
        clock: Clock,
        limits: Limits,
        failpoint: Callable[[str], None] = no_failpoint,
    ) -> None:
        super().__init__(catalog, stores, clock, limits, failpoint)
        self.administration = Administration(self)
        self.maintenance = Maintenance(self, self.administration)

    # ---- life

    def start(self, topology: Topology, *, only_if_new: bool = False) -> None:
        """Merge `topology` into the catalog and begin to work; CatalogError if they contradict each other.

        With `only_if_new` the topology is for a namespace that never started before: what was deleted stays deleted.
        """
        is_new = self.catalog.store_count is None
        self.topology = topology
        self.catalog.fix_store_count(len(self.workers), self.clock.now_ms())
        if is_new or not only_if_new:
            self.catalog.merge(topology, self.clock.now_ms())
        self._work()

    async def stop(self) -> None:
        """Finish what was accepted for work, then close the stores."""
        if self.away is None:
            await self._close_stores()
        self.pool.shutdown()

    async def give_up_stores(self, detached: BrokerError, away: BrokerError) -> None:
        """Detach all links, finish what was accepted for work and close the stores.

        Until `go_on_with` whoever asks for an entity hears `away`.
        """
        self.away = away
        for entity in self.entities():
            entity.detach_all(detached)
        self.transactions.close()
        await self._close_stores()
        self._forget_entities()

    def go_on_with(self, catalog: Catalog, stores: Sequence[Store]) -> None:
        """Work with these stores, after `give_up_stores`; CatalogError if it is another number than before."""
        catalog.fix_store_count(len(stores), self.clock.now_ms())
        self._use_stores(catalog, stores)
        self._work()
        self.away = None

    def _work(self) -> None:
        self._load()
        self.administration.start()

    async def _close_stores(self) -> None:
        await self.administration.stop()
        await self._stop_workers()
        self.administration.idle.remember_access()
        self.catalog.close()

    # ---- links

    def open_sender(self, address: str, *, detached: Detached) -> Sender:
        """A way to send to `address` (as the client wrote it); `detached` hears when the entity goes away.

        BrokerError: amqp:not-found, entity-disabled, or amqp:not-allowed for what takes no messages from senders.
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
        return Sender(entity, size_bytes_max, max(size_bytes_max, self.limits.batch_bytes_max), detached)

    def open_receiver(self, address: str, *, mode: ReceiveMode, deliver: Deliver, detached: Detached) -> Receiver:
        """A way to receive from `address`; `deliver` gets messages, `detached` the reason when the entity goes away.

        BrokerError: amqp:not-found, entity-disabled, amqp:not-allowed for an entity that wants message sessions, and
        for one that forwards what would be received.
        """
        entity, parsed = self._receivable(address)
        target = getattr(entity.description, "forward_dead_letters_to", None)
        if target is not None and parsed.sub_queue is SubQueue.DEAD_LETTER:
            raise service_errors.forwards()
        if entity.requires_session and parsed.sub_queue is SubQueue.ACTIVE:
            raise service_errors.session_receiver_required()
        return Receiver(entity, parsed.sub_queue, mode, self.clock, deliver, detached)

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
    ) -> SessionAccept:
        """Wait for a message session: the named one, or with None the next that is idle, for up to `timeout_ms`.

        BrokerError at once: amqp:not-found, entity-disabled, amqp:not-allowed for an entity without sessions. Later
        `granted(receiver)` or `refused(error)`: session-cannot-be-locked, com.microsoft:timeout.
        """
        entity, parsed = self._receivable(address)
        if not entity.requires_session or parsed.sub_queue is not SubQueue.ACTIVE:
            raise service_errors.session_not_supported()
        return SessionAccept(entity, session_id, mode, timeout_ms, self.clock, granted, refused, detached)

    # ---- requests (`$management`)

    async def peek(
        self,
        address: str,
        from_sequence_number: int,
        count: int,
        bytes_max: int,
        session_id: str | None = None,
        partition_id: int | None = None,
    ) -> list[bytes]:
        """Up to `count` encoded messages, of about `bytes_max` bytes in all, from `from_sequence_number` on (P23).

        With `partition_id` only that partition is asked; BrokerError while its store is out.
        """
        entity, parsed = self.find(address)
        if partition_id is not None:
            return await entity.peek_partition(
                parsed.sub_queue, partition_id, from_sequence_number, count, bytes_max, session_id
            )
        return await entity.peek(parsed.sub_queue, from_sequence_number, count, bytes_max, session_id)

    async def renew_locks(self, address: str, tokens: Sequence[bytes]) -> list[int]:
        """Renew locks: their new ends (Unix ms) in order; BrokerError (message-lock-lost) if any is over."""
        entity, parsed = self.find(address)
        return await several_partitions.renew(entity, parsed.sub_queue, tokens)

    async def settle(self, address: str, tokens: Sequence[bytes], outcome: Outcome) -> None:
        """Settle by lock token, without the link that received; BrokerError (message-lock-lost) if any is over."""
        entity, parsed = self.find(address)
        await several_partitions.settle(entity, parsed.sub_queue, tokens, outcome)

    async def receive_by_sequence_number(
        self, address: str, numbers: Sequence[int], mode: ReceiveMode, session_id: str | None = None
    ) -> list[Delivery]:
        """The deferred messages with these sequence numbers; BrokerError (message-not-found) if any is missing."""
        entity, parsed = self.find(address)
        return await several_partitions.take_deferred(entity, parsed.sub_queue, numbers, mode, session_id)

    async def schedule(self, address: str, encoded: Sequence[bytes]) -> list[int]:
        """Store encoded messages until the times in them; their sequence numbers, in order."""
        entity, messages = self._to_schedule(address, encoded)
        numbers, handle = await scheduling.schedule(entity, messages)
        if handle is not None:
            await self.forwarder.round_of(handle)
        return numbers

    async def cancel_scheduled(self, address: str, numbers: Sequence[int]) -> None:
        """Remove scheduled messages, all or none; BrokerError (message-not-found) names those that aren't there."""
        await scheduling.cancel(self.find(address)[0], numbers)

    async def delete_messages(self, address: str, count: int, before_at: int, session_id: str | None = None) -> int:
        """Delete up to `count` available messages enqueued before `before_at` (Unix ms); how many it were."""
        entity, parsed = self.find(address)
        return await entity.delete_messages(
            parsed.sub_queue, min(count, self.limits.messages_per_delete_max), before_at, session_id
        )

    async def extents(self, address: str) -> list[Extent | None]:
        """Where each partition of an entity or sub-queue begins and ends; None for one that can't be reached now."""
        entity, parsed = self._receivable(address)
        return await entity.extents(parsed.sub_queue)

    async def delete_before(self, address: str, partition_id: int, number: int, count: int) -> int:
        """Delete available messages of a partition below a sequence number, at most `count`; how many it were."""
        entity, parsed = self._receivable(address)
        count = min(count, self.limits.messages_per_range_delete_max)
        return await entity.delete_before(parsed.sub_queue, partition_id, number, count)

    async def renew_session(self, address: str, session_id: str) -> int:
        """Start a session's lock duration anew: its new end (Unix ms); BrokerError (session-lock-lost)."""
        return int(await self._session_partition(address, session_id).request(partial(RenewSession, session_id)))

    async def set_session_state(self, address: str, session_id: str, state: bytes | None) -> None:
        """Keep `state` for a held session, None clears it; BrokerError (session-lock-lost, message-size-exceeded)."""
        self._check_state(address, state)
        await self._session_partition(address, session_id).request(partial(SetSessionState, session_id, state))

    async def session_state(self, address: str, session_id: str) -> bytes | None:
        """The state of a held session; BrokerError (session-lock-lost)."""
        answer = await self._session_partition(address, session_id).request(partial(GetSessionState, session_id))
        return answer if isinstance(answer, bytes) else None

    async def message_sessions(self, address: str, updated_after: int | None) -> list[str]:
        """Names of sessions: with active messages or state, or with a state changed after an instant (Unix ms)."""
        entity, _ = self.find(address)
        if not entity.requires_session:
            raise service_errors.session_not_supported()
        return await entity.list_sessions(updated_after)

    # ---- transactions

    def transactional_send(self, ref: TransactionRef, sender: Sender, data: bytes, *, batch: bool) -> None:
        """Add a delivery to a transaction; BrokerError if it can't be part of it."""
        with self.transactions.working(ref):
            error = sender.size_refusal(data, batch=batch)
            if error is not None:
                raise error
        self.transactions.send(ref, sender.entity, data, batch=batch)

    async def transactional_schedule(self, ref: TransactionRef, address: str, encoded: Sequence[bytes]) -> list[int]:
        """Add messages to be scheduled to a transaction; the sequence numbers that they will have."""
        entity, messages = self._to_schedule(address, encoded)
        return await self.transactions.schedule(ref, entity, messages)

    async def transactional_cancel(self, ref: TransactionRef, address: str, numbers: Sequence[int]) -> None:
        """Add the removal of scheduled messages to a transaction; BrokerError (message-not-found)."""
        await self.transactions.cancel(ref, self.find(address)[0], numbers)

    async def transactional_set_state(
        self, ref: TransactionRef, address: str, session_id: str, state: bytes | None
    ) -> None:
        """Add a new state of a held session to a transaction; BrokerError as for `set_session_state`."""
        with self.transactions.working(ref):
            self._check_state(address, state)
            self._session_partition(address, session_id)  # raises for an entity without sessions
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
        """Add a settlement to a transaction; BrokerError if the lock is lost or it can't be part of it.

        With `settled` the receiver has let go of the message: a rollback abandons it. A commit calls `on_commit()`.
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
        """Messages to be scheduled, which are refused for all the reasons for which a sender is."""
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
        """BrokerError (message-size-exceeded) for a state that is larger than a message may be."""
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
