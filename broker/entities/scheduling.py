"""Schedules and cancels messages in several partitions, all or none.

Knows the partition of each message, and how a request to several stores becomes one commit (docs/decisions/0002).
Does not know rows; partitions decide (`partition/enqueue.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from .. import service_errors
from ..errors import BrokerError, Condition, UnknownOutcomeError
from ..message.message import Message
from ..partition.records import SCHEDULED_ELSEWHERE, Home, Record
from ..partition.requests import (
    CancelScheduled,
    CheckOperation,
    Commit,
    Operation,
    ReadOutbox,
    Reserve,
    Schedule,
    Transfer,
)
from .entity import Entity, PartitionHandle, is_known_refusal
from .several_partitions import show_that_stores_commit

OUTBOX_ROWS_AT_ONCE: Final = 64
OutboxRow = tuple[int, int, Record]


async def schedule(entity: Entity, messages: Sequence[Message]) -> tuple[list[int], PartitionHandle | None]:
    """Schedule messages, all or none; return their sequence numbers in order.

    Also returns the partition whose outbox holds messages for other partitions, None if there are none. Messages
    without a key go to one partition together, the first that accepts them.
    """
    groups: dict[int | None, list[int]] = {}
    for position, message in enumerate(messages):
        index, keyed = entity.route([message])
        if not keyed and entity.needs_key:  # the service says so of a single message, too (HealthChecks 248)
            raise service_errors.mixed_ids(index, None, None, message.message_id)
        groups.setdefault(index if keyed else None, []).append(position)
    try:
        if len(groups) == 1:
            return await _schedule_together(entity, messages, *groups), None
        return await _schedule_apart(entity, messages, groups)
    except BrokerError as error:
        raise entity.reported(error) from None


async def deliver_now(entity: Entity, number: int) -> None:
    """Deliver a scheduled message now. Raises BrokerError (message-not-found)."""
    handle = entity.partition_of_number(number)
    if handle is None:
        raise service_errors.scheduled_not_found([number])
    await handle.request(partial(_ask_delivery, number))


def _ask_delivery(number: int, reply: Callable[[BrokerError | None], None]) -> CancelScheduled:
    return CancelScheduled([number], reply, is_delivery=True)


async def cancel(entity: Entity, numbers: Sequence[int]) -> None:
    """Remove scheduled messages, all or none. Raises BrokerError (message-not-found) if one is missing.

    Every store first proves that it has the messages and can commit. A store that fails afterwards keeps its messages:
    the error is an UnknownOutcomeError if other stores have removed theirs. A message that is still on its way to its
    partition can't be removed yet (server-busy).
    """
    try:
        await _cancel(entity, numbers)
    except BrokerError as error:
        if error.condition is not Condition.MESSAGE_NOT_FOUND:
            raise
        await _check_arrived(entity, numbers)
        await _cancel(entity, numbers)  # it may have arrived since


async def _cancel(entity: Entity, numbers: Sequence[int]) -> None:
    handles = {number: entity.partition_of_number(number) for number in numbers}
    missing = [number for number, handle in handles.items() if handle is None]
    groups = entity.by_partition(handles)
    if len(groups) > 1 or missing:
        for handle, group in groups.items():
            if await _refuses(handle, group):
                missing += [number for number in group if await _refuses(handle, [number])]
    if missing:
        raise service_errors.scheduled_not_found(sorted(missing, key=list(handles).index))
    if len(groups) > 1:
        await show_that_stores_commit(groups)
    removed = 0
    for handle, group in groups.items():
        try:
            await handle.request(partial(CancelScheduled, group))
        except BrokerError as error:
            if len(groups) == 1 or not (removed or isinstance(error, UnknownOutcomeError)):
                raise
            text = f"{removed} of {len(handles)} scheduled messages are cancelled; a store failed then. Peek the rest."
            raise UnknownOutcomeError(error.condition, text) from error
        removed += len(group)


async def _check_arrived(entity: Entity, numbers: Sequence[int]) -> None:
    """Raise BrokerError (server-busy) if an outbox holds one of these messages, or may hold it and can't be read."""
    wanted = set(numbers)
    for handle in entity.partitions:
        after = -1
        while handle.worker.has_outgoing(handle.queue_id, Home.TRANSFER_OUTBOX):
            rows: list[OutboxRow] = await handle.request(partial(ReadOutbox, OUTBOX_ROWS_AT_ONCE, after=after))
            if any(row.other_path == SCHEDULED_ELSEWHERE and row.enqueued_number in wanted for _, _, row in rows):
                raise service_errors.still_forwarded(handle.worker.index)
            if len(rows) < OUTBOX_ROWS_AT_ONCE:
                break
            after = rows[-1][1]


