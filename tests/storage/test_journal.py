"""The journal's file: what was appended is read back, what was torn is not there, what was damaged is refused."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from emubus.storage.journal import journal as journal_file
from emubus.storage.journal import reading
from emubus.storage.journal.journal import GROUP, GROUP_MAGIC, HEAD_BYTES, Journal, JournalFull
from emubus.storage.journal.reading import Entry, read_journal

pytestmark = pytest.mark.usefixtures("committing_thread")

ID = "5eed"
HALF_BYTES = 2096
LIMIT_S = 20

Rows = Mapping[bytes, bytes | None]
Shown = list[tuple[str, dict[str, dict[bytes, bytes | None]]]]


class Batch:
    """A batch of one store that remembers how its commit has ended."""

    def __init__(self, store: str, rows: Rows, more: Rows | None = None, refusal: Exception | None = None) -> None:
        self.store = store
        self.tables = {"rows": rows} if more is None else {"rows": rows, "index": more}
        self.refusal = refusal
        self.ended: list[tuple[int, Exception | None]] = []

    def start_commit(self) -> tuple[str, Mapping[str, Rows]]:
        if self.refusal is not None:
            raise self.refusal
        return self.store, self.tables

    def end_commit(self, byte_count: int, error: Exception | None) -> None:
        self.ended.append((byte_count, error))
        if error is not None:
            raise error


@pytest.fixture
def small_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a half hold a few groups only."""
    for module in (journal_file, reading):
        monkeypatch.setattr(module, "HALF_BYTES", HALF_BYTES)


