"""A stand-in for the Docker Engine: its HTTP API, as far as one container needs it, with a process as the container.

Knows what the client libraries of Python and Node.js ask to create, fill, start, look at, stop and remove a container.
A container of the image is `emubus serve` with the container's variables, and its mapped ports are those of that
process. Refuses all else, as
the Engine does, with 404. Asked for an image that is broken, it starts nothing.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
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
        self.copied: Path | None = None

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """The status and JSON of a request."""
        path = re.sub(r"^/v[\d.]+", "", path.partition("?")[0])
        match method, path.strip("/").split("/"):
            case "GET", ["info"]:
                return 200, {"OperatingSystem": "Debian", "ServerVersion": "27.0", "IndexServerAddress": ""}
            case "GET", ["version"]:
                return 200, {"ApiVersion": "1.47", "MinAPIVersion": "1.24", "Version": "27.0", "Os": "linux"}
            case "GET", ["containers", "json"]:
                return 200, []
            case "GET", ["images", *_, "json"]:
                return 200, {"Id": "sha256:1"}
            case "POST", ["containers", "create"]:
                self.created = json.loads(body)
                self.events.append("create")
                return 201, {"Id": ID, "Warnings": []}
            case "PUT", ["containers", _, "archive"]:
                self.events.append("copy")
                self._copy(body)
                return 200, None
            case "POST", ["containers", _, "start"]:
                self.events.append("start")
                self._start()
                return 204, None
            case "POST", ["containers", _, "stop"]:
                self.events.append("stop")
                self.stop()
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

    def _copy(self, archive: bytes) -> None:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            (member,) = (each for each in files.getmembers() if each.isfile())
            assert (f"/{member.name.lstrip('/')}", member.mode) == (CONFIG_PLACE, 0o644)
            content = files.extractfile(member)
            assert content is not None
            self.copied = self.folder / "copied.json"
            self.copied.write_bytes(content.read())

    def _start(self) -> None:
        environment = dict(each.split("=", 1) for each in self.created["Env"])
        for bind in self.created["HostConfig"].get("Binds") or []:
            host, place, mode = bind.split(":")
            assert (place, mode) == (CONFIG_PLACE, "ro")
            environment["EMUBUS_CONFIG"] = host
        if self.copied is not None:
            environment["EMUBUS_CONFIG"] = str(self.copied)
        self.served = start_serving(self.folder, environment=environment)

    def _shown(self) -> dict[str, Any]:
        served = self.served
        mapped = {} if served is None else {"5672/tcp": served.amqp_port, "5300/tcp": served.http_port}
        asked = {port.partition("/")[0] for port in self.created["HostConfig"]["PortBindings"]}
        return {
            "Id": ID,
            "Name": "/emubus",
            "Config": {"Hostname": ID[:12], "Labels": self.created.get("Labels") or {}},
            "State": {"Status": "created" if served is None else "running", "Running": served is not None},
            "NetworkSettings": {
                "Networks": {},
                "Ports": {
                    port: [{"HostIp": "127.0.0.1", "HostPort": str(number)}]
                    for port, number in mapped.items()
                    if port.partition("/")[0] in asked
                },
            },
        }


@contextmanager
def running_engine(folder: Path) -> Iterator[tuple[Engine, str]]:
    """An Engine, and what DOCKER_HOST has to be for it."""
    engine = Engine(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, reported = engine.answer(self.command, self.path, self._body())
            content = b"" if reported is None else json.dumps(reported).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            chunks: list[bytes] = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that the library looks for

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
