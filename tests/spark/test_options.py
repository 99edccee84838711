"""Options: every spelling works, every mistake has an error of one line, and no error shows a secret."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from emubus.spark_connector.dialing.credentials import ClientSecret, Credential, SasKey, SasToken, TokenProvider
from emubus.spark_connector.dialing.endpoint import Endpoint
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.option_table import FOREIGN_NAMES, OPTIONS, SPARK_KEYS, Context
from emubus.spark_connector.options import (
    AtNumber,
    AtNumbers,
    AtTime,
    ConnectionOptions,
    Earliest,
    Latest,
    Position,
    SinkOptions,
    SourceOptions,
    sink_options,
    source_options,
)

SECRET = "c2VjcmV0LWtleQ=="
EMULATOR = (
    f"Endpoint=sb://localhost:5673;SharedAccessKeyName=Root;SharedAccessKey={SECRET};UseDevelopmentEmulator=true;"
)
AZURE = f"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={SECRET}"
BASE = {"connectionString": EMULATOR, "queue": "orders"}


def read(raw: dict[str, str]) -> SourceOptions:
    return source_options(raw, streaming=False)


def stream(raw: dict[str, str]) -> SourceOptions:
    return source_options(raw, streaming=True)


def write(raw: dict[str, str]) -> SinkOptions:
    return sink_options(raw, streaming=False)


def refused(raw: dict[str, str], *, streaming: bool = True) -> str:
    """What a reader says of wrong options; always one line."""
    with pytest.raises(ConnectorError) as error:
        source_options(raw, streaming=streaming)
    assert "\n" not in str(error.value)
    assert SECRET not in str(error.value)
    return str(error.value)


def refused_write(raw: dict[str, str]) -> str:
    with pytest.raises(ConnectorError) as error:
        write(raw)
    assert "\n" not in str(error.value)
    return str(error.value)


# ---- what is taken


def test_a_reader_without_further_options_browses_everything_from_the_earliest_message() -> None:
    assert read(BASE) == SourceOptions(
        connection=ConnectionOptions(
            endpoint=Endpoint(
                host="localhost",
                port=5673,
                tls=False,
                transport="amqp",
                ca_file=None,
                connect_timeout_s=30.0,
                operation_timeout_s=60.0,
                idle_timeout_s=60.0,
                retry_timeout_s=120.0,
                address_host="localhost",
            ),
            credential=SasKey("Root", SECRET),
        ),
        entity="orders",
        several=None,
        mode="browse",
        claim_id=None,
        starting=Earliest(),
        ending=Latest(),
        max_messages_per_trigger=None,
        min_messages_per_trigger=None,
        max_trigger_delay_s=900.0,
        min_partitions=None,
        max_messages_per_task=None,
        peek_batch_size=500,
        include_deferred=False,
        include_scheduled=False,
        fail_on_data_loss=True,
        poll_interval_s=0.2,
        settle_failure="log",
        partition_discovery_interval_s=60.0,
        partition_ids=(),
        on_outage="wait",
        outage_timeout_s=600.0,
        requests_per_s=5,
        properties_format="text",
    )
    assert stream(BASE) == read(BASE)


def test_a_writer_without_further_options_keeps_ids_and_fails_on_what_is_too_large() -> None:
    assert write(BASE) == SinkOptions(
        connection=read(BASE).connection,
        entity="orders",
        batch_size_bytes=None,
        max_in_flight=16,
        ordered=False,
        transactional=False,
        on_oversize="fail",
        message_id_policy="deterministic",
        write_id=None,
        ignore_read_only_columns=True,
        properties_format="text",
    )


def test_every_option_of_a_stream_is_read() -> None:
    options = stream(
        BASE
        | {
            "mode": "Claim",
            "claimId": "job-1",
            "startingPosition": "latest",
            "maxMessagesPerTrigger": "100000",
            "minMessagesPerTrigger": "10",
            "maxTriggerDelay": "1m",
            "minPartitions": "8",
            "maxMessagesPerTask": "5000",
            "peekBatchSize": "2000",
            "includeDeferred": "TRUE",
            "includeScheduled": "true",
            "failOnDataLoss": "false",
            "pollInterval": "1s",
            "settleFailure": "fail",
            "partitionDiscoveryInterval": "5 seconds",
            "partitionIds": "40, 0,38",
            "onOutage": "Skip",
            "outageTimeout": "1h",
            "maxRequestsPerSecond": "50",
            "serviceOperations": "Standard",
            "applicationPropertiesFormat": "json",
        }
    )
    assert options == SourceOptions(
        connection=replace(read(BASE).connection, endpoint=replace(read(BASE).connection.endpoint, standard_only=True)),
        entity="orders",
        several=None,
        mode="claim",
        claim_id="job-1",
        starting=Latest(),
        ending=Latest(),
        max_messages_per_trigger=100_000,
        min_messages_per_trigger=10,
        max_trigger_delay_s=60.0,
        min_partitions=8,
        max_messages_per_task=5_000,
        peek_batch_size=2_000,
        include_deferred=True,
        include_scheduled=True,
        fail_on_data_loss=False,
        poll_interval_s=1.0,
        settle_failure="fail",
        partition_discovery_interval_s=5.0,
        partition_ids=(0, 38, 40),
        on_outage="skip",
        outage_timeout_s=3600.0,
        requests_per_s=50,
        properties_format="json",
    )


def test_every_option_of_a_writer_is_read() -> None:
    options = write(
        BASE
        | {
            "batchSizeBytes": "65536",
            "maxInFlight": "4",
            "ordered": "true",
            "transactional": "true",
            "onOversize": "skip",
            "messageIdPolicy": "column",
            "writeId": "job-7",
            "ignoreReadOnlyColumns": "false",
            "applicationPropertiesFormat": "json",
        }
    )
    assert options == SinkOptions(
        read(BASE).connection, "orders", 65_536, 4, True, True, "skip", "column", "job-7", False, "json"
    )


def test_an_option_is_a_field_or_makes_the_target_or_the_connection() -> None:
    made = {each.metadata["option"].name for of in (SourceOptions, SinkOptions) for each in fields(of) if each.metadata}
    assert {option.name for option in OPTIONS} - made == {
        *("connectionString", "fullyQualifiedNamespace", "host", "port", "tls", "caFile", "transport"),
        *("sasKeyName", "sasKey", "sasToken", "tenantId", "clientId", "clientSecret", "tokenProvider"),
        *("connectTimeout", "operationTimeout", "retryTimeout", "connectionIdleTimeout"),
        *("entityPath", "queue", "topic", "subscription", "subQueue"),
        *("entities", "entityPattern", "administrationPort", "serviceOperations"),
    }


@pytest.mark.parametrize(
    ("word", "transport"),
    [
        *(("AmqpOverWebsocket", "amqpws"), ("AmqpWebSockets", "amqpws"), ("AMQP_WEB_SOCKETS", "amqpws")),
        *(("AmqpTcp", "amqp"), ("Amqp", "amqp")),
    ],
)
def test_the_sdks_words_for_a_transport_are_taken(word: str, transport: str) -> None:
    assert read(BASE | {"transportType": word}).connection.endpoint.transport == transport


# Between them these have every option that has an alias.
EXAMPLES = (
    {"fullyQualifiedNamespace": "bus", "sasKeyName": "k", "sasKey": "s", "transport": "amqpws", "entityPath": "q"},
    {"fullyQualifiedNamespace": "bus", "sasToken": "t", "host": "gate", "topic": "t", "subscription": "s"},
    BASE | {"startingPosition": "7", "maxMessagesPerTrigger": "9", "minMessagesPerTrigger": "8"},
    BASE | {"endingPosition": "7"},
)


@pytest.mark.parametrize(("name", "alias"), [(each.name, alias) for each in OPTIONS for alias in each.aliases])
def test_an_alias_is_its_option(name: str, alias: str) -> None:
    example = next(each for each in EXAMPLES if name in each)
    streaming = "endingPosition" not in example
    other = {alias if each == name else each: value for each, value in example.items()}
    assert alias in other
    assert source_options(other, streaming=streaming) == source_options(example, streaming=streaming)


def test_the_spellings_of_tutorials_work_in_any_case_as_spark_hands_them_over() -> None:
    lowered = {"connectionstring": EMULATOR, "queuename": "orders", "maxeventspertrigger": "5"}
    assert stream(lowered) == stream(BASE | {"maxMessagesPerTrigger": "5"})


def test_what_spark_puts_among_the_options_is_let_through() -> None:
    added = dict.fromkeys(SPARK_KEYS, "x") | {"option.queue": "orders", "spark.sql.x": "1"}
    assert (read(BASE | added), stream(BASE | added), write(BASE | added)) == (read(BASE), stream(BASE), write(BASE))


# ---- the target


@pytest.mark.parametrize(
    ("raw", "entity"),
    [
        ({"queue": "a/b.c"}, "a/b.c"),
        ({"entityPath": "orders"}, "orders"),
        ({"topic": "t", "subscription": "s"}, "t/Subscriptions/s"),
        ({"entityPath": "t/subscriptions/s"}, "t/subscriptions/s"),
        ({"topicName": "t", "subscriptionName": "s", "subQueue": "deadletter"}, "t/Subscriptions/s/$DeadLetterQueue"),
        ({"queue": "orders", "subQueue": "transferDeadLetter"}, "orders/$Transfer/$DeadLetterQueue"),
        ({"queue": "orders", "subQueue": "none"}, "orders"),
    ],
)
def test_the_target_of_a_read_is_a_path(raw: dict[str, str], entity: str) -> None:
    assert read({"connectionString": EMULATOR} | raw).entity == entity


def test_the_connection_strings_entity_path_is_the_target() -> None:
    with_path = {"connectionString": f"{AZURE};EntityPath=orders"}
    assert read(with_path).entity == "orders"
    assert write(with_path).entity == "orders"
    assert read(with_path | {"queue": "Orders"}).entity == "Orders"
    assert read(with_path | {"subscription": "s"}).entity == "orders/Subscriptions/s"


def test_a_write_without_a_target_leaves_it_to_each_row() -> None:
    assert write({"connectionString": EMULATOR}).entity is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({}, "nothing to read: name a queue by the option queue, or a subscription by topic and subscription"),
        ({"queueName": "a", "topic": "b"}, "two targets are given, queueName=a and topic=b: keep one"),
        (
            {"topic": "t"},
            "topic 't' can't be read itself: name one of its subscriptions by the option subscription",
        ),
        ({"queue": "q", "subscriptionName": "s"}, "option subscriptionName goes with a topic, but queue is given"),
        (
            {"entityPath": "t/Subscriptions/s", "subscription": "x"},
            "'t/Subscriptions/s' is a subscription already: remove option subscription",
        ),
        (
            {"queue": "sb://x/orders"},
            "option queue: 'sb://x/orders' is not the name of an entity: no blanks, no ; = ? # @ : and no / at its "
            "ends",
        ),
    ],
)
def test_a_target_that_is_none_or_two_is_refused(raw: dict[str, str], text: str) -> None:
    assert refused({"connectionString": EMULATOR} | raw) == f"[SERVICEBUS_OPTION_INVALID] {text}"


def test_two_different_targets_in_connection_string_and_option_are_refused() -> None:
    assert refused({"connectionString": f"{AZURE};EntityPath=a", "queue": "b"}) == (
        "[SERVICEBUS_OPTION_INVALID] two targets are given, EntityPath=a in the connection string and queue=b: keep one"
    )


@pytest.mark.parametrize("path", ["t/Subscriptions/s", "orders/$DeadLetterQueue", "orders/$management"])
def test_what_can_only_be_read_is_refused_as_a_sink(path: str) -> None:
    assert refused_write({"connectionString": EMULATOR, "entityPath": path}) == (
        f"[SERVICEBUS_OPTION_INVALID] {path!r} can't be written: name a queue or a topic"
    )


# ---- names


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("queuname", "there is no option 'queuname': did you mean queueName (also spelt queue)?"),
        (
            "maxMessagePerTrigger",
            "there is no option 'maxMessagePerTrigger': did you mean maxMessagesPerTrigger "
            "(also spelt maxOffsetsPerTrigger, maxEventsPerTrigger)?",
        ),
        ("servicebus.peekBatchSize", "there is no option 'servicebus.peekBatchSize': did you mean peekBatchSize?"),
        ("eventhubs.consumerGroup", "there is no option 'eventhubs.consumerGroup': take subscription"),
        ("kafka.group.id", "there is no option 'kafka.group.id': take subscription"),
        ("subscribePattern", "there is no option 'subscribePattern': take entityPattern"),
        ("includeHeaders", "there is no option 'includeHeaders': take the column applicationProperties"),
        ("batchSizeByte", "there is no option 'batchSizeByte': did you mean batchSizeBytes?"),
    ],
)
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(name: str, text: str) -> None:
    assert refused(BASE | {name: "1"}) == f"[SERVICEBUS_UNKNOWN_OPTION] {text}"


def test_an_option_like_none_is_refused_with_all_there_are_here() -> None:
    text = refused_write(BASE | {"zzzzzz": "1"})
    names = sorted(option.name for option in OPTIONS if Context.WRITE in option.contexts)
    assert text == (
        f"[SERVICEBUS_UNKNOWN_OPTION] there is no option 'zzzzzz'; for writing there are: {', '.join(names)}"
    )


def test_every_name_of_a_neighbour_leads_to_an_option_or_a_column() -> None:
    names = {option.name for option in OPTIONS}
    assert {target for target in FOREIGN_NAMES.values() if target not in names} == {
        "the column sessionId",
        "the column applicationProperties",
        "startingPosition and endingPosition to narrow a read",
    }


@pytest.mark.parametrize(
    ("name", "value", "streaming", "text"),
    [
        ("maxEventsPerTrigger", "5", False, "maxEventsPerTrigger is for spark.readStream, not for spark.read"),
        ("endingPosition", "7", True, "endingPosition is for spark.read, not for spark.readStream"),
        ("ordered", "true", True, "ordered is for writing, not for spark.readStream"),
    ],
)
def test_an_option_in_the_wrong_place_says_where_it_belongs(name: str, value: str, streaming: bool, text: str) -> None:
    assert refused(BASE | {name: value}, streaming=streaming) == f"[SERVICEBUS_OPTION_INVALID] option {text}: remove it"


def test_a_readers_option_is_refused_for_a_writer() -> None:
    assert refused_write(BASE | {"mode": "browse"}) == (
        "[SERVICEBUS_OPTION_INVALID] option mode is for reading, not for writing: remove it"
    )


def test_one_option_under_two_names_is_taken_only_with_one_value() -> None:
    assert stream(BASE | {"queueName": "orders"}) == stream(BASE)
    assert refused(BASE | {"queueName": "other"}) == (
        "[SERVICEBUS_OPTION_INVALID] options queue and queueName are the same option, given with two values: keep one"
    )


def test_names_are_unique_over_the_whole_table() -> None:
    names = [name.lower() for option in OPTIONS for name in (option.name, *option.aliases)]
    assert len(set(names)) == len(names)
    assert not set(names) & (SPARK_KEYS | set(FOREIGN_NAMES))


# ---- values


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("peekBatchSize", "0", "'0' is not a whole number from 1 to 10000"),
        ("peekBatchSize", "1e3", "'1e3' is not a whole number from 1 to 10000"),
        ("port", "65536", "'65536' is not a whole number from 1 to 65535"),
        ("includeDeferred", "yes", "'yes' is not true or false"),
        ("mode", "peek", "'peek' is not one of browse, drain, claim"),
        ("host", "sb://x", "'sb://x' is not a host name, without sb:// and path"),
        ("tokenProvider", "tokens", "'tokens' is not \"module:function\", importable on the workers"),
        (
            "pollInterval",
            "5",
            "'5' is not a duration from 0ms to 30s, like 5s (a duration is a number and a unit: ms, s, m, h or d)",
        ),
        ("pollInterval", "31s", "'31s' is not a duration from 0ms to 30s, like 5s"),
        ("connectTimeout", "0ms", "'0ms' is not a duration from 100ms to 10m, like 5s"),
        ("caFile", " ", "' ' is not a text (it is empty)"),
    ],
)
def test_a_value_out_of_range_is_refused_with_name_value_and_range(name: str, value: str, text: str) -> None:
    assert refused(BASE | {name: value}) == f"[SERVICEBUS_OPTION_INVALID] option {name}: {text}".replace("' '", "''")


def test_a_long_value_is_cut_and_brought_on_one_line() -> None:
    assert refused(BASE | {"minPartitions": "x\n" * 100}) == (
        f"[SERVICEBUS_OPTION_INVALID] option minPartitions: '{'x ' * 40}…' is not a whole number from 1 to 100000"
    )


def test_fewer_messages_at_most_than_at_least_are_refused() -> None:
    assert refused(BASE | {"minOffsetsPerTrigger": "9", "maxEventsPerTrigger": "8"}) == (
        "[SERVICEBUS_OPTION_INVALID] option minOffsetsPerTrigger is 9, more than maxEventsPerTrigger, which is 8"
    )


# ---- positions

FIVE_IN_3 = 3 << 48 | 5


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("Earliest", Earliest()),
        ("latest", Latest()),
        ("42", AtNumber(42)),
        (str(FIVE_IN_3), AtNumber(FIVE_IN_3)),
        ('{"3": 5, "0": 7}', AtNumbers(((0, 7), (3, FIVE_IN_3)))),
        (f'{{"3": {FIVE_IN_3}}}', AtNumbers(((3, FIVE_IN_3),))),
        ("2026-01-02T03:04:05Z", AtTime(1_767_323_045_000)),
        ("2026-01-02T03:04:05.250+01:00", AtTime(1_767_319_445_250)),
        ("2026-01-02", AtTime(int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000))),
    ],
)
def test_a_position_is_a_word_a_number_a_number_for_each_partition_or_a_time(text: str, position: Position) -> None:
    assert read(BASE | {"startingOffsets": text}).starting == position


def test_the_end_of_a_batch_read_is_a_position() -> None:
    assert read(BASE | {"endingPosition": '{"0": 9}'}).ending == AtNumbers(((0, 9),))
    assert AtNumbers(((0, 9),)).by_partition() == {0: 9}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("yesterday", 'it is neither "earliest" nor "latest", a sequence number, {"0": number, …} nor an ISO time'),
        (str(1 << 63), "a sequence number is from -9223372036854775808 to 9223372036854775807"),
        ('{"0": 1', "the JSON is broken at character 7"),
        ("{}", "it names no partition"),
        ('{"x": 1}', "'x' is no partition id: 0 to 65535"),
        ('{"0": "1"}', "the value of partition 0 is no whole number"),
        ('{"0": 1, "00": 2}', "partition 0 is named twice"),
        (f'{{"2": {FIVE_IN_3}}}', f"sequence number {FIVE_IN_3} is of partition 3, not 2"),
    ],
)
def test_a_position_that_is_none_is_refused_with_the_reason(text: str, why: str) -> None:
    assert refused(BASE | {"startingPosition": text}) == (
        f"[SERVICEBUS_OPTION_INVALID] option startingPosition: {text!r} is not "
        f'"earliest", "latest", a sequence number, {{"0": number, …}} by partition, or an ISO time ({why})'
    )


def test_a_read_that_ends_before_it_starts_is_refused() -> None:
    assert refused(BASE | {"endingPosition": "earliest"}, streaming=False) == (
        "[SERVICEBUS_OPTION_INVALID] option endingPosition: 'earliest' is not \"latest\", a sequence number, "
        '{"0": number, …} by partition, or an ISO time (nothing lies before the earliest message)'
    )


# ---- modes


@pytest.mark.parametrize("mode", ["drain", "claim"])
def test_a_batch_read_only_browses(mode: str) -> None:
    assert refused(BASE | {"mode": mode}, streaming=False) == (
        f"[SERVICEBUS_MODE_UNSUPPORTED] mode={mode} with spark.read: a batch query never learns when its rows are "
        "safe, so it can't take messages away; use readStream.trigger(availableNow=True), or mode=browse"
    )


def test_a_claim_has_a_name_and_nothing_else_has() -> None:
    assert refused(BASE | {"mode": "claim"}) == (
        "[SERVICEBUS_OPTION_INVALID] mode=claim needs the option claimId: a name for this query's claims that stays "
        "over restarts"
    )
    assert refused(BASE | {"mode": "drain", "claimId": "x"}) == (
        "[SERVICEBUS_OPTION_INVALID] option claimId is for mode=claim, not for mode=drain: remove it"
    )


# ---- the connection


@pytest.mark.parametrize(
    ("raw", "host", "port", "tls", "address_host"),
    [
        ({"connectionString": AZURE}, "shop.servicebus.windows.net", 5671, True, "shop.servicebus.windows.net"),
        (
            {"connectionString": AZURE, "transport": "amqpws"},
            "shop.servicebus.windows.net",
            443,
            True,
            "shop.servicebus.windows.net",
        ),
        ({"connectionString": AZURE, "host": "10.0.0.1"}, "10.0.0.1", 5671, True, "shop.servicebus.windows.net"),
        ({"connectionString": AZURE, "host": "gate:9000"}, "gate", 9000, True, "shop.servicebus.windows.net"),
        ({"connectionString": EMULATOR}, "localhost", 5673, False, "localhost"),
        ({"connectionString": EMULATOR, "port": "7", "tls": "true"}, "localhost", 7, True, "localhost"),
        ({"connectionString": EMULATOR, "host": "[::1]:99"}, "::1", 99, False, "localhost"),
        ({"namespace": "bus:5672", "sasToken": "t", "tls": "false"}, "bus", 5672, False, "bus"),
    ],
)
def test_the_endpoint_follows_from_connection_string_and_options(
    raw: dict[str, str], host: str, port: int, tls: bool, address_host: str
) -> None:
    endpoint = read({"queue": "q"} | raw).connection.endpoint
    assert (endpoint.host, endpoint.port, endpoint.tls, endpoint.address_host) == (host, port, tls, address_host)


SPACE = {"fullyQualifiedNamespace": "shop.servicebus.windows.net", "queue": "q"}


@pytest.mark.parametrize(
    ("raw", "credential"),
    [
        ({"sasKeyName": "k", "sasKey": SECRET}, SasKey("k", SECRET)),
        ({"sasToken": SECRET}, SasToken(SECRET)),
        ({"tenantId": "t", "clientId": "c", "clientSecret": SECRET}, ClientSecret("t", "c", SECRET)),
        ({"tokenProvider": "my.tokens:give"}, TokenProvider("my.tokens:give")),
    ],
)
def test_each_kind_of_credential_is_taken_and_its_secret_never_shown(
    raw: dict[str, str], credential: Credential
) -> None:
    options = read(SPACE | raw)
    assert options.connection.credential == credential
    assert SECRET not in repr(options) + str(options)
    assert pickle.loads(pickle.dumps(options)) == options
    assert write(SPACE | raw).connection == options.connection


WAYS = (
    "give a connectionString with a key, or sasKeyName and sasKey, or sasToken, or tenantId, clientId and "
    "clientSecret, or tokenProvider"
)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (SPACE, f"exactly one credential is needed, there is none: {WAYS}"),
        (
            BASE | {"sasToken": SECRET},
            "exactly one credential is needed, there are the connection string's key or signature as well as sasToken: "
            + WAYS,
        ),
        (SPACE | {"sasKey": SECRET}, "sasKey needs sasKeyName, too"),
        (SPACE | {"clientSecret": SECRET}, "clientSecret needs tenantId and clientId, too"),
        (SPACE | BASE, "give one of connectionString and fullyQualifiedNamespace, not both"),
        ({"queue": "q"}, "give one of connectionString and fullyQualifiedNamespace"),
        (
            {},
            "give one of connectionString and fullyQualifiedNamespace; Spark gives a table made by CREATE TABLE … "
            "USING servicebus none of its options: read it by SELECT … FROM t WITH (connectionString = '…', queue = "
            "'…'), or use CREATE TEMPORARY VIEW",
        ),
    ],
)
def test_exactly_one_namespace_and_one_credential_are_taken(raw: dict[str, str], text: str) -> None:
    assert refused(raw) == f"[SERVICEBUS_OPTION_INVALID] {text}"


@pytest.mark.parametrize(
    "raw",
    [
        {"connectionString": f"SharedAccessKey={SECRET}"},
        {"connectionString": f"{SECRET}{SECRET}"},
        {"connectionString": f"{AZURE};{SECRET}"},
        {"connectionString": EMULATOR, "queue": EMULATOR},
        {"connectionString": EMULATOR, "queue": "q", "startingPosition": EMULATOR},
        {"connectionString": EMULATOR, "queue": "q", "host": AZURE},
        {"connectionString": EMULATOR, "queue": "q", "sasKey": SECRET},
        {"connectionString": EMULATOR, "queue": "q", "sasKey": SECRET, "sharedAccessKey": "x"},
    ],
)
def test_a_secret_is_not_shown_whichever_option_it_was_put_in(raw: dict[str, str]) -> None:
    text = refused(raw)
    assert text.startswith(f"[SERVICEBUS_{Code.OPTION_INVALID.value}] ")
    assert SECRET not in text
