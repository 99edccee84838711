"""The names of entities as a server lists them, and the error when it lists none."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.options import source_options
from emubus.spark_connector.source.several import directory
from emubus.spark_connector.source.several.members import paths_of
from emubus.testing import EmubusServer


def listed(server: EmubusServer, **raw: str) -> list[str]:
    return paths_of(source_options({"connectionString": server.connection_string, **raw}, streaming=False))


@pytest.fixture(scope="module")
def names(server: EmubusServer) -> EmubusServer:
    for name in ("dir-a", "dir-b", "dir-c", "dir/x"):
        server.create(QueueDescription(name))
    for topic in ("dir-topic", "dir-other"):
        server.create(TopicDescription(topic))
        for name in ("all", "audit"):
            server.create(SubscriptionDescription(topic, name))
    return server


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("dir-*", ["dir-a", "dir-b", "dir-c"]),
        ("dir*/Subscriptions/audit", ["dir-other/Subscriptions/audit", "dir-topic/Subscriptions/audit"]),
        ("^dir.(a|t.*)$", ["dir-a", "dir-topic/Subscriptions/all", "dir-topic/Subscriptions/audit"]),
        ("nothing-*", []),
    ],
)
def test_queues_and_subscriptions_are_found_page_by_page(
    names: EmubusServer, monkeypatch: pytest.MonkeyPatch, pattern: str, found: list[str]
) -> None:
    monkeypatch.setattr(directory, "PAGE", 2)
    assert listed(names, entityPattern=pattern) == found


def test_what_is_named_comes_first_and_once_and_all_have_the_sub_queue(names: EmubusServer) -> None:
    dead = "/$DeadLetterQueue"
    found = listed(names, entities="zzz,DIR-B", entityPattern="dir-*", subQueue="deadLetter")
    assert found == [f"zzz{dead}", f"DIR-B{dead}", f"dir-a{dead}", f"dir-c{dead}"]


class Refusing(BaseHTTPRequestHandler):
    """Answers each request as its server says."""

    def do_GET(self) -> None:
        status, body = self.server.answer  # type: ignore[attr-defined]  # what `refusing` has set
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
        logging.getLogger(__name__).debug(format, *args)


@pytest.fixture
def refusing() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        (401, b"", Code.UNAUTHORIZED, "give a credential with the right Manage, or name the entities"),
        (503, b"", Code.THROTTLED, "with 503"),
        (200, b"<html>", Code.REFUSED, "check the option administrationPort"),
        (200, b'<!DOCTYPE x [<!ENTITY a "b">]><feed/>', Code.REFUSED, "it has a document type"),
    ],
)
def test_a_refusal_names_the_option_and_the_remedy(
    refusing: HTTPServer, status: int, body: bytes, code: Code, text: str
) -> None:
    refusing.answer = status, body  # type: ignore[attr-defined]
    raw = {
        "connectionString": f"Endpoint=sb://127.0.0.1:{refusing.server_port};SharedAccessKeyName=n;"
        "SharedAccessKey=azE=;UseDevelopmentEmulator=true",
        "entityPattern": "*",
    }
    with pytest.raises(ConnectorError, match="entityPattern") as error:
        paths_of(source_options(raw, streaming=False))
    assert error.value.code is code
    assert text in str(error.value)


def test_nobody_there_is_said_with_the_address(server: EmubusServer) -> None:
    with pytest.raises(ConnectorError, match=r"localhost:1 gives no list of entities.*administrationPort") as error:
        listed(server, entityPattern="*", administrationPort="1")
    assert error.value.code is Code.UNAVAILABLE
    assert error.value.retriable
