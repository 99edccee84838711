"""The locks that the page took for its user: lock tokens by entity and sequence number, until they expire.

Bounded: the oldest is forgotten first, and its lock then expires by itself.
"""

from __future__ import annotations

from typing import Final

from ....broker.clock import Clock
from ....broker.model.descriptions import entity_key

TAKEN_MAX: Final = 1_000


class TakenLocks:
    """Lock tokens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens: dict[tuple[str, int], tuple[bytes, int]] = {}

    def put(self, path: str, number: int, token: bytes, until_at: int) -> None:
        """Keep a token until its lock ends (Unix ms)."""
        self._tokens[entity_key(path), number] = token, until_at
        if len(self._tokens) > TAKEN_MAX:
            del self._tokens[next(iter(self._tokens))]

    def token(self, path: str, number: int) -> bytes | None:
        """The token of a message, if the page has locked it."""
        token, until_at = self._tokens.get((entity_key(path), number), (None, 0))
        return token if until_at > self._clock.now_ms() else None

    def forget(self, path: str, number: int) -> None:
        """Drop a token."""
        self._tokens.pop((entity_key(path), number), None)
