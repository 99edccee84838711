"""What is done once behind the input of a peer: the stores that have got requests from it execute them.

A peer that is heard alone has its requests executed, and answered, before the loop turns: nothing else is there that
could share a batch with them, and a turn costs a message alone more than its row does. With others heard at about the
same time the stores wait for the next turn, and have one batch for all. Does not know who is heard, and what is done.
Used on the event loop; shared by the connections and the workers of a `Namespace`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class TurnEnd:
    """The calls that wait for the end of this turn, or of the input that is `open`."""

    __slots__ = ("_calls", "_is_open", "_is_scheduled")

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._is_open = False
        self._is_scheduled = False

    def call(self, work: Callable[[], None]) -> None:
        """Call `work` with the next `run`: of the input that is open, else in the loop's next turn. It must not raise.

        A call that comes during a `run` is made in the next turn: others are heard before.
        """
        self._calls.append(work)
        if not self._is_open and not self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._run_in_time)
            self._is_scheduled = True

    def open(self) -> None:
        """From now on a `run` follows in this turn, whatever happens."""
        self._is_open = True

    def run(self) -> None:
        """Make the calls that wait."""
        self._is_open = False
        if self._calls:
            calls, self._calls = self._calls, []
            for work in calls:
                work()

    def _run_in_time(self) -> None:
        self._is_scheduled = False
        self.run()
