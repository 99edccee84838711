"""A client of the HTTP face that shows what came back, whole."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROOT = "/emubus/v1"
WAIT_S = 20.0


@dataclass(frozen=True)
class Answered:
    """A response."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.content)


class Http:
    """Requests to one port, each on a connection of its own."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self._port = port
        self._headers = dict(headers or {})

    def send(self, method: str, path: str, content: bytes | None = None, **headers: str) -> Answered:
        """A request as it is written."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=WAIT_S)
        try:
            more = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, content, {**self._headers, **more})
            answer = connection.getresponse()
            return Answered(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: object = None) -> Answered:
        """A request to the control API."""
        if body is None:
            return self.send(method, ROOT + path)
        return self.send(method, ROOT + path, json.dumps(body).encode(), Content_Type="application/json")

    def get(self, path: str) -> Any:
        """What the control API has there."""
        return self.done(self.ask("GET", path))

    def post(self, path: str, body: object = None) -> Any:
        """What the control API answers."""
        return self.done(self.ask("POST", path, body))

    @staticmethod
    def done(answered: Answered) -> Any:
        """The body of an answer that is no error."""
        assert answered.status in (200, 201), (answered.status, answered.content)
        return answered.json
