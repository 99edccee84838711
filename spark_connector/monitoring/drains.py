"""A sign for the second of two queries that drain one entity: a warning that names the first.

Each deletes what it has read itself, perhaps before the other one has read it. The service knows no owner of an entity,
so the sign is a locked file in the machine's folder for temporary files: it shows drains that run on the same machine,
as long as their processes live. Does not stop anybody, because an earlier run of the same query may be about to end.
"""

from __future__ import annotations

import logging
import os
import tempfile
from hashlib import blake2b
from pathlib import Path

from ..options import SourceOptions

try:
    import fcntl
except ImportError:  # Windows has none; then there is no sign
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("emubus.spark")
NOTE_BYTES_MAX = 200
_held: dict[Path, int] = {}  # the files that this process has locked; they stay open until it ends


def note_path(options: SourceOptions) -> Path:
    """The file of an entity."""
    endpoint = options.connection.endpoint
    name = f"{endpoint.host}:{endpoint.port}/{options.entity}".casefold()
    return Path(tempfile.gettempdir()) / f"emubus-drain-{blake2b(name.encode(), digest_size=8).hexdigest()}.lock"


def announce_drain(options: SourceOptions) -> None:
    """Say that this process drains the entity; log a warning if another one has said so."""
    path = note_path(options)
    if fcntl is None or path in _held:
        return
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:  # another user's file
        log.info("%s: it is not known whether another query drains it: %s", options.entity, error)
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        other = os.read(file, NOTE_BYTES_MAX).decode(errors="replace").strip()
        os.close(file)
        log.warning(
            "%s: %s drains it, too. Each of the two deletes messages that the other may not have read: end one, or "
            "give each a subscription of its own. (If that is an earlier run of this query, it is about to end.)",
            options.entity,
            other or "another process on this machine",
        )
        return
    os.ftruncate(file, 0)
    os.write(file, f"process {os.getpid()}, started by process {os.getppid()},\n".encode())
    _held[path] = file
