"""A flipped bit in the head of a journal is refused or harmless: no entry gets lost by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from emubus.storage.journal import journal as journal_file
from emubus.storage.journal import reading
from emubus.storage.journal.journal import HEAD_BYTES, LAP, LAP_PLACES, Journal
from emubus.storage.journal.reading import recovered

from .test_journal import ID, Shown, flipped, shown

HALF_BYTES: Final = 1024
LARGE: Final = bytes(400)  # two of them fill a half


@pytest.fixture(autouse=True)
def small_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (journal_file, reading):
        monkeypatch.setattr(module, "HALF_BYTES", HALF_BYTES)


def content_of(tmp_path: Path, lap: int, last_groups: int) -> bytes:
    """The file of a journal in this lap, which has so many groups; the lap before has some that no file has yet."""
    journal = Journal(tmp_path / "journal", ID)
    try:
        number = 0
        while journal.lap < lap:
            journal.flushed(f"store-{journal.lap - 1}")
            journal.append([(f"store-{journal.lap}", journal_file._pack_entry("s", {"rows": {b"%d" % number: LARGE}}))])
            number += 1
        for number in range(1, last_groups):
            journal.append([("s", journal_file._pack_entry("s", {"rows": {b"last %d" % number: b""}}))])
    finally:
        journal.close()
    content = bytearray(journal.path.read_bytes())
    if not last_groups and lap > 1:  # killed between the lap's record and its first group
        half = HEAD_BYTES + (lap % 2) * HALF_BYTES
        content[half : half + HALF_BYTES] = bytes(HALF_BYTES)
    return bytes(content)


def bits() -> Iterator[tuple[int, int]]:
    """Every bit of the title and of the records, and one of each byte between them."""
    used = {*range(64), *(place + at for place in LAP_PLACES for at in range(LAP.size))}
    return ((at, bit) for at in range(HEAD_BYTES) for bit in range(8 if at in used else 1))


def read(content: bytes) -> Shown | None:
    try:
        return shown(recovered(content, ID).entries)
    except ValueError:
        return None


@pytest.mark.parametrize("lap", [1, 2, 3, 4])
@pytest.mark.parametrize("last_groups", [0, 1, 3])
def test_a_flip_of_any_bit_of_the_head_is_refused_or_harmless(tmp_path: Path, lap: int, last_groups: int) -> None:
    content = content_of(tmp_path, lap, last_groups)
    expected = read(content)
    assert expected is not None
    place = LAP_PLACES[lap % 2]
    for at, bit in bits():
        found = read(flipped(content, at, bit))
        assert found in (expected, None), (at, bit)
        if at < LAP_PLACES[0] or (place <= at < place + LAP.size and last_groups):
            assert found is None, (at, bit)
