"""What is loaded late and fails once is not lost: it is refused, told once, and loaded by itself later."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from structlog.testing import capture_logs

from emubus.broker.clock import Clock
from emubus.config import load_config
from emubus.server import Server
from emubus.web import lazy_server
from emubus.web.loading import PAUSE_MS_MAX, PAUSE_MS_MIN, Loader, LoadError
from emubus.web.page import site

from ..log_levels import every_level

SETTINGS = {"durability": "none", "amqp_port": "0", "http_port": "0"}


class Failing:
    """Loads "x" once it is allowed to; counts the tries."""

    def __init__(self) -> None:
        self.tries = 0
        self.works = False

    async def __call__(self) -> str:
        self.tries += 1
        if not self.works:
            raise OSError(24, "Too many open files")
        return "x"


async def turn() -> None:
    """Let the loop do what is due."""
    await asyncio.to_thread(int)


async def ended(loader: Loader[str]) -> None:
    with pytest.raises(LoadError):
        await loader.loaded()


async def test_a_failure_is_told_once_and_tried_again_after_pauses_that_grow() -> None:
    clock, failing = Clock(manual=True), Failing()
    loader = Loader("the thing", failing, clock)
    with every_level(), capture_logs() as logs:
        with pytest.raises(LoadError, match=r"the thing can't be loaded: OSError: .*Too many open files; it is tried"):
            await loader.loaded()
        for _ in range(100):
            await ended(loader)
        assert failing.tries == 1
        pause_ms = PAUSE_MS_MIN
        for tries in range(2, 14):
            clock.advance(pause_ms - 1)
            await ended(loader)
            assert failing.tries == tries - 1
            clock.advance(1)
            await ended(loader)
            assert failing.tries == tries
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
        failing.works = True
        clock.advance(PAUSE_MS_MAX)
        assert await loader.loaded() == "x"
        assert (loader.problem, await loader.loaded(), failing.tries) == (None, "x", 14)
    assert [each["log_level"] for each in logs] == ["error", "info"]
    await loader.stop()


async def test_it_becomes_sound_without_a_request() -> None:
    clock, failing = Clock(manual=True), Failing()
    loader = Loader("the thing", failing, clock)
    await ended(loader)
    failing.works = True
    clock.advance(PAUSE_MS_MIN)
    await turn()
    assert (loader.value, loader.problem) == ("x", None)


async def test_one_that_leaves_does_not_stop_it_for_the_others_and_all_share_one_try() -> None:
    loading = asyncio.Event()
    tries: list[int] = []

    async def load() -> str:
        tries.append(1)
        await loading.wait()
        return "x"

    loader = Loader("the thing", load, Clock(manual=True))
    tasks = [asyncio.create_task(loader.loaded()) for _ in range(3)]
    await turn()
    tasks[0].cancel()
    loading.set()
    assert await asyncio.gather(*tasks[1:]) == ["x", "x"]
    assert len(tries) == 1


async def test_a_stop_ends_the_tries() -> None:
    clock, failing = Clock(manual=True), Failing()
    loader = Loader("the thing", failing, clock)
    await ended(loader)
    await loader.stop()
    clock.advance(PAUSE_MS_MAX)
    assert failing.tries == 1


@asynccontextmanager
async def running(clock: Clock) -> AsyncIterator[tuple[Server, aiohttp.ClientSession]]:
    server = Server(load_config(SETTINGS, {}), clock)
    await server.start()
    server.ready = True
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.http_port}") as client:
            yield server, client
    finally:
        await server.stop()


async def asked(client: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with client.get(path) as answer:
        return answer.status, await answer.text()


def once(work: Callable[[], object]) -> Callable[[], object]:
    """The work, which fails the first time."""
    tries: list[int] = []

    def failing() -> object:
        tries.append(1)
        if len(tries) == 1:
            raise OSError(24, "Too many open files")
        return work()

    return failing


async def test_an_http_server_that_fails_to_load_says_so_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_server, "_import_server", once(lazy_server._import_server))
    clock = Clock(manual=True)
    async with running(clock) as (_, client):
        assert (await asked(client, "/health"))[0] == 200
        for path in ("/emubus/v1/clock", "/", "/$Resources/queues"):
            status, text = await asked(client, path)
            assert (status, text.partition(":")[0]) == (503, "the HTTP server can't be loaded")
        status, text = await asked(client, "/health")
        assert status == 503
        assert "the HTTP server can't be loaded: OSError" in text
        assert (await asked(client, "/livez"))[0] == 200
        clock.advance(PAUSE_MS_MIN)
        assert (await asked(client, "/emubus/v1/clock"))[0] == 200
        assert await asked(client, "/health") == (200, '{"status": "healthy", "message": "Service is healthy."}')


async def test_a_page_whose_templates_fail_once_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_templates", once(site._templates))
    clock = Clock(manual=True)
    async with running(clock) as (_, client):
        status, text = await asked(client, "/emubus/page/create")
        assert (status, text.partition(":")[0]) == (503, "the page can't be loaded")
        assert (await asked(client, "/emubus/v1/clock"))[0] == 200
        clock.advance(PAUSE_MS_MIN)
        assert (await asked(client, "/emubus/page/create"))[0] == 200


async def test_without_descriptors_nothing_of_the_http_server_is_imported() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            lazy_server._import_server()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
