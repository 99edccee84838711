"""Heartbeats: an empty frame whenever the client would else wait too long for one [AMQP 2.4.5].

Knows the client's idle time-out and whether anything was written. Does not know what is written. Owned by a connection,
which calls `stop`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..broker.clock import Clock, Timer


class Heartbeat:
    """Calls `beat` every quarter of the idle time-out in which nothing was written: a client never waits for more than
    half of it. `interval_ms_min` is the shortest quarter."""

    def __init__(self, clock: Clock, idle_timeout_ms: int, interval_ms_min: int, beat: Callable[[], None]) -> None:
        self._clock = clock
        self._interval_ms = max(idle_timeout_ms // 4, interval_ms_min)
        self._beat = beat
        self._has_written = False
        self._timer: Timer = clock.call_after(self._interval_ms, self._beat_if_silent)

    def wrote(self) -> None:
        self._has_written = True

    def stop(self) -> None:
        self._timer.cancel()

    def _beat_if_silent(self) -> None:
        self._timer = self._clock.call_after(self._interval_ms, self._beat_if_silent)
        if not self._has_written:
            self._beat()
        self._has_written = False
