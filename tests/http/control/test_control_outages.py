"""Outages made over HTTP (P13 to P18), seen by the real SDK; and the clock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from emubus.testing import EmubusServer

from .client import Http
from .conftest import PARTS, PLAIN, SESSIONS
from .test_control_entities import KEYS, WAIT_S, keyed, send

DOWN = [2, 7, 11]


def places(control: Http) -> dict[str, int]:
    return {
        key: control.get(f"/entities/{PARTS}/route?partition_key={key.replace(' ', '%20')}")["partition_id"]
        for key in KEYS
    }


def affected(control: Http) -> tuple[list[str], list[str]]:
    """Keys of stores that go down, and the others."""
    found = places(control)
    down = [key for key in KEYS if found[key] in DOWN]
    assert down
    return down, [key for key in KEYS if key not in down]


def bodies(sdk: ServiceBusClient, queue: str, count: int) -> list[str]:
    got: list[str] = []
    with sdk.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        while len(got) < count:
            more = receiver.receive_messages(max_message_count=count - len(got), max_wait_time=WAIT_S)
            assert more
            got += [str(each) for each in more]
    return got


def test_p13_p14_p18_a_store_that_is_down_fails_its_keys_and_nothing_else(control: Http, sdk: ServiceBusClient) -> None:
    down, up = affected(control)
    shown = control.post("/outages", {"stores": DOWN, "kind": "down"})["stores"]
    assert [each["store"] for each in shown if each["health"] == "down"] == DOWN
    send(sdk, PARTS, *[ServiceBusMessage(f"{number}") for number in range(20)])
    send(sdk, PARTS, *[keyed(key, "up") for key in up])
    with pytest.raises(ServiceBusServerBusyError):
        send(sdk, PARTS, keyed(down[0]))
    for number in DOWN:
        assert control.ask("DELETE", f"/stores/{number}/outage").json["health"] == "available"
    send(sdk, PARTS, *[keyed(key, "down") for key in down])
    got = bodies(sdk, PARTS, 20 + len(KEYS))
    assert sorted(got) == sorted([f"{number}" for number in range(20)] + ["up"] * len(up) + ["down"] * len(down))


def test_p15_p18_what_is_in_a_store_that_was_down_comes_back_when_its_time_is_over(
    server: EmubusServer, control: Http, sdk: ServiceBusClient
) -> None:
    server.freeze()
    down, up = affected(control)
    send(sdk, PARTS, *[keyed(key, key) for key in KEYS])
    control.post("/outages", {"stores": DOWN, "kind": "down", "duration_ms": 60_000})
    assert sorted(bodies(sdk, PARTS, len(up))) == sorted(up)
    control.post("/clock/advance", {"ms": 59_999})
    assert control.get("/stores")["stores"][2]["health"] == "down"
    control.post("/clock/advance", {"ms": 1})
    assert {each["health"] for each in control.get("/stores")["stores"]} == {"available"}
    assert sorted(bodies(sdk, PARTS, len(down))) == sorted(down)


def test_p16_p18_sessions_of_a_store_that_is_down_fail_alone(control: Http, sdk: ServiceBusClient) -> None:
    down, up = affected(control)
    send(sdk, SESSIONS, *[ServiceBusMessage(key, session_id=key) for key in (down[0], up[0])])
    for number in DOWN:
        control.done(control.ask("PUT", f"/stores/{number}/outage", {"kind": "down"}))
    with sdk.get_queue_receiver(SESSIONS, session_id=up[0]) as receiver:
        assert [str(each) for each in receiver.receive_messages(max_wait_time=WAIT_S)] == [up[0]]
    with pytest.raises(ServiceBusError):
        send(sdk, SESSIONS, ServiceBusMessage("x", session_id=down[0]))
    control.ask("DELETE", "/outages")
    with sdk.get_queue_receiver(SESSIONS, session_id=down[0]) as receiver:
        assert [str(each) for each in receiver.receive_messages(max_wait_time=WAIT_S)] == [down[0]]


@pytest.mark.parametrize("kind", ["failing", "full"])
def test_p18_a_store_whose_commits_fail_refuses_and_is_counted(control: Http, sdk: ServiceBusClient, kind: str) -> None:
    control.post("/outages", {"stores": list(range(16)), "kind": kind})
    with pytest.raises(ServiceBusError):
        send(sdk, PLAIN, ServiceBusMessage("x"))
    shown = control.get("/stores")["stores"]
    assert {each["health"] for each in shown} == {kind}
    assert sum(each["failed_commit_count"] for each in shown) >= 1
    control.ask("DELETE", "/outages")
    send(sdk, PLAIN, ServiceBusMessage("y"))
    assert bodies(sdk, PLAIN, 1) == ["y"]
    assert sum(each["commit_count"] for each in control.get("/stores")["stores"]) == 2


def test_p18_a_slow_store_answers_late_and_at_once_when_it_is_lifted(
    server: EmubusServer, control: Http, sdk: ServiceBusClient
) -> None:
    server.freeze()
    shown = control.post("/outages", {"stores": list(range(16)), "kind": "slow", "delay_ms": 5_000})["stores"]
    assert {(each["health"], each["delay_ms"]) for each in shown} == {("slow", 5_000)}
    with sdk.get_queue_sender(PLAIN) as sender, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(sender.send_messages, ServiceBusMessage("x"))
        while control.get(f"/entities/{PLAIN}")["last_activity_at"] is None:
            assert not sending.done()
        control.ask("DELETE", "/outages")
        sending.result(WAIT_S)
    assert bodies(sdk, PLAIN, 1) == ["x"]


def test_an_outage_of_a_store_that_is_not_there_is_refused_and_no_other_begins(control: Http) -> None:
    refused = control.ask("POST", "/outages", {"stores": [0, 16], "kind": "down"})
    assert refused.status == 404
    assert "store 16" in refused.json["error"]["message"]
    assert {each["health"] for each in control.get("/stores")["stores"]} == {"available"}


def test_the_clock_is_read_moved_stopped_and_let_go_and_locks_follow(
    server: EmubusServer, control: Http, sdk: ServiceBusClient
) -> None:
    frozen = control.post("/clock/freeze")
    assert frozen["is_frozen"] is True
    send(sdk, PLAIN, ServiceBusMessage("x"), ServiceBusMessage("z", application_properties={"n": 1}))
    with sdk.get_queue_receiver(PLAIN) as receiver:
        (message,) = receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
        assert control.get("/clock")["now_ms"] == frozen["now_ms"]
        moved = control.post("/clock/advance", {"ms": 60_000})
        assert moved["now_ms"] == frozen["now_ms"] + 60_000
        again = receiver.receive_messages(max_message_count=2, max_wait_time=WAIT_S)
        assert (again[0].sequence_number, again[0].delivery_count) == (message.sequence_number, 1)
    thawed = control.post("/clock/thaw")
    assert thawed["is_frozen"] is False
    assert thawed["now_ms"] >= moved["now_ms"]
    assert thawed["offset_ms"] > 50_000
    refused = [control.ask("POST", "/clock/advance", {"ms": 316_000_000_000}) for _ in range(120)][-1]
    assert (refused.status, refused.json["error"]["code"]) == (409, "conflict")
