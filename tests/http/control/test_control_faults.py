"""Faults on the wire, set over HTTP and seen by the real SDK."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusServerBusyError,
    SessionLockLostError,
)

from emubus.conditions.faults import STRIKES
from emubus.testing import EmubusServer

from .client import Http
from .conftest import PARTS, PLAIN, SESSIONS, sdk_of

WAIT_S = 60

# The SDK leaves the sockets of connections that were cut to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """They are closed before the next test."""
    yield
    gc.collect()


def put(sdk: ServiceBusClient, queue: str, *bodies: str, session: str | None = None) -> None:
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, session_id=session) for body in bodies])


def take(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
    return message


def hits(control: Http) -> list[tuple[str, int]]:
    return [(each["kind"], each["hit_count"]) for each in control.get("/faults")["faults"]]


def test_faults_are_listed_and_cleared_one_by_one_or_all_at_once(control: Http) -> None:
    first = control.post("/faults", {"kind": "server-busy", "entity": PLAIN, "operations": ["send"], "count": 2})
    assert first == {
        "id": 1,
        "kind": "server-busy",
        "entity": PLAIN,
        "operations": ["send"],
        "count": 2,
        "probability": 1,
        "delay_ms": 0,
        "hit_count": 0,
    }
    for kind, operations in STRIKES.items():
        assert control.post("/faults", {"kind": kind.value})["operations"] == [each.value for each in operations]
    assert len(control.get("/faults")["faults"]) == 1 + len(STRIKES)
    assert control.ask("DELETE", "/faults/1").json == {"cleared_count": 1}
    assert control.ask("DELETE", "/faults/1").status == 404
    assert control.ask("DELETE", "/faults").json == {"cleared_count": len(STRIKES)}
    assert control.get("/faults") == {"faults": []}
    refused = control.ask("POST", "/faults", {"kind": "lost-lock", "operations": ["send"]})
    assert refused.status == 409
    assert "it applies to settle, renew" in refused.json["error"]["message"]


def test_a_busy_server_is_tried_again_until_it_takes_the_message(control: Http, sdk: ServiceBusClient) -> None:
    control.post("/faults", {"kind": "server-busy", "entity": PLAIN, "operations": ["send"], "count": 2})
    put(sdk, PARTS, "elsewhere")
    put(sdk, PLAIN, "x")
    assert hits(control) == []
    with sdk.get_queue_receiver(PLAIN) as receiver:
        assert str(take(receiver)) == "x"
        assert receiver.receive_messages(max_wait_time=1) == []


def test_a_server_that_stays_busy_is_reported_to_the_caller(control: Http, sdk: ServiceBusClient) -> None:
    control.post("/faults", {"kind": "server-busy", "entity": PLAIN, "operations": ["send"]})
    with pytest.raises(ServiceBusServerBusyError, match="is being throttled"):
        put(sdk, PLAIN, "x")
    assert hits(control) == [("server-busy", 4)]
    assert control.get(f"/entities/{PLAIN}")["messages"]["active"] == 0
    control.ask("DELETE", "/faults")
    put(sdk, PLAIN, "y")


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("attach", "server-busy"),
        ("attach", "dropped-link"),
        ("attach", "dropped-connection"),
        ("receive", "dropped-link"),
        ("receive", "dropped-connection"),
    ],
)
def test_a_receiver_gets_over_what_is_refused_or_dropped_a_few_times(
    control: Http, sdk: ServiceBusClient, kind: str, operation: str
) -> None:
    put(sdk, PLAIN, "x")
    control.post("/faults", {"kind": kind, "entity": PLAIN, "operations": [operation], "count": 2})
    with sdk.get_queue_receiver(PLAIN) as receiver:
        receiver.complete_message(take(receiver))
    assert hits(control) == []


def test_a_receiver_is_reported_that_the_server_is_busy(control: Http, sdk: ServiceBusClient) -> None:
    put(sdk, PLAIN, "x")
    control.post("/faults", {"kind": "server-busy", "entity": PLAIN, "operations": ["receive"], "count": 1})
    # This SDK goes on with the link that was detached, and so it is busy for it as often as it tries.
    with sdk.get_queue_receiver(PLAIN) as receiver, pytest.raises(ServiceBusServerBusyError):
        receiver.receive_messages(max_wait_time=WAIT_S)
    assert hits(control) == []
    with sdk.get_queue_receiver(PLAIN) as receiver:
        assert str(take(receiver)) == "x"


@pytest.mark.parametrize("kind", ["dropped-link", "dropped-connection"])
def test_a_sender_whose_link_or_connection_is_dropped_sends_once(
    control: Http, sdk: ServiceBusClient, kind: str
) -> None:
    with sdk.get_queue_sender(PLAIN) as sender:
        sender.send_messages(ServiceBusMessage("before"))
        control.post("/faults", {"kind": kind, "entity": PLAIN, "operations": ["send"], "count": 1})
        sender.send_messages(ServiceBusMessage("x"))
    shown = control.get(f"/entities/{PLAIN}/messages")["messages"]
    assert [each["body"]["text"] for each in shown] == ["before", "x"]
    assert hits(control) == []


def test_a_lost_lock_is_lost_and_the_message_comes_again(control: Http, sdk: ServiceBusClient) -> None:
    put(sdk, PLAIN, "x")
    with sdk.get_queue_receiver(PLAIN) as receiver:
        message = take(receiver)
        control.post("/faults", {"kind": "lost-lock", "entity": PLAIN, "count": 1})
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        again = take(receiver)
        assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 1)
        receiver.complete_message(again)
    assert control.get(f"/entities/{PLAIN}")["messages"]["active"] == 0


def test_a_lock_is_lost_when_it_is_renewed(control: Http, sdk: ServiceBusClient) -> None:
    put(sdk, PLAIN, "x")
    control.post("/faults", {"kind": "lost-lock", "operations": ["renew"], "count": 1})
    with sdk.get_queue_receiver(PLAIN) as receiver:
        message = take(receiver)
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)
        assert take(receiver).delivery_count == 1


def test_in_a_message_session_it_is_the_lock_of_the_session_that_is_lost(control: Http, sdk: ServiceBusClient) -> None:
    put(sdk, SESSIONS, "x", session="s")
    with sdk.get_queue_receiver(SESSIONS, session_id="s") as receiver:
        message = take(receiver)
        control.post("/faults", {"kind": "lost-lock", "entity": SESSIONS, "count": 1})
        with pytest.raises((SessionLockLostError, MessageLockLostError)):
            receiver.complete_message(message)
    with sdk.get_queue_receiver(SESSIONS, session_id="s") as receiver:
        assert str(take(receiver)) == "x"


def test_a_confirmation_that_never_comes_leaves_the_sender_waiting_and_the_message_there(
    control: Http, server: EmubusServer
) -> None:
    control.post("/faults", {"kind": "missing-confirmation", "entity": PLAIN, "operations": ["send"], "count": 1})
    with (
        sdk_of(server, retry_total=0) as sdk,
        sdk.get_queue_sender(PLAIN) as sender,
        pytest.raises(OperationTimeoutError),
    ):
        sender.send_messages(ServiceBusMessage("x"), timeout=2)
    assert control.get(f"/entities/{PLAIN}")["messages"]["active"] == 1


def test_a_delayed_confirmation_comes_when_the_clock_has_moved(
    control: Http, sdk: ServiceBusClient, server: EmubusServer
) -> None:
    server.freeze()
    fault = {"kind": "delayed-confirmation", "entity": PLAIN, "delay_ms": 30_000, "operations": ["send", "request"]}
    with sdk.get_queue_sender(PLAIN) as sender, sdk.get_queue_receiver(PLAIN) as receiver:
        receiver.peek_messages()  # so that all links are there
        control.post("/faults", fault)

        def happens_late(work: Callable[[], Any], begun: Callable[[], bool]) -> Any:
            with ThreadPoolExecutor(1) as pool:
                working = pool.submit(work)
                while not begun():
                    assert not working.done()
                control.post("/clock/advance", {"ms": 29_999})
                assert not working.done()
                control.post("/clock/advance", {"ms": 1})
                return working.result(WAIT_S)

        def is_stored() -> bool:
            return bool(control.get(f"/entities/{PLAIN}")["messages"]["active"] == 1)

        happens_late(lambda: sender.send_messages(ServiceBusMessage("x")), is_stored)
        (peeked,) = happens_late(receiver.peek_messages, lambda: hits(control) == [("delayed-confirmation", 2)])
        assert str(peeked) == "x"


@pytest.mark.parametrize(
    ("kind", "error", "timeout_s"),
    [("server-busy", ServiceBusServerBusyError, WAIT_S), ("missing-confirmation", ServiceBusError, 2)],
)
def test_requests_to_the_management_node_fail(
    control: Http, server: EmubusServer, kind: str, error: type[Exception], timeout_s: int
) -> None:
    with sdk_of(server, retry_total=0) as sdk, sdk.get_queue_receiver(PLAIN) as receiver:
        control.post("/faults", {"kind": kind, "entity": PLAIN, "operations": ["request"], "count": 1})
        with pytest.raises(error):
            receiver.peek_messages(timeout=timeout_s)
        assert receiver.peek_messages() == []


def test_a_request_whose_connection_is_cut_is_sent_again(control: Http, sdk: ServiceBusClient) -> None:
    put(sdk, PLAIN, "x")
    with sdk.get_queue_receiver(PLAIN) as receiver:
        receiver.peek_messages(sequence_number=1)
        control.post("/faults", {"kind": "dropped-connection", "entity": PLAIN, "operations": ["request"], "count": 1})
        assert [str(each) for each in receiver.peek_messages(sequence_number=1, timeout=WAIT_S)] == ["x"]
    assert hits(control) == []


def test_a_request_whose_links_are_dropped_fails_and_the_next_does_not(control: Http, sdk: ServiceBusClient) -> None:
    put(sdk, PLAIN, "x")
    with sdk.get_queue_receiver(PLAIN) as receiver:
        receiver.peek_messages(sequence_number=1)
        control.post("/faults", {"kind": "dropped-link", "entity": PLAIN, "operations": ["request"], "count": 1})
        with pytest.raises(ServiceBusError):
            receiver.peek_messages(sequence_number=1, timeout=WAIT_S)
        assert [str(each) for each in receiver.peek_messages(sequence_number=1, timeout=WAIT_S)] == ["x"]
    assert hits(control) == []


def test_a_fault_with_a_probability_strikes_some_of_the_time(control: Http, server: EmubusServer) -> None:
    control.post("/faults", {"kind": "server-busy", "operations": ["send"], "probability": 0.5})
    failed = 0
    with sdk_of(server, retry_total=0) as sdk, sdk.get_queue_sender(PLAIN) as sender:
        for _ in range(60):
            try:
                sender.send_messages(ServiceBusMessage("x"))
            except ServiceBusServerBusyError:
                failed += 1
    assert 5 < failed < 55  # one in 10**10 runs is outside
    assert control.get(f"/entities/{PLAIN}")["messages"]["active"] == 60 - failed
    assert hits(control) == [("server-busy", failed)]


def test_links_and_connections_are_dropped_at_once(control: Http, sdk: ServiceBusClient) -> None:
    with sdk.get_queue_sender(PLAIN) as sender, sdk.get_queue_receiver(PARTS) as receiver:
        sender.send_messages(ServiceBusMessage("1"))
        receiver.receive_messages(max_wait_time=1)
        assert control.post("/links/drop", {"entity": PLAIN}) == {"dropped_count": 1}
        assert control.post("/links/drop", {"entity": "other", "condition": "com.microsoft:server-busy"}) == {
            "dropped_count": 0
        }
        sender.send_messages(ServiceBusMessage("2"))
        assert control.post("/connections/drop", {"entity": PLAIN})["dropped_count"] == 1
        sender.send_messages(ServiceBusMessage("3"))
        assert control.post("/connections/drop", {})["dropped_count"] >= 1
        sender.send_messages(ServiceBusMessage("4"))
    assert control.get(f"/entities/{PLAIN}")["messages"]["active"] == 4
