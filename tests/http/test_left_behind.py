"""Nothing large that a caller sent is left behind in a circle of references (`tests/left_behind.py` says why)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emubus.broker.model.descriptions import EntityStatus, QueueDescription
from emubus.testing import EmubusServer

from ..left_behind import SIZE_BYTES, circles, only_new_objects
from .test_broken_requests import FACES, ask


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    off = QueueDescription("off", status=EntityStatus.DISABLED)
    with EmubusServer([QueueDescription("q"), off, QueueDescription("sessions", requires_session=True)]) as running:
        yield running


TEXT = b"x" * SIZE_BYTES
ENTRY = b'<entry xmlns="http://www.w3.org/2005/Atom"><content>', b"</content></entry>"
PARTS = b'--x\r\nContent-Disposition: form-data; name="path"\r\n\r\nq\r\n--x\r\nContent-Disposition: form-data; '
BODIES = {
    "blanks": b" " * SIZE_BYTES,
    "text": TEXT,
    "deep JSON": b"[" * 1000 + b" " * SIZE_BYTES + b"]" * 1000,
    "JSON": b'{"verb": "copy", "entity": "q", "x": "' + TEXT + b'"}',
    "deep XML": ENTRY[0] + b"<a>" * 20_000 + b"</a>" * 20_000 + ENTRY[1],
    "XML": ENTRY[0] + b"<QueueDescription><A>" + TEXT + b"</A></QueueDescription>" + ENTRY[1],
    "form": b"path=q&body=" + TEXT,
    "parts": PARTS + b'name="lines"; filename="a"\r\n\r\n' + TEXT + b"\r\n--x--",
    "not UTF-8": b"\xff" * SIZE_BYTES,
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("face", FACES)
def test_what_was_sent_is_not_left_in_a_circle(server: EmubusServer, face: str, body: str) -> None:
    with only_new_objects():
        ask(server, face, BODIES[body])
        assert circles() == []


MESSAGE = b'{"body": "' + TEXT + b'"}'
SENDING = {
    "REST": ("POST /{}/messages", "text/plain", TEXT),
    "REST batch": ("POST /{}/messages", "application/vnd.microsoft.servicebus.json", b'[{"Body": "' + TEXT + b'"}]'),
    "control API": ("POST /emubus/v1/entities/{}/messages", "application/json", MESSAGE),
    "JSON Lines": ("POST /emubus/v1/entities/{}/messages/lines", "application/jsonl", MESSAGE),
    "form": ("POST /emubus/page/send", "application/x-www-form-urlencoded", b"path={}&body=" + TEXT),
}


@pytest.mark.parametrize("queue", ["q", "off", "sessions", "missing"])
@pytest.mark.parametrize("face", SENDING)
def test_what_a_queue_takes_or_refuses_is_not_left_in_a_circle(server: EmubusServer, face: str, queue: str) -> None:
    line, kind, body = SENDING[face]
    with only_new_objects():
        ask(server, (line.format(queue), kind), body.replace(b"{}", queue.encode()))
        assert circles() == []


def test_a_circle_is_found() -> None:
    with only_new_objects():
        circle: list[object] = [bytes(SIZE_BYTES)]
        circle.append(circle)
        del circle
        assert circles() == ["list"]
