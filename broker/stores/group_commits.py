"""Commits batches of several stores in groups, one wait for the disk for each group (docs/decisions/0017).

Knows when a group begins: one is under way at a time, and all batches that came meanwhile are the next one. Does not
know what makes them durable (`storage.CommitTogether`). On the event loop. Owned by the `Committer`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...storage import CommitTogether
from ..clock import Clock
from .recovery import Failure, Recovery

RETRY_AFTER_MS: Final = 1  # if another thread is committing


class GroupCommits:
    """Commits with `together`."""

    def __init__(self, together: CommitTogether, clock: Clock) -> None:
        self._together = together
        self._clock = clock
        self._waiting: list[tuple[object, asyncio.Future[None]]] = []
        self._under_way: list[asyncio.Future[None]] = []
        self._starting = False  # a group starts at the end of this turn of the event loop, or soon
        self._loop = asyncio.get_running_loop()
        self._recovery = Recovery(clock, "journal", together.recover, lambda: None, waits=True)
        self._fd = together.fileno()
        self._loop.add_reader(self._fd, self._ended)

    def commit(self, batch: object) -> asyncio.Future[None]:
        """Commit `batch`; the future gets None or the exception of its commit."""
        ended: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((batch, ended))
        if not self._starting and not self._under_way:
            self._starting = True
            self._loop.call_soon(self._start)  # after the other stores that are ready in this turn
        return ended

    def _start(self) -> None:
        self._starting = False
        batches = [batch for batch, _ in self._waiting]
        try:
            started = self._together.start(batches)
        except Exception as error:
            for ended in self._take_waiting():
                report(ended, error)
            return
        if started:
            self._under_way = self._take_waiting()
        else:
            self._starting = True
            self._clock.call_after(RETRY_AFTER_MS, self._start)

    def _take_waiting(self) -> list[asyncio.Future[None]]:
        waiting, self._waiting = self._waiting, []
        return [ended for _, ended in waiting]

    def _ended(self) -> None:
        ended, self._under_way = self._under_way, []
        try:
            errors = self._together.finish()
        except Exception as error:
            errors = [error] * len(ended)
        if self._together.failure is not None:
            self._recovery.fail(self._together.failure)
        if self._waiting:
            self._start()
        for each, outcome in zip(ended, errors, strict=True):
            report(each, outcome)

    @property
    def failure(self) -> Failure | None:
        """Why there are no groups at present."""
        return self._recovery.failure

    async def close(self) -> None:
        """Stop watching; no batch may be under way."""
        self._loop.remove_reader(self._fd)
        await self._recovery.stop()


def report(ended: asyncio.Future[None], error: BaseException | None) -> None:
    """Set the outcome of a commit."""
    if ended.done():  # the caller was cancelled
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
