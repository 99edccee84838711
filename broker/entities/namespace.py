"""The running namespace: its entities, the workers of its messaging stores, and the placement of partitions.

Finds entities by address and loads the entities of the catalog. Does not know links (`broker.py`) and requests
(`messages.py`, `sessions.py`), nor when an entity may be created or deleted (`admin/`). Owned by the `Broker`;
everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ...storage import Store, no_failpoint
from .. import service_errors
from ..address import Address, SubQueue, parse_address
from ..clock import Clock
from ..errors import BrokerError, Condition
from ..keys import SharedKey
from ..message.bounds import MessageBounds
from ..model.catalog import Catalog, Entry
from ..model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription, Topology, entity_key
from ..model.profiles import Limits, limits_over, message_bytes_max
from ..partition.contract import Delays, NoObserver, Observer
from ..partition.records import topic_bytes
from ..partition.state import forwarded_from
from ..stores.committer import Committer
from ..stores.recovery import Recovery
from ..stores.worker import Worker
from ..turns import Pace, TurnEnd
from .dispatcher import ReceiveQuota
from .entity import RECEIVE_REFUSED, SEND_REFUSED, Description, Entity, PartitionHandle, Totals
from .forwarder import Forwarder
from .topic import TopicSubscriptions
from .transactions import Transactions

COMMIT_THREADS = 4  # commits of several stores overlap; more threads gain little on the disks measured


def nowhere(host: str) -> bool:
    """Say that no host names another namespace: there is one only."""
    del host
    return False


class Namespace:
    """One namespace over `stores` (one worker for each) and the `catalog` of its entities, within `limits`."""

    def __init__(
        self,
        catalog: Catalog,
        stores: Sequence[Store],
        clock: Clock,
        limits: Limits,
        failpoint: Callable[[str], None] = no_failpoint,
        observer: Observer | None = None,
        is_elsewhere: Callable[[str], bool] = nowhere,
    ) -> None:
        self.is_elsewhere = is_elsewhere
        """Whether a host names another namespace of this process."""
        self.limits = limits_over(limits, len(stores))
        self.clock = clock
        self.topology = Topology()  # of the start, for a reset
        self.away: BrokerError | None = None  # set while the stores are exchanged
        self.pool = ThreadPoolExecutor(COMMIT_THREADS, thread_name_prefix="commit")
        self._committer = Committer(self.pool, COMMIT_THREADS, clock)
        self._pace = Pace()
        self.turn_end = TurnEnd()
        """What the workers do behind the input of a client."""
        self._failpoint = failpoint
        self.observer = observer or NoObserver()
        self.transactions = Transactions(clock, self.limits.messages_per_transaction_max)
        self._watchers: list[Callable[[Entity], None]] = []
        self._key_watchers: list[Callable[[], None]] = []
        self._delays: Delays | None = None
        self._use_stores(catalog, stores)

    def _use_stores(self, catalog: Catalog, stores: Sequence[Store]) -> None:
        self.observer.forget()
        self.catalog = catalog
        shared = self.clock, self._committer, self._pace, self.turn_end
        self.workers = [
            Worker(index, store, *shared, *self._partitions_of_store(index), self._failpoint, self.observer)
            for index, store in enumerate(stores)
        ]
        # Not on a thread: the catalog's commits wait on the loop, too, because entities change rarely.
        self.catalog_recovery = Recovery(
            self.clock, "store of the namespace", catalog.recover, lambda: None, waits=False
        )
        catalog.on_failure(self.catalog_recovery.fail)
        for worker in self.workers if self._delays is not None else ():
            worker.use_delays(self._delays)
        self.forwarder = Forwarder(self.clock, self.find_target)
        self._entities: dict[str, Entity] = {}
        self._of_jms: dict[str, list[Entity]] = {}  # subscriptions that JMS has made, by name
        self._handles: dict[tuple[int, int], PartitionHandle] = {}  # (queue id, store index)

    def on_entity_added(self, watcher: Callable[[Entity], None]) -> None:
        """Call `watcher(entity)` for each entity added from now on."""
        self._watchers.append(watcher)

    def on_keys_changed(self, watcher: Callable[[], None]) -> None:
        """Call `watcher()` whenever an entity has got other keys, from now on."""
        self._key_watchers.append(watcher)

    @property
    def name(self) -> str:
        return self.topology.namespace

    # ---- life

    def merge(self, topology: Topology, *, only_if_new: bool) -> tuple[list[str], list[str]]:
        """Merge `topology` into the catalog, `only_if_new` at the first start. Raises CatalogError.

        Returns the paths that are not merged: those that the catalog has not, and those that it has otherwise.
        """
        is_new = self.catalog.store_count is None
        self.topology = topology
        self.catalog.fix_store_count(len(self.workers), self.clock.now_ms())
        if is_new or not only_if_new:
            self.catalog.merge(topology, self.clock.now_ms())
            return [], []
        return self.catalog.ignored_of(topology)

    def start(self) -> None:
        """Add all entities of the catalog and start the workers."""
        for entry in self.catalog.entries():
            self.add(entry)
        for worker in self.workers:
            for queue_id in worker.start():
                handle = self._handles.get((queue_id, worker.index))
                if handle is not None and worker.has_outgoing(queue_id, *forwarded_from(handle.description)):
                    self.forwarder.wake_after_start(handle, worker.counters(queue_id).next_counter)

    async def stop_workers(self) -> None:
        """Finish the accepted requests and close the messaging stores."""
        await self.forwarder.stop()
        await asyncio.gather(*(worker.stop() for worker in self.workers), self.catalog_recovery.stop())
        await self._committer.forget_groups()

    def go_away(self, detached: BrokerError, away: BrokerError) -> None:
        """Detach all links with `detached`, and raise `away` at every look-up until `away` is None again."""
        self.away = away
        for entity in self.entities():
            entity.detach_all(detached)
        self.transactions.close()

    def forget_entities(self) -> None:
        """Forget what was loaded, once the workers have stopped."""
        self._entities.clear()
        self._of_jms.clear()
        self._handles.clear()

    def use_other_stores(self, catalog: Catalog, stores: Sequence[Store]) -> None:
        """Use these stores from now on. Raises CatalogError if their number has changed."""
        catalog.fix_store_count(len(stores), self.clock.now_ms())
        self._use_stores(catalog, stores)

    # ---- entities

    def entities(self) -> Iterator[Entity]:
        return iter(list(self._entities.values()))

    def entity(self, path: str) -> Entity | None:
        """Return the entity of a path, in any case."""
        return self._entities.get(entity_key(path))

    def jms_subscriptions(self, name: str) -> list[Entity]:
        """Return the subscriptions of that name, in any case, that JMS has made, over all topics."""
        return list(self._of_jms.get(entity_key(name), ()))

    def totals_of_topic(self, topic: Entity) -> Totals:
        """Return a topic's own messages, and its bytes with those of its subscriptions."""
        own = topic.totals_now()
        copies = [each.counters_now() for each in self.subscriptions_of(topic.path).entities()]
        sizes = [
            topic_bytes(counters, [by_index[index] for by_index in copies if index in by_index])
            for index, counters in topic.counters_now().items()
        ]
        return replace(own, bytes_used=sum(sizes))

    def entity_keys(self, path: str | None) -> Iterator[SharedKey]:
        """Yield the current keys of the entities at or above a path, with None of all entities."""
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
        description = entry.description
        top = self._topic_of(description) if isinstance(description, SubscriptionDescription) else description
        count = self.limits.partition_count if top.enable_partitioning else 1
        first = 0 if top.enable_partitioning else self._home_store(top.name)
        entity = Entity(
            entry.queue_id,
            description,
            self.workers[first : first + count],
            self._partition_bytes_max(top),
            lambda handle: self.forwarder.wake(handle),
            partitioned=top.enable_partitioning,
            bounds=message_bounds(self.limits),
            namespace=self.name,
            receive_quota=self._receive_quota(description),
            first_counters=entry.first_counters,
            exact_keys=self._exact_keys(entry),
        )
        if isinstance(description, TopicDescription):
            entity.route_to(TopicSubscriptions(entity))
        elif isinstance(description, SubscriptionDescription):
            self.subscriptions_of(description.topic_name).add(entity)
            if description.jms is not None:
                self._of_jms.setdefault(entity_key(description.name), []).append(entity)
        self._entities[entity_key(entity.path)] = entity
        for handle in entity.partitions:
            self._handles[entry.queue_id, handle.worker.index] = handle
        for watcher in self._watchers:
            watcher(entity)
        self.forwarder.entity_added()
        return entity

    def _receive_quota(self, description: Description) -> ReceiveQuota:
        """Return the quota: subscriptions share that of their topic."""
        if isinstance(description, SubscriptionDescription):
            return self._entities[entity_key(description.topic_name)].receive_quota
        return ReceiveQuota(self.limits.receives_per_entity_max)

    def describe(self, entity: Entity, description: Description) -> None:
        before = entity.description
        entity.describe(description)
        if isinstance(description, SubscriptionDescription):
            holds = None if self._delays is None else self._delays.holds_rules
            self.subscriptions_of(description.topic_name).change_rules(entity, description.rules, holds)
            return
        size_bytes_max = self._partition_bytes_max(description)
        for each in [
            entity,
            *(self.subscriptions_of(entity.path).entities() if entity.routing is not None else ()),
        ]:
            for handle in each.partitions:
                handle.size_bytes_max = size_bytes_max
        assert not isinstance(before, SubscriptionDescription), "an entity stays of its kind"
        if before.authorization_rules != description.authorization_rules:
            self.keys_changed()

    def keys_changed(self) -> None:
        """Tell who watches that keys, or roles, give other rights than before."""
        for watcher in self._key_watchers:
            watcher()

    def remove(self, entity: Entity, detached: BrokerError | None = None) -> None:
        """Remove an entity; `administration` removes its rows.

        Its links and later requests get `detached`, by default not-found.
        """
        description = entity.description
        if isinstance(description, SubscriptionDescription):
            self.subscriptions_of(description.topic_name).remove(entity)
            if description.jms is not None:
                self._forget_jms_subscription(entity)
        self._entities.pop(entity_key(entity.path), None)
        gone = detached or service_errors.not_found(self.name, entity.path)
        entity.delete(gone)
        self.forwarder.forget(entity)
        entity.detach_all(gone)

    def drop_partition(self, queue_id: int, store_index: int) -> None:
        """Forget the partition of a deleted entity, whose rows are removed."""
        handle = self._handles.pop((queue_id, store_index), None)
        if handle is not None:
            handle.worker.remove(queue_id)

    def _exact_keys(self, entry: Entry) -> bool:
        """Whether keys are compared with case; a subscription has its copies where its topic has the messages."""
        description = entry.description
        if isinstance(description, SubscriptionDescription):
            return self._entities[entity_key(description.topic_name)].exact_keys
        return entry.exact_keys

    def partition_to_clear(self, queue_id: int, store_index: int) -> PartitionHandle:
        """Return the partition of a deleted entity, to remove its rows; an earlier run may have deleted the entity."""
        handle = self._handles.get((queue_id, store_index))
        if handle is None:
            worker = self.workers[store_index]
            gone = Entity(queue_id, QueueDescription("(deleted)"), [worker], 0, lambda _: None, partitioned=False)
            handle = self._handles[queue_id, store_index] = gone.partitions[0]
        return handle

    def subscriptions_of(self, topic_name: str) -> TopicSubscriptions:
        routing = self._entities[entity_key(topic_name)].routing
        assert isinstance(routing, TopicSubscriptions)
        return routing

    def find_target(self, address: str) -> Entity:
        """Return the target queue or topic of a ForwardTo or a transfer. Raises BrokerError if there is none."""
        entity, parsed = self.find(address)
        if parsed.sub_queue is not SubQueue.ACTIVE or isinstance(entity.description, SubscriptionDescription):
            raise BrokerError(Condition.NOT_ALLOWED, f"Messages can't be forwarded to '{parsed.path}'.")
        return entity

    def find(self, address: str) -> tuple[Entity, Address]:
        """Return the entity of a client's address, and the parsed address. Raises BrokerError (amqp:not-found)."""
        parsed = parse_address(address)
        entity = self._entities.get(parsed.key)
        if entity is None:
            topic_key = parsed.key.rpartition(service_errors.SUBSCRIPTIONS)[0]
            topic = self._entities.get(topic_key)
            topic_exists = topic is not None and isinstance(topic.description, TopicDescription)
            raise self.away or service_errors.not_found(self.name, parsed.path, topic_exists=topic_exists)
        return entity, parsed

    def name_of(self, address: str) -> str:
        """Return the service's internal name of an address, for the tails of errors: `ns:Queue:q`."""
        parsed = parse_address(address)
        entity = self._entities.get(parsed.key)
        if entity is None:
            return service_errors.name_of(self.name, parsed.entity)
        return entity.name_in_errors

    def find_sendable(self, address: str) -> Entity:
        """Return the queue or topic of an address that takes messages from senders.

        Raises BrokerError: not-found, entity-disabled, not-allowed (a sub-queue or a subscription).
        """
        entity, parsed = self.find(address)
        description = entity.description
        if parsed.sub_queue is not SubQueue.ACTIVE or isinstance(description, SubscriptionDescription):
            if isinstance(description, SubscriptionDescription):
                target = f"topic '{description.topic_name}'"
            else:
                target = f"queue '{entity.path}'"
            raise BrokerError(
                Condition.NOT_ALLOWED,
                f"Messages can't be sent to '{parsed.path}': it takes no messages from senders; send to the {target}.",
            )
        if description.status in SEND_REFUSED:
            raise entity.disabled()
        return entity

    def find_receivable(self, address: str) -> tuple[Entity, Address]:
        """Return the queue or subscription of an address that gives messages to receivers, and the parsed address.

        Raises BrokerError: not-found, entity-disabled, not-allowed (a topic, or an entity that forwards its messages).
        """
        entity, parsed = self.find(address)
        description = entity.description
        if isinstance(description, TopicDescription):
            raise BrokerError(Condition.NOT_ALLOWED, f"Nothing can be received from the topic '{entity.path}' itself.")
        if description.status in RECEIVE_REFUSED:
            raise entity.disabled()
        if description.forward_to is not None and parsed.sub_queue is SubQueue.ACTIVE:
            raise service_errors.forwards()
        return entity, parsed

    def check_browsable(self, address: str) -> None:
        """Raise BrokerError (not-found, not-allowed) unless the service answers requests of clients about an entity."""
        entity, parsed = self.find(address)
        if parsed.sub_queue is SubQueue.ACTIVE and getattr(entity.description, "forward_to", None) is not None:
            raise service_errors.browses_forwarding()

    def find_session(self, address: str, session_id: str) -> PartitionHandle:
        """Return the partition of a message session. Raises BrokerError: not-found, not-allowed (without sessions)."""
        entity, _ = self.find(address)
        if not entity.requires_session:
            raise service_errors.session_not_supported()
        return entity.partitions[entity.partition_index_of_session(session_id)]

    def message_bytes_max(self, entity: Entity) -> int:
        """Return the maximum size in bytes of a message to a queue or topic."""
        assert not isinstance(entity.description, SubscriptionDescription)
        return message_bytes_max(entity.description, self.limits)

    # ---- what is late on purpose

    def use_delays(self, delays: Delays | None) -> None:
        """From now on these delays hold, None for none: what is no longer late comes at once."""
        self._delays = delays
        for worker in self.workers:
            worker.use_delays(delays)

    def announce(self, path: str) -> None:
        """Have receivers of an entity ask for messages again; nothing if there is none."""
        entity = self.entity(path)
        for handle in () if entity is None else entity.partitions:
            handle.worker.announce([handle])

    # ---- helpers

    def _forget_jms_subscription(self, entity: Entity) -> None:
        key = entity_key(entity.description.name)
        self._of_jms[key].remove(entity)
        if not self._of_jms[key]:
            del self._of_jms[key]

    def _topic_of(self, description: SubscriptionDescription) -> TopicDescription:
        topic = self._entities[entity_key(description.topic_name)].description
        assert isinstance(topic, TopicDescription)
        return topic

    def _partition_bytes_max(self, top: QueueDescription | TopicDescription) -> int:
        """Return the size limit of one partition of a queue or topic."""
        size_bytes_max = top.max_size_mb << 20
        if self.limits.size_is_per_partition or not top.enable_partitioning:
            return size_bytes_max
        return size_bytes_max // self.limits.partition_count

    def _home_store(self, name: str) -> int:
        """Return the store index of an unpartitioned entity: a stable hash of its top-level path."""
        return zlib.crc32(entity_key(name).encode()) % len(self.workers)

    def _partitions_of_store(
        self, store_index: int
    ) -> tuple[Callable[[int], PartitionHandle | None], Callable[[], list[PartitionHandle]]]:
        """Return what finds the partition of a queue in a store, and what finds all partitions there."""
        return (
            lambda queue_id: self._handles.get((queue_id, store_index)),
            lambda: [handle for (_, index), handle in self._handles.items() if index == store_index],
        )


def message_bounds(limits: Limits) -> MessageBounds:
    return MessageBounds(
        limits.properties_bytes_max, limits.property_bytes_max, limits.key_length_max, limits.forward_hops_max
    )
