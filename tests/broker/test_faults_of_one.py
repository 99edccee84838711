"""A message that the program fails with alone waits or is dead-lettered, and the log says so a few times at most."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from emubus.broker.api import Home
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.enqueue import EnqueueHandlers
from emubus.broker.partition.outbox import OutboxHandlers

from ..log_levels import every_level
from .driving import encoded
from .namespace import loop_turns, open_broker, send
from .test_judging import message, noted, properties, text

START: Final = 1_800_000_000_000
POISON: Final = "poison"


class UnexpectedError(Exception):
    """What no code expects."""


@pytest.fixture
async def clock() -> Any:
    clock = Clock(start_at=START, manual=True)
    yield clock
    clock.close()


async def quiet(broker: Broker) -> None:
    for _ in range(8):
        await loop_turns(20)
        for worker in broker.namespace.workers:
            async with worker.idle_lock:
                pass


def later(message_id: str, at: int) -> bytes:
    when = b"\x83" + struct.pack(">q", at)
    return message(noted(scheduled_enqueue_time=when), properties(text(message_id)))


def raise_fault(*_: Any) -> None:
    raise UnexpectedError


def fail_with_poison(patch: pytest.MonkeyPatch, path: str = "q") -> list[int]:
    """Have the program fail where a message with the id "poison" becomes active in a queue; the number of times."""
    activate, times = EnqueueHandlers.activate, [0]

    def fails(self: EnqueueHandlers, sent: Any, *arguments: Any, **options: Any) -> int:
        if sent.message_id == POISON and self._state.ref.path == path:
            times[0] += 1
            raise UnexpectedError
        return activate(self, sent, *arguments, **options)

    patch.setattr(EnqueueHandlers, "activate", fails)
    return times


def active_count(broker: Broker, path: str) -> int:
    return broker.namespace.find(path)[0].message_counts()[Home.ACTIVE]


def errors(logs: Any) -> list[str]:
    return [each["event"] for each in logs if each["log_level"] not in ("debug", "info")]


async def test_a_scheduled_message_that_fails_waits_for_the_next_start_alone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    for number in range(40):
        await send(broker, "q", later(POISON if number in (5, 33) else str(number), START + 1_000))
    times = fail_with_poison(monkeypatch)
    with every_level(), capture_logs() as logs:
        clock.advance(1_000)
        await quiet(broker)
        assert active_count(broker, "q") == 38
        tried = times[0]
        for _ in range(40):
            clock.advance(250)
            await quiet(broker)
        assert times[0] == tried
        await send(broker, "q", later("behind", clock.now_ms() + 100))
        clock.advance(100)
        await quiet(broker)
    assert active_count(broker, "q") == 39
    assert errors(logs) == ["batch failed", "batch failed again"]
    assert len([each for each in logs if "exc_info" in each]) == 1


@pytest.mark.parametrize("can_be_buried", [True, False])
async def test_a_forwarded_message_that_fails_is_dead_lettered_or_stays_alone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, can_be_buried: bool
) -> None:
    broker = open_broker(QueueDescription("target"), clock=clock)
    broker.administration.create(QueueDescription("q", forward_to="target"))
    times = fail_with_poison(monkeypatch, "target")
    if not can_be_buried:
        monkeypatch.setattr(OutboxHandlers, "undeliverable", raise_fault)
    with every_level(), capture_logs() as logs:
        for number in range(30):
            await send(broker, "q", encoded("x", id=POISON if number == 7 else str(number)))
        await quiet(broker)
        tried = times[0]
        for _ in range(20):
            clock.advance(1_000)
            await quiet(broker)
        await send(broker, "q", encoded("behind"))
        await quiet(broker)
    assert active_count(broker, "target") == 30
    assert times[0] == tried
    counts = broker.namespace.find("q")[0].message_counts()
    assert (counts[Home.DEAD_LETTER], counts[Home.OUTBOX]) == ((1, 0) if can_be_buried else (0, 1))
    expected = {"batch failed", "batch failed again"}
    assert set(errors(logs)) <= expected | (
        set() if can_be_buried else {"message stays in its outbox until the next start"}
    )
    assert len(errors(logs)) <= 5


async def test_requests_of_others_in_the_batch_are_stored(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    fail_with_poison(monkeypatch)
    monkeypatch.setattr(EnqueueHandlers, "_only_appends", lambda *_: False)
    with every_level(), capture_logs() as logs:
        sends = [
            send(broker, "q", encoded("x", id=POISON if number % 10 == 3 else str(number))) for number in range(50)
        ]
        answers = await asyncio.gather(*sends, return_exceptions=True)
    refused = [each for each in answers if isinstance(each, BrokerError)]
    assert {each.condition for each in refused} == {Condition.INTERNAL_ERROR}
    assert (len(refused), active_count(broker, "q")) == (5, 45)
    assert errors(logs) == ["batch failed", "batch failed again", "batch failed again"]  # at 1, 2, 4
