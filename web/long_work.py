"""Work of requests that may take long, without making others wait.

What can be cut is cut: the work asks its `Pace` between two pieces, which lets the event loop go on when a piece of
time is used up. What can't be cut, because a sender or a caller decides how long it takes (to read their JSON or XML,
to decode a message, to write a large answer), is done on a thread beside the loop (`broker/aside.py`). It must not be a
long call in C, which keeps the interpreter until it ends: `json_reader` reads in stretches for that reason, and
`json_writer` writes so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from ..broker.aside import Aside
from ..broker.clock import Clock

PIECE_US: Final = 2_000
"""How long work goes on before the loop gets its turn."""


class Pace:
    """Where a piece of work may be cut."""

    def __init__(self, stopwatch_us: Callable[[], int] = Clock.stopwatch_us) -> None:
        self._stopwatch_us = stopwatch_us
        self._until_us = stopwatch_us() + PIECE_US

    async def step(self) -> None:
        """Let the event loop go on if this piece has used up its time."""
        if self._stopwatch_us() >= self._until_us:
            await self.turn()

    async def turn(self) -> None:
        """Let the event loop go on."""
        await asyncio.sleep(0)
        self._until_us = self._stopwatch_us() + PIECE_US


ASIDE: Final = web.AppKey("aside", Aside)
"""Where an application has its thread."""
