"""Commits batches of several stores in groups, one write for each group (docs/decisions/0017, 0025).

Step 4 of a batch (`batch_runner`), if its store has a journal. Knows when a group begins: one is under way at a time,
and all batches that came meanwhile are the next one. Knows which thread writes it, and when the tail, what is confirmed
and not on the disk, is synced. Does not know what a group is (`storage.CommitTogether`). On the event loop, and one
thread for each sync. Owned by the `Committer`.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Final

from ...storage import CommitTogether
from ..clock import Clock, Timer
from .recovery import Failure, Recovery

RETRY_AFTER_MS: Final = 1  # if another thread is committing

SYNC_AFTER_MS: Final = 800
"""A sync begins so long after the first group that it covers. With the sync itself, 0.3 to 20 ms on a disk that works,
that is the second after which durability `second` promises a group to the disk. A shorter time costs a sync each."""

SYNC_BYTES: Final = 4 << 20
"""A tail of so many bytes is synced at once: it is kept in memory until then, and a disk takes it in some 10 ms."""

SYNC_LATE_US: Final = 1_000_000
"""A sync that takes longer holds the groups up, so that no more than about two seconds can be lost with the power."""

assert SYNC_AFTER_MS < 1_000 <= SYNC_LATE_US // 1_000, "a sync begins within the second, and has one to end"

SLOW_WRITE_US: Final = 2_000
"""A write that took longer on the event loop: as long as a turn has for strangers (docs/decisions/0020)."""

ELSEWHERE_US: Final = 1_000_000
"""So long after a slow write the journal's thread writes. A write takes 6 us, the way to the thread and back 60; the
kernel lets a write wait when too many pages are dirty, and that lasts."""


class GroupCommits:
    def __init__(self, together: CommitTogether, clock: Clock) -> None:
        self._together = together
        self._clock = clock
        self._waiting: list[object] = []
        self._outcomes: list[asyncio.Future[None]] = []  # of those that wait
        self._under_way: list[asyncio.Future[None]] = []
        self._starting = False  # a group starts at the end of this turn of the event loop, or soon
        self._loop = asyncio.get_running_loop()
        self._recovery = Recovery(clock, "journal", together.recover, lambda: None, waits=True)
        self._fd = together.fileno()
        self._loop.add_reader(self._fd, self._ended)
        self._elsewhere_until_us = 0  # from the last slow write on
        self._sync_timer: Timer | None = None
        self._sync_began_us = 0
        self._syncing: asyncio.Future[None] | None = None

    def commit(self, batch: object, now_us: int = 0) -> asyncio.Future[None]:
        """Commit `batch`; the future gets None or the exception of its commit.

        `now_us` is what the stopwatch shows, if the caller has just looked.
        """
        ended: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(batch)
        self._outcomes.append(ended)
        if self._starting or self._under_way:
            return ended
        if self._together.waits:
            self._starting = True
            self._loop.call_soon(self._start)  # after the other stores that are ready in this turn
        else:
            self._start(now_us)  # a write costs less than to wait for the others
        return ended

    def _start(self, now_us: int = 0) -> None:
        """Step 4.2 of a batch (`batch_runner`): begin a group with all that wait."""
        self._starting = False
        began_us = now_us or self._clock.stopwatch_us()
        if self._syncing is not None and began_us - self._sync_began_us > SYNC_LATE_US:
            return  # `_synced` starts it
        here = not self._together.waits and began_us >= self._elsewhere_until_us
        try:
            started = self._together.start(self._waiting, here=here)
        except Exception as error:
            refused, self._outcomes, self._waiting = self._outcomes, [], []
            for ended in refused:
                report(ended, error)
            return
        if not started:
            self._starting = True
            self._clock.call_after(RETRY_AFTER_MS, self._start)
            return
        self._under_way, self._outcomes, self._waiting = self._outcomes, [], []
        if self._together.has_ended:
            ended_us = self._clock.stopwatch_us()
            if ended_us - began_us > SLOW_WRITE_US:
                self._elsewhere_until_us = ended_us + ELSEWHERE_US
            self._ended()

    def _ended(self) -> None:
        """Step 4.4: take the outcomes of the group; the next one begins first."""
        ended, self._under_way = self._under_way, []
        try:
            errors = self._together.finish()
        except Exception as error:
            errors = [error] * len(ended)
        self._look()
        if self._waiting:
            self._start()
        for each, outcome in zip(ended, errors, strict=True):
            if outcome is None and not each.done():
                each.set_result(None)
            else:
                report(each, outcome)

    def _look(self) -> None:
        """See to what a group or a sync has left: a failure, or a tail."""
        if self._together.failed:
            self._recovery.fail(self._together.failure or "")
        elif self._together.tail_bytes and self._syncing is None:
            if self._together.tail_bytes >= SYNC_BYTES:
                self._sync()
            elif self._sync_timer is None:
                self._sync_timer = self._clock.call_after(SYNC_AFTER_MS, self._sync)

    def _sync(self) -> None:
        self._stop_sync_timer()
        self._sync_began_us = self._clock.stopwatch_us()
        self._syncing = self._loop.create_future()
        # A daemon, as in `recovery`: the end of the process does not wait for a disk that does not answer.
        threading.Thread(target=self._sync_on_thread, name="journal-sync", daemon=True).start()

    def _sync_on_thread(self) -> None:
        with suppress(OSError):  # its `failure` says so
            self._together.sync()
        if not self._loop.is_closed():  # it is at the end of a process whose stop has timed out
            self._loop.call_soon_threadsafe(self._synced)

    def _synced(self) -> None:
        syncing, self._syncing = self._syncing, None
        assert syncing is not None
        syncing.set_result(None)
        self._look()
        if self._waiting and not self._under_way and not self._starting:
            self._start()

    def _stop_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    @property
    def failure(self) -> Failure | None:
        """Why there are no groups at present."""
        return self._recovery.failure

    async def close(self) -> None:
        """Stop watching; no batch may be under way. Waits for a sync."""
        self._loop.remove_reader(self._fd)
        if self._syncing is not None:
            await asyncio.wait([self._syncing])
        self._stop_sync_timer()
        await self._recovery.stop()


def report(ended: asyncio.Future[None], error: BaseException | None) -> None:
    """Set the outcome of a commit."""
    if ended.done():  # the caller was cancelled
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
