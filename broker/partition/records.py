"""The row formats of a partition: keys that sort in reading order, and the fixed head of a stored message.

Knows struct layouts only. All integers are big-endian so that byte order is number order. "number" is a
sequence number; "session" is the number of a message session (a hash of its folded name).

Tables of a messaging store (every key begins with the queue id, u32, unless it says otherwise):
* `messages`: home (u8) · number (u64) → record
* `due`: instant (u64, Unix ms) · queue id · what (u8) · number → nothing; a timer (see `Due`)
* `state`: → counters of the partition (see `Counters`)
* `sessions`: folded name → session, instant of the last state change, name as a client wrote it
* `session_messages`: session (u64) · number → nothing; the active messages of each session, in order
* `session_heads`: number → session name; the first active message of each idle session
* `session_state`: session → the application's bytes
* `duplicates`: hash of the message id (8 bytes) → end of its duplicate detection window (Unix ms)
* `forwarded`: source queue id (u32) · source partition (u16) → highest number stored from there
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import chain, repeat
from operator import itemgetter
from struct import Struct
from typing import Final

from ..identity import folded
from ..message.stored import EncodedProperties, application_section, changed_section
from ..message.stored_form import ROW_HEAD, ROW_HEAD_BYTES, is_of_scheduled

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
RECORD_VERSIONS = range(1, 3)  # 2: of an active message that was scheduled before
VERSION_BITS = 4  # of the first byte of a record
TARGETS_MAX = 16  # target indexes of a record; an entity has at most as many partitions
NO_ENQUEUED_NUMBER = -1
SCHEDULED_ELSEWHERE = "$scheduled"  # in the transfer outbox: another partition schedules it under its enqueued number
PARTITION_SHIFT = 48  # the topmost 16 bits of a sequence number are the partition id (P22)
COUNTER_MASK = (1 << PARTITION_SHIFT) - 1
SEQUENCE_NUMBER_MAX = (1 << 63) - 1


class Home(IntEnum):
    """Where a message of an entity is; all homes of a partition are in one store (R4)."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2
    DEAD_LETTER = 3
    DEAD_LETTER_DEFERRED = 4
    TRANSFER_DEAD_LETTER = 5
    TRANSFER_DEAD_LETTER_DEFERRED = 6
    OUTBOX = 7  # on its way to the entity of ForwardTo
    DEAD_LETTER_OUTBOX = 8  # from the dead-letter queue on its way to the entity of ForwardDeadLetteredMessagesTo
    TRANSFER_OUTBOX = 9  # on its way to the destination of a transaction that spans entities


HOMES = tuple(Home)
OUTBOXES = (Home.OUTBOX, Home.DEAD_LETTER_OUTBOX, Home.TRANSFER_OUTBOX)
FORWARDED_FROM = (*OUTBOXES, Home.DEAD_LETTER)
"""Where the forwarder may find messages: dead letters if their entity forwards them."""


class Due(IntEnum):
    """What a row of the `due` table starts."""

    EXPIRE = 0  # the time to live of the active message `number` ends
    ACTIVATE = 2  # the scheduled message `number` becomes active
    FORGET = 255  # the duplicate detection window of the hash `number` ends


KEY = Struct(">IBQ")
DUE_KEY = Struct(">QIBQ")
STATE_KEY = Struct(">I")
SESSION_MESSAGE_KEY = Struct(">IQQ")
SESSION_NUMBER_KEY = Struct(">IQ")
SESSION_VALUE = Struct(">Qq")
FORWARDED_KEY = Struct(">IIH")
NUMBER = Struct(">Q")
INSTANT = Struct(">q")

# next counter, bytes used, message count of each home; since format 6 bytes of large rows, bytes of session states
STATE_VALUE = Struct(f">QQ{len(HOMES)}QQQ")
OLD_STATE_VALUE = Struct(f">QQ{len(HOMES)}Q")

