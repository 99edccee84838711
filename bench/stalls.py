"""How long a server's event loop does not answer, seen from a second connection while it has work.

A ping opens an AMQP session and closes it again; the answers need the event loop and nothing else: no store, no entity.
A ping waits for its answer before the next one goes, a millisecond later, so that a stall of the loop is seen by one
ping at all but a millisecond of its length. On a busy machine the server or this process may also be ready and have no
processor: that time, which the kernel counts, is taken off. Pings until standard input ends; prints one line of JSON.

    python bench/stalls.py --port 5672 --pid 4711
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from typing import Final

from cproton_ffi import lib
from engine import Engine, EngineError, connect
from processor import main_thread

PAUSE_S: Final = 0.001
ANSWER_S: Final = 30.0


def ping(engine: Engine) -> None:
    """Open a session of AMQP, and close it. Raises EngineError."""
    session = engine.open_session()
    engine.run_until(lambda: lib.pn_session_state(session) & lib.PN_REMOTE_ACTIVE != 0, ANSWER_S, "an answer")
    lib.pn_session_close(session)
    engine.run_until(lambda: lib.pn_session_state(session) & lib.PN_REMOTE_CLOSED != 0, ANSWER_S, "an answer")
    lib.pn_session_free(session)


def waited_ns(pid: int) -> int:
    """Time that the server's main thread and this process were ready and had no processor."""
    return main_thread(pid).waited_ns + main_thread(os.getpid()).waited_ns


def measure(engine: Engine, pid: int) -> list[float]:
    """Seconds of each ping without the waits for a processor, sorted. Raises EngineError."""
    spent_s: list[float] = []
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        waited, started_s = waited_ns(pid), time.perf_counter()
        ping(engine)
        spent_s.append(time.perf_counter() - started_s - (waited_ns(pid) - waited) / 1e9)
    return sorted(spent_s)


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=5672)
    parser.add_argument("--pid", type=int, required=True, help="the server's process")
    arguments = parser.parse_args(argv)
    try:
        engine = connect(arguments.port, container="bench-stalls")
        print("ready", flush=True)
        spent_s = measure(engine, arguments.pid) or [0.0]
        engine.close()
    except (EngineError, OSError) as error:
        print(f"stalls: {error}", file=sys.stderr)
        return 1
    at_99 = spent_s[min(len(spent_s) - 1, len(spent_s) * 99 // 100)]
    print(json.dumps({"pings": len(spent_s), "p99_ms": at_99 * 1000, "longest_ms": spent_s[-1] * 1000}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
