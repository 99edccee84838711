"""A load client in a process of its own: sends, receives or both, and prints one line of JSON.

Every message has its number in the last eight bytes of its body, so a lost, doubled or refused message fails the run
instead of making it fast. The time of a run starts when the link is open and ends when the last outcome has come
(send), was written and answered by the link's close (receive), or both (roundtrip).

Does not know the broker. A `Sending` or `Receiving` owns its link; the engine belongs to
`main`.

    python bench/load.py send --port 5672 --address queue.1 --messages 100000 --size 1024
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Final

from cproton_ffi import ffi, lib
from engine import Engine, EngineError, Pointer, TagWriter, connect
from messages import NUMBER_BYTES, SHAPES, Template
from processor import used

SAMPLE_EVERY: Final = 16
"""Latency is measured for one message in so many: a look-up for each would cost too much at 100 000 per second."""

STALL_S: Final = 60.0
"""A run fails after this time without progress."""

OUTCOMES: Final[Mapping[int, str]] = {
    lib.PN_ACCEPTED: "accepted",
    lib.PN_REJECTED: "rejected",
    lib.PN_RELEASED: "released",
    lib.PN_MODIFIED: "modified",
}


class Sending:
    """A sender that keeps `window` unsettled outstanding messages until `count` are accepted."""

    def __init__(self, engine: Engine, address: str, count: int, template: Template, window: int) -> None:
        self.link = engine.open_sender(address, "bench-sender")
        self.count = count
        self.sent = 0
        self.accepted = 0
        self.latencies_s: list[float] = []
        self._window = window
        self._template = template
        self._tags = TagWriter()
        self._samples: dict[Pointer, float] = {}

    @property
    def moved(self) -> int:
        """Grows with every event."""
        return self.sent + self.accepted

    @property
    def done(self) -> bool:
        """True when every message is accepted."""
        return self.accepted == self.count

    def fill(self) -> None:
        """Send as many as window and credit allow."""
        link, template, tags = self.link, self._template, self._tags
        room = min(
            self._window - (self.sent - self.accepted),
            lib.pn_link_credit(link) - lib.pn_link_queued(link),
            self.count - self.sent,
        )
        if room <= 0:
            return
        new_delivery, send, advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
        data, length, tag = template.data, template.length, tags.tag
        now_s = time.perf_counter()
        for number in range(self.sent, self.sent + room):
            tags.write(number)
            template.write(number)
            delivery = new_delivery(link, tag)
            send(link, data, length)
            advance(link)
            if number % SAMPLE_EVERY == 0:
                self._samples[delivery] = now_s
        self.sent += room

    def settled(self, delivery: Pointer) -> None:
        """Take the broker's outcome of one message. Raises EngineError unless it is `accepted`."""
        state = lib.pn_delivery_remote_state(delivery)
        if state != lib.PN_ACCEPTED:
            if not lib.pn_delivery_settled(delivery):
                return
            condition = lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))
            description = lib.pn_condition_get_description(condition)
            text = ffi.string(description).decode() if description else ""
            raise EngineError(f"a message was not accepted but {OUTCOMES.get(state, state)}: {text}")
        if self._samples and (sent_at_s := self._samples.pop(delivery, None)) is not None:
            self.latencies_s.append(time.perf_counter() - sent_at_s)
        self.accepted += 1
        lib.pn_delivery_settle(delivery)


class Receiving:
    """A receiver that accepts `count` messages, with up to `window` of credit.

    The messages bear numbers below `numbers`, no number twice. `confirmed` waits for the broker's answer to
    each outcome; otherwise outcomes are sent settled.
    """

    def __init__(self, engine: Engine, address: str, count: int, numbers: int, window: int, confirmed: bool) -> None:
        self.link = engine.open_receiver(address, "bench-receiver", confirmed=confirmed)
        self.count = count
        self.received = 0
        self.answered = 0
        self._confirmed = confirmed
        self._window = window
        self._granted = 0
        self._granted_at_s = 0.0
        self.latencies_s: list[float] = []
        self._seen = bytearray(numbers)
        self._buffer_bytes = 1 << 21
        self._buffer: Pointer = ffi.new("char[]", self._buffer_bytes)
        self._address = ffi.cast("uintptr_t", self._buffer)

    @property
    def moved(self) -> int:
        """Grows with every event."""
        return self.received + self.answered

    @property
    def done(self) -> bool:
        """True when every message was accepted, and confirmed if that was asked for."""
        return self.received == self.count and (not self._confirmed or self.answered == self.count)

    def top_up(self) -> None:
        """Grant credit again when half of it is used; never more than `count` in all."""
        outstanding = self._granted - self.received
        more = min(self._window - outstanding, self.count - self._granted)
        if more > 0 and (outstanding <= self._window // 2):
            lib.pn_link_flow(self.link, more)
            self._granted += more
            self._granted_at_s = time.perf_counter()

    def delivered(self, delivery: Pointer) -> None:
        """Take one event of a delivery: the message itself, or the broker's answer to our outcome."""
        link = self.link
        if not lib.pn_delivery_readable(delivery):
            if self._confirmed and lib.pn_delivery_settled(delivery):
                self.answered += 1
                lib.pn_delivery_settle(delivery)
            return
        if lib.pn_delivery_partial(delivery):
            return
        length = lib.pn_link_recv(link, self._buffer, self._buffer_bytes)
        self._check_off(length)
        if self._window == 1:
            self.latencies_s.append(time.perf_counter() - self._granted_at_s)
        self.received += 1
        lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)
        lib.pn_link_advance(link)
        if not self._confirmed:
            lib.pn_delivery_settle(delivery)

    def _check_off(self, length: int) -> None:
        number = ffi.cast("uint64_t *", self._buffer + length - NUMBER_BYTES)[0] if length > NUMBER_BYTES else -1
        if not 0 <= number < len(self._seen):
            raise EngineError(f"a message came that was not sent here: {length} bytes, number {number}")
        if self._seen[number]:
            raise EngineError(f"message {number} came twice")
        self._seen[number] = 1