@pytest.fixture
def journal(small_halves: None, tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal", ID)
    yield made
    made.close()


def put(journal: Journal, *batches: Batch) -> None:
    """Commit batches in one group, without an error."""
    assert journal.commit(batches) == [None] * len(batches)


def fill(journal: Journal, store: str, mark: bytes = b"") -> int:
    """Put one row of 200 bytes a group until the lap has no room for another one; return the number of groups."""
    count, lap = 0, journal.lap
    while journal.lap == lap and journal._used_bytes + 300 <= HALF_BYTES:
        put(journal, Batch(store, {mark + b"%03d" % count: bytes(200)}))
        count += 1
    return count


def shown(entries: Sequence[Entry]) -> Shown:
    return [(each.store, {table: dict(rows) for table, rows in each.rows.items()}) for each in entries]


def read(journal: Journal) -> Shown:
    return shown(read_journal(journal.path, journal.id))


def groups(journal: Journal, lap: int) -> list[tuple[int, int]]:
    """The begin and end in the file of each group at the beginning of the half of a lap."""
    content = journal.path.read_bytes()
    at, found = HEAD_BYTES + (lap % 2) * HALF_BYTES, []
    while content[at : at + 4] == GROUP_MAGIC:
        size = GROUP.unpack_from(content, at)[2]
        found.append((at, at + size))
        at += size
    return found


def flipped(content: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    return bytes(changed)


# ---- what was appended


def test_groups_are_read_back_in_their_order_with_the_rows_of_each_store(journal: Journal) -> None:
    assert read(journal) == []
    put(journal, Batch("store-00", {b"a": b"1", b"b": b"", b"k" * 511: b"v" * 700}, {b"c": b"2"}))
    put(journal, Batch("store-01", {b"a": None, b"b": b"\xff"}), Batch("store-00", {b"a": None}, {}), Batch("s", {}))
    assert read(journal) == [
        ("store-00", {"rows": {b"a": b"1", b"b": b"", b"k" * 511: b"v" * 700}, "index": {b"c": b"2"}}),
        ("store-01", {"rows": {b"a": None, b"b": b"\xff"}}),
        ("store-00", {"rows": {b"a": None}, "index": {}}),
        ("s", {"rows": {}}),
    ]


def test_deletions_and_rows_of_any_lengths_are_read_back_in_their_order(journal: Journal) -> None:
    chance = random.Random(3)
    tables: list[dict[bytes, bytes | None]] = []
    for number in range(40):
        sizes = [8] if number % 2 else range(1, 12)
        keys = [chance.randbytes(chance.choice(sizes)) for _ in range(chance.randrange(1, 9))]
        values = [None, None, b"", b"v"][: 1 + number % 4]
        tables.append({key: chance.choice(values) for key in keys})
    for at in range(0, len(tables), 2):
        put(journal, Batch("s", tables[at], tables[at + 1]))
        assert [list(rows.items()) for rows in read(journal)[-1][1].values()] == [
            list(rows.items()) for rows in tables[at : at + 2]
        ]
        journal.flushed("s")


def test_the_numbers_of_entries_go_up_and_leave_out_those_that_were_given_away(journal: Journal) -> None:
    given = [journal.next_number()]
    put(journal, Batch("a", {b"x": b"1"}), Batch("b", {b"x": b"1"}))
    given.append(journal.next_number())
    put(journal, Batch("a", {b"x": b"1"}))
    given.append(journal.next_number())
    assert (given, [entry.number for entry in read_journal(journal.path, ID)]) == ([1, 4, 6], [2, 3, 5])


def test_a_batch_learns_about_how_much_memory_its_rows_take(journal: Journal) -> None:
    small, large = Batch("a", {b"x": b"1"}), Batch("b", {b"%d" % n: bytes(100) for n in range(5)})
    put(journal, small, large)
    (small_bytes, _), (large_bytes, _) = small.ended[0], large.ended[0]
    entries = read_journal(journal.path, ID)
    assert small_bytes > entries[0].byte_count > 0
    assert large_bytes > entries[1].byte_count > 500


def test_a_batch_that_refuses_to_begin_or_to_end_fails_alone(journal: Journal) -> None:
    class EndsBadly(Batch):
        def end_commit(self, byte_count: int, error: Exception | None) -> None:
            raise KeyError("end")

    refused = Batch("a", {b"x": b"1"}, refusal=KeyError("begin"))
    good = [Batch("b", {b"x": b"1"}), Batch("d", {b"x": b"1"})]
    found = journal.commit([refused, good[0], EndsBadly("c", {b"x": b"1"}), good[1]])
    assert [str(error) for error in found] == ["'begin'", "None", "'end'", "None"]
    assert refused.ended == []
    assert [store for store, _ in read(journal)] == ["b", "c", "d"]


def test_a_commit_of_refused_batches_alone_writes_nothing(journal: Journal) -> None:
    before = journal.path.read_bytes()
    (error,) = journal.commit([Batch("a", {b"x": b"1"}, refusal=KeyError("begin"))])
    assert isinstance(error, KeyError)
    assert (journal.path.read_bytes(), journal.is_empty) == (before, True)


def test_threads_that_append_at_once_lose_nothing(journal: Journal) -> None:
    together = threading.Barrier(4)

    def append(store: str) -> None:
        together.wait(LIMIT_S)
        for number in range(6):
            put(journal, Batch(store, {b"%d" % number: b""}))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, "abcd"))
    found = read(journal)
    for store in "abcd":
        assert [each for each in found if each[0] == store] == [
            (store, {"rows": {b"%d" % number: b""}}) for number in range(6)
        ]


def test_a_journal_is_private_and_closing_it_twice_is_allowed(journal: Journal) -> None:
    assert journal.path.stat().st_mode & 0o777 == 0o600
    journal.close()
    journal.close()
    assert read(journal) == []


def test_both_halves_of_the_usual_size_are_there_from_the_beginning(tmp_path: Path) -> None:
    made = Journal(tmp_path / "journal", ID)
    put(made, Batch("a", {b"x": b"v" * 60_000}))
    assert read(made) == [("a", {"rows": {b"x": b"v" * 60_000}})]
    assert made.path.stat().st_size == HEAD_BYTES + 2 * journal_file.HALF_BYTES
    made.close()


# ---- torn and damaged


@pytest.fixture
def three(journal: Journal) -> Journal:
    """A journal with three groups of two entries."""
    for number in range(3):
        rows = {b"a%d" % number: b"v" * 20, b"gone": None}
        put(journal, Batch("store-00", rows), Batch("store-01", {b"b": b"eGRP"}))
    return journal


