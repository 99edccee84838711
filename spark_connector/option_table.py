"""Every option of the connector: its names, its values, its default, and where it is allowed.

Knows each option alone. Does not know what options mean together (`options`). This table is the one place to change
when an option is added or removed: reading, suggestions for misspelt names and the documentation follow it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

from ..codec.durations import format_time, parse_seconds
from .choice import EntityPattern, parse_pattern
from .position import PARTITION_ID_MAX, Earliest, Latest, Position, parse_position

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
C = TypeVar("C", bound=str)

Mode = Literal["browse", "drain", "claim"]
SubQueue = Literal["none", "deadLetter", "transferDeadLetter"]
PropertiesFormat = Literal["text", "json"]
MessageIdPolicy = Literal["deterministic", "origin", "position", "column", "none"]

LONG_MAX = (1 << 63) - 1
ENTITY_PATH_LENGTH_MAX = 260 + 50 + len("/Subscriptions/") + len("/$Transfer/$DeadLetterQueue")


class Context(Flag):
    """Where an option is allowed."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    ALL = READ | WRITE


# How a user would call each context.
CONTEXT_NAMES = {
    Context.BATCH_READ: "spark.read",
    Context.STREAM_READ: "spark.readStream",
    Context.READ: "reading",
    Context.WRITE: "writing",
}


@dataclass(frozen=True)
class Kind(Generic[T_co]):
    """The values of an option, in words, and how to read them; `parse` raises ValueError without the value."""

    expects: str
    parse: Callable[[str], T_co]


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option; `default` applies when it is not given, and None means that it has no value then."""

    name: str
    kind: Kind[T]
    default: T
    contexts: Context
    about: str
    aliases: tuple[str, ...] = ()
    secret: bool = False


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def _boolean(value: str) -> bool:
    known = {"true": True, "false": False}
    if value.strip().lower() not in known:
        raise ValueError
    return known[value.strip().lower()]


def _integer_within(minimum: int, maximum: int) -> Kind[int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,19}", value.strip(), re.ASCII):
            raise ValueError
        if not minimum <= int(value) <= maximum:
            raise ValueError
        return int(value)

    return Kind(f"a whole number from {minimum} to {maximum}", parse)


def _duration(minimum: str, maximum: str) -> Kind[float]:
    low, high = parse_seconds(minimum), parse_seconds(maximum)

    def parse(value: str) -> float:
        seconds = parse_seconds(value)
        if not low <= seconds <= high:
            raise ValueError
        return seconds

    return Kind(f"a duration from {minimum} to {maximum}, like {format_time(1000 * min(high, max(low, 5.0)))}", parse)


def _choice(*choices: C, also: Mapping[str, C] = MappingProxyType({})) -> Kind[C]:
    """One of these words, or of `also`, which are other people's words for them; case does not matter."""
    by_lower = {choice.lower(): choice for choice in choices} | {word.lower(): choice for word, choice in also.items()}

    def parse(value: str) -> C:
        if value.strip().lower() not in by_lower:
            raise ValueError
        return by_lower[value.strip().lower()]

    return Kind(f"one of {', '.join(choices)}", parse)


def _matching(pattern: str, expects: str) -> Kind[str]:
    def parse(value: str) -> str:
        if not re.fullmatch(pattern, value.strip()):
            raise ValueError
        return value.strip()

    return Kind(expects, parse)


def _ending(value: str) -> Position:
    position = parse_position(value)
    if isinstance(position, Earliest):
        raise ValueError("nothing lies before the earliest message")
    return position


def _partition_ids(value: str) -> tuple[int, ...]:
    ids = sorted({int(each) for each in value.split(",")})
    if not all(0 <= each <= PARTITION_ID_MAX for each in ids):
        raise ValueError
    return tuple(ids)


def _paths(value: str) -> tuple[str, ...]:
    paths = [ENTITY.parse(each) for each in value.split(",")]
    if len({path.lower() for path in paths}) < len(paths):
        raise ValueError("one is named twice")
    return tuple(paths)


