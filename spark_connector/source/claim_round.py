"""One round of a query with `mode=claim`: finished messages are deleted, and the next ones claimed.

A `Round` is what is to be done and what was done so far, so that an attempt goes on where the last one failed. `Ahead`
runs one beside the batch. Does not know how messages are claimed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import ConnectorError
from .offsets import Run, size_of, together, without

STOP_WAIT_S = 5.0  # a request is answered within it; what a claim that is cut off has marked is adopted


class Round:
    """Claims up to `wanted` messages (None: all that are there), and deletes those of `finished`."""

    def __init__(self, finished: tuple[Run, ...], wanted: int | None) -> None:
        self.wanted = wanted
        self.finished = finished
        """What is still to be deleted."""
        self.deleted: tuple[Run, ...] = ()
        self.claimed: tuple[Run, ...] = ()
        self.failure: ConnectorError | None = None
        """Why some of the finished messages could not be deleted."""

    @property
    def missing(self) -> int | None:
        """How many to claim yet; None: all."""
        return None if self.wanted is None else max(0, self.wanted - size_of(self.claimed))

    @property
    def is_full(self) -> bool:
        return self.missing == 0

    def claim(self, runs: tuple[Run, ...]) -> None:
        """These messages are claimed."""
        self.claimed = together(self.claimed, runs)

    def delete(self, runs: tuple[Run, ...]) -> None:
        """These finished messages are gone."""
        self.deleted = together(self.deleted, runs)
        self.finished = without(self.finished, runs)

    def begin_again(self) -> None:
        """The entity was replaced: what was claimed and finished is gone with the earlier one."""
        self.claimed = self.finished = self.deleted = ()


class Ahead:
    """Work on a thread of its own. `join` waits for it, and raises what it has raised."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="emubus-spark-claim", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the work."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Wait shortly: the query ends."""
        self._thread.join(STOP_WAIT_S)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # the query's thread has it then
            self._error = error
