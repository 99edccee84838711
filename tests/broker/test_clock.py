"""A clock that stands still, and timers that nobody waits for any more."""

from __future__ import annotations

import sys
import time
from itertools import count

import pytest

from emubus.broker.clock import CANCELLED_MAX, Clock


def test_a_clock_that_is_made_frozen_shows_the_instant_that_it_was_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    milliseconds = count()
    monkeypatch.setattr(time, "time_ns", lambda: next(milliseconds) * 1_000_000)  # each look is later than the last
    clock = Clock(start_at=1_800_000_000_123, frozen=True)
    assert clock.now_ms() == 1_800_000_000_123
    clock.advance(5)
    assert clock.now_ms() == 1_800_000_000_128


async def test_cancelled_timers_do_not_pile_up_and_the_others_are_still_called() -> None:
    clock, called = Clock(start_at=0, frozen=True), list[int]()
    for number in range(20 * CANCELLED_MAX):
        timer = clock.call_at(3_600_000, lambda: called.append(-1))
        if number % CANCELLED_MAX == 0:
            clock.call_at(number, lambda number=number: called.append(number))  # type: ignore[misc]
        timer.cancel()
        timer.cancel()
    assert sys.getsizeof(clock._timers) < 8 * 4 * CANCELLED_MAX
    clock.advance(3_600_000)
    assert called == [number * CANCELLED_MAX for number in range(20)]
    clock.close()
