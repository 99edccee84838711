"""Stores to test: each kind behind the same fixture, every folder its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from emubus.storage import Durability, Journal, Store, no_failpoint, open_store
from emubus.storage.contract import MAP_BYTES_MAX

TABLES = ("rows", "index")

WITH_JOURNAL = ("journal", Durability.SECOND)

OpenStore = Callable[..., Store]


@pytest.fixture
def open_lmdb(tmp_path: Path) -> Iterator[OpenStore]:
    """Open (or open again, after close) the LMDB store of this test; all are closed at its end."""
    opened: list[Store] = []

    def opener(
        durability: Durability = Durability.PROCESS,
        failpoint: Callable[[str], None] = no_failpoint,
        map_bytes_max: int = MAP_BYTES_MAX,
    ) -> Store:
        opened.append(open_store(tmp_path / "store", TABLES, durability, failpoint, map_bytes_max=map_bytes_max))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture(params=[*Durability, "journal"], ids=str)
def open_any(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Open a store of each durability in turn, and one with a journal."""
    opened: list[Store] = []
    kind = request.param
    journal = Journal(tmp_path / "journal", "1", waits=kind == "journal") if kind in WITH_JOURNAL else None

    def opener(failpoint: Callable[[str], None] = no_failpoint) -> Store:
        durability = Durability.FULL if kind == "journal" else Durability(kind)
        path = None if durability is Durability.NONE else tmp_path / f"store-{len(opened)}"
        opened.append(open_store(path, TABLES, durability, failpoint, journal=journal))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()
    if journal is not None:
        journal.close()


@pytest.fixture(params=["caller", "writer"])
def committing_thread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a journal write its groups on the thread of its caller, and on its own one, as event loops do."""

    def commit(journal: Journal, batches: Sequence[object]) -> list[BaseException | None]:
        while not journal.start(batches):  # another thread is committing
            pass
        return journal.finish()

    if request.param == "writer":
        monkeypatch.setattr(Journal, "commit", commit)


@pytest.fixture
def store(open_any: OpenStore) -> Store:
    """One empty store of each durability in turn."""
    return open_any()
