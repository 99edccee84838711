"""The catalog: the entities of a namespace on disk, with their ids, and the number of messaging stores.

Knows the rows of the catalog store and merges the start-up topology into them: new entities are created, changed ones
updated, entities that the topology no longer names stay with their messages. Does not know partitions and
messages. Owned by the `Broker`.

Tables: `entities`: kind letter · lower-case path (a hash of it if it is long) → JSON {id, description, created_at, …};
`rules`: queue id of the subscription (u32) · place (u32) → JSON of a rule, in the order of the places;
`namespace`: name → value; `deleted`: queue id (u32) → JSON {stores}: deleted entities with remaining rows.

A rule has a row of its own, so that adding one costs the same however many there are.

A failed commit raises an error, but may be stored nevertheless. Its rows are therefore written again with their old
values, at once or before the next change: a restart finds the state that clients know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final

import structlog

from ...storage import Batch, Store, StoreError, Upgrades
from .. import service_errors
from ..ids import new_message_id
from ..lazy_dataclass import dataclass
from .descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    Topology,
    entity_key,
    is_same,
    with_creation_instants,
)
from .properties import PROPERTIES

ENTITIES = "entities"
NAMESPACE = "namespace"
DELETED = "deleted"
RULES = "rules"
CATALOG_TABLES = (ENTITIES, NAMESPACE, DELETED, RULES)

Description = QueueDescription | TopicDescription | SubscriptionDescription
KINDS: dict[type[Description], str] = {QueueDescription: "q", TopicDescription: "t", SubscriptionDescription: "u"}
CLASSES: dict[str, type[Description]] = {kind: cls for cls, kind in KINDS.items()}  # "t" before "u": topics first

_SUBSCRIPTIONS, _LAST_SUBSCRIPTION = b"u", b"v"
_NEXT_ID = b"next_queue_id"
_STORE_COUNT = b"store_count"
_CREATED_AT = b"created_at"
_GENERATION = b"generation"
_COMMIT_BYTES = 1 << 20
_ROWS_MAX = 10_000_000
_LAST_KEY = b"\xff" * 512  # after all keys
_RULE_KEY = Struct(">II")
_PATH_BYTES_MAX = 510  # a key has at most 511; longer paths (non-ASCII names) are hashed

Row = tuple[str, bytes]  # table and key
Changes = dict[Row, bytes | None]
"""Rows to write, None to delete one."""
PlacedRules = dict[int, RuleDescription]
"""The rules of a subscription by their places, which rise."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entity in the catalog: the id of its rows, and its description.

    `numbered_since` is the id under which its sequence numbers began, None if that is `queue_id`: a purge keeps them.
    `first_counters` are then the lowest counters of its partitions that no message had before the purge.
    The instants are Unix ms, None if unknown (older data) or in the future. `accessed_at` is as of the last stop;
    `Administration.accessed_at` is current.
    """

    queue_id: int
    description: Description
    created_at: int | None = None
    updated_at: int | None = None
    accessed_at: int | None = None
    numbered_since: int | None = None
    first_counters: Sequence[int] | None = None
    exact_keys: bool = False
    """Its messages were put into partitions by keys as they are written, with case (up to format 4)."""


class CatalogError(Exception):
    """The data folder contradicts the configuration; the text names both."""


class UnreadableRowError(CatalogError):
    """A required row is unreadable; the text names the store's folder, the table and the row."""

    def __init__(self, store_name: str, table: str, key: bytes, error: Exception) -> None:
        super().__init__(
            f"{store_name}: row {key!r:.100} of table '{table}' can't be read ({type(error).__name__}: "
            f"{error!s:.200}); "
            "put a copy of the whole data folder back, name another folder with --data, or start with --fresh "
            "(EMUBUS_FRESH=yes), which deletes this folder's entities and messages (its snapshots stay and can be "
            "restored)"
        )


def other_store_count(known: int, wanted: int) -> CatalogError:
    """The error for a namespace that was created with another number of messaging stores."""
    return CatalogError(
        f"the data folder was made with {known} messaging stores and the profile asks for {wanted}; "
        "the number is fixed when a namespace is created: use another profile or another folder"
    )


def stored_store_count(rows: Callable[[str], Iterable[tuple[bytes, bytes]]]) -> int | None:
    """Return the number of messaging stores from catalog rows; None before the first start. Raises ValueError."""
    for key, value in rows(NAMESPACE):
        if key == _STORE_COUNT:
            return int(value)
    return None


def path_of(description: Description) -> str:
    """Return the entity path: the name, or topic/Subscriptions/name."""
    return description.path if isinstance(description, SubscriptionDescription) else description.name


