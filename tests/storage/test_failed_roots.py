"""A root whose write has failed may be on the disk and not in the cache: it must go before its pages are used again.

LMDB writes a root over the one before the last, and when that fails it goes on from the last one: its next batch takes
the same free pages. A power cut between these writes and the next root leaves the failed root over foreign pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from emubus.storage import Durability, Store, StoreError, check_file, newest_root, open_store
from emubus.storage.check import check_store

from .conftest import TABLES

OpenStore = Callable[..., Store]
ROWS = 400


def put(store: Store, value: bytes, numbers: range) -> None:
    with store.begin(len(numbers) * 300) as batch:
        for number in numbers:
            batch.put("rows", number.to_bytes(4, "big"), value * 200)
        batch.commit()


def values(folder: Path) -> set[bytes]:
    """The first bytes of all rows, or what is wrong with the file as one of them."""
    if check_store(folder).problems:
        return {b"damaged"}
    try:
        check_file(folder)
        store = open_store(folder, TABLES, Durability.PROCESS)
    except StoreError:
        return {b"damaged"}
    with store.view() as view:
        found = {value[:1] for _, value in view.scan("rows", b"", b"\xff" * 5, ROWS)}
    store.close()
    return found


def test_a_root_that_failed_and_reached_the_disk_is_overwritten_before_the_next_batch(
    open_lmdb: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    file = folder / "data.mdb"
    store = open_lmdb(Durability.FULL)
    for value in (b"a", b"b", b"c"):
        put(store, value, range(ROWS))
    before = file.read_bytes()
    root = newest_root(file)
    put(store, b"d", range(0, ROWS, 2))  # this batch's root: its write is reported to have failed, and is on the disk
    on_disk = file.read_bytes()
    store.close()
    place = (root.transaction + 1) % 2 * root.page_bytes
    slot = slice(place, place + root.page_bytes)
    shown = bytearray(on_disk)
    shown[slot] = before[slot]
    file.write_bytes(shown)

    calls: list[tuple[str, bytes]] = []
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def recorded_write(fd: int, data: bytes, at: int) -> int:
        calls.append((f"write at {at}", bytes(data)))
        return pwrite(fd, data, at)

    def recorded_wait(fd: int) -> None:
        calls.append(("wait", b""))
        fdatasync(fd)

    monkeypatch.setattr(os, "pwrite", recorded_write)
    monkeypatch.setattr(os, "fdatasync", recorded_wait)
    store = open_lmdb(Durability.FULL)
    assert calls[-2:] == [("write at 0", before[: 2 * root.page_bytes]), ("wait", b"")]  # both roots
    put(store, b"e", range(1, ROWS, 2))
    store.close()

    after = bytearray(file.read_bytes())
    images = {"rewritten": before[slot], "left as it was": on_disk[slot]}
    found = {}
    for name, root_page in images.items():  # the power is cut before the root of the last batch is written
        image = tmp_path / name
        image.mkdir()
        (image / "data.mdb").write_bytes(after[: slot.start] + root_page + after[slot.stop :])
        found[name] = values(image)
    assert found["rewritten"] == {b"c"}
    assert found["left as it was"] not in ({b"c"}, {b"c", b"d"})
