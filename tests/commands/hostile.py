"""A server that answers what the control API's document says, or worse: each string hostile, each member wrong in turn.

It has no state and knows no command: it looks up the route, and makes a sample of the schema of its answer.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Final

HOSTILE: Final = (
    "\x1b]0;pwned\x1b\\\x1b[2J\x1b]52;c;cHduZWQ=\x1b\\\x9b31m\x9d0;t\x9c\u202e\u2066\x07\r\x7f\x00\x85\u2028\ud800é\n"
    "emubus: error: forged"
)
UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
Json = Any
LINE: Final[Json] = {
    "sequence_number": 1,
    "partition_id": 0,
    "state": "active",
    "enqueued_at": 1,
    "delivery_count": 0,
    "message": {"properties": {"message_id": "x", "subject": "x"}, "body": {"kind": "data", "text": "x"}},
}
"""A line of exported messages: the document calls it a text."""


class Document:
    """The routes of the control API with samples of their answers."""

    def __init__(self, document: Mapping[str, Json]) -> None:
        self._schemas = document["components"]["schemas"]
        self._routes: list[tuple[str, re.Pattern[str], str, Json]] = []
        for path, operations in document["paths"].items():
            pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
            for method, operation in operations.items():
                answer = next(each for status, each in operation["responses"].items() if status.startswith("2"))
                ((media_type, own),) = answer["content"].items()
                self._routes.append((method.upper(), pattern, media_type, own["schema"]))
        self._ticks = count(1_700_000_000_000, 3_600_000)

    def sample(self, method: str, path: str) -> Json:
        """An answer as the server may give it; the broker's clock moves with each, no job runs, no page follows."""
        media_type, schema = self._found(method, path)
        return copy.deepcopy(LINE) if media_type == "application/jsonl" else self._of(schema, "")

    def media_type(self, method: str, path: str) -> str:
        """Of the answer."""
        return self._found(method, path)[0]

    def _found(self, method: str, path: str) -> tuple[str, Json]:
        return next(
            (media_type, schema)
            for own, route, media_type, schema in self._routes
            if own == method and route.fullmatch(path)
        )

    def _of(self, schema: Mapping[str, Json], name: str) -> Json:
        if name == "filter":
            return {"kind": "correlation", "label": "x", "properties": {"x": "x"}}
        if "type" not in schema and "enum" not in schema and "$ref" not in schema and "anyOf" not in schema:
            return {"UserConfig": {}}
        if name in ("next_page", "next_sequence_number", "error"):
            return None
        if name in ("now_ms", "ended_at", "started_at"):
            return next(self._ticks)
        if name == "state" and "enum" in schema:
            return schema["enum"][-1]
        if "$ref" in schema:
            return self._of(self._schemas[schema["$ref"].rpartition("/")[2]], name)
        if "anyOf" in schema:
            return self._of(schema["anyOf"][0], name)
        if "enum" in schema:
            return next(each for each in schema["enum"] if each is not None)
        kinds = schema.get("type", "string")
        kind = kinds[0] if isinstance(kinds, list) else kinds
        if kind == "object":
            own = {each: self._of(part, each) for each, part in schema.get("properties", {}).items()}
            others = schema.get("additionalProperties")
            return own or ({"x": self._of(others, "x")} if isinstance(others, dict) else {})
        if kind == "array":
            return [self._of(schema["items"], name)]
        return {"string": "x", "integer": max(1, schema.get("minimum", 1)), "number": 0.5, "boolean": False}.get(kind)


def hostile(value: Json) -> Json:
    """The value with hostile texts for all of its texts, also those that only a table of the server allows."""
    if isinstance(value, dict):
        return {**{name: hostile(each) for name, each in value.items()}, HOSTILE: HOSTILE}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return HOSTILE if isinstance(value, str) else value


def wrong(value: Json) -> Iterator[tuple[str, Json]]:
    """The value with one member wrong, for each member at any depth: missing, or of each other type."""
    for path in _places(value):
        for what, make in _WRONG.items():
            changed = copy.deepcopy(value)
            part = changed
            for step in path[:-1]:
                part = part[step]
            if make is None:
                del part[path[-1]]
            else:
                part[path[-1]] = make()
            yield f"{'.'.join(map(str, path))} {what}", changed


def _places(value: Json) -> Iterator[tuple[Json, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield (key,)
        yield from ((key, *below) for below in _places(each))


_WRONG: Final[Mapping[str, Callable[[], Json] | None]] = {
    "missing": None,
    "null": lambda: None,
    "a text": lambda: HOSTILE,
    "a number": lambda: 7,
    "a huge number": lambda: 10**30,
    "a negative number": lambda: -(10**18),
    "a fraction": lambda: 1e308,
    "true": lambda: True,
    "a list": lambda: [[HOSTILE], None],
    "an object": lambda: {"x": HOSTILE},
    "empty": list,
}

Answering = Callable[[str, str], bytes]
"""The whole answer to a method and path, with its head."""


def answer(body: bytes, status: int = 200, head: str = "Content-Type: application/json") -> bytes:
    """An HTTP answer that ends the connection."""
    return f"HTTP/1.1 {status} X\r\n{head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answering: Answering

    def _handle(self) -> None:
        self.close_connection = True
        try:
            self._answer()
        except (OSError, ValueError):
            pass  # the command has gone

    def _answer(self) -> None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while (size := int(self.rfile.readline(), 16)) + 1:
                self.rfile.read(size + 2)
                if size == 0:
                    break
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.wfile.write(type(self).answering(self.command, self.path.partition("?")[0]))

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _handle  # noqa: N815 - the names are those of the library

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the library
        """Say nothing."""


class HostileServer:
    """A server whose answers a test sets."""

    def __init__(self, port: int, handler: type[_Handler]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._handler = handler
        self.asked: list[tuple[str, str]] = []

    def answers(self, answering: Answering) -> None:
        """Answer so from now on."""
        self.asked = asked = []

        def noted(method: str, path: str) -> bytes:
            asked.append((method, path))
            return answering(method, path)

        self._handler.answering = staticmethod(noted)


@contextmanager
def hostile_server() -> Iterator[HostileServer]:
    """A hostile server on a free port."""
    handler = type("_Own", (_Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield HostileServer(server.server_port, handler)
        finally:
            server.shutdown()
            thread.join()
