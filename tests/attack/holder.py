"""A client that makes the server hold memory: `python -m tests.attack.holder PEER KIND PORT SECONDS`.

Peers differ in what they may do, kinds in what the server holds. Only ever on 127.0.0.1, for a bounded time, over a
bounded number of sockets. Uses the frames of `attacker.py`.
"""

from __future__ import annotations

import base64
import json
import selectors
import socket
import ssl
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

from .attacker import (
    BEGIN,
    FALSE,
    HOST,
    NULL,
    SASL,
    TRUE,
    Attack,
    attach,
    described,
    frame,
    listed,
    mapped,
    text,
    transfer,
    uint,
)

ROOT, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
PART = bytes(60_000)
COPY = described(0x28, listed(text("watched"), NULL, NULL, NULL, NULL, NULL, text("copy", 0xB3)))
UPGRADE = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: AMQPWSB10\r\n%s\r\n"
)


def hello(is_known: bool) -> bytes:
    plain = b"\0" + ROOT.encode() + b"\0" + KEY.encode()
    fields = (
        (text("PLAIN", 0xB3), b"\xa0" + bytes((len(plain),)) + plain) if is_known else (text("ANONYMOUS", 0xB3), NULL)
    )
    return (
        SASL + frame(0x41, *fields, kind=1) + b"AMQP\x00\x01\x00\x00" + frame(0x10, text("holder"), text("localhost"))
    )


def flow(handle: int, credit: int) -> bytes:
    return frame(0x13, uint(0), uint(0), uint(0), uint(0), uint(handle), uint(0), uint(credit), NULL, FALSE, FALSE)


def more_of(handle: int) -> bytes:
    return frame(0x14, uint(handle), NULL, NULL, NULL, FALSE, TRUE, payload=PART)


# ---- kinds: the bytes of one connection


def unfinished_deliveries(is_known: bool) -> Iterator[bytes]:
    """Deliveries whose last frame never comes."""
    yield hello(is_known) + BEGIN + b"".join(attach(f"w{n}", n, "watched" if is_known else "$cbs") for n in range(40))
    yield b"".join(transfer(n, n, PART, more=True) for n in range(40))
    for n in range(120):
        yield more_of(n % 40)


def unread_copies(is_known: bool) -> Iterator[bytes]:
    """Receivers that copy, and never read."""
    yield hello(is_known) + frame(0x11, NULL, uint(0), uint(0), uint(2**31 - 1), uint(65_535))
    for n in range(100):
        terminus = COPY, described(0x29, listed(text("r")))
        yield frame(0x12, text(f"r{n}"), uint(n), TRUE, NULL, NULL, *terminus, NULL, NULL, NULL) + flow(n, 5_000)


def pipelined(is_known: bool) -> Iterator[bytes]:
    """Deliveries as fast as the socket takes them; outcomes are not read."""
    yield hello(is_known) + BEGIN + attach("w", 0, "watched" if is_known else "$cbs")
    message = described(0x75, b"\xb0" + (50_000).to_bytes(4, "big") + bytes(50_000))
    for n in range(990):
        yield transfer(0, n, message)


def peeks(is_known: bool) -> Iterator[bytes]:
    """Requests for messages, as many as the credit allows; responses are not read."""
    yield hello(is_known) + BEGIN + attach("w", 0, "watched" if is_known else "$cbs")
    message = described(0x75, b"\xb0" + (50_000).to_bytes(4, "big") + bytes(50_000))
    for n in range(10):
        yield transfer(0, n, message)
    node = "watched/$management"
    for n in range(1, 20, 2):
        yield attach(f"s{n}", n, node) + attach(f"r{n}", n + 1, node, sends=False) + flow(n + 1, 10_000)
    body = mapped(text("from-sequence-number"), b"\x81" + bytes(8), text("message-count"), uint(1_000))
    request = described(0x74, mapped(text("operation"), text("com.microsoft:peek-message"))) + described(0x77, body)
    for n in range(10, 900):
        yield transfer(n % 10 * 2 + 1, n, request)


def links(is_known: bool) -> Iterator[bytes]:
    """Links with long names."""
    yield hello(is_known)
    for channel in range(40):
        begin = frame(0x11, NULL, uint(0), uint(100), uint(100), uint(65_535), channel=channel)
        names = (f"{'n' * 500}{channel}-{n}" for n in range(250))
        source, target = described(0x28, listed(text("watched"))), described(0x29, listed(text("watched")))
        yield begin + b"".join(
            frame(0x12, text(name), uint(n), TRUE, NULL, NULL, source, target, channel=channel)
            for n, name in enumerate(names)
        )


def fragments(is_known: bool) -> Iterator[bytes]:
    """A WebSocket message that never ends."""
    del is_known
    yield UPGRADE % b""
    yield b"\x02\xff" + (4_000_000).to_bytes(8, "big") + bytes(4)
    for _ in range(64):
        yield PART


@cache
def deflated() -> bytes:
    """A message of 3.9 MB, in a few kilobytes."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (squeezer.compress(bytes(3_900_000)) + squeezer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def inflated(is_known: bool) -> Iterator[bytes]:
    """Small messages that would be large, if the server inflated them."""
    del is_known
    yield UPGRADE % b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
    small = deflated()
    while True:
        yield b"\x42\xfe" + len(small).to_bytes(2, "big") + bytes(4) + small


def bodies(is_known: bool) -> Iterator[bytes]:
    """An HTTP body that never ends."""
    given = base64.b64encode(f"{ROOT}:{KEY}".encode()) if is_known else b""
    yield b"POST /emubus/v1/config HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n"
    yield b"Content-Type: application/json\r\nAuthorization: Basic " + given + b"\r\n\r\n["
    for _ in range(140):
        yield b" " * 60_000


KINDS: dict[str, tuple[Callable[[bool], Iterator[bytes]], int]] = {
    "unfinished-deliveries": (unfinished_deliveries, 60),
    "unread-copies": (unread_copies, 60),
    "pipelined": (pipelined, 60),
    "peeks": (peeks, 20),
    "links": (links, 30),
    "fragments": (fragments, 200),
    "inflated": (inflated, 100),
    "bodies": (bodies, 100),
}
"""The bytes of a connection, and how many connections."""
PEERS = {"stranger": False, "known": True, "stranger-tls": False}


class Holding(Attack):
    """Holds what it has; reads nothing."""

    def __init__(self, peer: str, kind: str, port: int) -> None:
        make, count = KINDS[kind]
        self._tls = peer.endswith("tls")
        self._make, self._count, self._reads = lambda: make(PEERS[peer]), count, False
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._scripts: dict[socket.socket, tuple[Iterator[bytes], bytes]] = {}
        self.connects = self.sent_bytes = 0

    def _connect(self) -> None:
        if not self._tls:
            super()._connect()
            return
        self.connects += 1
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with suppress(OSError):
            connection = context.wrap_socket(socket.create_connection((HOST, self._port), timeout=5))
            connection.setblocking(False)
            self._scripts[connection] = self._make(), b""
            self._selector.register(connection, selectors.EVENT_WRITE)


def main() -> None:
    peer, kind, port, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    holding = Holding(peer, kind, port)
    started = time.monotonic()
    holding.run(seconds)
    took_s = round(time.monotonic() - started, 1)
    sys.stdout.write(json.dumps({"connects": holding.connects, "sent_bytes": holding.sent_bytes, "took_s": took_s}))


if __name__ == "__main__":
    main()
