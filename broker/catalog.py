"""The namespace on disk: which entities there are, under which ids, and how many messaging stores it has.

Knows the rows of the catalog store and how a start-up topology is merged into them: new entities are created, changed
ones updated, entities that the topology no longer names stay with their messages. Refuses to know partitions and
messages. Owned by the `Broker`.

Tables: `entities`: kind letter · lower-case path → JSON {id, description}; `namespace`: name → value; `deleted`: queue
id (u32) → JSON {stores}: entities whose rows are still being removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..storage import Batch, Store
from . import sentences
from .description import QueueDescription, SubscriptionDescription, TopicDescription, Topology, entity_key

ENTITIES = "entities"
NAMESPACE = "namespace"
DELETED = "deleted"
CATALOG_TABLES = (ENTITIES, NAMESPACE, DELETED)

Description = QueueDescription | TopicDescription | SubscriptionDescription
KINDS: dict[type[Description], str] = {QueueDescription: "q", TopicDescription: "t", SubscriptionDescription: "u"}
CLASSES: dict[str, type[Description]] = {kind: cls for cls, kind in KINDS.items()}  # "t" before "u": topics first

_NEXT_ID = b"next_queue_id"
_STORE_COUNT = b"store_count"
_COMMIT_BYTES = 1 << 20
_ROWS_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """An entity in the catalog: the id that its rows carry, and its description."""

    queue_id: int
    description: Description


class CatalogError(Exception):
    """The data folder and what is asked of it contradict each other; the text names both."""


def path_of(description: Description) -> str:
    """The entity path: the name, or topic/Subscriptions/name."""
    return description.path if isinstance(description, SubscriptionDescription) else description.name


class Catalog:
    """The entities of a namespace, in memory and in `store`; every change is on disk before it is in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[str, Entry] = {}
        self._next_id = 1
        self.store_count: int | None = None  # of the namespace; None before its first start
        with store.view() as view:
            next_id = view.get(NAMESPACE, _NEXT_ID)
            if next_id is not None:
                self._next_id = int(next_id)
            store_count = view.get(NAMESPACE, _STORE_COUNT)
            if store_count is not None:
                self.store_count = int(store_count)
            for key, value in view.scan(ENTITIES, b"", b"\xff", _ROWS_MAX):
                row = json.loads(value)
                entry = Entry(row["id"], CLASSES[chr(key[0])].from_json(row["description"]))
                self._entries[entity_key(path_of(entry.description))] = entry
            self.deleted = {
                int.from_bytes(key, "big"): list(json.loads(value)["stores"])
                for key, value in view.scan(DELETED, b"", b"\xff" * 5, _ROWS_MAX)
            }

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

    def entries(self) -> Iterator[Entry]:
        """All entities: queues and topics by name, then subscriptions by path."""
        order = sorted(
            self._entries.items(), key=lambda item: (isinstance(item[1].description, SubscriptionDescription), item[0])
        )
        return iter([entry for _, entry in order])

    def entry(self, path: str) -> Entry | None:
        """The entity of that path in any case."""
        return self._entries.get(entity_key(path))

    def merge(self, topology: Topology) -> None:
        """Create and update what `topology` names; CatalogError (and no change) if it flips what can't change (P1)."""
        wanted: list[Description] = [*topology.queues, *topology.topics, *topology.subscriptions]
        for each in wanted:
            self._refuse_flips(each)
        batch = self._store.begin(_COMMIT_BYTES)
        self._commit(batch, [entry for each in wanted if (entry := self._put(each, batch)) is not None])

    def create(self, description: Description) -> Entry:
        """Add an entity; BrokerError (entity-already-exists) if the path is taken. Blocks for one commit."""
        path = path_of(description)
        if self.entry(path) is not None:
            raise sentences.already_exists(path)
        batch = self._store.begin(_COMMIT_BYTES)
        entry = self._put(description, batch)
        assert entry is not None
        self._commit(batch, [entry])
        return entry

    def update(self, description: Description) -> Entry:
        """Replace the description of an entity that exists. Blocks for one commit."""
        batch = self._store.begin(_COMMIT_BYTES)
        entry = self._put(description, batch)
        self._commit(batch, [] if entry is None else [entry])
        return self._entries[entity_key(path_of(description))]

    def delete(self, paths: list[str], stores: dict[int, list[int]]) -> None:
        """Remove entities at once, all of them or none; `stores` says for each queue id where rows must follow."""
        batch = self._store.begin(_COMMIT_BYTES)
        for path in paths:
            entry = self._entries[entity_key(path)]
            batch.delete(ENTITIES, _row_key(entry.description))
        for queue_id, places in stores.items():
            batch.put(DELETED, queue_id.to_bytes(4, "big"), json.dumps({"stores": places}).encode())
        batch.commit()
        for path in paths:
            del self._entries[entity_key(path)]
        self.deleted |= stores

    def forget_deleted(self, queue_id: int) -> None:
        """All rows of a deleted entity are gone."""
        batch = self._store.begin(_COMMIT_BYTES)
        batch.delete(DELETED, queue_id.to_bytes(4, "big"))
        batch.commit()
        self.deleted.pop(queue_id, None)

    def close(self) -> None:
        """Close the catalog's store."""
        self._store.close()

    def _refuse_flips(self, wanted: Description) -> None:
        known = self.entry(path_of(wanted))
        if known is None:
            return
        path = path_of(wanted)
        if type(known.description) is not type(wanted):
            raise CatalogError(f"'{path}' is of another kind in the data folder than in the configuration")
        for field, name in FIXED_FIELDS.items():
            before, after = getattr(known.description, field, None), getattr(wanted, field, None)
            if before != after:
                raise CatalogError(
                    f"'{path}': {name} is {json.dumps(before)} in the data folder and {json.dumps(after)} in the "
                    "configuration; it is chosen when an entity is created and can't be changed"
                )

    def _put(self, description: Description, batch: Batch) -> Entry | None:
        """Write the row of a new or changed entity; None where nothing changed."""
        known = self.entry(path_of(description))
        if known is not None:
            same_name: dict[str, Any] = {"name": known.description.name}
            description = replace(description, **same_name)
            if known.description == description:
                return None
            entry = Entry(known.queue_id, description)
        else:
            entry = Entry(self._next_id, description)
            self._next_id += 1
            batch.put(NAMESPACE, _NEXT_ID, str(self._next_id).encode())
        row = {"id": entry.queue_id, "description": entry.description.to_json()}
        batch.put(ENTITIES, _row_key(description), json.dumps(row).encode())
        return entry

    def _commit(self, batch: Batch, entries: list[Entry]) -> None:
        if not entries:
            batch.abort()
            return
        batch.commit()
        for entry in entries:
            self._entries[entity_key(path_of(entry.description))] = entry


FIXED_FIELDS = {
    "enable_partitioning": "EnablePartitioning",
    "requires_session": "RequiresSession",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
}


def _row_key(description: Description) -> bytes:
    return f"{KINDS[type(description)]}{entity_key(path_of(description))}".encode()
