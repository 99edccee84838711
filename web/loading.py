"""What is loaded when it is first needed, such as the HTTP server and the templates of its page.

A failure has a state: all who ask get it as an error and the log one line, and loading is tried again after a pause
that doubles up to half a minute, until it succeeds. Nothing needs to ask for that. Loads one thing once, however many
ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import structlog

from ..broker.clock import Clock, Timer

T = TypeVar("T")

PAUSE_MS_MIN: Final = 100
PAUSE_MS_MAX: Final = 30_000

log = structlog.get_logger(__name__)


class LoadError(Exception):
    """It could not be loaded; the text says what, why, and that it is tried again."""


class Loader(Generic[T]):
    """Loads `what` by `load`, which may raise anything, until `stop`."""

    def __init__(self, what: str, load: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self._what = what
        self._load = load
        self._clock = clock
        self._task: asyncio.Task[T] | None = None
        self._pause: Timer | None = None
        self._pause_ms = PAUSE_MS_MIN
        self._has_stopped = False
        self.value: T | None = None
        """What was loaded."""
        self.problem: str | None = None
        """Why it can't be loaded at present; None if the last try did not fail."""

    async def loaded(self) -> T:
        """What is loaded; the first call loads it. LoadError, at once while loading pauses."""
        if self.value is not None:
            return self.value
        if self._pause is None and self._task is None:
            self._try()
        if self._task is not None:
            await asyncio.wait([self._task])  # one caller that leaves does not stop it for the others
        if self.value is None:
            raise LoadError(f"{self.problem}; it is tried again")
        return self.value

    async def stop(self) -> None:
        self._has_stopped = True
        if self._pause is not None:
            self._pause.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _try(self) -> None:
        self._pause = None
        self._task = asyncio.ensure_future(self._load())
        self._task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if task.cancelled() or self._has_stopped:
            self.problem = f"{self._what} can't be loaded: the server stops"
            return
        error = task.exception()
        if error is None:
            if self.problem is not None:
                log.info(f"{self._what} is loaded, after failures")
            self.value, self.problem = task.result(), None
            return
        if self.problem is None:
            log.error(f"{self._what} can't be loaded; it is tried again until it is", cause=_error_text(error))
        self.problem = f"{self._what} can't be loaded: {_error_text(error)}"
        self._pause = self._clock.call_after(self._pause_ms, self._try)
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
