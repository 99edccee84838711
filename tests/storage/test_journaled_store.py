"""Stores with a shared journal: which batches go where, and what a power loss leaves.

A seeded program commits small and large batches of two stores, with disks that fail. After each step, and while a
batch is committed, the power fails: copies of the files are replayed, and must have exactly what was acknowledged.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from emubus.storage import (
    FLUSHING_BYTES,
    Batch,
    Durability,
    Entry,
    Journal,
    Store,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReader,
    open_store,
    read_journal,
    replay,
)
from emubus.storage.check import check_store
from emubus.storage.journal import journal as journal_file
from emubus.storage.journal import journaled_store, reading
from emubus.storage.journal import replay as replaying
from emubus.storage.journal.journaled_store import JournaledBatch, JournaledStore
from emubus.storage.journal.replay import lacking, row_of
from emubus.storage.lmdb_store import LmdbStore

from ..rounds import rounds

pytestmark = pytest.mark.usefixtures("committing_thread")
TABLES: Final = ("rows", "index")
NAMES: Final = ("store-00", "store-01")
SEEDS: Final = range(rounds(2, 30))
STEPS: Final = 70
HALF_BYTES: Final = 4096
LARGE_BYTES: Final = 50_000
RETRIES_MAX: Final = 4

PWRITE: Final = os.pwrite

State = dict[tuple[str, bytes], bytes]
Changes = Mapping[tuple[str, bytes], bytes | None]


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let laps be short and few rows be pending."""
    for module in (journal_file, reading):
        monkeypatch.setattr(module, "HALF_BYTES", HALF_BYTES)
    monkeypatch.setattr(journaled_store, "JOURNALED_BYTES_MAX", 2000)
    monkeypatch.setattr(journaled_store, "PENDING_BYTES_MAX", 6000)


@pytest.fixture
def quick_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let copies that are replayed not wait for the disk."""

    def quick(path: Path, tables: Sequence[str], _: Durability, *, create: bool) -> LmdbStore:
        return LmdbStore(path, tables, Durability.PROCESS, create=create)

    monkeypatch.setattr(replaying, "LmdbStore", quick)


def write(batch: Batch, changes: Changes) -> None:
    for (table, key), value in changes.items():
        if value is None:
            batch.delete_rows(table, [key])
        else:
            batch.put(table, key, value)


def changed(state: State, changes: Changes) -> State:
    merged = {**state, **changes}
    return {place: value for place, value in merged.items() if value is not None}


def state_of(store: Store) -> State:
    with store.view() as view:
        return {(table, key): row for table in TABLES for key, row in view.scan(table, b"", b"\xff" * 8, 10**6)}


def state_in(folder: Path) -> State:
    """The rows of a closed store's file."""
    with StoreReader(folder) as reader:
        return {(table, key): row for table in TABLES for key, row in reader.rows(table)}


class Interrupted:
    """A transaction whose commit fails, with everything stored or with nothing."""

    def __init__(self, txn: Any, before: Callable[[], None], *, stored: bool) -> None:
        self._txn = txn
        self._before = before
        self._stored = stored
        self.abort = txn.abort

    def commit(self) -> None:
        self._before()
        if self._stored:
            self._txn.commit()
        raise OSError(errno.EIO, "Input/output error")


