"""The checksum of journals and stores is that of zlib, in whichever steps it is made: older folders have it."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st
from zlib_ng.zlib_ng import crc32 as crc32_of_the_library

from emubus.storage.checksum import crc32


@given(st.lists(st.binary(max_size=2_000), max_size=4), st.integers(0, 2**32 - 1))
def test_it_is_that_of_zlib(parts: list[bytes], seed: int) -> None:
    value = seed
    for part in parts:
        value = crc32(memoryview(part), value)
    assert value == zlib.crc32(b"".join(parts), seed)


def test_the_library_makes_it() -> None:
    assert crc32 is crc32_of_the_library
