"""A store's folder: made, locked for this process alone, and its entries made durable.

Knows flock and fsync of folders. Refuses to know what lies inside. The store that opened a folder owns its
`FolderLock` and releases it last. The lock is the kernel's: it goes with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .contract import StoreError, StoreFailed

LOCK_FILE = "emubus.lock"


class FolderLock:
    """Exclusive use of one store folder, held until `release()` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Take the lock; StoreError names the folder, and the holder if known, when another has it."""
        try:
            self._fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreFailed(folder, f"can't open {LOCK_FILE}: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            who = f"another emubus (process {holder})" if holder else "another emubus"
            raise StoreError(folder, f"is in use by {who}; two can't share one data folder") from None
        except OSError as error:
            os.close(self._fd)
            raise StoreFailed(folder, f"can't lock {LOCK_FILE}: {error.strerror}") from error
        try:  # the number only makes the other side's error clearer: a full disk must not keep a store closed
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, str(os.getpid()).encode("ascii"), 0)
        except OSError:
            pass

    def release(self) -> None:
        """Let others in; twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def make_folder(folder: Path) -> list[Path]:
    """Make the folder and its parents; return the folders that got a new entry. Raises StoreFailed."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreFailed(folder, f"can't make the folder: {error.strerror}") from error
    return [each.parent for each in missing]


def sync_folders(store: Path, parents: list[Path]) -> None:
    """Make the entries of these folders durable: fsync of a file keeps its bytes, not its name."""
    for each in (store, *parents):
        try:
            fd = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise StoreFailed(store, f"can't sync the folder {each}: {error.strerror}") from error