TEXT = Kind("a text", _text)
BOOLEAN = Kind("true or false", _boolean)
# Looser than Service Bus's rule on names, which the service itself holds; refuses what can only be something else, such
# as a connection string or a URL.
ENTITY = _matching(
    rf"(?=.{{1,{ENTITY_PATH_LENGTH_MAX}}}$)[^\s/?#\\;=@:]+(/[^\s/?#\\;=@:]+)*",
    "the name of an entity: no blanks, no ; = ? # @ : and no / at its ends",
)
HOST = _matching(r"[A-Za-z0-9._-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?", "a host name, without sb:// and path")
TAG = _matching(r"[A-Za-z0-9._-]{1,64}", "1 to 64 letters, digits, '.', '_' or '-'")
FUNCTION = _matching(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", '"module:function", importable on the workers')
POSITION = Kind(
    '"earliest", "latest", a sequence number, {"0": number, …} by partition, or an ISO time', parse_position
)
ENDING = Kind('"latest", a sequence number, {"0": number, …} by partition, or an ISO time', _ending)

# Words of the SDKs for Python, .NET and Java: `TransportType.AmqpOverWebsocket`, `AmqpWebSockets`, `AMQP_WEB_SOCKETS`.
# https://learn.microsoft.com/python/api/azure-servicebus/azure.servicebus.transporttype
# https://learn.microsoft.com/dotnet/api/azure.messaging.servicebus.servicebustransporttype
# https://learn.microsoft.com/java/api/com.azure.core.amqp.amqptransporttype
SDK_TRANSPORTS: Mapping[str, Literal["amqp", "amqpws"]] = {
    "AmqpOverWebsocket": "amqpws",
    "AmqpWebSockets": "amqpws",
    "AMQP_WEB_SOCKETS": "amqpws",
    "AmqpTcp": "amqp",
}

# ---- the table: where the service is, and who asks

CONNECTION_STRING: Option[str | None] = Option(
    "connectionString",
    TEXT,
    None,
    Context.ALL,
    "as shown by the portal or the emulator; EntityPath is used",
    secret=True,
)
NAMESPACE: Option[str | None] = Option(
    "fullyQualifiedNamespace", HOST, None, Context.ALL, "instead of connectionString: the host", ("namespace",)
)
SAS_KEY_NAME: Option[str | None] = Option(
    "sasKeyName", TEXT, None, Context.ALL, "the name of a shared access policy", ("sharedAccessKeyName",)
)
SAS_KEY: Option[str | None] = Option(
    "sasKey", TEXT, None, Context.ALL, "the key of that policy", ("sharedAccessKey",), secret=True
)
SAS_TOKEN: Option[str | None] = Option(
    "sasToken", TEXT, None, Context.ALL, "a ready shared access signature", ("sharedAccessSignature",), secret=True
)
TENANT_ID: Option[str | None] = Option("tenantId", TEXT, None, Context.ALL, "service principal in Microsoft Entra ID")
CLIENT_ID: Option[str | None] = Option("clientId", TEXT, None, Context.ALL, "service principal in Microsoft Entra ID")
CLIENT_SECRET: Option[str | None] = Option(
    "clientSecret", TEXT, None, Context.ALL, "service principal in Microsoft Entra ID", secret=True
)
TOKEN_PROVIDER: Option[str | None] = Option(
    "tokenProvider", FUNCTION, None, Context.ALL, "a function from audience to token, or to (token, expires_at_s)"
)
TRANSPORT: Option[Literal["amqp", "amqpws"]] = Option(
    "transport",
    _choice("amqp", "amqpws", also=SDK_TRANSPORTS),
    "amqp",
    Context.ALL,
    "AMQP over TCP, or over WebSocket; the SDKs' words, like AmqpOverWebsocket, are taken, too",
    ("transportType",),
)
HOST_NAME: Option[str | None] = Option(
    "host", HOST, None, Context.ALL, "host to connect to, instead of the namespace", ("customEndpointAddress",)
)
PORT: Option[int | None] = Option(
    "port", _integer_within(1, 65_535), None, Context.ALL, "5671 with TLS, 5672 without; amqpws: 443, 80"
)
TLS: Option[bool | None] = Option(
    "tls", BOOLEAN, None, Context.ALL, "true, unless the connection string has UseDevelopmentEmulator=true"
)
CA_FILE: Option[str | None] = Option(
    "caFile", TEXT, None, Context.ALL, "certificates to trust instead of the system's (PEM), on every worker"
)
CONNECT_TIMEOUT = Option(
    "connectTimeout", _duration("100ms", "10m"), 30.0, Context.ALL, "time-out of a connection attempt"
)
OPERATION_TIMEOUT = Option("operationTimeout", _duration("100ms", "10m"), 60.0, Context.ALL, "time-out of each answer")
RETRY_TIMEOUT = Option("retryTimeout", _duration("0ms", "1h"), 120.0, Context.ALL, "how long to retry transient errors")
IDLE_TIMEOUT = Option(
    "connectionIdleTimeout", _duration("1s", "4m"), 60.0, Context.ALL, "how long a worker keeps an idle connection"
)

# ---- the table: the entity

ENTITY_PATH: Option[str | None] = Option(
    "entityPath", ENTITY, None, Context.ALL, "the path of a queue, topic or subscription", ("entity",)
)
QUEUE: Option[str | None] = Option("queue", ENTITY, None, Context.ALL, "a queue", ("queueName",))
TOPIC: Option[str | None] = Option("topic", ENTITY, None, Context.ALL, "a topic", ("topicName",))
SUBSCRIPTION: Option[str | None] = Option(
    "subscription", ENTITY, None, Context.READ, "the subscription of the topic to read", ("subscriptionName",)
)
SUB_QUEUE: Option[SubQueue] = Option(
    "subQueue",
    _choice("none", "deadLetter", "transferDeadLetter"),
    "none",
    Context.READ,
    "the sub-queue of the entity",
)
ENTITIES: Option[tuple[str, ...]] = Option(
    "entities",
    Kind("paths like orders, topic/Subscriptions/name and orders/$DeadLetterQueue, separated by commas", _paths),
    (),
    Context.READ,
    "several queues, subscriptions (topic/Subscriptions/name) and dead-letter queues, separated by commas",
)
ENTITY_PATTERN: Option[EntityPattern | None] = Option(
    "entityPattern",
    Kind("a glob like orders-*, or a regular expression from ^ to $", parse_pattern),
    None,
    Context.READ,
    "all queues and subscriptions whose paths match: a glob (* and ? stand for no /), or a regular expression from ^ "
    "to $",
)
ADMINISTRATION_PORT: Option[int | None] = Option(
    "administrationPort",
    _integer_within(1, 65_535),
    None,
    Context.READ,
    "where the service lists its entities over HTTP, for entityPattern; default: 443 for AMQP with TLS on 5671, else "
    "the port of AMQP",
)

# ---- the table: reading

MODE: Option[Mode] = Option(
    "mode",
    _choice("browse", "drain", "claim"),
    "browse",
    Context.READ,
    "browse leaves the messages; drain deletes what Spark has committed; claim competes with other consumers",
)
CLAIM_ID: Option[str | None] = Option(
    "claimId", TAG, None, Context.STREAM_READ, "names this query's claims: the same after a restart, no other query's"
)
STARTING_POSITION: Option[Position] = Option(
    "startingPosition", POSITION, Earliest(), Context.READ, "where a new query starts", ("startingOffsets",)
)
ENDING_POSITION: Option[Position] = Option(
    "endingPosition", ENDING, Latest(), Context.BATCH_READ, "where to stop (exclusive)", ("endingOffsets",)
)
MAX_MESSAGES_PER_TRIGGER: Option[int | None] = Option(
    "maxMessagesPerTrigger",
    _integer_within(1, LONG_MAX),
    None,
    Context.STREAM_READ,
    "greatest number of rows per micro-batch",
    ("maxOffsetsPerTrigger", "maxEventsPerTrigger"),
)
MIN_MESSAGES_PER_TRIGGER: Option[int | None] = Option(
    "minMessagesPerTrigger",
    _integer_within(1, LONG_MAX),
    None,
    Context.STREAM_READ,
    "wait for this number of rows, at most maxTriggerDelay",
    ("minOffsetsPerTrigger",),
)
MAX_TRIGGER_DELAY = Option(
    "maxTriggerDelay", _duration("0ms", "1d"), 900.0, Context.STREAM_READ, "the longest wait for minMessagesPerTrigger"
)
MIN_PARTITIONS: Option[int | None] = Option(
    "minPartitions", _integer_within(1, 100_000), None, Context.READ, "split ranges into at least this number of tasks"
)
MAX_MESSAGES_PER_TASK: Option[int | None] = Option(
    "maxMessagesPerTask", _integer_within(1, LONG_MAX), None, Context.READ, "split longer ranges"
)
PEEK_BATCH_SIZE = Option("peekBatchSize", _integer_within(1, 10_000), 500, Context.READ, "messages per request")
INCLUDE_DEFERRED = Option("includeDeferred", BOOLEAN, False, Context.READ, "also read deferred messages")
INCLUDE_SCHEDULED = Option("includeScheduled", BOOLEAN, False, Context.READ, "also read scheduled messages")
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss", BOOLEAN, True, Context.READ, "fail if the entity was created again or a partition is gone"
)
POLL_INTERVAL = Option(
    "pollInterval", _duration("0ms", "30s"), 0.2, Context.STREAM_READ, "how long an idle query waits"
)
ON_OUTAGE: Option[Literal["wait", "skip", "fail"]] = Option(
    "onOutage",
    _choice("wait", "skip", "fail"),
    "wait",
    Context.READ,
    "while a partition can't be reached: wait reads the others, and fails after outageTimeout; skip reads the others; "
    "fail fails at once",
)
OUTAGE_TIMEOUT = Option(
    "outageTimeout", _duration("0ms", "1d"), 600.0, Context.READ, "how long onOutage=wait goes on without a partition"
)
MAX_REQUESTS_PER_SECOND = Option(
    "maxRequestsPerSecond",
    _integer_within(1, 1_000),
    5,
    Context.STREAM_READ,
    "how often an idle query asks the service",
)
PARTITION_IDS: Option[tuple[int, ...]] = Option(
    "partitionIds",
    Kind(f"partition ids from 0 to {PARTITION_ID_MAX}, like 0,38,40", _partition_ids),
    (),
    Context.READ,
    "partitions to look for besides 0 to 255, where the service does not report them",
)
PARTITION_DISCOVERY_INTERVAL = Option(
    "partitionDiscoveryInterval",
    _duration("0ms", "1d"),
    60.0,
    Context.STREAM_READ,
    "how often to look for new partitions, and for entities that match entityPattern",
)
SERVICE_OPERATIONS: Option[Literal["all", "standard"]] = Option(
    "serviceOperations",
    _choice("all", "standard"),
    "all",
    Context.READ,
    "standard asks for no operation that only emubus has: tests then take the way that production takes on Azure",
)
SETTLE_FAILURE: Option[Literal["log", "fail"]] = Option(
    "settleFailure", _choice("log", "fail"), "log", Context.STREAM_READ, "what to do if deletion in mode=drain fails"
)
PROPERTIES_FORMAT: Option[PropertiesFormat] = Option(
    "applicationPropertiesFormat", _choice("text", "json"), "text", Context.ALL, "json keeps the AMQP types"
)

