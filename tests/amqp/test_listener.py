"""The one place with a real socket: the listener starts, accepts, and ends what it accepted."""

from __future__ import annotations

import asyncio

import pytest

from emubus.amqp import AmqpListener, Limits
from emubus.amqp.frames import AMQP_HEADER, SASL_HEADER
from emubus.broker.access import Access
from emubus.broker.clock import Clock
from emubus.broker.encoding import Uint

from .fakes import FakeBroker
from .wire import CLOSE, OPEN, frame, read_frames, sasl_init


def listener(**limits: float) -> AmqpListener:
    return AmqpListener(
        FakeBroker(),
        Access(verify=False),
        Clock(),
        "127.0.0.1",
        0,
        limits=Limits(**limits),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("polite", [True, False])
async def test_a_stopping_listener_says_why_and_does_not_wait_for_those_who_stay(polite: bool) -> None:
    amqp = listener(stop_wait_s=60.0 if polite else 0.02)
    port = await amqp.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(SASL_HEADER + sasl_init() + AMQP_HEADER + frame(0, OPEN, ["client", None, Uint(65536)]))
    data = b""
    while OPEN not in [each.code for each in read_frames(data)[0]]:
        data += await reader.read(1000)
    assert amqp.connection_count == 1
    stopping = asyncio.create_task(amqp.stop())
    data = b""
    while not data:
        data += await reader.read(1000)
    (close,) = read_frames(data)[0]
    assert close.code == CLOSE
    assert close.fields[0].value[:2] == ["amqp:connection:forced", "The server is shutting down."]
    if polite:
        writer.close()
    await stopping
    assert amqp.connection_count == 0
    writer.close()


async def test_a_connection_that_has_said_nothing_ends_with_the_listener() -> None:
    amqp = listener()
    port = await amqp.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == SASL_HEADER
    silent_reader, silent_writer = await asyncio.open_connection("127.0.0.1", port)
    silent_writer.write(SASL_HEADER)
    assert (await silent_reader.readexactly(8)) == SASL_HEADER
    await amqp.stop()
    await silent_reader.read()
    assert await silent_reader.read() == b""
    writer.close()
    silent_writer.close()


async def test_a_listener_that_was_not_started_can_be_stopped() -> None:
    await listener().stop()
