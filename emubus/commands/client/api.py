"""Requests to the control API of a running emubus.

Knows HTTP, credentials, and how an error becomes one line with a remedy. Does not know the commands. Keeps one
connection while the server does.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from ...kit.answers import Answer, parse_answer
from ...kit.http_connection import CaError, connector
from .. import EXIT_FAILED, EXIT_NO_SERVER, EXIT_USAGE, CommandError
from .address import Address, address_of

ROOT: Final = "/emubus/v1"
TIMEOUT_S: Final = 90.0
CHUNK_BYTES: Final = 1 << 20
REMEDIES: Final = {
    401: "; give a key with Manage: --connection-string, EMUBUS_CONNECTION_STRING or EMUBUS_SAS_KEY",
}


class Refused(CommandError):  # noqa: N818 - the answer to a request
    """The server refuses a request; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message + REMEDIES.get(status, ""), EXIT_FAILED)
        self.status = status


class Api:
    """The control API of the server at `address`. Refused; CommandError (exit code 3) if nobody answers."""

    def __init__(self, address: Address) -> None:
        self.address = address
        try:
            self._connection = connector(*address[:3], TIMEOUT_S, address.ca_file)()
        except CaError as error:
            raise CommandError(str(error), EXIT_USAGE) from error
        self._headers: dict[str, str] = {}
        if address.key is not None:
            credentials = base64.b64encode(f"{address.key_name}:{address.key}".encode()).decode()
            self._headers["Authorization"] = f"Basic {credentials}"

    def get(self, path: str) -> Answer:
        """What the API has at `path`."""
        return self.call("GET", path)

    def post(self, path: str, body: object = None) -> Answer:
        """The answer to a POST."""
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: object = None) -> Answer:
        """The answer to any request, decoded."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        return parse_answer(self.send(method, path, data, headers))

    def upload(self, path: str, chunks: Iterator[bytes], media_type: str) -> Answer:
        """The answer to a POST of bytes of any number."""
        return parse_answer(self.send("POST", path, chunks, {"Content-Type": media_type}))

    def send(self, method: str, path: str, data: bytes | Iterator[bytes] | None, headers: dict[str, str]) -> bytes:
        """The body of an answer."""
        return b"".join(self._asked(method, path, data, headers))

    def stream(self, path: str) -> Iterator[bytes]:
        """What the API has at `path`, in pieces."""
        return self._asked("GET", path, None, {})

    def _asked(
        self, method: str, path: str, data: bytes | Iterator[bytes] | None, headers: dict[str, str]
    ) -> Iterator[bytes]:
        try:
            self._connection.request(method, ROOT + path, data, {**self._headers, **headers})
            answer = self._connection.getresponse()
            if answer.status >= 400:
                raise Refused(answer.status, _message(answer.status, answer.read()))
            while chunk := answer.read(CHUNK_BYTES):
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise CommandError(
                f"no answer from {self.address.url}: {reason}; is emubus running there? (--url, EMUBUS_URL)",
                EXIT_NO_SERVER,
            ) from error

    # ---- entities

    def entities(self) -> list[Answer]:
        """All entities, by their paths."""
        answer = self.get("/entities")
        found = answer.parts("entities")
        while (following := answer.text_or_none("next_page")) is not None:
            answer = self.get(f"/entities?page={quote(following, safe='')}")
            found += answer.parts("entities")
        return found

    def entity(self, path: str) -> str:
        """The address below `ROOT` of an entity; `topic/name` is a subscription if there is no queue of that name.

        Refused (404) with the nearest name if there is none.
        """
        wanted = [path]
        if "/" in path and "/subscriptions/" not in path.lower():
            topic, _, name = path.rpartition("/")
            wanted.append(f"{topic}/Subscriptions/{name}")
        for each in wanted:
            try:
                self.get(entity_at(each))
            except Refused as refused:
                if refused.status != 404:
                    raise
                continue
            return entity_at(each)
        raise Refused(404, f"no entity '{path}'{self._suggestion(path)}")

    def _suggestion(self, path: str) -> str:
        from difflib import get_close_matches  # only for a mistake

        names = {each.text("path").lower(): each.text("path") for each in self.entities()}
        close = get_close_matches(path.lower(), names, n=1)
        return f"; did you mean '{names[close[0]]}'?" if close else "; `emubus ls` lists the entities"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(parsed: argparse.Namespace) -> Api:
    """The API of the server that the options name; nothing is sent yet. ConfigError."""
    return Api(address_of(parsed))


def entity_at(path: str) -> str:
    """The address of an entity below `ROOT`."""
    return f"/entities/{quote(path, safe='')}"


def _message(status: int, body: bytes) -> str:
    try:
        return str(parse_answer(body).part("error")["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answers with HTTP status {status}; it may not be emubus"