class Catalog:
    """The entities of a namespace, in memory and in `store`; every change is on disk before it is in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[str, Entry] = {}
        self._failed: Callable[[str], object] = lambda _: None
        self._doubtful: dict[Row, str] = {}  # rows of failed commits to restore, with their paths
        self._rules: dict[int, PlacedRules] = {}  # as in the table, by queue id
        self._next_id = 1
        self.store_count: int | None = None  # of the namespace; None before its first start
        self.created_at: int | None = None  # the namespace's first start (Unix ms), None if unknown
        self.generation: str | None = None  # random; another one after a restore; None before the first start
        self.deleted: dict[int, list[int]] = {}
        with store.view() as view:
            for table in CATALOG_TABLES:
                for key, value in view.scan(table, b"", _LAST_KEY, _ROWS_MAX):
                    try:
                        self._read_row(table, key, value)
                    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, StructError) as error:
                        raise UnreadableRowError("namespace", table, key, error) from error
        for path, entry in self._entries.items():
            if isinstance(entry.description, SubscriptionDescription):
                rules = tuple(self._rules.setdefault(entry.queue_id, {}).values())
                self._entries[path] = replace(entry, description=replace(entry.description, rules=rules))

    def _read_row(self, table: str, key: bytes, value: bytes) -> None:
        if table == ENTITIES:
            row = json.loads(value)
            description = CLASSES[chr(key[0])].from_json(row["description"])
            entry = Entry(_require_int(row["id"]), description, *(row.get(name) for name in _OPTIONAL))
            self._entries[entity_key(path_of(entry.description))] = entry
        elif table == RULES:
            queue_id, place = _RULE_KEY.unpack(key)
            self._rules.setdefault(queue_id, {})[place] = RuleDescription.from_json(json.loads(value))
        elif table == DELETED:
            self.deleted[int.from_bytes(key, "big")] = [_require_int(each) for each in json.loads(value)["stores"]]
        elif key == _NEXT_ID:
            self._next_id = int(value)
        elif key == _STORE_COUNT:
            self.store_count = int(value)
        elif key == _CREATED_AT:
            self.created_at = int(value)
        elif key == _GENERATION:
            self.generation = value.decode()

    def fix_store_count(self, count: int, now: int) -> None:
        """Store the number of messaging stores at the first start. Raises CatalogError if it has changed."""
        if self.store_count is None:
            self._write({(NAMESPACE, _STORE_COUNT): str(count).encode(), (NAMESPACE, _CREATED_AT): str(now).encode()})
            self.store_count, self.created_at = count, now
        elif self.store_count != count:
            raise other_store_count(self.store_count, count)
        if self.generation is None:  # a new namespace, or one of an older release
            self.begin_generation()

    def begin_generation(self) -> None:
        """Give all entities another generation, because their sequence numbers may be used again. StoreError."""
        generation = new_message_id()[:16]
        self._write({(NAMESPACE, _GENERATION): generation.encode()})
        self.generation = generation

    def generation_of(self, path: str) -> str:
        """Return what tells this entity from earlier ones of the same path; the same while its numbers continue."""
        entry = self._entries[entity_key(path)]
        return f"{self.generation}-{entry.numbered_since or entry.queue_id}"

    def entries(self) -> Iterator[Entry]:
        """Return all entities: queues and topics by name, then subscriptions by path."""
        order = sorted(
            self._entries.items(), key=lambda item: (isinstance(item[1].description, SubscriptionDescription), item[0])
        )
        return iter([entry for _, entry in order])

    def entry(self, path: str) -> Entry | None:
        """Return the entity of a path, in any case."""
        return self._entries.get(entity_key(path))

    def merge(self, topology: Topology, now: int) -> None:
        """Create and update the entities of `topology`; `now` (Unix ms) is the creation of new rules.

        Raises CatalogError, without a change, if a fixed property differs (P1), and StoreError.
        """
        wanted: list[Description] = [*topology.queues, *topology.topics, *topology.subscriptions]
        for each in wanted:
            self._refuse_flips(each)
        self._put([self._as_known(each, now) for each in wanted], now)

    def ignored_of(self, topology: Topology) -> tuple[list[str], list[str]]:
        """The paths of `topology` that the catalog has not, and those that it has with other properties or rules."""
        wanted: list[Description] = [*topology.queues, *topology.topics, *topology.subscriptions]
        missing, other = list[str](), list[str]()
        for each in wanted:
            path = path_of(each)
            known = self.entry(path)
            if known is None:
                missing.append(path)
            elif type(known.description) is not type(each) or not is_same(known.description, self._as_known(each, 0)):
                other.append(path)
        return missing, other

    def create(self, description: Description, now: int) -> Entry:
        """Add an entity on a free path; `now` (Unix ms) is the creation of its rules. Blocks for one commit.

        Raises BrokerError (server-busy).
        """
        assert self.entry(path_of(description)) is None
        return self.update(description, now)

    def update(self, description: Description, now: int) -> Entry:
        """Replace the description of an entity; `now` (Unix ms) is the creation of new rules. Blocks for one commit.

        Raises BrokerError (server-busy).
        """
        try:
            self._put([self._as_known(description, now)], now)
        except StoreError as error:
            raise service_errors.namespace_unavailable(str(error)) from error
        return self._entries[entity_key(path_of(description))]

    def delete(self, paths: list[str], stores: dict[int, list[int]]) -> None:
        """Remove entities, all or none; `stores` has the store indexes with rows to remove, by queue id.

        Raises BrokerError (server-busy). Blocks for one commit.
        """
        gone = [self._entries[entity_key(path)] for path in paths]
        changes: Changes = {(ENTITIES, _row_key(entry.description)): None for entry in gone}
        for entry in gone:
            changes |= self._without_rules(entry)
        changes |= {_deleted_row(each): json.dumps({"stores": indexes}).encode() for each, indexes in stores.items()}
        try:
            self._write(changes, paths)
        except StoreError as error:
            raise service_errors.namespace_unavailable(str(error)) from error
        for entry in gone:
            del self._entries[entity_key(path_of(entry.description))]
            self._rules.pop(entry.queue_id, None)
        self.deleted |= stores

    def replace_entities(
        self,
        gone: Sequence[str],
        stores: Mapping[int, list[int]],
        made: Sequence[Description],
        now: int,
        counters: Mapping[int, Sequence[int]],
    ) -> list[Entry]:
        """Remove entities like `delete`, create others, perhaps with the same paths, and return the new entries.

        An entity on the path of a removed one continues its sequence numbers if `counters` has the next ones of that
        one's partitions, by its queue id: in the same commit, so that no kill makes an entity forget its numbers.
        All or nothing. Raises BrokerError (server-busy). Blocks for one commit.
        """
        before = {entity_key(path): self._entries[entity_key(path)] for path in gone}
        changes: Changes = {(ENTITIES, _row_key(each.description)): None for each in before.values()}
        for each in before.values():
            changes |= self._without_rules(each)
        changes |= {_deleted_row(each): json.dumps({"stores": indexes}).encode() for each, indexes in stores.items()}
        entries: dict[str, Entry] = {}
        placed: dict[int, PlacedRules] = {}
        for number, wanted in enumerate(made, self._next_id):
            path = entity_key(path_of(wanted))
            known = before.get(path)
            first = None if known is None else counters.get(known.queue_id)
            since = None if known is None or first is None else known.numbered_since or known.queue_id
            entries[path] = (
                replace(known, queue_id=number, numbered_since=since, first_counters=first)
                if known is not None and is_same(known.description, wanted)
                else Entry(number, _with_name(self._as_known(wanted, now), wanted.name), created_at=now, updated_at=now)
            )
            placed[number] = self._add_rules(changes, entries[path])
            changes[ENTITIES, _row_key(entries[path].description)] = self._row(entries[path])
        next_id = self._next_id + len(entries)
        changes[NAMESPACE, _NEXT_ID] = str(next_id).encode()
        try:
            self._write(changes, [*before, *entries])
        except StoreError as error:
            raise service_errors.namespace_unavailable(str(error)) from error
        self._next_id = next_id
        for path, entry in before.items():
            del self._entries[path]
            self._rules.pop(entry.queue_id, None)
        self._entries |= entries
        self._rules |= placed
        self.deleted |= stores
        return list(entries.values())

    def copy_to(self, folder: Path) -> Callable[[], None]:
        """Prepare a copy of the catalog's store (see `storage.Store.copy_to`)."""
        return self._store.copy_to(folder)

    def forget_deleted(self, queue_id: int) -> None:
        """Forget a deleted entity without rows. Raises BrokerError (server-busy)."""
        try:
            self._write({_deleted_row(queue_id): None})
        except StoreError as error:
            raise service_errors.namespace_unavailable(str(error)) from error
        self.deleted.pop(queue_id, None)

    def remember_access(self, instants: Mapping[str, int]) -> None:
        """Store the last use of entities, by path (Unix ms). Raises StoreError."""
        found = ((entity_key(path), self.entry(path), at) for path, at in instants.items())
        entries = {key: replace(entry, accessed_at=at) for key, entry, at in found if entry is not None}
        if entries:
            self._write(
                {(ENTITIES, _row_key(entry.description)): self._row(entry) for entry in entries.values()}, entries
            )
            self._entries |= entries

    def close(self) -> None:
        self._store.close()

    # ---- descriptions

    def _refuse_flips(self, wanted: Description) -> None:
        known = self.entry(path_of(wanted))
        if known is None:
            return
        path = path_of(wanted)
        if type(known.description) is not type(wanted):
            raise CatalogError(
                f"'{path}' is of another kind in the data folder than in the configuration; {_FLIP_REMEDIES}"
            )
        for field, name in FIXED_FIELDS.items():
            before, after = getattr(known.description, field, None), getattr(wanted, field, None)
            if before != after:
                raise CatalogError(
                    f"'{path}': {name} is {json.dumps(before)} in the data folder and {json.dumps(after)} in the "
                    f"configuration; it is chosen when an entity is created and can't be changed: {_FLIP_REMEDIES}"
                )

    def _as_known(self, description: Description, now: int) -> Description:
        """Return the description with the known spelling of its name and the creation of its known rules."""
        known = self.entry(path_of(description))
        if known is not None:
            description = _with_name(description, known.description.name)
        if isinstance(description, SubscriptionDescription):
            before = () if known is None else getattr(known.description, "rules", ())
            description = replace(description, rules=with_creation_instants(description.rules, before, now))
        return description

    # ---- rows

    def _put(self, descriptions: Iterable[Description], now: int) -> None:
        """Write the rows of new and changed entities."""
        changes: Changes = {}
        entries: dict[str, Entry] = {}
        placed: dict[int, PlacedRules] = {}
        next_id = self._next_id
        for description in descriptions:
            path = entity_key(path_of(description))
            known = self._entries.get(path)
            if known is not None and is_same(known.description, description):
                continue
            if known is None:
                entry = Entry(next_id, description, created_at=now, updated_at=now)
                next_id += 1
            else:
                entry = replace(known, description=description, updated_at=now)
            entries[path] = entry
            placed[entry.queue_id] = self._add_rules(changes, entry)
            changes[ENTITIES, _row_key(description)] = self._row(entry)
        if entries:
            changes[NAMESPACE, _NEXT_ID] = str(next_id).encode()
            self._write(changes, entries)
            self._next_id = next_id
            self._entries |= entries
            self._rules |= placed

    def _add_rules(self, changes: Changes, entry: Entry) -> PlacedRules:
        """Add the changes of an entity's rules; return its rules by the places that they then have."""
        known = self._rules.get(entry.queue_id, {})
        rules = entry.description.rules if isinstance(entry.description, SubscriptionDescription) else ()
        placed = _in_places(rules, known)
        for place in known.keys() - placed.keys():
            changes[_rule_row(entry.queue_id, place)] = None
        for place, rule in placed.items():
            if known.get(place) is not rule:
                changes[_rule_row(entry.queue_id, place)] = _rule_value(rule)
        return placed

    def _without_rules(self, entry: Entry) -> Changes:
        return {_rule_row(entry.queue_id, place): None for place in self._rules.get(entry.queue_id, ())}

    def _write(self, changes: Changes, paths: Iterable[str] = ()) -> None:
        """Store rows (None: delete), all or none; `paths` are the paths of changed entities."""
        try:
            self._put_right()
            self._commit(changes)
        except StoreError:
            of_keys = {_path_bytes(path): path for path in paths}
            self._doubtful |= {row: of_keys.get(row[1][1:], "") for row in changes}
            try:
                self._put_right()
            except StoreError as error:
                if self._store.failure is None:  # otherwise `recover` puts it right
                    log.error("catalog may differ from memory", cause=str(error))
            if self._store.failure is not None:
                self._failed(self._store.failure)
            raise

    def on_failure(self, failed: Callable[[str], object]) -> None:
        """Call `failed(cause)` when the store's disk has failed: changes are refused until `recover` has returned."""
        self._failed = failed

    def recover(self) -> None:
        """Make the store usable again, with what is known here. StoreError: it fails still."""
        self._store.recover()
        self._put_right()

    def _put_right(self) -> None:
        """Restore the rows that a failed commit may have changed."""
        if self._doubtful:
            self._commit({row: self._known_row(row, path) for row, path in self._doubtful.items()})
            self._doubtful.clear()

    def _known_row(self, row: Row, path: str) -> bytes | None:
        table, key = row
        if table == ENTITIES:
            entry = self.entry(path)
            return self._row(entry) if entry is not None and _row_key(entry.description) == key else None
        if table == RULES:
            queue_id, place = _RULE_KEY.unpack(key)
            rule = self._rules.get(queue_id, {}).get(place)
            return None if rule is None else _rule_value(rule)
        if table == DELETED:
            stores = self.deleted.get(int.from_bytes(key, "big"))
            return None if stores is None else json.dumps({"stores": stores}).encode()
        values = {_NEXT_ID: self._next_id, _STORE_COUNT: self.store_count, _GENERATION: self.generation}
        value = self.created_at if key == _CREATED_AT else values[key]
        return None if value is None else str(value).encode()

    @staticmethod
    def _row(entry: Entry) -> bytes:
        """Return the row of an entity, without its rules."""
        description = entry.description
        if isinstance(description, SubscriptionDescription):
            own = replace(description, rules=()).to_json()
            del own["rules"]
        else:
            own = description.to_json()
        optional = {name: getattr(entry, name) for name in _OPTIONAL}
        return json.dumps({"id": entry.queue_id, "description": own, **optional}).encode()

    def _commit(self, changes: Changes) -> None:
        expected_bytes = _COMMIT_BYTES + sum(len(value or b"") for value in changes.values())
        frees = any(value is None for value in changes.values())
        with self._store.begin(expected_bytes, frees=frees) as batch:
            for (table, key), value in changes.items():
                if value is None:
                    batch.delete(table, key)
                else:
                    batch.put(table, key, value)
            batch.commit()


