"""Limits how long the workers of all stores work in one turn of the event loop, so that connections are heard between.

Without it, sixteen large batches that are ready together are one turn. Used on the event loop; shared by the workers of
a `Namespace`.
"""

from __future__ import annotations

import asyncio
from typing import Final

TURN_US: Final = 2_000
"""Large batches begin until so much of a turn of the loop is used. With more, connections are heard later; with less,
what sixteen stores do takes more turns, each with a look at all sockets."""

SMALL_TURN_US: Final = 8_000
"""Small ones begin until so much is used; stores without a disk never let the loop go else."""

assert TURN_US < SMALL_TURN_US, "a large batch would begin where a small one waits"


class Pace:
    """The time that workers have used in this turn of the loop."""

    def __init__(self) -> None:
        self.used_us = 0
        """In this turn; a batch need not `wait` up to TURN_US."""
        self._next_turn = asyncio.Event()

    def add(self, used_us: int) -> None:
        """A worker has worked for so many microseconds without waiting."""
        if not self.used_us:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self.used_us += used_us or 1

    def _begin_turn(self) -> None:
        self.used_us = 0
        self._next_turn.set()
        self._next_turn.clear()  # those that waited go on

    async def pause(self) -> None:
        """Let the loop turn, and wait for a turn that has time left."""
        if not self.used_us:
            asyncio.get_running_loop().call_soon(self._begin_turn)
            self.used_us = 1
        await self._next_turn.wait()
        while self.used_us > TURN_US:
            await self._next_turn.wait()

    async def wait(self, *, large: bool) -> None:
        """Large batches wait for a turn that has time left, small ones for the next turn if much is used."""
        if large:
            while self.used_us > TURN_US:
                await self._next_turn.wait()
        elif self.used_us > SMALL_TURN_US:
            await self._next_turn.wait()  # once: large ones would be ready before it in each
