"""The state of what a disk can break: sound, or failing and tried again with growing pauses until it works.

Knows when the next attempt is due, and says each change once in the log. Does not know what an attempt does, nor what
is refused meanwhile (`worker`, `group_commits`). On the event loop; an attempt that waits for a disk has a thread of
its own, because the wait may never end and the threads of commits are few.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

import structlog

from ..clock import Clock, Timer
from ..lazy_dataclass import dataclass

PAUSE_MS_MIN: Final = 100  # a disk that failed once costs clients this long
PAUSE_MS_MAX: Final = 30_000  # and this long at most once a disk works again
"""The pause doubles with each attempt that fails. It begins anew once all has worked for as long as the next pause
would be, so that what breaks again and again is not tried, and logged, ten times a second."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Failure:
    """Why something fails, and since when (Unix ms)."""

    cause: str
    since: int


class Recovery:
    """Makes `what` work again: `attempt` raises as long as it fails, `recovered` is called once it does not.

    `waits` if an attempt waits for a disk; `names` are for the log.
    """

    def __init__(
        self,
        clock: Clock,
        what: str,
        attempt: Callable[[], None],
        recovered: Callable[[], None],
        *,
        waits: bool,
        **names: object,
    ) -> None:
        self.failure: Failure | None = None
        self._clock = clock
        self._what = what
        self._names = names
        self._attempt = attempt
        self._recovered = recovered
        self._waits = waits
        self._pause_ms = PAUSE_MS_MIN
        self._attempts = 0
        self._timer: Timer | None = None
        self._under_way: asyncio.Future[None] | None = None

    def fail(self, cause: str) -> None:
        """Begin to fail, or go on."""
        if self.failure is not None:
            return
        self.failure = Failure(cause, self._clock.now_ms())
        self._attempts = 0
        log.error(f"{self._what} fails", **self._names, cause=cause, next_attempt_ms=self._pause_ms)
        self._try_later()

    async def stop(self) -> None:
        """Try no more; wait for an attempt that is under way."""
        self._stop_timer()
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _try_later(self) -> None:
        self._stop_timer()
        self._timer = self._clock.call_after(self._pause_ms, self._try)
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)

    def _try(self) -> None:
        self._timer = None
        self._attempts += 1
        if not self._waits:
            self._ended(_error_of(self._attempt))
            return
        loop = asyncio.get_running_loop()
        self._under_way = loop.create_future()
        # A daemon: the end of the process does not wait for a disk that does not answer.
        threading.Thread(target=self._try_on_thread, args=(loop,), name="recovery", daemon=True).start()

    def _try_on_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        error = _error_of(self._attempt)
        if not loop.is_closed():  # it is at the end of a process whose stop has timed out
            loop.call_soon_threadsafe(self._ended, error)

    def _ended(self, error: Exception | None) -> None:
        if self._under_way is not None:
            self._under_way.set_result(None)
            self._under_way = None
        failure = self.failure
        if failure is None:
            return
        if error is not None:
            self.failure = Failure(str(error), failure.since)
            self._try_later()
            return
        self.failure = None
        failed_ms = self._clock.now_ms() - failure.since
        log.info(f"{self._what} works again", **self._names, failed_ms=failed_ms, attempts=self._attempts)
        self._timer = self._clock.call_after(self._pause_ms, self._forget)
        self._recovered()

    def _forget(self) -> None:
        self._timer = None
        self._pause_ms = PAUSE_MS_MIN


def _error_of(attempt: Callable[[], None]) -> Exception | None:
    try:
        attempt()
    except Exception as error:
        return error
    return None
