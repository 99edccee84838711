"""A client without a key that tries to stop or starve the server: `python attacker.py KIND PORT SECONDS`.

Only ever on 127.0.0.1, for a bounded time, over a bounded number of sockets. Each kind is a generator of the bytes of
one connection; a connection that the server ends is made anew. Uses the standard library alone, and writes AMQP by
hand.
"""

from __future__ import annotations

import json
import resource
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

HOST = "127.0.0.1"
CONNECTS_MAX = 20_000
SECONDS_MAX = 60.0
RECEIVED_BYTES = 1 << 16


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def text(value: str, code: int = 0xB1) -> bytes:
    return bytes((code,)) + u32(len(value)) + value.encode()


def uint(value: int) -> bytes:
    return b"\x70" + u32(value)


def listed(*items: bytes) -> bytes:
    body = u32(len(items)) + b"".join(items)
    return b"\xd0" + u32(len(body)) + body


def mapped(*items: bytes) -> bytes:
    body = u32(len(items)) + b"".join(items)
    return b"\xd1" + u32(len(body)) + body


def described(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value


def frame(code: int, *fields: bytes, payload: bytes = b"", channel: int = 0, kind: int = 0) -> bytes:
    body = described(code, listed(*fields)) + payload
    return u32(8 + len(body)) + bytes((2, kind)) + channel.to_bytes(2, "big") + body


NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
SASL = b"AMQP\x03\x01\x00\x00"
HELLO = (
    SASL
    + frame(0x41, text("ANONYMOUS", 0xB3), NULL, kind=1)
    + b"AMQP\x00\x01\x00\x00"
    + frame(0x10, text("stranger"), text("localhost"))
)
BEGIN = frame(0x11, NULL, uint(0), uint(2**31 - 1), uint(2**31 - 1), uint(65_535))
END = frame(0x17)


def attach(name: str, handle: int, address: str = "$cbs", *, sends: bool = True, properties: bytes = NULL) -> bytes:
    terminus = described(0x28, listed(text(address))), described(0x29, listed(text(address)))
    role = FALSE if sends else TRUE
    return frame(
        0x12, text(name), uint(handle), role, NULL, NULL, *terminus, NULL, NULL, uint(0), NULL, NULL, NULL, properties
    )


def coordinator(handle: int) -> bytes:
    source, target = described(0x28, listed()), described(0x30, listed())
    return frame(0x12, text(f"c{handle}"), uint(handle), FALSE, NULL, NULL, source, target, NULL, NULL, uint(0))


def transfer(handle: int, number: int, payload: bytes, *, more: bool = False) -> bytes:
    tag = b"\xa0\x04" + u32(number)
    return frame(0x14, uint(handle), uint(number), tag, uint(0), FALSE, TRUE if more else FALSE, payload=payload)


def put_token(number: int, message_id: str) -> bytes:
    properties = mapped(text("operation"), text("put-token"), text("name"), text(f"sb://h/q{number}"))
    token = text("SharedAccessSignature sr=h&sig=x&se=99999999999&skn=RootManageSharedAccessKey")
    return described(0x73, listed(text(message_id))) + described(0x74, properties) + described(0x77, token)


# ---- kinds: the bytes of one connection


def half_open() -> Iterator[bytes]:
    yield b""


def half_handshake() -> Iterator[bytes]:
    yield HELLO[:40]


def slow_bytes() -> Iterator[bytes]:
    for each in HELLO * 1_000:
        yield bytes((each,))


def huge_frames() -> Iterator[bytes]:
    yield HELLO + b"\xff\xff\xff\xf0\x02\x00\x00\x00" + bytes(60_000)
    for _ in range(10_000):
        yield bytes(60_000)


def attach_detach() -> Iterator[bytes]:
    yield HELLO + BEGIN
    block = b"".join(attach(f"l{n}", n) + frame(0x16, uint(n), TRUE) for n in range(40)) * 25
    for _ in range(10_000):
        yield block


def begin_end() -> Iterator[bytes]:
    yield HELLO
    for _ in range(10_000):
        yield (BEGIN + END) * 500


def flow_echo() -> Iterator[bytes]:
    yield HELLO + BEGIN + attach("r", 0, sends=False)
    session = (uint(0), uint(2**31 - 1), uint(0), uint(2**31 - 1))
    block = frame(0x13, *session, uint(0), uint(0), uint(1), NULL, FALSE, TRUE) + frame(
        0x13, *session, NULL, NULL, NULL, NULL, FALSE, TRUE
    )
    for _ in range(10_000):
        yield block * 300


def empty_frames() -> Iterator[bytes]:
    yield HELLO
    for _ in range(100_000):
        yield b"\x00\x00\x00\x08\x02\x00\x00\x00" * 8_000


def dispositions() -> Iterator[bytes]:
    yield HELLO + BEGIN
    block = b"".join(
        frame(0x15, role, uint(0), uint(2**32 - 1), TRUE, described(0x24, listed())) for role in (TRUE, FALSE)
    )
    for _ in range(10_000):
        yield block * 500


def put_tokens() -> Iterator[bytes]:
    yield HELLO + BEGIN + attach("s", 0) + attach("r", 1, sends=False)
    for start in range(0, 100_000, 50):
        yield b"".join(transfer(0, n, put_token(n, f"{n}")) for n in range(start, start + 50))


def declares() -> Iterator[bytes]:
    yield HELLO + BEGIN + coordinator(0)
    declare = described(0x77, described(0x31, listed()))
    for start in range(0, 100_000, 50):
        yield b"".join(transfer(0, n, declare) for n in range(start, start + 50))


def long_names() -> Iterator[bytes]:
    yield HELLO + BEGIN
    for n in range(10_000):
        yield attach("n" * 60_000 + f"{n}", n, sends=bool(n % 2))


def unread_replies() -> Iterator[bytes]:
    yield HELLO + BEGIN + b"".join(attach(f"s{n}", 2 * n) + attach(f"r{n}", 2 * n + 1, sends=False) for n in range(20))
    for n in range(10_000):
        yield transfer(2 * (n % 20), n, put_token(n, "i" * 60_000))


def unfinished() -> Iterator[bytes]:
    yield HELLO + BEGIN + b"".join(attach(f"s{n}", n) for n in range(100))
    for n in range(10_000):
        yield transfer(n % 100, n % 100, bytes(60_000), more=True)


def nesting() -> Iterator[bytes]:
    nested = NULL
    while len(nested) < 60_000:
        nested = listed(nested)
    for n in range(1_000):
        yield HELLO + BEGIN + attach(f"n{n}", n, properties=nested)


def bombs() -> Iterator[bytes]:
    zeros = b"\xf0" + u32(5) + u32(2**31) + b"\x40"
    pairs = b"\xd1" + u32(4) + u32(2**31)
    yield HELLO + BEGIN
    for n in range(1_000):
        yield attach(f"a{n}", n, properties=mapped(text("a", 0xB3), zeros)) + attach(f"b{n}", n, properties=pairs)


def websocket() -> Iterator[bytes]:
    yield (
        b"GET /$servicebus/websocket HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
    )
    mask = bytes(4)
    yield b"\x02\xfe\xff\xff" + mask + bytes(65_535)
    for n in range(100_000):
        yield (b"\x00\x81" + mask + b"x") * 500 + (b"\x89\xfd" + mask + bytes(125)) * 50
        if n % 8 == 0:
            yield b"\x00\xfe\xff\xff" + mask + bytes(65_535)


def http_headers() -> Iterator[bytes]:
    yield b"GET /q HTTP/1.1\r\nHost: h\r\n"
    for n in range(10_000):
        yield b"X-%d: " % n + b"x" * 30_000 + b"\r\n"


def http_bodies() -> Iterator[bytes]:
    yield b"POST /q/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 900000000\r\n\r\n"
    for _ in range(10_000):
        yield bytes(60_000)


def http_pipelined() -> Iterator[bytes]:
    for _ in range(10_000):
        yield b"GET /$Resources/queues HTTP/1.1\r\nHost: h\r\n\r\n" * 200


def tls_stall() -> Iterator[bytes]:
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)


