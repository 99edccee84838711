"""Resubmission of dead letters in batches, with its progress.

A resubmission takes the dead letters present at its start, page by page; the broker moves each message atomically or
leaves it. One runs per entity. Owned by the page; ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ....broker.address import SubQueue
from ....broker.admin import figures
from ....broker.admin.overview import Overview
from ....broker.api import Entity
from ....broker.broker import Broker
from ....broker.errors import BrokerError
from ....broker.model.descriptions import SubscriptionDescription, entity_key
from ..forms import FormError

AT_ONCE: Final = 50
AT_ONCE_BYTES: Final = 4 << 20
FAILURES_SHOWN_MAX: Final = 20
KEPT_MAX: Final = 100
WAIT_MS: Final = 1_000
"""How long the answer to a form waits for the end: enough for a few messages."""


@dataclass(slots=True)
class Progress:
    """The progress of a resubmission; `failures` has the first failed messages: (sequence number, reason)."""

    path: str
    target: str
    total: int
    done_count: int = 0
    failed_count: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    is_running: bool = True
    is_cancelled: bool = False

    @property
    def seen_count(self) -> int:
        """Number of messages tried."""
        return self.done_count + self.failed_count


class Resubmissions:
    """The running resubmissions, and the last one of each entity."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, Progress] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def of(self, path: str) -> Progress | None:
        """The running or last resubmission of an entity."""
        return self._known.get(entity_key(path))

    async def start(self, entity: Entity, numbers: Sequence[int] | None) -> Progress:
        """Resubmit these dead letters of an entity, or with None all; waits at most a moment for the end.

        FormError if one is running for the entity; BrokerError if the entity accepts no messages.
        """
        key = entity_key(entity.path)
        known = self._known.get(key)
        if known is not None and known.is_running:
            raise FormError(f"A resubmission of '{entity.path}' is already running.", status=409)
        target = self._target(entity)
        extents = await entity.extents(SubQueue.DEAD_LETTER)
        total = sum(each.message_count for each in extents if each is not None) if numbers is None else len(numbers)
        progress = Progress(entity.path, target.path, total)
        self._keep(key, progress)
        # Messages dead-lettered from now on have higher numbers, resubmitted ones included.
        ends = [None if each is None else each.next_sequence_number for each in extents]
        task = asyncio.create_task(self._run(entity, target, numbers, ends, progress), name=f"resubmit {entity.path}")
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))
        with suppress(TimeoutError):
            async with self._broker.clock.time_limit(WAIT_MS):
                await asyncio.wait([task])
        return progress

    def cancel(self, path: str) -> bool:
        """Stop a resubmission after its current batch; returns whether one was running."""
        progress = self._known.get(entity_key(path))
        if progress is None or not progress.is_running:
            return False
        progress.is_cancelled = True
        return True

    async def stop(self) -> None:
        """Stop all resubmissions."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _target(self, entity: Entity) -> Entity:
        description = entity.description
        if isinstance(description, SubscriptionDescription):
            return Overview(self._broker).entity(description.topic_name)
        return entity

    def _keep(self, key: str, progress: Progress) -> None:
        self._known.pop(key, None)
        self._known[key] = progress
        for old in [old for old, each in self._known.items() if not each.is_running][: len(self._known) - KEPT_MAX]:
            del self._known[old]

    async def _run(
        self,
        entity: Entity,
        target: Entity,
        numbers: Sequence[int] | None,
        ends: Sequence[int | None],
        progress: Progress,
    ) -> None:
        try:
            if numbers is None:
                await self._all(entity, target, ends, progress)
            else:
                for start in range(0, len(numbers), AT_ONCE):
                    if progress.is_cancelled:
                        break
                    await self._move(entity, target, numbers[start : start + AT_ONCE], progress)
        except BrokerError as error:
            progress.failures.append((0, error.description))
        finally:
            progress.is_running = False

    async def _all(self, entity: Entity, target: Entity, ends: Sequence[int | None], progress: Progress) -> None:
        overview = Overview(self._broker)
        for index, end in enumerate(ends):
            first: int | None = figures.placement_in(entity, index).first_number
            while end is not None and first is not None and not progress.is_cancelled:
                page = await overview.messages(
                    entity,
                    SubQueue.DEAD_LETTER,
                    first=first,
                    count=AT_ONCE,
                    bytes_max=AT_ONCE_BYTES,
                    partition_id=index,
                )
                numbers = [each.sequence_number for each in page.messages if each.sequence_number < end]
                if not numbers:
                    break
                await self._move(entity, target, numbers, progress)
                first = page.next_sequence_number

    async def _move(self, entity: Entity, target: Entity, numbers: Sequence[int], progress: Progress) -> None:
        answer = await entity.resubmit(numbers, target)
        for number, error in answer.items():
            if error is None:
                progress.done_count += 1
                continue
            progress.failed_count += 1
            if len(progress.failures) < FAILURES_SHOWN_MAX:
                progress.failures.append((number, error.description))