def test_a_last_group_that_is_cut_or_changed_at_any_byte_is_not_there_and_the_others_are(three: Journal) -> None:
    whole, expected = three.path.read_bytes(), read(three)
    *_, (begin, end) = groups(three, 1)
    torn = 0
    for at in range(begin, end):
        cut = whole[:at] + bytes(len(whole) - at)
        zeroed = whole[:at] + b"\0" + whole[at + 1 :]
        late = whole[:begin] + bytes(at - begin) + whole[at:]  # its beginning is what was not written
        for content in (cut, zeroed, late, *(flipped(whole, at, bit) for bit in range(8))):
            three.path.write_bytes(content)
            assert read(three) == (expected if content == whole else expected[:-2])
            torn += content != whole
    assert torn > 9 * (end - begin)


def test_damage_at_any_byte_of_an_earlier_group_is_refused(three: Journal) -> None:
    whole = three.path.read_bytes()
    *earlier, (last_begin, _) = groups(three, 1)
    for (begin, end), readable in zip(earlier, (3, 5), strict=True):
        for at in range(begin, end):
            for content in (flipped(whole, at, at % 8), whole[:begin] + bytes(end - begin) + whole[end:]):
                three.path.write_bytes(content)
                with pytest.raises(ValueError, match=f"it is damaged: entry {readable} can be read, and one before it"):
                    read(three)
    three.path.write_bytes(whole[: earlier[0][0]] + bytes(last_begin - earlier[0][0]) + whole[last_begin:])
    with pytest.raises(ValueError, match="it is damaged: entry 5 "):
        read(three)


def test_another_journal_junk_and_a_file_of_another_size_are_refused(three: Journal) -> None:
    whole = three.path.read_bytes()
    with pytest.raises(ValueError, match="it belongs to another data folder, or to another run"):
        read_journal(three.path, "5eee")
    with pytest.raises(ValueError, match="it belongs to another data folder, or to another run"):
        read_journal(three.path, "5ee")
    contents: dict[bytes, str] = {
        b"": "it is not a journal of emubus",
        b"junk" * 5000: "it is not a journal of emubus",
        bytes(len(whole)): "it is not a journal of emubus",
        whole[:HEAD_BYTES]: f"it has {HEAD_BYTES} bytes instead of {len(whole)}",
        whole[:-1]: f"it has {len(whole) - 1} bytes instead of {len(whole)}",
        whole + b"\0": f"it has {len(whole) + 1} bytes instead of {len(whole)}",
        whole[:500]: "it belongs to another data folder, or to another run",
        flipped(whole, 500, 0): "it belongs to another data folder, or to another run",
    }
    for content, refusal in contents.items():
        three.path.write_bytes(content)
        with pytest.raises(ValueError, match=refusal):
            read(three)
    three.path.unlink()
    with pytest.raises(FileNotFoundError):
        read(three)


def test_groups_of_another_journal_are_not_read(three: Journal, tmp_path: Path) -> None:
    other = Journal(tmp_path / "other", "07e4")
    put(other, Batch("store-00", {b"x": b"other"}))
    content = other.path.read_bytes()
    three.path.write_bytes(three.path.read_bytes()[:HEAD_BYTES] + content[HEAD_BYTES:])
    assert read(three) == []
    other.close()


def test_rows_that_look_like_groups_are_rows(journal: Journal) -> None:
    put(journal, Batch("a", {b"first": b"1"}))
    ((begin, end),) = groups(journal, 1)
    copy = journal.path.read_bytes()[begin:end]
    put(journal, Batch("a", {b"second": copy * 2}))
    put(journal, Batch("a", {b"third": b"3"}))
    assert read(journal) == [
        ("a", {"rows": {key: value}}) for key, value in ((b"first", b"1"), (b"second", copy * 2), (b"third", b"3"))
    ]


# ---- laps


def test_a_lap_begins_once_the_rows_of_the_lap_before_are_in_the_files(journal: Journal) -> None:
    fill(journal, "a")
    assert (journal.lap, journal.wants_flush("a")) == (1, False)
    put(journal, Batch("b", {b"x": bytes(400)}))  # nothing was before lap 1
    assert (journal.lap, journal.wants_flush("a"), journal.wants_flush("b")) == (2, True, False)
    fill(journal, "b")
    before = journal.path.read_bytes()
    with pytest.raises(JournalFull):
        journal.append([("b", bytes(400))])
    (error,) = journal.commit([Batch("a", {b"x": bytes(400)})])
    assert isinstance(error, JournalFull)
    assert (journal.lap, journal.path.read_bytes(), journal.failed) == (2, before, False)
    put(journal, Batch("c", {b"y": b""}))  # it still has room for this one
    journal.flushed("a")
    put(journal, Batch("a", {b"x": bytes(400)}))
    assert (journal.lap, journal.wants_flush("b"), journal.wants_flush("a")) == (3, True, False)


