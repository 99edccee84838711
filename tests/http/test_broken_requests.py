"""Requests that are broken on the way, or by their sender: each face refuses them in its format, and nobody is alarmed.

`FACES` has a request with a body for each way in which a face reads one.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from yarl import URL

from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer
from emubus.web.transport.origins import is_host

from ..log_levels import every_level

FORM = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data; boundary=x"
FACES = {
    "control API": ("POST /emubus/v1/jobs", "application/json"),
    "JSON Lines": ("POST /emubus/v1/entities/q/messages/lines", "application/jsonl"),
    "Config.json": ("POST /emubus/v1/config", "application/json"),
    "archive": ("PUT /emubus/v1/snapshots/a/archive", "application/x-tar"),
    "REST": ("POST /q/messages", "text/plain"),
    "REST batch": ("POST /q/messages", "application/vnd.microsoft.servicebus.json"),
    "Atom": ("PUT /made", "application/atom+xml"),
    "form": ("POST /emubus/page/send", FORM),
    "form with lines": ("POST /emubus/page/import", PARTS),
    "form with a Config.json": ("POST /emubus/page/import-config", PARTS),
}
BROKEN_CODINGS = {"gzip": b"no gzip at all", "deflate": b"\xff\xff\xff"}
NAMED = b'--x\r\nContent-Disposition: form-data; name="path"\r\n'
BROKEN_PARTS = {
    "no boundary": b"nothing",
    "another boundary": b"--y\r\n\r\nx\r\n--y--",
    "no end": NAMED + b"\r\nq",
    "a length that is none": NAMED + b"Content-Length: -x\r\n\r\nq\r\n--x--",
    "a header that is none": b"--x\r\nContent-Disposition\r\n\r\nq\r\n--x--",
    "headers without end": b"--x\r\n" + b"A: b\r\n" * 5000 + b"\r\nq\r\n--x--",
    "parts in a part": b"--x\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n--y\r\n\r\nq\r\n--y--\r\n--x--",
    "a length beyond the end": NAMED + b"Content-Length: 99\r\n\r\nq\r\n--x--",
}


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("q")]) as running:
        yield running


def ask(
    server: EmubusServer, face: str | tuple[str, str], body: bytes, more: str = "", *, cut: bool = False
) -> tuple[int, bytes]:
    """Status and body of the answer to a request of a face, or to a request line with a type of content.

    With `cut` the client leaves before its body has come.
    """
    line, kind = FACES[face] if isinstance(face, str) else face
    where = f"127.0.0.1:{server.http_port}"
    length = len(body) + (100 if cut else 0)
    head = (
        f"{line} HTTP/1.1\r\nHost: {where}\r\nOrigin: http://{where}\r\nAccept: text/html\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as client:
        client.sendall(head.encode() + body)
        if cut:
            client.shutdown(socket.SHUT_WR)
        answer = b""
        while data := client.recv(1 << 16):
            answer += data
    return int(answer[9:12] or 0), answer.partition(b"\r\n\r\n")[2]


def refused(server: EmubusServer, face: str, body: bytes, more: str = "") -> bytes:
    """The body of a refusal, after which no line of the log is an error."""
    with every_level(), capture_logs() as lines:
        status, answer = ask(server, face, body, more)
    assert status == 400
    assert [line for line in lines if line["log_level"] in ("error", "critical")] == []
    return answer


@pytest.mark.parametrize("coding", BROKEN_CODINGS)
@pytest.mark.parametrize("face", FACES)
def test_a_broken_content_coding_is_refused(server: EmubusServer, face: str, coding: str) -> None:
    answer = refused(server, face, BROKEN_CODINGS[coding], f"Content-Encoding: {coding.strip()}\r\n")
    assert b"The body of the request is broken: " in answer


@pytest.mark.parametrize("parts", BROKEN_PARTS)
@pytest.mark.parametrize("face", ["form with lines", "form with a Config.json"])
def test_a_form_whose_parts_are_none_is_refused(server: EmubusServer, face: str, parts: str) -> None:
    assert b"<h1" in refused(server, face, BROKEN_PARTS[parts])


@pytest.mark.parametrize("face", FACES)
def test_a_client_that_leaves_alarms_nobody(server: EmubusServer, face: str) -> None:
    with every_level(), capture_logs() as lines:
        ask(server, face, b"[", cut=True)
        assert ask(server, "REST", b"x")[0] == 201  # the server goes on
    assert [line for line in lines if line["log_level"] in ("error", "critical")] == []


NO_HOSTS = ["a:99999", "a:x", "[::1", "[1.2.3.4]", "a b", "%00", "a\\b", "a/b", "u@a", "\x84", "x?"]
OF_EACH_FACE = ["GET /emubus/page/namespace", "GET /emubus/v1/entities", "POST /q/messages/head?timeout=0", "GET /q"]


@pytest.mark.parametrize("host", NO_HOSTS)
def test_a_host_that_is_none_is_refused_by_every_face(server: EmubusServer, host: str) -> None:
    for line in OF_EACH_FACE:
        head = f"{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as client:
            client.sendall(head.encode("latin-1"))
            assert client.recv(12)[9:] == b"400", line


@given(st.text(max_size=20) | st.from_regex(r"[\w.\[\]:%-]{0,20}", fullmatch=True))
def test_what_is_taken_for_a_host_can_be_part_of_an_address(text: str) -> None:
    if is_host(text):
        URL.build(scheme="http", authority=text, path="/")


@pytest.mark.parametrize("host", ["", "localhost", "a.b-c_d", "127.0.0.1:5300", "[::1]:5300", "a:", "XN--abc.example"])
def test_names_and_addresses_are_hosts(host: str) -> None:
    assert is_host(host)