value_of: Final = itemgetter(1)  # of a row; in a `map` it costs no frame for a message alone
message_key = KEY.pack
unpack_message_key = KEY.unpack
due_key = DUE_KEY.pack
pack_head = ROW_HEAD.pack
unpack_head = ROW_HEAD.unpack_from
_unpack_instant = INSTANT.unpack_from
_NUMBER_AT = KEY.size - NUMBER.size  # where it is in a key
_ENQUEUED_AT, _EXPIRES_AT = 8, 16  # where they are in a row
_unpack_instants: Callable[[bytes, int], tuple[int, int]] = Struct(">qq").unpack_from
_TRIES = Struct(">HI")  # a part of the head: the size of the other path, the delivery count
_pack_tries, _unpack_tries = _TRIES.pack, _TRIES.unpack_from
_TRIES_AT: Final = 2
_TRIES_END: Final = _TRIES_AT + _TRIES.size
session_message_key = SESSION_MESSAGE_KEY.pack
session_number_key = SESSION_NUMBER_KEY.pack
# What other code takes for granted of the layouts above.
assert TARGETS_MAX << VERSION_BITS == 1 << 8, "the first byte of a record has room for a version and a target"
assert max(RECORD_VERSIONS) < 1 << VERSION_BITS
assert message_key(1, 2, 3)[4:] == bytes([2]) + NUMBER.pack(3), (
    "the home is byte 4 of a key, which ends with the number"
)
assert pack_head(RECORD_VERSION, 0, 0, 0, 0, 0, 3).endswith(NUMBER.pack(3)), "a head ends with the number"
assert _unpack_tries(pack_head(RECORD_VERSION, 0, 5, 6, 0, 0, 0), _TRIES_AT) == (5, 6)
assert _unpack_instant(pack_head(RECORD_VERSION, 0, 0, 0, 0, 7, 0), _EXPIRES_AT) == (7,)
assert _unpack_instants(pack_head(RECORD_VERSION, 0, 0, 0, 6, 7, 0), _ENQUEUED_AT) == (6, 7)

LARGE_ROW_BYTES = (1 << 20) + (16 << 10)
"""A longer row counts once more in the size of its queue or topic, as a message above 1 MB does on the service.

The second part is for what a row has besides the message as it was sent (head, source, reason of a dead letter), so
that the default maximum of Premium, a message of just 1 MB, never counts twice."""

SESSION_NAME_BYTES_MAX = 400  # keys have at most 511; longer names (128 characters are up to 512) are hashed


def session_key(queue_id: int, name: str) -> bytes:
    """The key of a session in the `sessions` table, the same for all cases of its name."""
    encoded = folded(name).encode("utf-8", "surrogatepass")
    if len(encoded) > SESSION_NAME_BYTES_MAX:
        encoded = b"\xff" + hashlib.blake2b(encoded, digest_size=32).digest()
    return STATE_KEY.pack(queue_id) + encoded


def session_number(name: str) -> int:
    """The number of a session in its queue: a hash of 63 bits, never 0, the same for all cases of its name."""
    return duplicate_hash(folded(name)) >> 1 or 1


