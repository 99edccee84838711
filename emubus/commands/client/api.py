"""Requests to the control API of a running emubus.

Knows HTTP, credentials, and how an error becomes one line with a remedy. Does not know the commands. Keeps one
connection while the server does.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from ...exits import EXIT_FAILED, EXIT_NO_SERVER, EXIT_USAGE, CommandError
from ...kit.answers import Answer, AnswerError, parse_answer
from ...kit.http_connection import CHUNK_BYTES, CaError, TimedResponse, check_whole, connector, read_whole
from ...terminal import reason_of
from ..declaring import Parsed
from .address import Address, address_of
from .output import span_text

ROOT: Final = "/emubus/v1"
READ_S_MAX: Final = 20.0
"""A GET: the server bounds the work of each (`LOOK_MS_MAX` of `web/limits.py`)."""
CHANGE_S_MAX: Final = 90.0
"""Other requests: `receive` waits up to 60 s for the first message."""
PAGES_MAX: Final = 2_000
"""Of a list of entities: with 100 on each, twenty times as many as a namespace may have."""
REMEDIES: Final = {
    401: "; give a key with Manage: --connection-string, EMUBUS_CONNECTION_STRING or EMUBUS_SAS_KEY",
}


WORDS: Final = {
    "stores": "STORE",
    "store": "STORE",
    "lock_tokens": "TOKEN",
    "sequence_numbers": "NUMBER",
    "kind": "KIND",
    "operations": "--operation",
    "duration_ms": "--for",
    "delay_ms": "--delay",
    "ttl_ms": "--ttl",
    "ms": "SPAN",
    "target": "--to",
    "session_id": "--session",
    "from_sequence_number": "--from",
    "application_properties": "--property",
    "name": "NAME",
    "top": "--top",
    "action": "--action",
    "expression": "--sql",
    "description": "--description",
    "count": "--count",
    "probability": "--probability",
    "seed": "--seed",
    "entity": "--entity",
    "where": "--where",
    "text": "--text",
    "state": "--state",
    "reason": "--reason",
    "partition_id": "--partition",
    "key": "--key",
    "id": "ID",
    "number": "NUMBER",
    "sequence_number": "--number",
    "message_id": "--message-id",
    "profile": "--profile",
    "port": "--port",
    "identity": "IDENTITY",
    "role": "ROLE",
    "timeout_ms": "--wait",
    "body": "BODY",
}
"""How members of requests are called on the command line; others by their names, with spaces."""
OF_MESSAGES: Final = ("session_id", "partition_key", "reply_to", "subject", "correlation_id", "content_type")
"""Members of a message, which has an option of the same name for each: elsewhere a session is --session."""
_RANGE: Final = re.compile(r"is \d+; it must be at least \d+ and at most \d+")
_ALONE: Final = re.compile("^[a-z_]+(?= is | has \\d)")
_MEMBER: Final = re.compile(r"\b(?:body|query|path)\.([a-z_]+(?:\[\d+\]|\.[a-z_-]+)*)")


def plain_words(text: str) -> str:
    """What the server says of a member of a request, with the name that people have given it."""

    is_span = False

    def named(found: re.Match[str]) -> str:
        nonlocal is_span
        last = re.sub(r"\[\d+\]", "", found[1]).split(".")
        is_span = is_span or last[-1] == "ms" or last[-1].endswith("_ms")
        if "set" in last[:-1]:
            return ".".join(last[last.index("set") + 1 :])  # a parameter, which has a name of its own
        if last[0] == "messages" and last[-1] in OF_MESSAGES:
            return f"--{last[-1].replace('_', '-')}"
        return WORDS.get(last[-1], last[-1].replace("_", " "))

    def alone(found: re.Match[str]) -> str:
        nonlocal is_span
        is_span = is_span or found[0] == "ms" or found[0].endswith("_ms")
        return WORDS.get(found[0], found[0])

    # A member of a path or a query stands alone at the beginning.
    plain = _MEMBER.sub(named, _ALONE.sub(alone, text))
    return (
        _RANGE.sub(lambda found: re.sub(r"\d+", lambda ms: span_text(int(ms[0])), found[0]), plain)
        if is_span
        else plain
    )


class Refused(CommandError):  # noqa: N818 - the answer to a request
    """The server refuses a request; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(plain_words(message) + REMEDIES.get(status, ""), EXIT_FAILED)
        self.status = status


