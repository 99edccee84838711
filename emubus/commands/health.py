"""`emubus health`: ask a running server whether it is ready.

Speaks HTTP on a plain socket: containers run this every few seconds, and Python's HTTP client takes longer to import
than the answer takes to come.
"""

from __future__ import annotations

import select
import socket
from time import perf_counter
from typing import Final

from ..exits import EXIT_FAILED, EXIT_OK
from ..options import HOST, HTTP_PORT, option_with_source, read_default
from ..terminal import one_line, reason_of, write_errors, write_json, write_lines, write_notes
from .declaring import Command, Parsed

ANSWER_BYTES_MAX: Final = 10_000
SECONDS_MAX: Final = 86_400
SETTLED_S: Final = 10
"""A server that has been up for longer need not be asked often."""
LOCAL: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where a server that listens on every address is reached from the same machine."""


def add_arguments(parser: Command) -> None:
    """Add the server's address and the time limit."""
    parser.setting(HOST._replace(brief="host of the server (127.0.0.1)"))
    parser.setting(HTTP_PORT._replace(brief="its port for HTTP (5300)"))
    parser.option("--timeout", convert=_seconds, default=3.0, metavar="S", help="seconds to wait (3)")
    parser.option(
        "--hold",
        convert=_seconds,
        default=0.0,
        metavar="S",
        help="seconds to sleep if the server has long been healthy (0)",
    )
    parser.switch("--json", help="print JSON, also if nobody answers")
    parser.run = run


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= SECONDS_MAX:  # also what is no number
        raise ValueError(f"is {text!r}; allowed is 0 to {SECONDS_MAX}")
    return seconds


def run(parsed: Parsed) -> int:
    """Print the server's answer; the exit code is 0 if it is healthy, else 1. ConfigError."""
    arguments = {"host": parsed.host, "http_port": parsed.http_port}
    host = read_default(HOST, arguments)
    host, port = LOCAL.get(host, host), read_default(HTTP_PORT, arguments)
    authority = f"{f'[{host}]' if ':' in host else host}:{port}"
    try:
        status, body, uptime_s = _get_health(host, port, authority, parsed.timeout)
    except (OSError, ValueError) as error:
        if parsed.host is None and parsed.http_port is None and (found := _server_on_other_port(port)) is not None:
            return run(Parsed({**vars(parsed), "host": found[0], "http_port": str(found[1])}))
        if parsed.json:
            message = one_line(reason_of(error))
            write_json({"url": f"http://{authority}", "is_healthy": False, "status": None, "message": message})
            return EXIT_FAILED
        said = one_line(f"no answer from http://{authority}/health: {reason_of(error)}")
        write_errors([f"{said}; `emubus serve` starts a server, --host and --http-port name another"])
        return EXIT_FAILED
    if status == 200 and uptime_s >= SETTLED_S:
        select.select([], [], [], parsed.hold)  # a container asks again at once: often while it starts, then seldom
    if parsed.json:
        text = one_line(body.decode(errors="replace"))
        write_json({"url": f"http://{authority}", "is_healthy": status == 200, "status": status, "message": text})
        return EXIT_OK if status == 200 else EXIT_FAILED
    (write_lines if status == 200 else write_notes)([one_line(body.decode(errors="replace"))])
    return EXIT_OK if status == 200 else EXIT_FAILED


def _server_on_other_port(port: int) -> tuple[str, int] | None:
    """Host and port of the server that a command without options means, if it is on another port."""
    if option_with_source(HOST, {})[1] is not None or option_with_source(HTTP_PORT, {})[1] is not None:
        return None
    from pathlib import Path
    from urllib.parse import urlsplit

    from ..running import nearest, servers  # only if nobody answers

    own = nearest(servers(), Path("emubus-data"), port)
    return None if own is None or own.http_port == port else (urlsplit(own.url).hostname or "", own.http_port)


def _get_health(host: str, port: int, authority: str, timeout_s: float) -> tuple[int, bytes, int]:
    """Status, body and uptime (seconds) of `GET /health`. OSError; ValueError if the answer is not HTTP."""
    # HTTP/1.0: the server sends the body as it is, and closes the connection behind it.
    request = f"GET /health HTTP/1.0\r\nHost: {authority}\r\n\r\n"
    answer = b""
    ends = perf_counter() + timeout_s
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(request.encode())
        while len(answer) < ANSWER_BYTES_MAX and (piece := connection.recv(ANSWER_BYTES_MAX)):
            answer += piece
            # The time is that of the whole answer, however slowly its pieces come.
            if (left_s := ends - perf_counter()) <= 0:
                raise TimeoutError("timed out")
            connection.settimeout(left_s)
    head, _, body = answer[:ANSWER_BYTES_MAX].partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ValueError("it is not HTTP")
    uptime = head.partition(b"\r\nUptime: ")[2].partition(b"\r\n")[0]
    return int(words[1]), body, int(uptime) if uptime.isdigit() else 0
