"""The options of a query, read and checked: what a reader or a writer needs, in one frozen object.

Knows what options mean together: exactly one target, exactly one credential, which modes are allowed where. Does not
know single options (`option_table`) and Spark. Every mistake is a ConnectorError of one line with the option's name as
the user wrote it, and never with a secret. The objects pickle; secrets are only in the credential, whose repr hides
them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeVar, cast

from . import option_table as table
from .choice import EntityChoice
from .dialing.connection_string import ConnectionString, parse_connection_string
from .dialing.credentials import ClientSecret, Credential, SasKey, SasToken, TokenProvider
from .dialing.endpoint import AMQPS_PORT, HTTPS_PORT, Endpoint, default_port
from .errors import Code, ConnectorError
from .option_table import CONTEXT_NAMES, OPTIONS, Context, MessageIdPolicy, Mode, Option, PropertiesFormat
from .position import AtNumber, AtNumbers, AtTime, Earliest, Latest, Position

__all__ = [
    "AtNumber",
    "AtNumbers",
    "AtTime",
    "ConnectionOptions",
    "Earliest",
    "Latest",
    "Position",
    "SinkOptions",
    "SourceOptions",
    "sink_options",
    "source_options",
]

T = TypeVar("T")
VALUE_SHOWN_MAX = 80  # characters of a wrong value that an error repeats
_SECRETIVE = re.compile(r"shared.?access|sig=|secret|password|bearer|eyJ", re.IGNORECASE)
_SUB_QUEUES = {"none": "", "deadLetter": "/$DeadLetterQueue", "transferDeadLetter": "/$Transfer/$DeadLetterQueue"}
_BY_NAME: dict[str, Option[Any]] = {
    name.lower(): option for option in OPTIONS for name in (option.name, *option.aliases)
}

OPTION: Final = "option"  # the key of a field's metadata


def given(option: Option[T]) -> T:
    """A field that has the value of an option, read and checked as the table says."""
    return cast(T, field(metadata={OPTION: option}))


@dataclass(frozen=True)
class ConnectionOptions:
    """Address of the service, and the credential."""

    endpoint: Endpoint
    credential: Credential


@dataclass(frozen=True)
class SourceOptions:
    """What a reader needs; times in seconds. `entity` is the whole path, with the sub-queue.

    With `several`, which chooses the entities, it only names them in texts.
    """

    connection: ConnectionOptions
    entity: str
    several: EntityChoice | None
    mode: Mode = given(table.MODE)
    claim_id: str | None = given(table.CLAIM_ID)
    starting: Position = given(table.STARTING_POSITION)
    ending: Position = given(table.ENDING_POSITION)
    max_messages_per_trigger: int | None = given(table.MAX_MESSAGES_PER_TRIGGER)
    min_messages_per_trigger: int | None = given(table.MIN_MESSAGES_PER_TRIGGER)
    max_trigger_delay_s: float = given(table.MAX_TRIGGER_DELAY)
    min_partitions: int | None = given(table.MIN_PARTITIONS)
    max_messages_per_task: int | None = given(table.MAX_MESSAGES_PER_TASK)
    peek_batch_size: int = given(table.PEEK_BATCH_SIZE)
    include_deferred: bool = given(table.INCLUDE_DEFERRED)
    include_scheduled: bool = given(table.INCLUDE_SCHEDULED)
    fail_on_data_loss: bool = given(table.FAIL_ON_DATA_LOSS)
    poll_interval_s: float = given(table.POLL_INTERVAL)
    settle_failure: Literal["log", "fail"] = given(table.SETTLE_FAILURE)
    partition_discovery_interval_s: float = given(table.PARTITION_DISCOVERY_INTERVAL)
    partition_ids: tuple[int, ...] = given(table.PARTITION_IDS)
    on_outage: Literal["wait", "skip", "fail"] = given(table.ON_OUTAGE)
    outage_timeout_s: float = given(table.OUTAGE_TIMEOUT)
    requests_per_s: int = given(table.MAX_REQUESTS_PER_SECOND)
    properties_format: PropertiesFormat = given(table.PROPERTIES_FORMAT)


@dataclass(frozen=True)
class SinkOptions:
    """What a writer needs. Without `entity` each row names its own, in the column `entity`."""

    connection: ConnectionOptions
    entity: str | None
    batch_size_bytes: int | None = given(table.BATCH_SIZE_BYTES)
    max_in_flight: int = given(table.MAX_IN_FLIGHT)
    ordered: bool = given(table.ORDERED)
    transactional: bool = given(table.TRANSACTIONAL)
    on_oversize: Literal["fail", "skip"] = given(table.ON_OVERSIZE)
    message_id_policy: MessageIdPolicy = given(table.MESSAGE_ID_POLICY)
    write_id: str | None = given(table.WRITE_ID)
    ignore_read_only_columns: bool = given(table.IGNORE_READ_ONLY_COLUMNS)
    properties_format: PropertiesFormat = given(table.PROPERTIES_FORMAT)


class Values:
    """The given options of one context by what they are, whichever of its names the user took."""

    def __init__(self, raw: Mapping[str, str], context: Context) -> None:
        self._values: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        for name, value in raw.items():
            if not _is_sparks(name):
                self._add(name, value, context)

    def __getitem__(self, option: Option[T]) -> T:
        value: T = self._values.get(option.name, option.default)
        return value

    def __contains__(self, option: Option[Any]) -> bool:
        return option.name in self._values

    def name(self, option: Option[Any]) -> str:
        """The option's name as the user wrote it."""
        return self._names.get(option.name, option.name)

    @property
    def any_given(self) -> bool:
        """Whether anything but Spark's own keys was given."""
        return bool(self._values)

    def _add(self, name: str, text: str, context: Context) -> None:
        option = _BY_NAME.get(name.lower())
        if option is None:
            raise ConnectorError(Code.UNKNOWN_OPTION, _unknown(name, context))
        if not option.contexts & context:
            here, there = CONTEXT_NAMES[context], _names_of(option.contexts)
            raise _invalid(f"option {_spelt(name)} is for {there}, not for {here}: remove it")
        value = _parse_value(_spelt(name), option, text)
        if option.name in self._values and self._values[option.name] != value:
            raise _invalid(
                f"options {self._names[option.name]} and {_spelt(name)} are the same option, given with two values: "
                "keep one"
            )
        self._values[option.name] = value
        self._names[option.name] = _spelt(name)


