"""Nothing large that a client sent is left behind in a circle of references (`tests/left_behind.py` says why)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from emubus.broker.model.descriptions import EntityStatus, QueueDescription
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Symbol, Uint, Ulong

from ..left_behind import SIZE_BYTES, circles, only_new_objects
from .asking import REPLIES, REQUESTS, request
from .test_over_the_broker import Together, both, message
from .wire import BATCH, DETACH

__all__ = ["both"]  # a fixture

TEXT = "x" * SIZE_BYTES
LARGE = message(TEXT)
PART = 60_000
JUNK = {
    "no sections": b"\xff" * SIZE_BYTES,
    "a string without end": b"\x00\x53\x77\xb1\x7f\xff\xff\xff" + TEXT.encode(),
    "unknown descriptor": encode_described(Ulong(0x99), encode(TEXT)),
    "an annotation of the wrong type": encode_described(
        Ulong(0x72), encode({Symbol("x-opt-partition-key"): Uint(1), Symbol("x-opt-more"): TEXT})
    )
    + encode_described(Ulong(0x77), encode(TEXT)),
    "keys that differ": encode_described(Ulong(0x72), encode({Symbol("x-opt-partition-key"): "a"}))
    + encode_described(Ulong(0x73), encode([TEXT, *([None] * 9), "b"])),
    "a key that is too long": encode_described(Ulong(0x72), encode({Symbol("x-opt-partition-key"): TEXT})),
    "good": LARGE,
}


def deliver(both: Together, payload: bytes, handle: int, kind: int = 0) -> None:
    """Send a delivery in frames."""
    parts = [payload[at : at + PART] for at in range(0, len(payload), PART)]
    for part in parts[:-1]:
        both.wire.write(both.wire.transfer(part, handle=handle, more=True, format=kind))
    both.wire.write(both.wire.transfer(parts[-1], handle=handle, format=kind))


async def leaves_nothing(both: Together, act: Callable[[], Awaitable[None]]) -> None:
    await both.wire.turn(5)
    before = asyncio.all_tasks()
    with only_new_objects():
        await act()
        await both.wire.turn(20)
        while begun := asyncio.all_tasks() - before:  # a token is looked at on a thread
            await asyncio.wait(begun)
        await both.wire.turn(5)
        assert circles() == []


@pytest.mark.parametrize("kind", [0, BATCH], ids=["message", "batch"])
@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("address", ["q", "part", "s"])
async def test_what_a_sender_sent(both: Together, address: str, junk: str, kind: int) -> None:
    both.wire.attach_sender(address)

    async def act() -> None:
        deliver(both, JUNK[junk], 0, kind)

    await leaves_nothing(both, act)


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
async def test_what_a_disabled_queue_got(both: Together, status: EntityStatus) -> None:
    both.wire.attach_sender("q")

    async def act() -> None:
        both.broker.administration.update(QueueDescription("q", status=status))
        deliver(both, LARGE, 0)

    await leaves_nothing(both, act)


async def test_what_a_link_was_detached_with(both: Together) -> None:
    both.wire.attach_sender("q")

    async def act() -> None:
        both.wire.write(both.wire.transfer(LARGE[:PART], more=True))
        both.wire.write(both.wire.transfer(LARGE[PART : 2 * PART], more=True))
        both.wire.send(0, DETACH, [Uint(0), True])

    await leaves_nothing(both, act)


OPERATIONS = {
    "unknown": ("com.microsoft:nothing", {"a": TEXT}),
    "peek": ("com.microsoft:peek-message", {"from-sequence-number": TEXT, "message-count": TEXT}),
    "schedule": ("com.microsoft:schedule-message", {"messages": [{"message-id": "a", "message": TEXT.encode()}]}),
    "session state": ("com.microsoft:set-session-state", {"session-id": "a", "session-state": TEXT.encode()}),
    "renew": ("com.microsoft:renew-lock", {"lock-tokens": TEXT}),
    "add rule": (
        "com.microsoft:add-rule",
        {"rule-name": TEXT, "rule-description": {"sql-filter": {"expression": TEXT}}},
    ),
    "no map": ("com.microsoft:peek-message", [TEXT]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_what_an_operation_brought(both: Together, operation: str) -> None:
    name, asked = OPERATIONS[operation]
    both.wire.attach_receiver("q/$management", REPLIES)
    both.wire.attach_sender("q/$management", REQUESTS)
    both.wire.flow(REPLIES, 10)

    async def act() -> None:
        deliver(both, request({"operation": name}, asked), REQUESTS)

    await leaves_nothing(both, act)


async def test_a_token_that_is_none(both: Together) -> None:
    both.wire.attach_receiver("$cbs", REPLIES)
    both.wire.attach_sender("$cbs", REQUESTS)
    both.wire.flow(REPLIES, 10)

    async def act() -> None:
        properties: dict[str, object] = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": "q",
        }
        deliver(both, request(properties, TEXT), REQUESTS)

    await leaves_nothing(both, act)


async def test_a_connection_that_is_lost(both: Together) -> None:
    both.wire.attach_sender("q")

    async def act() -> None:
        both.wire.write(both.wire.transfer(LARGE[:PART], more=True))
        both.wire.write(both.wire.transfer(LARGE[PART : 2 * PART], more=True))
        both.wire.lose()

    await leaves_nothing(both, act)
