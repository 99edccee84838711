"""The namespace at run time: addresses in, senders and consumers out. The face that adapters see.

Knows the queues, the messaging stores' workers and which partition lives where. Refuses to decide about messages
(`partition.py`) and to speak a protocol. Owned by the composition root; everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..storage import Store, no_failpoint
from . import sentences
from .address import Address, SubQueue, parse_address
from .catalog import Catalog, QueueEntry
from .clock import Clock
from .commands import Delivery, ReceiveMode
from .description import QueueDescription, Topology, entity_key
from .errors import BrokerError, Condition
from .limits import Limits, message_bytes_max, partitions_of, validate_queue
from .outcomes import Outcome
from .queue import RECEIVE_REFUSED, SEND_REFUSED, Consumer, Queue, QueuePartition, Sender
from .worker import Worker

COMMIT_THREADS = 4  # commits of several stores overlap; more threads gain nothing on the disks measured


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
        self.limits = limits
        self.clock = clock
        self._catalog = catalog
        self._pool = ThreadPoolExecutor(COMMIT_THREADS, thread_name_prefix="commit")
        self._queues: dict[str, Queue] = {}
        self._places: dict[tuple[int, int], QueuePartition] = {}  # (queue id, store index)
        self._workers = [
            Worker(index, store, clock, self._pool, self._resolver(index), failpoint)
            for index, store in enumerate(stores)
        ]

    # ---- life

    def start(self, topology: Topology, *, only_if_new: bool = False) -> None:
        """Merge `topology` into the catalog and begin to work; CatalogError if they contradict each other.

        With `only_if_new` the topology is for a namespace that never started before: what was deleted stays deleted.
        """
        is_new = self._catalog.store_count is None
        self._catalog.fix_store_count(len(self._workers))
        if is_new or not only_if_new:
            self._catalog.merge(topology)
        for entry in self._catalog.queues():
            self._add(entry)
        for worker in self._workers:
            worker.start()

    async def stop(self) -> None:
        """Finish what was accepted for work, then close the stores."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._catalog.close()
        self._pool.shutdown()

    # ---- entities

    def queues(self) -> Iterator[Queue]:
        """All queues, in order of creation."""
        return iter(list(self._queues.values()))

    def queue(self, name: str) -> Queue | None:
        """The queue of that name in any case."""
        return self._queues.get(entity_key(name))

    def create_queue(self, description: QueueDescription) -> Queue:
        """Create a queue; BrokerError for a name that is taken or a property beyond the limits."""
        for violation in validate_queue(description, self.limits):
            raise BrokerError(Condition.ARGUMENT_OUT_OF_RANGE, str(violation))
        return self._add(self._catalog.create_queue(description))

    # ---- links

    def open_sender(self, address: str) -> Sender:
        """A way to send to `address` (as the client wrote it).

        BrokerError: amqp:not-found, entity-disabled, or amqp:not-allowed for a sub-queue.
        """
        queue, parsed = self._find(address)
        if parsed.sub_queue is not SubQueue.ACTIVE:
            raise BrokerError(
                Condition.NOT_ALLOWED,
                f"Messages can't be sent to '{parsed.path}': it takes no messages from senders.",
            )
        if queue.description.status in SEND_REFUSED:
            raise sentences.disabled(queue.path, queue.description.status.value)
        size_bytes_max = message_bytes_max(queue.description, self.limits)
        return Sender(queue, size_bytes_max, max(size_bytes_max, self.limits.batch_bytes_max))

    def open_consumer(
        self,
        address: str,
        *,
        mode: ReceiveMode,
        deliver: Callable[[Sequence[Delivery]], None],
        detached: Callable[[BrokerError], None],
    ) -> Consumer:
        """A way to receive from `address`; `deliver` gets messages, `detached` the reason when the queue goes away.

        BrokerError: amqp:not-found, entity-disabled, amqp:not-allowed for an entity that wants message sessions.
        """
        del detached  # queues live as long as the broker until they can be deleted
        queue, parsed = self._find(address)
        if queue.description.status in RECEIVE_REFUSED:
            raise sentences.disabled(queue.path, queue.description.status.value)
        if queue.description.requires_session and parsed.sub_queue is SubQueue.ACTIVE:
            raise sentences.session_receiver_required(queue.path)
        return Consumer(queue, parsed.sub_queue, mode, deliver)

    # ---- requests

    async def peek(self, address: str, from_sequence_number: int, count: int, bytes_max: int) -> list[bytes]:
        """Up to `count` encoded messages, of about `bytes_max` bytes in all, from `from_sequence_number` on (P23)."""
        queue, parsed = self._find(address)
        return await queue.peek(parsed.sub_queue, from_sequence_number, count, bytes_max)

    async def renew_locks(self, address: str, tokens: Sequence[bytes]) -> list[int]:
        """Renew locks: their new ends (Unix ms) in order; BrokerError (message-lock-lost) if any is over."""
        queue, _ = self._find(address)
        return await queue.renew(tokens)

    async def settle(self, address: str, tokens: Sequence[bytes], outcome: Outcome) -> None:
        """Settle by lock token, without the link that received; BrokerError (message-lock-lost) if any is over."""
        queue, _ = self._find(address)
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[BrokerError | None]] = [loop.create_future() for _ in tokens]
        for token, answer in zip(tokens, answers, strict=True):
            queue.settle(token, outcome, answer.set_result)
        for error in await asyncio.gather(*answers):
            if error is not None:
                raise error

    async def receive_by_sequence_number(
        self, address: str, numbers: Sequence[int], mode: ReceiveMode
    ) -> list[Delivery]:
        """The deferred messages with these sequence numbers; BrokerError (message-not-found) if any is missing."""
        queue, parsed = self._find(address)
        return await queue.take_deferred(parsed.sub_queue, numbers, mode)

    # ---- helpers

    def _find(self, address: str) -> tuple[Queue, Address]:
        parsed = parse_address(address)
        queue = self._queues.get(parsed.key)
        if queue is None:
            raise sentences.not_found(parsed.path)
        return queue, parsed

    def _add(self, entry: QueueEntry) -> Queue:
        description = entry.description
        count = partitions_of(description, self.limits)
        first = 0 if description.enable_partitioning else self._home_store(description.name)
        workers = self._workers[first : first + count]
        size_bytes_max = description.max_size_mb << 20
        if not self.limits.size_is_per_partition:
            size_bytes_max //= count
        queue = Queue(entry.queue_id, description, workers, size_bytes_max)
        self._queues[entity_key(description.name)] = queue
        for place in queue.partitions:
            self._places[entry.queue_id, place.worker.index] = place
        return queue

    def _home_store(self, name: str) -> int:
        """The store of an unpartitioned entity: a stable hash of its top-level path."""
        return zlib.crc32(entity_key(name).encode()) % len(self._workers)

    def _resolver(self, store_index: int) -> Callable[[int], QueuePartition | None]:
        return lambda queue_id: self._places.get((queue_id, store_index))
