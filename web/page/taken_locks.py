"""The locks that the page took for its user: lock tokens by entity and sequence number, until they expire.

Bounded: the oldest is forgotten first, and its lock then expires by itself.
"""

from __future__ import annotations

from typing import Final

from ...broker.clock import Clock
from ...broker.identity import folded
from ...broker.model.descriptions import entity_key

TAKEN_MAX: Final = 1_000


class TakenLocks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens: dict[tuple[str, int], tuple[bytes, int, str | None]] = {}

    def put(self, path: str, number: int, token: bytes, until_at: int, session_id: str | None = None) -> None:
        """Keep a token until its lock ends (Unix ms); `session_id` is the session that is locked with it."""
        self._tokens[entity_key(path), number] = token, until_at, None if session_id is None else folded(session_id)
        if len(self._tokens) > TAKEN_MAX:
            del self._tokens[next(iter(self._tokens))]

    def token(self, path: str, number: int) -> bytes | None:
        """The token of a message, if the page has locked it."""
        token, until_at, _ = self._tokens.get((entity_key(path), number), (None, 0, None))
        return token if until_at > self._clock.now_ms() else None

    def forget(self, path: str, number: int) -> str | None:
        """Drop a token; the session of its message, if this was the last lock in it."""
        key = entity_key(path)
        _, _, session_id = self._tokens.pop((key, number), (b"", 0, None))
        now = self._clock.now_ms()
        others = (
            until_at > now and other == session_id
            for (path_key, _), (_, until_at, other) in self._tokens.items()
            if path_key == key
        )
        return None if any(others) else session_id
