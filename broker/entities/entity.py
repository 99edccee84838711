"""The verbs of an entity: send, settle, peek, delete, resubmit.

Routes each request to a partition, or asks one partition after the other. Does not decide about messages (`partition/`)
and does not find entities by address (`namespace.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ...storage import StoreError
from .. import service_errors
from ..address import SubQueue
from ..errors import BrokerError, Condition, UnknownOutcomeError
from ..ids import partition_index_of_token, positions_by_partition
from ..message.bounds import MessageBounds
from ..message.message import Message, parse_sent, split_batch
from ..outcomes import Outcome
from ..partition.records import PARTITION_SHIFT, SEQUENCE_NUMBER_MAX
from ..partition.requests import (
    DeleteMessages,
    Done,
    GetExtent,
    ListNumbers,
    ListSessions,
    Numbered,
    Peek,
    Resubmit,
    RunDone,
    SendRun,
    Settle,
    SettleRun,
)
from ..partition.step import Extent
from .entity_base import SEND_REFUSED, EntityBase, PartitionHandle
from .router import key_of

T = TypeVar("T")

PART_COPIES_MAX = 1024  # of the messages of one part to a topic


def is_known_refusal(error: BrokerError) -> bool:
    """Whether a partition has certainly stored nothing, so that another may: its store is out, or it is full."""
    if isinstance(error, UnknownOutcomeError):  # another partition could store the message twice
        return False
    return error.condition in (Condition.SERVER_BUSY, Condition.RESOURCE_LIMIT_EXCEEDED)


def parse_delivery(data: bytes, bounds: MessageBounds, *, batch: bool) -> list[Message]:
    """Parse and judge each message of a delivery, whatever becomes of the others. Raises BrokerError for a bad one."""
    if not batch:
        return [parse_sent(data, bounds)]
    return [parse_sent(each, bounds) for each in split_batch(data)]


class Entity(EntityBase):
    """A running queue, topic or subscription."""

    # ---- sending

    def send(self, data: bytes, *, batch: bool, done: Done, numbered: Numbered | None = None, by: str = "") -> None:
        """Store one delivery; see `links.Sender.send`."""
        try:
            messages = self.parse(data, batch=batch)
            index, keyed = self.route(messages)
            if not keyed and self.needs_key:
                raise service_errors.key_missing()
        except BrokerError as error:
            done(error)
            return
        positions = range(len(messages))
        part = SendRun(messages, positions, lambda _, error: done(error), self._ended, True, numbered, by=by)
        if not keyed and len(self.partitions) > 1:
            part = replace(part, tried=index, left=len(self.partitions) - 1)
        self._submit(part, index)

    def send_run(self, run: Sequence[bytes], done: RunDone, by: str = "") -> None:
        """Store deliveries of one message each, each on its own; `done` gets their outcomes by position."""
        positions, messages = self._parse_run(run, done)
        if not messages:
            return
        if len(self.partitions) == 1:
            self._send_to(0, positions, messages, done, by)
            return
        duplicates = self.detects_duplicates
        keys = [key_of(message, duplicate_detection=duplicates) for message in messages]
        if keys.count(None) == len(keys):
            self._send_unkeyed(positions, messages, done, by)
        else:
            groups: dict[int | None, tuple[list[int], list[Message]]] = {}
            partition_of = self._router.handle
            for position, message, key in zip(positions, messages, keys, strict=True):
                index = None if key is None else partition_of(key)
                group = groups.get(index)
                if group is None:
                    group = groups[index] = [], []
                group[0].append(position)
                group[1].append(message)
            unkeyed = groups.pop(None, None)
            for index, group in groups.items():
                self._send_to(index or 0, *group, done, by)
            if unkeyed is not None:
                self._send_unkeyed(*unkeyed, done, by)

    def _parse_run(self, run: Sequence[bytes], done: RunDone) -> tuple[list[int], list[Message]]:
        """Return positions and messages of the deliveries that the entity takes; `done` gets the others."""
        positions: list[int] = []
        messages: list[Message] = []
        if self.description.status in SEND_REFUSED:
            done(range(len(run)), self.disabled())
            return positions, messages
        bounds, requires_session = self.bounds, self.requires_session
        for position, data in enumerate(run):
            try:
                message = parse_sent(data, bounds)
                if requires_session and message.session_id is None:
                    raise service_errors.session_id_missing()
            except BrokerError as error:
                done((position,), error)
            else:
                positions.append(position)
                messages.append(message)
        return positions, messages

    def _send_to(self, index: int, positions: list[int], messages: list[Message], done: RunDone, by: str) -> None:
        """Send messages to the partition of their key, or to the only one."""
        for part in self._parts(positions, messages):
            self._submit(SendRun(*part, done, self._ended, by=by), index)

    def _parts(
        self, positions: list[int], messages: list[Message]
    ) -> Iterator[tuple[Sequence[Message], Sequence[int]]]:
        """Divide messages, so that a part with the copies of a topic is not much larger than a batch."""
        size = len(messages) if self.routing is None else max(1, PART_COPIES_MAX // max(1, self.routing.copies_max))
        for start in range(0, len(messages), size):
            yield messages[start : start + size], positions[start : start + size]

    def _send_unkeyed(self, positions: list[int], messages: list[Message], done: RunDone, by: str) -> None:
        """Send messages without keys, or refuse them where the MessageId would be the key (P8)."""
        if self.needs_key:
            done(positions, service_errors.key_missing())
        else:
            self._deal(positions, messages, done, by)

    def _deal(self, positions: list[int], messages: list[Message], done: RunDone, by: str) -> None:
        """Send messages without keys to the partitions in turn (P11), what one partition gets of them together."""
        groups: dict[int, tuple[list[int], list[Message]]] = {}
        start = 0
        for index, count in self.dealt(len(messages)):
            stop = start + count
            group = groups.setdefault(index, ([], []))
            group[0].extend(positions[start:stop])
            group[1].extend(messages[start:stop])
            start = stop
        for index, group in groups.items():
            for part in self._parts(*group):
                run = SendRun(*part, done, self._ended, tried=index, left=len(self.partitions) - 1, by=by)
                self._submit(run, index)

    def _submit(self, part: SendRun, index: int) -> None:
        if part.left is not None:
            self.count_unkeyed(len(part.positions))
        self.partitions[index].submit(part)

    def _ended(self, part: SendRun, error: BrokerError | None) -> None:
        """Report the outcome of a part, or offer it to the next partition after a refusal (P13)."""
        if part.left is not None:
            self.count_unkeyed(-len(part.positions))
        if error is None:
            part.done(part.positions, None)
        elif not part.left or not is_known_refusal(error):
            part.done(part.positions, self.reported(error))
        else:
            index = (part.tried + 1) % len(self.partitions)
            self._submit(replace(part, tried=index, left=part.left - 1), index)

    def parse(self, data: bytes, *, batch: bool) -> list[Message]:
        """Parse and judge all messages of a delivery. Raises BrokerError if the entity refuses one of them."""
        if self.description.status in SEND_REFUSED:
            raise self.disabled()
        messages = parse_delivery(data, self.bounds, batch=batch)
        if self.requires_session:
            for message in messages:
                if message.session_id is None:
                    raise service_errors.session_id_missing()
        return messages

    def reported(self, error: BrokerError) -> BrokerError:
        """Return the sender's error for a partition's error: a full partition reports the figures of the entity."""
        if error.condition is not Condition.RESOURCE_LIMIT_EXCEEDED:
            return error
        used = 0
        for handle in self.partitions:
            beside = () if self.routing is None else self.routing.subscriptions(handle.index)
            with suppress(StoreError):
                used += sum(handle.worker.counters(ref.queue_id).bytes_used for ref in (handle, *beside))
        size_bytes_max = sum(handle.size_bytes_max for handle in self.partitions)
        kind = "Queue" if self.routing is None else "Topic"
        return service_errors.entity_full(kind, self.name_in_errors, used, size_bytes_max)

    # ---- receiving

    def settle_run(
        self, run: Sequence[bytes], outcome: Outcome, done: RunDone | None, sub_queue: SubQueue = SubQueue.ACTIVE
    ) -> None:
        """End the locks of a run of tokens with `outcome`, each on its own; `done` gets the results by position."""
        groups = positions_by_partition(run)
        for index, positions in groups.items():
            if index >= len(self.partitions):
                if done is not None:
                    done(positions, service_errors.lock_lost())
                continue
            tokens = run if len(groups) == 1 else [run[position] for position in positions]
            self.partitions[index].submit(SettleRun(tokens, positions, outcome, done, sub_queue))

    def settle(self, token: bytes, outcome: Outcome, done: Done | None, sub_queue: SubQueue = SubQueue.ACTIVE) -> None:
        """End the lock `token` with `outcome`; a foreign token is a lost lock."""
        index = partition_index_of_token(token)
        if index < len(self.partitions):
            self.partitions[index].submit(Settle(token, outcome, done, sub_queue))
        elif done is not None:
            done(service_errors.lock_lost())

    async def peek(
        self, sub_queue: SubQueue, first: int, count: int, bytes_max: int, session_id: str | None
    ) -> list[bytes]:
        """Return encoded messages from sequence number `first` on, partition after partition, ascending (P23).

        `bytes_max` limits the sum of encoded sizes. The client continues after the last number of the answer, so the
        answer ends before an unreachable partition. Raises BrokerError (server-busy) if the first one is unreachable.
        """
        index = max(0, first) >> PARTITION_SHIFT if self.partitioned else 0
        own = None if session_id is None else self.partition_index_of_session(session_id)  # the session's partition
        found: list[bytes] = []
        while index < len(self.partitions) and len(found) < count and bytes_max > 0:
            handle = self.partitions[index]
            if own is None or index == own:
                ask = partial(Peek, sub_queue, first, count - len(found), bytes_max, session_id, go_on=handle.submit)
                try:
                    rows: list[tuple[int, bytes]] = await handle.request(ask)
                    if rows and found and bytes_max < len(rows[0][1]):
                        break
                    found.extend(payload for _, payload in rows)
                    bytes_max -= sum(len(payload) for _, payload in rows)
                    following = rows[-1][0] + 1 if rows and len(found) < count else None
                    if following is not None and await self._has_from(handle, sub_queue, following, session_id):
                        break  # the next message didn't fit; later partitions must not overtake it
                except BrokerError as error:
                    if found and error.condition is Condition.SERVER_BUSY:
                        break
                    raise
            index += 1
            first = index << PARTITION_SHIFT
        return found

    async def _has_from(self, handle: PartitionHandle, sub_queue: SubQueue, first: int, session_id: str | None) -> bool:
        """Whether a partition has a message from that number on."""
        return bool(await handle.request(partial(Peek, sub_queue, first, 1, 1, session_id)))

    async def delete_messages(self, sub_queue: SubQueue, count: int, before_at: int, session_id: str | None) -> int:
        """Delete up to `count` available messages enqueued before `before_at` (Unix ms); return how many."""
        if self.partitioned:
            raise BrokerError(
                Condition.NOT_ALLOWED, f"Messages can't be deleted in batches from '{self.path}': it is partitioned."
            )
        ask = partial(DeleteMessages, sub_queue, count, before_at, session_id)
        return int(await self.partitions[0].request(ask))

    async def extents(self, sub_queue: SubQueue) -> list[Extent | None]:
        """Return the extent of a sub-queue in each partition; None for an unreachable one."""
        return [
            await handle.request(partial(GetExtent, sub_queue)) if handle.worker.available else None
            for handle in self.partitions
        ]

    async def list_numbers(self, sub_queue: SubQueue, partition_id: int, first: int, count: int) -> list[int]:
        """Return the first `count` sequence numbers that a partition of a sub-queue has from `first` on."""
        found: list[int] = await self.partition(partition_id).request(partial(ListNumbers, sub_queue, first, count))
        return found

    async def delete_before(self, sub_queue: SubQueue, partition_id: int, number: int, count: int) -> int:
        """Delete up to `count` available messages of a partition below `number`; return how many."""
        handle = self.partition(partition_id)

        def ask(reply: Callable[[int | BrokerError], None]) -> DeleteMessages:
            return DeleteMessages(sub_queue, count, SEQUENCE_NUMBER_MAX, None, reply, before_number=number)

        return await handle.request(ask)

    async def delete_by_number(self, sub_queue: SubQueue, numbers: Sequence[int]) -> int:
        """Delete those of these messages that are available; return how many."""
        of_partition: dict[PartitionHandle, list[int]] = {}
        for number in numbers:
            handle = self.partition_of_number(number)
            if handle is not None:
                of_partition.setdefault(handle, []).append(number)
        deleted = 0
        for handle, some in of_partition.items():

            def ask(reply: Callable[[int | BrokerError], None], some: Sequence[int] = some) -> DeleteMessages:
                return DeleteMessages(sub_queue, len(some), SEQUENCE_NUMBER_MAX, None, reply, numbers=some)

            deleted += await handle.request(ask)
        return deleted

    async def peek_partition(
        self,
        sub_queue: SubQueue,
        partition_id: int,
        first: int,
        count: int,
        bytes_max: int,
        session_id: str | None,
        *,
        deferred_only: bool = False,
    ) -> list[bytes]:
        """Peek one partition from sequence number `first` on. Raises BrokerError while its store is out."""
        handle = self.partition(partition_id)
        ask = partial(
            Peek, sub_queue, first, count, bytes_max, session_id, deferred_only=deferred_only, go_on=handle.submit
        )
        rows: list[tuple[int, bytes]] = await handle.request(ask)
        return [payload for _, payload in rows]

    async def resubmit(self, numbers: Sequence[int], target: Entity) -> dict[int, BrokerError | None]:
        """Resubmit dead-lettered messages to `target`: the queue itself, or the topic of the subscription.

        Returns an error per number, None for a moved message. A message moves to the same partition and keeps its keys.
        Raises BrokerError (entity-disabled) if `target` refuses messages.
        """
        if target.description.status in SEND_REFUSED:
            raise target.disabled()
        answer: dict[int, BrokerError | None] = {
            number: service_errors.dead_letter_not_found(number)
            for number in numbers
            if self._index_of_number(number) is None
        }
        known = [number for number in numbers if number not in answer]
        for index, group in self._by_partition((self._index_of_number(each) or 0, each) for each in known).items():
            ask = partial(Resubmit, group, target.partitions[index])
            try:
                answer |= await self.partitions[index].request(ask)
            except BrokerError as error:  # the store is out
                answer |= dict.fromkeys(group, error)
        return {number: answer[number] for number in numbers}

    def partition_of_number(self, number: int) -> PartitionHandle | None:
        """Return the partition that assigned a sequence number; None if there is no such partition."""
        index = self._index_of_number(number)
        return None if index is None else self.partitions[index]

    async def list_sessions(self, updated_after: int | None) -> list[str]:
        """Return the sorted names of the message sessions; see `requests.ListSessions`."""
        names: list[str] = []
        for handle in self.partitions:
            if handle.worker.available:
                names += await handle.request(partial(ListSessions, updated_after))
        return sorted(names)

    # ---- helpers

    def partition(self, partition_id: int) -> PartitionHandle:
        """Return a partition by its id. Raises BrokerError (argument-out-of-range)."""
        if not 0 <= partition_id < len(self.partitions):
            raise BrokerError(
                Condition.ARGUMENT_OUT_OF_RANGE,
                f"'{self.path}' has no partition {partition_id}: it has {len(self.partitions)}, counted from 0.",
            )
        return self.partitions[partition_id]

    def _index_of_number(self, number: int) -> int | None:
        if not 0 <= number <= SEQUENCE_NUMBER_MAX:
            return None
        index = number >> PARTITION_SHIFT if self.partitioned else 0
        return index if index < len(self.partitions) else None

    def _by_partition(self, pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
        groups: dict[int, list[T]] = {}
        for index, item in pairs:
            groups.setdefault(index, []).append(item)
        return groups