async def _refuses(handle: PartitionHandle, numbers: Sequence[int]) -> bool:
    """Whether a partition lacks one of these scheduled messages. Raises BrokerError if it is unreachable."""
    try:
        await handle.request(partial(CheckOperation, CancelScheduled(numbers, _ignore)))
    except BrokerError as error:
        if error.condition is not Condition.MESSAGE_NOT_FOUND:
            raise
        return True
    return False


async def _schedule_together(entity: Entity, messages: Sequence[Message], index: int | None) -> list[int]:
    """Schedule messages in partition `index`, with None in the first that accepts them (P13)."""
    return await _first_that_takes(entity, index, lambda handle: handle.request(partial(Schedule, messages)))


async def _schedule_apart(
    entity: Entity, messages: Sequence[Message], groups: dict[int | None, list[int]]
) -> tuple[list[int], PartitionHandle | None]:
    """Schedule in several partitions: each reserves numbers, one commits all and forwards the others' messages."""
    numbers: dict[int, int] = {}
    for index, positions in groups.items():
        request = Schedule([messages[position] for position in positions], _ignore)
        given = await _first_that_takes(entity, index, partial(_reserve, request))
        numbers.update(zip(positions, given, strict=True))
    for left in range(len(entity.partitions) - 1, -1, -1):
        try:
            return await _commit_apart(entity, messages, [numbers[position] for position in range(len(messages))])
        except BrokerError as error:
            free = groups.get(None, ())
            if not left or 0 not in free or not is_known_refusal(error):
                raise
            # The store failed after it reserved numbers for keyless messages: another partition takes them (P13).
            request = Schedule([messages[position] for position in free], _ignore)
            given = await _first_that_takes(entity, None, partial(_reserve, request))
            numbers.update(zip(free, given, strict=True))
    raise AssertionError("an entity has a partition")


async def _commit_apart(
    entity: Entity, messages: Sequence[Message], in_order: list[int]
) -> tuple[list[int], PartitionHandle | None]:
    """Commit numbered messages in the partition of the first one; return what `schedule` does."""
    numbers = dict(enumerate(in_order))
    home = entity.partition_of_number(in_order[0])
    assert home is not None
    own = [position for position, number in numbers.items() if entity.partition_of_number(number) is home]
    own_numbers = [numbers[position] for position in own]
    operations: list[tuple[PartitionHandle, Operation]] = [
        (home, Schedule([messages[position] for position in own], _ignore, own_numbers))
    ]
    operations += (
        (home, Transfer(messages[position], "", number)) for position, number in numbers.items() if position not in own
    )
    try:
        await home.request(partial(Commit, operations))
    except UnknownOutcomeError as unknown:
        try:
            is_stored = not await _refuses(home, own_numbers)
        except BrokerError:
            raise unknown from None
        if not is_stored:
            raise service_errors.store_unavailable(home.worker.index, "its disk failed") from None
    return in_order, home if len(own) < len(messages) else None


async def _reserve(request: Schedule, handle: PartitionHandle) -> list[int]:
    """Reserve sequence numbers in a partition, if it has room for the messages."""
    await handle.request(partial(CheckOperation, request))
    numbers: list[int] = await handle.request(partial(Reserve, len(request.messages)))
    return numbers


async def _first_that_takes(
    entity: Entity, index: int | None, ask: Callable[[PartitionHandle], Awaitable[list[int]]]
) -> list[int]:
    """Return the answer of partition `index`, with None of the first that is neither out nor full."""
    count = len(entity.partitions)
    tried = entity.dealer.next() if index is None else index
    for left in range(count - 1 if index is None else 0, -1, -1):
        try:
            return await ask(entity.partitions[tried])
        except BrokerError as error:
            if left == 0 or not is_known_refusal(error):
                raise
        tried = (tried + 1) % count
    raise AssertionError("an entity has a partition")


def _ignore(result: object) -> None:
    """The reply of a single operation; the commit has one reply for all."""
