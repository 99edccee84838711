"""However a peer fills a message, to parse it does not hold the event loop: what each shape may cost at its largest.

A message is one step of the loop, which can't be cut: forty peers whose message takes 20 ms hold everybody for 0.8 s.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest

from emubus.broker.errors import BrokerError
from emubus.broker.message.message import parse_sent, split_batch
from emubus.codec.sections import data_sections_max
from emubus.codec.skip import IS_NATIVE

PROPERTIES_BYTES, MESSAGE_BYTES = 60_000, 1_000_000
TURN_S = 0.015 if IS_NATIVE else 3.0
"""A step of the loop at most [aside.py]; the slowest shape takes two thirds of it. Without a compiler nothing is
promised: sections of two kinds in turns take 1.2 s."""
COUNT = 5

EMPTY_DATA, EMPTY_SEQUENCE, NULL = b"\xa0\0", b"\x45", b"\x40"


def section(code: int, value: bytes) -> bytes:
    return b"\0\x53" + bytes((code,)) + value


def wide(code: int, count: int, items: bytes) -> bytes:
    return bytes((code,)) + (4 + len(items)).to_bytes(4, "big") + count.to_bytes(4, "big") + items


def listed(size: int) -> bytes:
    return wide(0xD0, size, NULL * size)


def mapped(size: int, key: bytes) -> bytes:
    count = size // len(key + NULL)
    return wide(0xD1, 2 * count, (key + NULL) * count)


DATA = section(0x75, b"\xa0\1x")
STRING, SYMBOL, KNOWN = b"\xa1\0", b"\xa3\1k", b"\xa3\7x-opt-k"
MAPS = {"delivery-annotations": 0x71, "message-annotations": 0x72, "application-properties": 0x74}
LISTS = {"header": 0x70, "properties": 0x73}
SHAPES = {
    **{
        f"{name}, {size} bytes of {key!r}": section(code, mapped(size, key)) + DATA
        for name, code in MAPS.items()
        for size in (PROPERTIES_BYTES, MESSAGE_BYTES)
        for key in (STRING, SYMBOL, KNOWN)
    },
    **{
        f"{name}, {size} null fields": section(code, listed(size)) + DATA
        for name, code in LISTS.items()
        for size in (PROPERTIES_BYTES, MESSAGE_BYTES)
    },
    "one property, described often": section(
        0x74, wide(0xD1, 2, b"\xa1\1a" + b"\0" * (PROPERTIES_BYTES // 2) + NULL * (PROPERTIES_BYTES // 2 + 1))
    )
    + DATA,
    "properties behind the body": DATA + section(0x74, mapped(PROPERTIES_BYTES, STRING)),
    "footer": DATA + section(0x78, mapped(MESSAGE_BYTES, SYMBOL)),
    "value, a list": section(0x77, listed(MESSAGE_BYTES)),
    "value, described often": section(0x77, b"\0" * (MESSAGE_BYTES // 2) + NULL * (MESSAGE_BYTES // 2 + 1)),
    "data sections": section(0x75, EMPTY_DATA) * (MESSAGE_BYTES // 5),
    "data sections of both widths": (section(0x75, EMPTY_DATA) + section(0x75, b"\xb0\0\0\0\0"))
    * (MESSAGE_BYTES // 13),
    "data sections, ulong descriptors": (b"\0\x80" + bytes(7) + b"\x75" + EMPTY_DATA) * (MESSAGE_BYTES // 12),
    "data sections, symbols": (b"\0\xa3\x10amqp:data:binary" + EMPTY_DATA) * (MESSAGE_BYTES // 21),
    "data sections before properties": section(0x75, EMPTY_DATA) * (MESSAGE_BYTES // 5) + section(0x73, EMPTY_SEQUENCE),
    "data sections, the last cut off": section(0x75, EMPTY_DATA) * (MESSAGE_BYTES // 5) + b"\0\x53\x70",
    "sequences": section(0x76, EMPTY_SEQUENCE) * (MESSAGE_BYTES // 4),
    "data and sequences in turns": (section(0x75, EMPTY_DATA) + section(0x76, EMPTY_SEQUENCE)) * (MESSAGE_BYTES // 9),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_message_takes_a_step_of_the_loop(
    shape: str, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    data = SHAPES[shape]
    with cpu_limit(COUNT * TURN_S):
        for _ in range(COUNT):
            with suppress(BrokerError):
                parse_sent(data)


@pytest.mark.parametrize("shape", [each for each in SHAPES if "data" in each])
def test_a_batch_is_counted_in_a_step_of_the_loop_and_split_in_another(
    shape: str, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    data = SHAPES[shape]
    with cpu_limit(COUNT * TURN_S):
        for _ in range(COUNT):
            data_sections_max(data)
    with cpu_limit(COUNT * TURN_S), suppress(BrokerError):
        for _ in range(COUNT):
            split_batch(data)
