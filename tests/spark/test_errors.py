"""Each error as a Spark user sees it: whatever Spark wraps around, one line of it says what is wrong and what to do.

The texts are compared whole. What Spark and Python add (a traceback, the query's state) is not, but must not have a
secret in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from emubus.broker.keys import Right, SharedKey
from emubus.broker.model.descriptions import QueueDescription
from emubus.config import Auth
from emubus.testing import EmubusServer

from .conftest import MakeQueue, Send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD = "emubus.spark_connector.errors.ConnectorError: "
KEY = "SAS_KEY_VALUE"
WRONG_KEY = "V1JPTkctS0VZ"
Options = dict[str, str]


TAIL = re.compile(r"(?: Reference:\S+,)? TrackingId:\S+, SystemTracker:[^,]*, Timestamp:\S+")


def reported(error: pytest.ExceptionInfo[PySparkException]) -> str:
    """The one line of the connector's in an error of Spark's, without the tail by which support finds the error."""
    text = str(error.value)
    assert KEY not in text
    assert WRONG_KEY not in text
    lines = {TAIL.sub("", line.strip().removeprefix(HEAD)) for line in text.splitlines() if HEAD in line}
    assert len(lines) == 1, text
    return lines.pop()


def read(spark: SparkSession, options: Options) -> str:
    """What a batch read says."""
    with pytest.raises(PySparkException) as error:
        spark.read.format("servicebus").options(**options).load().collect()
    return reported(error)


def write(spark: SparkSession, options: Options, row: str = "'x' AS body") -> str:
    """What a batch write of one row says."""
    with pytest.raises(PySparkException) as error:
        spark.sql(f"SELECT {row}").write.format("servicebus").options(**options).mode("append").save()
    return reported(error)


def run_stream(spark: SparkSession, options: Options, checkpoint: Path) -> None:
    """Read what is there as a stream, to nowhere."""
    query = (
        spark.readStream.format("servicebus")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)


def stream(spark: SparkSession, options: Options, checkpoint: Path) -> str:
    """What a stream says."""
    with pytest.raises(PySparkException) as error:
        run_stream(spark, options, checkpoint)
    return reported(error)


# ---- reported while the query is made


@pytest.mark.parametrize(
    ("added", "text"),
    [
        (
            {"queuNam": "orders"},
            "[SERVICEBUS_UNKNOWN_OPTION] there is no option 'queunam': did you mean queueName (also spelt queue)?",
        ),
        (
            {"queue": "orders", "mode": "drain"},
            "[SERVICEBUS_MODE_UNSUPPORTED] mode=drain with spark.read: a batch query never learns when its rows are "
            "safe, so it can't take messages away; use readStream.trigger(availableNow=True), or mode=browse",
        ),
        (
            {"queue": "orders", "connectionString": f"Endpoint=sb://localhost;SharedAccessKey={KEY}"},
            "[SERVICEBUS_OPTION_INVALID] connectionString can't be used: it has no SharedAccessKeyName; it looks like "
            "Endpoint=sb://<host>/;SharedAccessKeyName=<name>;SharedAccessKey=<key>, or has "
            "SharedAccessSignature=<token> in place of name and key",
        ),
        (
            {"queue": "orders", "host": "localhost:1", "retryTimeout": "0ms"},
            "[SERVICEBUS_UNAVAILABLE] no connection to localhost:1: [Errno 111] Connection refused; check host, port "
            "and tls",
        ),
    ],
    ids=["unknown option", "mode", "connection string", "nobody there"],
)
def test_a_read_with_a_wrong_option_says_which(
    spark: SparkSession, options: Options, added: Options, text: str
) -> None:
    assert read(spark, options | added) == text


def test_a_read_with_a_wrong_column_says_which(spark: SparkSession, options: Options) -> None:
    with pytest.raises(PySparkException) as error:
        spark.read.format("servicebus").schema("boddy STRING").options(**options, queue="orders").load().collect()
    assert reported(error) == (
        "[SERVICEBUS_SCHEMA_UNSUPPORTED] a Service Bus source has no column 'boddy': did you mean 'body'?"
    )


def test_a_write_with_a_wrong_column_says_which(spark: SparkSession, options: Options) -> None:
    assert write(spark, options | {"queue": "orders"}, "1 AS body") == (
        "[SERVICEBUS_SCHEMA_UNSUPPORTED] column 'body' is INT: cast it to STRING or BINARY"
    )


def test_a_write_that_would_overwrite_says_what_to_do(spark: SparkSession, options: Options) -> None:
    with pytest.raises(PySparkException) as error:
        spark.range(1).write.format("servicebus").options(**options, queue="orders").mode("overwrite").save()
    assert reported(error) == (
        '[SERVICEBUS_MODE_UNSUPPORTED] messages that are sent can\'t be overwritten: use mode("append") instead'
    )


# ---- reported by the service

NOT_FOUND = (
    "[SERVICEBUS_ENTITY_NOT_FOUND] {0}: The messaging entity '{1}' could not be found. To know more visit "
    "https://aka.ms/sbResourceMgrExceptions. (amqp:not-found): check the name of the queue, or of the topic and its "
    "subscription"
)


def test_an_entity_that_is_missing_is_named_by_reads_writes_and_streams(
    spark: SparkSession, options: Options, tmp_path: Path
) -> None:
    assert read(spark, options | {"topic": "none", "subscription": "such"}) == NOT_FOUND.format(
        "none/Subscriptions/such", "sb://sbemulatorns.servicebus.windows.net/none/Subscriptions/such"
    )
    assert write(spark, options | {"queue": "none"}) == NOT_FOUND.format(
        "none", "sb://sbemulatorns.servicebus.windows.net/none"
    )
    assert stream(spark, options | {"queue": "none"}, tmp_path) == NOT_FOUND.format(
        "none", "sb://sbemulatorns.servicebus.windows.net/none"
    )


@pytest.fixture
def strict_server() -> Iterator[EmubusServer]:
    """A server that verifies keys, with a queue `orders`."""
    with EmubusServer([QueueDescription("orders")], auth=Auth.SAS) as server:
        yield server


def test_a_wrong_key_is_reported_with_the_rights_it_needs(spark: SparkSession, strict_server: EmubusServer) -> None:
    wrong = {"connectionString": strict_server.connection_string.replace(KEY, WRONG_KEY), "queue": "orders"}
    text = (
        "[SERVICEBUS_UNAUTHORIZED] orders: InvalidSignature: The token has an invalid signature. "
        "(amqp:unauthorized-access): check the key, the token and its rights (Listen to read, Send to write)"
    )
    assert (read(spark, wrong), write(spark, wrong)) == (text, text)


def test_a_key_without_the_right_is_reported_with_the_right_that_is_needed(spark: SparkSession) -> None:
    listener = SharedKey("listener", KEY, frozenset({Right.LISTEN}))
    with EmubusServer([QueueDescription("orders")], auth=Auth.SAS, keys=[listener]) as server:
        named = server.connection_string.replace("RootManageSharedAccessKey", "listener")
        options = {"connectionString": named, "queue": "orders"}
        assert spark.read.format("servicebus").options(**options).load().collect() == []
        assert write(spark, options) == (
            "[SERVICEBUS_UNAUTHORIZED] orders: Unauthorized access. 'Send' claim(s) are required to perform this "
            "operation. Resource: 'sb://sbemulatorns.servicebus.windows.net/orders'. (amqp:unauthorized-access): check "
            "the key, the token and its rights (Listen to read, Send to write)"
        )


def test_a_row_that_is_too_large_is_reported_with_its_size_and_the_limit(
    spark: SparkSession, options: Options, queue: str
) -> None:
    assert write(spark, options | {"queue": queue}, "repeat('x', 300000) AS body") == (
        f"[SERVICEBUS_MESSAGE_TOO_LARGE] Row 0 of Spark partition 0 takes 300075 bytes as a message, '{queue}' takes "
        "262144 at most. Make the row smaller, or leave such rows out with onOversize=skip."
    )


def test_a_row_without_a_message_session_is_reported_for_an_entity_that_needs_one(
    spark: SparkSession, options: Options, make_queue: MakeQueue
) -> None:
    queue = make_queue(requires_session=True)
    assert write(spark, options | {"queue": queue}) == (
        f"[SERVICEBUS_SESSION_REQUIRED] row 0 for '{queue}': {queue}: The SessionId was not set on a message, and it "
        "cannot be sent to the entity. Entities that have session support enabled can only receive messages that have "
        "the SessionId set to a valid value. (amqp:not-allowed): give each message a sessionId"
    )


# ---- reported from the checkpoint


def test_a_checkpoint_of_another_entity_is_reported_with_both(
    spark: SparkSession, options: Options, make_queue: MakeQueue, send: Send, tmp_path: Path
) -> None:
    one, other = make_queue(), make_queue()
    send(one, "x")
    run_stream(spark, options | {"queue": one}, tmp_path)
    assert stream(spark, options | {"queue": other}, tmp_path) == (
        f"[SERVICEBUS_CHECKPOINT_MISMATCH] {other}: the checkpoint belongs to '{one}'; continue with the entity and "
        "mode of the checkpoint, or start with a new checkpointLocation"
    )


def test_a_checkpoint_that_is_ahead_of_an_entity_made_anew_is_reported(
    spark: SparkSession, options: Options, queue: str, server: EmubusServer, send: Send, tmp_path: Path
) -> None:
    send(queue, "x", "y")
    run_stream(spark, options | {"queue": queue}, tmp_path)
    server.delete(queue)
    server.create(QueueDescription(queue))
    generation = r"[0-9a-f]{16}-\d+"
    assert re.fullmatch(
        rf"\[SERVICEBUS_DATA_LOSS\] {queue}: the checkpoint is of generation {generation} of the entity, which now has "
        rf"generation {generation}: it was deleted and created again, or restored; start with a new "
        r"checkpointLocation, or set failOnDataLoss=false to read the new entity from its first message",
        stream(spark, options | {"queue": queue}, tmp_path),
    )
