"""Clients with a key that give the server as much work as they can: `python -m tests.attack.peers KIND PORT SECONDS`.

A row of `WORK` for each kind of frame and of operation: what a peer that may do it does all the time. `test_peers.py`
sees to it that no kind is forgotten.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from emubus.amqp.nodes.cbs import PUT_TOKEN
from emubus.amqp.nodes.management import OPERATIONS
from emubus.codec.frames import ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, END, FLOW, OPEN, TRANSFER

from . import attacker
from .attacker import (
    FALSE,
    HELLO,
    NULL,
    TRUE,
    Attack,
    attach,
    described,
    frame,
    listed,
    mapped,
    text,
    transfer,
    u32,
    uint,
)

QUEUE, TOPIC, SUBSCRIPTION = "busy", "ruled", "ruled/Subscriptions/s"
PEEK = "com.microsoft:peek-message"
RULES = 300
OPERATED: Final = 12
"""Links of one connection for requests."""
WINDOW: Final = (uint(0), uint(2**31 - 1), uint(0), uint(2**31 - 1))
BEGUN = HELLO + attacker.BEGIN
ACCEPTED, MODIFIED = described(0x24, listed()), 0x27


def data(body: bytes) -> bytes:
    return described(0x75, b"\xb0" + u32(len(body)) + body)


def flow(handle: int, credit: int, *, drain: bool = False, echo: bool = False, count: int = 0) -> bytes:
    return frame(
        FLOW, *WINDOW, uint(handle), uint(count), uint(credit), NULL, TRUE if drain else FALSE, TRUE if echo else FALSE
    )


def forever(first: bytes, block: bytes) -> Callable[[], Iterator[bytes]]:
    def script() -> Iterator[bytes]:
        yield first
        for _ in range(100_000):
            yield block

    return script


def opens() -> Iterator[bytes]:
    yield HELLO + frame(CLOSE)


def many_links(then: bytes) -> Callable[[], Iterator[bytes]]:
    """Thousands of links that end together."""

    def script() -> Iterator[bytes]:
        yield HELLO
        for channel in range(8):
            yield frame(BEGIN, NULL, *WINDOW[:1], uint(2**31 - 1), uint(2**31 - 1), uint(65_535), channel=channel)
            for handle in range(250):
                yield on_channel(attach(f"{channel}-{handle}", handle, QUEUE, sends=False), channel)
        yield then

    return script


def on_channel(sent: bytes, channel: int) -> bytes:
    return sent[:6] + channel.to_bytes(2, "big") + sent[8:]


def sends(payload: bytes, address: str = QUEUE, message_format: int = 0) -> Callable[[], Iterator[bytes]]:
    """Deliveries in the place of each other, as many as the socket takes."""

    def script() -> Iterator[bytes]:
        yield BEGUN + attach("s", 0, address)
        for number in range(1_000_000):
            tag = b"\xa0\x04" + u32(number)
            yield frame(TRANSFER, uint(0), uint(number), tag, uint(message_format), FALSE, FALSE, payload=payload)

    return script


def wide() -> bytes:
    properties = (each for number in range(5_000) for each in (b"\xa1\x05p%04d" % number, NULL))
    return described(0x74, mapped(*properties)) + data(b"x")


def abandons() -> Iterator[bytes]:
    """Everything that is received is given back with properties, a thousand at a time."""
    yield BEGUN + attach("r", 0, QUEUE, sends=False) + flow(0, 100_000)
    changes = mapped(*(each for number in range(100) for each in (text(f"p{number}", 0xB3), text("v" * 100))))
    state = described(MODIFIED, listed(TRUE, FALSE, changes))
    for first in range(0, 10_000_000, 1_000):
        settled = frame(DISPOSITION, TRUE, uint(first), uint(first + 999), TRUE, state)
        yield settled + flow(0, 100_000, count=first)


def declares() -> Iterator[bytes]:
    yield BEGUN + attacker.coordinator(0)
    declare = described(0x77, described(0x31, listed()))
    for number in range(100_000):
        yield transfer(0, number, declare)


def big_body() -> bytes:
    """A request with all fields that operations know, each as long as is allowed."""
    tokens = b"\xf0" + u32(5 + 16 * 3_000) + u32(3_000) + b"\x98" + bytes(range(16)) * 3_000
    numbers = b"\xf0" + u32(5 + 8 * 3_000) + u32(3_000) + b"\x81" + b"".join(n.to_bytes(8, "big") for n in range(3_000))
    fields: dict[str, bytes] = {
        "lock-tokens": tokens,
        "sequence-numbers": numbers,
        "disposition-status": text("completed"),
        "receiver-settle-mode": uint(1),
        "from-sequence-number": b"\x81" + bytes(8),
        "message-count": b"\x71" + u32(1_000),
        "session-id": text("s"),
        "session-state": b"\xb0" + u32(100_000) + bytes(100_000),
        "last-updated-time": b"\x83" + (253_402_300_799_999).to_bytes(8, "big"),
        "skip": b"\x71" + u32(0),
        "top": b"\x71" + u32(1_000),
        "rule-name": text("again"),
        "rule-description": mapped(
            text("sql-filter"), mapped(text("expression"), text(" OR ".join(f"p{n} LIKE '%{n}%'" for n in range(40))))
        ),
    }
    return mapped(*(each for name, value in fields.items() for each in (text(name), value)))


def operates(
    operation: str, address: str = QUEUE, body: Callable[[], bytes] = big_body
) -> Callable[[], Iterator[bytes]]:
    """Requests on several links, as many as the credit allows."""

    def script() -> Iterator[bytes]:
        node = address + "/$management"
        links = (
            attach(f"s{n}", 2 * n, node) + attach(f"r{n}", 2 * n + 1, node, sends=False) + flow(2 * n + 1, 100_000)
            for n in range(OPERATED)
        )
        yield BEGUN + b"".join(links)
        request = (
            described(0x73, listed(text("1")))
            + described(0x74, mapped(text("operation"), text(operation)))
            + described(0x77, body())
        )
        parts = [request[start : start + 60_000] for start in range(0, len(request), 60_000)]
        numbers = [0] * OPERATED
        for number in range(100 * OPERATED):
            link = number % OPERATED
            for at, part in enumerate(parts):
                yield transfer(2 * link, number, part, more=at < len(parts) - 1)
            numbers[link] += 1

    return script


def wide_request() -> bytes:
    """A request with as many values as it may have bytes, nearly: one that the client decides how long it takes."""
    nulls = b"\xd0" + u32(4 + 1_900_000) + u32(1_900_000) + NULL * 1_900_000
    return mapped(text("message-count"), b"\x71" + u32(1), text("other"), nulls)


def puts_tokens() -> Iterator[bytes]:
    yield BEGUN + attach("s", 0) + attach("r", 1, sends=False) + flow(1, 100_000)
    for number in range(100_000):
        yield transfer(0, number, attacker.put_token(number, f"{number}"))


@dataclass(frozen=True)
class Row:
    """The bytes of one connection, how many connections there are, and what it is about: performatives, operations."""

    script: Callable[[], Iterator[bytes]]
    count: int
    about: tuple[int | str, ...]


WORK: Final[dict[str, Row]] = {
    "opens": Row(opens, 80, (OPEN, CLOSE)),
    "sessions": Row(forever(HELLO, (attacker.BEGIN + attacker.END) * 200), 80, (BEGIN, END)),
    "links": Row(
        forever(
            BEGUN, b"".join(attach(f"l{n}", n, QUEUE, sends=False) + frame(DETACH, uint(n), TRUE) for n in range(99))
        ),
        80,
        (ATTACH, DETACH),
    ),
    "links-that-end-with-their-session": Row(
        many_links(b"".join(on_channel(attacker.END, n) for n in range(8))), 10, (END,)
    ),
    "links-that-end-with-their-connection": Row(many_links(frame(0x7F)), 10, (CLOSE,)),
    "credit": Row(
        forever(BEGUN + attach("r", 0, QUEUE, sends=False), (flow(0, 2**31 - 1) + flow(0, 0)) * 400), 80, (FLOW,)
    ),
    "drains": Row(
        forever(BEGUN + attach("r", 0, QUEUE, sends=False), flow(0, 2**31 - 1, drain=True, echo=True) * 400),
        80,
        (FLOW,),
    ),
    "small-messages": Row(sends(data(b"x")), 40, (TRANSFER,)),
    "wide-messages": Row(sends(wide()), 40, (TRANSFER,)),
    "batches": Row(sends(data(data(b"")) * 4_000, message_format=0x80013700), 10, (TRANSFER,)),
    "ruled-messages": Row(
        sends(described(0x74, mapped(text("a"), text("x" * 20_000))) + data(b"x"), TOPIC), 10, (TRANSFER,)
    ),
    "ruled-batches": Row(
        sends(data(described(0x74, mapped(text("a"), text("x" * 30))) + data(b"")) * 500, TOPIC, 0x80013700),
        10,
        (TRANSFER,),
    ),
    "dispositions": Row(attacker.dispositions, 80, (DISPOSITION,)),
    "abandons": Row(abandons, 40, (DISPOSITION,)),
    "transactions": Row(declares, 20, ("declare",)),
    "wide-requests": Row(
        operates("com.microsoft:peek-message", body=wide_request), 10, ("com.microsoft:peek-message",)
    ),
    "tokens": Row(puts_tokens, 40, (PUT_TOKEN,)),
    **{
        name: Row(operates(name, SUBSCRIPTION if name.endswith(("-rule", "-rules")) else QUEUE), 10, (name,))
        for name in OPERATIONS
    },
}


def main() -> None:
    kind, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files_max, 4_096), files_max))
    row = WORK[kind]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    attack = Attack(row.script, row.count, port)
    attack.run(seconds)
    sys.stdout.write(json.dumps({"connects": attack.connects, "sent_bytes": attack.sent_bytes}))


if __name__ == "__main__":
    main()
