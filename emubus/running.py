"""Where the servers of this user are: each leaves a file in the runtime folder, and the command line looks there.

The folder is `emubus` in `XDG_RUNTIME_DIR`, else `emubus-UID` in the temporary folder; only its owner may write there,
so that nobody else can lead a client astray. A server holds a lock on its file as long as it lives: a file without one
is of a server that was killed. The files hold no keys.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .options import variables_of_process

BYTES_MAX: Final = 10_000
FILES_MAX: Final = 1_000


class Running(NamedTuple):
    """A server that runs; `data` is its data folder, None of one in memory."""

    url: str
    http_port: int
    amqp_port: int
    data: str | None

    def __str__(self) -> str:
        return f"{self.url} ({'in memory' if self.data is None else self.data})"


def folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of this user."""
    variables = variables_of_process() if environment is None else environment
    runtime = variables.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "emubus" if runtime else Path(variables.get("TMPDIR") or "/tmp") / f"emubus-{os.geteuid()}"


class Left:
    """The file of this server, until `remove`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def leave(server: Running) -> Left:
    """Leave the address of this server. OSError: there is no such folder, or another user has it."""
    place = folder()
    place.mkdir(mode=0o700, exist_ok=True)
    if not _is_own(place):
        raise PermissionError(f"{place} is another user's, or others may write in it")
    path = place / f"{os.getpid()}.json"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(descriptor, json.dumps(server._asdict()).encode())
    return Left(path, descriptor)


def servers() -> list[Running]:
    """The servers of this user that run, by their ports."""
    place = folder()
    try:
        paths = sorted(place.glob("*.json"))[:FILES_MAX] if _is_own(place) else []
    except OSError:
        return []
    found = (_read(path) for path in paths)
    return sorted((each for each in found if each is not None), key=lambda each: each.http_port)


def _is_own(place: Path) -> bool:
    status = place.lstat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _read(path: Path) -> Running | None:
    """What a file says; None of a server that is gone, or that is about to write it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            values = json.loads(os.read(descriptor, BYTES_MAX))
            url, http_port, amqp_port, data = (values[name] for name in Running._fields)
            if isinstance(url, str) and isinstance(http_port, int) and isinstance(amqp_port, int):
                return Running(url, http_port, amqp_port, data if isinstance(data, str) else None)
        else:
            path.unlink(missing_ok=True)  # of a server that was killed
    except (OSError, ValueError, TypeError, KeyError):
        return None
    finally:
        os.close(descriptor)
    return None


def nearest(found: Sequence[Running], data: Path, http_port: int) -> Running | None:
    """The server that a command means which names none: the one with the data folder of this place, the only one, or
    the one with the default port. None if that is not known."""
    own = str(data.resolve())
    chosen = [each for each in found if each.data == own] or found
    at_port = [each for each in chosen if each.http_port == http_port]
    return chosen[0] if len(chosen) == 1 else at_port[0] if at_port else None
