"""Rules that take long are evaluated before a batch, in slices, while other requests of the store go on.

A topic may have thousands of rules, and each is evaluated for each message: a batch that did so would stop the event
loop, and its store, for seconds. So sends to such a topic wait here, those of one partition in their order, until their
matches are known, and go to the worker then. Does not know rules: the topic's `SubscriptionRouting` does. Owned by a
worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from ..clock import Clock
from ..partition.contract import PartitionRef, SubscriptionRouting
from ..partition.requests import Send
from ..turns import Pace

EVALUATIONS_MAX: Final = 2_000  # of rules for the messages of one request: two to four milliseconds
LARGE_MESSAGE_BYTES: Final = 8 << 10  # LIKE may take a hundred nanoseconds for each character of a property
SLICE_US: Final = 1_000

Submit = Callable[[PartitionRef, Send], None]

log = structlog.get_logger(__name__)


class Matching:
    """Sends of one store to topics whose rules take long; `submit` has a send executed."""

    def __init__(self, clock: Clock, pace: Pace, submit: Submit) -> None:
        self._clock = clock
        self._pace = pace
        self._submit = submit
        self._waiting: dict[int, deque[tuple[PartitionRef, Send]]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def takes(self, ref: PartitionRef, request: Send) -> bool:
        """Whether a send waits here: its rules take long, or others of its partition wait."""
        waiting = self._waiting.get(ref.queue_id)
        if waiting is None:
            routing = ref.routing
            if routing is None or request.matches is not None or not _takes_long(routing, request):
                return False
            waiting = self._waiting[ref.queue_id] = deque()
            self._tasks[ref.queue_id] = asyncio.create_task(self._work_off(ref.queue_id, waiting))
        waiting.append((ref, request))
        return True

    async def _work_off(self, queue_id: int, waiting: deque[tuple[PartitionRef, Send]]) -> None:
        try:
            while waiting:
                ref, request = waiting[0]
                matches = await self._matches(ref, request)
                if waiting:  # else `release_all` has submitted it
                    waiting.popleft()
                    self._submit(ref, replace(request, matches=matches))
        except Exception as error:  # the worker evaluates the rules again, and answers
            log.error("matching rules failed", queue_id=queue_id, exc_info=error)
        finally:
            del self._tasks[queue_id]
            self._release(queue_id, waiting)

    async def _matches(self, ref: PartitionRef, request: Send) -> dict[int, object]:
        """The matches of each message, by its identity."""
        stopwatch_us, pace = self._clock.stopwatch_us, self._pace
        found: dict[int, object] = {}
        routing = ref.routing
        assert routing is not None  # of a topic
        began_us = stopwatch_us()
        for message in request.messages:
            steps = routing.matching(message, self._clock.now_ms())
            while True:
                used_us = stopwatch_us() - began_us
                if used_us > SLICE_US:
                    pace.add(used_us)
                    await pace.pause()
                    began_us = stopwatch_us()
                try:
                    next(steps)
                except StopIteration as end:
                    found[id(message)] = end.value
                    break
        return found

    def _release(self, queue_id: int, waiting: deque[tuple[PartitionRef, Send]]) -> None:
        """Submit what still waits as it is; what comes from now on may go at once."""
        self._waiting.pop(queue_id, None)
        while waiting:
            self._submit(*waiting.popleft())

    def release_all(self) -> None:
        """The store stops: submit all that waits as it is."""
        for queue_id, waiting in list(self._waiting.items()):
            self._release(queue_id, waiting)


def _takes_long(routing: SubscriptionRouting, request: Send) -> bool:
    evaluations = routing.evaluations_max
    if not evaluations:
        return False
    messages = request.messages
    return evaluations * len(messages) > EVALUATIONS_MAX or any(
        message.size_bytes > LARGE_MESSAGE_BYTES for message in messages
    )
