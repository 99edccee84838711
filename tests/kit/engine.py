"""A stand-in for the Docker Engine: its HTTP API, as far as one container needs it, with a process as the container.

Knows what the client library asks to create, start, look at and remove a container. A container of the image is
`emubus serve` with the container's variables, and its mapped ports are those of that process. Refuses all else, as
the Engine does, with 404. Asked for an image that is broken, it starts nothing.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .running import Served, start_serving, stop_serving

ID = "c0ffee" + "0" * 58
CONFIG_PLACE = "/ServiceBus_Emulator/ConfigFiles/Config.json"


class Engine:
    """What was asked of it: `image`, `created` (the request for the container), `events` in their order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.created: dict[str, Any] = {}
        self.events: list[str] = []
        self.served: Served | None = None

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, object]:
        """The status and JSON of a request."""
        path = re.sub(r"^/v[\d.]+", "", path.partition("?")[0])
        match method, path.strip("/").split("/"):
            case "GET", ["version"]:
                return 200, {"ApiVersion": "1.47", "MinAPIVersion": "1.24", "Version": "27.0", "Os": "linux"}
            case "GET", ["images", *_, "json"]:
                return 200, {"Id": "sha256:1"}
            case "POST", ["containers", "create"]:
                self.created = dict(body)
                self.events.append("create")
                return 201, {"Id": ID, "Warnings": []}
            case "POST", ["containers", _, "start"]:
                self.events.append("start")
                self._start()
                return 204, None
            case "GET", ["containers", _, "json"] if self.created:
                return 200, self._shown()
            case "DELETE", ["containers", _]:
                self.events.append("remove")
                self.stop()
                return 204, None
        return 404, {"message": f"there is no {method} {path}"}

    def stop(self) -> None:
        """End the container's process."""
        if self.served is not None:
            stop_serving(self.served)
            self.served = None

    def _start(self) -> None:
        environment = dict(each.split("=", 1) for each in self.created["Env"])
        for bind in self.created["HostConfig"].get("Binds") or []:
            host, place, mode = bind.split(":")
            assert (place, mode) == (CONFIG_PLACE, "ro")
            environment["EMUBUS_CONFIG"] = host
        self.served = start_serving(self.folder, environment=environment)

    def _shown(self) -> dict[str, Any]:
        served = self.served
        mapped = {} if served is None else {"5672/tcp": served.amqp_port, "5300/tcp": served.http_port}
        asked = self.created["HostConfig"]["PortBindings"]
        return {
            "Id": ID,
            "State": {"Status": "created" if served is None else "running"},
            "NetworkSettings": {
                "Ports": {
                    port: [{"HostIp": "127.0.0.1", "HostPort": str(number)}]
                    for port, number in mapped.items()
                    if port in asked
                },
            },
        }


@contextmanager
def running_engine(folder: Path) -> Iterator[tuple[Engine, str]]:
    """An Engine, and what DOCKER_HOST has to be for it."""
    engine = Engine(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            status, reported = engine.answer(self.command, self.path, body)
            content = b"" if reported is None else json.dumps(reported).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the names that the library looks for

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield engine, f"tcp://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            engine.stop()
