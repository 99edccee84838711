"""Asks a server whether two texts are one: over AMQP with the Python SDK, and over HTTP as bytes.

Each function has the name of a row's `probe`, and returns whether they are; `RefusedError` if the server takes one of
them nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import SessionCannotBeLockedError

from emubus.broker.model.descriptions import Filter
from emubus.testing import (
    CorrelationFilter,
    EmubusServer,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)

from ..http.administering import entry
from ..http.rest import Rest

PAIRS: Final = 4
"""Of partition keys: two of them that are not one may have one partition by chance."""


class RefusedError(Exception):
    """The server refuses a text."""


class Asker:
    """A server, its client over AMQP, and its HTTP face."""

    def __init__(self, server: EmubusServer) -> None:
        self.server = server
        self.client = ServiceBusClient.from_connection_string(server.connection_string, retry_total=0)
        self.rest = Rest(server.http_port)
        self._names = map("x{}".format, count())

    def close(self) -> None:
        self.rest.close()
        self.client.close()

    def queue(self, **more: Any) -> str:
        """A new queue."""
        name = next(self._names)
        self.server.create_queue(QueueDescription(name, **more))
        return name

    def send(self, path: str, *messages: Mapping[str, Any]) -> None:
        """Send messages with these properties over HTTP; opening a link takes a second."""
        for properties in messages:
            assert self.rest.send_batch(path, {"Body": "x", **properties}).status == 201

    def matches(self, rule: Filter, **properties: Mapping[str, str]) -> bool:
        """Whether a subscription with this one filter gets the message."""
        topic = next(self._names)
        self.server.create_topic(TopicDescription(topic))
        rules = (RuleDescription("r", rule),)
        self.server.create_subscription(SubscriptionDescription(topic, "s", rules=rules))
        self.send(topic, properties)
        return bool(self.server.peek(f"{topic}/Subscriptions/s"))

    def put(self, kind: str, *names: str) -> int:
        """Make an entity over HTTP; its status."""
        words = ("", "/subscriptions/", "/rules/")
        path = "".join(word + quote(name, safe="") for word, name in zip(words, names, strict=False))
        headers = [("Content-Type", "application/atom+xml")]
        return self.rest.ask("PUT", f"/{path}", entry(f"<{kind}Description/>").encode(), headers).status


def made_once(asker: Asker, kind: str, above: Sequence[str], one: str, other: str) -> bool:
    """Whether the name of the first entity is that of the second one, which is refused then."""
    statuses = [asker.put(kind, *above, name) for name in (one, other)]
    if not above:
        asker.server.reset()
    if 400 in statuses:
        raise RefusedError
    assert statuses[0] == 201, statuses
    assert statuses[1] in (201, 409), statuses
    return statuses[1] == 409


def session_id(asker: Asker, one: str, other: str) -> bool:
    queue = asker.queue(requires_session=True)
    asker.send(queue, broker(SessionId=one))
    with asker.client.get_queue_receiver(queue, session_id=other) as receiver:
        found = [each.session_id for each in receiver.peek_messages()]
    assert found in ([], [one])
    return found == [one]


def session_state(asker: Asker, one: str, other: str) -> bool:
    queue = asker.queue(requires_session=True, enable_partitioning=True)
    with asker.client.get_queue_receiver(queue, session_id=one) as receiver:
        receiver.session.set_state(b"state")
    with asker.client.get_queue_receiver(queue, session_id=other) as receiver:
        return bool(receiver.session.get_state())


def session_lock(asker: Asker, one: str, other: str) -> bool:
    queue = asker.queue(requires_session=True, enable_partitioning=True)
    with asker.client.get_queue_receiver(queue, session_id=one):
        try:
            with asker.client.get_queue_receiver(queue, session_id=other):
                return False
        except SessionCannotBeLockedError:
            return True


def session_list(asker: Asker, one: str, other: str) -> bool:
    queue = asker.queue(requires_session=True)
    asker.send(queue, broker(SessionId=one), broker(SessionId=other))
    listed = asker.server.run(asker.server.server.broker.sessions.names(queue, None))
    assert one in listed
    return len(listed) == 1


def message_id(asker: Asker, one: str, other: str) -> bool:
    queue = asker.queue(requires_duplicate_detection=True)
    asker.send(queue, broker(MessageId=one), broker(MessageId=other))
    return len(asker.server.peek(queue)) == 1


def partition_key(asker: Asker, one: str, other: str) -> bool:
    queue = asker.queue(enable_partitioning=True)
    middle = len(one) // 2
    for number in range(PAIRS):
        keys = [key[:middle] + str(number) + key[middle:] for key in (one, other)]
        asker.send(queue, *(broker(PartitionKey=key, MessageId=str(number)) for key in keys))
    places: dict[object, set[int]] = {}
    for each in asker.server.peek(queue):
        places.setdefault(each.message_id, set()).add(each.sequence_number >> 48)
    assert len(places) == PAIRS
    return all(len(found) == 1 for found in places.values())


def both_keys(asker: Asker, one: str, other: str) -> bool:
    queue = asker.queue(enable_partitioning=True)
    answer = asker.rest.send(queue, b"x", SessionId=one, PartitionKey=other)
    if answer.status == 400:
        raise RefusedError
    assert answer.status == 201
    return True


def queue_name(asker: Asker, one: str, other: str) -> bool:
    return made_once(asker, "Queue", (), one, other)


def topic_name(asker: Asker, one: str, other: str) -> bool:
    return made_once(asker, "Topic", (), one, other)


def subscription_name(asker: Asker, one: str, other: str) -> bool:
    topic = f"t-{uuid4()}"
    assert asker.put("Topic", topic) == 201
    return made_once(asker, "Subscription", (topic,), one, other)


def rule_name(asker: Asker, one: str, other: str) -> bool:
    topic = f"t-{uuid4()}"
    assert (asker.put("Topic", topic), asker.put("Subscription", topic, "s")) == (201, 201)
    return made_once(asker, "Rule", (topic, "s"), one, other)


def address(asker: Asker, one: str, other: str) -> bool:
    if asker.put("Queue", one) == 400:
        raise RefusedError
    status = asker.rest.send(quote(other), b"x").status
    asker.server.reset()
    assert status in (201, 410), status
    return status == 201


def filter_text(asker: Asker, one: str, other: str, field_name: str = "", property_name: str = "") -> bool:
    wanted: dict[str, Any] = {field_name: one}
    return asker.matches(CorrelationFilter(**wanted), BrokerProperties={property_name: other})


def filter_name(asker: Asker, one: str, other: str) -> bool:
    return asker.matches(CorrelationFilter(properties={one: "v"}), UserProperties={other: "v"})


def filter_value(asker: Asker, one: str, other: str) -> bool:
    return asker.matches(CorrelationFilter(properties={"p": one}), UserProperties={"p": other})


def sql_name(asker: Asker, one: str, other: str) -> bool:
    return asker.matches(SqlFilter(f"[{one}] = 'v'"), UserProperties={other: "v"})


def sql_text(asker: Asker, one: str, other: str) -> bool:
    return asker.matches(SqlFilter(f"p = '{one}'"), UserProperties={"p": other})


def sql_system_name(asker: Asker, one: str, other: str) -> bool:
    return asker.matches(SqlFilter(f"sys.{other} = 'v'"), BrokerProperties={one: "v"})


def broker(**properties: str) -> dict[str, Any]:
    """A message with these properties of the broker."""
    return {"BrokerProperties": properties}


PROBES: Final[Mapping[str, Callable[..., bool]]] = {
    each.__name__: each
    for each in (
        session_id,
        session_state,
        session_lock,
        session_list,
        message_id,
        partition_key,
        both_keys,
        queue_name,
        topic_name,
        subscription_name,
        rule_name,
        address,
        filter_text,
        filter_name,
        filter_value,
        sql_name,
        sql_text,
        sql_system_name,
    )
}


PROPERTIES: Final = {"session_id": "SessionId", "message_id": "MessageId", "partition_key": "PartitionKey"}


def takes(asker: Asker, probe: str, text: str) -> bool:
    """Whether the server takes a text as such a name, id or key."""
    if probe in PROPERTIES:
        return asker.rest.send(asker.queue(), b"x", (), **{PROPERTIES[probe]: text}).status == 201
    with suppress(RefusedError):
        PROBES[probe](asker, text, text)
        return True
    return False
