"""Carries messages from the outboxes of partitions to the entities they are for (R4, P30).

Knows the order (that of their numbers), the retries and what can't be delivered. A message leaves the outbox after the
target has it durably; the target drops what comes twice. Refuses to know what a message is. Owned by the `Broker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from .arrivals import REASON_HOPS
from .clock import Clock
from .commands import Delivered, Forwarded, ReadOutbox, Undeliverable
from .description import TopicDescription
from .entity import SEND_REFUSED, Entity, EntityPartition
from .errors import BrokerError, Condition
from .limits import FORWARD_HOPS_MAX
from .message import parse_stored
from .records import Home, Record

MESSAGES_AT_ONCE = 64
PAGES_MAX = 16  # looked through behind messages that have to wait, before these are tried again
RETRY_AFTER_MS = 1_000
UNDELIVERABLE = {
    Condition.NOT_FOUND: "MessagingEntityNotFound",
    Condition.ENTITY_DISABLED: "MessagingEntityDisabled",
    Condition.RESOURCE_LIMIT_EXCEEDED: "QuotaExceeded",
    Condition.NOT_ALLOWED: "InvalidOperation",
}

Row = tuple[int, int, Record]

log = structlog.get_logger(__name__)


class Forwarder:
    """Empties outboxes; `find(address)` gives the entity of a ForwardTo, or raises BrokerError."""

    def __init__(self, clock: Clock, find: Callable[[str], Entity]) -> None:
        self._clock = clock
        self._find = find
        self._running: dict[EntityPartition, asyncio.Task[None]] = {}
        self._again: set[EntityPartition] = set()
        self._stopping = False

    def wake(self, place: EntityPartition) -> None:
        """Messages wait in an outbox of `place`."""
        if self._stopping:
            return
        if place in self._running:
            self._again.add(place)
        else:
            self._running[place] = asyncio.create_task(self._run(place), name=f"forward {place.path}")

    def forget(self, entity: Entity) -> None:
        """An entity is gone: what waits in its outboxes goes with it."""
        for place, task in self._running.items():
            if place.entity is entity:
                task.cancel()

    def running_count(self) -> int:
        """From how many partitions messages are carried now."""
        return len(self._running)

    async def stop(self) -> None:
        """Stop where we are; what is left is carried after the next start."""
        self._stopping = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, place: EntityPartition) -> None:
        try:
            while True:
                self._again.discard(place)
                try:
                    left = await self._carry(place)
                except BrokerError as error:
                    if place.entity.gone is not None:
                        return
                    log.info("forwarding waits", entity=place.path, partition=place.index, cause=error.description)
                    await self._pause()
                    left = True
                except Exception:
                    log.exception("forwarding failed", entity=place.path, partition=place.index)
                    await self._pause()
                    left = True
                if not left and place not in self._again:
                    return
        finally:
            del self._running[place]

    async def _pause(self) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_at(
            self._clock.now_ms() + RETRY_AFTER_MS, lambda: None if over.done() else over.set_result(None)
        )
        try:
            await over
        finally:
            timer.cancel()

    async def _carry(self, place: EntityPartition) -> bool:
        """Carry the next messages; whether there may be more. BrokerError if some have to wait.

        Those behind them that go elsewhere don't wait; to one partition nothing overtakes.
        """
        blocked: dict[EntityPartition, BrokerError] = {}
        after = -1
        for _ in range(PAGES_MAX):
            rows: list[Row] = await place.request(partial(ReadOutbox, MESSAGES_AT_ONCE, after=after))
            for target, group in self._groups(place, rows).items():
                if not isinstance(target, EntityPartition):
                    await self._give_up(place, group, *target)
                elif target not in blocked:
                    error = await self._hand_over(place, target, group)
                    if error is not None:
                        blocked[target] = error
            if len(rows) < MESSAGES_AT_ONCE:
                break
            if not blocked:
                return True
            after = rows[-1][1]
        for error in blocked.values():
            raise error
        return False

    async def _hand_over(self, place: EntityPartition, target: EntityPartition, group: list[Row]) -> BrokerError | None:
        """Carry messages to one partition, or give them up; the error if they have to wait."""
        records = [(number, record) for _, number, record in group]
        try:
            await target.request(partial(Forwarded, place.queue_id, place.index, records))
        except BrokerError as error:
            if error.condition is Condition.RESOURCE_LIMIT_EXCEEDED and len(group) > 1:
                for row in group:  # one by one: some may fit
                    waiting = await self._hand_over(place, target, [row])
                    if waiting is not None:
                        return waiting
                return None
            if error.condition not in UNDELIVERABLE:
                return error
            await self._give_up(place, group, UNDELIVERABLE[error.condition], error.description)
        else:
            await place.request(partial(Delivered, [(home, number) for home, number, _ in group]))
        return None

    def _groups(
        self, place: EntityPartition, rows: list[Row]
    ) -> dict[EntityPartition | tuple[str | None, str], list[Row]]:
        """The rows by the partition that they go to, or by the reason why they can't go."""
        groups: dict[EntityPartition | tuple[str | None, str], list[Row]] = {}
        for row in rows:
            target: EntityPartition | tuple[str | None, str]
            try:
                target = self._target(place, row)
            except BrokerError as error:
                target = (UNDELIVERABLE.get(error.condition, "InvalidOperation"), error.description)
            groups.setdefault(target, []).append(row)
        return groups

    def _target(self, place: EntityPartition, row: Row) -> EntityPartition | tuple[str | None, str]:
        home, number, record = row
        description = place.description
        if home == Home.DEAD_LETTER_OUTBOX and record.hops >= FORWARD_HOPS_MAX:
            return REASON_HOPS  # entities whose dead-letter queues lead to each other
        if home == Home.TRANSFER_OUTBOX:
            address: str | None = record.note
        elif isinstance(description, TopicDescription):
            address = None
        else:
            address = description.forward_to if home == Home.OUTBOX else description.forward_dead_letters_to
        if address is None:  # the setting was taken back: the message stays
            return None, ""
        entity = self._find(address)
        if entity.description.status in SEND_REFUSED:
            raise BrokerError(Condition.ENTITY_DISABLED, f"'{entity.path}' takes no messages now.")
        return entity.place_of_forwarded(parse_stored(record.stored), number)

    async def _give_up(self, place: EntityPartition, group: list[Row], reason: str | None, description: str) -> None:
        for home, number, _ in group:
            dead_letter = reason
            if reason is None and home == Home.DEAD_LETTER_OUTBOX:
                dead_letter = "ForwardDeadLetteredMessagesToRemoved"
            await place.request(partial(Undeliverable, home, number, dead_letter, description))
