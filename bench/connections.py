"""Many idle connections, each with a sender and a receiver: do they stay open, do they work, what do they cost?

Opens connections, keeps them (both ends obey idle timeouts; ours is set so that the broker must send empty frames) and
uses them at the end: each sends one message, and the receivers together must get every one. Counts errors by text. A
`Line` owns its engine; the broker's process is only observed.

    python bench/connections.py [--quick] [--only emubus,rabbitmq] [--connections 500] [--hold 70]
"""

from __future__ import annotations

import argparse
import selectors
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from cproton_ffi import lib
from engine import Engine, EngineError, Pointer, connect
from links import Receiving, Sending
from messages import Template
from rivals import BROKERS, KINDS
from starting import Broker, exit_code, running, workplace

CONNECTIONS: Final = 500
HOLD_S: Final = 70.0
HOLD_QUICK_S: Final = 5.0
IDLE_TIMEOUT_MS: Final = 30_000
"""Our idle timeout: a broker that sends no empty frames is noticed within two of these."""

TURN_S: Final = 0.25
LAST_ROUND_S: Final = 30.0
MESSAGE_BYTES: Final = 64


class Line:
    """One connection with a sender and a receiver of the same queue."""

    def __init__(self, broker: Broker, address: str, number: int, numbers: int) -> None:
        self.engine: Engine = connect(
            broker.port,
            container=f"bench-{number}",
            user=broker.user,
            password=broker.password,
            idle_timeout_ms=IDLE_TIMEOUT_MS,
        )
        self.sending = Sending(self.engine, address, 1, Template(MESSAGE_BYTES), 1)
        self.receiving = Receiving(self.engine, address, numbers, bytearray(numbers), 1)
        self.engine.on_delivery = self._delivered
        links = (self.sending.link, self.receiving.link)
        self.engine.run_until(
            lambda: all(lib.pn_link_state(link) & lib.PN_REMOTE_ACTIVE for link in links),
            10.0,
            "the links' opening",
        )

    def _delivered(self, delivery: Pointer) -> None:
        if lib.pn_link_is_sender(lib.pn_delivery_link(delivery)):
            self.sending.event(delivery)
        else:
            self.receiving.event(delivery)


class Crowd:
    """All open connections, and the errors of those that were lost."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.errors: Counter[str] = Counter()
        self._selector = selectors.DefaultSelector()

    def open(self, broker: Broker, address: str, count: int) -> None:
        """Open `count` connections, one after the other."""
        for number in range(count):
            try:
                line = Line(broker, address, number, count)
            except (EngineError, OSError) as error:
                self.errors[str(error)] += 1
                continue
            self.lines.append(line)
            self._selector.register(line.engine, selectors.EVENT_READ, line)
            self.turn(0.0)

    def turn(self, timeout_s: float) -> None:
        """Handle readable connections, and give each connection its tick."""
        ready = {id(key.data) for key, _ in self._selector.select(timeout_s)}
        for line in list(self.lines):
            self._attempt(line, id(line) in ready)

    def each(self, action: Callable[[Line], None]) -> None:
        """Do something with every open line."""
        for line in list(self.lines):
            action(line)

    def run(self, seconds: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Turn for `seconds`, or until `is_done()`."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s and not is_done():
            self.turn(TURN_S)

    def close(self) -> None:
        """Close what stands."""
        self._selector.close()
        self.each(lambda line: line.engine.close())

    def _attempt(self, line: Line, readable: bool) -> None:
        engine = line.engine
        try:
            if readable:
                engine.read()
            engine.dispatch()
            engine.flush()
            if engine.closed:
                raise EngineError("the broker closed the connection")
        except EngineError as error:
            self.errors[str(error)] += 1
            self._selector.unregister(engine)
            self.lines.remove(line)


def measure(broker: Broker, kind: str, count: int, hold_s: float) -> bool:
    """One running broker: open, hold, use, print. True without errors."""
    before = broker.memory()
    crowd = Crowd()
    started_s = time.perf_counter()
    crowd.open(broker, broker.address(kind, MESSAGE_BYTES), count)
    opened_s = time.perf_counter() - started_s
    cpu_started_s = broker.used().process_ns / 1e9
    crowd.run(hold_s)
    held, idle_cpu_s, held_count = broker.memory(), broker.used().process_ns / 1e9 - cpu_started_s, len(crowd.lines)
    crowd.each(lambda line: line.receiving.step())
    crowd.each(lambda line: line.sending.step())
    crowd.run(LAST_ROUND_S, lambda: _totals(crowd) == (held_count, held_count))
    accepted, received = _totals(crowd)
    crowd.close()
    each_kib = (held.resident - before.resident) * 1024 / max(1, held_count)
    print(
        f"connections {broker.name:9} {held_count} of {count} held for {hold_s:.0f} s, {crowd.errors.total()} errors, "
        f"then {accepted} messages accepted and {received} received; opened at {count / opened_s:.0f}/s, "
        f"{held} = {each_kib:.0f} KiB each, {idle_cpu_s / hold_s:.1%} of a core while idle",
        flush=True,
    )
    for text, times in crowd.errors.most_common(5):
        print(f"connections {broker.name:9} {times} x {text}", file=sys.stderr)
    return not crowd.errors and accepted == received == count


def _totals(crowd: Crowd) -> tuple[int, int]:
    return (
        sum(line.sending.accepted for line in crowd.lines),
        sum(line.receiving.received for line in crowd.lines),
    )


def main(argv: list[str]) -> int:
    """Measure and print; the exit status is 1 if a connection or a message was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"hold for {HOLD_QUICK_S:.0f} s")
    parser.add_argument("--only", default="emubus", help="emubus, rabbitmq, artemis, floor; comma-separated")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--hold", type=float, help=f"seconds; default {HOLD_S:.0f}")
    parser.add_argument("--data", help="folder for the brokers' data; default: the system's temporary folder")
    arguments = parser.parse_args(argv)
    hold_s = arguments.hold or (HOLD_QUICK_S if arguments.quick else HOLD_S)
    fine = True
    with workplace(arguments.data) as folder:
        for name in arguments.only.split(","):
            broker = BROKERS[name](folder / name)
            with running(broker):
                fine &= measure(broker, KINDS[name][0], arguments.connections, hold_s)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(exit_code(main))
