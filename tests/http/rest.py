"""A client of REST messaging: one connection that is kept alive, and answers shown whole."""

from __future__ import annotations

import http.client
import json
import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self
from xml.etree.ElementTree import fromstring

from emubus.testing import EmubusServer

WAIT_S = 20.0
BATCH = "application/vnd.microsoft.servicebus.json"
HTTPS_OWN = {"brokerproperties", "content-length", "content-type", "date", "location", "server", "transfer-encoding"}
TURNS_MAX = 2_000

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """An answer; `custom` are the headers that are properties of the message, as texts."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def broker(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.headers["BrokerProperties"])
        return found

    @property
    def custom(self) -> dict[str, str]:
        return {name: value for name, value in self.headers.items() if name.lower() not in HTTPS_OWN}

    @property
    def path(self) -> str:
        """The path in Location."""
        return "/" + self.headers["Location"].split("/", 3)[3]

    @property
    def lock_token(self) -> uuid.UUID:
        return uuid.UUID(self.broker["LockToken"])

    @property
    def detail(self) -> str:
        """What an error says, without the part that is for tracking."""
        error = fromstring(self.content)
        assert (error.tag, error.findtext("Code")) == ("Error", str(self.status)), self.content
        text, separator, _ = (error.findtext("Detail") or "").partition(" TrackingId:")
        assert separator, self.content
        return text


class Rest:
    """Requests on one connection; `headers` go with each of them. Close it, or use it with `with`."""

    def __init__(self, port: int, headers: Headers = ()) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        self._headers = tuple(headers)
        self.host = f"127.0.0.1:{port}"

    def ask(self, method: str, path: str, content: bytes | None = None, headers: Headers = ()) -> Answer:
        """A request as it is written."""
        connection = self._connection
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (*self._headers, *headers):
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(content or b"")))
        connection.endheaders(content)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())

    def send(self, entity: str, content: bytes = b"", headers: Headers = (), **broker_properties: object) -> Answer:
        """Send a message."""
        if broker_properties:
            headers = (*headers, ("BrokerProperties", json.dumps(broker_properties)))
        return self.ask("POST", f"/{entity}/messages", content, headers)

    def send_batch(self, entity: str, *messages: object) -> Answer:
        """Send a batch, each message as an object."""
        return self.ask("POST", f"/{entity}/messages", json.dumps(messages).encode(), [("Content-Type", BATCH)])

    def peek_lock(self, entity: str, timeout: float = 0) -> Answer:
        """Receive with a lock."""
        return self.ask("POST", f"/{entity}/messages/head?timeout={timeout}")

    def receive(self, entity: str, timeout: float = 0) -> Answer:
        """Receive and delete."""
        return self.ask("DELETE", f"/{entity}/messages/head?timeout={timeout}")

    def complete(self, path: str) -> int:
        return self.ask("DELETE", path).status

    def unlock(self, path: str) -> int:
        return self.ask("PUT", path).status

    def renew(self, path: str) -> Answer:
        return self.ask("POST", path)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Waiting:
    """A request on a socket of its own whose answer does not come yet; the server waits when this is made."""

    def __init__(
        self, server: EmubusServer, method: str, entity: str, timeout: float = 60, query: str | None = None
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.http_port), timeout=WAIT_S)
        target = f"/{entity}/messages/head" + (f"?timeout={timeout}" if query is None else query)
        request = f"{method} {target} HTTP/1.1\r\nHost: emubus\r\n\r\n"
        before = waiting_count(server, entity)
        self._socket.sendall(request.encode())
        until(lambda: waiting_count(server, entity) == before + 1)

    def answer(self) -> Answer:
        """The answer, once it is there."""
        response = http.client.HTTPResponse(self._socket)
        response.begin()
        found = Answer(response.status, dict(response.getheaders()), response.read())
        self.close()
        return found

    def close(self) -> None:
        """Go away."""
        self._socket.close()


def waiting_count(server: EmubusServer, path: str) -> int:
    """How many receivers an entity has."""
    entity = server.call(lambda: server.server.broker.namespace.entity(path))
    assert entity is not None
    return server.call(lambda: len(entity.attached))


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again; each time the server has done some of its work."""
    assert any(condition() for _ in range(TURNS_MAX))
