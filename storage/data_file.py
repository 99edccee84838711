"""LMDB's data file seen from outside, as a file: is there room for it, and was its making ever finished?

Knows sizes, limits of the disk and the first bytes of an LMDB file. Refuses to know pages. Owns nothing.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

# A disk with less room than this counts as full when a write fails without saying why.
_NEARLY_FULL_BYTES = 1024 * 1024

# Where and how an LMDB file says that it is one: behind the header of its first page, in this machine's byte order.
_MAGIC_AT, _MAGIC = 16, (0xBEEFC0DE).to_bytes(4, sys.byteorder)


def is_full(data_file: Path) -> bool:
    """Tell "no room" from other failures: LMDB says EIO for a write that the kernel has cut short.

    What did fit was written, so afterwards the disk is full, or the file as long as a file may be.
    """
    longest_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    try:
        disk = os.statvfs(data_file.parent)
        file_bytes = data_file.stat().st_size
    except OSError:
        return False
    if longest_bytes != resource.RLIM_INFINITY and file_bytes + os.sysconf("SC_PAGE_SIZE") > longest_bytes:
        return True
    return disk.f_bavail * disk.f_frsize < _NEARLY_FULL_BYTES


def drop_unborn(data_file: Path) -> None:
    """Remove a file whose making was cut short (full disk, power): no longer than two roots, it holds no commit.

    LMDB would refuse it for ever. A file that isn't LMDB's is left for it to refuse.
    """
    try:
        if data_file.stat().st_size <= 2 * os.sysconf("SC_PAGE_SIZE"):
            head = data_file.read_bytes()
            if not any(head) or head[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC:
                data_file.unlink()
    except FileNotFoundError:
        pass
