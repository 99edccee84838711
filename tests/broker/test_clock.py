"""Timers that nobody waits for any more."""

from __future__ import annotations

import sys

from emubus.broker.clock import CANCELLED_MAX, Clock


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