_FLIP_REMEDIES = (
    "keep the old value in the configuration, delete the entity before the next start, or start with --fresh "
    "(EMUBUS_FRESH=yes), which deletes all entities and messages of the data folder"
)

FIXED_FIELDS: Final = {row.field: row.name for row in PROPERTIES if row.is_fixed}


_OPTIONAL = (
    "created_at",
    "updated_at",
    "accessed_at",
    "numbered_since",
    "first_counters",
    "exact_keys",
)  # fields of an `Entry`, in order


def _require_int(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a number")
    return value


def _with_name(description: Description, name: str) -> Description:
    return replace(description, name=name)


def _row_key(description: Description) -> bytes:
    return KINDS[type(description)].encode() + _path_bytes(path_of(description))


def _path_bytes(path: str) -> bytes:
    encoded = entity_key(path).encode()
    return encoded if len(encoded) <= _PATH_BYTES_MAX else hashlib.blake2b(encoded, digest_size=32).hexdigest().encode()


def _rule_row(queue_id: int, place: int) -> Row:
    return RULES, _RULE_KEY.pack(queue_id, place)


def _rule_value(rule: RuleDescription) -> bytes:
    return json.dumps(rule.to_json()).encode()


def _move_rules_to_own_rows(batch: Batch) -> None:
    """Up to format version 3 the row of a subscription had all its rules."""
    for key, value in batch.scan(ENTITIES, _SUBSCRIPTIONS, _LAST_SUBSCRIPTION, _ROWS_MAX):
        row = json.loads(value)
        for place, rule in enumerate(row["description"].pop("rules", ())):
            batch.put(*_rule_row(_require_int(row["id"]), place), json.dumps(rule).encode())
        batch.put(ENTITIES, key, json.dumps(row).encode())


def _mark_exact_keys(batch: Batch) -> None:
    """Up to format version 4 keys that differ in case had partitions of their own."""
    for key, value in batch.scan(ENTITIES, b"", _LAST_KEY, _ROWS_MAX):
        batch.put(ENTITIES, key, json.dumps({**json.loads(value), "exact_keys": True}).encode())


CATALOG_UPGRADES: Final[Upgrades] = {4: _move_rules_to_own_rows, 5: _mark_exact_keys}
"""What a start does with the rows of an older format."""


def _in_places(rules: Sequence[RuleDescription], known: PlacedRules) -> PlacedRules:
    """Return rules by rising places: a known rule, or one of its name, has its place, a new one the next place.

    Where that would change their order, all get new places.
    """
    place_of = {rule.name: place for place, rule in known.items()}
    following = max(known, default=-1) + 1
    placed: PlacedRules = {}
    last = -1
    for rule in rules:
        place = place_of.get(rule.name)
        if place is None:
            place, following = following, following + 1
        if place <= last:
            return dict(enumerate(rules))
        placed[place] = rule
        last = place
    return placed


def _deleted_row(queue_id: int) -> Row:
    return DELETED, queue_id.to_bytes(4, "big")
