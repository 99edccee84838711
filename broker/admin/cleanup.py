"""Removes the rows of deleted entities in the background, a few at a time.

The catalog lists a deleted entity until its rows are removed, so a restart continues the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import structlog

from ..entities.namespace import Namespace
from ..errors import BrokerError
from ..partition.requests import DeleteRows

CLEAR_ROWS = 500
RETRY_AFTER_MS = 1_000

log = structlog.get_logger(__name__)


class Cleanup:
    """Removes the rows of deleted entities of `namespace`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Continue the unfinished deletions of an earlier run."""
        for queue_id, stores in list(self._namespace.catalog.deleted.items()):
            self.remove_rows(queue_id, stores)

    async def stop(self) -> None:
        """Stop; the next start continues."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def remove_rows(self, queue_id: int, stores: Sequence[int]) -> None:
        """Begin to remove the rows of a queue id from these stores."""
        task = asyncio.create_task(self._clear(queue_id, list(stores)), name=f"clear {queue_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _clear(self, queue_id: int, stores: list[int]) -> None:
        for store_index in stores:
            handle = self._namespace.partition_to_clear(queue_id, store_index)
            while True:
                try:
                    if not await handle.request(partial(DeleteRows, CLEAR_ROWS)):
                        break
                except BrokerError as error:
                    log.info("removal of rows delayed", queue_id=queue_id, store=store_index, cause=error.description)
                    await self._pause()
            self._namespace.drop_partition(queue_id, store_index)
        while True:
            try:
                return self._namespace.catalog.forget_deleted(queue_id)
            except BrokerError as error:
                log.info("removal of rows delayed", queue_id=queue_id, cause=error.description)
                await self._pause()

    async def _pause(self) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        clock = self._namespace.clock
        clock.call_at(clock.now_ms() + RETRY_AFTER_MS, lambda: None if over.done() else over.set_result(None))
        await over
