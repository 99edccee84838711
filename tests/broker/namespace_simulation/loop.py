"""An event loop without a clock, sockets or threads: it runs what is ready, one callback after the other, until idle.

Nothing in it depends on real time, so that a run is the same every time; and it knows when nothing is left to do, so
that no test has to guess how many turns a command takes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Final

from .rules import BrokenRuleError

CALLBACKS_MAX: Final = 10_000
"""So many without a pause are no work that ends: of 32 000 random commands none needed more than 522."""


class SteppedLoop:
    """As much of an event loop as the broker needs; `exceptions` are those that nobody caught.

    No `asyncio.AbstractEventLoop`, most of which is about files, sockets and processes.
    """

    def __init__(self) -> None:
        self._as_loop: Any = self  # as asyncio knows it
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.exceptions: list[dict[str, Any]] = []

    @contextmanager
    def running(self) -> Iterator[SteppedLoop]:
        """Be the running loop."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self._as_loop)
        try:
            yield self
        finally:
            asyncio._set_running_loop(before)

    def run_until_idle(self) -> None:
        """Run everything that is ready, and what becomes ready by that; BrokenRuleError if that does not end."""
        ready, left = self._ready, CALLBACKS_MAX
        while ready:
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
            left -= 1
            if not left:
                raise BrokenRuleError("pause", f"{CALLBACKS_MAX} callbacks, and more are ready: {handle!r}")

    def run_some(self, count: int) -> None:
        """Run at most `count` callbacks."""
        for _ in range(count):
            if not self._ready:
                return
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def cancel_all(self) -> None:
        """Cancel every task, and run until they have ended."""
        while tasks := [task for task in self._tasks if not task.done()]:
            for task in sorted(tasks, key=lambda task: task.get_name()):
                task.cancel()
            self.run_until_idle()

    # ---- what asyncio asks of a loop

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._as_loop, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        assert delay <= 0, f"real time does not pass here: call_later({delay})"
        handle = asyncio.TimerHandle(0.0, callback, args, self._as_loop, context)
        self._ready.append(handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing is kept by time."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self._as_loop, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def time(self) -> float:
        return 0.0

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.exceptions.append(context)