def test_the_groups_of_two_laps_are_read_and_those_before_them_are_not(journal: Journal) -> None:
    for lap in range(1, 6):
        count = fill(journal, f"lap-{lap}") if lap == 1 else fill(journal, f"lap-{lap}") + 1
        expected = {f"lap-{lap}": count}
        if lap > 1:
            expected[f"lap-{lap - 1}"] = len(groups(journal, lap - 1))
        found = [store for store, _ in read(journal)]
        assert {store: found.count(store) for store in found} == expected
        assert found == sorted(found)
        for store in set(found):
            journal.flushed(store)
        put(journal, Batch(f"lap-{lap + 1}", {b"first": bytes(400)}))
        found = [store for store, _ in read(journal)]  # the rest of its half is of two laps before
        assert found == [f"lap-{lap}"] * expected[f"lap-{lap}"] + [f"lap-{lap + 1}"]
        assert journal.lap == lap + 1


def test_a_group_larger_than_a_half_is_refused_and_leaves_room_for_others(journal: Journal) -> None:
    with pytest.raises(JournalFull):
        journal.append([("a", bytes(HALF_BYTES - GROUP.size + 1))])
    assert (journal.lap, journal.is_empty) == (1, True)
    put(journal, Batch("a", {b"x": bytes(1900)}))
    assert not journal.is_empty


def test_a_group_fills_a_half_to_its_last_byte(journal: Journal) -> None:
    put(journal, Batch("a", {b"x": b""}))
    ((begin, end),) = groups(journal, 1)
    put(journal, Batch("a", {b"x": bytes(HALF_BYTES - 2 * (end - begin))}))
    assert journal.lap == 1
    assert groups(journal, 1)[-1][1] == begin + HALF_BYTES
    put(journal, Batch("a", {b"y": b""}))
    assert (journal.lap, len(read(journal))) == (2, 3)


def second_lap_of_its_half(journal: Journal) -> tuple[bytes, Shown, bytes]:
    """The file before and after the first group of lap 3, which covers groups of lap 1, and its entries before."""
    fill(journal, "a")
    put(journal, Batch("b", {b"x": bytes(400)}))
    journal.flushed("a")
    fill(journal, "b")
    before, entries = journal.path.read_bytes(), read(journal)
    put(journal, Batch("c", {b"new": b"v" * 700}))
    assert journal.lap == 3
    return before, [each for each in entries if each[0] == "b"], journal.path.read_bytes()


def test_a_torn_first_group_over_an_old_lap_is_no_damage(journal: Journal) -> None:
    before, expected, after = second_lap_of_its_half(journal)
    (begin, end), *_ = groups(journal, 3)
    for at in range(begin, end):
        for content in (after[:at] + before[at:], flipped(after, at, at % 8)):
            journal.path.write_bytes(content)
            found = [each for each in read(journal) if each[0] != "a"]
            assert found == (expected if content != after else [*expected, ("c", {"rows": {b"new": b"v" * 700}})])


def test_a_torn_later_group_over_an_old_lap_is_no_damage(journal: Journal) -> None:
    _, expected, before = second_lap_of_its_half(journal)
    put(journal, Batch("d", {b"newer": b"v" * 300}))
    after = journal.path.read_bytes()
    _, (begin, end) = groups(journal, 3)[:2]
    for at in range(begin, end):
        for content in (after[:at] + before[at:], before[:at] + after[at:]):
            if content != after:
                journal.path.write_bytes(content)
                assert read(journal) == [*expected, ("c", {"rows": {b"new": b"v" * 700}})]


