"""Server-sent events: what changed, in order; a client that comes back misses none, or learns that it did."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emubus.broker.admin.overview import Overview
from emubus.broker.api import OutageKind
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer
from emubus.web.control.events import LISTENERS_MAX, EventFeed
from emubus.web.services import Services

from ...broker.namespace import _brokers_stop, open_broker
from ...web.namespace import send
from .client import ROOT, WAIT_S, Http
from .conftest import PLAIN

__all__ = ["_brokers_stop"]


class Listener:
    """A client of the stream."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self.last_id = ""

    def next(self) -> tuple[str, Any]:
        """Kind and data of the next event."""
        found: dict[str, str] = {}
        while True:
            name, _, value = self._answer.readline().decode().rstrip("\n").partition(": ")
            if name:
                found[name] = value
            elif "event" in found:
                self.last_id = found["id"]
                return found["event"], json.loads(found["data"])

    def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The first event of a kind with these fields."""
        while True:
            found, data = self.next()
            if found == kind and fields.items() <= data.items():
                return dict(data)


@contextmanager
def listening(server: EmubusServer, last_id: str = "") -> Iterator[Listener]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=WAIT_S)
    try:
        connection.request("GET", f"{ROOT}/events", headers={"Last-Event-ID": last_id} if last_id else {})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        yield Listener(answer)
    finally:
        connection.close()


def test_each_change_is_an_event(server: EmubusServer, control: Http) -> None:
    with listening(server) as listener:
        assert listener.next()[0] == "hello"
        server.create(QueueDescription("new"))
        assert listener.until("entity", path="new")["kind"] == "queue"
        send(server, "new", NewMessage(b"x"))
        assert listener.until("entity", path="new")["messages"]["active"] == 1
        server.begin_outage([3], OutageKind.DOWN)
        assert listener.until("store", store=3)["health"] == "down"
        server.end_outage([3])
        server.freeze()
        assert listener.until("clock")["is_frozen"] is True
        job = control.post("/jobs", {"verb": "delete", "entity": "new", "filter": {}, "wait_ms": 5_000})
        assert listener.until("job", id=job["id"], state="done")["done_count"] == 1
        server.delete("new")
        listener.until("entity-deleted", path="new")


def test_a_client_that_comes_back_misses_nothing_or_learns_that_it_did(server: EmubusServer) -> None:
    with listening(server) as other, listening(server) as listener:
        other.next()
        listener.next()
        seen = listener.last_id
        send(server, PLAIN, NewMessage(b"x"))
        other.until("entity", path=PLAIN)
        with listening(server, seen) as again:
            assert again.until("entity", path=PLAIN)["messages"]["active"] == 1
        with listening(server, "elsewhere-1") as stranger:
            assert stranger.next()[0] == "reset"
    with listening(server, seen) as late:  # nobody listened in between
        assert late.next()[0] == "reset"


async def test_all_listeners_share_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of entities a look takes turns of the loop, and fifty listeners ask meanwhile."""
    broker = open_broker()
    for number in range(250):
        broker.administration.create(QueueDescription(f"q{number}"))
    reports = 0
    report = Overview.report

    def counted(self: Overview, *given: Any) -> Any:
        nonlocal reports
        reports += 1
        return report(self, *given)

    monkeypatch.setattr(Overview, "report", counted)
    elapsed_us = iter(range(0, 1_000_000_000, 10))
    clock = SimpleNamespace(stopwatch_us=lambda: next(elapsed_us), is_frozen=False, offset_ms=0, now_ms=lambda: 0)
    feed = EventFeed(cast("Services", SimpleNamespace(broker=broker, clock=clock)))
    await asyncio.gather(*(feed.look({}) for _ in range(LISTENERS_MAX)))
    assert reports == 250
