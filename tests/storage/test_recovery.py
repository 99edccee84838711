"""What is left after the end nobody asked for: acknowledged is durable, and no batch is there by half."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emubus.storage import FAILPOINTS, Durability, Store, open_store, read_journal, replay
from emubus.storage.check import check_store

OpenStore = Callable[..., Store]

WRITER = Path(__file__).with_name("crash_writer.py")
TABLES = ("rows", "index")
ROW_COUNT = 20
JOURNAL = "journal"
JOURNAL_ID = "1"
LAST = b"\xff" * 8
DURABLE = [Durability.FULL, Durability.PROCESS]
KINDS = [*DURABLE, JOURNAL]


def start(folder: Path, kind: str, failpoint: str, batch: int) -> subprocess.Popen[bytes]:
    """Start the writer; `kind` is a durability or `JOURNAL`, the journal is in the folder's parent."""
    arguments = [sys.executable, "-P", str(WRITER), str(folder), kind, failpoint, str(batch)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE)


def acknowledged(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of the process and return the last batch that it said was committed."""
    output, _ = process.communicate()
    assert process.returncode == -9
    lines = [int(line) for line in output.split()]
    assert lines == list(range(1, len(lines) + 1))
    return len(lines)


def durable(folder: Path, kind: str) -> int:
    """Return how many batches are in the store, after making sure that each is there whole and nothing else is."""
    if kind == JOURNAL:
        replay(folder, TABLES, JOURNAL_ID, read_journal(folder.parent / JOURNAL, JOURNAL_ID))
    assert check_store(folder).problems == []
    store = open_store(folder, TABLES, Durability.FULL if kind == JOURNAL else Durability(kind))
    with store.view() as view:
        counted = view.get("index", b"count")
        count = int.from_bytes(counted or b"", "big")
        keys = [
            number.to_bytes(4, "big") + row.to_bytes(2, "big")
            for number in range(1, count + 1)
            for row in range(ROW_COUNT)
        ]
        deleted = {number.to_bytes(4, "big") + b"\0\0" for number in range(1, count)}
        assert view.scan("rows", b"", LAST, 10**6) == [(key, key[:4] * 200) for key in keys if key not in deleted]
        index = {key[::-1]: key for key in keys} | ({b"count": counted} if counted else {})
        if count > 1:
            index[b"moved"] = (count - 1).to_bytes(4, "big")
        assert dict(view.scan("index", b"", LAST, 10**6)) == index
    store.close()
    return count


@pytest.mark.parametrize(("kind", "batch"), [*((kind, 7) for kind in KINDS), (JOURNAL, 10)])  # 10 goes into the file
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_killed_at_a_failpoint_a_store_has_all_that_was_acknowledged_and_no_half_batch(
    tmp_path: Path, kind: str, failpoint: str, batch: int
) -> None:
    folder = tmp_path / "store"
    reported = acknowledged(start(folder, kind, failpoint, batch))
    assert reported == batch - 1
    assert durable(folder, kind) == (batch if failpoint == "committed" else batch - 1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_killed_at_any_moment_a_store_has_all_that_was_acknowledged_and_no_half_batch(
    tmp_path: Path, kind: str
) -> None:
    for attempt, lines in enumerate([1, 37, 120]):
        folder = tmp_path / str(attempt) / "store"
        process = start(folder, kind, "none", 0)
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        output, _ = process.communicate()
        reported = len(seen) + len(output.split())
        assert durable(folder, kind) in (reported, reported + 1)


def test_a_journal_that_is_replayed_again_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    acknowledged(start(folder, JOURNAL, "commit-started", 9))
    assert [durable(folder, JOURNAL) for _ in range(3)] == [8, 8, 8]


def test_a_killed_store_goes_on_where_it_was(tmp_path: Path) -> None:
    acknowledged(start(tmp_path, Durability.FULL.value, "commit-started", 3))
    store = open_store(tmp_path, TABLES, Durability.FULL)
    with store.begin(10) as batch:
        batch.put("rows", b"more", b"x")
        batch.commit()
    store.close()
    store = open_store(tmp_path, TABLES, Durability.FULL)
    with store.view() as view:
        assert view.get("rows", b"more") == b"x"
    store.close()


def test_a_commit_cut_short_anywhere_before_its_root_leaves_the_state_before_it(
    open_lmdb: OpenStore, tmp_path: Path
) -> None:
    """A machine that dies during a commit leaves any part of its pages; until the root is written they are nothing."""
    store = open_lmdb(Durability.FULL)
    data_file = tmp_path / "store" / "data.mdb"
    chance = random.Random(20)
    rows: dict[bytes, bytes] = {}
    for number in range(25):  # enough commits for pages to be used again
        before, rows_before = data_file.read_bytes(), dict(rows)
        with store.begin(100_000) as batch:
            for _ in range(30):
                key, value = b"%03d" % chance.randrange(200), b"%d" % number * chance.randrange(1, 3000)
                batch.put("rows", key, value)
                rows[key] = value
            batch.commit()
        torn = tear(before, data_file.read_bytes(), chance)
        folder = tmp_path / f"torn-{number}"
        folder.mkdir()
        (folder / "data.mdb").write_bytes(torn)
        after = open_store(folder, TABLES, Durability.FULL)
        with after.view() as view:
            assert view.scan("rows", b"", LAST, 1000) == sorted(rows_before.items())
        after.close()


def tear(before: bytes, after: bytes, chance: random.Random) -> bytes:
    """Return `before` with some of the pages of `after`, but neither of the two roots (pages 0 and 1)."""
    page = 4096
    torn = bytearray(before.ljust(len(after), b"\0"))
    for number, at in enumerate(range(0, len(after), page)):
        if number > 1 and chance.random() < 0.5:
            torn[at : at + page] = after[at : at + page]
    return bytes(torn)


def test_memory_leaves_nothing_behind(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", TABLES, Durability.NONE)
    with store.begin(10) as batch:
        batch.put("rows", b"a", b"1")
        batch.commit()
    store.close()
    assert list(tmp_path.iterdir()) == []
    store = open_store(tmp_path / "store", TABLES, Durability.NONE)
    with store.view() as view:
        assert view.get("rows", b"a") is None
    store.close()


def test_what_was_written_survives_closing_and_opening_in_another_durability(open_lmdb: OpenStore) -> None:
    for number, durability in enumerate(itertools.islice(itertools.cycle(DURABLE), 4)):
        store = open_lmdb(durability)
        with store.begin(10) as batch:
            batch.put("rows", b"%d" % number, durability.encode())
            batch.commit()
        with store.view() as view:
            assert len(view.scan("rows", b"", LAST, 10)) == number + 1
        store.close()
