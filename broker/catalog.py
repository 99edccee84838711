"""The namespace on disk: which entities there are, under which ids, and how many messaging stores it has.

Knows the rows of the catalog store and how a start-up topology is merged into them: new entities are created, changed
ones updated, entities that the topology no longer names stay with their messages. Refuses to know partitions and
messages. Owned by the `Broker`.

Tables: `entities`: kind letter · lower-case path (a hash of it if it is long) → JSON {id, description}; `namespace`:
name → value; `deleted`: queue id (u32) → JSON {stores}: entities whose rows are still being removed.

A commit that fails is answered with an error, and may have been stored nevertheless. So its rows are written anew, as
they were, at once or before the next change: what clients were told is what a restart finds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import structlog

from ..storage import Store, StoreError
from . import sentences
from .description import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    Topology,
    entity_key,
    with_instants,
)

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
_PATH_BYTES_MAX = 510  # a key has 511 at most; longer paths (there are such outside ASCII) are hashed

Row = tuple[str, bytes]  # table and key

log = structlog.get_logger(__name__)


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
        self._doubtful: dict[Row, str] = {}  # rows of failed commits that are still to be put right, with their paths
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
            self._write({(NAMESPACE, _STORE_COUNT): str(count).encode()})
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

    def merge(self, topology: Topology, now: int) -> None:
        """Create and update what `topology` names; CatalogError (and no change) if it flips what can't change (P1).

        Rules that are new were created at `now` (Unix ms). Raises StoreError.
        """
        wanted: list[Description] = [*topology.queues, *topology.topics, *topology.subscriptions]
        for each in wanted:
            self._refuse_flips(each)
        self._put([self._as_known(each, now) for each in wanted])

    def create(self, description: Description, now: int) -> Entry:
        """Add an entity; BrokerError: entity-already-exists if the path is taken, server-busy. Blocks for one commit.

        Its rules were created at `now` (Unix ms).
        """
        path = path_of(description)
        if self.entry(path) is not None:
            raise sentences.already_exists(path)
        return self.update(description, now)

    def update(self, description: Description, now: int) -> Entry:
        """Replace the description of an entity; BrokerError (server-busy). Blocks for one commit.

        Rules that are new were created at `now` (Unix ms).
        """
        try:
            self._put([self._as_known(description, now)])
        except StoreError as error:
            raise sentences.namespace_unavailable(str(error)) from error
        return self._entries[entity_key(path_of(description))]

    def delete(self, paths: list[str], stores: dict[int, list[int]]) -> None:
        """Remove entities at once, all of them or none; `stores` says for each queue id where rows must follow.

        BrokerError (server-busy). Blocks for one commit.
        """
        changes: dict[Row, bytes | None] = {
            (ENTITIES, _row_key(self._entries[entity_key(path)].description)): None for path in paths
        }
        changes |= {_deleted_row(each): json.dumps({"stores": places}).encode() for each, places in stores.items()}
        try:
            self._write(changes, paths)
        except StoreError as error:
            raise sentences.namespace_unavailable(str(error)) from error
        for path in paths:
            del self._entries[entity_key(path)]
        self.deleted |= stores

    def forget_deleted(self, queue_id: int) -> None:
        """All rows of a deleted entity are gone; BrokerError (server-busy)."""
        try:
            self._write({_deleted_row(queue_id): None})
        except StoreError as error:
            raise sentences.namespace_unavailable(str(error)) from error
        self.deleted.pop(queue_id, None)

    def close(self) -> None:
        """Close the catalog's store."""
        self._store.close()

    # ---- descriptions

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

    def _as_known(self, description: Description, now: int) -> Description:
        """The description with what stays of an entity that is there: its name, and when its rules were created."""
        known = self.entry(path_of(description))
        if known is not None:
            same_name: dict[str, Any] = {"name": known.description.name}
            description = replace(description, **same_name)
        if isinstance(description, SubscriptionDescription):
            before = () if known is None else getattr(known.description, "rules", ())
            description = replace(description, rules=with_instants(description.rules, before, now))
        return description

    # ---- rows

    def _put(self, descriptions: Iterable[Description]) -> None:
        """Write the rows of new and changed entities."""
        changes: dict[Row, bytes | None] = {}
        entries: dict[str, Entry] = {}
        next_id = self._next_id
        for description in descriptions:
            path = entity_key(path_of(description))
            known = self._entries.get(path)
            if known is not None and known.description == description:
                continue
            entry = Entry(next_id if known is None else known.queue_id, description)
            next_id += known is None
            entries[path] = entry
            changes[ENTITIES, _row_key(description)] = _row(entry)
        if entries:
            changes[NAMESPACE, _NEXT_ID] = str(next_id).encode()
            self._write(changes, entries)
            self._next_id = next_id
            self._entries |= entries

    def _write(self, changes: dict[Row, bytes | None], paths: Iterable[str] = ()) -> None:
        """Store rows (None: delete), all of them or none; `paths` are those of the entities among them."""
        try:
            self._put_right()
            self._commit(changes)
        except StoreError:
            of_keys = {_path_bytes(path): path for path in paths}
            self._doubtful |= {row: of_keys.get(row[1][1:], "") for row in changes}
            try:
                self._put_right()
            except StoreError as error:
                log.error("the namespace may be stored otherwise than it is", cause=str(error))
            raise

    def _put_right(self) -> None:
        """Write the rows that a failed commit may have changed as they were."""
        if self._doubtful:
            self._commit({row: self._known_row(row, path) for row, path in self._doubtful.items()})
            self._doubtful.clear()

    def _known_row(self, row: Row, path: str) -> bytes | None:
        table, key = row
        if table == ENTITIES:
            entry = self.entry(path)
            return _row(entry) if entry is not None and _row_key(entry.description) == key else None
        if table == DELETED:
            stores = self.deleted.get(int.from_bytes(key, "big"))
            return None if stores is None else json.dumps({"stores": stores}).encode()
        value = self._next_id if key == _NEXT_ID else self.store_count
        return None if value is None else str(value).encode()

    def _commit(self, changes: dict[Row, bytes | None]) -> None:
        with self._store.begin(_COMMIT_BYTES + sum(len(value or b"") for value in changes.values())) as batch:
            for (table, key), value in changes.items():
                if value is None:
                    batch.delete(table, key)
                else:
                    batch.put(table, key, value)
            batch.commit()


FIXED_FIELDS = {
    "enable_partitioning": "EnablePartitioning",
    "requires_session": "RequiresSession",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
}


def _row(entry: Entry) -> bytes:
    return json.dumps({"id": entry.queue_id, "description": entry.description.to_json()}).encode()


def _row_key(description: Description) -> bytes:
    return KINDS[type(description)].encode() + _path_bytes(path_of(description))


def _path_bytes(path: str) -> bytes:
    encoded = entity_key(path).encode()
    return encoded if len(encoded) <= _PATH_BYTES_MAX else hashlib.blake2b(encoded, digest_size=32).hexdigest().encode()


def _deleted_row(queue_id: int) -> Row:
    return DELETED, queue_id.to_bytes(4, "big")