def source_options(raw: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a reader, of `spark.readStream` or else `spark.read`; ConnectorError for the first mistake."""
    values = Values(raw, Context.STREAM_READ if streaming else Context.BATCH_READ)
    connection, entity_path = _connection(values)
    _check_mode(values, streaming)
    several = _choice_of_several(values, entity_path, connection.endpoint)
    least, most = values[table.MIN_MESSAGES_PER_TRIGGER], values[table.MAX_MESSAGES_PER_TRIGGER]
    if least is not None and most is not None and least > most:
        raise _invalid(
            f"option {values.name(table.MIN_MESSAGES_PER_TRIGGER)} is {least}, more than "
            f"{values.name(table.MAX_MESSAGES_PER_TRIGGER)}, which is {most}"
        )
    return _built(
        SourceOptions,
        values,
        connection=connection,
        entity=_source_entity(values, entity_path) if several is None else str(several),
        several=several,
    )


def sink_options(raw: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a writer; ConnectorError for the first mistake."""
    values = Values(raw, Context.WRITE)
    if streaming and table.WRITE_ID in values:
        raise _invalid("option writeId is for df.write: Spark itself names the batches of a stream, so remove it")
    connection, entity_path = _connection(values)
    entity = _target(values, entity_path)
    if entity is not None and re.search(r"/Subscriptions/|\$DeadLetterQueue$|/\$management$", entity, re.IGNORECASE):
        raise _invalid(f"{entity!r} can't be written: name a queue or a topic")
    return _built(SinkOptions, values, connection=connection, entity=entity)


def _built(kind: type[T], values: Values, **own: Any) -> T:
    """A frozen object of options: its own values, and those that the table's options have."""
    found = {each.name: values[each.metadata[OPTION]] for each in fields(cast(Any, kind)) if OPTION in each.metadata}
    return kind(**own, **found)


# ---- single options


def _parse_value(name: str, option: Option[T], text: str) -> T:
    try:
        return option.kind.parse(text)
    except ValueError as error:
        shown = "its value" if option.secret else repr(_value_for_error(text))
        why = f" ({error})" if str(error) else ""
        raise _invalid(f"option {name}: {shown} is not {option.kind.expects}{why}") from None


def _value_for_error(text: str) -> str:
    """A wrong value for an error: cut, on one line, and not if it could be a secret that was put in the wrong place."""
    if _SECRETIVE.search(text):
        return "<hidden>"
    line = " ".join(text.split())
    return line if len(line) <= VALUE_SHOWN_MAX else f"{line[:VALUE_SHOWN_MAX]}…"


def _is_sparks(name: str) -> bool:
    return name.lower() in table.SPARK_KEYS or name.lower().startswith(table.SPARK_KEY_PREFIXES)


def _spelt(name: str) -> str:
    """The documented spelling; Spark passes names in lower case."""
    option = _BY_NAME[name.lower()]
    return next(known for known in (option.name, *option.aliases) if known.lower() == name.lower())


def _unknown(name: str, context: Context) -> str:
    """What to say of a name that is no option."""
    bare = re.sub(r"^(azure\.)?(servicebus|eventhubs?|kafka)\.", "", name.lower())
    foreign = table.FOREIGN_NAMES.get(bare)
    close = [bare] if bare in _BY_NAME else difflib.get_close_matches(bare, _BY_NAME, n=1)
    if foreign is None and not close:
        names = ", ".join(sorted(option.name for option in OPTIONS if option.contexts & context))
        return (
            f"there is no option {_value_for_error(name)!r}; for {CONTEXT_NAMES.get(context, 'all')} there are: {names}"
        )
    if foreign is not None:
        return f"there is no option {_value_for_error(name)!r}: take {foreign}"
    option = _BY_NAME[close[0]]
    others = [other for other in (option.name, *option.aliases) if other != _spelt(close[0])]
    also = f" (also spelt {', '.join(others)})" if others else ""
    return f"there is no option {_value_for_error(name)!r}: did you mean {_spelt(close[0])}{also}?"


def _names_of(contexts: Context) -> str:
    if contexts in CONTEXT_NAMES:
        return CONTEXT_NAMES[contexts]
    return " and ".join(name for context, name in CONTEXT_NAMES.items() if context in contexts)


def _invalid(text: str) -> ConnectorError:
    return ConnectorError(Code.OPTION_INVALID, text)


# ---- modes


def _check_mode(values: Values, streaming: bool) -> None:
    mode = values[table.MODE]
    if mode != "browse" and not streaming:
        raise ConnectorError(
            Code.MODE_UNSUPPORTED,
            f"mode={mode} with spark.read: a batch query never learns when its rows are safe, so it can't take "
            "messages away; use readStream.trigger(availableNow=True), or mode=browse",
        )
    if mode == "claim" and table.CLAIM_ID not in values:
        raise _invalid("mode=claim needs the option claimId: a name for this query's claims that stays over restarts")
    if mode != "claim" and table.CLAIM_ID in values:
        raise _invalid(f"option claimId is for mode=claim, not for mode={mode}: remove it")


# ---- the target


def _choice_of_several(values: Values, entity_path: str | None, endpoint: Endpoint) -> EntityChoice | None:
    """The choice of several entities; None if one is named."""
    given = [option for option in (table.ENTITIES, table.ENTITY_PATTERN) if option in values]
    if not given:
        return None
    name = values.name(given[0])
    others = [each for each in (table.ENTITY_PATH, table.QUEUE, table.TOPIC, table.SUBSCRIPTION) if each in values]
    if others or entity_path is not None:
        other = values.name(others[0]) if others else "EntityPath in the connection string"
        raise _invalid(f"{name} and {other} are given: name all entities by {name}, and remove {other}")
    for option in (table.STARTING_POSITION, table.ENDING_POSITION):
        if isinstance(values[option], AtNumber | AtNumbers):
            raise _invalid(
                f"option {values.name(option)} is a sequence number, which means another message in each entity of "
                f"{name}: use a time, or read each entity by itself"
            )
    sub_queue, paths = _SUB_QUEUES[values[table.SUB_QUEUE]], values[table.ENTITIES]
    if sub_queue and (own := [path for path in paths if "/$" in path]):
        raise _invalid(f"{name} names {own[0]!r}, which is a sub-queue already: remove option subQueue")
    port = values[table.ADMINISTRATION_PORT]
    if port is None:
        port = HTTPS_PORT if endpoint.tls and endpoint.port == AMQPS_PORT else endpoint.port
    return EntityChoice(tuple(f"{path}{sub_queue}" for path in paths), values[table.ENTITY_PATTERN], sub_queue, port)


def _source_entity(values: Values, entity_path: str | None) -> str:
    target = _target(values, entity_path)
    subscription = values[table.SUBSCRIPTION]
    if target is None:
        raise _invalid("nothing to read: name a queue by the option queue, or a subscription by topic and subscription")
    if subscription is not None:
        if table.QUEUE in values:
            raise _invalid(
                f"option {values.name(table.SUBSCRIPTION)} goes with a topic, but {values.name(table.QUEUE)} is given"
            )
        if re.search("/Subscriptions/", target, re.IGNORECASE):
            raise _invalid(f"{target!r} is a subscription already: remove option {values.name(table.SUBSCRIPTION)}")
        target = f"{target}/Subscriptions/{subscription}"
    elif table.TOPIC in values and not re.search("/Subscriptions/", target, re.IGNORECASE):
        raise _invalid(
            f"topic {target!r} can't be read itself: name one of its subscriptions by the option subscription"
        )
    return target + _SUB_QUEUES[values[table.SUB_QUEUE]]


def _target(values: Values, entity_path: str | None) -> str | None:
    """The queue or topic that is named, by an option or else by the connection string."""
    given = [option for option in (table.ENTITY_PATH, table.QUEUE, table.TOPIC) if option in values]
    if len(given) > 1:
        names = " and ".join(f"{values.name(option)}={values[option]}" for option in given)
        raise _invalid(f"two targets are given, {names}: keep one")
    if not given:
        return entity_path
    target = values[given[0]]
    if target is not None and entity_path is not None and target.lower() != entity_path.lower():
        raise _invalid(
            f"two targets are given, EntityPath={entity_path} in the connection string and "
            f"{values.name(given[0])}={target}: keep one"
        )
    return target


# ---- the connection


def _connection(values: Values) -> tuple[ConnectionOptions, str | None]:
    """The connection, and the EntityPath of the connection string if there is one."""
    text = values[table.CONNECTION_STRING]
    if (text is None) == (values[table.NAMESPACE] is None):
        raise _invalid(
            "give one of connectionString and fullyQualifiedNamespace"
            + (", not both" if text is not None else _lost_options(values))
        )
    parsed = None if text is None else parse_connection_string(text)
    entity_path = None if parsed is None else parsed.entity_path
    return ConnectionOptions(_endpoint(values, parsed), _credential(values, parsed)), entity_path


def _lost_options(values: Values) -> str:
    if values.any_given:
        return ""
    return (
        "; Spark gives a table made by CREATE TABLE … USING servicebus none of its options: read it by SELECT … FROM t "
        "WITH (connectionString = '…', queue = '…'), or use CREATE TEMPORARY VIEW"
    )


def _endpoint(values: Values, parsed: ConnectionString | None) -> Endpoint:
    address_host, own_port = (
        _host_and_port(values[table.NAMESPACE] or "") if parsed is None else (parsed.host, parsed.port)
    )
    host, port = address_host, own_port
    elsewhere = values[table.HOST_NAME]
    if elsewhere is not None:
        host, port = _host_and_port(elsewhere)
    tls = values[table.TLS]
    if tls is None:
        tls = parsed is None or not parsed.development_emulator
    transport = values[table.TRANSPORT]
    return Endpoint(
        host=host,
        port=values[table.PORT] or port or default_port(tls=tls, transport=transport),
        tls=tls,
        transport=transport,
        ca_file=values[table.CA_FILE],
        connect_timeout_s=values[table.CONNECT_TIMEOUT],
        operation_timeout_s=values[table.OPERATION_TIMEOUT],
        idle_timeout_s=values[table.IDLE_TIMEOUT],
        retry_timeout_s=values[table.RETRY_TIMEOUT],
        address_host=address_host,
        standard_only=values[table.SERVICE_OPERATIONS] == "standard",
    )


def _host_and_port(text: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"(?:\[(.+)\]|([^:]+))(?::(\d+))?", text)
    if match is None:  # the table's pattern admits no other
        raise _invalid(f"{_value_for_error(text)!r} is no host name")
    return match[1] or match[2], int(match[3]) if match[3] else None


def _credential(values: Values, parsed: ConnectionString | None) -> Credential:
    """The one credential that is given: in the connection string or by options."""
    own = None if parsed is None else _own_credential(parsed)
    ways: dict[str, Credential] = {} if own is None else {"the connection string's key or signature": own}
    pair = _all_or_none(values, (table.SAS_KEY_NAME, table.SAS_KEY))
    if pair is not None:
        ways["sasKeyName and sasKey"] = SasKey(*pair)
    token = values[table.SAS_TOKEN]
    if token is not None:
        ways["sasToken"] = SasToken(token)
    principal = _all_or_none(values, (table.TENANT_ID, table.CLIENT_ID, table.CLIENT_SECRET))
    if principal is not None:
        ways["tenantId, clientId and clientSecret"] = ClientSecret(*principal)
    reference = values[table.TOKEN_PROVIDER]
    if reference is not None:
        ways["tokenProvider"] = TokenProvider(reference)
    if len(ways) != 1:
        found = f"there are {' as well as '.join(ways)}" if ways else "there is none"
        raise _invalid(
            f"exactly one credential is needed, {found}: give a connectionString with a key, or sasKeyName and sasKey, "
            "or sasToken, or tenantId, clientId and clientSecret, or tokenProvider"
        )
    return next(iter(ways.values()))


def _own_credential(parsed: ConnectionString) -> Credential | None:
    if parsed.sas_token is not None:
        return SasToken(parsed.sas_token)
    if parsed.key_name is not None and parsed.key is not None:
        return SasKey(parsed.key_name, parsed.key)
    return None


def _all_or_none(values: Values, options: tuple[Option[str | None], ...]) -> tuple[str, ...] | None:
    """The values of options that go together; None when none of them is given, ConnectorError when only some are."""
    given = [value for option in options if (value := values[option]) is not None]
    if given and len(given) < len(options):
        missing = " and ".join(option.name for option in options if option not in values)
        there = " and ".join(values.name(option) for option in options if option in values)
        raise _invalid(f"{there} needs {missing}, too")
    return tuple(given) or None
