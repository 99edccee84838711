"""Work of requests that may take long, without making others wait.

What can be cut is cut: the work asks its `Pace` between two pieces, which lets the event loop go on when a piece of
time is used up. What can't be cut, because a sender or a caller decides how long it takes (to read their JSON or XML,
to decode a message, to write a large answer), is done on one thread beside the loop: the thread of `Aside`. It works
off one thing after the other, so that the loop shares the interpreter with one such thing at most, and gets it back
within Python's switch interval, 5 ms. That needs work without a long call in C, which keeps the interpreter until it
ends: `json_reader` reads in stretches for that reason, and `json_writer` writes so.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from aiohttp import web

from ..broker.clock import Clock

T = TypeVar("T")

PIECE_US: Final = 2_000
"""How long work goes on before the loop gets its turn."""
ASIDE_BYTES: Final = 8 << 10
"""Input that is handled on the loop; more is handled aside. So much takes 15 ms at most (a message of 8 000 nulls,
shown as JSON), and the way to the thread and back 0.1 ms."""

_Task = Callable[[], None]


class Pace:
    """Where a piece of work may be cut."""

    def __init__(self, stopwatch_us: Callable[[], int] = Clock.stopwatch_us) -> None:
        self._stopwatch_us = stopwatch_us
        self._until_us = stopwatch_us() + PIECE_US

    async def step(self) -> None:
        """Let the event loop go on if this piece has used up its time."""
        if self._stopwatch_us() >= self._until_us:
            await self.turn()

    async def turn(self) -> None:
        """Let the event loop go on."""
        await asyncio.sleep(0)
        self._until_us = self._stopwatch_us() + PIECE_US


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


ASIDE: Final = web.AppKey("aside", Aside)
"""Where an application has its thread."""
