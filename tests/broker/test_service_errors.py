"""The texts of refusals, to the blank: those of the service as `tests/refusals/table.py` has them, and those of emubus.

That table names the source of each text of the service. Here each function of `service_errors` fills it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import pytest

from emubus.broker import service_errors as say
from emubus.broker.errors import BrokerError

from ..refusals.table import ROWS

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("amqp", "broker", "emubus", "web")
EXCEPTIONS = "For more information please see https://aka.ms/ServiceBusExceptions ."
RESOURCES = "To know more visit https://aka.ms/sbResourceMgrExceptions. "
BY_NAME = {row.name: row for row in ROWS}


def filled(
    make: Callable[[], BrokerError], name: str, more: str = "", **holes: str
) -> tuple[Callable[[], BrokerError], str, str]:
    """What makes a text, the name of its row, and the text: its holes filled, `more` in the words of emubus."""
    text = BY_NAME[name].text
    assert text.endswith("*") or not more
    return make, name, text.removesuffix("*").format(**holes) + more


OF_SERVICE = [
    filled(
        lambda: say.not_found("ns", "a/q"),
        "a queue that there is not, for senders",
        host="ns.servicebus.windows.net",
        queue="a/q",
    ),
    filled(
        lambda: say.not_found("ns", "t/Subscriptions/s"),
        "a subscription that there is not",
        namespace="ns",
        topic="t",
        subscription="s",
    ),
    filled(
        lambda: say.not_found("ns", "t/Subscriptions/s", topic_exists=False),
        "a subscription of a topic that there is not, for receivers",
        host="ns.servicebus.windows.net",
        topic="t",
        subscription="s",
    ),
    filled(
        lambda: say.already_exists("ns", "t/Subscriptions/s/Rules/r"),
        "a rule that there is",
        namespace="ns",
        topic="t",
        subscription="s",
        rule="r",
    ),
    filled(
        lambda: say.forward_target_missing("auto forwarding", "nowhere"),
        "a ForwardTo that leads nowhere",
        entity="nowhere",
    ),
    filled(
        lambda: say.forward_target_elsewhere("auto forwarding", "sb://other/q", "ns"),
        "a ForwardTo in another namespace",
        more=" It is in another namespace than 'ns'; name a queue or topic of this one by its path.",
        entity="sb://other/q",
    ),
    filled(lambda: say.fixed_at_creation("RequiresSession", "queue"), "RequiresSession of a Queue that there is"),
    filled(lambda: say.fixed_at_creation("EnablePartitioning", "topic"), "EnablePartitioning of a Topic that there is"),
    filled(
        lambda: say.lock_too_long(5, "00:10:00"),
        "a LockDuration above 5 minutes",
        more=f" {RESOURCES}\nParameter name: LockDuration\nActual value was 00:10:00.",
    ),
    filled(
        lambda: say.size_not_listed(16384, (1024, 2048, 3072, 4096, 5120)),
        "a MaxSizeInMegabytes that there is not",
        size="16384",
    ),
    filled(
        lambda: say.message_size_fixed(1024, 256),
        "a MaxMessageSizeInKilobytes on Standard",
        more=f"MaxMessageSizeInKilobytes is 1024; allowed is 256 (fixed). {RESOURCES}",
    ),
    filled(
        lambda: say.forwards_sessions("q"),
        "a ForwardTo of a queue that requires sessions",
        more=f"ForwardTo is 'q'; allowed is none, as RequiresSession is true. {RESOURCES}",
    ),
    filled(lambda: say.message_size_out_of_range(1024, 102400), "a MaxMessageSizeInKilobytes above 100 MB on Premium"),
    filled(say.express_with_duplicates, "EnableExpress with duplicate detection"),
    filled(
        lambda: say.sql_not_parsed(1, 0, "EventType", "what is wrong"),
        "SQL that can't be parsed",
        line="1",
        column="0",
        token="EventType",
        problem="what is wrong",
    ),
    filled(say.lock_lost, "the lock of a message that is over"),
    filled(say.session_lock_lost, "the lock of a session that is over"),
    filled(lambda: say.session_cannot_be_locked("s"), "a session that another receiver holds", session="s"),
    filled(say.session_not_supported, "a session receiver where there are no sessions"),
    filled(
        lambda: say.scheduled_not_found([7, 0xFFFF_0000_0000_0001, 1 << 47]),
        "scheduled messages that there are not",
        numbers="7, 1, -140737488355328",
    ),
    filled(say.forwards, "a receiver of an entity that forwards"),
    filled(say.browses_forwarding, "a peek of an entity that forwards"),
    filled(say.deferred_not_found, "deferred messages that there are not"),
    filled(say.deferred_of_several_partitions, "deferred messages of several partitions in one request"),
    filled(say.locks_of_several_partitions, "locks of several partitions settled by one request"),
    filled(lambda: say.too_many_deferred(250), "more than 250 deferred messages received and deleted at once"),
    filled(
        lambda: say.entity_full("Topic", "ns:Topic:t", 5, 4),
        "a topic that is full",
        namespace="ns",
        topic="t",
        size="5",
        limit="4",
    ),
    filled(
        lambda: say.properties_too_large("properties", 5, 4),
        "a property above 32 KB",
        more=" properties: 5 bytes; at most 4 are allowed. Shorten it, or send it in the body.",
    ),
    filled(lambda: say.too_large(5, 4), "a message above the size of the entity", size="5", limit="4"),
    filled(
        lambda: say.disabled("ns", "q", "ReceiveDisabled"),
        "a queue with status Disabled, for senders",
        host="ns.servicebus.windows.net",
        queue="q",
    ),
    filled(
        lambda: say.disabled("ns", "q", "SendDisabled"), "a queue with status SendDisabled", namespace="ns", queue="q"
    ),
    filled(say.mixed_keys, "several keys in one batch on a partitioned entity"),
    filled(
        lambda: say.mixed_ids(143, None, None, "m"),
        "several ids in one batch, or none in a scheduled message, on such an entity",
        number="143",
        key="",
        session="",
        id="m",
    ),
    filled(say.key_missing, "no MessageId and no key on a partitioned entity that detects duplicates"),
    filled(say.session_id_missing, "no SessionId where sessions are required"),
    filled(lambda: say.invalid_filter("name"), "a filter that the service does not know", link="name"),
    filled(say.session_receiver_required, "a receiver without session where sessions are required"),
    filled(lambda: say.connections_quota_exceeded("ns"), "too many connections", namespace="ns"),
    filled(lambda: say.handles_exceeded(255), "too many links in an AMQP session", number="255"),
    filled(lambda: say.jms_not_supported(partitioned=False), "a client of JMS 2.0 outside of Premium"),
    filled(lambda: say.tokens_exceeded(1000), "too many tokens on a connection", number="1000"),
    filled(
        lambda: say.resources_exceeded("Subscription", 5, 5, "standard"),
        "more partitioned entities than a namespace has",
        more=": there are 5; allowed is at most 5 (profile standard).",
        type="Subscription",
    ),
    filled(lambda: say.transaction_too_large(100), "more than 100 messages in a transaction"),
    filled(say.transaction_spans_entities, "sends to two entities in a transaction"),
    filled(say.transaction_spans_partitions, "settlements in two partitions in a transaction"),
    filled(lambda: say.transaction_undeclared(is_work=True), "a send in a transaction that is not declared"),
    filled(lambda: say.transaction_undeclared(is_work=False), "a discharge of what is not declared"),
    filled(
        lambda: say.transaction_over(b"\x01\x02", 120, is_work=True),
        "work in a transaction after two minutes",
        id="0102",
    ),
    filled(
        lambda: say.claim_missing("Send", "sb://ns.servicebus.windows.net/q"),
        "no right to send",
        resource="sb://ns.servicebus.windows.net/q",
    ),
    filled(lambda: say.throttled("ns"), "a namespace beyond its credits (50009)", namespace="ns"),
    filled(
        lambda: say.wrong_characters("http://ns.servicebus.windows.net/a+b?api-version=2013-10"),
        "a queue with a character that no name has",
        address="ns.servicebus.windows.net/a+b?api-version=2013-10",
    ),
    filled(lambda: say.batch_empty("G3:5:link"), "a batch without messages", link="G3:5:link", publisher="link1"),
    filled(
        lambda: say.claim_expired("link", say.claim_missing("Send", "sb://ns/q").description),
        "a token that is over on an open link",
        link="link",
        resource="sb://ns/q",
    ),
    filled(
        lambda: say.link_closed("G1:2:link"),
        "an entity that moves, for receivers",
        link="G1:2:link",
        consumer="link1",
    ),
]
OF_EMUBUS: list[tuple[Callable[[], BrokerError], str, str, str]] = [
    (
        say.renew_in_session,
        "amqp:not-allowed",
        "Message locks can't be renewed on an entity that requires sessions; renew the lock of the session.",
        "own",
    ),
    (
        say.dead_letter_of_dead_letter,
        "amqp:not-allowed",
        "A message in a dead-letter queue can't be dead-lettered again; complete it instead.",
        "own",
    ),
    (
        lambda: say.dead_letter_not_found(7),
        "com.microsoft:message-not-found",
        "There is no message 7 in the dead-letter queue (any more).",
        "own",
    ),
    (
        lambda: say.dead_letter_locked_by_receiver(7),
        "com.microsoft:message-lock-lost",
        "Message 7 is locked by a receiver of the dead-letter queue.",
        "own",
    ),
    (
        lambda: say.would_be_dropped(7, "m"),
        "amqp:not-allowed",
        "Message 7 would be dropped as a duplicate: its MessageId 'm' is still within the window of duplicate "
        "detection.",
        "own",
    ),
    (
        lambda: say.too_many_receives("q", 5000),
        "com.microsoft:server-busy",
        "The request was terminated because the entity 'q' is being throttled: 5000 receive requests wait on it "
        "already. Please wait 10 seconds and try again.",
        "own, after the documented text for an entity that is throttled",
    ),
    (
        lambda: say.key_mismatch("s", "p"),
        "amqp:not-allowed",
        "The PartitionKey property value 'p' must be equal to the SessionId property value 's' when both are set.",
        "own",
    ),
    (
        lambda: say.store_unavailable(3, "it is down"),
        "com.microsoft:server-busy",
        "Messaging store 3 could not complete the operation: it is down. Nothing of it was stored; please retry.",
        "own",
    ),
    (
        lambda: say.still_forwarded(3),
        "com.microsoft:server-busy",
        "A scheduled message is still on its way from messaging store 3 to its partition. Please retry.",
        "own",
    ),
    (
        lambda: say.namespace_unavailable("no space"),
        "com.microsoft:server-busy",
        "The store of the namespace could not keep the change: no space. Please retry.",
        "own",
    ),
    (
        lambda: say.outcome_unknown(3, "no space"),
        "com.microsoft:server-busy",
        "Messaging store 3 could not confirm the operation: no space. All of it is stored or nothing; which of both "
        "is not known. Please retry.",
        "own",
    ),
    (
        lambda: say.jms_not_supported(partitioned=True),
        "amqp:not-implemented",
        "JMS 2.0 over AMQP is not supported on a partitioned Premium namespace.",
        "own",
    ),
    (
        lambda: say.link_closed("G1:2:link", sends=True),
        "amqp:link:detach-forced",
        "The link 'G1:2:link' is force detached. Code: publisher(link1). Details: InnerMessageSender was closed.",
        "own, after the text for receivers",
    ),
    (
        lambda: say.connection_closed("c"),
        "amqp:connection:forced",
        "The connection was closed by container 'c'.",
        "own, after the texts for idle connections",
    ),
    (
        lambda: say.namespace_not_found("ns"),
        "amqp:not-found",
        "The messaging entity 'Invalid audience: Namespace cannot be resolved 'sb://ns.servicebus.windows.net/'' could "
        "not be found. To know more visit https://aka.ms/sbResourceMgrExceptions. ",
        "azure-sdk-for-js#26788, of a token for an entity",
    ),
]
"""Texts that no row has, with condition and source; "own": the service has none that is known."""


@pytest.mark.parametrize(("make", "name", "text"), OF_SERVICE)
def test_a_refusal_of_the_service_has_its_condition_and_the_text_of_its_row(
    make: Callable[[], BrokerError], name: str, text: str
) -> None:
    error, row = make(), BY_NAME[name]
    assert error.description == text
    assert error.condition.value == (row.condition or error.condition.value)  # administration has no conditions


@pytest.mark.parametrize(("make", "condition", "text", "source"), OF_EMUBUS)
def test_a_refusal_of_emubus_has_its_condition_and_its_text(
    make: Callable[[], BrokerError], condition: str, text: str, source: str
) -> None:
    error = make()
    assert (error.condition.value, error.description) == (condition, text)
    assert source


def test_every_text_is_in_the_table_and_is_used() -> None:
    makers = {
        name
        for name, each in vars(say).items()
        if isinstance(each, FunctionType)
        and each.__module__ == say.__name__
        and inspect.signature(each).return_annotation
        in ("BrokerError", "UnknownOutcomeError", "WrongCharactersError", "TargetMissingError")
    }
    assert names_in(Path(__file__), "say") == makers
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    used = set[str]().union(*(names_in(path, "service_errors") | imported_from_service_errors(path) for path in files))
    assert makers - used == set()


def names_in(path: Path, module: str) -> set[str]:
    """What a file uses of a module."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module
    } - {"__name__"}


def imported_from_service_errors(path: Path) -> set[str]:
    """What a file imports of the service's errors by name."""
    return {
        name.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("service_errors")
        for name in node.names
    }
