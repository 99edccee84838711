"""Processors: the SDK receives, calls a handler, and settles by what it does.

With a server of their own, whose clock runs: the SDK sets a timer for the end of each lock, and none for ten years.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emubus.testing import EmubusServer, QueueDescription

from .client import Sdk
from .driver import DriverProcess
from .features import clients_with
from .prepare import ALL_CLIENTS

pytestmark = [pytest.mark.sdk, clients_with("processors")]

COUNT = 12


@pytest.fixture(scope="module")
def running() -> Iterator[EmubusServer]:
    """A server whose clock runs."""
    with EmubusServer() as server:
        yield server


@pytest.fixture(scope="module")
def drivers_there(running: EmubusServer) -> Iterator[dict[str, DriverProcess]]:
    """The drivers that are connected to it, by name."""
    started: dict[str, DriverProcess] = {}
    yield started
    for driver in started.values():
        driver.close()


@pytest.fixture
def there(sdk: Sdk, running: EmubusServer, drivers_there: dict[str, DriverProcess]) -> Iterator[Sdk]:
    """The SDK, connected to the server whose clock runs."""
    if sdk.name not in drivers_there:
        drivers_there[sdk.name] = DriverProcess(ALL_CLIENTS[sdk.name], running.connection_string)
    used = Sdk(drivers_there[sdk.name])
    yield used
    used.reset()
    running.reset()


def test_each_message_is_handled_once_and_completed(there: Sdk, running: EmubusServer, partitioned: bool) -> None:
    running.create(QueueDescription("q", enable_partitioning=partitioned))
    bodies = [f"{number:02}" for number in range(COUNT)]
    there.send("q", *[{"body": body} for body in bodies], how="batch")
    handled, errors = there.process("q", COUNT, concurrent=4)
    assert sorted(each["body"] for each in handled) == bodies
    assert ({each["delivery_count"] for each in handled}, errors) == ({0}, [])
    assert there.receiver("q").peek_all() == []


def test_a_message_whose_handler_fails_comes_again_up_to_the_limit(
    there: Sdk, running: EmubusServer, partitioned: bool
) -> None:
    running.create(QueueDescription("q", enable_partitioning=partitioned, max_delivery_count=2))
    there.send("q", *[{"body": body} for body in "abc"])
    handled, errors = there.process("q", 5, concurrent=1, failing=["b", "c", "c"])
    calls = sorted((each["body"], each["delivery_count"]) for each in handled)
    assert calls == [("a", 0), ("b", 0), ("b", 1), ("c", 0), ("c", 1)]
    assert errors == ["ProcessMessageCallback"] * 3
    (dead,) = there.receiver("q", sub_queue="dead-letter").peek()
    assert (dead.body, dead.dead_letter_reason) == ("c", "MaxDeliveryCountExceeded")
    assert there.receiver("q").peek_all() == []


def test_sessions_are_handled_in_order_each_by_one_call_at_a_time(
    there: Sdk, running: EmubusServer, partitioned: bool
) -> None:
    running.create(QueueDescription("q", enable_partitioning=partitioned, requires_session=True))
    sessions = {session_id: [f"{session_id}{number}" for number in range(4)] for session_id in ("x", "y", "z")}
    for session_id, bodies in sessions.items():
        there.send("q", *[{"body": body, "session_id": session_id} for body in bodies], how="batch")
    handled, errors = there.process("q", COUNT, concurrent=2, sessions=True)
    by_session = {name: [each["body"] for each in handled if each["session_id"] == name] for name in sessions}
    assert (by_session, errors) == (sessions, [])
    for session_id, bodies in sessions.items():  # the processor has let go of them
        receiver = there.accept_session("q", session_id)
        assert (receiver.state(), receiver.peek_all()) == ("".join(bodies).encode(), [])
