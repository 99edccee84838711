"""What the process has of the system: file descriptors, and memory that it no longer needs.

Knows the system's calls. Does not know who needs descriptors and memory (`broker/ledger.py`).
"""

from __future__ import annotations

import resource
from typing import Final

import structlog

OWN_DESCRIPTORS: Final = 192
"""What is not for connections: 17 stores and their locks, the journal, listening sockets, files of snapshots and
downloads. A guess with room: a server of 16 stores has some 60 open (`ls /proc/PID/fd`)."""
CONNECTIONS_MIN: Final = 32

log = structlog.get_logger("emubus")


def raise_descriptors() -> None:
    """Use as many descriptors as the process may: the soft limit of a shell is 1 024, for the sake of `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:  # macOS says "unlimited" and means a number of its own
            log.debug("the limit of descriptors can't be raised", soft=soft, hard=hard, error=str(error))


def sockets_max() -> int | None:
    """How many connections there may be; None is any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(CONNECTIONS_MIN, soft - OWN_DESCRIPTORS)


def trim() -> None:
    """Give memory that is free in the C library's heaps back to the system; nothing where it can't do that."""
    import ctypes  # seldom needed, and a start does not

    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
