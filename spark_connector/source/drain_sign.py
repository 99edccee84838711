"""A sign for the second of two queries that drain one entity: a warning that names the first.

Each deletes what it has read itself, perhaps before the other one has read it. The service knows no owner of an entity,
so the sign is a name in the machine's abstract socket namespace, which the kernel takes away with the process, however
it ends: it shows drains that run on the same machine, as long as their processes live. Systems without such names have
no sign. Does not stop the second one, because an earlier run of the same query may be about to end.
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
import sys
from hashlib import blake2b

from ..options import SourceOptions

log = logging.getLogger("emubus.spark")
CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group
ASKED_MAX = 64
"""Processes that may ask who has a sign; the others are not told the number."""
_held: dict[str, int] = {}  # descriptors by name, of the entities that this process drains: the kernel closes them


def sign_of(options: SourceOptions) -> str:
    endpoint = options.connection.endpoint
    name = f"{endpoint.host}:{endpoint.port}/{options.entity}".casefold()
    return f"\0emubus-drain-{blake2b(name.encode(), digest_size=8).hexdigest()}"


def announce_drain(options: SourceOptions) -> None:
    """Say that this process drains the entity; log a warning if another one has said so."""
    name = sign_of(options)
    if sys.platform != "linux" or name in _held:
        return
    try:
        _held[name] = _put_up(name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:  # a sandbox may forbid it
            log.info("%s: it is not known whether another query drains it: %s", options.entity, error)
            return
        log.warning(
            "%s: %s drains it, too. Each of the two deletes messages that the other may not have read: end one, or "
            "give each a subscription of its own. (If that is an earlier run of this query, it is about to end.)",
            options.entity,
            _holder(name),
        )


def _put_up(name: str) -> int:
    sign = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sign.bind(name)
        sign.listen(ASKED_MAX)
    except OSError:
        sign.close()
        raise
    return sign.detach()  # an object would be reported as unclosed when the process ends


def _holder(name: str) -> str:
    """The process that has a sign, as far as the kernel says."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # nobody accepts: its queue may be full
        try:
            probe.connect(name)
            number, _, _ = CREDENTIALS.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
        except OSError:
            return "another process on this machine"
    return f"process {number}"
