"""Writes to a file with waits for the disk, on the caller's thread or on one of its own.

Knows the thread and how it is asked and answers: through pipes, so that an event loop can watch for the answer. Does
not know what is written. `PythonWriter` is the reference; `Writer` of `_writing.c` does the same, its thread
without the GIL: neither does it wait for the event loop, nor the loop for it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final, Protocol

from ..folder import wait_for_disk

WRITES_MAX: Final = 3
"""Writes at a time: nothing, for the wait behind it; the record of a lap; a group."""

Writes = Sequence[tuple[int, bytes]]
"""Offset and content of each write, in their order."""

Written = tuple[int, int]
"""How many writes are made, with the waits behind them, and a code: 0 if these are all. Above 0: the error (errno) of
the wait for the disk behind the next write, of which it is unknown what is stored. Below 0: minus the error of the next
write, which was not made."""


class DiskWriter(Protocol):
    """Writes on a thread, or on the caller's: one `start`, followed by its `finish`, or one `write` at a time."""

    def run(self) -> None:
        """Make the writes of each `start` until `stop`: the body of the thread."""
        ...

    def start(self, writes: Writes, waits: bool = True, /) -> None:
        """Let the thread make at most WRITES_MAX writes; returns at once. ValueError for more, and if it has others.

        Behind each write the thread waits for the disk, behind the last one only if it `waits`.
        """
        ...

    def write(self, writes: Writes, waits: bool = True, /) -> Written:
        """Make the writes on the caller's thread, as the thread would; see `start`, also for the errors."""
        ...

    def fileno(self) -> int:
        """Return what can be read once the writes have ended."""
        ...

    def finish(self) -> Written:
        """Wait until the writes have ended; return what became of them."""
        ...

    def stop(self) -> None:
        """End `run`, after the current writes."""
        ...

    def close(self) -> None:
        """Close the pipes, after the end of `run`; the file stays open, and nothing more is written to it."""
        ...


class PythonWriter:
    """Writes to the open file `fd`; see `DiskWriter`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._asked, self._ask = os.pipe()
        self._ended, self._end = os.pipe()
        self._writes: Writes = ()
        self._waits = True
        self._written: Written = 0, 0

    def run(self) -> None:
        while os.read(self._asked, 1):
            self._written = self._write_all()
            os.write(self._end, b"\0")

    def start(self, writes: Writes, waits: bool = True, /) -> None:
        self._take(writes, waits)
        os.write(self._ask, b"\0")

    def write(self, writes: Writes, waits: bool = True, /) -> Written:
        self._take(writes, waits)
        written = self._write_all()
        self._writes = ()
        return written

    def _take(self, writes: Writes, waits: bool) -> None:
        if self._writes:
            raise ValueError(f"{len(self._writes)} writes have not ended")
        if len(writes) > WRITES_MAX:
            raise ValueError(f"{len(writes)} writes at a time; at most {WRITES_MAX}")
        self._writes, self._waits = writes, waits

    def fileno(self) -> int:
        return self._ended

    def finish(self) -> Written:
        os.read(self._ended, 1)
        self._writes = ()
        return self._written

    def stop(self) -> None:
        if self._ask >= 0:
            os.close(self._ask)
            self._ask = -1

    def close(self) -> None:
        self.stop()
        for fd in (self._asked, self._ended, self._end):
            if fd >= 0:
                os.close(fd)
        self._asked = self._ended = self._end = self._fd = -1

    def _write_all(self) -> Written:
        last = len(self._writes) - 1
        for number, (offset, data) in enumerate(self._writes):
            try:
                if os.pwrite(self._fd, data, offset) != len(data):
                    return number, -errno.ENOSPC
            except OSError as error:
                return number, -(error.errno or errno.EIO)
            if number == last and not self._waits:
                continue
            try:
                wait_for_disk(self._fd)
            except OSError as error:
                return number, error.errno or errno.EIO
        return len(self._writes), 0
