"""LMDB's data file from outside: room on its disk, its newest root, whether it is complete.

Knows sizes, limits of the disk and the two root pages. Leaves the other pages to `lmdb_reading.py`. Owns nothing.
"""

from __future__ import annotations

import errno
import os
import resource
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .checksum import crc32
from .folder import wait_for_disk

# A disk with less room than this counts as full if a write fails without a reason.
_NEARLY_FULL_BYTES = 1024 * 1024

# The two root pages of an LMDB 0.9 file (MDB_meta in its mdb.c), in this machine's byte order. Behind a page header of
# 16 bytes: magic, version; at 24 of that the page size; at 120 the last page and the transaction that wrote the root.
_BYTE_ORDER: Final = "<" if sys.byteorder == "little" else ">"
_HEAD: Final = struct.Struct(f"{_BYTE_ORDER}16xII16xI")
_STATE: Final = struct.Struct(f"{_BYTE_ORDER}QQ")
_STATE_AT: Final = 136
_ROOT_BYTES: Final = _STATE_AT + _STATE.size
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_PAGE_BYTES: Final = frozenset(1 << power for power in range(9, 16))
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Root:
    """The newer root page: the transaction that wrote it, and how many pages the file may have."""

    transaction: int
    page_bytes: int
    page_count: int


def newest_root(data_file: Path) -> Root:
    """Return the state that LMDB would open. ValueError: the file is cut short, or not LMDB's. OSError."""
    with data_file.open("rb") as file:
        first = _parsed_root_page(file.read(_ROOT_BYTES), 0)
        file.seek(first.page_bytes)
        second = _parsed_root_page(file.read(_ROOT_BYTES), 1)
    if first.page_bytes != second.page_bytes:
        raise ValueError("its two root pages disagree about the page size")
    return max(first, second, key=lambda each: each.transaction)


def _parsed_root_page(content: bytes, number: int) -> Root:
    if len(content) < _ROOT_BYTES:
        raise ValueError(f"it is cut short: root page {number} is missing")
    magic, version, page_bytes = _HEAD.unpack_from(content)
    if magic != _MAGIC or version != _VERSION or page_bytes not in _PAGE_BYTES:
        raise ValueError(f"root page {number} is damaged, or the file isn't LMDB's")
    last_page, transaction = _STATE.unpack_from(content, _STATE_AT)
    return Root(transaction, page_bytes, last_page + 1)


def rewrite_roots(data_file: Path) -> None:
    """Make both root pages durable as they are read now. ValueError: not LMDB's file. OSError.

    A root whose write has failed may be on the disk and not in the kernel's cache, or the other way round; and a page
    whose write has failed counts as written, so that another wait for the disk succeeds and proves nothing. What is
    written again is waited for again. It has to be done before anything is written into pages that the other root uses.
    """
    page_bytes = newest_root(data_file).page_bytes
    fd = os.open(data_file, os.O_RDWR | os.O_CLOEXEC)
    try:
        roots = os.pread(fd, 2 * page_bytes, 0)
        if os.pwrite(fd, roots, 0) != len(roots):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        wait_for_disk(fd)
    finally:
        os.close(fd)


def has_all_pages(data_file: Path, root: Root) -> bool:
    """Whether the file has every page that its root counts. (A sound file may lack free pages at its end.)"""
    return data_file.stat().st_size >= root.page_count * root.page_bytes


def checksum(data_file: Path) -> int:
    """Return the CRC-32 of the whole file; about a second per GB. OSError."""
    value = 0
    with data_file.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            value = crc32(chunk, value)
    return value


def allocate(file: Path, start: int, end: int) -> None:
    """Give these bytes of a file room on the disk; those behind its end become zeros. OSError: some have none."""
    if not hasattr(os, "posix_fallocate"):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_fallocate(fd, start, end - start)
    finally:
        os.close(fd)


def is_full(data_file: Path) -> bool:
    """Distinguish "no room" from other failures: LMDB reports EIO for a write that the kernel has cut short.

    The kernel wrote what did fit, so afterwards the disk is full, or the file has the size limit.
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