# ---- the table: writing

BATCH_SIZE_BYTES: Option[int | None] = Option(
    "batchSizeBytes",
    _integer_within(1_024, 100 << 20),
    None,
    Context.WRITE,
    "greatest batch to send; default: as large as the service allows",
)
MAX_IN_FLIGHT = Option(
    "maxInFlight", _integer_within(1, 1_000), 16, Context.WRITE, "batches sent and not yet confirmed, per task"
)
ORDERED = Option("ordered", BOOLEAN, False, Context.WRITE, "keep the order of each task's rows, also in retries")
TRANSACTIONAL = Option(
    "transactional", BOOLEAN, False, Context.WRITE, "send each task's rows in one transaction: a failed task sends none"
)
ON_OVERSIZE: Option[Literal["fail", "skip"]] = Option(
    "onOversize",
    _choice("fail", "skip"),
    "fail",
    Context.WRITE,
    "what to do with a row that is larger than the service allows",
)
MESSAGE_ID_POLICY: Option[MessageIdPolicy] = Option(
    "messageIdPolicy",
    _choice("deterministic", "origin", "position", "column", "none"),
    "deterministic",
    Context.WRITE,
    "deterministic: rows without a messageId get one from their Spark partition, content and origin, the same if they "
    "are written again; origin: the same in whichever partition and batch of the query; position: from their position "
    "in the task; column: they get none; none: no row has one",
)
WRITE_ID: Option[str | None] = Option(
    "writeId",
    TAG,
    None,
    Context.WRITE,
    "df.write only: names this write; its repetition has the same message ids",
)
IGNORE_READ_ONLY_COLUMNS = Option(
    "ignoreReadOnlyColumns",
    BOOLEAN,
    True,
    Context.WRITE,
    "ignore columns that only the service sets, instead of failing",
)

