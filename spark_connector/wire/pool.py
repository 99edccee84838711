"""Connections that are kept between tasks: a worker process of an executor runs one task after the other.

Knows when a connection may be used again. Does not know its purpose. A connection is given to one block at a time. It
returns to the pool if the block ends without an error and leaves nothing open; otherwise it is closed. The next user
discards connections that were idle for too long or belong to another process; there is no background thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..dialing.credentials import Credential
from ..dialing.endpoint import Endpoint
from ..timing import monotonic_s
from .connection import Connection

IDLE_MAX: Final = 8
"""Connections of one kind that wait for use, as many as tasks run in a usual worker at once; more are closed."""

_Key = tuple[int, Endpoint, Credential]
_Idle = list[tuple[Connection, float]]

_idle: dict[_Key, _Idle] = {}
# Changed by single list and dict operations only, which threads can't interrupt: a lock could be copied by a fork while
# it is held, and never be released in the child.


@contextmanager
def pooled(endpoint: Endpoint, credential: Credential) -> Iterator[Connection]:
    """A connection for the length of a block; ConnectorError(UNAVAILABLE) if none can be made."""
    key = (os.getpid(), endpoint, credential)
    _discard_old()
    connection = _take(key) or Connection(endpoint, credential)
    try:
        yield connection
    except BaseException:  # also GeneratorExit: the state of the connection is unknown
        connection.close()
        raise
    if connection.is_idle():
        waiting = _idle.setdefault(key, [])
        waiting.append((connection, monotonic_s()))
        if len(waiting) <= IDLE_MAX:
            return
        connection, _ = waiting.pop(0)
    connection.close()


def _take(key: _Key) -> Connection | None:
    """The most recently used connection that still works."""
    waiting = _idle.get(key)
    while waiting:
        try:
            connection, _ = waiting.pop()
        except IndexError:  # another thread was faster
            return None
        if connection.refresh():
            return connection
        connection.close()
    return None


def _discard_old() -> None:
    now_s, pid = monotonic_s(), os.getpid()
    for key in list(_idle):
        waiting = _idle.get(key, [])
        while waiting:
            try:
                connection, since_s = waiting.pop(0)
            except IndexError:
                break
            if key[0] == pid and now_s - since_s <= key[1].idle_timeout_s:
                waiting.insert(0, (connection, since_s))  # those behind it are younger
                break
            connection.close()
        if not waiting and key[0] != pid:
            _idle.pop(key, None)