def run(arguments: argparse.Namespace, engine: Engine) -> dict[str, object]:
    """Do one run over an open engine and return what is to be printed. Raises EngineError."""
    sending = receiving = None
    count, window = arguments.messages, arguments.window
    if arguments.mode in ("send", "roundtrip"):
        sending = Sending(engine, arguments.address, count, Template(arguments.size, SHAPES[arguments.shape]), window)
    if arguments.mode in ("receive", "roundtrip"):
        numbers = arguments.numbers or count
        receiving = Receiving(engine, arguments.address, count, numbers, window, arguments.confirm)
    _route(engine, sending, receiving)
    links = [part.link for part in (sending, receiving) if part is not None]
    engine.run_until(lambda: all(map(_is_open, links)), 10.0, "the links' opening")
    broker = used(arguments.pid) if arguments.pid else None
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    _drive(engine, sending, receiving)
    for link in links:
        engine.close_link(link)
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_started_s
    latencies_s = sorted(latency for part in (sending, receiving) if part for latency in part.latencies_s)
    spent = used(arguments.pid).since(broker) if broker else None
    return {
        "mode": arguments.mode,
        "messages": count,
        "size_bytes": arguments.size,
        "seconds": round(seconds, 4),
        "rate": round(count / seconds, 1),
        "client_busy": round(cpu_s / seconds, 3),
        **({"main_us": spent.main_ns / 1000 / count, "process_us": spent.process_ns / 1000 / count} if spent else {}),
        **{
            f"p{share}_ms": round(1000 * latencies_s[min(len(latencies_s) - 1, len(latencies_s) * share // 100)], 3)
            for share in (50, 90, 99, 100)
            if latencies_s
        },
    }


def _is_open(link: Pointer) -> bool:
    return bool(lib.pn_link_state(link) & lib.PN_REMOTE_ACTIVE)


def _route(engine: Engine, sending: Sending | None, receiving: Receiving | None) -> None:
    """Set the handlers of the engine's deliveries."""
    if sending is None or receiving is None:
        engine.on_delivery = sending.settled if sending else receiving.delivered if receiving else engine.on_delivery
        return
    link_of, is_sender = lib.pn_delivery_link, lib.pn_link_is_sender
    settled, delivered = sending.settled, receiving.delivered

    def either(delivery: Pointer) -> None:
        if is_sender(link_of(delivery)):
            settled(delivery)
        else:
            delivered(delivery)

    engine.on_delivery = either


def _drive(engine: Engine, sending: Sending | None, receiving: Receiving | None) -> None:
    parts = [part for part in (sending, receiving) if part is not None]
    moved, moved_at_s = -1, time.monotonic()
    while not all(part.done for part in parts):
        if sending is not None:
            sending.fill()
        if receiving is not None:
            receiving.top_up()
        engine.turn(0.25)
        if (now_moved := sum(part.moved for part in parts)) != moved:
            moved, moved_at_s = now_moved, time.monotonic()
        elif engine.closed or time.monotonic() - moved_at_s > STALL_S:
            raise EngineError(f"no progress after {[part.moved for part in parts]} steps")


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["send", "receive", "roundtrip"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5672)
    parser.add_argument("--address", required=True)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes in each message's body")
    parser.add_argument("--shape", choices=list(SHAPES), default="bare", help="what messages have besides bodies")
    parser.add_argument("--pid", type=int, help="the broker's process: its processor time is measured, too")
    parser.add_argument("--numbers", type=int, help="receive: numbers in the queue, if more than --messages")
    parser.add_argument("--window", type=int, default=1000, help="outstanding messages at a time")
    parser.add_argument("--user", help="log in with SASL PLAIN; otherwise ANONYMOUS")
    parser.add_argument("--password")
    parser.add_argument("--confirm", action="store_true", help="receive: wait for the broker's answer to each outcome")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run once; the exit status is 1 when a message was lost, doubled or refused."""
    arguments = parse(argv)
    try:
        engine = connect(arguments.port, host=arguments.host, user=arguments.user, password=arguments.password)
        try:
            result = run(arguments, engine)
        finally:
            engine.close()
    except (EngineError, OSError) as error:
        print(f"load: {arguments.mode} {arguments.address}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