class Api:
    """The control API of the server at `address`.

    Refused; AnswerError if it answers as emubus never does; CommandError (exit code 3) if nobody answers.
    """

    def __init__(self, address: Address, read_s_max: float | None = None) -> None:
        self.address = address
        self._read_s_max = READ_S_MAX if read_s_max is None else read_s_max
        try:
            self._connection = connector(*address[:3], self._read_s_max, address.ca_file)()
        except (CaError, ValueError) as error:
            raise CommandError(str(error), EXIT_USAGE) from error
        self._headers: dict[str, str] = {}
        self._names_unknown = address.namespace  # until the server has said that it has this one
        if address.namespace is not None:  # the Host header says which one is meant, whatever leads to the server
            self._headers["Host"] = f"{address.namespace}.localhost"
        if address.key is not None:
            credentials = base64.b64encode(f"{address.key_name}:{address.key}".encode()).decode()
            self._headers["Authorization"] = f"Basic {credentials}"

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def post(self, path: str, body: object = None) -> Answer:
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: object = None) -> Answer:
        """The answer to any request, decoded."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        return parse_answer(self.send(method, path, data, headers))

    def upload(self, path: str, chunks: Iterator[bytes], media_type: str, method: str = "POST") -> Answer:
        """The answer to a request with bytes of any number."""
        return parse_answer(self.send(method, path, chunks, {"Content-Type": media_type}))

    def send(self, method: str, path: str, data: bytes | Iterator[bytes] | None, headers: dict[str, str]) -> bytes:
        """The body of an answer."""
        with self._answers():
            limit_s = self._read_s_max if method == "GET" else CHANGE_S_MAX
            return read_whole(self._answer_head(method, path, data, headers, limit_s))

    def stream(self, path: str, media_type: str) -> Iterator[bytes]:
        """What the API has at `path`, in pieces; there is no limit for their number."""
        with self._answers():
            answer = self._answer_head("GET", path, None, {}, CHANGE_S_MAX)
            if (given := answer.headers.get_content_type()) != media_type:
                raise AnswerError(f"it answers with {given} instead of {media_type}")
            while chunk := answer.read1(CHUNK_BYTES):
                yield chunk
                answer.begin_again()
            check_whole(answer)

    def _answer_head(
        self, method: str, path: str, data: bytes | Iterator[bytes] | None, headers: dict[str, str], limit_s: float
    ) -> TimedResponse:
        """The head of an answer to a request, which is no refusal."""
        if self._names_unknown is not None:  # a server with one namespace answers for it under every name
            name, self._names_unknown = self._names_unknown, None
            try:
                self.get(f"/namespaces/{quote(name, safe='')}")
            except Refused as refused:
                if refused.status != 404:
                    raise
                raise Refused(
                    404, f"there is no namespace '{name}'; `emubus namespace` lists those there are"
                ) from None
        if self._connection.sock is not None:
            self._connection.sock.settimeout(limit_s)
        self._connection.request(method, ROOT + path, data, {**self._headers, **headers})
        assert self._connection.sock is not None
        self._connection.sock.settimeout(limit_s)
        answer = self._connection.getresponse()
        assert isinstance(answer, TimedResponse)
        if not 200 <= answer.status < 300:
            raise _refusal(answer.status, read_whole(answer))
        return answer

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            reason = reason_of(error)
            remedy = (
                "is emubus running there? (--url, EMUBUS_URL)"
                if self.address.is_named
                else "`emubus serve` starts a server, --url or EMUBUS_URL names another"
            )
            raise CommandError(f"no answer from {self.address.url}: {reason}; {remedy}", EXIT_NO_SERVER) from error

    # ---- entities

    def entities(self) -> list[Answer]:
        found: list[Answer] = []
        page: str | None = None
        for _ in range(PAGES_MAX):
            answer = self.get("/entities" if page is None else f"/entities?page={quote(page, safe='')}")
            own, following = answer.parts("entities"), answer.text_or_none("next_page")
            found += own
            if following is None:
                return found
            if not own or following == page:
                raise AnswerError("next_page does not lead to the end")
            page = following
        raise AnswerError(f"the list of entities has more than {PAGES_MAX} pages")

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

        paths = [each.text("path") for each in self.entities()]
        names = {shorter.lower(): shorter for each in paths for shorter in [each.replace("/Subscriptions/", "/")]}
        wanted = path.lower().replace("/subscriptions/", "/")
        topic, slash, _ = wanted.rpartition("/")
        if slash and topic in names:  # its neighbours, not the topic itself
            below = [each for each in names if each.startswith(f"{topic}/")]
            names = {each: names[each] for each in below} or {topic: names[topic]}
        close = get_close_matches(wanted, names, n=1)
        return f"; did you mean '{names[close[0]]}'?" if close else "; `emubus ls` lists the entities"

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(parsed: Parsed, read_s_max: float | None = None) -> Api:
    """The API of the server that the options name; nothing is sent yet. ConfigError.

    `read_s_max` is for who waits for less than the server may take (seconds).
    """
    return Api(address_of(parsed), read_s_max)


def entity_at(path: str) -> str:
    """The address of an entity below `ROOT`."""
    return f"/entities/{quote(path, safe='')}"


def _refusal(status: int, body: bytes) -> CommandError:
    """What an answer says that is none with 200; AnswerError if it is not emubus's."""
    try:
        return Refused(status, parse_answer(body).part("error").text("message"))
    except AnswerError:
        raise AnswerError(f"it answers with HTTP status {status}") from None