def duplicate_hash(identity: str) -> int:
    """The 64-bit hash of a message id for duplicate detection."""
    return int.from_bytes(hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


class Record:
    """A stored message: the fields of the head, the path of another entity, the message's stored form.

    `other_path` is the source of a dead letter, or the destination of a message in the transfer outbox. A message that
    `was_scheduled` is received as such.
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
        "was_scheduled",
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
        was_scheduled: bool = False,
    ) -> None:
        self.stored = stored
        self.enqueued_at = enqueued_at
        self.expires_at = expires_at  # Unix ms; 0: never
        self.enqueued_number = enqueued_number  # NO_ENQUEUED_NUMBER: receivers get none
        self.delivery_count = delivery_count
        self.hops = hops
        self.other_path = other_path
        self.was_scheduled = was_scheduled
        self.target_index = target_index  # in an outbox: the target partition of a message without a key, 0 to 15

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
        """Change the given fields; rows packed earlier do not change."""
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

    @property
    def own_number(self) -> int:
        """In the outbox of dead letters: the number that the message has in its queue, 0 if it is that in the outbox.

        It stands where others have the end of their time to live: dead letters do not expire.
        """
        return self.expires_at

    def pack(self) -> bytes:
        """Return the row for the `messages` table."""
        other_path = self.other_path.encode()
        head = pack_head(
            (RECORD_VERSION + self.was_scheduled) | self.target_index << VERSION_BITS,
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
        """Return the record of a row; the inverse of `pack`."""
        version, hops, other_path_bytes, delivery_count, enqueued_at, expires_at, enqueued_number = unpack_head(row)
        start = ROW_HEAD_BYTES + other_path_bytes
        other_path = row[ROW_HEAD_BYTES:start].decode() if other_path_bytes else ""
        target_index, was_scheduled = version >> VERSION_BITS, is_of_scheduled(row)
        return cls(
            row[start:],
            enqueued_at,
            expires_at,
            enqueued_number,
            delivery_count,
            hops,
            other_path,
            target_index,
            was_scheduled,
        )


def active_rows(queue_id: int, number: int, now: int, forms: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the keys and rows of new active messages that never expire, numbered from `number` on.

    `forms` are their stored forms, `now` is in Unix ms.
    """
    # Keys and heads end with the number.
    key_start = message_key(queue_id, Home.ACTIVE, 0)[: -NUMBER.size]
    head_start = pack_head(RECORD_VERSION, 0, 0, 0, now, 0, 0)[: -NUMBER.size]
    ends = map(NUMBER.pack, range(number, number + len(forms)))
    return [(key_start + end, head_start + end + form) for end, form in zip(ends, forms, strict=True)]


def tried(rows: Iterable[bytes], attempts: int, entries: EncodedProperties) -> list[bytes]:
    """Return rows of messages after so many further deliveries, with application properties added or replaced."""
    made: list[bytes] = []
    known: dict[bytes, bytes] = {}  # sections: most messages of a run have none, or equal ones
    for row in rows:
        path_bytes, delivery_count = _unpack_tries(row, _TRIES_AT)
        start, stop = application_section(row, ROW_HEAD_BYTES + path_bytes)
        section = row[start:stop]
        changed = known.get(section)
        if changed is None:
            changed = known[section] = changed_section(section, entries)
        tries = _pack_tries(path_bytes, delivery_count + attempts)
        made.append(b"".join((row[:_TRIES_AT], tries, row[_TRIES_END:start], changed, row[stop:])))
    return made


def instants_of(row: bytes) -> tuple[int, int]:
    """Return when a message was enqueued, and when its time to live ends (0: never); Unix ms."""
    return _unpack_instants(row, _ENQUEUED_AT)


def expiries_of(rows: Sequence[tuple[int, bytes]]) -> list[int]:
    """Return when the times to live of messages (sequence number, row) end; Unix ms, 0: never."""
    return list(map(itemgetter(0), map(_unpack_instant, map(value_of, rows), repeat(_EXPIRES_AT))))


def numbers_of(rows: Sequence[tuple[bytes, bytes]]) -> list[int]:
    """Return the sequence numbers of messages (key, row): a key ends with its number."""
    return list(chain.from_iterable(map(NUMBER.unpack_from, map(itemgetter(0), rows), repeat(_NUMBER_AT))))


def record_version(row: bytes) -> int:
    """The format version of a row; the other bits of the byte are the target index."""
    return row[0] & ((1 << VERSION_BITS) - 1)


def large_bytes_of(sizes: Iterable[int]) -> int:
    """The bytes of those rows, or messages, that count once more."""
    return sum(size for size in sizes if size > LARGE_ROW_BYTES)


class Counters:
    """The counters of one partition; each transaction stores them with the messages (R7).

    `bytes_used` are those of all rows of messages, `large_bytes` those of the large ones among them, `state_bytes`
    those of the states of message sessions.
    """

    __slots__ = ("bytes_used", "large_bytes", "messages", "next_counter", "state_bytes")

    def __init__(
        self,
        next_counter: int = 1,
        bytes_used: int = 0,
        messages: list[int] | None = None,
        large_bytes: int = 0,
        state_bytes: int = 0,
    ) -> None:
        self.next_counter = next_counter
        self.bytes_used = bytes_used
        self.messages = [0] * len(HOMES) if messages is None else messages
        self.large_bytes = large_bytes
        self.state_bytes = state_bytes

    @property
    def copy_bytes(self) -> int:
        """What a subscription's partition takes of its topic's size: its large rows once [SB: service-bus-quotas]."""
        return self.bytes_used + self.state_bytes

    @property
    def size_bytes(self) -> int:
        """What a partition takes of its queue's size: its large rows twice [SB: service-bus-quotas]."""
        return self.copy_bytes + self.large_bytes

    def take_counter(self) -> int:
        counter = self.next_counter
        self.next_counter = counter + 1
        return counter

    def take_counters(self, count: int) -> int:
        """Return the next counter and advance it by `count`."""
        counter = self.next_counter
        self.next_counter = counter + count
        return counter

    def add(self, home: Home, count: int, size_bytes: int, large_bytes: int = 0) -> None:
        """Add messages to a home, their bytes, and those of large rows; all are negative for what is removed."""
        self.messages[home] += count
        self.bytes_used += size_bytes
        self.large_bytes += large_bytes
        assert self.messages[home] >= 0, (home, count)
        assert 0 <= self.large_bytes <= self.bytes_used, (home, size_bytes, large_bytes)

    def add_state_bytes(self, count: int) -> None:
        """Add bytes of the state of a message session, negative for what it had."""
        self.state_bytes += count
        assert self.state_bytes >= 0, count

    def pack(self) -> bytes:
        """Return the row for the `state` table."""
        return STATE_VALUE.pack(self.next_counter, self.bytes_used, *self.messages, self.large_bytes, self.state_bytes)

    @classmethod
    def unpack(cls, row: bytes | None, first_counter: int = 1) -> Counters:
        """Return the counters of a `state` row; None (no row) is a partition that never had a message.

        `first_counter` is the partition's lowest one, which a purge may have set.
        """
        if row is None:
            return cls(first_counter)
        next_counter, bytes_used, *messages, large_bytes, state_bytes = STATE_VALUE.unpack(row)
        return cls(max(next_counter, first_counter), bytes_used, messages, large_bytes, state_bytes)


def topic_bytes(own: Counters, copies: Sequence[Counters]) -> int:
    """The size of a topic in one store from its own counters and its subscriptions' [SB: service-bus-quotas].

    A large message counts for each of its copies and once more, while there is a copy. Which copies belong together is
    not known here: what counts once more is the subscription that has the most of them.
    """
    once_more = max((each.large_bytes for each in copies), default=0)
    return own.size_bytes + sum(each.copy_bytes for each in copies) + once_more


class ByteTotal:
    """The bytes of a topic's and its subscriptions' partitions in one messaging store.

    `bytes_used` follows every change of a row; None means that the next reader computes it from `open` (counters of the
    partitions in memory, by queue id) and from the store.
    """

    __slots__ = ("bytes_used", "open")

    def __init__(self) -> None:
        self.bytes_used: int | None = None
        self.open: dict[int, Counters] = {}

    def add(self, count: int) -> None:
        """Add `count` bytes, negative for removed rows."""
        if self.bytes_used is not None:
            self.bytes_used += count

    def set_bytes(self, bytes_used: int | None) -> None:
        """Set the sum; None has the next reader compute it."""
        self.bytes_used = bytes_used

    def forget(self, queue_id: int) -> None:
        """Remove a partition that is closed or that left the topic."""
        self.open.pop(queue_id, None)
        self.bytes_used = None
