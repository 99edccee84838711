"""What is done to a namespace as a whole, or to an entity with all that is in it: empty it, begin anew, copy it.

An entity is emptied by giving its description a new queue id, in one change of the catalog: what was there is gone at
one moment in all partitions, also what was under way to and from it, and its rows are cleared like those of a deleted
entity. Sequence numbers go on where they were. Does not know who asks for it. Owned by the `Broker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from ...storage import StoreError
from .. import service_errors
from ..entities.entity import Entity
from ..entities.namespace import Namespace
from ..errors import BrokerError, Condition
from ..model.catalog import Description
from ..model.descriptions import SubscriptionDescription, TopicDescription
from ..partition.requests import AdoptSequence
from .administration import Administration
from .folder_view import CATALOG_FOLDER, STORE_FOLDER


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied, and when (Unix ms)."""

    taken_at: int
    entity_count: int
    message_count: int


class Maintenance:
    """Purges, resets and copies `namespace`."""

    def __init__(self, namespace: Namespace, administration: Administration) -> None:
        self._namespace = namespace
        self._administration = administration

    def purge(self, path: str | None) -> int:
        """Remove all messages and session states of an entity, of a topic's subscriptions, too; with None of all.

        How many messages it were. BrokerError: not-found, server-busy (P17).
        """
        namespace = self._namespace
        if path is None:
            doomed = _topics_first(namespace.entities())
        else:
            doomed = self._with_subscriptions(namespace.find(path)[0])
        message_count = sum(sum(entity.message_counts()) for entity in doomed)
        made: list[Description] = [entity.description for entity in doomed]
        for entity, before in self._administration.exchange(doomed, made, _detached("was emptied")):
            if before is not None:
                for new, old in zip(entity.partitions, before.partitions, strict=True):
                    new.submit(AdoptSequence(old))  # behind all that was submitted before
        return message_count

    def reset(self) -> int:
        """Have the entities that the broker was started with, as they were described, without messages.

        How many messages were removed. BrokerError: server-busy (P17).
        """
        topology = self._namespace.topology
        made: list[Description] = [*topology.queues, *topology.topics, *topology.subscriptions]
        doomed = _topics_first(self._namespace.entities())
        message_count = sum(sum(entity.message_counts()) for entity in doomed)
        self._administration.exchange(doomed, made, _detached("was begun anew"))
        return message_count

    def start_over(self) -> int:
        """As `reset`, and no messaging store is out any more, and the clock shows the machine's time.

        Time comes back before the new entities are made, which therefore know no instant that is still to come.
        """
        for worker in self._namespace.workers:
            self._namespace.end_outage(worker.index)
        self._namespace.clock.reset()
        return self.reset()

    async def copy_to(self, folder: Path) -> Copied:
        """Copy the namespace into a folder, as the stores of a data folder, as it is between two batches; what it is.

        Commands that come meanwhile wait, so that each transaction and each fan-out is whole. Locks are not part of it.
        BrokerError: server-busy if a store is out or can't be copied.
        """
        namespace = self._namespace
        for worker in namespace.workers:
            if worker.outage is not None:
                raise service_errors.store_unavailable(worker.index, f"it is {worker.outage.kind.value}")
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as turns:
            for worker in namespace.workers:
                await turns.enter_async_context(worker.idle_lock)
            if namespace.away is not None:
                raise namespace.away
            entities = list(namespace.entities())
            message_count = sum(sum(entity.message_counts()) for entity in entities)
            copied = Copied(namespace.clock.now_ms(), len(entities), message_count)
            try:
                namespace.catalog.copy_to(folder / CATALOG_FOLDER)()  # here: nobody changes it meanwhile
                copies = [worker.copy_to(folder / STORE_FOLDER.format(worker.index)) for worker in namespace.workers]
                done = [loop.run_in_executor(namespace.pool, copy) for copy in copies]
                results = await asyncio.gather(*done, return_exceptions=True)  # no turn ends before its copy
                for result in results:
                    if isinstance(result, BaseException):
                        raise result
            except StoreError as error:
                raise BrokerError(Condition.SERVER_BUSY, f"The namespace could not be copied: {error}") from error
        return copied

    def _with_subscriptions(self, entity: Entity) -> Sequence[Entity]:
        if isinstance(entity.description, TopicDescription):
            return [entity, *self._namespace.subscriptions_of(entity.path).entities()]
        return [entity]


def _topics_first(entities: Iterable[Entity]) -> Sequence[Entity]:
    return sorted(entities, key=lambda each: isinstance(each.description, SubscriptionDescription))


def _detached(what: str) -> BrokerError:
    return BrokerError(Condition.DETACH_FORCED, f"The entity {what}; attach again.")
