"""`import --messages`: messages of queues come as they are, the others are named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.broker.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.config import Auth
from emubus.testing import EmubusServer

from .conftest import CommandLine

ENTITIES = (
    QueueDescription("orders", enable_partitioning=True),
    QueueDescription("carts", requires_session=True),
    QueueDescription("moved", forward_to="orders"),
    QueueDescription("odd"),
    TopicDescription("news"),
    SubscriptionDescription("news", "all"),
)
LATER = datetime(2040, 1, 1, tzinfo=UTC)
PROPERTIES: dict[str | bytes, Any] = {"text": "x", "number": 2**30, "float": 1.5, "when": LATER}
COUNT = 260  # more than a page


def fill(server: EmubusServer) -> None:
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(str(number), message_id=str(number)) for number in range(COUNT)])
            full = ServiceBusMessage(
                b"\x00full",
                message_id="full",
                content_type="c/t",
                correlation_id="corr",
                subject="s",
                partition_key="pk",
                reply_to="r",
                to="t",
                time_to_live=timedelta(days=1),
                application_properties=PROPERTIES,
            )
            sender.send_messages(full)
            sender.schedule_messages(ServiceBusMessage("later", message_id="later"), LATER)
        with client.get_queue_sender("carts") as sender:
            sender.send_messages(ServiceBusMessage("c", session_id="mine"))
        with client.get_topic_sender("news") as sender:
            sender.send_messages(ServiceBusMessage("n"))
        with client.get_queue_sender("odd") as sender, client.get_queue_receiver("odd") as receiver:
            sender.send_messages([ServiceBusMessage("deferred"), ServiceBusMessage("dead")])
            first, second = receiver.receive_messages(2, max_wait_time=60)
            receiver.defer_message(first)
            receiver.dead_letter_message(second)


OWN = ("x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-partition-id", "x-opt-enqueue-sequence-number")


def seen(server: EmubusServer, path: str) -> list[Any]:
    """The messages of an entity in the order of their ids, without what a broker gives them."""
    found = [
        (
            {name: value for name, value in each.properties.items() if name != "absolute_expiry_time"},
            each.application_properties,
            each.body,
            each.header,
            each.state,
            {name: value for name, value in each.annotations.items() if name not in OWN},
        )
        for each in server.peek(path)
    ]
    return sorted(found, key=lambda each: str(each[0]["message_id"]))


def test_messages_of_queues_are_copied_and_the_others_named(offline: CommandLine) -> None:
    with EmubusServer(ENTITIES, auth=Auth.SAS) as source, EmubusServer(auth=Auth.SAS) as target:
        fill(source)
        given = ("--namespace", source.connection_string, "--connection-string", target.connection_string)
        ended = offline("import", *given, "--messages", "--json")
        assert ended.code == 0
        assert ended.json["messages"] == {"orders": COUNT + 2, "carts": 1}
        assert ended.json["passed_over"] == [
            "1 deferred messages of odd",
            "the messages of odd/$DeadLetterQueue",
            "the messages of news/Subscriptions/all",
        ]
        for path in ("orders", "carts"):
            assert seen(target, path) == seen(source, path)
        assert source.message_counts("orders") == target.message_counts("orders")


def test_what_the_target_refuses_is_named_and_the_rest_is_copied(offline: CommandLine) -> None:
    source_entities = (QueueDescription("a"), QueueDescription("b", forward_dead_letters_to="a"))
    with EmubusServer(source_entities) as source, EmubusServer() as target:
        with ServiceBusClient.from_connection_string(source.connection_string) as client:
            for name in ("a", "b"):
                with client.get_queue_sender(name) as sender:
                    sender.send_messages(ServiceBusMessage(name))
        source.call(
            lambda: source.server.broker.administration.update(QueueDescription("a", status=EntityStatus.SEND_DISABLED))
        )
        given = ("--namespace", source.connection_string, "--connection-string", target.connection_string)
        ended = offline("import", *given, "--messages")
        assert ended.code == 0
        assert ended.out.endswith("copied 1 messages of b\n")
        assert "emubus: passed over: messages of a: " in ended.err
        after = target.call(lambda: target.server.broker.namespace.find("b")[0].description)
        assert isinstance(after, QueueDescription)
        assert after.forward_dead_letters_to == "a"


def test_messages_come_from_a_namespace_and_go_into_a_server(offline: CommandLine) -> None:
    ended = offline("import", "--arm", "x.json", "--messages")
    assert (ended.code, "--messages needs --namespace" in ended.err) == (2, True)
    ended = offline("import", "--namespace", "Endpoint=sb://localhost", "--messages", "--file", "x.json")
    assert (ended.code, "--messages needs --namespace" in ended.err) == (2, True)
