"""What every store does, whatever it is made of: one contract, run over each durability."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from emubus.storage import FAILPOINTS, KEY_BYTES_MAX, Store, StoreError, StoreFailed, StoreFull

OpenStore = Callable[..., Store]

LAST = b"\xff" * 8


def write(store: Store, rows: Mapping[bytes, bytes | None], table: str = "rows") -> None:
    """Commit these rows in one batch; None deletes."""
    with store.begin(sum(len(value or b"") for value in rows.values())) as batch:
        for key, value in rows.items():
            if value is None:
                batch.delete(table, key)
            else:
                batch.put(table, key, value)
        batch.commit()


def everything(store: Store, table: str = "rows") -> list[tuple[bytes, bytes]]:
    with store.view() as view:
        return view.scan(table, b"", LAST, 1_000_000)


def test_a_new_store_is_empty(store: Store) -> None:
    assert everything(store) == []
    with store.view() as view:
        assert view.get("rows", b"key") is None


def test_what_is_committed_can_be_read(store: Store) -> None:
    write(store, {b"b": b"2", b"a": b"1"})
    assert everything(store) == [(b"a", b"1"), (b"b", b"2")]


def test_a_later_write_replaces_an_earlier_one(store: Store) -> None:
    write(store, {b"a": b"1"})
    write(store, {b"a": b"2"})
    assert everything(store) == [(b"a", b"2")]


def test_tables_do_not_share_keys(store: Store) -> None:
    write(store, {b"a": b"row"})
    write(store, {b"a": b"index"}, "index")
    assert (everything(store), everything(store, "index")) == ([(b"a", b"row")], [(b"a", b"index")])


def test_a_batch_reads_its_own_changes(store: Store) -> None:
    write(store, {b"a": b"1", b"b": b"2", b"c": b"3"})
    with store.begin(10) as batch:
        batch.put("rows", b"b", b"changed")
        batch.put("rows", b"bb", b"new")
        batch.delete("rows", b"c")
        assert batch.get("rows", b"b") == b"changed"
        assert batch.get("rows", b"c") is None
        assert batch.scan("rows", b"", LAST, 10) == [(b"a", b"1"), (b"b", b"changed"), (b"bb", b"new")]


@pytest.mark.parametrize("count", [3, 40])
def test_a_scan_in_a_batch_is_in_order_however_much_was_changed_and_in_whatever_order(store: Store, count: int) -> None:
    keys = [b"%02d" % number for number in range(count)]
    write(store, dict.fromkeys(keys[::2], b"old"))
    with store.begin(1) as batch:
        for key in reversed(keys):
            batch.put("rows", key, b"new")
        assert batch.scan("rows", keys[1], keys[-1], count) == [(key, b"new") for key in keys[1:-1]]
        batch.delete("rows", keys[1])
        batch.put("rows", b"zz", b"last")
        batch.commit()
    expected = [(key, b"new") for key in keys if key != keys[1]]
    with store.view() as view:
        assert view.scan("rows", b"\0", b"\xff", 100) == [*expected, (b"zz", b"last")]
        assert view.scan("rows", b"a", b"b", 100) == []


def test_nobody_sees_a_batch_before_its_commit(store: Store) -> None:
    write(store, {b"a": b"1"})
    with store.begin(10) as batch:
        batch.put("rows", b"a", b"2")
        assert everything(store) == [(b"a", b"1")]
        batch.commit()
    assert everything(store) == [(b"a", b"2")]


def test_a_view_goes_on_seeing_what_it_saw_when_a_commit_passes(store: Store) -> None:
    write(store, {b"a": b"1"})
    batch = store.begin(10)
    view = store.view()
    batch.put("rows", b"a", b"2")
    batch.put("rows", b"b", b"2")
    batch.commit()
    assert view.scan("rows", b"", LAST, 10) == [(b"a", b"1")]
    assert everything(store) == [(b"a", b"2"), (b"b", b"2")]


def test_a_view_is_refused_once_the_next_batch_has_begun(store: Store) -> None:
    view = store.view()
    batch = store.begin(10)
    for read in (lambda: view.get("rows", b"a"), lambda: view.scan("rows", b"", LAST, 1)):
        with pytest.raises(StoreError, match="this view ended when the next batch began"):
            read()
    batch.abort()


def test_a_closed_view_is_refused(store: Store) -> None:
    view = store.view()
    view.close()
    view.close()
    with pytest.raises(StoreError, match="closed"):
        view.get("rows", b"a")


def test_an_aborted_batch_leaves_everything_as_it_was(store: Store) -> None:
    write(store, {b"a": b"1", b"b": b"2"})
    before = everything(store)
    batch = store.begin(10)
    batch.put("rows", b"a", b"9")
    batch.put("rows", b"c", b"9")
    batch.delete("rows", b"b")
    batch.abort()
    assert everything(store) == before
    write(store, {b"d": b"4"})
    assert everything(store) == [*before, (b"d", b"4")]


def test_a_batch_left_without_commit_is_aborted(store: Store) -> None:
    with store.begin(10) as batch:
        batch.put("rows", b"a", b"1")
    assert everything(store) == []


def test_deleting_says_whether_there_was_something(store: Store) -> None:
    write(store, {b"a": b"1"})
    with store.begin(10) as batch:
        batch.put("rows", b"b", b"2")
        found = [batch.delete("rows", key) for key in (b"a", b"a", b"b", b"c")]
        batch.commit()
    assert found == [True, False, True, False]
    assert everything(store) == []


@pytest.mark.parametrize(
    ("start", "stop", "limit", "found"),
    [
        (b"", LAST, 9, [b"a", b"b", b"bb", b"c"]),
        (b"b", b"c", 9, [b"b", b"bb"]),
        (b"b\x00", b"c\x00", 9, [b"bb", b"c"]),
        (b"", b"bb", 9, [b"a", b"b"]),
        (b"a", LAST, 2, [b"a", b"b"]),
        (b"a", LAST, 0, []),
        (b"c", b"a", 9, []),
        (b"b", b"b", 9, []),
        (b"d", LAST, 9, []),
        (b"b" * 600, LAST, 9, [b"c"]),
    ],
)
def test_a_scan_gives_the_rows_from_start_up_to_but_not_with_stop(
    store: Store, start: bytes, stop: bytes, limit: int, found: list[bytes]
) -> None:
    write(store, {key: key * 2 for key in (b"c", b"bb", b"a", b"b")})
    expected = [(key, key * 2) for key in found]
    with store.view() as view:
        assert view.scan("rows", start, stop, limit) == expected
    with store.begin(10) as batch:  # the same through a batch that has changed something else
        batch.put("rows", b"\xff" * 9, b"beyond")
        assert batch.scan("rows", start, stop, limit) == expected


def test_keys_have_a_length_from_1_to_the_limit(store: Store) -> None:
    longest = b"k" * KEY_BYTES_MAX
    with store.begin(10) as batch:
        for key in (b"", longest + b"k"):
            with pytest.raises(ValueError, match="a key has 1 to 511 bytes"):
                batch.put("rows", key, b"")
        for call in (batch.get, batch.delete):
            with pytest.raises(ValueError, match="at least one byte"):
                call("rows", b"")
            assert not call("rows", longest + b"k")
        batch.put("rows", longest, b"kept")  # a refused key does no harm to the batch
        batch.commit()
    assert everything(store, "rows") == [(longest, b"kept")]


@pytest.mark.parametrize("size_bytes", [0, 1, 2037, 2038, 4096, 300_000])
def test_values_of_any_size_come_back_as_they_were(store: Store, size_bytes: int) -> None:
    value = bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256)
    write(store, {b"a": value})
    with store.view() as view:
        assert view.get("rows", b"a") == value


@pytest.mark.parametrize("there", [b"", b"0", b"c", b"z"], ids=["none", "before", "between", "behind"])
@pytest.mark.parametrize("size_bytes", [3, 1024, 5000])
def test_rows_out_of_the_order_of_their_keys_are_written_too(store: Store, there: bytes, size_bytes: int) -> None:
    write(store, {there: b"there"} if there else {})
    rows = [(key, key * size_bytes) for key in (b"b", b"e", b"a", b"f", b"d")]
    with store.begin(100_000) as batch:
        batch.put_rows("rows", rows)
        batch.commit()
    assert everything(store) == sorted([*rows, *([(there, b"there")] if there else [])])


def test_rows_written_again_in_the_same_batch_replace_large_values(store: Store) -> None:
    keys = [b"%02d" % number for number in range(20)]
    with store.begin(1_000_000) as batch:
        for size_bytes in (9000, 40, 5000):
            batch.put_rows("rows", [(key, b"v" * size_bytes) for key in keys])
        batch.commit()
    assert everything(store) == [(key, b"v" * 5000) for key in keys]


def test_an_unknown_table_is_a_key_error(store: Store) -> None:
    with store.begin(10) as batch, store.view() as view:
        calls: list[Callable[[], object]] = [
            lambda: view.get("none", b"a"),
            lambda: view.scan("none", b"", LAST, 1),
            lambda: batch.get("none", b"a"),
            lambda: batch.put("none", b"a", b""),
            lambda: batch.delete("none", b"a"),
            lambda: batch.put_rows("none", [(b"a", b""), (b"b", b""), (b"c", b"")]),
            lambda: batch.delete_rows("none", [b"a"]),
        ]
        for call in calls:
            with pytest.raises(KeyError, match="none"):
                call()


def test_there_is_one_batch_at_a_time(store: Store) -> None:
    first = store.begin(10)
    with pytest.raises(StoreError, match="a batch is open; one at a time"):
        store.begin(10)
    first.abort()
    store.begin(10).abort()


def test_a_batch_that_is_over_is_refused(store: Store) -> None:
    batch = store.begin(10)
    batch.commit()
    calls: list[Callable[[], object]] = [
        lambda: batch.get("rows", b"a"),
        lambda: batch.scan("rows", b"", LAST, 1),
        lambda: batch.put("rows", b"a", b""),
        lambda: batch.delete("rows", b"a"),
        lambda: batch.put_rows("rows", []),
        lambda: batch.delete_rows("rows", []),
        batch.commit,
    ]
    for call in calls:
        with pytest.raises(StoreError, match="this batch is over"):
            call()
    batch.abort()


def test_a_commit_may_run_on_another_thread(store: Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        for number in range(20):
            batch = store.begin(100)
            batch.put("rows", b"%d" % number, b"x")
            pool.submit(batch.commit).result()
    assert len(everything(store)) == 20


def test_the_failpoints_are_passed_in_their_order(open_any: OpenStore) -> None:
    passed: list[str] = []
    store = open_any(passed.append)
    write(store, {b"a": b"1"})
    assert passed == list(FAILPOINTS)


def test_while_a_batch_is_committed_it_is_left_alone_and_views_are_given(open_any: OpenStore) -> None:
    seen: list[object] = []

    def look(name: str) -> None:
        if len(seen) == len(FAILPOINTS):
            return  # the end of the test: a journal's rows go into the file
        seen.append((name, everything(store)))
        for call in (lambda: store.begin(1), store.close, batch.abort):
            with pytest.raises(StoreError, match="being committed"):
                call()
        with pytest.raises(StoreError, match="this batch is being committed"):
            batch.put("rows", b"b", b"2")

    store = open_any(look)
    batch = store.begin(10)
    batch.put("rows", b"a", b"1")
    batch.commit()
    assert seen == [("batch-applied", []), ("commit-started", []), ("committed", [(b"a", b"1")])]


@pytest.mark.parametrize("where", ["batch-applied", "commit-started"])
@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (OSError(errno.EIO, "Input/output error"), StoreFailed),
        (RuntimeError("broken"), StoreFailed),
        (StoreFull(None, "no room"), StoreFull),
    ],
    ids=["disk", "bug", "full"],
)
def test_a_commit_that_fails_stores_nothing_and_the_store_goes_on(
    open_any: OpenStore, where: str, cause: Exception, kind: type[StoreError]
) -> None:
    armed = False

    def fail(name: str) -> None:
        if armed and name == where:
            raise cause

    store = open_any(fail)
    write(store, {b"a": b"1"})
    armed = True
    for _ in range(2):
        batch = store.begin(10)
        batch.put("rows", b"a", b"2")
        batch.put("rows", b"b", b"2")
        with pytest.raises(kind) as raised:
            batch.commit()
        assert str(cause) in str(raised.value)
        if kind is StoreFailed:
            refused_until_it_recovers(store, str(cause))
        assert everything(store) == [(b"a", b"1")]
    armed = False
    write(store, {b"c": b"3"})
    assert everything(store) == [(b"a", b"1"), (b"c", b"3")]


def refused_until_it_recovers(store: Store, cause: str) -> None:
    assert cause in (store.failure or "")
    with pytest.raises(StoreFailed, match=re.escape(cause)):
        store.begin(10)
    with pytest.raises(StoreFailed, match=re.escape(cause)):
        store.view()
    store.recover()
    assert store.failure is None


def test_a_disk_that_fails_still_keeps_a_store_from_recovering(open_any: OpenStore) -> None:
    works = True

    def disk(name: str) -> None:
        if not works and name != "committed":
            raise OSError(errno.EIO, f"Input/output error at {name}")

    store = open_any(disk)
    write(store, {b"a": b"1"})
    works = False
    with pytest.raises(StoreFailed):
        write(store, {b"b": b"2"})
    for _ in range(2):
        with pytest.raises(StoreFailed, match=r"can't open it again: .*Input/output error at recovering"):
            store.recover()
        with pytest.raises(StoreFailed):
            store.view()
    works = True
    store.recover()
    assert everything(store) == [(b"a", b"1")]
    store.recover()  # nothing to do
    write(store, {b"c": b"3"})
    assert everything(store) == [(b"a", b"1"), (b"c", b"3")]


def test_a_closed_store_is_refused_and_closing_aborts(open_any: OpenStore) -> None:
    store = open_any()
    view = store.view()
    batch = store.begin(10)
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        store.view,
        lambda: store.begin(1),
        lambda: view.get("rows", b"a"),
        lambda: batch.put("rows", b"a", b""),
    ]
    for call in calls:
        with pytest.raises(StoreError):
            call()
