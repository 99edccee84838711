"""Chance that can be repeated: every decision is a number made from a seed, and from nothing else.

Decision `n` of a stream depends on the seed, the behaviour and what the stream is for, so that streams do not disturb
each other: neither another entity nor another behaviour shifts one. Does not know what is decided.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

SEED_MAX: Final = (1 << 53) - 1
"""The largest seed: JSON's numbers carry it exactly."""
_RANGE: Final = 1 << 64


def fraction(seed: int, behaviour: str, scope: str, number: int) -> float:
    """A number from 0 up to and without 1: that decision of that stream."""
    text = f"{seed}\n{behaviour}\n{scope}\n{number}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest()) / _RANGE


class Stream:
    """The decisions of one behaviour, counted for each scope, such as an entity."""

    def __init__(self, seed: int, behaviour: str) -> None:
        self._seed = seed
        self._behaviour = behaviour
        self._counts: dict[str, int] = {}

    def draw(self, scope: str) -> float:
        """The next decision for that scope, from 0 up to and without 1."""
        number = self._counts[scope] = self._counts.get(scope, 0) + 1
        return fraction(self._seed, self._behaviour, scope, number)

    def count(self, scope: str) -> int:
        """How many decisions there were for that scope."""
        return self._counts.get(scope, 0)

    def between(self, scope: str, least: int, most: int) -> int:
        """The next decision for that scope as a whole number of a range."""
        return least + int(self.draw(scope) * (most - least + 1))
