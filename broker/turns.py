"""How the connections share the event loop: each works off its input in slices, strangers after everybody else (R6).

Knows which connections have input left and how long they have worked in this turn of the loop. Does not know what
the input is. Clients that have shown a valid token or key come first; those that have not yet shown any (strangers) get
a part of each turn, all together, however many they are; what they use beyond it they lack in the turns after that.
Owned by a face.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Protocol


class Worker(Protocol):
    """A connection that has input."""

    @property
    def is_stranger(self) -> bool:
        """Whether its client has yet to show a valid token or key."""
        ...

    def work_off(self, until_us: int) -> bool:
        """Handle input until that instant of the stopwatch, at least a little; whether there is more."""
        ...


class Turns:
    """A slice is how long a connection works at a time, `strangers_us` how long strangers work in a turn altogether.

    `stopwatch_us` gives microseconds.
    """

    def __init__(self, slice_us: int, strangers_us: int, stopwatch_us: Callable[[], int]) -> None:
        self._slice_us = slice_us
        self._strangers_us_max = strangers_us
        self._stopwatch_us = stopwatch_us
        self._known: deque[Worker] = deque()
        self._strangers: deque[Worker] = deque()
        self._strangers_us = 0  # that strangers have worked for in this turn, or too much in those before
        self._is_scheduled = False

    def take(self, worker: Worker) -> bool:
        """Let a connection that waits for nothing work, now or in a later turn; whether it has input left."""
        if worker.is_stranger and (self._strangers or self._strangers_us >= self._strangers_us_max):
            self._strangers.append(worker)
        elif not self._work(worker):
            return False
        self._schedule()
        return True

    def charge(self, used_us: int) -> None:
        """Count time that the loop has spent on a stranger outside `take`."""
        self._strangers_us += used_us
        self._schedule()

    async def charged(self, work: Awaitable[None]) -> None:
        """Do a stranger's work, and count the time of each of its steps."""
        await _Charged(work, self._stopwatch_us, self.charge)

    def _work(self, worker: Worker) -> bool:
        """One slice; a connection that has input left goes to the end of the line."""
        is_stranger = worker.is_stranger
        started_us = self._stopwatch_us()
        more = worker.work_off(started_us + self._slice_us)
        if is_stranger:
            self.charge(self._stopwatch_us() - started_us)
        if more:
            (self._strangers if worker.is_stranger else self._known).append(worker)
        return more

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """The next turn of the loop: one slice for every known connection that waits, then strangers' part."""
        self._is_scheduled = False
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
