"""Fills a data folder with a message of each kind, and says what a client finds in such a folder.

Run as a program, it makes the fixture of this release, to be kept for the releases after it:

    python -m tests.emubus.folders.making FOLDER   # writes FOLDER.tar.gz and FOLDER.json

In the archive, `data` is the folder of a server that was stopped, and `killed` is that of one that was killed: it has a
journal with what its stores lack. The fixture of format 1, which knew no journal, has `data` alone.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from emubus.testing import (
    CorrelationFilter,
    EmubusServer,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)

PLAIN, PARTS, SESSIONS, ONCE, TOPIC = "plain", "parts", "sessions", "once", "topic"
RED, BLUE, ALL = "red", "blue", "all"
VIA, TARGET, PURGED = "via", "target", "purged"  # since format 3
CASES, SPREAD = "cases", "spread"  # since format 4, where sessions whose names differ in case were several
LONG_MS = 10**14  # the messages of a fixture must not expire
WAIT_S = 60  # ends a hang
LATER = datetime(2098, 1, 1, tzinfo=UTC)
MESSAGES_MAX = 200

ENTITIES = (
    QueueDescription(PLAIN, lock_duration_ms=60_000, default_ttl_ms=LONG_MS),
    QueueDescription(PARTS, enable_partitioning=True, default_ttl_ms=LONG_MS),
    QueueDescription(SESSIONS, enable_partitioning=True, requires_session=True, default_ttl_ms=LONG_MS),
    QueueDescription(ONCE, requires_duplicate_detection=True, default_ttl_ms=LONG_MS),
    TopicDescription(TOPIC, enable_partitioning=True, default_ttl_ms=LONG_MS),
    SubscriptionDescription(TOPIC, ALL, default_ttl_ms=LONG_MS),
    SubscriptionDescription(
        TOPIC,
        RED,
        default_ttl_ms=LONG_MS,
        rules=(RuleDescription("reds", SqlFilter("colour = 'red' AND n > 1"), "SET marked = TRUE; REMOVE n"),),
    ),
    SubscriptionDescription(
        TOPIC, BLUE, default_ttl_ms=LONG_MS, rules=(RuleDescription("blues", CorrelationFilter(label="blue")),)
    ),
)


LATER_ENTITIES = (
    QueueDescription(TARGET, default_ttl_ms=LONG_MS),
    QueueDescription(VIA, enable_partitioning=True, forward_to=TARGET),
    QueueDescription(PURGED, default_ttl_ms=LONG_MS),
    QueueDescription(CASES, requires_session=True, default_ttl_ms=LONG_MS),
    QueueDescription(SPREAD, requires_session=True, enable_partitioning=True, default_ttl_ms=LONG_MS),
)


def fill_later(server: EmubusServer, client: ServiceBusClient) -> None:
    """Send what the first format's fixture does not have: forwarded messages, and what follows a purge."""
    with client.get_queue_sender(VIA) as sender, client.get_queue_receiver(TARGET) as receiver:
        for n in range(20):
            sender.send_messages(ServiceBusMessage(f"via {n}", partition_key=f"key {n % 7}", message_id=f"v{n}"))
        arrived = 0
        while arrived < 20:
            some = receiver.receive_messages(max_message_count=20, max_wait_time=WAIT_S)
            arrived += len(some)
            for message in some:
                receiver.defer_message(message)
    with client.get_queue_sender(PURGED) as sender:
        sender.send_messages([ServiceBusMessage(f"before {n}") for n in range(5)])
        assert server.purge(PURGED) == 5
    with client.get_queue_sender(PURGED) as sender:
        sender.send_messages([ServiceBusMessage(f"after {n}", message_id=f"a{n}") for n in range(2)])


def fill_sessions(client: ServiceBusClient) -> None:
    """Send to message sessions whose names differ in case, and give some of them a state."""
    for queue in (CASES, SPREAD):
        with client.get_queue_sender(queue) as sender:
            for n, name in enumerate(("Mixed", "mixed", "MIXED", "ÄÖ", "äö", "Mixed", "lower", "UPPER")):
                sender.send_messages(ServiceBusMessage(f"{n} of {name}", session_id=name, message_id=f"{n}"))
        for name, state in (("MIXED", b"older"), ("Mixed", b"newer"), ("äö", b"other"), ("UPPER", b"only")):
            with client.get_queue_receiver(queue, session_id=name) as session:
                session.session.set_state(state)
        with client.get_queue_receiver(queue, session_id="Empty") as session:
            session.session.set_state(b"no messages")


def fill(client: ServiceBusClient) -> None:
    """Send messages of each kind and settle some, as the entities' names say."""
    _fill_plain(client)
    with client.get_queue_sender(PARTS) as sender:
        sender.send_messages([ServiceBusMessage(f"to {n}", partition_key="one") for n in range(3)])
        for n in range(24):
            sender.send_messages(ServiceBusMessage(f"part {n}", partition_key=f"key {n}", message_id=f"p{n}"))
        sender.schedule_messages([ServiceBusMessage("part later", partition_key="key 1")], LATER)
    with client.get_queue_sender(SESSIONS) as sender:
        for name in ("a", "b", "ü"):
            for n in range(3):
                sender.send_messages(ServiceBusMessage(f"{name} {n}", session_id=name, message_id=f"{name}{n}"))
    with client.get_queue_receiver(SESSIONS, session_id="b") as session:
        session.session.set_state(b"state of b")
        (first,) = session.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
        session.defer_message(first)
    with client.get_queue_sender(ONCE) as sender:
        for name in ("x", "y", "x"):
            sender.send_messages(ServiceBusMessage(f"once {name}", message_id=name))
    with client.get_topic_sender(TOPIC) as sender:
        for n, colour in enumerate(("red", "blue", "red", "green")):
            properties: dict[str | bytes, Any] = {"colour": colour, "n": n}
            sender.send_messages(
                ServiceBusMessage(
                    f"{colour} {n}", subject=colour, application_properties=properties, message_id=f"t{n}"
                )
            )


