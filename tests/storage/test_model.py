"""Random verbs on the LMDB store, the memory store and a dict: all three agree after each of them."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emubus.storage import Batch, Durability, Journal, Store, View, open_store, read_journal, replay
from emubus.storage.check import check_store
from emubus.storage.journal.journaled_store import JournaledStore

LAST = b"\xff" * 4
KEYS = st.binary(min_size=1, max_size=2).map(lambda key: bytes(byte % 4 for byte in key)) | st.just(b"k" * 511)
VALUES = st.binary(max_size=4) | st.integers(1, 9000).map(lambda size: b"v" * size)
ROWS = st.dictionaries(KEYS, VALUES, max_size=12).map(lambda rows: sorted(rows.items()))
NEW_KEYS = st.integers(1, 60).map(lambda count: [b"%04d" % number for number in range(count)])


class Stores(RuleBasedStateMachine):
    """`rows` is what must be committed, `batch_rows` what the open batch must see."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.journal: Journal | None = None
        self.journal_number = 1
        self.stores: list[Store] = [
            open_store(self.folder, ["rows"], Durability.PROCESS),
            open_store(None, ["rows"], Durability.NONE),
            self.open_journaled(),
        ]
        self.rows: dict[bytes, bytes] = {}
        self.batches: list[Batch] = []
        self.batch_rows: dict[bytes, bytes] = {}
        self.views: list[View] = []
        self.view_rows: dict[bytes, bytes] = {}

    def open_journaled(self) -> Store:
        """A store with a journal of its own, and the journal's rows in its file if it had one before."""
        folder = self.folder / "store-00"
        if self.journal is not None:
            self.journal.close()
            replay(folder, ["rows"], self.journal.id, read_journal(self.journal.path, self.journal.id))
            self.journal.path.unlink()
        self.journal = Journal(self.folder / "journal", f"{self.journal_number:x}")
        self.journal_number += 1
        return open_store(folder, ["rows"], Durability.FULL, journal=self.journal)

    @precondition(lambda self: not self.batches)
    @rule(killed=st.booleans())
    def open_journaled_again(self, killed: bool) -> None:
        if killed:
            assert isinstance(self.stores[2], JournaledStore)
            with patch.object(JournaledStore, "flush"):
                self.stores[2].close()
        else:
            self.stores[2].close()
        self.stores[2] = self.open_journaled()
        self.views = []

    @precondition(lambda self: not self.batches)
    @rule(expected_bytes=st.integers(0, 100_000))
    def begin(self, expected_bytes: int) -> None:
        self.batches = [store.begin(expected_bytes) for store in self.stores]
        self.batch_rows = dict(self.rows)
        self.views = []

    @precondition(lambda self: self.batches)
    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        for batch in self.batches:
            batch.put("rows", key, value)
        self.batch_rows[key] = value

    @precondition(lambda self: self.batches)
    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        found = self.batch_rows.pop(key, None) is not None
        assert [batch.delete("rows", key) for batch in self.batches] == [found] * 3

    @precondition(lambda self: self.batches)
    @rule(rows=ROWS)
    def put_rows(self, rows: list[tuple[bytes, bytes]]) -> None:
        for batch in self.batches:
            batch.put_rows("rows", rows)
        self.batch_rows |= dict(rows)

    @precondition(lambda self: self.batches)
    @rule(keys=NEW_KEYS, value=VALUES)
    def append_rows(self, keys: list[bytes], value: bytes) -> None:
        last = max(self.batch_rows, default=b"")[:4]
        self.put_rows([(last + key, value) for key in keys])

    @precondition(lambda self: self.batches)
    @rule(rows=ROWS, long=st.integers(512, 600).map(lambda size: b"\xfe" * size))
    def put_rows_with_a_refused_key(self, rows: list[tuple[bytes, bytes]], long: bytes) -> None:
        for batch in self.batches:
            with pytest.raises(ValueError, match=f"a key has 1 to 511 bytes, this one {len(long)}"):
                batch.put_rows("rows", [*rows, (long, b""), (LAST, b"")])
        self.batch_rows |= dict(rows)

    @precondition(lambda self: self.batches)
    @rule(keys=st.lists(KEYS, max_size=12), last=st.sampled_from([[], [b""], [b"k" * 512]]))
    def delete_rows(self, keys: list[bytes], last: list[bytes]) -> None:
        for batch in self.batches:
            with pytest.raises(ValueError, match="at least one byte") if last == [b""] else nullcontext():
                batch.delete_rows("rows", keys + last)
        for key in keys:
            self.batch_rows.pop(key, None)

    @precondition(lambda self: self.batches)
    @rule(keep=st.booleans())
    def end(self, keep: bool) -> None:
        for batch in self.batches:
            if keep:
                batch.commit()
            else:
                batch.abort()
        if keep:
            self.rows = self.batch_rows
        self.batches = []

    @rule()
    def look(self) -> None:
        self.views = [store.view() for store in self.stores]
        self.view_rows = dict(self.rows)

    @precondition(lambda self: not self.batches)
    @rule()
    def open_again(self) -> None:
        self.stores[0].close()
        assert check_store(self.folder).problems == []
        self.stores[0] = open_store(self.folder, ["rows"], Durability.PROCESS)
        self.views = []

    @rule(start=st.just(b"") | KEYS, stop=KEYS | st.just(LAST), limit=st.integers(0, 20))
    def scan(self, start: bytes, stop: bytes, limit: int) -> None:
        for views, rows in ((self.views, self.view_rows), (self.batches, self.batch_rows)):
            expected = sorted(row for row in rows.items() if start <= row[0] < stop)[:limit]
            for view in views:
                assert view.scan("rows", start, stop, limit) == expected

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        for views, rows in ((self.views, self.view_rows), (self.batches, self.batch_rows)):
            assert [view.get("rows", key) for view in views] == [rows.get(key)] * len(views)

    @invariant()
    def committed_state_is_the_same_everywhere(self) -> None:
        for store in self.stores:
            with store.view() as view:
                assert view.scan("rows", b"", LAST, 1000) == sorted(self.rows.items())

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        if self.journal is not None:
            self.journal.close()
        shutil.rmtree(self.folder)


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=40, stateful_step_count=40)