def test_damage_in_the_newer_lap_is_refused(journal: Journal) -> None:
    second_lap_of_its_half(journal)
    for number in range(2):
        put(journal, Batch("d", {b"%d" % number: b"v" * 100}))
    whole = journal.path.read_bytes()
    for begin, end in groups(journal, 3)[:2]:
        for at in range(begin, end):
            journal.path.write_bytes(flipped(whole, at, at % 8))
            with pytest.raises(ValueError, match="it is damaged: entry "):
                read(journal)


def test_damage_between_groups_of_the_older_lap_is_refused(journal: Journal) -> None:
    second_lap_of_its_half(journal)
    whole = journal.path.read_bytes()
    for begin, _ in groups(journal, 2):
        journal.path.write_bytes(flipped(whole, begin + GROUP.size, 3))
        with pytest.raises(ValueError, match="it is damaged: lap 2 can be read up to byte "):
            read(journal)


# ---- who is asked for room


def asked(journal: Journal, *stores: str) -> list[str]:
    """The stores that are asked to write their rows into their files, from now on."""
    calls: list[str] = []

    def caller(store: str) -> Callable[[], object]:
        return lambda: calls.append(store)

    for store in stores:
        journal.on_flush_wanted(store, caller(store))
    return calls


def test_the_stores_with_rows_are_asked_when_a_lap_begins(journal: Journal) -> None:
    calls = asked(journal, "a", "b", "idle")
    fill(journal, "a")
    put(journal, Batch("without a call", {b"x": b""}))
    assert calls == []
    put(journal, Batch("b", {b"x": bytes(400)}))
    assert calls == ["a"]
    assert (journal.wants_flush("a"), journal.wants_flush("b"), journal.wants_flush("idle")) == (True, False, False)
    journal.flushed("a")
    assert not journal.wants_flush("a")
    put(journal, Batch("b", {b"y": b""}))
    assert calls == ["a"]


def test_it_is_empty_when_the_last_store_has_its_rows(journal: Journal) -> None:
    assert journal.is_empty
    put(journal, Batch("a", {b"x": b""}), Batch("b", {b"x": b""}))
    for store in ("a", "b"):
        assert not journal.is_empty
        journal.flushed(store)
    assert journal.is_empty
    journal.flushed("a")
    put(journal, Batch("a", {b"x": b""}))
    assert not journal.is_empty


# ---- a disk that fails


