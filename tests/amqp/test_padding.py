"""Old Python clients index fields by position: they get every field of every frame [wire 0, rule 1]."""

from __future__ import annotations

import pytest

from emubus.amqp.wire.clients import application_of
from emubus.broker.errors import BrokerError, Condition
from emubus.codec.types import Ubyte, Uint

from .test_frames import FIELD_COUNTS
from .wire import CLOSE, DETACH, END, TRANSFER, Frame, Wire, accepted, rejected

PYTHON = "azsdk-python-servicebus"


async def everything(wire: Wire) -> list[Frame]:
    """A conversation in which the server uses each of its performatives, also with errors."""
    frames = wire.attach_sender() + wire.attach_receiver(handle=1, credit=5) + wire.attach_receiver("none", 2)
    wire.write(wire.transfer(b"one"))
    frames += await wire.turn()
    wire.broker.q.error = BrokerError(Condition.NOT_ALLOWED, "No.")
    wire.write(wire.transfer(b"two"))
    wire.broker.q.error = None
    wire.broker.q.put(b"in", bytes(3000), b"out")
    frames += await wire.turn()
    wire.dispose(accepted, 0)
    wire.dispose(rejected("com.microsoft:dead-letter"), 1)
    wire.broker.q.locked.clear()
    wire.dispose(accepted, 2)
    wire.flow(1, 5, count=3, drain=True)
    frames += await wire.turn()
    wire.send(0, DETACH, [Uint(0), True])
    wire.send(0, END, [])
    wire.send(0, CLOSE, [])
    return frames + await wire.turn()


@pytest.mark.parametrize("version", ["7.14.3", "7.9.0", "7.0.0b1"])
async def test_an_old_client_gets_all_fields(bare: Wire, version: str) -> None:
    opened = bare.open({"product": PYTHON, "version": version}, frame_size=1024)
    frames = [opened, *await everything(bare)]
    assert {each.code for each in frames} >= FIELD_COUNTS.keys() - {0x11}
    assert {each.code: len(each.fields) for each in frames} == {
        code: FIELD_COUNTS[code] for code in {each.code for each in frames}
    }
    errors = [each.get(4).value[0].value for each in frames if each.code == 0x15 and each.get(4).descriptor == 0x25
              and each.get(4).value[0] is not None]  # fmt: skip
    assert [len(error) for error in errors] == [3, 3]
    assert [each.get(2) is None or len(each.get(2).value) == 3 for each in frames if each.code == DETACH]
    assert b"".join(each.payload for each in frames if each.code == TRANSFER) == b"in" + bytes(3000) + b"out"


@pytest.mark.parametrize("frame_size", [512, 600, 1024])
async def test_padded_transfers_still_fit_the_clients_frames(bare: Wire, frame_size: int) -> None:
    bare.open({"product": PYTHON, "version": "7.14.3"}, frame_size=frame_size)
    bare.attach_receiver(credit=5)
    bare.broker.q.put(bytes(10_000))
    await bare.turns(2)
    data, sizes = bare.socket.take(), []
    while data:
        sizes.append(int.from_bytes(data[:4], "big"))
        data = data[sizes[-1] :]
    assert len(sizes) > 5
    assert max(sizes) <= max(frame_size, 528)  # Proton makes no frames below the standard's 512


@pytest.mark.parametrize(
    "properties",
    [
        {"product": PYTHON, "version": "7.15.0"},
        {"product": PYTHON, "version": "8.0.0"},
        {"product": "MSJSClient", "version": "7.9.5"},
        {"product": PYTHON},
        {},
    ],
)
async def test_everybody_else_gets_frames_as_they_are(bare: Wire, properties: dict[str, str]) -> None:
    bare.open(properties)
    frames = await everything(bare)
    assert all(len(each.fields) < 11 for each in frames if each.code == TRANSFER)


async def test_an_old_client_that_settles_at_once_is_not_answered(bare: Wire) -> None:
    bare.open({"product": PYTHON, "version": "7.14.3"})
    bare.attach_receiver(snd=Ubyte(0), credit=5)
    bare.broker.q.put(b"one")
    (transfer,) = await bare.turn()
    assert (len(transfer.fields), transfer.payload) == (11, b"one")
    bare.dispose(accepted, 0, settled=True)
    assert await bare.turn() == []


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("shop azsdk-python-servicebus/7.15.0 Python/3.11", "shop"),
        ("azsdk-python-servicebus/7.15.0 Python/3.11", ""),
        ("shop 2.0", ""),
        ("", ""),
        (5, ""),
        (None, ""),
    ],
)
def test_a_program_is_called_what_it_told_its_sdk(told: object, expected: str) -> None:
    assert application_of({"user-agent": told}) == expected
