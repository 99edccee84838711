"""The clock: the only source of instants and timers.

Knows two time lines. Instants (Unix milliseconds: locks, time to live, schedules) can be moved forward and frozen over
the control API. Elapsed time (heartbeats, stalls, client time-outs) stays real time, so that a moved clock cuts no
connections. Only `advance` moves both, for tests of these limits. A move calls the timers that fall due at once. Does
not know the purpose of a timer. Owned by the composition root; used on the event-loop thread only.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

from .instants import ClockInstant

TIMER_SLACK_MS = 1  # asyncio may fire slightly early; one millisecond more avoids a second wake-up
TIMER_WAIT_S_MAX = 1.0  # the wall clock may jump and the machine may sleep: check once a second
CANCELLED_MAX = 1024  # cancelled timers in the heap before a clean-up


class Timer:
    """One call at one instant; `cancel()` may be called at any time, repeatedly."""

    __slots__ = ("_cancelled", "callback")

    def __init__(self, callback: Callable[[], None], cancelled: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback
        self._cancelled = cancelled

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._cancelled()


class _TimeLine:
    """The timers of one time line: a heap ordered by due millisecond, then by creation."""

    def __init__(self) -> None:
        self.timers: list[tuple[int, int, Timer]] = []
        self._numbers = count()
        self._cancelled_count = 0  # since the last clean-up

    def add(self, at_ms: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback, self._on_cancel)
        heapq.heappush(self.timers, (at_ms, next(self._numbers), timer))
        return timer

    def is_first(self, timer: Timer) -> bool:
        """Whether no other timer is due earlier."""
        return self.timers[0][2] is timer

    def next_at_ms(self) -> int | None:
        """When the next timer is due; None without timers."""
        while self.timers and self.timers[0][2].callback is None:
            heapq.heappop(self.timers)
        return self.timers[0][0] if self.timers else None

    def call_due(self, now_ms: int) -> None:
        """Call all due timers in order."""
        while self.timers and self.timers[0][0] <= now_ms:
            timer = heapq.heappop(self.timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

    def move(self, by_ms: int) -> None:
        self.timers = [(at_ms + by_ms, number, timer) for at_ms, number, timer in self.timers]  # still a heap

    def _on_cancel(self) -> None:
        """Count a cancelled timer; clean up once cancelled timers are most of the heap."""
        self._cancelled_count += 1
        if self._cancelled_count > CANCELLED_MAX and self._cancelled_count > len(self.timers) // 2:
            self.timers = [entry for entry in self.timers if entry[2].callback is not None]
            heapq.heapify(self.timers)
            self._cancelled_count = 0


class Clock:
    """Wall-clock time in Unix milliseconds plus an offset; optionally frozen.

    `start_at` (Unix ms) sets the time shown at creation; without it the clock shows the machine's time. A `manual`
    clock is frozen and its elapsed time also moves only by `advance`, for tests that drive the client side themselves.
    """

    def __init__(self, *, start_at: int | None = None, frozen: bool = False, manual: bool = False) -> None:
        self._offset_ms = 0 if start_at is None else start_at - self._machine_ms()
        self._frozen_at: int | None = None
        self._instants = _TimeLine()
        self._elapsed = _TimeLine()
        self._advanced_ms = 0
        self._is_manual = manual
        self._wake: asyncio.TimerHandle | None = None
        if frozen or manual:  # the machine's clock may have moved on since the line above
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
        """Microseconds for measuring durations; `advance` doesn't move them."""
        return time.perf_counter_ns() // 1000

    @staticmethod
    def computed_us() -> int:
        """Microseconds for which this thread had a processor. Costs several times what `stopwatch_us` costs."""
        return time.thread_time_ns() // 1000

    @property
    def is_frozen(self) -> bool:
        return self._frozen_at is not None

    @property
    def offset_ms(self) -> int:
        """Milliseconds ahead of the machine's clock."""
        return self.now_ms() - self._machine_ms()

    def freeze(self) -> None:
        """Stop the time where it is; `advance` still moves it."""
        self._frozen_at = self.now_ms()

    def thaw(self) -> None:
        """Continue from the frozen instant."""
        if self._frozen_at is not None:
            self._offset_ms = self._frozen_at - self._machine_ms()
            self._frozen_at = None
            self._arm()

    def advance(self, ms: int) -> None:
        """Move instants and elapsed time forward by `ms` ≥ 0, and run the timers that have fallen due, in order.

        Raises like `advance_instants`.
        """
        self._move_instants(ms)
        self._advanced_ms += ms
        self._run_due()

    def advance_instants(self, ms: int) -> None:
        """Move the instants forward by `ms` ≥ 0, and run the timers that have fallen due, in order.

        ValueError: it would go back. BrokerError (not-allowed): to where the clock may not go.
        """
        self._move_instants(ms)
        self._run_due()

    def _move_instants(self, ms: int) -> None:
        if ms < 0:
            raise ValueError(f"the clock can't go back: advance({ms} ms)")
        moved_to = ClockInstant(self.now_ms() + ms)
        if self._frozen_at is not None:
            self._frozen_at = int(moved_to)
        else:
            self._offset_ms += ms

    def reset(self) -> None:
        """Return to the machine's time and unfreeze; timers are called no later than before.

        The time may jump back: rows with later instants then lie in the future.
        """
        back_ms = self.offset_ms
        self._offset_ms, self._frozen_at = 0, None
        if back_ms > 0:
            self._instants.move(-back_ms)
        self._run_due()

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the event loop once the clock shows `at_ms` (Unix ms) or later."""
        return self._add(self._instants, at_ms, callback)

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the event loop once `delay_ms` have elapsed, whether or not the clock is frozen."""
        return self._add(self._elapsed, self._elapsed_ms() + delay_ms, callback)

    @asynccontextmanager
    async def time_limit(self, limit_ms: int) -> AsyncIterator[None]:
        """Cancel the block and raise TimeoutError once `limit_ms` have elapsed, whether or not the clock is frozen."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as scope:
            timer = self.call_after(limit_ms, lambda: scope.reschedule(loop.time()))
            try:
                yield
            finally:
                timer.cancel()

    def close(self) -> None:
        self._instants.timers.clear()
        self._elapsed.timers.clear()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def _elapsed_ms(self) -> int:
        """Elapsed milliseconds, by the machine or by `advance`; only differences are meaningful."""
        return self._advanced_ms if self._is_manual else time.monotonic_ns() // 1_000_000 + self._advanced_ms

    def _add(self, line: _TimeLine, at_ms: int, callback: Callable[[], None]) -> Timer:
        timer = line.add(at_ms, callback)
        if line.is_first(timer):
            self._arm()
        return timer

    def _arm(self) -> None:
        """Schedule the event loop for the next due timer of either time line."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        waits_ms: list[int] = []
        at_ms = self._instants.next_at_ms()
        if at_ms is not None:
            wait_ms = at_ms - self.now_ms()
            if wait_ms <= 0 or self._frozen_at is None:
                waits_ms.append(wait_ms)
        at_ms = self._elapsed.next_at_ms()
        if at_ms is not None:
            wait_ms = at_ms - self._elapsed_ms()
            if wait_ms <= 0 or not self._is_manual:
                waits_ms.append(wait_ms)
        if waits_ms:
            wait_ms = min(waits_ms)
            delay_s = min((wait_ms + TIMER_SLACK_MS) / 1000, TIMER_WAIT_S_MAX) if wait_ms > 0 else 0
            self._wake = asyncio.get_running_loop().call_later(delay_s, self._run_due)

    def _run_due(self) -> None:
        self._instants.call_due(self.now_ms())
        self._elapsed.call_due(self._elapsed_ms())
        self._arm()
