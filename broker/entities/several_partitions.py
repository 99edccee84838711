"""Requests about messages of several partitions, by lock token or sequence number: settle, receive, lock, renew, claim.

Knows how a request to several stores does everything or nothing (docs/decisions/0002). Does not know rows; partitions
decide (`partition/settle.py`, `partition/receive.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from .. import service_errors
from ..address import SubQueue
from ..errors import BrokerError, Condition, UnknownOutcomeError
from ..ids import partition_index_of_token
from ..outcomes import Complete, Outcome, Release
from ..partition.contract import Claimed, Delivery, ReceiveMode, Run
from ..partition.requests import (
    CheckOperation,
    ClaimMessages,
    Commit,
    LockMessages,
    ReceiveDeferred,
    Renew,
    Reserve,
    Settle,
)
from .entity import Entity, PartitionHandle, grouped

T = TypeVar("T")
Groups = dict[PartitionHandle, list[T]]


async def settle(entity: Entity, sub_queue: SubQueue, tokens: Sequence[bytes], outcome: Outcome) -> None:
    """End locks in a sub-queue, all or none. Raises BrokerError (message-lock-lost) if one is over.

    Every store first proves that it has the locks and can commit. A store that fails afterwards keeps its locks: the
    error is an UnknownOutcomeError if other stores have ended theirs.
    """
    groups = _by_token(entity, dict.fromkeys(tokens))
    if len(groups) > 1:
        for handle, group in groups.items():
            await handle.request(partial(CheckOperation, Settle(group, (), outcome, None, sub_queue)))
        await show_that_stores_commit(groups)
    settled_count = 0
    for handle, group in groups.items():
        try:
            await _end(handle, sub_queue, group, outcome)
        except BrokerError as error:
            if len(groups) == 1 or not (settled_count or isinstance(error, UnknownOutcomeError)):
                raise
            raise _settled_in_part(settled_count, len(tokens), handle.worker.index) from error
        settled_count += len(group)


async def renew(entity: Entity, sub_queue: SubQueue, tokens: Sequence[bytes]) -> list[int]:
    """Renew locks in a sub-queue; return their new ends (Unix ms) in order. Raises BrokerError (message-lock-lost)."""
    ends: dict[bytes, int] = {}
    for handle, group in _by_token(entity, tokens).items():
        answer: list[int] = await handle.request(partial(Renew, sub_queue, group))
        ends.update(zip(group, answer, strict=True))
    return [ends[token] for token in tokens]


async def take_deferred(
    entity: Entity,
    sub_queue: SubQueue,
    numbers: Sequence[int],
    mode: ReceiveMode,
    session_id: str | None,
    *,
    expires: bool = False,
) -> list[Delivery]:
    """Receive deferred messages by sequence number. Raises BrokerError (message-not-found) if one is missing.

    With `expires` those whose time to live is over expire now, and are missing. In receive-and-delete mode messages of
    several partitions are locked first, so that an error can release them.
    """
    handles = [entity.partition_of_number(number) for number in numbers]
    groups = grouped((handle, number) for handle, number in zip(handles, numbers, strict=True) if handle is not None)
    if None in handles:
        raise service_errors.deferred_not_found()
    mode_of_each = mode if len(groups) == 1 else ReceiveMode.PEEK_LOCK
    found: Groups[Delivery] = {}
    try:
        for handle, group in groups.items():
            ask = partial(ReceiveDeferred, sub_queue, group, mode_of_each, session_id, expires=expires)
            found[handle] = await handle.request(ask)
        if mode is not mode_of_each:
            await _remove(found, sub_queue, session_id)
    except BrokerError:
        for handle, deliveries in found.items():
            _release(handle, sub_queue, deliveries)
        raise
    order = {number: position for position, number in enumerate(numbers)}
    taken = [delivery for deliveries in found.values() for delivery in deliveries]
    return sorted(taken, key=lambda delivery: order[delivery.sequence_number])


async def claim(
    entity: Entity,
    sub_queue: SubQueue,
    partition_id: int,
    before: int,
    count: int,
    properties: Mapping[str, object],
    finished: Sequence[Run] = (),
) -> Claimed:
    """Defer up to `count` available messages of a partition below number `before`, and delete finished deferred ones.

    Their delivery counts rise as if they had been received. Raises BrokerError: not-allowed where messages belong to
    sessions, argument-out-of-range without such a partition, server-busy while its store is out.
    """
    if entity.requires_session and sub_queue is SubQueue.ACTIVE:
        raise service_errors.session_receiver_required()
    handle = entity.partition(partition_id)
    answer: Claimed = await handle.request(partial(ClaimMessages, sub_queue, count, before, properties, finished))
    return answer


async def lock(entity: Entity, sub_queue: SubQueue, numbers: Sequence[int]) -> list[Delivery]:
    """Lock available and deferred messages by sequence number; those that are locked or gone are left out.

    Raises BrokerError (not-allowed) where messages belong to sessions (`SessionReceiver.lock` locks those), and while a
    store of theirs is out; then it locks none.
    """
    pairs = [(entity.partition_of_number(number), number) for number in numbers]
    locked: Groups[Delivery] = {}
    try:
        for handle, group in grouped((handle, number) for handle, number in pairs if handle is not None).items():
            locked[handle] = await handle.request(partial(LockMessages, sub_queue, group))
    except BrokerError:
        for handle, deliveries in locked.items():
            _release(handle, sub_queue, deliveries)
        raise
    return list(chain.from_iterable(locked.values()))


async def _remove(found: Groups[Delivery], sub_queue: SubQueue, session_id: str | None) -> None:
    """Remove locked messages. Raises BrokerError if none is removed.

    If a store fails after others have removed theirs, the receiver gets all messages, because the removed ones exist
    nowhere else; the failed store removes its messages as soon as it commits again.
    """
    await show_that_stores_commit(found)
    is_begun = False
    for handle, deliveries in found.items():
        try:
            await _remove_from(handle, deliveries, sub_queue, session_id)
        except BrokerError:
            if not is_begun:
                raise
            handle.submit(Settle([delivery.token for delivery in deliveries], (), Complete(), None))
        is_begun = True


async def _remove_from(
    handle: PartitionHandle, deliveries: Sequence[Delivery], sub_queue: SubQueue, session_id: str | None
) -> None:
    """Remove locked messages of one partition; after an unknown outcome, those that still exist."""
    try:
        await _end(handle, sub_queue, [delivery.token for delivery in deliveries], Complete())
    except UnknownOutcomeError:
        numbers = [delivery.sequence_number for delivery in deliveries]
        try:
            ask = partial(ReceiveDeferred, sub_queue, numbers, ReceiveMode.RECEIVE_AND_DELETE, session_id)
            await handle.request(ask)
        except BrokerError as error:
            if error.condition is not Condition.MESSAGE_NOT_FOUND:
                raise


async def show_that_stores_commit(handles: Iterable[PartitionHandle]) -> None:
    """Commit an empty change in each store. Raises BrokerError (server-busy) if a store fails: nothing is done then."""
    for handle in handles:
        try:
            await handle.request(partial(Reserve, 0))
        except UnknownOutcomeError as error:
            raise service_errors.store_unavailable(handle.worker.index, "a commit failed") from error


def _settled_in_part(settled_count: int, count: int, store_index: int) -> UnknownOutcomeError:
    text = (
        f"{settled_count} of {count} messages are settled for certain; messaging store {store_index} failed then. "
        "Settle each again: the lock of one that is settled is lost."
    )
    return UnknownOutcomeError(Condition.SERVER_BUSY, text)


async def _end(handle: PartitionHandle, sub_queue: SubQueue, tokens: Sequence[bytes], outcome: Outcome) -> None:
    """End locks of one partition in one commit."""
    await handle.request(partial(Commit, [(handle, Settle(tokens, (), outcome, None, sub_queue))]))


def _release(handle: PartitionHandle, sub_queue: SubQueue, deliveries: Iterable[Delivery]) -> None:
    """End locks whose request has failed, so that other receivers get the messages at once."""
    handle.submit(Settle([delivery.token for delivery in deliveries], (), Release(), None, sub_queue))


def _by_token(entity: Entity, tokens: Iterable[bytes]) -> Groups[bytes]:
    """Group lock tokens by partition. Raises BrokerError (message-lock-lost) for a foreign token."""
    pairs = [(partition_index_of_token(token), token) for token in tokens]
    if any(index >= len(entity.partitions) for index, _ in pairs):
        raise service_errors.lock_lost()
    return grouped((entity.partitions[index], token) for index, token in pairs)
