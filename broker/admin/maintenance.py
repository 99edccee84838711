"""Namespace maintenance: purge messages, reset to the start-up configuration, copy the data folder.

A purge gives the description of an entity a new queue id, in one change of the catalog: its messages disappear from all
partitions and outboxes at one moment, and `Cleanup` removes the old rows like those of a deleted entity. Sequence
numbers continue: the same change of the catalog says from where. Owned by the `Broker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from ...storage import StoreError
from .. import service_errors
from ..address import SubQueue
from ..entities import several_partitions
from ..entities.entity import Entity, PartitionHandle
from ..entities.namespace import Namespace
from ..errors import BrokerError, Condition
from ..lazy_dataclass import dataclass
from ..model.catalog import Description
from ..model.descriptions import SubscriptionDescription, TopicDescription
from ..outcomes import Complete
from ..partition.contract import Counted
from ..partition.records import MESSAGES, Home, Record, message_key
from .administration import Administration
from .folder_view import CATALOG_FOLDER, STORE_FOLDER

SCAN_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Copied:
    """The contents of a copy and its instant (Unix ms)."""

    taken_at: int
    entity_count: int
    message_count: int


class Maintenance:
    """Purges, resets and copies `namespace`."""

    def __init__(self, namespace: Namespace, administration: Administration) -> None:
        self._namespace = namespace
        self._administration = administration

    def purge(self, path: str | None) -> int:
        """Remove all messages and session states of an entity and its subscriptions, with None of all entities.

        Returns the number of messages. Raises BrokerError: not-found, server-busy (P17).
        """
        namespace = self._namespace
        if path is None:
            doomed = _topics_first(namespace.entities())
        else:
            doomed = self._with_subscriptions(namespace.find(path)[0])
        message_counts = {entity.queue_id: sum(entity.message_counts()) for entity in doomed}
        made: list[Description] = [entity.description for entity in doomed]
        detached = _detach_error("was emptied")
        for entity, before in self._administration.replace_entities(doomed, made, detached, keeps_numbers=True):
            if before is not None:
                for new, old in zip(entity.partitions, before.partitions, strict=True):
                    new.worker.message_counts.go_on_as(new.queue_id, old.queue_id)
                purged = (entity.queue_id, Counted.PURGED, "", message_counts[before.queue_id])
                entity.partitions[0].worker.message_counts.add([purged])
        return sum(message_counts.values())

    def reset(self) -> int:
        """Restore the entities and descriptions of the start-up configuration, without messages.

        Returns the number of removed messages. Raises BrokerError (server-busy, P17).
        """
        topology = self._namespace.topology
        made: list[Description] = [*topology.queues, *topology.topics, *topology.subscriptions]
        doomed = _topics_first(self._namespace.entities())
        message_count = sum(sum(entity.message_counts()) for entity in doomed)
        self._administration.replace_entities(doomed, made, _detach_error("was begun anew"))
        return message_count

    def empty(self) -> None:
        """Delete all entities. Raises BrokerError (server-busy, P17)."""
        self._administration.replace_entities(
            _topics_first(self._namespace.entities()), (), _detach_error("was deleted")
        )

    def start_over(self) -> int:
        """End all outages, set the clock to the machine's time, then `reset`.

        The clock changes first, so that the new entities have no instant in the future.
        """
        for worker in self._namespace.workers:
            worker.end_outage()
        self._namespace.clock.reset()
        return self.reset()

    async def lose_since(self, since_at: int) -> int:
        """Remove the messages that are active and unlocked and were accepted since then (Unix ms); return their number.

        Those of message sessions stay, and those in stores that are out. Raises BrokerError, StoreError.
        """
        lost_count = 0
        for entity in list(self._namespace.entities()):
            if entity.routing is not None or entity.requires_session:
                continue
            for handle in entity.partitions:
                numbers = _accepted_since(handle, since_at) if handle.worker.available else ()
                found = await several_partitions.lock(entity, SubQueue.ACTIVE, list(numbers))
                if found:
                    tokens = [each.token for each in found]
                    await several_partitions.settle(entity, SubQueue.ACTIVE, tokens, Complete())
                lost_count += len(found)
        return lost_count

    async def copy_to(self, folder: Path) -> Copied:
        """Copy the namespace into a folder, as the stores of a data folder; return the contents.

        No batch runs during the copy, so each transaction and each message to a topic is complete. Locks are not
        copied. Raises BrokerError (server-busy) if a store is out or can't be copied.
        """
        namespace = self._namespace
        for worker in namespace.workers:
            if worker.trouble is not None:
                raise service_errors.store_unavailable(worker.index, worker.trouble)
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as turns:
            for worker in namespace.workers:
                worker.store_late()
                await turns.enter_async_context(worker.idle_lock)
            if namespace.away is not None:
                raise namespace.away
            entities = list(namespace.entities())
            message_count = sum(sum(entity.message_counts()) for entity in entities)
            copied = Copied(namespace.clock.now_ms(), len(entities), message_count)
            try:
                await _all_ended([worker.flush() for worker in namespace.workers])
                namespace.catalog.copy_to(folder / CATALOG_FOLDER)()  # on the loop, so that it can't change
                copies = [worker.copy_to(folder / STORE_FOLDER.format(worker.index)) for worker in namespace.workers]
                await _all_ended([loop.run_in_executor(namespace.pool, copy) for copy in copies])
            except StoreError as error:
                raise BrokerError(Condition.SERVER_BUSY, f"The namespace could not be copied: {error}") from error
        return copied

    def _with_subscriptions(self, entity: Entity) -> Sequence[Entity]:
        if isinstance(entity.description, TopicDescription):
            return [entity, *self._namespace.subscriptions_of(entity.path).entities()]
        return [entity]


def _accepted_since(handle: PartitionHandle, since_at: int) -> Iterable[int]:
    """The sequence numbers of the active messages of a partition that were accepted since then."""
    start, stop = message_key(handle.queue_id, Home.ACTIVE, 0), message_key(handle.queue_id, Home.ACTIVE + 1, 0)
    while True:
        with handle.worker.view() as view:
            rows = view.scan(MESSAGES, start, stop, SCAN_MAX)
        yield from (int.from_bytes(key[-8:], "big") for key, row in rows if Record.unpack(row).enqueued_at >= since_at)
        if len(rows) < SCAN_MAX:
            return
        start = rows[-1][0] + b"\0"


def _topics_first(entities: Iterable[Entity]) -> Sequence[Entity]:
    return sorted(entities, key=lambda each: isinstance(each.description, SubscriptionDescription))


def _detach_error(what: str) -> BrokerError:
    return BrokerError(Condition.DETACH_FORCED, f"The entity {what}; attach again.")


async def _all_ended(works: Sequence[Awaitable[None]]) -> None:
    """Wait for all, so that each store's `idle_lock` is held meanwhile; then raise the first error."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
