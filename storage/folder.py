"""A store's folder: private to its owner, locked for one process, with durable entries.

Knows modes, flock, and the wait until a folder or a file is on the disk; not what is in them. The store that opened a
folder owns its `FolderLock` and releases it last. The kernel releases the lock when the process ends, in any way.

The files hold messages and keys in clear text, so only the owner may read them. In a folder that its group may write,
such as a container's volume for any user of one group, new files get the folder's group rights.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO, Final

from .contract import StoreError, StoreFailed

LOCK_FILE = "emubus.lock"

OWNER_FOLDER_MODE: Final = 0o700
OWNER_FILE_MODE: Final = 0o600
_OTHERS_MODE: Final = 0o077
_NO_FOLDER_LOCKS: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP})
"""What file systems answer that can lock files only."""
_HOLDER_BYTES: Final = 32  # content of a lock file: the id of the process that took it last


class FolderLock:
    """The lock of one folder, held until `release()` or the end of the process.

    A writer has it alone. Readers share it, make no lock file, and so write nothing. It is on the folder itself, which
    nobody can delete and make again without being noticed (`DataFolder.is_in_place`), and on a file in it: a folder on
    NFS can't be locked, and an older release looks at the file alone.
    """

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        """Take the lock; StoreError names the folder, and the holder if known, if another process has it."""
        self._fds: list[int] = []
        how = (fcntl.LOCK_SH if reading else fcntl.LOCK_EX) | fcntl.LOCK_NB
        try:
            self._lock_folder(folder, how)
            self._lock_file(folder, how, reading=reading)
        except BlockingIOError:
            self.release()
            holder = _holder(folder)
            who = f"another emubus (process {holder})" if holder else "another emubus"
            raise StoreError(folder, f"is in use by {who}; two can't share one data folder") from None
        except BaseException:
            self.release()
            raise
        if not reading:
            self._note_holder(folder)

    def _lock_folder(self, folder: Path, how: int) -> None:
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StoreFailed(folder, "the folder doesn't exist") from None
        except OSError:
            return  # not readable: the file tells, or the next step
        self._fds.append(fd)
        try:
            fcntl.flock(fd, how)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in _NO_FOLDER_LOCKS:
                raise StoreFailed(folder, f"can't be locked: {error.strerror}") from error

    def _lock_file(self, folder: Path, how: int, *, reading: bool) -> None:
        flags = os.O_RDONLY if reading else os.O_RDWR | os.O_CREAT
        try:
            fd = os.open(folder / LOCK_FILE, flags | os.O_CLOEXEC, file_mode(folder))
        except FileNotFoundError:
            if reading:
                return  # it was never opened for writing
            raise StoreFailed(folder, "the folder doesn't exist") from None
        except OSError as error:
            raise StoreFailed(folder, f"can't open {LOCK_FILE}: {reason_of(error, folder)}") from error
        self._fds.append(fd)
        try:
            fcntl.flock(fd, how)
        except BlockingIOError:
            raise
        except OSError as error:
            raise StoreFailed(folder, f"can't lock {LOCK_FILE}: {error.strerror}") from error

    def _note_holder(self, folder: Path) -> None:
        fd = self._fds[-1]  # of the file
        with contextlib.suppress(OSError):  # another user's file: that user decides who may lock it
            os.fchmod(fd, file_mode(folder))
        with contextlib.suppress(OSError):  # it only improves the other process's error, so a full disk does not matter
            os.pwrite(fd, f"{os.getpid():<{_HOLDER_BYTES}}".encode("ascii"), 0)  # no truncation: it costs a sync

    def release(self) -> None:
        """Release the lock; calling it twice is allowed."""
        while self._fds:
            os.close(self._fds.pop())


def _holder(folder: Path) -> str:
    """Return the id of the process that took the lock of a folder last, "" if that is unknown."""
    try:
        with (folder / LOCK_FILE).open("rb") as file:
            return file.read(_HOLDER_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""


def make_folder(folder: Path) -> list[Path]:
    """Make the folder, for its owner alone, and its parents; return the folders that got a new entry. StoreFailed."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=OWNER_FOLDER_MODE)
            kept = folder.stat().st_mode & stat.S_ISGID  # new files in it get its group
            folder.chmod(OWNER_FOLDER_MODE | _group_mode(folder.parent, 0o070) | kept)
    except OSError as error:
        raise StoreFailed(folder, f"can't make the folder: {reason_of(error, folder)}") from error
    if not folder.is_dir():
        raise StoreFailed(folder, "can't make the folder: a file has its name")
    return [each.parent for each in missing]


def file_mode(folder: Path) -> int:
    """Return the mode of a new file in this folder."""
    return OWNER_FILE_MODE | _group_mode(folder, 0o060)


def keep_private(file: Path) -> None:
    """Give a new file the mode of `file_mode`. OSError."""
    file.chmod(file_mode(file.parent))


def make_private_file(file: Path) -> BinaryIO:
    """Open a new or emptied file for writing, with the mode of `file_mode`. OSError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, file_mode(file.parent))
    return os.fdopen(descriptor, "wb")


def open_to_others(path: Path) -> bool:
    """Whether users other than the owner (or a group with write access) may read this file or enter this folder."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return bool(mode & _OTHERS_MODE and not (mode & stat.S_IWGRP and not mode & stat.S_IRWXO))


def _group_mode(folder: Path, mask: int) -> int:
    """Return the group rights of new files in this folder: those of the folder if its group may write there."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return 0
    shared = mode & stat.S_IWGRP and not mode & stat.S_IWOTH
    return mode & mask if shared else 0


def reason_of(error: OSError, folder: Path) -> str:
    """Why the folder can't be used; for missing permissions also the user and the owner."""
    if not isinstance(error, PermissionError):
        return error.strerror or str(error)
    found = next(each for each in (folder, *folder.parents) if each.exists())
    status = found.stat()
    return (
        f"{error.strerror}: {found} belongs to user {status.st_uid} and group {status.st_gid} with mode "
        f"{stat.S_IMODE(status.st_mode):04o}, and emubus runs as user {os.geteuid()} of group {os.getegid()}; "
        "run it as that user, give the folder to this one, or name another folder with --data"
    )


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


def wait_for_disk(fd: int) -> None:
    """Wait for what was written to the open file `fd`. OSError: it is unknown what is on the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # its fsync leaves data in the drive's cache; LMDB does the same
    else:
        os.fdatasync(fd)
