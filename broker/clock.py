"""The one clock: every instant and every timer of the broker comes from here.

Knows Unix milliseconds and a heap of timers; can be moved forward (timers that fall due run at once) and frozen, so
that tests and the control API move locks, time to live and idle time-outs together. Does not know what a timer is
for. Owned by the composition root; used on the event-loop thread only.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count

TIMER_SLACK_MS = 1  # asyncio may fire a hair early; waiting one millisecond more beats a second wake-up
TIMER_WAIT_S_MAX = 1.0  # the wall clock can be set, and the machine can sleep: look again at least once a second
CANCELLED_MAX = 1024  # timers that are still kept though nobody waits for them, before they are tidied away


class Timer:
    """One call at one instant; `cancel()` may be called at any time and as often as one likes."""

    __slots__ = ("_cancelled", "callback")

    def __init__(self, callback: Callable[[], None], cancelled: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback
        self._cancelled = cancelled

    def cancel(self) -> None:
        """Make sure that the call doesn't happen (any more)."""
        if self.callback is not None:
            self.callback = None
            self._cancelled()


class Clock:
    """Wall-clock time in Unix milliseconds plus an offset; optionally frozen.

    `start_at` (Unix ms) sets the time shown at creation; without it the clock shows the machine's time.
    """

    def __init__(self, *, start_at: int | None = None, frozen: bool = False) -> None:
        self._offset_ms = 0 if start_at is None else start_at - self._machine_ms()
        self._frozen_at: int | None = None
        self._timers: list[tuple[int, int, Timer]] = []
        self._numbers = count()
        self._cancelled_count = 0  # since the last time that they were tidied away: most waits end before their time
        self._wake: asyncio.TimerHandle | None = None
        if frozen:  # the machine's clock may have moved on since the line above
            self._frozen_at = self.now_ms() if start_at is None else start_at

    @staticmethod
    def _machine_ms() -> int:
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        """The current instant in Unix milliseconds."""
        if self._frozen_at is not None:
            return self._frozen_at
        return time.time_ns() // 1_000_000 + self._offset_ms

    @staticmethod
    def stopwatch_us() -> int:
        """Microseconds for measuring how long something takes; nobody can move them."""
        return time.perf_counter_ns() // 1000

    @property
    def is_frozen(self) -> bool:
        """Whether the time stands still."""
        return self._frozen_at is not None

    @property
    def offset_ms(self) -> int:
        """How far it is ahead of the machine's clock."""
        return self.now_ms() - self._machine_ms()

    def freeze(self) -> None:
        """Stop the time where it is; `advance` still moves it."""
        self._frozen_at = self.now_ms()

    def thaw(self) -> None:
        """Let the time go on from where it stands."""
        if self._frozen_at is not None:
            self._offset_ms = self._frozen_at - self._machine_ms()
            self._frozen_at = None
            self._arm()

    def advance(self, ms: int) -> None:
        """Move the time forward by `ms` ≥ 0 and run the timers that have fallen due, in order of their instants."""
        if ms < 0:
            raise ValueError(f"the clock can't go back: advance({ms} ms)")
        if self._frozen_at is not None:
            self._frozen_at += ms
        else:
            self._offset_ms += ms
        self._run_due()

    def reset(self) -> None:
        """Show the machine's time again, and go on; whoever has asked for a call waits no longer for it than before.

        The time may jump back: for what was written with later instants, that is as if it came from the future.
        """
        back_ms = self.offset_ms
        self._offset_ms, self._frozen_at = 0, None
        if back_ms > 0:
            self._timers = [(at_ms - back_ms, number, timer) for at_ms, number, timer in self._timers]  # still a heap
        self._run_due()

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the event loop once the clock shows `at_ms` (Unix ms) or later."""
        timer = Timer(callback, self._tidy)
        heapq.heappush(self._timers, (at_ms, next(self._numbers), timer))
        if self._timers[0][2] is timer:
            self._arm()
        return timer

    def close(self) -> None:
        """Drop all timers."""
        self._timers.clear()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def _tidy(self) -> None:
        """A timer was cancelled: once they are most of what is kept, let go of them."""
        self._cancelled_count += 1
        if self._cancelled_count > CANCELLED_MAX and self._cancelled_count > len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled_count = 0

    def _arm(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return
        loop = asyncio.get_running_loop()
        wait_ms = self._timers[0][0] - self.now_ms()
        if wait_ms <= 0:
            self._wake = loop.call_later(0, self._run_due)
        elif self._frozen_at is None:
            delay_s = min((wait_ms + TIMER_SLACK_MS) / 1000, TIMER_WAIT_S_MAX)
            self._wake = loop.call_later(delay_s, self._run_due)

    def _run_due(self) -> None:
        now = self.now_ms()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._arm()
