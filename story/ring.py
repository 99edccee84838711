"""A bounded ring of what happened to messages: the broker's observer.

Knows what is kept of an event, and when the oldest one is forgotten. Does not know what an event means. Events are kept
as they come, many messages in one: what takes time is done at the search. Owned by the composition root.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, count, pairwise
from time import monotonic
from typing import Final, overload

from ..broker.api import Event, EventKind, PartitionRef
from ..broker.errors import BrokerError
from ..broker.message.message import Message, parse_message
from ..broker.model.descriptions import SubscriptionDescription
from ..codec.sections import BODY

MESSAGES_MAX: Final = 50_000
"""Events of single messages that are kept."""
BYTES_MAX: Final = 16 << 20
"""Bytes of messages that are kept."""
WHOLE_BYTES_MAX: Final = 2_048
"""Larger messages are kept without their bodies."""
NO_BODY: Final = b"\x00\x53\x75\xa0\x00"


Kept = tuple[
    int,
    EventKind,
    PartitionRef,
    Sequence[int | None],
    tuple[int, int] | None,
    Mapping[str, object],
    bytes,
    Sequence[int],
    Sequence[int],
]
"""An instant (Unix ms), the fields of an event, its messages as one string of bytes, the size of each there, and the
sizes that they had (() for these)."""


class Entry:
    """An event that is kept, of a batch executed at `at` (Unix ms); `number` orders the entries.

    `numbers` are the sequence numbers of its messages, None for one that was not stored; `arrived` are the messages
    that came by it, large ones without their bodies; `source` is the queue id and number that a message had before.
    """

    __slots__ = ("_ref", "_sizes_bytes", "arrived", "at", "facts", "kind", "number", "numbers", "source")

    def __init__(self, number: int, kept: Kept) -> None:
        self.number = number
        (
            self.at,
            self.kind,
            self._ref,
            self.numbers,
            self.source,
            self.facts,
            data,
            kept_sizes,
            self._sizes_bytes,
        ) = kept
        ends = list(accumulate(kept_sizes, initial=0))
        self.arrived = [data[start:end] for start, end in pairwise(ends)]

    def message(self, position: int) -> Message | None:
        """The message at a position, None if it did not arrive by this event; a large one has no body."""
        if position >= len(self.arrived):
            return None
        try:
            return parse_message(self.arrived[position], self._sizes_bytes[position] if self._sizes_bytes else None)
        except BrokerError:
            return None

    @property
    def path(self) -> str:
        return self._ref.path

    @property
    def queue_id(self) -> int:
        """What tells the entity from another one that had its path before."""
        return self._ref.queue_id

    @property
    def partition_id(self) -> int | None:
        """The partition, None for an entity without partitions, and for a strike on messages before they have one."""
        is_chosen = self.kind is not EventKind.STRUCK or self.numbers[0] is not None
        return self._ref.index if self._ref.partitioned and is_chosen else None

    @property
    def detects_duplicates(self) -> bool:
        description = self._ref.description
        return not isinstance(description, SubscriptionDescription) and description.requires_duplicate_detection


class Entries(Sequence[Entry]):
    """The events that a story had at one instant, the oldest first; each is unpacked when somebody asks for it.

    To unpack a hundred thousand takes a quarter of a second: that is for the thread of a search, not for the loop.
    """

    def __init__(self, first_number: int, events: Sequence[Kept]) -> None:
        self._first_number = first_number
        self._events = events

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, at: int) -> Entry: ...

    @overload
    def __getitem__(self, at: slice) -> Entries: ...

    def __getitem__(self, at: int | slice) -> Entry | Entries:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self._events))
            assert step == 1, "numbers go up by one"
            return Entries(self._first_number + start, self._events[start:stop])
        index = range(len(self._events))[at]
        return Entry(self._first_number + index, self._events[index])

    def __iter__(self) -> Iterator[Entry]:
        return map(Entry, count(self._first_number), self._events)


class Story:
    """The last events of one namespace, while it is switched on.

    With `a_second_max` no batch's events are kept any more in a second that has brought so many: what a batch tells is
    kept as a whole or not at all. Somebody who switches it on gets all.
    """

    def __init__(
        self,
        *,
        is_on: bool = False,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
        a_second_max: int | None = None,
        monotonic_s: Callable[[], float] = monotonic,
    ) -> None:
        self.is_switched_on = is_on
        """Whether events are kept; `switch` changes it."""
        self.a_second_max = a_second_max
        """How many events of single messages are kept in a second at most; None: all."""
        self._monotonic_s = monotonic_s
        self._second_ends_s = 0.0
        self._left_count = 0 if a_second_max else 1  # of this second; not counted down without a limit
        self.messages_max = messages_max
        """How many events of single messages are kept at most."""
        self._bytes_max = bytes_max
        self._events: deque[Kept] = deque()
        self._first_number = 1  # of the oldest event
        self._message_count = 0
        self._bytes = 0
        self._forgotten_count = 0

    @property
    def is_on(self) -> bool:
        """Whether the events of the next batch are kept; the broker asks before each."""
        if not self.is_switched_on:
            return False
        if self._left_count <= 0:
            now_s = self._monotonic_s()  # only here: it costs a tenth of what keeping an event does
            if now_s < self._second_ends_s:
                return False
            self._second_ends_s = now_s + 1
            self._left_count = self.a_second_max or 1
        return True

    @property
    def message_count(self) -> int:
        """How many events of single messages are kept."""
        return self._message_count

    @property
    def forgotten_count(self) -> int:
        """How many events of single messages were kept and are forgotten."""
        return self._forgotten_count

    def switch(self, *, is_on: bool) -> None:
        """Keep all events from now on, or none; those that are kept stay."""
        self.is_switched_on = is_on
        self.a_second_max, self._left_count = None, 1

    def forget(self) -> None:
        self._forgotten_count += self._message_count
        self._first_number += len(self._events)
        self._events.clear()
        self._message_count = self._bytes = 0

    def entries(self) -> Entries:
        """All events, the oldest first, as they are now."""
        return Entries(self._first_number, list(self._events))

    def observe(self, now: int, events: Sequence[Event]) -> None:
        """Keep the events of a batch, and forget the oldest ones beyond the limits."""
        before_count = self._message_count
        for event in events:
            kind, ref, numbers, messages, source, facts = event
            data, kept_sizes, sizes = _kept_bytes(messages) if messages else (b"", (), ())
            self._bytes += len(data)
            self._events.append((now, kind, ref, numbers, source, facts, data, kept_sizes, sizes))
            self._message_count += len(numbers) or 1
        if self.a_second_max is not None:
            self._left_count -= self._message_count - before_count
        while self._message_count > self.messages_max or self._bytes > self._bytes_max:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, _, _, numbers, _, _, data, _, _ = self._events.popleft()
        count = len(numbers) or 1
        self._first_number += 1
        self._message_count -= count
        self._forgotten_count += count
        self._bytes -= len(data)


def _kept_bytes(messages: Sequence[Message]) -> tuple[bytes, Sequence[int], Sequence[int]]:
    """What is kept of messages: bytes, the size of each there, and the sizes that they had (() if these are theirs).

    The bytes of a run are copied into one object. Kept as they are, they would stay all over the heap, and each later
    message would lie where no cache has it: that took a tenth of a send.
    """
    if len(messages) == 1:  # the usual case, at half the cost
        size = messages[0].size_bytes
        data = messages[0].encoded if size <= WHOLE_BYTES_MAX else _without_body(messages[0])
        return data, (len(data),), () if len(data) == size else (size,)
    sizes = [each.size_bytes for each in messages]
    if max(sizes) <= WHOLE_BYTES_MAX:
        arrived = [each.encoded for each in messages]
    else:
        arrived = [_without_body(each) for each in messages]
    kept_sizes = list(map(len, arrived))
    return b"".join(arrived), kept_sizes, () if sizes == kept_sizes else sizes


def _without_body(message: Message) -> bytes:
    """The message with an empty body: rules and people need its properties only."""
    if len(message.encoded) <= WHOLE_BYTES_MAX:
        return message.encoded
    try:
        data, at = message.located()
    except BrokerError:
        return NO_BODY
    return data[: at[BODY]] + NO_BODY if at[BODY + 7] else data
