"""What brings the rows of a messaging store to this release's format.

Knows how rows were in older formats. Each function runs in the commit of the new version (docs/decisions/0023).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...storage import Batch, Upgrades
from ..identity import folded
from .records import (
    LARGE_ROW_BYTES,
    MESSAGES,
    OLD_STATE_VALUE,
    SESSION_HEADS,
    SESSION_MESSAGES,
    SESSION_NUMBER_KEY,
    SESSION_STATE,
    SESSION_VALUE,
    SESSIONS,
    STATE,
    STATE_KEY,
    Counters,
    large_bytes_of,
    message_key,
    session_key,
    session_message_key,
    session_number,
    session_number_key,
)

_ROWS_AT_ONCE: Final = 10_000
_STATES_AT_ONCE: Final = 16  # a state has at most a megabyte or, on Premium, the bytes of a message
_READ_BYTES: Final = 4 << 20  # of rows at once, by their average
_LAST_KEY: Final = b"\xff" * 512  # after all keys


def _fold_sessions(batch: Batch) -> None:
    """Up to format version 4 names that differ in case were message sessions of their own; those become one.

    It has the messages of all, in the order of their numbers, and the state that was set last.
    """
    renamed = [(key, row) for key, row in _rows(batch, SESSIONS) if not _is_folded(row)]
    for key, row in renamed:
        _fold_session(batch, STATE_KEY.unpack_from(key)[0], key, row)
    if renamed:
        _drop_later_heads(batch)


def _is_folded(row: bytes) -> bool:
    name = row[SESSION_VALUE.size :].decode()
    return folded(name) == name


def _fold_session(batch: Batch, queue_id: int, key: bytes, row: bytes) -> None:
    old, changed_at = SESSION_VALUE.unpack_from(row)
    name = row[SESSION_VALUE.size :].decode()
    new, new_key = session_number(name), session_key(queue_id, name)
    state_key, new_state_key = session_number_key(queue_id, old), session_number_key(queue_id, new)
    state, known = batch.get(SESSION_STATE, state_key), batch.get(SESSIONS, new_key)
    known_at = -1 if known is None else SESSION_VALUE.unpack_from(known)[1]
    batch.delete(SESSIONS, key)
    batch.delete(SESSION_STATE, state_key)
    if changed_at > known_at:
        batch.put(SESSIONS, new_key, SESSION_VALUE.pack(new, changed_at) + name.encode())
        if state is None:
            batch.delete(SESSION_STATE, new_state_key)
        else:
            batch.put(SESSION_STATE, new_state_key, state)
    start, stop = session_message_key(queue_id, old, 0), session_message_key(queue_id, old + 1, 0)
    while rows := batch.scan(SESSION_MESSAGES, start, stop, _ROWS_AT_ONCE):
        batch.delete_rows(SESSION_MESSAGES, [each for each, _ in rows])
        for each, _ in rows:
            batch.put(SESSION_MESSAGES, session_message_key(queue_id, new, int.from_bytes(each[-8:], "big")), b"")


def _drop_later_heads(batch: Batch) -> None:
    """Leave each session the row with its first message."""
    seen: set[tuple[int, str]] = set()
    later: list[bytes] = []
    for key, name in _rows(batch, SESSION_HEADS):
        session = SESSION_NUMBER_KEY.unpack(key)[0], folded(name.decode())
        if session in seen:
            later.append(key)
        seen.add(session)
    for key in later:
        batch.delete(SESSION_HEADS, key)


def _rows(batch: Batch, table: str) -> Iterator[tuple[bytes, bytes]]:
    start = b""
    while rows := batch.scan(table, start, _LAST_KEY, _ROWS_AT_ONCE):
        yield from rows
        start = rows[-1][0] + b"\0"


def _count_what_adds_to_sizes(batch: Batch) -> None:
    """Up to format version 5 counters lacked the bytes of large rows and of the states of message sessions."""
    for key, row in _rows(batch, STATE):
        if len(key) != STATE_KEY.size or len(row) != OLD_STATE_VALUE.size:
            continue  # damaged: what reads it next names it
        next_counter, bytes_used, *messages = OLD_STATE_VALUE.unpack(row)
        (queue_id,) = STATE_KEY.unpack(key)
        large_bytes = _large_bytes(batch, queue_id, bytes_used, sum(messages))
        counters = Counters(next_counter, bytes_used, messages, large_bytes, _state_bytes(batch, queue_id))
        batch.put(STATE, key, counters.pack())


def _large_bytes(batch: Batch, queue_id: int, bytes_used: int, count: int) -> int:
    if bytes_used <= LARGE_ROW_BYTES:
        return 0  # no row of most queues can be one
    at_once = max(1, _READ_BYTES * count // bytes_used)
    start, stop, found = message_key(queue_id, 0, 0), message_key(queue_id + 1, 0, 0), 0
    while rows := batch.scan(MESSAGES, start, stop, at_once):
        found += large_bytes_of(len(row) for _, row in rows)
        start = rows[-1][0] + b"\0"
    return found


def _state_bytes(batch: Batch, queue_id: int) -> int:
    start, stop, found = STATE_KEY.pack(queue_id), STATE_KEY.pack(queue_id + 1), 0
    while rows := batch.scan(SESSION_STATE, start, stop, _STATES_AT_ONCE):
        found += sum(len(row) for _, row in rows)
        start = rows[-1][0] + b"\0"
    return found


STORE_UPGRADES: Final[Upgrades] = {5: _fold_sessions, 6: _count_what_adds_to_sizes}
"""What a start does with the rows of an older format."""
