"""Single parts of a message, read without the rest: what the parser reads, for messages in any form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.errors import BrokerError
from emubus.broker.message import peeked
from emubus.broker.message.message import parse_message
from emubus.codec.encode import encode
from emubus.codec.types import Described, Symbol, Ulong

from .test_message_fuzz import ENCODED, SIMPLE, damaged

NAMES = ("a", "A", "colour", "größe", "none")
NAMED = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=300), SIMPLE, max_size=6)


def read(data: bytes, name: str) -> tuple[Any, ...]:
    return (
        *(peeked.field(data, position) for position in (0, 3, 6, 10)),
        peeked.application_property(data, name),
        peeked.application_property(data, name.lower(), is_folded=True),
        peeked.key(data),
    )


def parsed(data: bytes, name: str) -> tuple[Any, ...]:
    message = parse_message(data)
    named = message.application_properties()
    folded = [value for each, value in named.items() if each.lower() == name.lower()]
    fields = [message.field(position) for position in (0, 3, 6, 10)]
    session = fields[3] if isinstance(fields[3], str) else None
    return (
        *fields,
        (name in named, named.get(name)),
        (True, folded[0]) if folded else (False, None),
        message.partition_key if session is None else session,
    )


def same(data: bytes, name: str) -> None:
    """What the parser refuses may be read, or refused; what it reads is read."""
    try:
        data = parse_message(data).encoded  # as the broker delivers it: its sections in order
        expected = parsed(data, name)
    except BrokerError:
        try:
            read(data, name)
        except BrokerError:
            pass
        return
    assert repr(read(data, name)) == repr(expected)


@given(ENCODED, NAMED, st.sampled_from(NAMES))
def test_parts_of_messages_are_those_that_the_parser_reads(
    sections: bytes, named: dict[str, object], name: str
) -> None:
    same(sections, name)
    section = encode(Described(Ulong(0x74), named))
    same(section, name)
    same(encode(Described(Ulong(0x73), ["id", None, "to", "subject"])) + section + sections, name)


@given(damaged(), st.sampled_from(NAMES))
def test_damaged_messages_are_read_or_refused(data: bytes, name: str) -> None:
    same(data, name)


@pytest.mark.parametrize("value", ["red", "x" * 300, b"red", None, 5])
def test_the_key_is_the_session_id_or_else_the_partition_key(value: object) -> None:
    annotations = encode(Described(Ulong(0x72), {Symbol("x-opt-offset"): "1", Symbol("x-opt-partition-key"): value}))
    in_session = encode(Described(Ulong(0x73), [*[None] * 10, "s1"]))
    assert peeked.key(annotations + in_session) == "s1"
    try:
        expected = parse_message(annotations).partition_key
    except BrokerError:
        with pytest.raises(BrokerError):
            peeked.key(annotations)
        return
    assert peeked.key(annotations) == expected