def test_after_a_write_that_fails_the_next_group_takes_its_place(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    put(journal, Batch("a", {b"1": b""}))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        errors = journal.commit([Batch("a", {b"2": b""}), Batch("b", {b"2": b""})])
        assert [type(error) for error in errors] == [JournalFull, JournalFull]
        assert isinstance(errors[0], JournalFull)
        assert isinstance(errors[0].__cause__, OSError)
    assert (journal.failed, read(journal)) == (False, [("a", {"rows": {b"1": b""}})])
    put(journal, Batch("c", {b"3": b""}))
    assert [store for store, _ in read(journal)] == ["a", "c"]
    assert len(groups(journal, 1)) == 2


@pytest.mark.parametrize("written", [0, 1, GROUP.size, GROUP.size + 40])
def test_after_a_write_that_was_cut_short_the_next_group_takes_its_place(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    whole = os.pwrite

    def short(fd: int, data: bytes, offset: int) -> int:
        return whole(fd, data[:written], offset)

    put(journal, Batch("a", {b"1": b""}))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", short)
        (error,) = journal.commit([Batch("b", {b"2": b"v" * 300})])
        assert isinstance(error, JournalFull)
    assert [store for store, _ in read(journal)] == ["a"]
    put(journal, Batch("c", {b"3": b""}))
    assert (journal.failed, [store for store, _ in read(journal)]) == (False, ["a", "c"])


def test_a_lap_whose_first_write_fails_begins_all_the_same(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = asked(journal, "a")
    fill(journal, "a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: 0)
        (error,) = journal.commit([Batch("b", {b"x": bytes(400)})])
        assert isinstance(error, JournalFull)
    assert (calls, journal.wants_flush("a")) == ([], False)
    entries = read(journal)
    put(journal, Batch("b", {b"x": bytes(400)}))
    assert (calls, journal.wants_flush("a")) == (["a"], True)
    assert read(journal) == [*entries, ("b", {"rows": {b"x": bytes(400)}})]


def test_after_a_failed_wait_for_the_disk_nothing_is_appended_any_more(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    calls = asked(journal, "a", "b", "idle")
    put(journal, Batch("a", {b"1": b""}))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        errors = journal.commit([Batch("a", {b"2": b""}), Batch("b", {b"2": b""})])
        assert [str(error) for error in errors] == ["[Errno 5] Input/output error"] * 2
    assert (journal.failed, calls, journal.wants_flush("a")) == (True, ["a"], True)
    before = journal.path.read_bytes()
    (error,) = journal.commit([Batch("a", {b"3": b""})])
    assert isinstance(error, JournalFull)
    assert journal.path.read_bytes() == before
    assert read(journal)[0] == ("a", {"rows": {b"1": b""}})
    assert journal.next_number() > read_journal(journal.path, ID)[-1].number
    journal.flushed("a")
    assert (journal.is_empty, journal.wants_flush("a")) == (True, False)


def test_a_first_group_of_a_lap_of_which_only_the_end_was_written_is_no_damage(journal: Journal) -> None:
    """A power loss may write the pages of a group in any order; here the old lap's first group stays."""
    before, expected, after = second_lap_of_its_half(journal)
    (begin, end), *_ = groups(journal, 3)
    for at in range(begin + 1, end):
        content = after[:HEAD_BYTES] + before[HEAD_BYTES:at] + after[at:]
        if content != after:
            journal.path.write_bytes(content)
            assert [each for each in read(journal) if each[0] != "a"] == expected


@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_damage_in_the_first_or_last_group_of_the_lap_before_is_refused(journal: Journal, which: int) -> None:
    """Its stores may not have flushed: their confirmed rows would be gone without a word."""
    fill(journal, "a")
    put(journal, Batch("b", {b"x": bytes(400)}))
    begin, end = groups(journal, 1)[which]
    whole = journal.path.read_bytes()
    journal.path.write_bytes(flipped(whole, (begin + end) // 2, 0))
    with pytest.raises(ValueError, match="it is damaged"):
        read(journal)


def test_a_store_that_flushes_while_a_lap_begins_does_not_break_the_append(journal: Journal) -> None:

    class Lap(int):
        def __lt__(self, other: object) -> bool:
            journal.flushed("b")  # another thread's turn, at a switch between two bytecodes
            return int.__lt__(self, cast("int", other))

    journal.oldest = {"a": Lap(1), "b": 1}
    journal._used_bytes = HALF_BYTES
    (error,) = journal.commit([Batch("c", {b"x": b""})])
    assert error is None


def test_a_number_is_given_while_a_group_waits_for_the_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """`next_number` is called on the event loop at each batch of a file, and must not wait for a disk."""
    released, waiting = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        waiting.set()
        assert released.wait(LIMIT_S)

    monkeypatch.setattr(os, "fdatasync", hang)
    with ThreadPoolExecutor(2) as pool:
        committing = pool.submit(journal.commit, [Batch("a", {b"x": b""})])
        assert waiting.wait(LIMIT_S)
        try:
            pool.submit(journal.next_number).result(2)
        finally:
            released.set()
            committing.result(LIMIT_S)


def test_after_a_failed_wait_for_the_disk_the_next_lap_begins_once_all_rows_are_in_the_files(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the group that failed has left: its batches are unknown, and must not come back behind newer ones."""

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    put(journal, Batch("a", {b"1": b""}))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        journal.commit([Batch("a", {b"2": b""}), Batch("b", {b"2": b""})])
        assert journal.failure == f"{journal.path.name}: Input/output error"
        with pytest.raises(JournalFull, match="the rows of 1 stores are not in their files yet"):
            journal.recover()
        journal.flushed("a")
        with pytest.raises(OSError, match="Input/output error"):
            journal.recover()
        assert journal.failed
    journal.recover()
    assert (journal.failed, journal.lap) == (False, 2)
    put(journal, Batch("c", {b"3": b""}))
    assert [store for store, _ in read(journal)] == ["a", "c"]
    journal.path.rename(journal.path.with_name("away"))
    (error,) = journal.commit([Batch("a", {b"4": b""})])
    assert isinstance(error, JournalFull)
    with pytest.raises(OSError, match="was deleted or replaced"):
        journal.recover()
