"""Forwards messages from the outboxes of partitions to their target entities (R4, P30).

Knows the order (by outbox number), the retries, and when to give up or to wait (docs/reference/waiting.md). A message
leaves the outbox after the target has committed it; the target drops repetitions. Dead letters wait in their queue, and
come into the outbox when their target is likely to take them. Does not know the contents of messages. Owned by the
`Broker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Set
from functools import partial
from typing import Final, NamedTuple, TypeVar

import structlog

from .. import service_errors
from ..address import listed_name
from ..clock import Clock
from ..errors import BrokerError, Condition, UnknownOutcomeError
from ..message.stored import parse_stored
from ..model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from ..partition.records import COUNTER_MASK, NO_ENQUEUED_NUMBER, SCHEDULED_ELSEWHERE, Home, Record
from ..partition.requests import (
    CheckOperation,
    DeleteForwarded,
    NextDeadLetter,
    ReadOutbox,
    Redirect,
    Send,
    SendDeadLetters,
    StoreForwarded,
    Undeliverable,
)
from .entity import Entity, PartitionHandle, is_known_refusal

T = TypeVar("T")

MESSAGES_AT_ONCE = 64
PAGES_MAX = 16  # pages read behind waiting messages before a retry
RETRY_AFTER_MS = 1_000
UNDELIVERABLE = {
    Condition.NOT_FOUND: "MessagingEntityNotFound",
    Condition.ENTITY_DISABLED: "MessagingEntityDisabled",
    Condition.RESOURCE_LIMIT_EXCEEDED: "QuotaExceeded",
    Condition.NOT_ALLOWED: "InvalidOperation",
    Condition.INTERNAL_ERROR: "InvalidOperation",  # its target failed with this message, and would fail again
}
WAITED_FOR: Final[Mapping[int, Set[Condition]]] = {
    Home.OUTBOX: frozenset(),
    Home.DEAD_LETTER_OUTBOX: frozenset({Condition.NOT_FOUND, Condition.RESOURCE_LIMIT_EXCEEDED}),
    Home.TRANSFER_OUTBOX: frozenset({Condition.RESOURCE_LIMIT_EXCEEDED}),
}
"""What is waited for, by outbox: docs/reference/waiting.md has the sources."""
CLOSED: Final[Mapping[int, Set[EntityStatus]]] = {
    Home.OUTBOX: frozenset({EntityStatus.DISABLED}),
    Home.DEAD_LETTER_OUTBOX: frozenset(),
    Home.TRANSFER_OUTBOX: frozenset({EntityStatus.DISABLED, EntityStatus.SEND_DISABLED}),
}
"""With which status a target takes no messages of an outbox."""


class GivenUp(NamedTuple):
    """A message that is not forwarded: the reason to dead-letter it and a text; without one it becomes active here."""

    reason: str | None
    description: str


class Waits(NamedTuple):
    """A dead letter that goes back to its queue until its target takes it."""

    description: str


Row = tuple[int, int, Record]
Refusing = dict[PartitionHandle, BrokerError]

log = structlog.get_logger(__name__)


class Forwarder:
    """Empties outboxes; `find(address)` gives the entity of a ForwardTo, or raises BrokerError."""

    def __init__(self, clock: Clock, find: Callable[[str], Entity]) -> None:
        self._clock = clock
        self._find = find
        self._running: dict[PartitionHandle, asyncio.Task[None]] = {}
        self._again: set[PartitionHandle] = set()
        self._rounds: dict[PartitionHandle, list[asyncio.Future[None]]] = {}
        # Outbox numbers that may be stored at the target: after an unknown outcome, or from an earlier run.
        self._tried: dict[PartitionHandle, set[int]] = {}
        self._tried_below: dict[PartitionHandle, int] = {}
        self._parked: dict[PartitionHandle, asyncio.Future[bool]] = {}  # only dead letters are left, and wait
        self._aside: dict[PartitionHandle, set[int]] = {}  # outbox numbers that wait for the next start
        self._stopping = False

    def wake_after_start(self, handle: PartitionHandle, next_counter: int) -> None:
        """Wake for messages of an earlier run: those of `handle` below `next_counter` (48 bits)."""
        self._tried_below[handle] = next_counter
        self.wake(handle)

    async def round_of(self, handle: PartitionHandle) -> None:
        """Wait until the outboxes of `handle` are empty or wait for a retry.

        A store announces messages (`wake`) before it answers their sender, so a parked forwarder has none of them.
        """
        parked = self._parked.get(handle)
        if handle not in self._running or (parked is not None and not parked.done()):
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rounds.setdefault(handle, []).append(over)
        await over

    def _end_round(self, handle: PartitionHandle) -> None:
        for over in self._rounds.pop(handle, ()):
            _end(over, None)

    def wake(self, handle: PartitionHandle) -> None:
        """Start forwarding from `handle`: its outboxes have messages."""
        if self._stopping:
            return
        if handle in self._running:
            self._again.add(handle)
            if handle in self._parked:
                _end(self._parked[handle], False)
        else:
            self._running[handle] = asyncio.create_task(self._run(handle), name=f"forward {handle.path}")

    def entity_added(self) -> None:
        """Try dead letters again whose target may be this entity, also those of a forwarder that is about to park."""
        self._again.update(self._running)
        for parked in self._parked.values():
            _end(parked, True)

    def forget(self, entity: Entity) -> None:
        """Stop forwarding from a deleted entity."""
        for handle, task in self._running.items():
            if handle.entity is entity:
                task.cancel()
        for handle in entity.partitions:
            self._aside.pop(handle, None)

    async def stop(self) -> None:
        """Stop; the next start forwards the rest."""
        self._stopping = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, handle: PartitionHandle) -> None:
        """Forward until nothing is left. Dead letters that wait for their target do not delay other messages.

        The forwarder tries waiting dead letters once a second at most: a store that fails again and again announces
        them each time. If their target is missing, it tries them only after an entity was added or `wake` was called,
        which an update of the source does, too.
        """
        refusing: Refusing = {}
        logged = ""  # the last cause in the log
        waits: BrokerError | None = None  # why dead letters do not go on
        try_at = 0
        is_to_try = True  # at `try_at`, whether an entity is added or not
        try:
            while True:
                is_to_try |= handle in self._again
                self._again.discard(handle)
                try:
                    if is_to_try and self._clock.now_ms() >= try_at:
                        waits = await self._send_dead_letters(handle)
                        try_at = 0 if waits is None else self._clock.now_ms() + RETRY_AFTER_MS
                        is_to_try = waits is None or waits.condition is not Condition.NOT_FOUND
                    left = await self._carry(handle, refusing)
                    if not left and handle not in self._again:
                        if waits is None:
                            self._end_round(handle)
                            return
                        if waits.condition is not Condition.NOT_FOUND:
                            logged = _log_delay(handle, waits, logged)
                        if await self._park(handle, try_at if is_to_try else None):
                            try_at = 0
                        is_to_try = True
                        refusing.clear()
                except BrokerError as error:
                    if handle.entity.gone is not None:
                        return
                    logged = _log_delay(handle, error, logged)
                    self._end_round(handle)
                    await self._pause()
                    refusing.clear()
                except Exception:
                    log.exception("forwarding failed", entity=handle.path, partition=handle.index)
                    self._end_round(handle)
                    await self._pause()
                    refusing.clear()
        finally:
            del self._running[handle]
            self._end_round(handle)
            if not self._tried.get(handle):
                self._tried.pop(handle, None)

    async def _park(self, handle: PartitionHandle, until: int | None) -> bool:
        """Wait until an entity is added, something comes here, or it is `until` (Unix ms); whether it was an entity."""
        self._end_round(handle)
        parked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._parked[handle] = parked
        timer = None if until is None else self._clock.call_at(until, lambda: _end(parked, False))
        try:
            return await parked
        finally:
            if timer is not None:
                timer.cancel()
            del self._parked[handle]

    async def _pause(self) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_at(self._clock.now_ms() + RETRY_AFTER_MS, lambda: _end(over, None))
        try:
            await over
        finally:
            timer.cancel()

    async def _send_dead_letters(self, handle: PartitionHandle) -> BrokerError | None:
        """Move the next dead letters into the outbox if their target takes the first one, else return the reason."""
        description = handle.description
        if isinstance(description, TopicDescription) or description.forward_dead_letters_to is None:
            return None
        if not handle.worker.has_outgoing(handle.queue_id, Home.DEAD_LETTER):
            return None
        found = await handle.request(NextDeadLetter)
        if found is None:
            return None
        number, record = found
        try:
            target = self._target(handle, (Home.DEAD_LETTER_OUTBOX, number, record))
            if isinstance(target, PartitionHandle):
                await self._must_have_room(target, record)
        except BrokerError as error:
            if error.condition in WAITED_FOR[Home.DEAD_LETTER_OUTBOX]:
                return error
        if await handle.request(partial(SendDeadLetters, MESSAGES_AT_ONCE)):
            self._again.add(handle)
        return None

    async def _must_have_room(self, target: PartitionHandle, record: Record) -> None:
        """Raise BrokerError if the target partition, and no other one, has no room for the message."""
        message = parse_stored(record.stored)
        try:
            await target.request(partial(CheckOperation, Send([message])))
        except BrokerError as error:
            is_full = error.condition is Condition.RESOURCE_LIMIT_EXCEEDED
            has_key = target.entity.partition_for_forwarded(message, record.target_index)[1]
            if is_full and (has_key or not self._other_partitions(target, {})):
                raise

    async def _carry(self, handle: PartitionHandle, refusing: Refusing) -> bool:
        """Forward the next pages; return whether more may follow. Raises BrokerError if messages must wait.

        Waiting messages delay only messages to the same partition, so the order per partition holds. Keyless messages
        avoid the `refusing` partitions, which refused messages lately.
        """
        blocked: Refusing = {}
        after = -1
        aside: Collection[int] = ()
        for _ in range(PAGES_MAX):
            rows: list[Row] = await handle.request(partial(ReadOutbox, MESSAGES_AT_ONCE, after=after))
            aside = self._aside.get(handle, ())
            to_carry = [row for row in rows if row[1] not in aside]
            redirected = await self._carry_page(handle, to_carry, blocked, refusing)
            if not redirected:
                if len(rows) < MESSAGES_AT_ONCE:
                    break
                if not blocked and len(to_carry) == len(rows):
                    return True
            after = rows[-1][1]
        else:
            if not blocked:
                return not aside  # otherwise these pages may be of nothing else
        for error in blocked.values():
            raise error
        return False

    async def _carry_page(
        self, handle: PartitionHandle, rows: list[Row], blocked: Refusing, refusing: Refusing
    ) -> bool:
        """Forward a page; return whether some messages changed their partition and got new, higher outbox numbers.

        `blocked` are the partitions with waiting messages.
        """
        redirected = False
        for target, group in self._groups(handle, rows).items():
            if isinstance(target, GivenUp):
                await self._give_up(handle, group, *target)
                continue
            if isinstance(target, Waits):
                await self._give_up(handle, group, None, "")  # back into the dead-letter queue, where they wait
                continue
            waiting = group
            if target not in blocked:
                refused = await self._hand_over(handle, target, group, refusing)
                if refused is None:
                    continue
                error, waiting = refused
                if error.condition is Condition.RESOURCE_LIMIT_EXCEEDED and target not in refusing:
                    back = [row for row in waiting if row[0] == Home.DEAD_LETTER_OUTBOX]
                    await self._give_up(handle, back, None, "")
                    waiting = [row for row in waiting if row[0] != Home.DEAD_LETTER_OUTBOX]
                    if back:
                        blocked.setdefault(target, error)  # not again at once: a store may be full, not the entity
            else:
                error = blocked[target]
            free = [row for row in waiting if self._is_free(handle, row, target)] if target in refusing else []
            if free and not await self._redirect(handle, target, free, refusing):
                free = []
            redirected = redirected or bool(free)
            if len(free) < len(waiting):
                blocked.setdefault(target, error)
        return redirected

    async def _hand_over(
        self, handle: PartitionHandle, target: PartitionHandle, group: list[Row], refusing: Refusing
    ) -> tuple[BrokerError, list[Row]] | None:
        """Forward messages to one partition or give them up; return the error, and those that wait or move."""
        records = [(number, _as_it_arrives(handle, home, record)) for home, number, record in group]
        moves = [_moves(handle, row) for row in group]
        if (any(moves) and not all(moves)) or len({home for home, _, _ in group}) > 1:
            return await self._hand_over_singly(handle, target, group, refusing)

        def ask(reply: Callable[[BrokerError | None], None]) -> StoreForwarded:
            return StoreForwarded(handle.queue_id, handle.index, records, reply, same_entity=moves[0])

        tried = self._tried.setdefault(handle, set())
        anew = {number for _, number, _ in group} - tried
        tried |= anew
        try:
            await target.request(ask)
        except BrokerError as error:
            if isinstance(error, UnknownOutcomeError):
                return error, group
            tried -= anew
            full = error.condition is Condition.RESOURCE_LIMIT_EXCEEDED
            if len(group) > 1 and (full or error.condition is Condition.INTERNAL_ERROR):  # others may be stored
                return await self._hand_over_singly(handle, target, group, refusing)
            if full and self._is_free(handle, group[0], target) and self._other_partitions(target, refusing):
                refusing[target] = error
                return error, group
            home = group[0][0]
            if error.condition not in UNDELIVERABLE or error.condition in WAITED_FOR[home]:
                if is_known_refusal(error) and error.condition not in WAITED_FOR[home]:
                    refusing[target] = error
                return error, group
            await self._give_up(handle, group, UNDELIVERABLE[error.condition], error.description)
        else:
            await handle.request(partial(DeleteForwarded, [(home, number) for home, number, _ in group]))
            tried.difference_update(number for _, number, _ in group)
        return None

    async def _hand_over_singly(
        self, handle: PartitionHandle, target: PartitionHandle, group: list[Row], refusing: Refusing
    ) -> tuple[BrokerError, list[Row]] | None:
        for position, row in enumerate(group):
            refused = await self._hand_over(handle, target, [row], refusing)
            if refused is not None:
                return refused[0], group[position:]
        return None

    def _is_free(self, handle: PartitionHandle, row: Row, target: PartitionHandle) -> bool:
        """Whether another partition may take the message: it has no key, and `target` has certainly not stored it."""
        _, number, _ = row
        if _moves(handle, row) or number in self._tried.get(handle, ()):
            return False
        if number & COUNTER_MASK < self._tried_below.get(handle, 0):
            return False
        return not target.entity.partition_for_forwarded(parse_stored(row[2].stored), row[2].target_index)[1]

    def _other_partitions(self, target: PartitionHandle, refusing: Refusing) -> list[int]:
        """Return the alternatives to `target` in turn, beginning with the next partition."""
        partitions = target.entity.partitions
        behind = [*partitions[target.index + 1 :], *partitions[: target.index]]
        return [each.index for each in behind if each not in refusing and each.worker.available]

    async def _redirect(
        self, handle: PartitionHandle, target: PartitionHandle, rows: list[Row], refusing: Refusing
    ) -> bool:
        """Move keyless messages that `target` has not stored to other partitions; return whether there are any."""
        others = self._other_partitions(target, refusing)
        if not others:
            return False
        turns = [(home, number, others[turn % len(others)]) for turn, (home, number, _) in enumerate(rows)]
        await handle.request(partial(Redirect, turns))
        return True

    def _groups(self, handle: PartitionHandle, rows: list[Row]) -> dict[PartitionHandle | GivenUp | Waits, list[Row]]:
        """Group rows by their target partition, or by what becomes of them without one."""
        groups: dict[PartitionHandle | GivenUp | Waits, list[Row]] = {}
        for row in rows:
            target: PartitionHandle | GivenUp | Waits
            try:
                target = self._target(handle, row)
            except BrokerError as error:
                if row[0] == Home.DEAD_LETTER_OUTBOX and error.condition in WAITED_FOR[row[0]]:
                    target = Waits(error.description)
                else:
                    target = GivenUp(UNDELIVERABLE.get(error.condition, "InvalidOperation"), error.description)
            except Exception as error:  # for this message alone
                log.error("message can't be forwarded", entity=handle.path, number=row[1], exc_info=error)
                target = GivenUp("InvalidOperation", "The broker failed to forward the message; see its log.")
            groups.setdefault(target, []).append(row)
        return groups

    def _target(self, handle: PartitionHandle, row: Row) -> PartitionHandle | GivenUp:
        home, _, record = row
        description = handle.description
        if home == Home.DEAD_LETTER_OUTBOX and record.hops >= handle.bounds.forward_hops_max:
            # Dead-letter queues forward to each other.
            return GivenUp(*service_errors.too_many_hops(handle.bounds.forward_hops_max))
        if home == Home.TRANSFER_OUTBOX and record.other_path == SCHEDULED_ELSEWHERE:
            return handle.entity.partitions[record.target_index]
        if home == Home.TRANSFER_OUTBOX:
            address: str | None = record.other_path
        elif isinstance(description, TopicDescription):
            address = None
        else:
            address = description.forward_to if home == Home.OUTBOX else description.forward_dead_letters_to
        if address is None:
            is_moved = record.target_index != handle.index
            if is_moved and home == Home.OUTBOX and isinstance(description, SubscriptionDescription):
                partitions = handle.entity.partitions  # a rule has changed the copy's key
                return partitions[record.target_index % len(partitions)]
            return GivenUp(None, "")  # forwarding was switched off: the message stays
        entity = self._find(address)
        there = entity.description
        if there.status in CLOSED[home]:
            raise BrokerError(Condition.ENTITY_DISABLED, f"'{entity.path}' takes no messages now.")
        message = parse_stored(record.stored)
        if isinstance(there, QueueDescription) and there.requires_session and message.session_id is None:
            return GivenUp(*service_errors.REASON_NO_SESSION)  # where it is, and not in the target
        return entity.partition_for_forwarded(message, record.target_index)[0]

    async def _give_up(self, handle: PartitionHandle, group: list[Row], reason: str | None, description: str) -> None:
        for home, number, _ in group:
            try:
                await handle.request(partial(Undeliverable, home, number, reason, description))
            except BrokerError as error:
                if error.condition is not Condition.INTERNAL_ERROR:
                    raise
                # It can be neither forwarded nor dead-lettered: those behind it do not wait for it.
                log.error("message stays in its outbox until the next start", entity=handle.path, number=number)
                self._aside.setdefault(handle, set()).add(number)


def _end(waiting: asyncio.Future[T], result: T) -> None:
    if not waiting.done():
        waiting.set_result(result)


def _log_delay(handle: PartitionHandle, error: BrokerError, logged: str) -> str:
    """Log why messages wait, unless that was `logged` last; return the cause."""
    if error.description != logged:
        log.info("forwarding delayed", entity=handle.path, partition=handle.index, cause=error.description)
    return error.description


def _moves(handle: PartitionHandle, row: Row) -> bool:
    """Whether a message moves to another partition of its own entity, not to another entity."""
    home, _, record = row
    if home == Home.TRANSFER_OUTBOX:
        return record.other_path == SCHEDULED_ELSEWHERE
    description = handle.description
    return home == Home.OUTBOX and isinstance(description, SubscriptionDescription) and description.forward_to is None


def _as_it_arrives(handle: PartitionHandle, home: int, record: Record) -> Record:
    """Return an outbox record without the fields of its source."""
    match home:
        case Home.TRANSFER_OUTBOX if record.other_path != SCHEDULED_ELSEWHERE:
            record.update(other_path="")  # held the destination
        case Home.DEAD_LETTER_OUTBOX:
            # As in the service (parity tests of the JavaScript SDK): a subscription's have their number in the topic.
            of_subscription = isinstance(handle.description, SubscriptionDescription)
            number = record.enqueued_number if of_subscription else NO_ENQUEUED_NUMBER
            record.update(expires_at=0, other_path=listed_name(handle.path), enqueued_number=number)
        case _:
            pass
    return record
