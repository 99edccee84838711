"""The load client's messages are encoded as the product reads them, and carry their numbers."""

from __future__ import annotations

import pytest
from cproton_ffi import ffi
from messages import BATCH, SHAPES, Template, session_id

from emubus.codec.decode import decode
from emubus.codec.types import Described

ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA = 0x72, 0x73, 0x74, 0x75
GROUP_ID = 10


def sections(encoded: bytes) -> list[tuple[int, object]]:
    """Code and value of each section."""
    found: list[tuple[int, object]] = []
    at = 0
    while at < len(encoded):
        value, at = decode(encoded, at)
        assert isinstance(value, Described)
        assert isinstance(value.descriptor, int)
        found.append((value.descriptor, value.value))
    return found


def written(shape: str, number: int, size_bytes: int = 100) -> bytes:
    template = Template(size_bytes, SHAPES[shape])
    template.write(number + 1)
    template.write(number)
    return bytes(ffi.buffer(template.data, template.length))


def number_of(body: object) -> int:
    assert isinstance(body, bytes)
    return int.from_bytes(body[-8:], "little")


def test_a_bare_message_is_a_durable_header_and_a_body_that_ends_with_the_number() -> None:
    header, body = sections(written("bare", 1234))
    assert header == (0x70, [True])
    assert body[0] == DATA
    assert (len(body[1]), number_of(body[1])) == (100, 1234)  # type: ignore[arg-type]


def test_properties_are_a_message_id_and_a_color() -> None:
    found = dict(sections(written("properties", 1234)))
    assert found[PROPERTIES] == [f"{1234:032d}"]
    assert found[APPLICATION_PROPERTIES] == {"color": "c4"}
    assert number_of(found[DATA]) == 1234


@pytest.mark.parametrize(("shape", "session"), [("sessions", 34), ("many-sessions", 1234)])
def test_messages_are_dealt_to_the_sessions(shape: str, session: int) -> None:
    found = dict(sections(written(shape, 1234)))
    assert found[PROPERTIES] == [f"{1234:032d}", *[None] * (GROUP_ID - 1), session_id(session)]


def test_neighbours_have_the_same_partition_key() -> None:
    keys = [dict(sections(written("keys", number)))[ANNOTATIONS] for number in (1230, 1239, 1240)]
    assert keys[0] == keys[1] == {"x-opt-partition-key": "k0000123"}
    assert keys[2] == {"x-opt-partition-key": "k0000124"}


def test_a_batch_is_data_sections_that_are_whole_messages_with_numbers_that_count_on() -> None:
    messages = sections(written("batch", 500))
    assert [code for code, _ in messages] == [DATA] * BATCH
    for number, (_, message) in enumerate(messages, 500):
        assert message == written("properties", number)
