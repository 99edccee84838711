"""How a partition's rows look: keys that sort as the broker reads them, and the fixed head of a stored message.

Knows struct layouts and nothing else. All integers are big-endian so that byte order is number order.

Tables of a messaging store:
* `messages`: queue id (u32) · home (u8) · sequence number (u64) → record
* `due`: instant (u64, Unix ms) · queue id · home · sequence number → nothing; messages whose time to live ends then
* `state`: queue id → counters of this partition of the queue (see `Counters`)
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

MESSAGES = "messages"
DUE = "due"
STATE = "state"
TABLES = (MESSAGES, DUE, STATE)

RECORD_VERSION = 1
PARTITION_SHIFT = 48  # the topmost 16 bits of a sequence number are the partition id (P22)
COUNTER_MASK = (1 << PARTITION_SHIFT) - 1
SEQUENCE_NUMBER_MAX = (1 << 63) - 1


class Home(IntEnum):
    """Where a message of a queue lives; one partition's store holds them all (R4)."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2
    DEAD_LETTER = 3
    DEAD_LETTER_DEFERRED = 4
    TRANSFER_DEAD_LETTER = 5
    TRANSFER_DEAD_LETTER_DEFERRED = 6


HOMES = tuple(Home)

KEY = Struct(">IBQ")
DUE_KEY = Struct(">QIBQ")
STATE_KEY = Struct(">I")

# version, delivery count, enqueued at, expires at (0: never), enqueued sequence number; the stored message follows
HEAD = Struct(">BIqqq")
HEAD_BYTES = HEAD.size

# next counter, bytes used, then a message count per home
STATE_VALUE = Struct(">QQ7Q")

message_key = KEY.pack
due_key = DUE_KEY.pack
pack_head = HEAD.pack
unpack_head = HEAD.unpack_from


class Counters:
    """What one partition of a queue counts, kept in the same transactions as its messages (R7)."""

    __slots__ = ("bytes_used", "messages", "next_counter")

    def __init__(self, next_counter: int = 1, bytes_used: int = 0, messages: list[int] | None = None) -> None:
        self.next_counter = next_counter
        self.bytes_used = bytes_used
        self.messages = [0] * len(HOMES) if messages is None else messages

    def pack(self) -> bytes:
        """The row of the `state` table."""
        return STATE_VALUE.pack(self.next_counter, self.bytes_used, *self.messages)

    @classmethod
    def unpack(cls, row: bytes | None) -> Counters:
        """Counters from a row of the `state` table; no row yet means a partition that never held a message."""
        if row is None:
            return cls()
        next_counter, bytes_used, *messages = STATE_VALUE.unpack(row)
        return cls(next_counter, bytes_used, messages)
