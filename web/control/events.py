"""Server-sent events: what changed in the namespace, for programs that would else ask again and again.

While somebody listens, the feed looks at entities, stores, jobs and the clock a few times a second, and numbers what
differs from the last look. It keeps the last events, so that a client that comes back with `Last-Event-ID` misses none;
one that was away for too long gets `reset`, and reads everything again. Nothing is looked at while nobody listens.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from aiohttp import hdrs, web

from ...broker.admin import figures
from ...broker.admin.overview import Overview
from ..messages.jobs import JOBS
from ..services import Services
from ..transport.connection import HttpConnection
from .endpoints import ControlCall, ControlRefusal, Endpoint
from .jobs import job_json
from .schema import text

LOOK_MS: Final = 500
PAUSE_FACTOR: Final = 4
"""A look at 10 000 entities takes half a second, in pieces: so many times as long there is none. Events come later
then, but listeners take a fifth of a processor at most."""
KEEP_ALIVE_LOOKS: Final = 30
"""Looks without an event after which a comment is sent, so that proxies and clients keep the connection."""
EVENTS_MAX: Final = 2_000
LISTENERS_MAX: Final = 50
CLOCK_MS: Final = 100
"""The clock was moved if its offset differs by more."""
ENTITIES_AT_ONCE: Final = 100
STREAM: Final = "text/event-stream"

Things = dict[tuple[str, str], dict[str, object]]
"""What a look sees: (kind of event, key): its data."""


class EventFeed:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._name = f"{services.clock.stopwatch_us():x}"  # another one after each start
        self._events: deque[tuple[int, str, str]] = deque(maxlen=EVENTS_MAX)  # number, kind, data
        self._last_number = 0
        self._seen: Things | None = None
        self._look_after_us = 0
        self._looking = asyncio.Lock()
        self.listeners = 0

    async def look(self, jobs: Things) -> None:
        """Note what differs from the last look, unless that was just now; the first one notes nothing.

        All listeners share a look: at 10 000 entities fifty looks at a time held 400 MB.
        """
        stopwatch_us = self._services.clock.stopwatch_us
        async with self._looking:
            began_us = stopwatch_us()
            if self._seen is not None and began_us < self._look_after_us:
                return
            now = await self._collect_things() | jobs
            ended_us = stopwatch_us()
            self._look_after_us = ended_us + max(LOOK_MS * 1_000 // 2, PAUSE_FACTOR * (ended_us - began_us))
            self._note(now)

    def _note(self, now: Things) -> None:
        before, self._seen = self._seen, now
        if before is None:
            return
        for (kind, key), data in now.items():
            if before.get((kind, key)) != data:
                self._add(kind, data)
        for kind, key in before.keys() - now.keys():
            if kind == "entity":
                self._add("entity-deleted", {"path": before[kind, key]["path"]})

    def forget(self) -> None:
        """Nobody listens: the next look is a first one."""
        self._seen = None
        self._events.clear()
        self._last_number += 1  # who comes back has missed something

    def since(self, number: int) -> Iterator[tuple[int, str, str]]:
        return (event for event in self._events if event[0] > number)

    @property
    def last_number(self) -> int:
        return self._last_number

    def id_of(self, number: int) -> str:
        return f"{self._name}-{number}"

    def number_of(self, event_id: str) -> int | None:
        """The number in an id, None if events after it are lost."""
        name, _, written = event_id.partition("-")
        if name != self._name or not (written.isascii() and written.isdecimal() and len(written) < 18):
            return None
        number, first = int(written), self._last_number - len(self._events)
        return number if first <= number <= self._last_number else None

    def _add(self, kind: str, data: Mapping[str, object]) -> None:
        self._last_number += 1
        self._events.append((self._last_number, kind, json.dumps(data, separators=(",", ":"))))

    async def _collect_things(self) -> Things:
        broker = self._services.broker
        overview, found = Overview(broker.namespace), Things()
        for count, entity in enumerate(list(broker.namespace.entities()), 1):
            report = overview.report(entity)
            found["entity", report.path] = {
                "path": report.path,
                "kind": report.kind,
                "status": report.status,
                "messages": dict(report.messages),
                "locked_count": report.locked_count,
                "link_count": report.link_count,
            }
            if count % ENTITIES_AT_ONCE == 0:
                await asyncio.sleep(0)  # everybody else gets a turn
        for store in figures.stores(broker.namespace):
            found["store", str(store.store)] = {"store": store.store, "health": store.health}
        return found | self._clock()

    def _clock(self) -> Things:
        """The clock, which has an offset of its own only if it was moved: reading it twice takes time."""
        clock, before = self._services.clock, (self._seen or {}).get(("clock", ""), {"offset_ms": 0})
        offset_ms, before_ms = clock.offset_ms if not clock.is_frozen else 0, before["offset_ms"]
        if isinstance(before_ms, int) and abs(offset_ms - before_ms) < CLOCK_MS:
            offset_ms = before_ms
        frozen_at = clock.now_ms() if clock.is_frozen else None
        return {("clock", ""): {"is_frozen": clock.is_frozen, "offset_ms": offset_ms, "frozen_at": frozen_at}}


FEED: Final = web.AppKey("events", EventFeed)


def add_feed(app: web.Application, services: Services) -> None:
    app[FEED] = EventFeed(services)


async def stream_events(call: ControlCall) -> object:
    feed = call.request.app[FEED]
    if feed.listeners >= LISTENERS_MAX:
        raise ControlRefusal(409, f"{LISTENERS_MAX} clients listen; no more are allowed.")
    response = web.StreamResponse(headers={hdrs.CACHE_CONTROL: "no-store"})
    response.content_type = STREAM
    feed.listeners += 1
    try:
        await response.prepare(call.request)
        with suppress(ConnectionError):
            await _stream(call, feed, response)
    finally:
        feed.listeners -= 1
        if not feed.listeners:
            feed.forget()
    return response


async def _stream(call: ControlCall, feed: EventFeed, response: web.StreamResponse) -> None:
    """Write what follows the client's last event; `reset` says that some of it is no longer known.

    A client that reads slowly holds up its own events only, and gets `reset` if the feed has forgotten the next one.
    """
    last_id = call.request.headers.get("Last-Event-ID") or call.query.optional("last_event_id", str)
    await feed.look(_jobs(call))
    number = feed.last_number if last_id is None else feed.number_of(last_id)
    quiet_looks = 0
    while True:
        if number is None or (number < feed.last_number and feed.number_of(feed.id_of(number)) is None):
            number = feed.last_number
            await response.write(_event_bytes(feed.id_of(number), "reset", "{}"))
        elif not quiet_looks and number == feed.last_number:
            await response.write(_event_bytes(feed.id_of(number), "hello", "{}"))
        for each, kind, data in list(feed.since(number)):
            number, quiet_looks = each, 0
            await response.write(_event_bytes(feed.id_of(each), kind, data))
        quiet_looks += 1
        if quiet_looks % KEEP_ALIVE_LOOKS == 0:
            await response.write(b": still here\n\n")
        if not await _pause(call):
            return
        await feed.look(_jobs(call))


async def _pause(call: ControlCall) -> bool:
    """Wait for the time of the next look; whether the client is still there."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not over.done():
            over.set_result(None)

    connection = call.request.protocol
    watchers = connection.watchers if isinstance(connection, HttpConnection) else set()
    watchers.add(finish)
    timer = call.services.clock.call_after(LOOK_MS, finish)
    try:
        await over
    finally:
        timer.cancel()
        watchers.discard(finish)
    return not (isinstance(connection, HttpConnection) and connection.is_lost)


def _jobs(call: ControlCall) -> Things:
    return {("job", str(each.number)): job_json(each) for each in call.request.app[JOBS].all()}


def _event_bytes(event_id: str, kind: str, data: str) -> bytes:
    return f"id: {event_id}\nevent: {kind}\ndata: {data}\n\n".encode()


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/events",
        "Server-sent events: entity, entity-deleted, store, clock, job; hello at the start, reset after missed ones",
        stream_events,
        text("Events, each with an id; Last-Event-ID goes on after one.", chars_max=1 << 30),
        query={"last_event_id": text("Like the header Last-Event-ID.", chars_max=100)},
        errors=(409,),
        gives=STREAM,
    ),
)
