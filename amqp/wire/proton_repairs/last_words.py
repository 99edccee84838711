"""The last frames of a connection and of links, as clients need them.

A `close` that Proton writes by itself has an error without its info, and conditions that no standard has; Python
clients of all versions look for three fields, and raise IndexError. What is unsettled on a link that is freed Proton
settles in dispositions without a state, which are not for the client. Needed by Proton 0.40.0
(`tests/amqp/test_garbage.py`, `tests/amqp/test_refusals.py`).
"""

from __future__ import annotations

from typing import Final

from ....codec.decode import decode
from ....codec.encode import encode_list
from ....codec.frames import AMQP_HEADER, CLOSE, DISPOSITION, frame_ends, write_frame
from ....codec.types import Described, Symbol

_CLOSE_HEAD: Final = bytes((0, 0x53, CLOSE))
_DISPOSITION_HEAD: Final = bytes((0, 0x53, DISPOSITION))
_CONDITIONS_OF_PROTON: Final = {
    "amqp:not allowed": "amqp:not-allowed",
    "amqp:session:invalid-field": "amqp:invalid-field",
}
"""Conditions that Proton gives and no standard has."""


def without_dispositions(output: bytes) -> bytes:
    """Proton's output without its dispositions; whole frames, and none of them the protocol header."""
    kept: list[bytes] = []
    pos = 0
    for stop in frame_ends(output)[0]:
        if output[pos + 8 : pos + 11] != _DISPOSITION_HEAD:
            kept.append(output[pos:stop])
        pos = stop
    return b"".join(kept)


def with_whole_error(output: bytes) -> bytes:
    """Proton's last output: a `close` of its own gets a condition that exists and an error of three fields."""
    kept: list[bytes] = []
    pos = len(AMQP_HEADER) if output.startswith(AMQP_HEADER) else 0
    kept.append(output[:pos])
    for stop in frame_ends(output, pos)[0]:
        frame = output[pos:stop]
        if frame[8:11] == _CLOSE_HEAD:
            fields, _ = decode(frame, 11)
            error = fields[0] if isinstance(fields, list) and fields else None
            if isinstance(error, Described) and isinstance(error.value, list):
                condition, text, info = (*error.value, None, None, None)[:3]
                name = Symbol(_CONDITIONS_OF_PROTON.get(str(condition), str(condition)))
                whole = Described(error.descriptor, [name, text, {} if info is None else info])
                frame = write_frame(int.from_bytes(frame[6:8], "big"), CLOSE, encode_list([whole]))
        kept.append(frame)
        pos = stop
    return b"".join(kept)
