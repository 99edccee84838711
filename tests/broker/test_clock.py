"""A clock that stands still, and timers that nobody waits for any more."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from itertools import count

import pytest

from emubus.broker.clock import CANCELLED_MAX, Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.instants import CLOCK_MS_MAX


def test_a_clock_that_is_made_frozen_shows_the_instant_that_it_was_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    milliseconds = count()
    monkeypatch.setattr(time, "time_ns", lambda: next(milliseconds) * 1_000_000)  # each look is later than the last
    clock = Clock(start_at=1_800_000_000_123, frozen=True)
    assert clock.now_ms() == 1_800_000_000_123
    clock.advance(5)
    assert clock.now_ms() == 1_800_000_000_128


class Wakes:
    """An event loop that remembers the last call that it was asked for."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.call: Callable[[], None] = lambda: None

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Wakes:
        self.delay_s, self.call = delay_s, call
        return self

    def cancel(self) -> None:
        self.call = lambda: None


def test_timers_that_a_step_of_the_machine_s_clock_made_due_are_called_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, wakes, called = 1_800_000_000, Wakes(), list[str]()
    monkeypatch.setattr(time, "time_ns", lambda: now_s * 1_000_000_000)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: wakes)
    clock = Clock()
    clock.call_at(clock.now_ms() + 1_800_000, lambda: called.append("in half an hour"))
    assert wakes.delay_s <= 1
    wakes.call()
    assert (called, wakes.delay_s) == ([], 1)
    now_s += 3_600  # the machine slept for an hour, in which no time passed for the loop
    wakes.call()
    assert called == ["in half an hour"]


async def test_cancelled_timers_do_not_pile_up_and_the_others_are_still_called() -> None:
    clock, called = Clock(start_at=0, frozen=True), list[int]()
    for number in range(20 * CANCELLED_MAX):
        timer = clock.call_at(3_600_000, lambda: called.append(-1))
        if number % CANCELLED_MAX == 0:
            clock.call_at(number, lambda number=number: called.append(number))  # type: ignore[misc]
        timer.cancel()
        timer.cancel()
    assert sys.getsizeof(clock._instants.timers) < 8 * 4 * CANCELLED_MAX
    clock.advance(3_600_000)
    assert called == [number * CANCELLED_MAX for number in range(20)]
    clock.close()


def test_elapsed_time_goes_on_while_the_clock_is_frozen_and_moves_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns, wakes, called = 5_000_000_000, Wakes(), list[str]()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: wakes)
    clock = Clock(start_at=0, frozen=True)
    clock.call_after(500, lambda: called.append("after half a second"))
    clock.call_after(900, lambda: called.append("never")).cancel()
    clock.call_after(3_000, lambda: called.append("after three seconds"))
    clock.call_at(5_000, lambda: called.append("at five seconds"))
    now_ns += 500_000_000
    wakes.call()
    assert called == ["after half a second"]
    now_ns += 60_000_000_000
    clock.advance(0)
    assert called == ["after half a second", "after three seconds"]
    clock.call_after(4_000, lambda: called.append("after four more"))
    clock.advance(4_000)
    assert called[2:] == ["after four more"]
    clock.advance(1_000)
    assert called[3:] == ["at five seconds"]


async def test_elapsed_time_does_not_move_with_the_instants() -> None:
    clock, called = Clock(start_at=0, frozen=True), list[str]()
    clock.call_after(60_000, lambda: called.append("a minute of real time"))
    clock.call_at(60_000, lambda: called.append("an instant"))
    clock.advance_instants(3_600_000)
    assert called == ["an instant"]
    clock.close()


async def test_a_time_limit_moves_with_the_clock() -> None:
    clock = Clock(start_at=0, manual=True)
    asyncio.get_running_loop().call_soon(clock.advance, 60_000)
    with pytest.raises(TimeoutError):
        async with clock.time_limit(60_000):
            await asyncio.get_running_loop().create_future()
    async with clock.time_limit(60_000):
        pass
    clock.advance(60_000)
    clock.close()


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("move", [Clock.advance, Clock.advance_instants])
async def test_the_clock_ends_with_the_year_3000_and_a_refused_move_leaves_it_as_it_is(
    move: Callable[[Clock, int], None], frozen: bool
) -> None:
    clock = Clock(start_at=CLOCK_MS_MAX - 60_000, frozen=frozen)
    called: list[int] = []
    clock.call_at(CLOCK_MS_MAX + 1, lambda: called.append(1))
    clock.call_after(86_400_000, lambda: called.append(2))
    for ms in (3_600_000, 1 << 62, 10**30):
        with pytest.raises(BrokerError, match="it stays before the year 3000") as refused:
            move(clock, ms)
        assert refused.value.condition is Condition.NOT_ALLOWED
    assert 0 <= CLOCK_MS_MAX - clock.now_ms() <= 60_000
    move(clock, CLOCK_MS_MAX - clock.now_ms() - 1_000)
    assert called == []
