"""Entities, partitions, messages and routes over the control API, beside the real SDK."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue

from emubus.broker.errors import Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer
from emubus.web.control.endpoints import STATUS

from .client import Answered, Http
from .conftest import PARTS, PLAIN, SESSIONS

KEYS = tuple(f"key {number}" for number in range(24))
WAIT_S = 60


def send(sdk: ServiceBusClient, entity: str, *messages: ServiceBusMessage, topic: bool = False) -> None:
    with sdk.get_topic_sender(entity) if topic else sdk.get_queue_sender(entity) as sender:
        for message in messages:
            sender.send_messages(message)


def keyed(key: str, body: str = "x") -> ServiceBusMessage:
    return ServiceBusMessage(body, partition_key=key)


def test_p31_depth_locks_sequence_range_activity_and_health_of_every_partition(
    server: EmubusServer, control: Http, sdk: ServiceBusClient
) -> None:
    fresh = control.get(f"/entities/{PARTS}/partitions")["partitions"]
    assert [each["partition_id"] for each in fresh] == list(range(16))
    assert {each["health"] for each in fresh} == {"available"}
    assert {each["first_sequence_number"] for each in fresh} == {None}
    assert {each["last_activity_at"] for each in fresh} == {None}
    server.freeze()
    send(sdk, PARTS, *[keyed(key) for key in KEYS])
    with sdk.get_queue_receiver(PARTS) as receiver:
        locked = receiver.receive_messages(max_message_count=5, max_wait_time=WAIT_S)
        shown = control.get(f"/entities/{PARTS}/partitions")["partitions"]
        depth: dict[int, int] = {}
        for key in KEYS:
            place = control.get(f"/entities/{PARTS}/route?key={key.replace(' ', '%20')}")["partition_id"]
            depth[place] = depth.get(place, 0) + 1
        assert {each["partition_id"]: each["messages"]["active"] for each in shown} == {
            number: depth.get(number, 0) for number in range(16)
        }
        assert sum(each["locked_count"] for each in shown) == len(locked) > 0
        for each in shown:
            base, count = each["partition_id"] << 48, each["messages"]["active"]
            assert each["next_sequence_number"] == base + count + 1
            assert each["first_sequence_number"] == (base + 1 if count else None)
            assert (each["last_activity_at"] == server.clock.now_ms()) is (count > 0)
            assert (each["size_bytes"] > 0) is (count > 0)
    down = next(iter(depth))
    control.post("/outages", {"stores": [down], "kind": "down"})
    shown = control.get(f"/entities/{PARTS}/partitions")["partitions"]
    assert [each["health"] for each in shown] == ["down" if number == down else "available" for number in range(16)]
    assert shown[down]["messages"] is None
    whole = control.get(f"/entities/{PARTS}")
    assert (whole["is_limited"], whole["messages"]["active"]) == (True, len(KEYS) - depth[down])


def test_p31_a_list_of_entities_counts_over_all_partitions(
    control: Http, sdk: ServiceBusClient, topic: str, server: EmubusServer
) -> None:
    send(sdk, topic, *[keyed(key) for key in KEYS], topic=True)
    send(sdk, PLAIN, ServiceBusMessage("x", session_id=None))
    shown = control.get("/entities")
    assert [each["path"] for each in shown["entities"]] == [
        PARTS,
        PLAIN,
        SESSIONS,
        "topic",
        "topic/Subscriptions/a",
        "topic/Subscriptions/b",
    ]
    assert [each["kind"] for each in shown["entities"]] == ["queue"] * 3 + ["topic"] + ["subscription"] * 2
    assert [each["messages"]["active"] for each in shown["entities"]] == [0, 1, 0, 0, len(KEYS), len(KEYS)]
    page = control.get("/entities?skip=1&top=2")
    assert [each["path"] for each in page["entities"]] == [PLAIN, SESSIONS]
    assert page["total"] == 6
    for path in ("topic/Subscriptions/a", "topic/subscriptions/A", "topic%2FSubscriptions%2Fa"):
        assert control.get(f"/entities/{path}")["messages"]["active"] == len(KEYS)


def test_p31_an_entity_with_slashes_in_its_name_is_found(control: Http, server: EmubusServer) -> None:
    server.create(QueueDescription("a/b/partitions"))
    assert control.get("/entities/a%2Fb%2Fpartitions")["path"] == "a/b/partitions"
    assert len(control.get("/entities/a%2Fb%2Fpartitions/partitions")["partitions"]) == 1


def test_p32_where_a_message_would_go_is_where_it_goes(control: Http, sdk: ServiceBusClient) -> None:
    send(sdk, PARTS, *[keyed(key, key) for key in KEYS])
    shown = control.get(f"/entities/{PARTS}/messages?count=250")["messages"]
    assert len(shown) == len(KEYS)
    for message in shown:
        key = message["body"]["text"]
        assert control.get(f"/entities/{PARTS}/route?partition_key={quote(key)}") == {
            "key": key,
            "key_source": "partition-key",
            "partition_count": 16,
            "partition_id": message["partition_id"],
            "store": message["partition_id"],
            "is_available": True,
        }


def test_p32_the_key_in_force_is_session_id_then_partition_key_then_message_id(
    control: Http, server: EmubusServer
) -> None:
    server.create(QueueDescription("unique", enable_partitioning=True, requires_duplicate_detection=True))

    def source(entity: str, query: str) -> Any:
        route = control.get(f"/entities/{entity}/route{query}")
        return route["key_source"], route["key"], route["partition_id"] is None

    assert source(PARTS, "?session_id=s&partition_key=s&message_id=m") == ("session-id", "s", False)
    assert source(PARTS, "?partition_key=p&message_id=m") == ("partition-key", "p", False)
    assert source(PARTS, "?message_id=m") == (None, None, True)
    assert source("unique", "?message_id=m") == ("message-id", "m", False)
    assert source(PARTS, "") == (None, None, True)
    assert source(PLAIN, "") == (None, None, False)
    refused = control.ask("GET", f"/entities/{PARTS}/route?session_id=s&partition_key=p")
    assert (refused.status, refused.json["error"]["code"]) == (409, "conflict")
    refused = control.ask("GET", "/entities/unique/route")
    assert (refused.status, "must have either PartitionKey or MessageId" in refused.json["error"]["message"]) == (
        409,
        True,
    )
    control.post("/outages", {"stores": list(range(16)), "kind": "down"})
    assert control.get(f"/entities/{PARTS}/route")["is_available"] is False
    assert control.get(f"/entities/{PARTS}/messages")["messages"] == []


def test_looking_at_messages_locks_counts_and_uses_nothing(
    server: EmubusServer, control: Http, sdk: ServiceBusClient
) -> None:
    server.freeze()
    send(sdk, PLAIN, *[ServiceBusMessage(f"{number}") for number in range(5)])
    with sdk.get_queue_receiver(PLAIN) as receiver:
        (first,) = receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
        used_at = control.get(f"/entities/{PLAIN}")["last_activity_at"]
        server.advance(1_000)
        for _ in range(3):
            control.get(f"/entities/{PLAIN}/messages")
        shown = control.get(f"/entities/{PLAIN}/messages")["messages"]
        assert [each["body"]["text"] for each in shown] == ["0", "1", "2", "3", "4"]
        assert [each["locked_until_at"] is None for each in shown] == [False, True, True, True, True]
        assert shown[0]["locked_until_at"] == used_at + 60_000
        assert [each["delivery_count"] for each in shown] == [0] * 5
        assert control.get(f"/entities/{PLAIN}")["last_activity_at"] == used_at
        receiver.complete_message(first)
        rest = receiver.receive_messages(max_message_count=5, max_wait_time=WAIT_S)
        assert rest[0].delivery_count == 0


def test_messages_are_shown_page_by_page_each_once(control: Http, sdk: ServiceBusClient) -> None:
    large = "x" * 60_000
    send(sdk, PARTS, *[ServiceBusMessage(large if number % 3 else "small") for number in range(100)])
    seen: list[int] = []
    query = "?count=30"
    while query:
        page = control.get(f"/entities/{PARTS}/messages{query}")
        assert len(page["messages"]) <= 30
        seen += [each["sequence_number"] for each in page["messages"]]
        following = page["next_sequence_number"]
        query = "" if following is None else f"?count=30&from_sequence_number={following}"
    assert seen == sorted(set(seen))
    assert len(seen) == 100


def test_messages_of_every_sub_queue_and_state_are_shown_with_their_properties(
    control: Http, sdk: ServiceBusClient, server: EmubusServer
) -> None:
    message = ServiceBusMessage(
        json.dumps({"a": [1, None]}),
        message_id="m1",
        subject="subject",
        content_type="application/json",
        application_properties={"text": "ä", "number": 5, "flag": True, "id": uuid.UUID(int=7)},
    )
    send(sdk, PLAIN, message, ServiceBusMessage(b"\xff\xfe"))
    with sdk.get_queue_receiver(PLAIN) as receiver:
        first, second = (receiver.receive_messages(max_wait_time=WAIT_S)[0] for _ in range(2))
        receiver.dead_letter_message(first, reason="why", error_description="because")
        receiver.defer_message(second)
    (deferred,) = control.get(f"/entities/{PLAIN}/messages")["messages"]
    assert (deferred["state"], deferred["body"]) == (
        "deferred",
        {"kind": "data", "text": None, "base64": "//4=", "json": None},
    )
    (dead,) = control.get(f"/entities/{PLAIN}/messages?sub_queue=dead-letter")["messages"]
    assert dead["body"] == {
        "kind": "data",
        "text": '{"a": [1, null]}',
        "base64": None,
        "json": {"a": [1, None]},
    }
    assert {name: dead["properties"][name] for name in ("message_id", "subject", "content_type")} == {
        "message_id": "m1",
        "subject": "subject",
        "content_type": "application/json",
    }
    assert dead["application_properties"] == {
        "text": "ä",
        "number": 5,
        "flag": True,
        "id": {"type": "uuid", "value": str(uuid.UUID(int=7))},
        "DeadLetterReason": "why",
        "DeadLetterErrorDescription": "because",
    }
    assert control.get(f"/entities/{PLAIN}/messages?sub_queue=transfer-dead-letter")["messages"] == []


def test_messages_of_one_message_session_are_shown(control: Http, sdk: ServiceBusClient) -> None:
    send(sdk, SESSIONS, *[ServiceBusMessage(name, session_id=name) for name in "aabab"])
    shown = control.get(f"/entities/{SESSIONS}/messages?session_id=a")["messages"]
    assert [each["properties"]["session_id"] for each in shown] == ["a", "a", "a"]
    assert control.ask("GET", f"/entities/{PLAIN}/messages?partition_id=1").status == 404


def test_an_emptied_entity_has_nothing_left_and_goes_on(
    server: EmubusServer, control: Http, sdk: ServiceBusClient
) -> None:
    send(sdk, PARTS, *[keyed(key) for key in KEYS])
    send(sdk, PLAIN, ServiceBusMessage("stays"))
    before = control.get(f"/entities/{PARTS}/partitions")["partitions"]
    with (
        sdk.get_queue_receiver(PARTS) as receiver,
        sdk.get_queue_sender(PARTS) as sender,
        sdk.get_queue_receiver(PARTS, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead,
    ):
        taken = receiver.receive_messages(max_message_count=3, max_wait_time=WAIT_S)
        receiver.dead_letter_message(taken[0])
        assert control.post(f"/entities/{PARTS}/purge") == {"message_count": len(KEYS)}
        after = control.get(f"/entities/{PARTS}/partitions")["partitions"]
        assert {sum(each["messages"].values()) for each in after} == {0}
        assert {each["locked_count"] for each in after} == {0}
        sender.send_messages(ServiceBusMessage("new"))
        (new,) = receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
        assert str(new) == "new"
        number = new.sequence_number
        assert number is not None
        assert number >= before[number >> 48]["next_sequence_number"]
        receiver.complete_message(new)
        assert dead.peek_messages() == []  # receiving would have to attach anew within its time to wait
    assert control.get(f"/entities/{PLAIN}")["messages"]["active"] == 1


def test_a_request_that_waits_for_messages_of_an_emptied_entity_is_told_to_come_again(control: Http) -> None:
    def receive() -> Answered:
        return control.ask("POST", f"/entities/{PLAIN}/receive", {"timeout_ms": 60_000})

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receive)
        while not waiting.done():  # it may not have begun when the entity is emptied
            control.post(f"/entities/{PLAIN}/purge")
        answered = waiting.result()
    assert answered.status == 503, answered.content
    assert answered.json["detail"] == "The entity was emptied; attach again."


def test_each_condition_has_a_status_of_the_control_api_and_few_are_our_fault() -> None:
    assert STATUS.keys() == set(Condition)
    assert [condition for condition, status in STATUS.items() if status == 500] == [Condition.INTERNAL_ERROR]


def test_an_emptied_topic_has_empty_subscriptions_and_still_publishes(
    control: Http, sdk: ServiceBusClient, topic: str
) -> None:
    send(sdk, topic, *[keyed(key) for key in KEYS], topic=True)
    assert control.post(f"/entities/{topic}/purge") == {"message_count": 2 * len(KEYS)}
    send(sdk, topic, keyed("again"), topic=True)
    for name in "ab":
        with sdk.get_subscription_receiver(
            topic, name, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            assert len(receiver.receive_messages(max_message_count=10, max_wait_time=WAIT_S)) == 1


def test_p17_nothing_is_emptied_while_a_store_is_out(control: Http, sdk: ServiceBusClient) -> None:
    send(sdk, PLAIN, ServiceBusMessage("x"))
    control.post("/outages", {"stores": [3], "kind": "down"})
    for path, body in ((f"/entities/{PLAIN}/purge", None), ("/reset", {"to": "empty"}), ("/reset", {"to": "config"})):
        refused = control.ask("POST", path, body)
        assert (refused.status, refused.json["error"]["code"]) == (503, "unavailable")
    assert control.ask("PUT", "/snapshots/s").status == 503
    control.ask("DELETE", "/outages")
    assert control.get(f"/entities/{PLAIN}")["messages"]["active"] == 1


@pytest.mark.parametrize("to", ["empty", "config"])
def test_a_reset_empties_everything_or_goes_back_to_the_start(
    server: EmubusServer, control: Http, sdk: ServiceBusClient, topic: str, to: str
) -> None:
    send(sdk, topic, keyed("k"), topic=True)
    send(sdk, SESSIONS, ServiceBusMessage("s", session_id="s"))
    send(sdk, PLAIN, ServiceBusMessage("x"))
    server.update(QueueDescription(PLAIN, max_delivery_count=3))
    assert control.post("/reset", {"to": to}) == {"message_count": 4}
    shown = control.get("/entities")["entities"]
    assert {sum(each["messages"].values()) for each in shown} == {0}
    assert ("topic" in [each["path"] for each in shown]) is (to == "empty")
    plain = server.call(lambda: server.server.broker.namespace.find(PLAIN)[0].description)
    assert isinstance(plain, QueueDescription)
    assert plain.max_delivery_count == (3 if to == "empty" else 10)
    send(sdk, PLAIN, ServiceBusMessage("again"))
    with sdk.get_queue_receiver(PLAIN) as receiver:
        assert [str(each) for each in receiver.receive_messages(max_wait_time=WAIT_S)] == ["again"]


def test_a_reset_to_the_start_ends_outages_and_faults_and_brings_time_back(
    control: Http, sdk: ServiceBusClient, topic: str
) -> None:
    send(sdk, PLAIN, ServiceBusMessage("x"))
    control.post("/clock/advance", {"ms": 365 * 24 * 3_600_000})
    control.post("/clock/freeze")
    control.post("/faults", {"kind": "server-busy"})
    control.post("/outages", {"stores": list(range(16)), "kind": "down"})
    assert control.post("/reset", {"to": "start"}) == {"message_count": 1}
    shown = control.get("/entities")["entities"]
    assert sorted(each["path"] for each in shown) == sorted([PLAIN, PARTS, SESSIONS])
    assert topic not in [each["path"] for each in shown]
    assert control.get("/faults") == {"faults": []}
    assert {each["health"] for each in control.get("/stores")["stores"]} == {"available"}
    clock = control.get("/clock")
    assert (abs(clock["offset_ms"]) < 1_000, clock["is_frozen"]) == (True, False)
    send(sdk, PLAIN, ServiceBusMessage("again"))
    (message,) = control.get(f"/entities/{PLAIN}/messages")["messages"]
    assert abs(message["enqueued_at"] - clock["now_ms"]) < 60_000
