"""Fair use of the event loop: connections process input in slices, strangers last (R6).

Knows which connections have input left and how long they have worked in this turn of the loop. Does not know the
input. Clients with a valid token or key come first. Strangers, clients without one yet, share one fixed part of each
turn; time beyond it is deducted from their next turns. Owned by a server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Protocol


class Worker(Protocol):
    """A connection with input."""

    @property
    def is_stranger(self) -> bool:
        """Whether its client has shown no valid token or key yet."""
        ...

    def work_off(self, until_us: int) -> bool:
        """Process input until that instant of the stopwatch, at least one step; return whether input is left."""
        ...


class Turns:
    """Gives slices of time to connections. All times are microseconds of `stopwatch_us`.

    A connection works for one slice in a turn; all strangers together work for `strangers_us` per turn.
    """

    def __init__(self, slice_us: int, strangers_us: int, stopwatch_us: Callable[[], int]) -> None:
        self._slice_us = slice_us
        self._strangers_us_max = strangers_us
        self._stopwatch_us = stopwatch_us
        self._known: deque[Worker] = deque()
        self._strangers: deque[Worker] = deque()
        self._strangers_us = 0  # used by strangers in this turn, plus their excess of earlier turns
        self._is_scheduled = False
        self._had_slice: set[Worker] = set()  # known connections that have used up theirs in this turn

    def take(self, worker: Worker) -> bool:
        """Let a connection work, now or in a later turn; return whether it has input left."""
        if worker.is_stranger and (self._strangers or self._strangers_us >= self._strangers_us_max):
            self._strangers.append(worker)
        elif worker in self._had_slice:
            self._known.append(worker)
        elif not self._work(worker):
            return False
        self._schedule()
        return True

    def charge(self, used_us: int) -> None:
        """Add time that the loop spent on a stranger outside `take`."""
        self._strangers_us += used_us
        self._schedule()

    async def charged(self, work: Awaitable[None]) -> None:
        """Run a stranger's coroutine and add the time of each step."""
        await _Charged(work, self._stopwatch_us, self.charge)

    def _work(self, worker: Worker) -> bool:
        """Run one slice; a connection with input left goes to the end of the queue."""
        is_stranger = worker.is_stranger
        started_us = self._stopwatch_us()
        more = worker.work_off(started_us + self._slice_us)
        used_us = self._stopwatch_us() - started_us
        if is_stranger:
            self.charge(used_us)
        elif used_us >= self._slice_us:
            self._had_slice.add(worker)
            self._schedule()
        if more:
            (self._strangers if worker.is_stranger else self._known).append(worker)
        return more

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """The next turn of the loop: one slice for every waiting known connection, then the strangers' part."""
        self._is_scheduled = False
        self._had_slice.clear()
        self._strangers_us = max(0, self._strangers_us - self._strangers_us_max)
        for _ in range(len(self._known)):
            self._work(self._known.popleft())
        while self._strangers and self._strangers_us < self._strangers_us_max:
            self._work(self._strangers.popleft())
        if self._known or self._strangers or self._strangers_us:
            self._schedule()


class _Charged:
    """Awaits `work`; `charge` gets the microseconds of each step between two waits."""

    def __init__(self, work: Awaitable[None], stopwatch_us: Callable[[], int], charge: Callable[[int], None]) -> None:
        self._steps = work.__await__()
        self._stopwatch_us = stopwatch_us
        self._charge = charge

    def __await__(self) -> Generator[object, None, None]:
        steps = self._steps
        assert isinstance(steps, Generator)
        error: BaseException | None = None
        while True:
            started_us = self._stopwatch_us()
            try:
                waited_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration:
                return
            finally:
                self._charge(self._stopwatch_us() - started_us)
            error = None
            try:
                yield waited_for
            except BaseException as thrown:
                error = thrown
