"""The table: every text of the protocol that names something, and how it is compared.

A cell has the verdict and who says so: a source, or "guess". `probes` has a function for each row that asks a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

GUESS: Final = "guess"
SAME, OTHER, REFUSED = "same", "other", "refused"


class Way(StrEnum):
    """How the second text differs from the first one."""

    CASE = "case"
    WIDTH = "full width"
    FORM = "Unicode form"
    LEADING = "leading blank"
    TRAILING = "trailing blank"
    LENGTH = "longest"


@dataclass(frozen=True)
class Cell:
    """What a text of the second kind is, and the source of that."""

    verdict: str
    source: str = GUESS


@dataclass(frozen=True)
class Row:
    """A kind of text, and its cells; a way without a cell does not arise."""

    name: str
    probe: str
    cells: Mapping[Way, Cell]
    base: str = "Order"
    fixed: Sequence[str] = field(default_factory=tuple)
    """Further arguments of the probe."""


@dataclass(frozen=True)
class Elsewhere:
    """A kind of text that other tests hold, with what they say."""

    name: str
    what: str
    source: str
    test: str


def differing(base: str, way: Way) -> tuple[str, str]:
    """Two texts that differ in one way only."""
    match way:
        case Way.CASE:
            return base, base.swapcase()
        case Way.WIDTH:
            return base, chr(ord(base[0]) - 0x21 + 0xFF01) + base[1:]
        case Way.FORM:
            return f"{base}\u00e9", f"{base}e\u0301"
        case Way.LEADING:
            return base, f" {base}"
        case Way.TRAILING:
            return base, f"{base} "
        case Way.LENGTH:
            raise ValueError(f"{way} is not about two texts")


SESSIONS_SAY: Final = "Azure/azure-sdk-for-java#48759; .NET's live test CancelingDoesNotLoseSessionMessages"
KEYS_SAY: Final = "`EventHubPartitionKeyResolver` of Azure/iotedge: upper case, then the hash"
QUOTAS: Final = "[SB: service-bus-quotas]"
NAMES_SAY: Final = "NServiceBus's acceptance tests; dapr/dapr#1185"
NO_NAMES: Final = (Way.WIDTH, Way.FORM, Way.LEADING, Way.TRAILING)
NAMES_ARE: Final = "the service's refusal of a name (Azure/azure-service-bus-dotnet#151)"
FILTER_NAMES: Final = ".NET's live test CorrelationRuleFilterWithSqlRuleAction"
SQL_SAYS: Final = "[SB: service-bus-messaging-sql-filter]"


def _texts(case: Cell, **more: Cell) -> dict[Way, Cell]:
    """Cells of a text whose chars are compared one by one, but for what `more` says."""
    cells = {Way.CASE: case} | {way: Cell(OTHER) for way in (Way.WIDTH, Way.FORM, Way.LEADING, Way.TRAILING)}
    return cells | {Way[name.upper()]: cell for name, cell in more.items()}


def _name(case: Cell, chars: int) -> dict[Way, Cell]:
    """Cells of an entity's name: ASCII without blanks, so that most of the second texts are no names."""
    cells = {Way.CASE: case} | {
        way: Cell(REFUSED, NAMES_ARE) for way in (Way.WIDTH, Way.FORM, Way.LEADING, Way.TRAILING)
    }
    return cells | {Way.LENGTH: Cell(str(chars), QUOTAS)}


def _filter_text(name: str, *fixed: str) -> Row:
    return Row(f"{name} in a correlation filter", "filter_text", _texts(Cell(OTHER)), fixed=fixed)


ROWS: Final = (
    Row(
        "session id",
        "session_id",
        _texts(
            Cell(SAME, SESSIONS_SAY),
            length=Cell("128", QUOTAS),
        ),
    ),
    Row("session id, of a state", "session_state", _texts(Cell(SAME, SESSIONS_SAY))),
    Row("session id, of a lock", "session_lock", _texts(Cell(SAME, SESSIONS_SAY))),
    Row("session id, in the list of sessions", "session_list", _texts(Cell(SAME, SESSIONS_SAY))),
    Row(
        "message id, where duplicates are detected",
        "message_id",
        _texts(Cell(OTHER), length=Cell("128", QUOTAS)),
    ),
    Row(
        "partition key",
        "partition_key",
        _texts(Cell(SAME, KEYS_SAY), length=Cell("128", QUOTAS)),
    ),
    Row("SessionId against PartitionKey of one message", "both_keys", {Way.CASE: Cell(REFUSED)}),
    Row("name of a queue", "queue_name", _name(Cell(SAME, NAMES_SAY), 260)),
    Row("name of a topic", "topic_name", _name(Cell(SAME, NAMES_SAY), 260)),
    Row("name of a subscription", "subscription_name", _name(Cell(SAME, NAMES_SAY), 50)),
    Row("name of a rule", "rule_name", _name(Cell(SAME), 50)),
    Row("queue in an address", "address", {**_texts(Cell(SAME, NAMES_SAY)), Way.FORM: Cell(REFUSED, NAMES_ARE)}),
    Row("application property in a correlation filter", "filter_name", _texts(Cell(SAME, FILTER_NAMES))),
    Row("value of an application property in a correlation filter", "filter_value", _texts(Cell(OTHER))),
    _filter_text("correlation id", "correlation_id", "CorrelationId"),
    _filter_text("label (subject)", "label", "Label"),
    _filter_text("to", "to", "To"),
    _filter_text("reply-to", "reply_to", "ReplyTo"),
    _filter_text("message id", "message_id", "MessageId"),
    _filter_text("session id", "session_id", "SessionId"),
    _filter_text("reply-to-session-id", "reply_to_session_id", "ReplyToSessionId"),
    _filter_text("content type", "content_type", "ContentType"),
    Row("application property in SQL", "sql_name", _texts(Cell(SAME, SQL_SAYS))),
    Row("text in SQL", "sql_text", _texts(Cell(OTHER, SQL_SAYS))),
    Row("system property in SQL", "sql_system_name", {Way.CASE: Cell(SAME, SQL_SAYS)}, base="Label"),
)

HELD_ELSEWHERE: Final = (
    Elsewhere(
        "empty session id against an absent one",
        "other: the empty text is an id, null asks for the next session",
        "the session filter of all SDKs: null asks for the next one",
        "tests/amqp/test_message_sessions.py::test_the_answer_names_the_session_as_the_client_did",
    ),
    Elsewhere(
        "empty message id against an absent one, where duplicates are detected",
        "other: a message without an id is no duplicate, two with an empty one are",
        GUESS,
        "tests/broker/test_identity.py::test_an_empty_message_id_is_an_id",
    ),
    Elsewhere(
        "lock token",
        "16 bytes, compared as such; its text in an address of REST has any case",
        "RFC 4122, 3: hexadecimal digits are read in any case",
        "tests/http/test_rest.py::test_paths_are_known_in_any_case_and_lock_tokens_in_any_form",
    ),
    Elsewhere(
        "client id and name of a JMS subscription",
        "same in another case, since the subscription they make is an entity",
        GUESS,
        "tests/amqp/test_jms_subscriptions.py::test_names_that_differ_in_case_are_one_subscription",
    ),
    Elsewhere(
        "name of a shared key",
        "other in another case",
        GUESS,
        "tests/comparisons/test_comparisons.py::test_the_name_of_a_key_has_case",
    ),
    Elsewhere(
        "name of a snapshot",
        "other in another case: it is a folder's name (emubus only)",
        "emubus's own",
        "tests/comparisons/test_comparisons.py::test_the_name_of_a_snapshot_has_case",
    ),
)
