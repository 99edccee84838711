"""How a partition's rows look: keys that sort as the broker reads them, and the fixed head of a stored message.

Knows struct layouts and nothing else. All integers are big-endian so that byte order is number order. "number" is a
sequence number, "session" the number of a message session (a hash of its name).

Tables of a messaging store (every key begins with the queue id, u32, unless it says otherwise):
* `messages`: home (u8) · number (u64) → record
* `due`: instant (u64, Unix ms) · queue id · what (u8) · number → nothing; what falls due then (see `Due`)
* `state`: → counters of this partition of the queue (see `Counters`)
* `sessions`: name → session, instant of the last state change
* `session_messages`: session (u64) · number → nothing; the active messages of each session, in order
* `session_heads`: number → session name; for each idle session with active messages the first of them
* `session_state`: session → the application's bytes
* `duplicates`: hash of the message id (8 bytes) → instant until which it is remembered
* `forwarded`: source queue id (u32) · source partition (u16) → highest number taken from there
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from struct import Struct

MESSAGES = "messages"
DUE = "due"
STATE = "state"
SESSIONS = "sessions"
SESSION_MESSAGES = "session_messages"
SESSION_HEADS = "session_heads"
SESSION_STATE = "session_state"
DUPLICATES = "duplicates"
FORWARDED = "forwarded"
TABLES = (
    MESSAGES,
    DUE,
    STATE,
    SESSIONS,
    SESSION_MESSAGES,
    SESSION_HEADS,
    SESSION_STATE,
    DUPLICATES,
    FORWARDED,
)

RECORD_VERSION = 1
VERSION_BITS = 4  # of the first byte of a record
TARGETS_MAX = 16  # values of a record's turn: as many as an entity has partitions at most
NO_ENQUEUED_NUMBER = -1
SCHEDULED_ELSEWHERE = (
    "$scheduled"  # in the transfer outbox: to be scheduled in another partition under its enqueued number
)
PARTITION_SHIFT = 48  # the topmost 16 bits of a sequence number are the partition id (P22)
COUNTER_MASK = (1 << PARTITION_SHIFT) - 1
SEQUENCE_NUMBER_MAX = (1 << 63) - 1


class Home(IntEnum):
    """Where a message of an entity lives; one partition's store holds them all (R4)."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2
    DEAD_LETTER = 3
    DEAD_LETTER_DEFERRED = 4
    TRANSFER_DEAD_LETTER = 5
    TRANSFER_DEAD_LETTER_DEFERRED = 6
    OUTBOX = 7  # on its way to the entity of ForwardTo
    DEAD_LETTER_OUTBOX = 8  # on its way to the entity of ForwardDeadLetteredMessagesTo
    TRANSFER_OUTBOX = 9  # on its way to the destination of a transaction that spans entities


HOMES = tuple(Home)
OUTBOXES = (Home.OUTBOX, Home.DEAD_LETTER_OUTBOX, Home.TRANSFER_OUTBOX)


class Due(IntEnum):
    """What a row of the `due` table is about."""

    EXPIRE = 0  # the active message of that number ends its time to live
    ACTIVATE = 2  # the scheduled message of that number becomes active
    FORGET = 255  # the duplicate hash in the place of the number is no longer remembered


KEY = Struct(">IBQ")
DUE_KEY = Struct(">QIBQ")
STATE_KEY = Struct(">I")
SESSION_MESSAGE_KEY = Struct(">IQQ")
SESSION_NUMBER_KEY = Struct(">IQ")
SESSION_VALUE = Struct(">Qq")
FORWARDED_KEY = Struct(">IIH")
NUMBER = Struct(">Q")
INSTANT = Struct(">q")

# version (low 4 bits) and turn (high 4 bits), hops, length of the note, delivery count, enqueued at, expires at (0:
# never), enqueued sequence number; then the note (UTF-8: the dead-letter source, or the destination of a transfer) and
# the stored message
HEAD = Struct(">BBHIqqq")
HEAD_BYTES = HEAD.size

# next counter, bytes used, then a message count per home
STATE_VALUE = Struct(f">QQ{len(HOMES)}Q")

message_key = KEY.pack
due_key = DUE_KEY.pack
unpack_head = HEAD.unpack_from
session_message_key = SESSION_MESSAGE_KEY.pack
session_number_key = SESSION_NUMBER_KEY.pack
SESSION_NAME_BYTES_MAX = 400  # a key's limit is 511; longer names (128 characters may be 512 bytes) are hashed


def session_key(queue_id: int, name: str) -> bytes:
    """The key of a session in the `sessions` table."""
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) > SESSION_NAME_BYTES_MAX:
        encoded = b"\xff" + hashlib.blake2b(encoded, digest_size=32).digest()
    return STATE_KEY.pack(queue_id) + encoded


