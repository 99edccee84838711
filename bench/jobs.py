"""What a job on many messages costs everybody else: the server's memory, and how long its event loop stands still.

Fills a queue, then moves all messages to another queue, dead-letters, resubmits and deletes them, each with one job of
the control API. Prints for each job its rate, how much the server's own memory grew at most, and the stalls of the
event loop as `stalls.py` sees them. At last it stops a job in its middle, and prints how long that took.

    python bench/jobs.py --messages 100000
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import time
from typing import Any, Final

from starting import BENCH, BrokerError, Emubus, exit_code, load, running, workplace

POLL_S: Final = 0.05
BODY_BYTES: Final = 1_000
JOBS: Final = (
    {"verb": "move", "entity": "partitioned", "target": "plain", "filter": {}},
    {"verb": "copy", "entity": "plain", "target": "partitioned", "filter": {"where": "sys.DeliveryCount = 0"}},
    {"verb": "dead-letter", "entity": "plain", "filter": {}, "reason": "bench"},
    {"verb": "resubmit", "entity": "plain", "sub_queue": "dead-letter", "filter": {}},
    {"verb": "delete", "entity": "plain", "filter": {}},
)
STOPPED_JOB: Final = {"verb": "delete", "entity": "partitioned", "filter": {}}


def call(port: int, method: str, path: str, body: object = None) -> Any:
    """An answer of the control API. Raises BrokerError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, f"/emubus/v1{path}", data, {"Content-Type": "application/json"} if data else {})
        answer = connection.getresponse()
        found = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status >= 400:
        raise BrokerError(str(found))
    return found


def measure(broker: Emubus, asked: dict[str, object]) -> str:
    """Run one job to its end; a line with its figures. Raises BrokerError."""
    words = [sys.executable, str(BENCH / "stalls.py"), "--port", str(broker.port), "--pid", str(broker.pid)]
    pings = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert pings.stdout is not None
    if pings.stdout.readline() != "ready\n":
        raise BrokerError("stalls.py did not get ready")
    before = highest = broker.memory().anonymous
    used, started_s = broker.used().process_ns, time.perf_counter()
    job = call(broker.port, "POST", "/jobs", asked)
    while job["state"] == "running":
        time.sleep(POLL_S)
        highest = max(highest, broker.memory().anonymous)
        job = call(broker.port, "GET", f"/jobs/{job['id']}")
    seconds, used = time.perf_counter() - started_s, broker.used().process_ns - used
    found = json.loads(pings.communicate()[0])
    if job["failed_count"] or job["error"]:
        raise BrokerError(str(job))
    return (
        f"{asked['verb']:12} {job['done_count']:8} messages  {job['done_count'] / seconds:7.0f}/s "
        f"{used / 1e3 / job['done_count']:6.1f} us of processor each  memory +{highest - before:5.1f} MiB  "
        f"stalls p99 {found['p99_ms']:.1f} ms, longest {found['longest_ms']:.1f} ms"
    )


def stopped(broker: Emubus) -> str:
    """Stop a job in its middle; a line that says how long that took. Raises BrokerError."""
    job = call(broker.port, "POST", "/jobs", STOPPED_JOB)
    while job["state"] == "running" and not job["done_count"]:
        job = call(broker.port, "GET", f"/jobs/{job['id']}")
    started_s = time.perf_counter()
    job = call(broker.port, "POST", f"/jobs/{job['id']}/stop")
    while job["state"] == "running":
        job = call(broker.port, "GET", f"/jobs/{job['id']}")
    seconds = time.perf_counter() - started_s
    if job["state"] != "stopped":
        raise BrokerError(str(job))
    return f"{'stop':12} {job['done_count']:8} messages  {seconds * 1e3:.1f} ms from asking to the end"


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--folder", help="where the data is; default: the folder for temporary files")
    arguments = parser.parse_args(argv)
    with workplace(arguments.folder) as folder:
        broker = Emubus(folder)
        with running(broker):
            load(broker, "send", "partitioned", arguments.messages, BODY_BYTES)
            call(broker.port, "GET", "/jobs")  # loads the HTTP server
            for asked in JOBS:
                print(measure(broker, dict(asked)), flush=True)
            print(stopped(broker), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
