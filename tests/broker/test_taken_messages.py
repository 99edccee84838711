"""What is taken can be handled: it becomes active, is copied, forwarded, peeked, received, dead-lettered.

Random messages of all sections and types, whole, damaged and in batches, go to entities of each kind. None of them may
fail a request of another client, fail for ever, or leave an error in the log.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, DeadLetter, Delivery, ReceiveMode, SessionReceiver
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.entities import entity as entities
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.builder import envelope
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import SubscriptionDescription

from ..log_levels import every_level
from ..rounds import rounds
from .driving import encoded
from .namespace import WAIT_S, Receiver, loop_turns, send
from .test_judging import (
    BAD,
    ENTITIES,
    INT,
    LIST,
    NO_UTF8,
    NULL,
    START,
    message,
    noted,
    nothing_went_wrong,
    open_namespace,
    properties,
    section,
    text,
)
from .test_message_fuzz import ENCODED, damaged
from .test_scan import usual

INSTANTS: Final = (START + 500, START + 500, START - 1, -(2**63), -1, 0, 253_402_300_799_999, 2**62, 2**63 - 1)
TIMES: Final = tuple(b"\x83" + struct.pack(">q", at) for at in INSTANTS)
ODD: Final = (
    NULL,
    INT,
    LIST,
    NO_UTF8,
    b"\x41",
    b"\x54\x05",
    b"\x81" + b"\xff" * 8,
    b"\x82\x7f\xf0" + b"\x00" * 6,
    b"\x94" + b"\x00" * 16,
    b"\x98" + b"\x07" * 16,
    b"\xa0\x02ab",
    b"\xa3\x02ab",
    b"\x00\x53\x77\x40",
    b"\xe0\x04\x02\x41\x42",
    text("a"),
    text("é"),
    *TIMES,
)
"""Values of all kinds; one stands where another type is usual now and then."""

ANNOTATIONS: Final = {
    "x-opt-partition-key": (text("s"), text("s"), b"\xa0\x01s"),
    "x-opt-via-partition-key": (text("via"),),
    "x-opt-scheduled-enqueue-time": TIMES,
    "x-opt-delivery-time": TIMES,
    "x-opt-lock-token": (b"\x98" + b"\x07" * 16,),
    "x-opt-sequence-number": (b"\x81" + b"\x00" * 8,),
    "mine": ODD,
}
FIELDS: Final = (
    (text("id"), b"\x98" + b"\x07" * 16, b"\xa0\x02ab", b"\x80" + b"\xff" * 8),
    *[(NULL, NULL, text("a"))] * 9,
    (text("s"), text("s"), NULL),
    (NULL, b"\x52\x05"),
    (NULL, text("s")),
)
TTLS: Final = (NULL, b"\x43", b"\x70\x00\x00\x03\xe8", b"\x70\xff\xff\xff\xff")


@st.composite
def odd(draw: st.DrawFn) -> bytes:
    """A message with all the fields that the broker reads, of which some are of any type."""
    oddity = draw(st.integers(0, 12))  # in one of this many places a value of any kind

    def value(usual: Sequence[bytes], place: int) -> bytes:
        return draw(st.sampled_from(ODD if oddity == place else usual))

    parts: list[bytes] = []
    if draw(st.booleans()):
        parts.append(section(0x70, 0xD0, NULL, NULL, value(TTLS, 1)))
    for code in (0x71, 0x72):
        names = draw(st.lists(st.sampled_from(list(ANNOTATIONS)), max_size=3, unique=True))
        pairs = [(b"\xa3" + text(name)[1:], value(ANNOTATIONS[name], 2)) for name in names]
        if names:
            parts.append(section(code, 0xD1, *(item for pair in pairs for item in pair)))
    if draw(st.booleans()):
        count = draw(st.sampled_from((0, 1, 10, 11, 13)))
        parts.append(section(0x73, 0xD0, *(value(FIELDS[at], 3 if at in (0, 10) else 4) for at in range(count))))
    if draw(st.booleans()):
        keys = draw(st.lists(st.sampled_from((text("p"), text("P"), text("DeadLetterReason"), INT)), max_size=3))
        parts.append(section(0x74, 0xD1, *(item for key in keys for item in (key, value(ODD, 5)))))
    parts.append(b"\x00\x53\x77" + value((text("body"),), 6))
    return b"".join(parts)


DELIVERIES: Final = st.lists(odd() | odd() | usual() | damaged() | ENCODED, min_size=3, max_size=8)


async def quiet(broker: Broker) -> None:
    """Let stores and forwarders finish what they have."""
    for _ in range(8):
        await loop_turns(20)
        for worker in broker.namespace.workers:
            async with worker.idle_lock:
                pass


@contextmanager
def refusals_only() -> Iterator[None]:
    """A client may be refused, but the broker must not fail."""
    try:
        yield
    except BrokerError as error:
        if error.condition is Condition.INTERNAL_ERROR:
            raise


async def taken_of(broker: Broker, path: str, messages: Sequence[bytes]) -> list[bytes]:
    """Send each message alone, and what is taken of them once more as a batch and to be scheduled; return that."""
    taken: list[bytes] = []
    for each in messages:
        with refusals_only():
            await send(broker, path, each)
            taken.append(each)
    if taken:
        with refusals_only():  # a partitioned entity refuses several keys
            await send(broker, path, envelope(taken), batch=True)
        with refusals_only():
            numbers = await broker.messages.schedule(path, taken)
            await broker.messages.cancel_scheduled(path, numbers[:1])  # a duplicate was not stored
    return taken


async def take_session(broker: Broker, path: str, name: str) -> None:
    """Receive what a session has, and dead-letter it."""
    answer: asyncio.Future[SessionReceiver] = asyncio.get_running_loop().create_future()
    broker.accept_session(
        path,
        name,
        mode=ReceiveMode.PEEK_LOCK,
        timeout_ms=1_000,
        granted=answer.set_result,
        refused=answer.set_exception,
        detached=print,
    )
    receiver = await asyncio.wait_for(answer, WAIT_S)
    got: list[Delivery] = []
    drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    receiver.deliver = got.extend
    receiver.set_credit(1_000)
    receiver.drain(lambda: drained.set_result(None))
    await asyncio.wait_for(drained, WAIT_S)
    for delivery in got:
        receiver.settle([delivery.token], DeadLetter("reason", "text"), None)
    receiver.close()


async def handle_all(broker: Broker, path: str) -> None:
    """Do to the messages of an entity whatever clients can do."""
    entity = broker.namespace.find(path)[0]
    for sub_queue in SubQueue:
        address = f"{path}/{sub_queue.value}" if sub_queue else path
        for session_id in (None, "s"):
            await broker.messages.peek(address, 0, 100, 1 << 20, session_id)
    description = entity.description
    if getattr(description, "forward_to", None) is None:
        if entity.requires_session:
            for name in await broker.sessions.names(path, None):
                await take_session(broker, path, name)
        else:
            receiver = Receiver(broker, path)
            for outcome in (Abandon({"a": 1}), DeadLetter("reason", "text")):
                for delivery in await receiver.drain():
                    await receiver.settle(delivery, outcome)
            receiver.consumer.close()
    if isinstance(description, SubscriptionDescription):
        return
    numbers = list(range(1, 30))
    answer = await entity.resubmit(numbers, entity)
    assert all(error is None or error.condition is not Condition.INTERNAL_ERROR for error in answer.values())
    if getattr(description, "forward_dead_letters_to", None) is not None:
        return
    dead = Receiver(broker, f"{path}/$DeadLetterQueue", ReceiveMode.RECEIVE_AND_DELETE)
    await dead.drain()
    dead.consumer.close()


async def play(messages: list[bytes]) -> None:
    clock = Clock(start_at=START, manual=True)
    broker = open_namespace(clock)
    try:
        for path in ENTITIES:
            await taken_of(broker, path, messages)
        for _ in range(3):
            await quiet(broker)
            clock.advance(1_001)
        await quiet(broker)
        for entity in broker.namespace.entities():
            if entity.routing is None:
                await handle_all(broker, entity.path)
        await quiet(broker)
        for path in ENTITIES:  # nothing waits behind them
            await send(broker, path, encoded("behind", group_id="s"))
        await quiet(broker)
        for path in ("s", "ps", "t/Subscriptions/sessions"):
            assert "s" in await broker.sessions.names(path, None)
    finally:
        await broker.stop()
        clock.close()


@pytest.mark.parametrize("ttl", TTLS)
async def test_any_scheduled_time_can_be_handled(ttl: bytes) -> None:
    header = section(0x70, 0xD0, NULL, NULL, ttl)
    keys = (properties(text(str(number)), text("s")) for number in range(len(TIMES)))
    with every_level(), capture_logs() as logs:
        await play([header + message(noted(scheduled_enqueue_time=at), next(keys)) for at in TIMES])
    assert nothing_went_wrong(logs)


async def test_what_an_older_release_has_stored_can_be_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked for the keys of some messages only, and so stored some that this one refuses."""
    bad = [data for _, data in BAD.values()]
    brief = section(0x70, 0xD0, NULL, NULL, TTLS[2])
    with every_level(), capture_logs() as logs:
        monkeypatch.setattr(entities, "parse_sent", lambda data, _: parse_message(data))
        await play([*bad, *(brief + data for data in bad if not data.startswith(b"\0\x53\x70"))])
    assert nothing_went_wrong(logs)


@settings(max_examples=rounds(10, 3_000))
@given(DELIVERIES)
def test_what_is_taken_can_be_handled(messages: list[bytes]) -> None:
    with every_level(), capture_logs() as logs:
        asyncio.run(play(messages))
    assert nothing_went_wrong(logs)