class Machine:
    """Two stores with a journal, what they must show, and what each may have after a power loss."""

    def __init__(self, folder: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.runs = self.losses = 0
        self.shown: dict[str, State] = {name: {} for name in NAMES}
        self.possible: dict[str, list[State]] = {name: [{}] for name in NAMES}
        self.committing: dict[str, State] = {}
        self.written_before = b""
        self.sync_fails = self.write_fails = False
        self.seen: set[str] = set()
        patch.setattr(os, "fdatasync", self.sync)
        patch.setattr(os, "pwrite", self.pwrite)
        self.journal: Journal
        self.stores: dict[str, JournaledStore] = {}
        self.open()

    # ---- the disk

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        if os.fstat(fd).st_ino != self.journal.path.stat().st_ino:
            return PWRITE(fd, data, offset)
        self.written_before = self.journal.path.read_bytes()
        if self.write_fails:
            self.write_fails = False
            raise OSError(errno.ENOSPC, "No space left on device")
        return PWRITE(fd, data, offset)

    def sync(self, fd: int) -> None:
        """The disk: a power loss here leaves all of the group, a part or nothing. Only of the journal."""
        if os.fstat(fd).st_ino != self.journal.path.stat().st_ino:
            return
        before, after = self.written_before, self.journal.path.read_bytes()
        first = next((at for at in range(len(after)) if after[at] != before[at]), 0)
        at = self.chance.randrange(first, min(first + 400, len(after)))
        self.lose_power(after)
        self.lose_power(after[:at] + before[at:])
        if self.sync_fails:
            self.sync_fails = False
            raise OSError(errno.EIO, "Input/output error")

    def lose_power(self, journal_content: bytes | None = None) -> None:
        """Copy the files as they are, replay the journal into them, and compare."""
        self.losses += 1
        copy = self.folder / f"loss-{self.losses}"
        content = self.journal.path.read_bytes() if journal_content is None else journal_content
        for name in NAMES:
            (copy / name).mkdir(parents=True)
            shutil.copyfile(self.folder / name / "data.mdb", copy / name / "data.mdb")
        (copy / "journal").write_bytes(content)
        self.replay(copy, NAMES[: self.chance.choice((1, 2, 2))])  # perhaps killed between the two
        if self.losses % 3 == 0 or not self.chance.randrange(3):
            self.replay(copy, NAMES)
        else:
            self.replay(copy, NAMES[1:])
        for name in NAMES:
            allowed = [*self.possible[name], *([self.committing[name]] if name in self.committing else [])]
            assert state_in(copy / name) in allowed, f"{name} after {self.losses} losses"
        shutil.rmtree(copy)

    def replay(self, folder: Path, names: Sequence[str]) -> None:
        entries = read_journal(folder / "journal", self.journal.id)
        for name in names:
            replay(folder / name, TABLES, self.journal.id, [entry for entry in entries if entry.store == name])

    # ---- runs

    def open(self) -> None:
        self.runs += 1
        self.journal = Journal(self.folder / f"journal-{self.runs}", f"{self.runs:x}")
        for name in NAMES:
            opened = open_store(self.folder / name, TABLES, Durability.FULL, journal=self.journal)
            assert isinstance(opened, JournaledStore)
            self.stores[name] = opened

    def stop(self) -> None:
        for store in self.stores.values():
            store.close()
        assert self.journal.is_empty
        self.journal.close()
        for name in NAMES:
            assert state_in(self.folder / name) == self.shown[name]
            assert check_store(self.folder / name).problems == []
        (self.folder / "journal").write_bytes(self.journal.path.read_bytes())
        self.replay(self.folder, NAMES)  # all of it is out of date
        self.open()
        self.settle()

    def kill(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(JournaledStore, "flush", lambda _: None)
            for store in self.stores.values():
                store.close()
        self.journal.close()
        (self.folder / "journal").write_bytes(self.journal.path.read_bytes())
        self.replay(self.folder, NAMES)
        self.open()
        self.settle()

    def settle(self) -> None:
        """After a start: what is there is what was possible, and nothing else is possible any more."""
        for name, store in self.stores.items():
            found = state_of(store)
            assert found in self.possible[name]
            self.shown[name], self.possible[name] = found, [found]

    # ---- batches

    def changes(self, name: str, size: int = 250) -> Changes:
        places = [(self.chance.choice(TABLES), b"%02d" % self.chance.randrange(30)) for _ in range(6)]
        values = [
            None if self.chance.random() < 0.3 else self.chance.randbytes(self.chance.randrange(size)) for _ in places
        ]
        return {**dict(zip(places, values, strict=True)), ("rows", b"last"): name.encode() + b"%d" % self.losses}

    def commit(self, changes: Mapping[str, Changes], expected_bytes: int) -> None:
        """Commit a batch of each of these stores, again if one has to go into its file; shared ones together."""
        todo = dict(changes)
        for _ in range(RETRIES_MAX):
            batches = {name: self.stores[name].begin(expected_bytes) for name in todo}
            for name, batch in batches.items():
                write(batch, todo[name])
                assert state_of(self.stores[name]) == self.shown[name]
            journaled = {name: batch for name, batch in batches.items() if isinstance(batch, JournaledBatch)}
            self.seen |= {"journaled" if name in journaled else "in file" for name in batches}
            self.committing = {name: changed(self.shown[name], todo[name]) for name in journaled}
            errors = dict(zip(journaled, self.journal.commit(list(journaled.values())), strict=True))
            for name in journaled:
                self.ended(name, todo, errors[name])
            for name, batch in batches.items():
                if name not in journaled:
                    self.committing = {name: changed(self.shown[name], todo[name])}
                    error: BaseException | None = None
                    try:
                        batch.commit()
                    except StoreFailed as failure:
                        error = failure
                    self.ended(name, todo, error)
            if not todo:
                return
        raise AssertionError("a batch has no way into its file")

    def ended(self, name: str, todo: dict[str, Changes], error: BaseException | None) -> None:
        """What a store shows and may have after a commit; it stays in `todo` if it has to be done again."""
        whole = self.committing.pop(name)
        if isinstance(error, StoreFull):
            assert error.grows
            self.seen.add("refused")
            assert state_of(self.stores[name]) == self.shown[name]
            return
        del todo[name]
        if error is None:
            assert state_of(self.stores[name]) == whole
            self.shown[name], self.possible[name] = whole, [whole]
            return
        assert isinstance(error, StoreFailed)
        self.possible[name].append(whole)
        self.stores[name].recover()
        found = state_of(self.stores[name])
        assert found in (whole, self.shown[name])
        self.seen.add("unknown, stored" if found == whole else "unknown, not shown")
        self.shown[name] = found

    # ---- steps

    def step(self) -> None:
        name = self.chance.choice((*NAMES, NAMES[0]))
        kind = self.chance.choice(
            ("small",) * 20 + ("both",) * 12 + ("large", "flush", "too much", "abort")
            + ("write fails", "file fails", "file fails stored", "sync fails", "kill", "stop")
        )  # fmt: skip
        store = self.stores[name]
        self.write_fails, self.sync_fails = kind == "write fails", kind == "sync fails"
        if kind in ("kill", "stop"):
            (self.kill if kind == "kill" else self.stop)()
        elif kind == "abort":
            with store.begin(self.chance.choice((0, LARGE_BYTES))) as batch:
                write(batch, self.changes(name))
            assert state_of(store) == self.shown[name]
        elif kind.startswith("file fails"):
            finish = store.file.finish
            stored = kind.endswith("stored")
            store.file.finish = lambda txn: finish(Interrupted(txn, self.lose_power, stored=stored))  # type: ignore
            self.commit({name: self.changes(name)}, LARGE_BYTES)
            store.file.finish = finish  # type: ignore[method-assign]
        elif kind == "both":
            self.commit({each: self.changes(each) for each in NAMES}, 500)
        elif kind == "too much":
            self.commit({name: self.changes(name, 2 * HALF_BYTES)}, 0)
        else:
            expected = {"large": LARGE_BYTES, "flush": FLUSHING_BYTES}.get(kind, 0)
            self.commit({name: {} if kind == "flush" else self.changes(name)}, expected)
            assert not (store.has_pending and expected)
        self.write_fails = self.sync_fails = False
        if self.journal.failed and self.journal.is_empty:
            self.journal.recover()
            self.seen.add("journal recovered")
        self.lose_power()


def test_a_power_loss_at_any_moment_leaves_what_was_acknowledged_and_no_half_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_replay: None
) -> None:
    seen: set[str] = set()
    laps = 0
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        machine = Machine(folder, seed, monkeypatch)
        for _ in range(STEPS):
            lap = machine.journal.lap
            machine.step()
            laps += machine.journal.lap > lap
        machine.stop()
        machine.stop()
        for store in machine.stores.values():
            store.close()
        machine.journal.close()
        seen |= machine.seen
    assert seen == {
        "journaled",
        "in file",
        "refused",
        "unknown, stored",
        "unknown, not shown",
        "journal recovered",
    }
    assert laps > 10


# ---- single cases


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal", "1")
    yield made
    made.close()


@pytest.fixture
def pair(journal: Journal, tmp_path: Path) -> Iterator[list[Store]]:
    """Two stores with one journal."""
    stores = [open_store(tmp_path / name, TABLES, Durability.FULL, journal=journal) for name in NAMES]
    yield stores
    for store in stores:
        with suppress(StoreError):  # a test may have closed it in vain
            store.close()


def put(store: Store, key: bytes, value: bytes = b"", expected_bytes: int = 0) -> str:
    """Put one row, and return where the batch went."""
    with store.begin(expected_bytes) as batch:
        batch.put("rows", key, value)
        batch.commit()
    return "journal" if isinstance(batch, JournaledBatch) else "file"


def keys_of(store: Store) -> list[bytes]:
    return [key for _, key in sorted(state_of(store))]


def entries_lacking(journal: Journal, store: Store) -> int:
    """How many entries of the journal would be replayed into a store's file."""
    assert isinstance(store, JournaledStore)
    entries = [entry for entry in read_journal(journal.path, journal.id) if entry.store == store.name]
    with store.file.view() as view:
        return len(lacking(view.get("meta", b"journal") or b"", journal.id, entries))


def fill_laps(pair: list[Store]) -> None:
    """Let the second store fill the journal until the rows of the first one keep it from beginning a lap."""
    assert put(pair[0], b"idle") == "journal"
    for number in range(100):
        with pair[1].begin(1500) as batch:
            batch.put("rows", b"%d" % number, bytes(1500))
            try:
                batch.commit()
            except StoreFull:
                return
    raise AssertionError


def test_small_batches_go_into_the_journal_and_large_ones_into_the_file(pair: list[Store], journal: Journal) -> None:
    store = pair[0]
    data_file = store.path / "data.mdb"  # type: ignore[attr-defined]
    before = data_file.read_bytes().rstrip(b"\0")  # its room on the disk may grow
    assert (put(store, b"a"), put(store, b"b", bytes(1900), 2000), store.has_pending) == ("journal", "journal", True)
    assert (data_file.read_bytes().rstrip(b"\0"), entries_lacking(journal, store)) == (before, 2)
    assert (put(store, b"c", b"", 2001), store.has_pending) == ("file", False)
    assert (entries_lacking(journal, store), journal.is_empty, keys_of(store)) == (0, True, [b"a", b"b", b"c"])
    assert (put(store, b"d"), entries_lacking(journal, store), store.has_pending) == ("journal", 1, True)


def test_rows_that_take_much_memory_are_put_into_the_file(pair: list[Store], journal: Journal) -> None:
    places = [put(pair[0], b"%02d" % number, bytes(10)) for number in range(50)]
    assert (places.count("file"), places.index("file") in range(25, 35), journal.lap) == (1, True, 1)
    assert len(keys_of(pair[0])) == 50


def test_a_batch_that_is_larger_than_it_said_goes_into_the_file_when_it_is_done_again(pair: list[Store]) -> None:
    with pytest.raises(StoreFull, match="the journal has no room for the batch") as raised:
        put(pair[0], b"a", bytes(HALF_BYTES))
    assert raised.value.grows
    assert (keys_of(pair[0]), pair[0].has_pending) == ([], False)
    assert [put(pair[0], b"a", bytes(HALF_BYTES)), put(pair[0], b"b")] == ["file", "journal"]
    assert keys_of(pair[0]) == [b"a", b"b"]


def test_a_store_that_does_not_flush_sends_the_others_into_their_files_until_it_does(
    pair: list[Store], journal: Journal
) -> None:
    fill_laps(pair)
    assert (pair[0].wants_flush, pair[1].wants_flush, journal.lap) == (True, False, 2)
    assert put(pair[1], b"again", bytes(1500), 1500) == "file"
    assert put(pair[0], b"more") == "file"  # its rows of before go with it
    assert (pair[0].wants_flush, pair[0].has_pending) == (False, False)
    assert [put(pair[1], b"x%d" % number, bytes(1500), 1500) for number in range(2)] == ["journal"] * 2
    assert journal.lap == 3
    assert keys_of(pair[0]) == [b"idle", b"more"]


def test_a_batch_that_changed_nothing_keeps_no_lap_from_beginning(pair: list[Store], journal: Journal) -> None:
    with pair[0].begin(0) as batch:
        batch.commit()
    pair[0].begin(0).abort()
    laps = [(put(pair[1], b"%d" % number, bytes(1500), 1500), journal.lap)[1] for number in range(10)]
    assert laps[-1] > 3
    assert (pair[0].wants_flush, pair[0].has_pending) == (False, False)


def test_a_batch_that_changed_nothing_is_no_row_that_the_journal_has_at_the_end(
    pair: list[Store], journal: Journal
) -> None:
    for store in pair:
        with store.begin(0) as batch:
            batch.commit()
        store.close()
    assert journal.is_empty


def test_a_store_hears_when_it_should_flush(pair: list[Store]) -> None:
    calls: list[str] = []
    pair[0].on_flush_wanted(lambda: calls.append("first"))
    pair[1].on_flush_wanted(lambda: calls.append("second"))
    put(pair[0], b"a")
    while not calls:
        put(pair[1], b"b", bytes(1500), 1500)
    assert (calls, pair[0].wants_flush) in ((["first"], True), (["first", "second"], True))


def test_batches_of_two_stores_share_a_journal_unless_a_failpoint_may_hold_them(
    pair: list[Store], journal: Journal, tmp_path: Path
) -> None:
    watched = open_store(tmp_path / "store-02", TABLES, Durability.FULL, lambda _: None, journal=journal)
    small = [store.begin(0) for store in (*pair, watched)]
    assert [batch.shared for batch in small] == [journal, journal, None]
    for batch in small:
        batch.abort()
    with pair[0].begin(LARGE_BYTES) as large:
        assert large.shared is None
    watched.close()


def test_of_batches_that_are_committed_together_one_may_fail_alone(
    pair: list[Store], journal: Journal, tmp_path: Path
) -> None:
    put(pair[0], b"before")
    batches = [store.begin(0) for store in pair]
    for batch in batches:
        batch.put("rows", b"a", b"1")
    (tmp_path / NAMES[0] / "data.mdb").rename(tmp_path / "away")
    first, second = journal.commit(batches)
    assert isinstance(first, StoreFailed)
    assert "data.mdb was deleted while the store was open" in str(first)
    assert (second, [batch.state for batch in batches]) == (None, ["over", "over"])
    (tmp_path / "away").rename(tmp_path / NAMES[0] / "data.mdb")
    pair[0].recover()
    assert [keys_of(store) for store in pair] == [[b"before"], [b"a"]]
    assert [put(store, b"b") for store in pair] == ["journal"] * 2


@pytest.mark.parametrize("expected_bytes", [0, LARGE_BYTES])
def test_a_view_that_was_taken_before_a_commit_keeps_its_state(pair: list[Store], expected_bytes: int) -> None:
    store = pair[0]
    put(store, b"a", b"in the file", LARGE_BYTES)
    put(store, b"b", b"pending")
    batch = store.begin(expected_bytes)
    batch.put("rows", b"b", b"new")
    batch.delete("rows", b"a")
    with store.view() as held, ThreadPoolExecutor(1) as pool:
        pool.submit(batch.commit).result()
        assert held.scan("rows", b"", b"z", 9) == [(b"a", b"in the file"), (b"b", b"pending")]
        assert (held.get("rows", b"a"), held.get("rows", b"b")) == (b"in the file", b"pending")
        with store.view() as newer:
            assert newer.scan("rows", b"", b"z", 9) == [(b"b", b"new")]
        store.begin(0).abort()
        for read in (lambda: held.get("rows", b"b"), lambda: held.scan("rows", b"", b"z", 9)):
            with pytest.raises(StoreError, match="this view ended when the next batch began"):
                read()


def test_a_copy_has_the_rows_that_were_only_in_the_journal(pair: list[Store], tmp_path: Path) -> None:
    put(pair[0], b"a", b"old", LARGE_BYTES)
    put(pair[0], b"a", b"new")
    put(pair[0], b"b")
    copy = pair[0].copy_to(tmp_path / "copy")
    with pytest.raises(StoreError, match="is being copied"):
        put(pair[0], b"c")
    copy()
    assert state_in(tmp_path / "copy") == {("rows", b"a"): b"new", ("rows", b"b"): b""}
    assert check_store(tmp_path / "copy").problems == []
    assert (pair[0].has_pending, put(pair[0], b"c")) == (False, "journal")


def test_closing_leaves_nothing_in_the_journal_alone(pair: list[Store], journal: Journal, tmp_path: Path) -> None:
    for store in pair:
        put(store, b"a")
    pair[0].begin(0).put("rows", b"unfinished", b"")
    for store in pair:
        assert not journal.is_empty
        store.close()
    assert journal.is_empty
    assert [state_in(tmp_path / name) for name in NAMES] == [{("rows", b"a"): b""}] * 2


def test_a_store_whose_file_cannot_take_the_rows_at_the_end_leaves_them_in_the_journal(
    pair: list[Store], journal: Journal, tmp_path: Path
) -> None:
    put(pair[0], b"a")
    put(pair[0], b"b")
    (tmp_path / NAMES[0] / "data.mdb").rename(tmp_path / "away")
    pair[0].close()
    (tmp_path / "away").rename(tmp_path / NAMES[0] / "data.mdb")
    assert not journal.is_empty
    replay(tmp_path / NAMES[0], TABLES, "1", read_journal(journal.path, "1"))
    assert state_in(tmp_path / NAMES[0]) == {("rows", b"a"): b"", ("rows", b"b"): b""}


def test_a_replay_of_what_the_file_has_writes_nothing(pair: list[Store], journal: Journal, tmp_path: Path) -> None:
    put(pair[0], b"a")
    put(pair[0], b"a", b"newer", LARGE_BYTES)
    put(pair[1], b"b")
    for store in pair:
        store.close()
    data_file = tmp_path / NAMES[0] / "data.mdb"
    before = data_file.read_bytes().rstrip(b"\0")  # its room on the disk may grow
    entries = [entry for entry in read_journal(journal.path, "1") if entry.store == NAMES[0]]
    assert len(entries) == 1
    replay(tmp_path / NAMES[0], TABLES, "1", entries)
    replay(tmp_path / NAMES[0], TABLES, "1", [])
    assert data_file.read_bytes().rstrip(b"\0") == before
    with pytest.raises(StoreError, match=r"data\.mdb is missing|doesn't exist"):
        replay(tmp_path / "store-99", TABLES, "1", entries)


def test_a_file_lacks_the_entries_above_its_number_and_all_of_another_journal() -> None:
    entries = [Entry(number, "s", {}, 10) for number in (3, 5, 9)]
    expected = {
        row_of("1", 5): [9],
        row_of("1", 4): [5, 9],
        row_of("1", 9): [],
        row_of("2", 9): [3, 5, 9],
        row_of("11", 9): [3, 5, 9],
        row_of("1", 9)[:-1]: [3, 5, 9],
        b"": [3, 5, 9],
        b"junk": [3, 5, 9],
    }
    assert {row: [entry.number for entry in lacking(row, "1", entries)] for row in expected} == expected


def with_two_rows(tmp_path: Path) -> JournaledStore:
    store = open_store(tmp_path / "store-00", ["rows"], Durability.FULL, journal=Journal(tmp_path / "journal-1", "1"))
    assert isinstance(store, JournaledStore)
    with store.begin(0) as batch:
        batch.put("rows", b"a", b"old")
        batch.put("rows", b"b", b"old")
        batch.commit()
    return store


def test_a_view_during_the_end_of_a_commit_of_the_file_is_of_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_two_rows(tmp_path)
    seen: list[list[tuple[bytes, bytes]]] = []
    forget = store._forget_pending

    def look_and_forget() -> None:
        with store.view() as view:
            seen.append(view.scan("rows", b"", b"z", 9))
        forget()

    monkeypatch.setattr(store, "_forget_pending", look_and_forget)
    with store.begin(LARGE_BYTES) as batch:
        batch.put("rows", b"a", b"new")
        batch.delete("rows", b"b")
        batch.put("rows", b"c", b"new")
        batch.commit()
    assert seen[0] in ([(b"a", b"old"), (b"b", b"old")], [(b"a", b"new"), (b"c", b"new")])
    store.close()
    store.journal.close()


def test_a_batch_goes_into_the_file_once_the_journal_was_deleted(tmp_path: Path) -> None:
    store = with_two_rows(tmp_path)
    (tmp_path / "journal-1").unlink()
    with store.begin(0) as batch:
        batch.put("rows", b"c", b"kept")
        with pytest.raises(StoreFull, match="the journal has no room"):
            batch.commit()
    with store.begin(0) as batch:
        batch.put("rows", b"c", b"kept")
        batch.commit()
    store.close()
    store.journal.close()
    assert state_in(tmp_path / "store-00") == {("rows", b"a"): b"old", ("rows", b"b"): b"old", ("rows", b"c"): b"kept"}
