"""Requests about messages by the address of their entity: `$management`'s, the control API's, and Spark's.

Does not decide about messages (`partition/`), speaks no protocol. Owned by the `Broker`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from . import service_errors
from .entities import scheduling, several_partitions
from .entities.entity import Entity
from .entities.namespace import Namespace
from .errors import BrokerError, Condition
from .ids import partition_index_of_token
from .message.message import Message
from .outcomes import Outcome
from .partition.contract import Claimed, Delivery, Extent, ReceiveMode, Run

DEFERRED_DELETED_MAX: Final = 250


class Messages:
    """What clients and operators ask about messages. Each verb raises BrokerError (not-found) for an unknown entity."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def peek(
        self,
        address: str,
        from_sequence_number: int,
        count: int,
        bytes_max: int,
        session_id: str | None = None,
        partition_id: int | None = None,
        deferred_only: bool = False,
    ) -> list[bytes]:
        """Return up to `count` encoded messages, about `bytes_max` bytes in all, from `from_sequence_number` on (P23).

        `partition_id` limits the peek to one partition, where it can be of deferred messages only. Raises BrokerError
        while its store is out.
        """
        entity, parsed = self._namespace.find(address)
        if partition_id is not None:
            return await entity.peek_partition(
                parsed.sub_queue,
                partition_id,
                from_sequence_number,
                count,
                bytes_max,
                session_id,
                deferred_only=deferred_only,
            )
        return await entity.peek(parsed.sub_queue, from_sequence_number, count, bytes_max, session_id)

    async def renew_locks(self, address: str, tokens: Sequence[bytes], *, bounded: bool = False) -> list[int]:
        """Renew locks; return their new ends (Unix ms) in order. Raises BrokerError (message-lock-lost).

        `bounded`: refuse those of several partitions, as the service does to clients.
        """
        entity, parsed = self._namespace.find(address)
        if bounded:
            _check_partition(entity, tokens)
        return await several_partitions.renew(entity, parsed.sub_queue, tokens)

    async def settle(
        self,
        address: str,
        tokens: Sequence[bytes],
        outcome: Outcome,
        session_id: str | None = None,
        *,
        bounded: bool = False,
    ) -> None:
        """Settle by lock token, without the receiving link. Raises BrokerError (message-lock-lost).

        With the `session_id` of messages whose session is held; without, a lost lock there is session-lock-lost.
        `bounded` as for `renew_locks`.
        """
        entity, parsed = self._namespace.find(address)
        if bounded:
            _check_partition(entity, tokens)
        try:
            await several_partitions.settle(entity, parsed.sub_queue, tokens, outcome)
        except BrokerError as error:
            if error.condition is Condition.SESSION_LOCK_LOST and entity.holds_session(session_id):
                raise service_errors.lock_lost() from error
            raise

    async def receive_by_sequence_number(
        self,
        address: str,
        numbers: Sequence[int],
        mode: ReceiveMode,
        session_id: str | None = None,
        *,
        bounded: bool = False,
    ) -> list[Delivery]:
        """Receive deferred messages by sequence number. Raises BrokerError (message-not-found) if one is missing.

        `bounded`: as the service does for clients. Several partitions are refused, and too many to delete; what has
        expired is not received but expires now [SB: message-deferral].
        """
        entity, parsed = self._namespace.find(address)
        if bounded and mode is ReceiveMode.RECEIVE_AND_DELETE and len(numbers) > DEFERRED_DELETED_MAX:
            raise service_errors.too_many_deferred(DEFERRED_DELETED_MAX)
        if bounded and len({entity.partition_of_number(number) for number in numbers} - {None}) > 1:
            raise service_errors.deferred_of_several_partitions()
        return await several_partitions.take_deferred(
            entity, parsed.sub_queue, numbers, mode, session_id, expires=bounded
        )

    async def lock_by_number(self, address: str, numbers: Sequence[int]) -> list[Delivery]:
        """Lock available and deferred messages by sequence number; those that are locked or gone are left out."""
        entity, parsed = self._namespace.find(address)
        return await several_partitions.lock(entity, parsed.sub_queue, numbers)

    async def schedule(self, address: str, encoded: Sequence[bytes]) -> list[int]:
        """Schedule encoded messages for the times in them; return their sequence numbers in order."""
        entity, messages = parse_scheduled(self._namespace, address, encoded)
        numbers, handle = await scheduling.schedule(entity, messages)
        if handle is not None:
            await self._namespace.forwarder.round_of(handle)
        return numbers

    async def cancel_scheduled(self, address: str, numbers: Sequence[int]) -> None:
        """Remove scheduled messages, all or none. Raises BrokerError (message-not-found) with the missing numbers."""
        await scheduling.cancel(self._namespace.find(address)[0], numbers)

    async def deliver_scheduled(self, address: str, number: int) -> None:
        """Deliver a scheduled message now. Raises BrokerError (message-not-found)."""
        await scheduling.deliver_now(self._namespace.find(address)[0], number)

    async def delete_messages(self, address: str, count: int, before_at: int, session_id: str | None = None) -> int:
        """Delete up to `count` available messages enqueued before `before_at` (Unix ms); return how many."""
        entity, parsed = self._namespace.find(address)
        return await entity.delete_messages(
            parsed.sub_queue, min(count, self._namespace.limits.messages_per_delete_max), before_at, session_id
        )

    def generation(self, address: str) -> str:
        """Return what tells this entity from another one that had the path before, or has it after a restore."""
        return self._namespace.catalog.generation_of(self._namespace.find(address)[0].path)

    async def extents(self, address: str) -> list[Extent | None]:
        """Return first and next sequence number and count per partition; None for an unreachable partition."""
        entity, parsed = self._namespace.find_receivable(address)
        return await entity.extents(parsed.sub_queue)

    async def list_numbers(self, address: str, partition_id: int, first: int, count: int) -> list[int]:
        """Return the first `count` sequence numbers that a partition has from `first` on, of messages in any state.

        Raises BrokerError while its store is out.
        """
        entity, parsed = self._namespace.find_receivable(address)
        return await entity.list_numbers(parsed.sub_queue, partition_id, first, count)

    async def delete_before(self, address: str, partition_id: int, number: int, count: int) -> int:
        """Delete up to `count` available messages of a partition below sequence number `number`; return how many."""
        entity, parsed = self._namespace.find_receivable(address)
        count = min(count, self._namespace.limits.messages_per_range_delete_max)
        return await entity.delete_before(parsed.sub_queue, partition_id, number, count)

    async def delete_by_number(self, address: str, numbers: Sequence[int]) -> int:
        """Delete those of these messages that are available, of the first that one request may delete; return how many.

        Raises BrokerError if a partition can't; those of partitions before it may be deleted then.
        """
        entity, parsed = self._namespace.find_receivable(address)
        some = numbers[: self._namespace.limits.messages_per_range_delete_max]
        return await entity.delete_by_number(parsed.sub_queue, some)

    async def claim(
        self,
        address: str,
        partition_id: int,
        before: int,
        count: int,
        properties: Mapping[str, object],
        finished: Sequence[Run] = (),
    ) -> Claimed:
        """Defer up to `count` available messages of a partition below sequence number `before`.

        `properties` are application properties to add. Deletes the deferred messages of the runs `finished` in the same
        commit. Raises BrokerError: not-allowed (an entity with sessions).
        """
        entity, parsed = self._namespace.find_receivable(address)
        return await several_partitions.claim(
            entity, parsed.sub_queue, partition_id, before, count, properties, finished
        )


def _check_partition(entity: Entity, tokens: Sequence[bytes]) -> None:
    """Raise BrokerError if lock tokens are those of several partitions."""
    if entity.partitioned and len(set(map(partition_index_of_token, tokens))) > 1:
        raise service_errors.locks_of_several_partitions()


def parse_scheduled(namespace: Namespace, address: str, encoded: Sequence[bytes]) -> tuple[Entity, list[Message]]:
    """Parse the messages to schedule. Raises the same errors as `Broker.open_sender` and `Sender.send`."""
    entity = namespace.find_sendable(address)
    bytes_max = namespace.message_bytes_max(entity)
    messages: list[Message] = []
    for data in encoded:
        if len(data) > bytes_max:
            raise service_errors.too_large(len(data), bytes_max)
        messages += entity.parse(data, batch=False)
    return entity, messages
