"""A bounded ring of what happened to messages: the broker's observer.

Knows what is kept of an event, and when the oldest one is forgotten. Does not know what an event means. Events are kept
as they come, many messages in one: what takes time is done at the search. Owned by the composition root.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..broker.api import Event, EventKind
from ..broker.errors import BrokerError
from ..broker.message.message import Message
from ..broker.model.descriptions import SubscriptionDescription
from ..codec.sections import BODY

MESSAGES_MAX: Final = 50_000
"""Events of single messages that are kept."""
BYTES_MAX: Final = 16 << 20
"""Bytes of messages that are kept."""
WHOLE_BYTES_MAX: Final = 2_048
"""Larger messages are kept without their bodies."""
NO_BODY: Final = b"\x00\x53\x75\xa0\x00"


@dataclass(frozen=True, slots=True)
class Entry:
    """An event that is kept: at `at` (Unix ms), in the queue `queue_id` at `path`; `number` orders the entries.

    `arrived` has the encoded messages that arrived, and `sizes_bytes` how large they were.
    """

    number: int
    at: int
    kind: EventKind
    path: str
    queue_id: int
    partition_id: int | None
    by_message_id: bool
    numbers: Sequence[int | None]
    arrived: Sequence[bytes]
    sizes_bytes: Sequence[int]
    source: tuple[int, int] | None
    facts: Mapping[str, object]


class Story:
    """The last events of one namespace, while it is switched on."""

    def __init__(self, *, is_on: bool = False, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._is_on = is_on
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._entries: deque[Entry] = deque()
        self._message_count = 0
        self._bytes = 0
        self._last_number = 0
        self._forgotten_count = 0

    @property
    def is_on(self) -> bool:
        """Whether events are kept."""
        return self._is_on

    @property
    def message_count(self) -> int:
        """How many events of single messages are kept."""
        return self._message_count

    @property
    def forgotten_count(self) -> int:
        """How many events of single messages were kept and are forgotten."""
        return self._forgotten_count

    def switch(self, *, is_on: bool) -> None:
        """Keep events from now on, or no more; those that are kept stay."""
        self._is_on = is_on

    def forget(self) -> None:
        """Forget all events."""
        self._forgotten_count += self._message_count
        self._entries.clear()
        self._message_count = self._bytes = 0

    def entries(self) -> list[Entry]:
        """All events, the oldest first."""
        return list(self._entries)

    def observe(self, now: int, events: Sequence[Event]) -> None:
        """Keep the events of a batch, and forget the oldest ones beyond the limits."""
        for event in events:
            self._keep(now, event)
        while self._message_count > self._messages_max or self._bytes > self._bytes_max:
            self._forget()

    def _keep(self, now: int, event: Event) -> None:
        ref, messages = event.ref, event.messages
        self._last_number += 1
        sizes = [each.size_bytes for each in messages]
        arrived = [each.encoded for each in messages]
        if sizes and max(sizes) > WHOLE_BYTES_MAX:
            arrived = [_without_body(each) for each in messages]
        description = ref.description
        entry = Entry(
            self._last_number,
            now,
            event.kind,
            ref.path,
            ref.queue_id,
            ref.index if ref.partitioned else None,
            not isinstance(description, SubscriptionDescription) and description.requires_duplicate_detection,
            event.numbers,
            arrived,
            sizes,
            event.source,
            event.facts,
        )
        self._entries.append(entry)
        self._message_count += max(1, len(entry.numbers))
        self._bytes += sum(map(len, arrived))

    def _forget(self) -> None:
        entry = self._entries.popleft()
        count = max(1, len(entry.numbers))
        self._message_count -= count
        self._forgotten_count += count
        self._bytes -= sum(map(len, entry.arrived))


def _without_body(message: Message) -> bytes:
    """The message with an empty body: rules and people need its properties only."""
    if len(message.encoded) <= WHOLE_BYTES_MAX:
        return message.encoded
    try:
        data, at = message.located()
    except BrokerError:
        return NO_BODY
    return data[: at[BODY]] + NO_BODY if at[BODY + 7] else data
