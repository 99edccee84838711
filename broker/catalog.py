"""The namespace on disk: which entities there are, under which ids, and how many messaging stores it has.

Knows the rows of the catalog store and how a start-up topology is merged into them: new entities are created, changed
ones updated, entities that the topology no longer names stay with their messages. Refuses to know partitions and
messages. Owned by the `Broker`.

Tables: `entities`: kind letter · lower-case path → JSON {id, description}; `namespace`: name → value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..storage import Batch, Store
from . import sentences
from .description import QueueDescription, Topology, entity_key

ENTITIES = "entities"
NAMESPACE = "namespace"
CATALOG_TABLES = (ENTITIES, NAMESPACE)
QUEUE_KIND = "q"

_NEXT_ID = b"next_queue_id"
_STORE_COUNT = b"store_count"
_COMMIT_BYTES = 1 << 20
_ENTITIES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A queue in the catalog: the id that its rows carry, and its description."""

    queue_id: int
    description: QueueDescription


class CatalogError(Exception):
    """The data folder and what is asked of it contradict each other; the text names both."""


class Catalog:
    """The entities of a namespace, in memory and in `store`; every change is on disk before it is in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues: dict[str, QueueEntry] = {}
        self._next_id = 1
        self.store_count: int | None = None  # of the namespace; None before its first start
        with store.view() as view:
            next_id = view.get(NAMESPACE, _NEXT_ID)
            if next_id is not None:
                self._next_id = int(next_id)
            store_count = view.get(NAMESPACE, _STORE_COUNT)
            if store_count is not None:
                self.store_count = int(store_count)
            for _, value in view.scan(ENTITIES, QUEUE_KIND.encode(), b"r", _ENTITIES_MAX):
                row = json.loads(value)
                entry = QueueEntry(row["id"], QueueDescription.from_json(row["description"]))
                self._queues[entity_key(entry.description.name)] = entry

    def fix_store_count(self, count: int) -> None:
        """Remember the number of messaging stores at the first start; CatalogError if it is another one now."""
        if self.store_count is None:
            batch = self._store.begin(_COMMIT_BYTES)
            batch.put(NAMESPACE, _STORE_COUNT, str(count).encode())
            batch.commit()
            self.store_count = count
        elif self.store_count != count:
            raise CatalogError(
                f"the data folder was made with {self.store_count} messaging stores and the profile asks for {count}; "
                "the number is fixed when a namespace is created: use another profile or another folder"
            )

    def queues(self) -> Iterator[QueueEntry]:
        """All queues, by name."""
        return iter([self._queues[key] for key in sorted(self._queues)])

    def queue(self, name: str) -> QueueEntry | None:
        """The queue of that name in any case."""
        return self._queues.get(entity_key(name))

    def merge(self, topology: Topology) -> None:
        """Create and update what `topology` names; CatalogError (and no change) if it flips a partitioning (P1)."""
        for wanted in topology.queues:
            known = self.queue(wanted.name)
            if known is not None and known.description.enable_partitioning != wanted.enable_partitioning:
                raise CatalogError(
                    f"queue '{wanted.name}': EnablePartitioning is {_json(known.description.enable_partitioning)} in "
                    f"the data folder and {_json(wanted.enable_partitioning)} in the configuration; it is chosen when "
                    "a queue is created and can't be changed"
                )
        batch = self._store.begin(_COMMIT_BYTES)
        changed = [entry for wanted in topology.queues if (entry := self._put(wanted, batch)) is not None]
        self._commit(batch, changed)

    def create_queue(self, description: QueueDescription) -> QueueEntry:
        """Add a queue; BrokerError (entity-already-exists) if the name is taken. Blocks for one commit."""
        if self.queue(description.name) is not None:
            raise sentences.already_exists(description.name)
        batch = self._store.begin(_COMMIT_BYTES)
        entry = self._put(description, batch)
        assert entry is not None
        self._commit(batch, [entry])
        return entry

    def update_queue(self, description: QueueDescription) -> QueueEntry:
        """Replace the description of a queue that exists. Blocks for one commit."""
        batch = self._store.begin(_COMMIT_BYTES)
        entry = self._put(description, batch)
        self._commit(batch, [] if entry is None else [entry])
        return self._queues[entity_key(description.name)]

    def close(self) -> None:
        """Close the catalog's store."""
        self._store.close()

    def _put(self, description: QueueDescription, batch: Batch) -> QueueEntry | None:
        """Write the row of a new or changed queue; None where nothing changed."""
        known = self.queue(description.name)
        if known is not None:
            if known.description == replace(description, name=known.description.name):
                return None
            entry = QueueEntry(known.queue_id, replace(description, name=known.description.name))
        else:
            entry = QueueEntry(self._next_id, description)
            self._next_id += 1
            batch.put(NAMESPACE, _NEXT_ID, str(self._next_id).encode())
        row = {"id": entry.queue_id, "description": entry.description.to_json()}
        key = f"{QUEUE_KIND}{entity_key(description.name)}".encode()
        batch.put(ENTITIES, key, json.dumps(row).encode())
        return entry

    def _commit(self, batch: Batch, entries: list[QueueEntry]) -> None:
        if not entries:
            batch.abort()
            return
        batch.commit()
        for entry in entries:
            self._queues[entity_key(entry.description.name)] = entry


def _json(value: bool) -> str:
    return "true" if value else "false"