def _fill_plain(client: ServiceBusClient) -> None:
    with client.get_queue_sender(PLAIN) as sender:
        for name in ("dead", "deferred", "abandoned", "stays"):
            sender.send_messages(ServiceBusMessage(f"plain {name}", message_id=name, subject=name))
        sender.send_messages(ServiceBusMessage("x" * 5000, message_id="large"))
        sender.send_messages(AmqpAnnotatedMessage(value_body={"a": [1, 2], "b": None}, properties=_named("value")))
        sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[1, "two"], [3.0]], properties=_named("sequence")))
        sender.send_messages(
            AmqpAnnotatedMessage(
                data_body=[b"one", b"two"],
                header=AmqpMessageHeader(priority=7, durable=True),
                properties=AmqpMessageProperties(
                    message_id="data", correlation_id="c", reply_to="r", group_id="g", content_type="text/x", to="t"
                ),
                application_properties={"n": 1, "s": "ü", "at": datetime(2020, 1, 2, tzinfo=UTC)},
                annotations={"x-opt-own": 5},
                footer={"f": 1},
            )
        )
        sender.schedule_messages([ServiceBusMessage("plain later", message_id="later")], LATER)
    with client.get_queue_receiver(PLAIN) as receiver:
        for message in receiver.receive_messages(max_message_count=4, max_wait_time=WAIT_S):
            if message.message_id == "dead":
                receiver.dead_letter_message(message, reason="why", error_description="since")
            elif message.message_id == "deferred":
                receiver.defer_message(message)
            else:
                receiver.abandon_message(message)


def _named(message_id: str) -> AmqpMessageProperties:
    return AmqpMessageProperties(message_id=message_id)


def found(client: ServiceBusClient, later: Sequence[str] = (TARGET, PURGED)) -> dict[str, list[dict[str, Any]]]:
    """Every message that a client can peek, by entity and sub-queue, in the order of sequence numbers.

    `later` are the queues that the first format's fixture does not have.
    """
    places: dict[str, Any] = {}
    for queue in (PLAIN, PARTS, ONCE, SESSIONS, *later):
        if queue != SESSIONS:
            places[queue] = client.get_queue_receiver(queue)
        places[f"{queue} dead"] = client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    for name in (ALL, RED, BLUE):
        places[f"{TOPIC} {name}"] = client.get_subscription_receiver(TOPIC, name)
    for name in ("a", "b", "ü"):
        places[f"{SESSIONS} {name}"] = client.get_queue_receiver(SESSIONS, session_id=name)
    shown: dict[str, list[dict[str, Any]]] = {}
    for name, opened in places.items():
        with opened as receiver:
            peeked = [shown_message(each) for each in receiver.peek_messages(MESSAGES_MAX)]
            shown[name] = sorted(peeked, key=lambda each: int(each["sequence_number"]))
            if name.startswith(f"{SESSIONS} ") and not name.endswith("dead"):
                shown[name].append({"state": repr(receiver.session.get_state())})
    return shown


def shown_message(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """What a client reads of a message, as JSON."""
    raw = message.raw_amqp_message
    body = raw.body if not hasattr(raw.body, "__next__") else list(raw.body)
    return {
        "sequence_number": message.sequence_number,
        "enqueued_sequence_number": message.enqueued_sequence_number,
        "enqueued_at": str(message.enqueued_time_utc),
        "scheduled_at": str(message.scheduled_enqueue_time_utc),
        "expires_at": str(message.expires_at_utc),
        "time_to_live": str(message.time_to_live),
        "message_id": message.message_id,
        "session_id": message.session_id,
        "partition_key": message.partition_key,
        "correlation_id": message.correlation_id,
        "subject": message.subject,
        "content_type": message.content_type,
        "reply_to": message.reply_to,
        "to": message.to,
        "delivery_count": message.delivery_count,
        "state": str(message.state),
        "dead_letter": [message.dead_letter_reason, message.dead_letter_error_description, message.dead_letter_source],
        "properties": repr(sorted((message.application_properties or {}).items())),
        "priority": None if raw.header is None else raw.header.priority,
        "own_annotation": repr((raw.annotations or {}).get(b"x-opt-own")),
        "footer": repr(raw.footer),
        "body_type": str(message.body_type),
        "body": repr(body),
    }


def main(target: Path) -> None:
    """Make a folder, and keep it as an archive beside what a client finds in it."""
    with tempfile.TemporaryDirectory() as made:
        data, killed = Path(made) / "data", Path(made) / "killed"
        with (
            EmubusServer((*ENTITIES, *LATER_ENTITIES), data_dir=data) as server,
            ServiceBusClient.from_connection_string(server.connection_string) as client,
        ):
            fill_later(server, client)
            fill_sessions(client)
            fill(client)
            expected = found(client)
            shutil.copytree(data, killed)
        with tarfile.open(target.with_name(f"{target.name}.tar.gz"), "w:gz") as archive:
            archive.add(data, arcname="data")
            archive.add(killed, arcname="killed")
    target.with_name(f"{target.name}.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
