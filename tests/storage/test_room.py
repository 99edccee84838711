"""Room: the map grows ahead of a batch, and where there is none the batch is refused whole."""

from __future__ import annotations

import errno
import itertools
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from emubus.storage import FLUSHING_BYTES, Durability, Journal, Store, StoreError, StoreFull, lmdb_store, open_store
from emubus.storage.check import check_store
from emubus.storage.contract import PAGES_KEPT_BYTES_MAX

OpenStore = Callable[..., Store]

KB = b"v" * 1024
LAST = b"\xff" * 8
MIB = 1024 * 1024


@contextmanager
def files_limited_to(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond this, as a full disk would; reads and overwrites still work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def put_rows(store: Store, start: int, count: int, value: bytes = KB) -> None:
    with store.begin(count * (len(value) + 4)) as batch:
        batch.put_rows("rows", [(number.to_bytes(4, "big"), value) for number in range(start, start + count)])
        batch.commit()


def filled(store: Store, value: bytes) -> int:
    """Put rows until there is no room; return how many there are."""
    for start in itertools.count(0, 64):
        try:
            put_rows(store, start, 64, value)
        except StoreFull:
            return start
    raise AssertionError


def row_count(store: Store) -> int:
    with store.view() as view:
        return len(view.scan("rows", b"", LAST, 10**6))


def test_a_store_grows_beyond_its_first_map(open_lmdb: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_store, "MAP_BYTES_START", MIB)
    monkeypatch.setattr(lmdb_store, "MAP_SLACK_BYTES", MIB // 4)
    store = open_lmdb()
    for batch in range(20):
        put_rows(store, batch * 1000, 1000)
    assert row_count(store) == 20_000


def test_batches_larger_than_the_first_map_fit(open_lmdb: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_store, "MAP_BYTES_START", MIB)
    store = open_lmdb()
    put_rows(store, 0, 30, b"v" * MIB)
    put_rows(store, 30, 5000)
    put_rows(store, 5030, 5000)
    assert row_count(store) == 10_030


def test_a_store_that_has_grown_opens_again(open_lmdb: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_store, "MAP_BYTES_START", MIB)
    store = open_lmdb()
    put_rows(store, 0, 3000)
    store.close()
    store = open_lmdb()
    put_rows(store, 3000, 3000)
    assert row_count(store) == 6000


@pytest.mark.parametrize("crowded", [False, True])
def test_a_batch_that_expected_too_little_is_refused_and_fits_the_next_time(
    open_lmdb: OpenStore, monkeypatch: pytest.MonkeyPatch, crowded: bool
) -> None:
    # In a process with many resident file pages the map is renewed at each look.
    monkeypatch.setattr(lmdb_store, "FILE_RESIDENT_BYTES_MAX", 0 if crowded else 1 << 40)
    monkeypatch.setattr(lmdb_store, "PAGES_KEPT_BYTES_MAX", 0)
    monkeypatch.setattr(lmdb_store, "MAP_BYTES_START", MIB)
    monkeypatch.setattr(lmdb_store, "MAP_SLACK_BYTES", 0)
    store = open_lmdb()
    put_rows(store, 0, 10)
    refused = 0
    while row_count(store) < 2000:
        try:
            with store.begin(0) as batch:
                for number in range(2000):
                    batch.put("rows", number.to_bytes(4, "big"), KB)
                batch.commit()
        except StoreFull:
            refused += 1
            assert row_count(store) == 10
    assert refused in (2, 3)  # 1 -> 2 -> 4 -> 8 MiB


def test_a_store_at_its_limit_refuses_the_batch_whole_and_takes_others_once_there_is_room(
    open_lmdb: OpenStore, tmp_path: Path
) -> None:
    store = open_lmdb(map_bytes_max=2 * MIB)
    put_rows(store, 0, 500)
    with pytest.raises(StoreFull, match=r"store .*/store: .*full.* \(at most 2097152\)"):
        put_rows(store, 500, 2000)
    assert row_count(store) == 500
    with store.begin(0) as batch:
        for number in range(400):
            batch.delete("rows", number.to_bytes(4, "big"))
        batch.commit()
    for _ in range(3):  # freed pages can be used again one commit later
        put_rows(store, 0, 100)
    assert row_count(store) == 200
    store.close()
    assert check_store(tmp_path / "store").problems == []


@pytest.mark.parametrize("durability", [Durability.FULL, Durability.PROCESS], ids=str)
def test_a_full_disk_refuses_the_batch_whole_and_the_store_goes_on_when_there_is_room(
    open_lmdb: OpenStore, tmp_path: Path, durability: Durability
) -> None:
    store = open_lmdb(durability)
    put_rows(store, 0, 300)
    size_bytes = (tmp_path / "store" / "data.mdb").stat().st_size
    with files_limited_to(size_bytes + 100_000):
        for _ in range(2):
            with pytest.raises(StoreFull, match=r"store .*/store: no room for its file"):
                put_rows(store, 300, 1000)
            assert row_count(store) == 300
        put_rows(store, 300, 10)  # what fits is taken meanwhile
        assert row_count(store) == 310
        store.close()
        store = open_lmdb(durability)  # and a store opens on a full disk
        assert row_count(store) == 310
    put_rows(store, 310, 1000)
    assert row_count(store) == 1310
    store.close()
    assert check_store(tmp_path / "store").problems == []


@pytest.mark.parametrize("limited_by", ["disk", "map"])
def test_rows_deleted_from_a_full_store_make_room_for_the_next_batch(
    open_lmdb: OpenStore, tmp_path: Path, limited_by: str
) -> None:
    """Though LMDB lets a batch use only pages that were freed two commits before it."""
    limits = {"map_bytes_max": 4 * MIB} if limited_by == "map" else {}
    store = open_lmdb(**limits)
    value = b"v" * 900  # the last batch that fits leaves some pages, which the deletion needs
    with files_limited_to(4 * MIB):
        count = filled(store, value)
        with store.begin(0) as batch:
            for number in range(count - 64):
                batch.delete("rows", number.to_bytes(4, "big"))
            batch.commit()
        with pytest.raises(StoreFull):
            put_rows(store, 0, count // 3, value)
        put_rows(store, 0, count // 3, value)
        assert row_count(store) == count // 3 + 64
        store.close()
    assert check_store(tmp_path / "store").problems == []


def delete_rows(store: Store, numbers: range) -> None:
    with store.begin(0, frees=True) as batch:
        batch.delete_rows("rows", [number.to_bytes(4, "big") for number in numbers])
        batch.commit()


@pytest.mark.parametrize("durability", [Durability.FULL, Durability.PROCESS], ids=str)
@pytest.mark.parametrize("at_once", [1, 50])
def test_a_full_disk_can_be_drained_row_by_row_and_after_a_new_start(
    open_lmdb: OpenStore, tmp_path: Path, durability: Durability, at_once: int
) -> None:
    store = open_lmdb(durability)
    put_rows(store, 0, 64)
    size_bytes = (tmp_path / "store" / "data.mdb").stat().st_size
    with files_limited_to(size_bytes):  # what was given to the file stays its own
        count = filled(store, b"v" * 1500)
        with pytest.raises(StoreFull, match="what is left is kept for deleting messages"):
            store.begin(MIB)
        for start in range(0, count // 2, at_once):
            delete_rows(store, range(start, start + at_once))
        store.close()
        store = open_lmdb(durability)
        for start in range(count // 2, count, at_once):
            delete_rows(store, range(start, start + at_once))
        assert row_count(store) == 0
        put_rows(store, 0, 64)  # and the pages of the deleted rows are used again
        store.close()
    assert check_store(tmp_path / "store").problems == []


def test_small_batches_leave_the_room_that_the_file_needs_for_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", "1")
    store = open_store(tmp_path / "store", ["rows"], Durability.FULL, journal=journal)
    with files_limited_to(max(journal.path.stat().st_size, (tmp_path / "store" / "data.mdb").stat().st_size)):
        count = 0
        with suppress(StoreFull):
            for count in itertools.count():
                put_rows(store, count, 1)
        with store.begin(FLUSHING_BYTES, frees=True) as batch:
            batch.commit()
        assert not store.has_pending
        delete_rows(store, range(count))
        assert row_count(store) == 0
        store.close()
    journal.close()


def test_where_no_room_can_be_kept_a_store_works_as_far_as_the_disk_goes(
    open_lmdb: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuses)
    store = open_lmdb()
    put_rows(store, 0, 1000)
    monkeypatch.delattr(os, "posix_fallocate")
    store.close()
    store = open_lmdb()
    put_rows(store, 1000, 1000)
    assert row_count(store) == 2000


def test_the_size_of_the_file_is_read_again_before_the_map_is_too_small(
    open_lmdb: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though batches count only what they expect; none is refused for a map that may grow."""
    monkeypatch.setattr(lmdb_store, "MAP_BYTES_START", MIB)
    monkeypatch.setattr(lmdb_store, "MAP_SLACK_BYTES", MIB // 2)
    store = open_lmdb()
    for start in range(0, 6000, 5):
        put_rows(store, start, 5)
    assert row_count(store) == 6000


def test_a_store_that_finds_no_room_at_its_first_opening_says_so(tmp_path: Path) -> None:
    with files_limited_to(4096), pytest.raises(StoreFull, match="can't open it: no room for its file"):
        open_store(tmp_path / "store", ["rows"], Durability.FULL)
    store = open_store(tmp_path / "store", ["rows"], Durability.FULL)
    put_rows(store, 0, 1)
    store.close()


def mapped_resident_bytes(data_file: Path) -> int:
    """Return how much of the file this process has resident through its map of it."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line[0] in "0123456789abcdef":
            ours = line.endswith(os.fspath(data_file))
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def test_a_backlog_written_and_read_stays_out_of_memory(
    open_lmdb: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_store, "FILE_RESIDENT_BYTES_MAX", 0)
    data_file = tmp_path / "store" / "data.mdb"
    store = open_lmdb()
    resident: list[int] = []
    for batch in range(300):
        put_rows(store, batch * 64, 64)
        resident.append(mapped_resident_bytes(data_file) if batch % 10 == 0 else 0)
    for start in range(0, 300 * 64, 64):
        with store.view() as view:
            assert len(view.scan("rows", start.to_bytes(4, "big"), LAST, 64)) == 64
        resident.append(mapped_resident_bytes(data_file) if start % 640 == 0 else 0)
    assert data_file.stat().st_size > 20 * MIB
    assert 0 < max(resident) < PAGES_KEPT_BYTES_MAX + MIB


def test_opening_a_store_does_not_read_its_backlog(open_lmdb: OpenStore, tmp_path: Path) -> None:
    store = open_lmdb()
    put_rows(store, 0, 20_000)
    store.close()
    store = open_lmdb()
    assert mapped_resident_bytes(tmp_path / "store" / "data.mdb") < MIB
    assert (tmp_path / "store" / "data.mdb").stat().st_size > 20 * MIB


def test_a_store_that_cannot_be_mapped_is_a_store_error_and_heals(
    open_lmdb: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_lmdb()
    put_rows(store, 0, 10)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + 512 * MIB, hard))
    try:
        with pytest.raises(StoreError, match="can't map"):
            store.begin(2048 * MIB, frees=True)  # else it would take room for it on the disk
        assert row_count(store) == 10
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    put_rows(store, 10, 10)
    assert row_count(store) == 20