KINDS: dict[str, tuple[Callable[[], Iterator[bytes]], int, bool]] = {
    "half-open": (half_open, 1_500, True),
    "half-handshake": (half_handshake, 1_500, True),
    "slow-bytes": (slow_bytes, 300, True),
    "huge-frames": (huge_frames, 20, True),
    "attach-detach": (attach_detach, 20, True),
    "begin-end": (begin_end, 20, True),
    "flow-echo": (flow_echo, 20, True),
    "empty-frames": (empty_frames, 20, True),
    "dispositions": (dispositions, 20, True),
    "put-tokens": (put_tokens, 20, True),
    "declares": (declares, 20, True),
    "long-names": (long_names, 4, True),
    "unread-replies": (unread_replies, 10, False),
    "unfinished-deliveries": (unfinished, 10, True),
    "nesting": (nesting, 20, True),
    "bombs": (bombs, 20, True),
    "websocket": (websocket, 20, False),
    "http-headers": (http_headers, 50, True),
    "http-bodies": (http_bodies, 50, True),
    "http-pipelined": (http_pipelined, 20, False),
    "tls-stall": (tls_stall, 500, True),
}
"""The bytes of a connection, how many connections at a time, and whether what the server says is read."""


class Attack:
    """Keeps a number of connections busy until its time is over."""

    def __init__(self, make: Callable[[], Iterator[bytes]], count: int, port: int, *, reads: bool = True) -> None:
        self._make, self._count, self._reads = make, count, reads
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._scripts: dict[socket.socket, tuple[Iterator[bytes], bytes]] = {}
        self.connects = self.sent_bytes = 0

    def run(self, seconds: float) -> None:
        deadline = time.monotonic() + min(seconds, SECONDS_MAX)
        while time.monotonic() < deadline:
            while len(self._scripts) < self._count and self.connects < CONNECTS_MAX and time.monotonic() < deadline:
                self._connect()
            for key, events in self._selector.select(0.05):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                try:
                    if events & selectors.EVENT_READ and not connection.recv(RECEIVED_BYTES):
                        raise ConnectionResetError
                    if events & selectors.EVENT_WRITE:
                        self._write(connection)
                except BlockingIOError:
                    pass
                except OSError:
                    self._drop(connection)

    def _connect(self) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        self.connects += 1
        with suppress(BlockingIOError):
            connection.connect((HOST, self._port))
        self._scripts[connection] = self._make(), b""
        self._selector.register(connection, (selectors.EVENT_READ if self._reads else 0) | selectors.EVENT_WRITE)

    def _write(self, connection: socket.socket) -> None:
        script, left = self._scripts[connection]
        left = left or next(script, b"")
        if not left:  # it has said what it has to say, and stays
            if self._reads:
                self._selector.modify(connection, selectors.EVENT_READ)
            else:
                self._selector.unregister(connection)
            return
        sent = connection.send(left)
        self.sent_bytes += sent
        self._scripts[connection] = script, left[sent:]

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._scripts[connection]
        connection.close()


def main() -> None:
    kind, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files_max, 4_096), files_max))
    make, count, reads = KINDS[kind]
    attack = Attack(make, count, port, reads=reads)
    attack.run(seconds)
    sys.stdout.write(json.dumps({"connects": attack.connects, "sent_bytes": attack.sent_bytes}))


if __name__ == "__main__":
    main()
