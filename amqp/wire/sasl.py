"""The SASL layer of one connection, as a machine without I/O: bytes in, bytes out [AMQP 5.3, wire 1.1, 1.2].

Knows protocol headers, the four mechanisms and that a client may skip the layer. Done by hand because Proton's SASL
server doesn't know MSSBCBS, the only mechanism that .NET speaks. Does not know what a key opens: it is handed a
function for that. Owned by its connection, which drops it when `stage` is DONE.

After the outcome nothing is written until the client's AMQP header is here: rhea parks whatever comes with the
outcome and would wait for it for ever [wire 0, rule 3].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Final

from ...broker.errors import BrokerError
from ...codec.decode import decode
from ...codec.encode import encode_array, encode_described, encode_list, list_from_items
from ...codec.errors import DecodeError
from ...codec.frames import AMQP_HEADER, SASL_HEADER
from ...codec.types import Described, Symbol, Ubyte, Ulong

MECHANISMS: Final = ("MSSBCBS", "ANONYMOUS", "PLAIN", "EXTERNAL")
_MECHANISMS_CODE, _OUTCOME_CODE = Ulong(0x40), Ulong(0x44)
_INIT_DESCRIPTORS: Final = (0x41, "amqp:sasl-init:list")
_OK, _AUTH = Ubyte(0), Ubyte(1)


class Stage(Enum):
    """How far the handshake has come."""

    HEADER = auto()
    INIT = auto()
    AMQP_HEADER = auto()
    DONE = auto()
    """The AMQP layer takes over; `rest` begins with its header."""
    REFUSED = auto()
    """Write what was returned, then close."""


def _frame(code: Ulong, fields: bytes) -> bytes:
    body = encode_described(code, fields)
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def _mechanisms_frame(names: Sequence[str]) -> bytes:
    return _frame(_MECHANISMS_CODE, list_from_items(1, encode_array(0xA3, [Symbol(name) for name in names])))


class SaslServer:
    """`show_key(name, key)` keeps what a key opens; `verifies` says whether links need one, or a token.

    A wrong key opens nothing: the client's links are refused, not its connection [wire 1.2]. Neither does a client that
    skips SASL show anything: JavaScript's live test "Authentication via SAS" does, and puts a token then. Where keys
    are verified EXTERNAL isn't offered: Proton's clients choose it before PLAIN, and it shows no key.
    """

    def __init__(self, show_key: Callable[[str, str], None], *, verifies: bool, frame_bytes_max: int) -> None:
        self.stage = Stage.HEADER
        self.rest = b""
        self._mechanisms = tuple(name for name in MECHANISMS if name != "EXTERNAL" or not verifies)
        self._show_key = show_key
        self._frame_bytes_max = frame_bytes_max

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the client, give those to write; look at `stage` afterwards."""
        self.rest += data
        out = b""
        while True:
            before = self.stage
            out += _STEPS[before](self)
            if self.stage is before or self.stage in (Stage.DONE, Stage.REFUSED):
                return out

    def _header(self) -> bytes:
        if self.rest.startswith(SASL_HEADER):
            self.rest = self.rest[8:]
            self.stage = Stage.INIT
            return SASL_HEADER + _mechanisms_frame(self._mechanisms)
        if self.rest.startswith(AMQP_HEADER):
            self.stage = Stage.DONE
            return b""
        return self._refuse_unless_prefix(SASL_HEADER, AMQP_HEADER)

    def _refuse_unless_prefix(self, *headers: bytes) -> bytes:
        """Wait while the client's bytes may still become a header; else name the one that we want [AMQP 2.2]."""
        if len(self.rest) < 8 and any(header.startswith(self.rest) for header in headers):
            return b""
        self.stage = Stage.REFUSED
        return headers[0]

    def _init(self) -> bytes:
        if len(self.rest) < 4:
            return b""
        size = int.from_bytes(self.rest[:4], "big")
        if not 8 <= size <= self._frame_bytes_max:
            self.stage = Stage.REFUSED
            return self._outcome(_AUTH)
        if len(self.rest) < size:
            return b""
        frame, self.rest = self.rest[:size], self.rest[size:]
        if self._accepts(frame):
            self.stage = Stage.AMQP_HEADER
            return self._outcome(_OK)
        self.stage = Stage.REFUSED
        return self._outcome(_AUTH)

    def _accepts(self, frame: bytes) -> bool:
        try:
            value, _ = decode(frame, 4 * frame[4])
        except DecodeError:
            return False
        if frame[5] != 1 or not isinstance(value, Described) or value.descriptor not in _INIT_DESCRIPTORS:
            return False
        fields = value.value
        if not isinstance(fields, list) or not fields or fields[0] not in self._mechanisms:
            return False
        return fields[0] != "PLAIN" or self._plain(fields[1] if len(fields) > 1 else None)

    def _plain(self, response: object) -> bool:
        if not isinstance(response, bytes) or response.count(b"\x00") != 2:
            return False
        _, name, key = response.split(b"\x00")
        try:
            with suppress(BrokerError):
                self._show_key(name.decode(), key.decode())
        except UnicodeDecodeError:
            return False
        return True

    @staticmethod
    def _outcome(code: Ubyte) -> bytes:
        return _frame(_OUTCOME_CODE, encode_list([code, None]))

    def _amqp_header(self) -> bytes:
        if self.rest.startswith(AMQP_HEADER):
            self.stage = Stage.DONE
            return b""
        return self._refuse_unless_prefix(AMQP_HEADER)

    def _no_answer(self) -> bytes:
        return b""


_STEPS: Final[dict[Stage, Callable[[SaslServer], bytes]]] = {
    Stage.HEADER: SaslServer._header,
    Stage.INIT: SaslServer._init,
    Stage.AMQP_HEADER: SaslServer._amqp_header,
    Stage.DONE: SaslServer._no_answer,
    Stage.REFUSED: SaslServer._no_answer,
}
