"""The wait until what was written to a file is on the disk."""

from __future__ import annotations

import fcntl
import os
import sys


def wait_for_disk(fd: int) -> None:
    """Wait for what was written to the open file `fd`. OSError: it is unknown what is on the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # its fsync leaves data in the drive's cache; LMDB does the same
    else:
        os.fdatasync(fd)
