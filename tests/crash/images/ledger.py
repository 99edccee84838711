"""What clients asked for and were promised at a moment of a trace, and whether a folder keeps it.

A message has to be there once its send is accepted, until somebody asks for its completion; it must not be there before
its send is asked for, and not once its completion is confirmed. A batch is there as a whole or not at all. A sequence
number belongs to one message for ever. What is asked for and not answered may have happened or not.

With durability `second` a crash of the machine may take what was confirmed last, and leaves the beginning of the rest
(`is_prefix`): nothing that was confirmed before the last finished sync of the journal began is lost, and nothing is
there that was asked for after the confirmation of something that is lost.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from emubus.broker.admin.folder_view import CATALOG_FOLDER
from emubus.broker.admin.verify import check_data_folder
from emubus.broker.api import TABLES
from emubus.broker.model.catalog import CATALOG_TABLES, Catalog, CatalogError, Entry, path_of
from emubus.broker.partition.records import MESSAGES, PARTITION_SHIFT, STATE, STATE_KEY, Counters, unpack_message_key
from emubus.namespace import own_folder
from emubus.storage import Durability, Store, StoreError, open_store

from ...emubus.folders.opening import LAST, ROWS_MAX, STORES
from .subject import body_of
from .trace import Kind, Record

BODY: Final = re.compile(rb"<([\d-]+)>x*</([\d-]+)>")
EVER: Final = 1 << 62


@dataclass(slots=True)
class Promise:
    """One message: the positions at which things were asked for and answered; EVER: not yet."""

    queue: str
    batch: int
    asked: int = EVER
    accepted: int = EVER
    refused: int = EVER
    ended_asked: int = EVER  # a completion or a purge
    ended: int = EVER
    number: int | None = None
    number_known: int = EVER


@dataclass(slots=True)
class Found:
    """What a folder has: for each message id its queue, number and whether its body is whole; the next counters."""

    messages: list[tuple[str, str, int, bool]] = field(default_factory=list[tuple[str, str, int, bool]])
    next_counters: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    entities: set[str] = field(default_factory=set[str])


class Ledger:
    """The promises of a trace."""

    def __init__(self, records: Sequence[Record], *, is_prefix: bool = False) -> None:
        self._is_prefix = is_prefix
        self._synced = list(syncs_of_journals(records)) if is_prefix else []
        self.messages: dict[str, Promise] = {}
        self.made: dict[str, tuple[int, int]] = {}
        self.ready_at = EVER
        """The position from which on the queues are there."""
        self.answers: list[int] = []
        """Positions right behind an answer."""
        self._asked: dict[int, tuple[int, dict[str, Any]]] = {}
        for position, record in enumerate(records, 1):
            if record.kind is Kind.NOTE:
                self._take(position, json.loads(record.data))

    def _take(self, at: int, note: dict[str, Any]) -> None:
        if "ready" in note:
            self.ready_at = min(self.ready_at, at)
        elif "ask" in note:
            self._ask(at, note)
        elif "got" in note:
            promise = self.messages[note["got"]]
            promise.number, promise.number_known = note["number"], min(promise.number_known, at)
        else:
            self.answers.append(at)
            self._answer(at, *self._asked.pop(note["end"]), note["error"])

    def _ask(self, at: int, note: dict[str, Any]) -> None:
        self._asked[note["op"]] = at, note
        match note["ask"]:
            case "send":
                for each in note["ids"]:
                    self.messages[each] = Promise(note["queue"], note["op"], asked=at)
            case "complete":
                for each in note["ids"]:
                    self.messages[each].ended_asked = min(self.messages[each].ended_asked, at)
            case "purge":
                for promise in self._purged(note["queue"], at):
                    promise.ended_asked = min(promise.ended_asked, at)

    def _purged(self, queue: str, asked: int) -> Iterator[Promise]:
        return (each for each in self.messages.values() if each.queue == queue and each.asked < asked)

    def _answer(self, at: int, asked: int, note: dict[str, Any], error: str | None) -> None:
        match note["ask"]:
            case "send":
                for each in note["ids"]:
                    if error is None:
                        self.messages[each].accepted = at
            case "complete" if error is None:
                for each in note["ids"]:
                    self.messages[each].ended = min(self.messages[each].ended, at)
            case "purge" if error is None:
                for promise in self._purged(note["queue"], asked):
                    promise.ended = min(promise.ended, at)
            case "create" if error is None:
                self.made[note["name"]] = asked, at

    # ---- judging

    def wrong(self, found: Found, at: int) -> Iterator[str]:
        """What a folder after a crash at this position breaks, a line each, which begins with the kind."""
        there: dict[str, tuple[str, int]] = {}
        kept = self._kept(at)
        for message_id, queue, number, whole in found.messages:
            if message_id in there:
                yield f"DOUBLED {message_id}"
            if not whole:
                yield f"TORN {message_id}"
            there[message_id] = queue, number
        yield from self._wrong_messages(there, at, kept)
        if self._is_prefix:
            yield from self._gaps(there, found, at, kept)
        yield from self._wrong_batches(there, at)
        yield from self._wrong_numbers(there, found, at, kept)
        for name, (_, made) in self.made.items():
            if made <= at and name not in found.entities:
                yield f"ENTITY {name} is missing"

    def _kept(self, at: int) -> int:
        """What was answered up to this position has to be there after a crash."""
        if not self._is_prefix:
            return at
        return max((began for began, ended in self._synced if ended <= at), default=0)

    def _gaps(self, there: dict[str, tuple[str, int]], found: Found, at: int, kept: int) -> Iterator[str]:
        """What is there though it was asked for after the answer to something that is lost."""
        newest_there = max((asked for name, (asked, made) in self.made.items() if name in found.entities), default=0)
        oldest_lost, lost = EVER, ""
        for message_id, promise in self.messages.items():
            if message_id in there:
                newest_there = max(newest_there, promise.asked)
                answered = promise.ended  # it is there: its completion is lost
            elif promise.ended_asked <= at:
                if promise.accepted <= kept:  # its send can't be lost, so its completion is there
                    newest_there = max(newest_there, promise.ended_asked)
                continue
            else:
                answered = promise.accepted
            if answered <= at and answered < oldest_lost:
                oldest_lost, lost = answered, message_id
        if newest_there > oldest_lost:
            yield f"GAP {lost} was answered at {oldest_lost} and is lost; what was asked at {newest_there} is there"

    def _wrong_messages(self, there: dict[str, tuple[str, int]], at: int, kept: int) -> Iterator[str]:
        for message_id, promise in self.messages.items():
            if message_id in there:
                if promise.ended <= kept:
                    yield f"BACK {message_id}"
                if promise.asked > at:
                    yield f"EARLY {message_id}"
                if there[message_id][0] != promise.queue:
                    yield f"MISPLACED {message_id}"
            elif promise.accepted <= kept and at < promise.ended_asked:
                yield f"LOST {message_id}"
        yield from (f"STRANGE {message_id}" for message_id in there.keys() - self.messages.keys())

    def _wrong_batches(self, there: dict[str, tuple[str, int]], at: int) -> Iterator[str]:
        batches: dict[int, set[bool]] = {}
        for message_id, promise in self.messages.items():
            if promise.asked <= at < promise.ended_asked:
                batches.setdefault(promise.batch, set()).add(message_id in there)
        yield from (f"HALF {batch:x}" for batch, states in batches.items() if len(states) > 1)

    def _wrong_numbers(self, there: dict[str, tuple[str, int]], found: Found, at: int, kept: int) -> Iterator[str]:
        numbers = Counter((queue, number) for queue, number in there.values())
        yield from (f"NUMBER {each} is given twice" for each, count in numbers.items() if count > 1)
        for message_id, promise in self.messages.items():
            if promise.number is None or promise.number_known > at:
                continue
            if message_id in there and there[message_id][1] != promise.number:
                yield f"NUMBER {message_id} had {promise.number} and has {there[message_id][1]}"
            if message_id not in there and promise.accepted > kept:
                continue  # it may be lost with its number
            partition, counter = promise.number >> PARTITION_SHIFT, promise.number & ((1 << PARTITION_SHIFT) - 1)
            if found.next_counters.get((promise.queue, partition), 1) <= counter:
                yield f"NUMBER {promise.number} of {message_id} would be given again"


def syncs_of_journals(records: Sequence[Record]) -> Iterator[tuple[int, int]]:
    """Where the syncs of journals that succeeded have begun and ended."""
    journals: set[int] = set()
    begun: dict[int, int] = {}
    for position, record in enumerate(records, 1):
        if record.kind is Kind.OPEN and record.paths[0].name.startswith("journal-"):
            journals.add(record.inode)
        elif record.kind is Kind.SYNC and record.inode in journals:
            if not record.is_end:
                begun[record.op] = position
            elif not record.failed:
                yield begun[record.op], position


def look(folder: Path) -> Found:
    """What a start makes of a folder. StoreError, CatalogError."""
    found = Found()
    owned = own_folder(folder)
    opened: list[Store] = []
    try:
        for path in owned.prepare(STORES):
            tables = CATALOG_TABLES if path.name == CATALOG_FOLDER else TABLES
            opened.append(open_store(path, tables, Durability.FULL, create=False))
        entries = list(Catalog(opened[0]).entries())
        found.entities = {path_of(entry.description) for entry in entries}
        for index, store in enumerate(opened[1:]):
            _look_into(store, index, {entry.queue_id: entry for entry in entries}, found)
    finally:
        for store in opened:
            store.close()
        owned.release()
    return found


def _look_into(store: Store, index: int, entries: dict[int, Entry], found: Found) -> None:
    with store.view() as view:
        for queue_id, entry in entries.items():
            first = 1 if entry.first_counters is None else entry.first_counters[index]
            counters = Counters.unpack(view.get(STATE, STATE_KEY.pack(queue_id)), first)
            found.next_counters[path_of(entry.description), index] = counters.next_counter
        for key, row in view.scan(MESSAGES, b"", LAST, ROWS_MAX):
            queue_id, _, number = unpack_message_key(key)
            if queue_id not in entries:
                continue  # the clean-up's
            body = BODY.search(row)
            message_id = "" if body is None else body[1].decode()
            whole = body is not None and body[0].decode() == body_of(message_id)
            found.messages.append((message_id, path_of(entries[queue_id].description), number, whole))


def judge(ledger: Ledger, folder: Path, at: int) -> list[str]:
    """What is wrong with a folder that a crash at this position has left."""
    problems = [f"CHECK {each}" for each in check_data_folder(folder).problems]
    try:
        found = look(folder)
    except (StoreError, CatalogError) as error:
        return [*problems, f"REFUSED {error}"]
    except Exception as error:  # whatever a fault makes of it
        return [*problems, f"RAISED {type(error).__name__} {error}"]
    if at < ledger.ready_at:
        return problems  # it may be empty
    return [*problems, *ledger.wrong(found, at)]


def kinds(problems: Iterable[str]) -> Counter[str]:
    """How often each kind of problem."""
    return Counter(each.partition(" ")[0] for each in problems)