def session_number(name: str) -> int:
    """The number of a session inside a queue (63 bits): a hash, so that sessions take no sequence numbers."""
    return duplicate_hash(name) >> 1 or 1


def duplicate_hash(identity: str) -> int:
    """The 64-bit hash under which a message id is remembered."""
    return int.from_bytes(hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


class Record:
    """A message as it is stored: the head's fields, the path of another entity, and the message's bytes.

    `other_path` is where a dead letter comes from, or where a message of the transfer outbox goes.
    """

    __slots__ = (
        "delivery_count",
        "enqueued_at",
        "enqueued_number",
        "expires_at",
        "hops",
        "other_path",
        "stored",
        "target_index",
    )

    def __init__(
        self,
        stored: bytes,
        enqueued_at: int,
        expires_at: int,
        enqueued_number: int,
        delivery_count: int = 0,
        hops: int = 0,
        other_path: str = "",
        target_index: int = 0,
    ) -> None:
        self.stored = stored
        self.enqueued_at = enqueued_at
        self.expires_at = expires_at  # Unix ms; 0: never
        self.enqueued_number = enqueued_number  # NO_ENQUEUED_NUMBER: receivers are shown none
        self.delivery_count = delivery_count
        self.hops = hops
        self.other_path = other_path
        self.target_index = target_index  # in an outbox: the partition that it is for if no key decides, 0 to 15

    def update(
        self,
        *,
        stored: bytes | None = None,
        expires_at: int | None = None,
        enqueued_number: int | None = None,
        delivery_count: int | None = None,
        other_path: str | None = None,
        target_index: int | None = None,
    ) -> None:
        """Change the fields that are given; what is packed before stays as it is."""
        if stored is not None:
            self.stored = stored
        if expires_at is not None:
            self.expires_at = expires_at
        if enqueued_number is not None:
            self.enqueued_number = enqueued_number
        if delivery_count is not None:
            self.delivery_count = delivery_count
        if other_path is not None:
            self.other_path = other_path
        if target_index is not None:
            self.target_index = target_index

    def pack(self) -> bytes:
        """The row of the `messages` table."""
        other_path = self.other_path.encode()
        head = HEAD.pack(
            RECORD_VERSION | self.target_index << VERSION_BITS,
            self.hops,
            len(other_path),
            self.delivery_count,
            self.enqueued_at,
            self.expires_at,
            self.enqueued_number,
        )
        return head + other_path + self.stored

    @classmethod
    def unpack(cls, row: bytes) -> Record:
        """The inverse of `pack`."""
        version, hops, other_path_bytes, delivery_count, enqueued_at, expires_at, enqueued_number = HEAD.unpack_from(
            row
        )
        start = HEAD_BYTES + other_path_bytes
        other_path = row[HEAD_BYTES:start].decode() if other_path_bytes else ""
        target_index = version >> VERSION_BITS
        stored = row[start:]
        return cls(stored, enqueued_at, expires_at, enqueued_number, delivery_count, hops, other_path, target_index)


def record_version(row: bytes) -> int:
    """The version of the row's form; the bits above it are the turn of a row in an outbox."""
    return row[0] & ((1 << VERSION_BITS) - 1)


class Counters:
    """What one partition of a queue counts, kept in the same transactions as its messages (R7)."""

    __slots__ = ("bytes_used", "messages", "next_counter")

    def __init__(self, next_counter: int = 1, bytes_used: int = 0, messages: list[int] | None = None) -> None:
        self.next_counter = next_counter
        self.bytes_used = bytes_used
        self.messages = [0] * len(HOMES) if messages is None else messages

    def take_counter(self) -> int:
        """Give out the next counter."""
        counter = self.next_counter
        self.next_counter = counter + 1
        return counter

    def advance_to(self, counter: int) -> None:
        """Give out no counter below `counter`."""
        self.next_counter = max(self.next_counter, counter)

    def add_bytes(self, count: int) -> None:
        """The rows of the partition grew by `count` bytes."""
        self.bytes_used += count

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


class ByteTotal:
    """How many bytes the partitions of a topic and of its subscriptions hold in one messaging store, all together.

    `bytes_used` follows every change of a row; None when it has to be added up anew: from `open`, the counters of those
    partitions that are in memory, and from the store.
    """

    __slots__ = ("bytes_used", "open")

    def __init__(self) -> None:
        self.bytes_used: int | None = None
        self.open: dict[int, Counters] = {}

    def add(self, count: int) -> None:
        """A row grew by `count` bytes."""
        if self.bytes_used is not None:
            self.bytes_used += count

    def set_bytes(self, bytes_used: int | None) -> None:
        """The sum is `bytes_used`; None lets it be added up anew."""
        self.bytes_used = bytes_used

    def forget(self, queue_id: int) -> None:
        """The memory of a partition is dropped, or it belongs to the topic no more."""
        self.open.pop(queue_id, None)
        self.bytes_used = None