# ---- the end of the table

OPTIONS: tuple[Option[Any], ...] = tuple(value for value in list(globals().values()) if isinstance(value, Option))

# What Spark itself puts among the options of a source or sink: load(path), save(path), load([paths]),
# checkpointLocation and queryName of writeStream; and what CREATE TABLE … USING adds (with `option.` before each of the
# user's own).
SPARK_KEYS = frozenset({"path", "paths", "checkpointlocation", "queryname"}) | frozenset(
    {"owner", "provider", "location", "comment", "external", "is_managed_location", "collation"}
)
SPARK_KEY_PREFIXES = ("option.", "spark.")

# What users of neighbouring connectors would write; for Kafka's see
# https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html
FOREIGN_NAMES = {
    "bootstrap.servers": "connectionString",
    "subscribe": "queue",
    "assign": "queue",
    "subscribepattern": "entityPattern",
    "group.id": "subscription",
    "groupidprefix": "subscription",
    "startingtimestamp": "startingPosition",
    "startingoffsetsbytimestamp": "startingPosition",
    "endingtimestamp": "endingPosition",
    "endingoffsetsbytimestamp": "endingPosition",
    "includeheaders": "the column applicationProperties",
    "security.protocol": "tls",
    "sasl.jaas.config": "connectionString",
    "ssl.truststore.location": "caFile",
    "kafkaconsumer.polltimeoutms": "operationTimeout",
    "fetchoffset.numretries": "retryTimeout",
    "consumergroup": "subscription",
    "eventhubname": "queue",
    "receivemode": "mode",
    "prefetchcount": "peekBatchSize",
    "maxbytespertrigger": "maxMessagesPerTrigger",
    "sessionid": "the column sessionId",
    "filterpushdown": "startingPosition and endingPosition to narrow a read",
}
