"""A load client in a process of its own: sends, receives or both, and prints one line of JSON.

The time of a run starts when the links are open and ends when the last outcome has come (send), was written and
answered by the link's close (receive), or both (roundtrip). Does not know the broker.

    python bench/load.py send --port 5672 --address queue.1 --messages 100000 --size 1024
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Final

from cproton_ffi import lib
from engine import Engine, EngineError, Pointer, connect
from links import Part, Receiving, Sending
from messages import GROUP, SHAPES, Template, session_id
from processor import used
from transactions import TransactedReceiving, TransactedSending

STALL_S: Final = 60.0
"""A run fails after this time without progress."""


def parts(arguments: argparse.Namespace, engine: Engine) -> list[Part]:
    """The links of a run. Raises EngineError."""
    count, window, shape = arguments.messages, arguments.window, SHAPES[arguments.shape]
    made: list[Part] = []
    if arguments.mode in ("send", "roundtrip"):
        template = Template(arguments.size, shape)
        if arguments.transactions:
            made.append(TransactedSending(engine, arguments.address, count, template))
        else:
            made.append(Sending(engine, arguments.address, count, template, window))
    if arguments.mode in ("receive", "roundtrip"):
        seen = bytearray(arguments.numbers or count)
        sources = [(address, None) for address in arguments.source or [arguments.address]]
        if shape.sessions:
            sources = [(arguments.address, session_id(number)) for number in range(shape.sessions)]
        if arguments.transactions:
            made.append(TransactedReceiving(engine, arguments.address, count, seen, window))
        else:
            each, room = count // len(sources), max(1, window // len(sources))
            for address, session in sources:
                made.append(
                    Receiving(engine, address, each, seen, room, confirmed=arguments.confirm, session_id=session)
                )
    return made


def run(arguments: argparse.Namespace, engine: Engine) -> dict[str, object]:
    """Do one run over an open engine and return what is to be printed. Raises EngineError."""
    made = parts(arguments, engine)
    links = [link for part in made for link in part.links]
    handlers = {link: part.event for part in made for link in part.links}
    link_of = lib.pn_delivery_link
    engine.on_delivery = made[0].event if len(made) == 1 else lambda delivery: handlers[link_of(delivery)](delivery)
    engine.run_until(lambda: all(map(_is_open, links)), 30.0, "the links' opening")
    count = arguments.messages
    broker = used(arguments.pid) if arguments.pid else None
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    _drive(engine, made)
    for link in links:
        engine.close_link(link)
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_started_s
    spent = used(arguments.pid).since(broker) if broker else None
    latencies_s = sorted(latency for part in made for latency in part.latencies_s)
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


def _drive(engine: Engine, made: list[Part]) -> None:
    moved, moved_at_s = -1, time.monotonic()
    while not all(part.done for part in made):
        for part in made:
            part.step()
        engine.turn(0.25)
        if (now_moved := sum(part.moved for part in made)) != moved:
            moved, moved_at_s = now_moved, time.monotonic()
        elif engine.closed or time.monotonic() - moved_at_s > STALL_S:
            raise EngineError(f"no progress after {[part.moved for part in made]} steps")


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
    parser.add_argument(
        "--source", action="append", help="receive: instead of --address; more than one share --messages"
    )
    parser.add_argument("--transactions", action="store_true", help=f"{GROUP} messages in each transaction")
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
