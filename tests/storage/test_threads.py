"""The owner reads while another thread commits: what it sees is one committed state, never a mixture."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emubus.storage import Batch, Durability, Journal, Store, lmdb_store, open_store

OpenStore = Callable[..., Store]

LAST = b"\xff" * 8
KEY_COUNT = 60
COMMIT_COUNT = 250


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


def value(number: int, key: int) -> bytes:
    """Return what batch `number` writes at `key`: recognisable, and of a size that differs from batch to batch."""
    return number.to_bytes(4, "big") * (1 + (number * 37 + key * 11) % 900)


def fill(batch: Batch, number: int, chance: random.Random) -> None:
    """Write every row anew, so that all pages change; some vanish, so that pages are freed and used again."""
    for key in range(KEY_COUNT):
        batch.put("rows", b"%02d" % key, value(number, key))
    for _ in range(20):
        batch.put("index", b"%05d" % chance.randrange(400), b"x" * chance.randrange(5000))
        batch.delete("index", b"%05d" % chance.randrange(400))


def seen(store: Store) -> int:
    """Read all rows through one view and return whose batch they are of; all must be of the same."""
    with store.view() as view:
        rows = view.scan("rows", b"", LAST, 1000)
        number = int.from_bytes(rows[0][1][:4], "big")
        assert rows == [(b"%02d" % key, value(number, key)) for key in range(KEY_COUNT)]
        assert view.get("rows", b"59") == value(number, 59)
    return number


def see_whole_batches(store: Store, expected_bytes: Callable[[int], int]) -> None:
    """Read between and during commits on another thread; `expected_bytes` of each batch by its number."""
    chance = random.Random(4)
    during = 0
    with ThreadPoolExecutor(1) as pool:
        for number in range(1, COMMIT_COUNT):
            batch = store.begin(expected_bytes(number))
            fill(batch, number, chance)
            if number > 1:
                assert seen(store) == number - 1
            running = pool.submit(batch.commit)
            while number > 1 and not running.done():
                assert seen(store) in (number - 1, number)
                during += 1
            running.result()
            assert seen(store) == number
    assert during > COMMIT_COUNT / 2  # the test is about views that overlap commits


@pytest.mark.parametrize("durability", [Durability.FULL, Durability.PROCESS], ids=str)
def test_views_between_and_during_commits_on_another_thread_see_whole_batches(
    open_lmdb: OpenStore, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    monkeypatch.setattr(lmdb_store, "MAP_BYTES_START", 256 * 1024)  # the map grows on the way
    monkeypatch.setattr(lmdb_store, "MAP_SLACK_BYTES", 64 * 1024)
    monkeypatch.setattr(lmdb_store, "PAGES_KEPT_BYTES_MAX", 32 * 1024 * 1024)  # and is mapped anew now and then
    monkeypatch.setattr(lmdb_store, "FILE_RESIDENT_BYTES_MAX", 0)
    see_whole_batches(open_lmdb(durability), lambda _: 600_000)


def test_views_of_a_store_with_a_journal_see_whole_batches_of_the_journal_and_of_the_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", "1")
    store = open_store(tmp_path / "store", ("rows", "index"), Durability.FULL, journal=journal)
    see_whole_batches(store, lambda number: 600_000 if number % 3 == 0 else 0)
    assert journal.lap > 1
    store.close()
    journal.close()


def test_a_view_held_through_one_commit_keeps_its_state_while_pages_are_freed(open_lmdb: OpenStore) -> None:
    chance = random.Random(5)
    store = open_lmdb()
    with ThreadPoolExecutor(1) as pool:
        for number in range(1, 60):
            batch = store.begin(600_000)
            held = store.view()
            fill(batch, number, chance)
            pool.submit(batch.commit).result()
            rows = held.scan("rows", b"", LAST, 1000)
            assert rows == [(b"%02d" % key, value(number - 1, key)) for key in range(KEY_COUNT if number > 1 else 0)]
            held.close()
