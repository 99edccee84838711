"""Transports: every SDK does over AMQPS and WebSocket what it does over plain AMQP."""

from __future__ import annotations

import pytest

from emubus.amqp.connection import Connection
from emubus.testing import EmubusServer
from emubus.web.transport.websocket import WebSocketTransport

from .client import Sdk, made_body_sha256
from .conftest import MakeQueue
from .driver import Way
from .features import FAILS_WHAT_MEETS_A_LOSS, WAYS, partitioned_only

pytestmark = [pytest.mark.sdk, partitioned_only]

LARGE_BYTES = 200_000


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Way:
    """How the data client connects: another way for each test."""
    chosen: Way = request.param
    return chosen


@pytest.fixture
def ways_taken(monkeypatch: pytest.MonkeyPatch) -> set[Way]:
    """The ways by which clients have come to the server since the test began."""
    taken: set[Way] = set()
    connection_made = Connection.connection_made

    def remembered(self: Connection, transport: object) -> None:
        secret = transport.get_extra_info("ssl_object") is not None  # type: ignore[attr-defined]
        taken.add(Way("websocket" if isinstance(transport, WebSocketTransport) else "amqp", secret))
        connection_made(self, transport)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "connection_made", remembered)
    return taken


@pytest.mark.parametrize(
    ("sdk", "way"),
    [pytest.param(name, way, id=f"{name}-{way}") for name, ways in WAYS.items() for way in ways],
    indirect=True,
)
def test_messages_and_sessions_go_every_way_and_a_lost_connection_is_made_again(
    sdk: Sdk, way: Way, ways_taken: set[Way], make_queue: MakeQueue, server: EmubusServer
) -> None:
    queue, sessions = make_queue(), make_queue(requires_session=True)
    sdk.send(queue, {"body": "small", "partition_key": "k"}, {"body_size": LARGE_BYTES, "partition_key": "k"})
    receiver = sdk.receiver(queue)
    small, large = receiver.receive_all(2)
    assert (small.body, large.body_size, large.body_sha256) == ("small", LARGE_BYTES, made_body_sha256(LARGE_BYTES))
    receiver.complete(small, large)
    assert receiver.peek_until(lambda messages: messages == []) == []
    sdk.send(sessions, {"body": "of a session", "session_id": "s"})
    accepted = sdk.accept_session(sessions, "s")
    message = accepted.receive_one()
    accepted.set_state(b"state")
    accepted.complete(message)
    assert (message.body, accepted.state()) == ("of a session", b"state")
    assert server.drop_connections(queue) > 0
    sdk.round_trip()  # in JavaScript, what is sent at the very moment of a loss waits for its time-out
    if sdk.name in FAILS_WHAT_MEETS_A_LOSS:
        sdk.hear_of_loss(queue)
    sdk.send(queue, {"body": "after the loss"})
    again = sdk.receiver(queue)
    message = again.receive_one()
    again.complete(message)
    assert message.body == "after the loss"
    assert ways_taken == {way}
