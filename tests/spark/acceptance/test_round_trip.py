"""What a client sets on a message is what another client gets, after a trip through Spark and a file."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from emubus.spark_connector.schema import SINK_COLUMNS
from emubus.testing import EmubusServer

from ..conftest import MakeQueue
from ..sink.kit import Rig, text_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOMORROW = datetime.now(UTC).replace(microsecond=250_000) + timedelta(days=1)
PROPERTIES: dict[str | bytes, Any] = {
    "text": "a\u00e9\U0001f600",
    "empty": "",
    "yes": True,
    "no": False,
    "small": 7,
    "negative": -(2**31),
    "large": {TYPE: AMQPTypes.long, VALUE: 2**62},
    "largest": {TYPE: AMQPTypes.ulong, VALUE: 2**64 - 1},
    "byte": {TYPE: AMQPTypes.byte, VALUE: -3},
    "unsigned short": {TYPE: AMQPTypes.ushort, VALUE: 65_535},
    "single": {TYPE: AMQPTypes.float, VALUE: 1.5},
    "binary": {TYPE: AMQPTypes.binary, VALUE: b"\x00\xff"},
    "symbol": {TYPE: AMQPTypes.symbol, VALUE: "a:symbol"},
    "fraction": 0.1,
    "id": uuid.UUID(int=2**100 + 5),
    "at": datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC),
}


def sent_messages(*, session_id: str | None) -> list[ServiceBusMessage | AmqpAnnotatedMessage]:
    """Messages with everything that a client can set, with nothing, and with odd bodies."""
    full = ServiceBusMessage(
        "\x00\x01body\u00ff".encode(),
        application_properties=PROPERTIES,
        session_id=session_id,
        message_id="the id",
        content_type="application/octet-stream",
        correlation_id="the correlation",
        subject="the subject",
        to="an address",
        reply_to="another address",
        reply_to_session_id="their messages",
        partition_key=session_id or "the key",
        time_to_live=timedelta(hours=3, milliseconds=5),
    )
    in_session = AmqpMessageProperties(group_id=session_id)
    later = ServiceBusMessage("later", session_id=session_id, scheduled_enqueue_time_utc=TOMORROW)
    return [
        full,
        ServiceBusMessage("", session_id=session_id),
        AmqpAnnotatedMessage(data_body=[b"in two ", b"sections"], properties=in_session),
        later,
    ]


def shown(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """What a client can set, as another client sees it."""
    return {
        "body": b"".join(message.body),
        "messageId": message.message_id,
        "sessionId": message.session_id,
        "partitionKey": message.partition_key,
        "subject": message.subject,
        "contentType": message.content_type,
        "correlationId": message.correlation_id,
        "to": message.to,
        "replyTo": message.reply_to,
        "replyToSessionId": message.reply_to_session_id,
        "timeToLiveMs": message.time_to_live,
        "scheduledEnqueueTime": message.scheduled_enqueue_time_utc,
        "applicationProperties": message.application_properties,
    }


def seen(client: ServiceBusClient, queue: str, session_id: str | None) -> list[dict[str, Any]]:
    """All messages of a queue, in order of their bodies."""
    with client.get_queue_receiver(queue, session_id=session_id) as receiver:
        assert isinstance(receiver, ServiceBusReceiver)
        return sorted(map(shown, receiver.peek_messages(100)), key=lambda each: each["body"])


def property_types(rig: Rig, queue: str) -> list[dict[Any, tuple[type, Any]]]:
    """The application properties with the types that are stored: the SDK shows most of AMQP's numbers alike."""
    found: list[dict[Any, tuple[type, Any]]] = []
    for message in sorted(rig.stored(queue), key=text_of):
        kept: dict[Any, Any] = message.properties or {}
        found.append({key: (type(each), None if isinstance(each, memoryview) else each) for key, each in kept.items()})
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("operations", ["all", "standard"])
@pytest.mark.parametrize("session_id", [None, "theirs"])
def test_everything_that_a_client_sets_comes_out_at_the_other_end(
    spark: SparkSession,
    server: EmubusServer,
    client: ServiceBusClient,
    options: dict[str, str],
    make_queue: MakeQueue,
    tmp_path: Path,
    session_id: str | None,
    operations: str,
) -> None:
    source, target = (make_queue(requires_session=session_id is not None) for _ in range(2))
    with client.get_queue_sender(source) as sender:
        sender.send_messages(cast(list[ServiceBusMessage], sent_messages(session_id=session_id)))  # takes both
    before = seen(client, source, session_id)
    read = spark.read.format("servicebus").options(**options, queue=source, includeScheduled="true")
    read = read.options(applicationPropertiesFormat="json", serviceOperations=operations)
    read.load().write.parquet(str(tmp_path / "rows"))
    write = spark.read.parquet(str(tmp_path / "rows")).write.format("servicebus").mode("append")
    write.options(**options, queue=target, applicationPropertiesFormat="json", messageIdPolicy="column").save()
    assert seen(client, target, session_id) == before
    assert property_types(Rig(server), target) == property_types(Rig(server), source)
    assert before[1]["applicationProperties"] is not None
    assert before[0].keys() >= {column.name for column in SINK_COLUMNS} - {"entity"}
