"""The host that a client names in its `open`, before Proton sees the frame [AMQP 2.7.1].

Service Bus tells namespaces apart by it, and everything behind it belongs to one of them: so it is read first.
"""

from __future__ import annotations

from typing import Final

from ...codec.decode import decode
from ...codec.errors import DecodeError
from ...codec.types import Described

OPEN: Final = (0x10, "amqp:open:list")
HOSTNAME: Final = 1
"""The place of the field in the list."""


def host_opened(data: bytes, frame_bytes_max: int) -> str | None:
    """The host in the `open` with which `data` begins; None if more has to come.

    Empty without one, and for anything but an open: Proton says then what is wrong.
    """
    if len(data) < 8:
        return None
    size = int.from_bytes(data[:4], "big")
    if not 8 <= size <= frame_bytes_max:
        return ""
    if len(data) < size:
        return None
    try:
        value, _ = decode(data[:size], 4 * data[4])
    except DecodeError:
        return ""
    if not isinstance(value, Described) or value.descriptor not in OPEN or not isinstance(value.value, list):
        return ""
    fields = value.value
    host = fields[HOSTNAME] if len(fields) > HOSTNAME else None
    return host if isinstance(host, str) else ""
