"""What a process has used of the processors, in nanoseconds, as the kernel counts it.

Knows `/proc` and the kernel's clocks of other processes. Linux only: elsewhere the functions raise OSError.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_CPUCLOCK_SCHED: Final = 2


class ThreadTime(NamedTuple):
    """A thread's time on a processor and its time ready but without one, in nanoseconds."""

    used_ns: int
    waited_ns: int


@dataclass(frozen=True, slots=True)
class Used:
    """Processor time in nanoseconds: of the main thread, and of all threads, those that have ended included."""

    main_ns: int
    process_ns: int

    def since(self, earlier: Used) -> Used:
        """The difference."""
        return Used(self.main_ns - earlier.main_ns, self.process_ns - earlier.process_ns)


def parse_schedstat(text: str) -> ThreadTime:
    """Read a line of the kernel's `schedstat`: time used, time waited, time slices. Raises ValueError."""
    used_ns, waited_ns, _ = map(int, text.split())
    return ThreadTime(used_ns, waited_ns)


def main_thread(pid: int) -> ThreadTime:
    """The main thread of a process. Raises OSError if there is no such process."""
    return parse_schedstat(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text())


def used(pid: int) -> Used:
    """Processor time of a process so far. Raises OSError if there is no such process."""
    # The id of another process's clock, as clock_getcpuclockid(3) makes it.
    process_ns = time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    return Used(main_thread(pid).used_ns, process_ns)
