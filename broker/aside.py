"""One thread for work that can't be cut, beside the event loop.

A peer decides how long it takes to decode its message, its request, its JSON or XML. A thread works such things off one
after the other, so that the loop shares the interpreter with one thread of an owner at most, and gets it back within
Python's switch interval, 5 ms. That needs work without a long call in C, which keeps the interpreter until it ends.
Each owner, a server of AMQP or HTTP, has a thread of its own, so that neither waits for the other.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")

ASIDE_BYTES: Final = 8 << 10
"""Input that is handled on the loop; more is handled aside. So much takes 15 ms at most (a message of 8 000 nulls,
shown as JSON), and the way to the thread and back 0.1 ms."""

_Task = Callable[[], None]


class Aside:
    """One thread for work that can't be cut, from its first use until `stop`."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T], size_bytes: int = ASIDE_BYTES + 1) -> T:
        """Do the work, on the thread unless it is small; returns or raises what it does."""
        if size_bytes <= ASIDE_BYTES:
            return work()
        if self._thread is None:
            # A daemon: the process ends although a caller's text is still being read.
            self._thread = threading.Thread(target=_work_off, args=(self._tasks,), name="emubus-aside", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._tasks.put(partial(_do, work, loop, result))
        try:
            return await result
        finally:
            del result  # an error would keep this frame, which keeps it: a circle, with all that the caller has sent

    def stop(self) -> None:
        """End the thread after what it does now."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread = None


def _work_off(tasks: queue.SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # it holds the input until the next one comes


def _do(work: Callable[[], T], loop: asyncio.AbstractEventLoop, result: asyncio.Future[T]) -> None:
    if result.cancelled():
        return
    try:
        found = work()
    except Exception as error:
        _settle(loop, result, partial(result.set_exception, error))
    else:
        _settle(loop, result, partial(result.set_result, found))
    finally:
        del work, loop, result  # else an error keeps them, and they keep it


def _settle(loop: asyncio.AbstractEventLoop, result: asyncio.Future[T], settle: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has closed meanwhile
        loop.call_soon_threadsafe(lambda: None if result.done() else settle())
