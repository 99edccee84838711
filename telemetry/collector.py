"""Requests to an OpenTelemetry collector, which may hang, answer without end, or refuse: none of that reaches emubus.

Knows what the exporters do with their requests: they retry, and wait for answers that they have to read. So answers are
not read behind their head, redirects are not followed, and all waiting is done by threads that the end of the process
does not wait for. A collector that fails has a state for each signal, and one log line at each change of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import threading
from collections.abc import Callable
from typing import Final, TypeVar

import requests
import structlog

T = TypeVar("T")

SOUND: Final = "sound"

log = structlog.get_logger("emubus")


class CollectorState:
    """Whether a collector takes what it is sent, by signal; any thread may tell and ask."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}
        self._lock = threading.Lock()

    def note(self, signal: str, problem: str | None) -> None:
        """A request has failed with `problem`, or has not."""
        with self._lock:
            before = self._problems.pop(signal, None)
            if problem is not None:
                self._problems[signal] = problem
        if before is None and problem is not None:
            log.warning(f"the collector takes no {signal}; they are sent again and again", cause=problem)
        elif before is not None and problem is None:
            log.info(f"the collector takes {signal} again")

    def __str__(self) -> str:
        with self._lock:
            return "; ".join(f"no {signal}: {problem}" for signal, problem in self._problems.items()) or SOUND


class _Head(requests.Response):
    """An answer without its body: the exporters need its status, and a body may have no end."""

    def __init__(self, answer: requests.Response) -> None:
        super().__init__()
        self.status_code = answer.status_code
        self.reason = answer.reason
        self.headers = answer.headers
        self.url = answer.url
        self.raw = io.BytesIO()


class CollectorSession(requests.Session):
    """The session of an exporter: notes in `state` what becomes of its requests, and reads no body of an answer."""

    def __init__(self, signal: str, state: CollectorState) -> None:
        super().__init__()
        self._signal = signal
        self._state = state

    def send(self, request: requests.PreparedRequest, **kwargs: object) -> requests.Response:
        given = {**kwargs, "stream": True, "allow_redirects": False}
        try:
            answer = super().send(request, **given)
            answer.close()
        except Exception as error:
            self._state.note(self._signal, type(error).__name__)
            raise
        is_taken = 200 <= answer.status_code < 300
        self._state.note(self._signal, None if is_taken else f"HTTP status {answer.status_code}")
        return _Head(answer)


async def on_own_thread(name: str, work: Callable[[], T]) -> T:
    """The result of work that may take very long; if the caller leaves, nothing waits for its thread.

    Threads of the loop's executor are waited for at its end, up to five minutes.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def keep(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type] # None is a T, if that is what the work returns

    def run() -> None:
        result, problem = None, None
        try:
            result = work()
        except BaseException as error:  # it is the caller's
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(keep, result, problem)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future
