"""The namespace at run time: addresses in, senders and consumers out. The face that adapters see.

Knows the entities, the messaging stores' workers and which partition lives where. Refuses to decide about messages
(`partition.py`), to change what entities there are (`administration.py`) and to speak a protocol. Owned by the
composition root; everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from ..storage import Store, no_failpoint
from . import service_errors
from .access import SharedKey
from .address import Address, SubQueue, parse_address
from .admin.administration import Administration
from .admin.maintenance import Upkeep
from .clock import Clock
from .entities import scheduling, several_partitions
from .entities.entity import RECEIVE_REFUSED, SEND_REFUSED, Description, Entity, EntityPartition, Totals
from .entities.forwarder import Forwarder
from .entities.links import Consumer, Deliver, Detached, Sender, SessionConsumer, SessionWait
from .entities.topic import TopicFanOut
from .entities.transactions import TransactionRef, Transactions
from .errors import BrokerError, Condition
from .message.bounds import bounds_of
from .message.message import Message
from .model.catalog import Catalog, Entry
from .model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription, Topology, entity_key
from .model.profiles import Limits, limits_over, message_bytes_max
from .outcomes import Outcome
from .partition.requests import GetSessionState, RenewSession, SetSessionState
from .partition.step import Delivery, Extent, ReceiveMode
from .stores.outage import Outage
from .stores.worker import Worker

COMMIT_THREADS = 4  # commits of several stores overlap; more threads gain little on the disks measured


class Broker:
    """One namespace over `stores` (one worker each) and the `catalog` of its entities, within `limits`."""

    def __init__(
        self,
        catalog: Catalog,
        stores: Sequence[Store],
        clock: Clock,
        limits: Limits,
        failpoint: Callable[[str], None] = no_failpoint,
    ) -> None:
        self.limits = limits_over(limits, len(stores))
        self.clock = clock
        self.topology = Topology()  # what it was started with
        self.administration = Administration(self)
        self.upkeep = Upkeep(self)
        self.away: BrokerError | None = None  # why there are no stores now, while they are exchanged
        self.pool = ThreadPoolExecutor(COMMIT_THREADS, thread_name_prefix="commit")
        self._failpoint = failpoint
        self._take_over(catalog, stores)

    def _take_over(self, catalog: Catalog, stores: Sequence[Store]) -> None:
        self.catalog = catalog
        self.transactions = Transactions(self.clock, self.limits.messages_per_transaction_max)
        self.workers = [
            Worker(index, store, self.clock, self.pool, self._resolver(index), self._failpoint)
            for index, store in enumerate(stores)
        ]
        self.forwarder = Forwarder(self.clock, self.find_target)
        self._entities: dict[str, Entity] = {}
        self._places: dict[tuple[int, int], EntityPartition] = {}  # (queue id, store index)

    @property
    def namespace(self) -> str:
        """The name of the namespace."""
        return self.topology.namespace

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
        self._begin()

    def _begin(self) -> None:
        for entry in self.catalog.entries():
            self.add(entry)
        for worker in self.workers:
            for queue_id in worker.start():
                place = self._places.get((queue_id, worker.index))
                if place is not None:
                    self.forwarder.wake_after_start(place, worker.counters(queue_id).next_counter)
        self.administration.start()

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
        self._entities.clear()
        self._places.clear()

    def go_on_with(self, catalog: Catalog, stores: Sequence[Store]) -> None:
        """Work with these stores, after `give_up_stores`; CatalogError if it is another number than before."""
        catalog.fix_store_count(len(stores), self.clock.now_ms())
        self._take_over(catalog, stores)
        self._begin()
        self.away = None

    async def _close_stores(self) -> None:
        await self.administration.stop()
        await self.forwarder.stop()
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        self.administration.remember_access()
        self.catalog.close()

    # ---- entities

    def entities(self) -> Iterator[Entity]:
        """All queues, topics and subscriptions."""
        return iter(list(self._entities.values()))

    def entity(self, path: str) -> Entity | None:
        """The entity of that path in any case."""
        return self._entities.get(entity_key(path))

    def totals_of_topic(self, topic: Entity) -> Totals:
        """What a topic holds: its own messages, and the bytes of its subscriptions, too."""
        own = topic.totals_now()
        others = [each.totals_now() for each in self.fan_out_of(topic.path).entities()]
        return replace(own, bytes_used=own.bytes_used + sum(each.bytes_used for each in others))

    def entity_keys(self, path: str | None) -> Iterator[SharedKey]:
        """The keys of the entities at or above a path, or with None of all: they change while the broker runs."""
        if path is None:
            entities = list(self._entities.values())
        else:
            parts = entity_key(path).split("/")
            above = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
            entities = [self._entities[each] for each in above if each in self._entities]
        for entity in entities:
            description = entity.description
            if not isinstance(description, SubscriptionDescription):
                yield from (rule.shared_key(entity.path) for rule in description.authorization_rules)

    def add(self, entry: Entry) -> Entity:
        """Bring an entity of the catalog to life."""
        description = entry.description
        top = self._topic_of(description) if isinstance(description, SubscriptionDescription) else description
        count = self.limits.partition_count if top.enable_partitioning else 1
        first = 0 if top.enable_partitioning else self._home_store(top.name)
        entity = Entity(
            entry.queue_id,
            description,
            self.workers[first : first + count],
            self._partition_bytes_max(top),
            lambda place: self.forwarder.wake(place),
            partitioned=top.enable_partitioning,
            bounds=bounds_of(self.limits),
            namespace=self.namespace,
        )
        if isinstance(description, SubscriptionDescription):
            entity.receives = self._entities[entity_key(description.topic_name)].receives
        else:
            entity.receives.count_max = self.limits.receives_per_entity_max
        if isinstance(description, TopicDescription):
            entity.fan_out = TopicFanOut(entity)
        elif isinstance(description, SubscriptionDescription):
            self.fan_out_of(description.topic_name).add(entity)
        self._entities[entity_key(entity.path)] = entity
        for place in entity.partitions:
            self._places[entry.queue_id, place.worker.index] = place
        self.administration.watch(entity)
        return entity

    def describe(self, entity: Entity, description: Description) -> None:
        """Let an entity follow its changed description."""
        entity.describe(description)
        if isinstance(description, SubscriptionDescription):
            self.fan_out_of(description.topic_name).change_rules(entity, description.rules)
            return
        size_bytes_max = self._partition_bytes_max(description)
        for each in [entity, *(self.fan_out_of(entity.path).entities() if entity.fan_out is not None else ())]:
            for place in each.partitions:
                place.size_bytes_max = size_bytes_max

    def remove(self, entity: Entity, detached: BrokerError | None = None) -> None:
        """Take an entity out of the namespace; its rows are the business of `administration`.

        Its links, and what is asked of it from now on, hear `detached`, or that there is no such entity.
        """
        if isinstance(entity.description, SubscriptionDescription):
            self.fan_out_of(entity.description.topic_name).remove(entity)
        self._entities.pop(entity_key(entity.path), None)
        entity.gone = detached or service_errors.not_found(self.namespace, entity.path)
        self.forwarder.forget(entity)
        entity.detach_all(entity.gone)

    def drop_place(self, queue_id: int, store_index: int) -> None:
        """The rows of a deleted entity's partition are gone."""
        place = self._places.pop((queue_id, store_index), None)
        if place is not None:
            place.worker.forget(queue_id)

    def place_for_clearing(self, queue_id: int, store_index: int) -> EntityPartition:
        """The partition of a deleted entity, to remove its rows; made up if an earlier run deleted the entity."""
        place = self._places.get((queue_id, store_index))
        if place is None:
            worker = self.workers[store_index]
            gone = Entity(queue_id, QueueDescription("(deleted)"), [worker], 0, lambda _: None, partitioned=False)
            place = self._places[queue_id, store_index] = gone.partitions[0]
        return place

    def fan_out_of(self, topic_name: str) -> TopicFanOut:
        """The subscriptions of a topic that exists."""
        fan_out = self._entities[entity_key(topic_name)].fan_out
        assert isinstance(fan_out, TopicFanOut)
        return fan_out

    def find_target(self, address: str) -> Entity:
        """The queue or topic that a ForwardTo or a transfer names; BrokerError if there is none."""
        entity, parsed = self.find(address)
        if parsed.sub_queue is not SubQueue.ACTIVE or isinstance(entity.description, SubscriptionDescription):
            raise BrokerError(Condition.NOT_ALLOWED, f"Messages can't be forwarded to '{parsed.path}'.")
        return entity

    def find(self, address: str) -> tuple[Entity, Address]:
        """The entity of an address as a client writes it; BrokerError (amqp:not-found) with the sentence they match."""
        parsed = parse_address(address)
        entity = self._entities.get(parsed.key)
        if entity is None:
            raise self.away or service_errors.not_found(self.namespace, parsed.path)
        return entity, parsed

    def name_of(self, address: str) -> str:
        """How the service's brokers call the entity of an address, in the tails of errors: `ns:Queue:q`."""
        parsed = parse_address(address)
        entity = self._entities.get(parsed.key)
        if entity is None:
            return service_errors.name_of(self.namespace, parsed.entity)
        return entity.name_in_errors

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

    def open_consumer(self, address: str, *, mode: ReceiveMode, deliver: Deliver, detached: Detached) -> Consumer:
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
        return Consumer(entity, parsed.sub_queue, mode, self.clock, deliver, detached)

    def accept_session(
        self,
        address: str,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        timeout_ms: int,
        granted: Callable[[SessionConsumer], None],
        refused: Callable[[BrokerError], None],
        detached: Detached,
    ) -> SessionWait:
        """Wait for a message session: the named one, or with None the next that is idle, for up to `timeout_ms`.

        BrokerError at once: amqp:not-found, entity-disabled, amqp:not-allowed for an entity without sessions. Later
        `granted(consumer)` or `refused(error)`: session-cannot-be-locked, com.microsoft:timeout.
        """
        entity, parsed = self._receivable(address)
        if not entity.requires_session or parsed.sub_queue is not SubQueue.ACTIVE:
            raise service_errors.session_not_supported()
        return SessionWait(entity, session_id, mode, timeout_ms, self.clock, granted, refused, detached)

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
        numbers, place = await scheduling.schedule(entity, messages)
        if place is not None:
            await self.forwarder.round_of(place)
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
        return int(await self._session_place(address, session_id).request(partial(RenewSession, session_id)))

    async def set_session_state(self, address: str, session_id: str, state: bytes | None) -> None:
        """Keep `state` for a held session, None clears it; BrokerError (session-lock-lost, message-size-exceeded)."""
        self._check_state(address, state)
        await self._session_place(address, session_id).request(partial(SetSessionState, session_id, state))

    async def session_state(self, address: str, session_id: str) -> bytes | None:
        """The state of a held session; BrokerError (session-lock-lost)."""
        answer = await self._session_place(address, session_id).request(partial(GetSessionState, session_id))
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
            entity = self._session_place(address, session_id).entity
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

    # ---- outages

    def begin_outage(self, store_index: int, outage: Outage, duration_ms: int | None = None) -> None:
        """Let a messaging store be out, for `duration_ms` or until `end_outage` (P18)."""
        worker = self.workers[store_index]
        worker.begin_outage(outage)
        if duration_ms is not None:
            self.clock.call_at(
                self.clock.now_ms() + duration_ms,
                lambda: self.end_outage(store_index) if worker.outage is outage else None,
            )

    def end_outage(self, store_index: int) -> None:
        """The store works again; whoever waits for what is in it is served."""
        worker = self.workers[store_index]
        worker.end_outage()
        for entity in self.entities():
            for place in entity.partitions:
                if place.worker is worker:
                    for sub_queue in SubQueue:
                        place.announce(sub_queue)
                    place.announce_session(None)
                    if worker.has_outbox(place.queue_id):
                        place.announce_outbox(None)

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

    def _session_place(self, address: str, session_id: str) -> EntityPartition:
        entity, _ = self.find(address)
        if not entity.requires_session:
            raise service_errors.session_not_supported()
        return entity.partitions[entity.place_of_session(session_id)]

    def _topic_of(self, description: SubscriptionDescription) -> TopicDescription:
        topic = self._entities[entity_key(description.topic_name)].description
        assert isinstance(topic, TopicDescription)
        return topic

    def _partition_bytes_max(self, top: QueueDescription | TopicDescription) -> int:
        """How much one partition of a queue or topic may hold."""
        size_bytes_max = top.max_size_mb << 20
        if self.limits.size_is_per_partition or not top.enable_partitioning:
            return size_bytes_max
        return size_bytes_max // self.limits.partition_count

    def _home_store(self, name: str) -> int:
        """The store of an unpartitioned entity: a stable hash of its top-level path."""
        return zlib.crc32(entity_key(name).encode()) % len(self.workers)

    def _resolver(self, store_index: int) -> Callable[[int], EntityPartition | None]:
        return lambda queue_id: self._places.get((queue_id, store_index))
