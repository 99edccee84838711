"""Python clients whose threads mix up delivery-ids: every delivery arrives, and is settled by the id it came with."""

from __future__ import annotations

import pytest

from emubus.amqp.wire.proton_repairs.delivery_ids import DeliveryIds
from emubus.broker.errors import BrokerError, Condition
from emubus.codec.types import Uint

from .wire import CLOSE, DISPOSITION, END, TRANSFER, Frame, Wire, frame

PYTHON = "azsdk-python-servicebus"
CHANNEL = 3
MIXED_UP = [
    [0, 1, 1, 3, 4],  # two threads took the same id
    [0, 2, 1, 3, 4],  # two threads sent in the wrong order
    [7, 7, 7, 10, 9],
    [0xFFFF_FFFE, 0xFFFF_FFFF, 0xFFFF_FFFF, 1, 2],
]


def transfer(number: int | None, text: bytes, *, handle: int = 0, more: bool = False, settled: bool = False) -> bytes:
    fields = [Uint(handle), None if number is None else Uint(number), text, Uint(0), settled, more]
    return frame(CHANNEL, TRANSFER, fields, text)


def opened(wire: Wire, product: str = PYTHON) -> None:
    wire.open({"product": product, "version": "7.15.0"})
    wire.begin(CHANNEL)
    wire.attach_sender(channel=CHANNEL)


def outcomes(frames: list[Frame]) -> list[tuple[int, str | None]]:
    """The deliveries that dispositions are about, in order, each with the condition of its rejection."""
    found: list[tuple[int, str | None]] = []
    for each in frames:
        assert (each.code, each.get(0), each.get(3)) == (DISPOSITION, True, True)
        error = each.get(4).value[0].value[0] if each.get(4).value else None
        first = each.get(1)
        last = first if each.get(2) is None else each.get(2)
        found += [(first + offset, error) for offset in range(last - first + 1)]
    return found


@pytest.mark.parametrize("numbers", MIXED_UP)
async def test_every_delivery_arrives_and_is_settled_by_its_own_id(bare: Wire, numbers: list[int]) -> None:
    opened(bare)
    frames: list[Frame] = []
    for turn, number in enumerate(numbers):
        bare.broker.q.error = BrokerError(Condition.NOT_ALLOWED, "No.") if turn % 2 else None
        bare.write(transfer(number, b"%d" % turn))
        frames += await bare.turn()
    assert outcomes(frames) == [
        (number, "amqp:not-allowed" if turn % 2 else None) for turn, number in enumerate(numbers)
    ]
    assert [data for data, _ in bare.broker.q.sent] == [b"0", b"2", b"4"]


@pytest.mark.parametrize("numbers", MIXED_UP)
async def test_one_outcome_of_many_deliveries_names_each_of_them(bare: Wire, numbers: list[int]) -> None:
    opened(bare)
    bare.broker.q.waiting = []
    bare.write(b"".join(transfer(number, b"%d" % turn) for turn, number in enumerate(numbers)))
    assert await bare.turn() == []
    bare.broker.q.answer_all()
    assert outcomes(await bare.turn()) == [(number, None) for number in numbers]
    bare.broker.q.waiting = None
    bare.write(transfer(numbers[-1] + 1, b"next"))
    assert outcomes(await bare.turn()) == [(numbers[-1] + 1, None)]


async def test_deliveries_of_many_frames_and_those_that_are_settled_already_go_on(bare: Wire) -> None:
    opened(bare)
    bare.attach_sender(handle=1, channel=CHANNEL)
    bare.write(transfer(0, b"a", more=True) + transfer(0, b"b", handle=1) + transfer(0, b"c", more=True))
    bare.write(transfer(None, b"d") + transfer(2, b"e", settled=True) + transfer(2, b"f", settled=True))
    bare.write(transfer(4, b"g", more=True, handle=1) + transfer(4, b"h", handle=1))
    assert sorted(outcomes(await bare.turn())) == [(0, None), (0, None), (4, None)]
    assert sorted(data for data, _ in bare.broker.q.sent) == [b"acd", b"b", b"e", b"f", b"gh"]


async def test_an_amqp_session_that_begins_anew_counts_anew(bare: Wire) -> None:
    opened(bare)
    bare.broker.q.waiting = []
    bare.write(transfer(0, b"a") + transfer(0, b"b"))
    bare.send(CHANNEL, END, [])
    await bare.turn()
    bare.broker.q.waiting = None
    bare.begin(CHANNEL)
    bare.attach_sender(channel=CHANNEL)
    bare.write(transfer(0, b"c") + transfer(1, b"d"))
    assert outcomes(await bare.turn()) == [(0, None), (1, None)]


async def test_other_clients_must_count(bare: Wire) -> None:
    opened(bare, "another")
    bare.write(transfer(0, b"a") + transfer(0, b"b"))
    (close,) = [each for each in await bare.turn() if each.code == CLOSE]
    assert "sequencing error" in close.get(0).value[1]


def test_what_is_no_transfer_is_left_to_proton() -> None:
    ids = DeliveryIds()
    begin = frame(CHANNEL, 0x11, [None, Uint(0), Uint(1), Uint(1)])
    for body in (b"", b"\x00\x53\x14", b"\x00\x53\x14\xc0", b"\x00\x53\x14\xa1\x01x", b"\x00\x53\x14\xc0\x03\x02\x43"):
        broken = (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x03" + body
        assert ids.incoming(begin + broken) == begin + broken
    for fields in ([], [None], [Uint(0)], ["0", Uint(1)], [Uint(0), "1"]):
        odd = frame(CHANNEL, TRANSFER, fields)
        assert ids.incoming(begin + odd) == begin + odd
    assert not ids.is_renumbering
