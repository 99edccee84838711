"""The texts of refusals: each with its condition, to the blank, and the source that prints it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import pytest

from emubus.broker import service_errors as say
from emubus.broker.errors import BrokerError

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("amqp", "broker", "emubus", "web")
EXCEPTIONS = "For more information please see https://aka.ms/ServiceBusExceptions ."
RESOURCES = "To know more visit https://aka.ms/sbResourceMgrExceptions. "
# Sources: reports of users with the service's text (repository and number of the issue), documentation, or "own": no
# text of the service is known, or the service does not do such a thing.
TEXTS: list[tuple[Callable[[], BrokerError], str, str, str]] = [
    (
        lambda: say.not_found("ns", "a/q"),
        "amqp:not-found",
        f"The messaging entity 'sb://ns.servicebus.windows.net/a/q' could not be found. {RESOURCES}",
        "azure-service-bus 451",
    ),
    (
        lambda: say.not_found("ns", "t/Subscriptions/s"),
        "amqp:not-found",
        f"The messaging entity 'ns:Topic:t|s' could not be found. {RESOURCES}",
        "azure-sdk-for-net 7907",
    ),
    (
        lambda: say.not_found("ns", "t/Subscriptions/s", topic_exists=False),
        "amqp:not-found",
        f"The messaging entity 'sb://ns.servicebus.windows.net/t/Subscriptions/s' could not be found. {RESOURCES}",
        "live tests of azure-sdk-for-js (serviceBusClient)",
    ),
    (
        lambda: say.already_exists("ns", "t/Subscriptions/s/Rules/r"),
        "com.microsoft:entity-already-exists",
        "The messaging entity 'ns:Topic:t|s|r' already exists.",
        "eShopOnContainers 875",
    ),
    (
        lambda: say.forward_target_missing("auto forwarding", "nowhere"),
        "com.microsoft:argument-error",
        "The auto forwarding destination entity 'nowhere' does not exist.",
        "azure-service-bus 203",
    ),
    (
        lambda: say.forward_target_elsewhere("auto forwarding", "sb://other/q", "ns"),
        "com.microsoft:argument-error",
        "The auto forwarding destination entity 'sb://other/q' does not exist. It is in another namespace than 'ns'; "
        "name a queue or topic of this one by its path.",
        "first sentence: as above; the rest: own",
    ),
    (
        lambda: say.fixed_at_creation("RequiresSession", "queue"),
        "amqp:not-allowed",
        "The value for the RequiresSession property of an existing Queue cannot be changed.",
        "recorded by azure-sdk-for-python",
    ),
    (
        lambda: say.fixed_at_creation("EnablePartitioning", "topic"),
        "amqp:not-allowed",
        "Partitioning cannot be changed for Topic. ",
        "recorded by azure-sdk-for-python",
    ),
    (
        lambda: say.wrong_characters("https://ns.servicebus.windows.net/a+b?api-version=2013-10"),
        "com.microsoft:argument-out-of-range",
        "'https://ns.servicebus.windows.net/a+b?api-version=2013-10' contains character(s) that is not allowed by "
        "Service Bus. Entity segments can contain only letters, numbers, periods (.), hyphens (-), and underscores "
        f"(_). {RESOURCES}",
        "Nimbus 10, MassTransit 1929, tests of asb-ballerina-connector",
    ),
    (
        lambda: say.lock_too_long(5, "00:10:00"),
        "com.microsoft:argument-out-of-range",
        f"The supplied lock time exceeds the allowed maximum of '5' minutes. {RESOURCES}\n"
        "Parameter name: LockDuration\nActual value was 00:10:00.",
        "service-bus-resource-manager-exceptions; second and third line: reports of users, in MassTransit 2947's order",
    ),
    (
        lambda: say.size_not_listed(16384, (1024, 2048, 3072, 4096, 5120)),
        "com.microsoft:argument-out-of-range",
        "The specified value 16384 is invalid. The property 'MaxSizeInMegabytes', must be one of the following values: "
        f"1024;2048;3072;4096;5120. {RESOURCES}",
        "service-bus-resource-manager-exceptions",
    ),
    (
        lambda: say.message_size_fixed(1024, 256),
        "com.microsoft:argument-out-of-range",
        f"Bad Request. MaxMessageSizeInKilobytes is 1024; allowed is 256 (fixed). {RESOURCES}",
        "first two words: terraform-provider-azurerm 28576, service-bus-resource-manager-exceptions; the rest: own",
    ),
    (
        lambda: say.forwards_sessions("q"),
        "com.microsoft:argument-out-of-range",
        f"Bad Request. ForwardTo is 'q'; allowed is none, as RequiresSession is true. {RESOURCES}",
        "azure-service-bus 317, 660 (its first two words)",
    ),
    (
        lambda: say.message_size_out_of_range(1024, 102400),
        "com.microsoft:argument-out-of-range",
        f"The property value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400. {RESOURCES}",
        "live tests of azure-sdk-for-js (atomManagement)",
    ),
    (
        say.express_with_duplicates,
        "com.microsoft:argument-error",
        "Both DelayedPersistence property and RequiresDuplicateDetection property cannot be enabled together. "
        f"{RESOURCES}",
        "live tests of azure-sdk-for-python (test_mgmt_queues)",
    ),
    (
        lambda: say.sql_not_parsed(1, 0, "EventType", "what is wrong"),
        "com.microsoft:argument-error",
        "There was an error parsing the SQL expression.\n[Token line=1, column=0, Token in error= EventType, "
        "Additional details= what is wrong]\n",
        "bicep 6557",
    ),
    (
        say.lock_lost,
        "com.microsoft:message-lock-lost",
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        f"queue. {EXCEPTIONS}",
        "azure-sdk-for-java 25121",
    ),
    (
        say.session_lock_lost,
        "com.microsoft:session-lock-lost",
        "The session lock has expired on the MessageSession. Accept a new MessageSession.",
        "azure-sdk-for-js 1051",
    ),
    (
        lambda: say.session_cannot_be_locked("s"),
        "com.microsoft:session-cannot-be-locked",
        "The requested session 's' cannot be accepted. It may be locked by another receiver.",
        "azure-sdk-for-js 7618",
    ),
    (
        say.session_not_supported,
        "amqp:not-allowed",
        "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure "
        "RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior.",
        "workflow-core 1217",
    ),
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
        lambda: say.scheduled_not_found([7, 0xFFFF_0000_0000_0001, 1 << 47]),
        "com.microsoft:message-not-found",
        "Messages not found. Missing sequence numbers: 7, 1, -140737488355328",
        "azure-service-bus 265",
    ),
    (
        say.forwards,
        "amqp:not-allowed",
        "Cannot create a message receiver on an entity with auto-forwarding enabled.",
        "azure-sdk-for-net 34816 (of a message browser)",
    ),
    (
        say.deferred_not_found,
        "com.microsoft:message-not-found",
        "Failed to lock one or more specified messages. The message does not exist.",
        "live tests of azure-sdk-for-js",
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
        lambda: say.entity_full("Topic", "ns:Topic:t", 5, 4),
        "amqp:resource-limit-exceeded",
        "The maximum entity size has been reached or exceeded for Topic: 'ns:Topic:t'. Size of entity in bytes:5, Max "
        f"entity size in bytes: 4. {EXCEPTIONS}  QuotaType: EntitySize",
        "azure-service-bus 683, 199",
    ),
    (
        lambda: say.properties_too_large("properties", 5, 4),
        "amqp:internal-error",
        "The service was unable to process the request; please retry the operation. For more information on exception "
        "types and proper exception handling, please refer to http://go.microsoft.com/fwlink/?LinkId=761101 . "
        "properties: 5 bytes; at most 4 are allowed. Shorten it, or send it in the body.",
        "azure-sdk-for-python 23191 (its first two sentences)",
    ),
    (
        lambda: say.too_large(5, 4),
        "amqp:link:message-size-exceeded",
        "The received message (size:5 bytes) exceeds the limit (4 bytes) currently allowed on the link.",
        "azure-amqp",
    ),
    (
        lambda: say.batch_empty("G3:5:link"),
        "amqp:not-allowed",
        "The link 'G3:5:link' is force detached by the broker because publisher(link1) received a batch message with "
        "no data in it. Detach origin: Publisher.",
        "azure-sdk-for-net 26109",
    ),
    (
        lambda: say.too_many_receives("q", 5000),
        "com.microsoft:server-busy",
        "The request was terminated because the entity 'q' is being throttled: 5000 receive requests wait on it "
        "already. Please wait 10 seconds and try again.",
        "own, after the documented text for an entity that is throttled",
    ),
    (
        lambda: say.disabled("ns", "q", "ReceiveDisabled"),
        "com.microsoft:entity-disabled",
        f"Messaging entity 'sb://ns.servicebus.windows.net/q' is currently disabled. {EXCEPTIONS}",
        "azure-service-bus 677",
    ),
    (
        lambda: say.disabled("ns", "q", "SendDisabled"),
        "com.microsoft:entity-disabled",
        "Messaging entity 'ns:Queue:q' is currently disabled for Send operations. ",
        "azure-sdk-for-net 10535",
    ),
    (
        say.mixed_keys,
        "amqp:not-allowed",
        "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with "
        "partitioning enabled.",
        "amqpnetlite 120",
    ),
    (
        lambda: say.mixed_ids(143, None, None, "m"),
        "amqp:not-allowed",
        "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId  is not supported for an "
        "entity with partitioning and duplicate detection enabled.LogicalPartitionId:143::PartitionKey:::SessionId:::"
        "MessageId:m::ViaPartitionKey:::",
        "azure-sdk-for-python 21955, AspNetCore.Diagnostics.HealthChecks 255",
    ),
    (
        say.key_missing,
        "amqp:not-allowed",
        "Message to a partitioned entity with duplicate detection enabled must have either PartitionKey or MessageId "
        "set",
        "azure-docs 30242",
    ),
    (
        lambda: say.key_mismatch("s", "p"),
        "amqp:not-allowed",
        "The PartitionKey property value 'p' must be equal to the SessionId property value 's' when both are set.",
        "own",
    ),
    (
        say.session_id_missing,
        "amqp:not-allowed",
        "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session "
        "support enabled can only receive messages that have the SessionId set to a valid value.",
        "azure-sdk-for-python 738",
    ),
    (
        lambda: say.invalid_filter("name"),
        "amqp:not-allowed",
        "The link 'name' contains invalid filter type. System only support Jms or Apache selector filter type.",
        "Azure.Messaging.ServiceBus 7.21, AmqpReceiverTests: OpenReceiverLinkThrowsNotSupported…",
    ),
    (
        say.session_receiver_required,
        "amqp:not-allowed",
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
        "azure-service-bus 326",
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
        lambda: say.connections_quota_exceeded("ns"),
        "amqp:resource-limit-exceeded",
        "ConnectionsQuotaExceeded for namespace ns.",
        "azure-service-bus 3",
    ),
    (
        lambda: say.handles_exceeded(255),
        "amqp:resource-limit-exceeded",
        "Cannot allocate more handles to the current session or connection. The maximum number of handles allowed is "
        "255. Please free up resources and try again.",
        "azure-sdk-for-java 32211",
    ),
    (
        lambda: say.jms_not_supported(partitioned=False),
        "amqp:not-implemented",
        "Full JMS 2.0 parity over AMQP is a feature supported only by a Premium Messaging namespace.",
        "azure-sdk-for-java 13644",
    ),
    (
        lambda: say.jms_not_supported(partitioned=True),
        "amqp:not-implemented",
        "JMS 2.0 over AMQP is not supported on a partitioned Premium namespace.",
        "own",
    ),
    (
        lambda: say.tokens_exceeded(1000),
        "amqp:resource-limit-exceeded",
        "The maximum number of '1000' tokens per connection has been reached.",
        "documentation: troubleshooting",
    ),
    (
        lambda: say.resources_exceeded("Subscription", 5, 5, "standard"),
        "amqp:resource-limit-exceeded",
        "The maximum number of resources of type 'Subscription' has been reached or exceeded: there are 5; allowed is "
        "at most 5 (profile standard).",
        "azure-docs 102698 (its first sentence)",
    ),
    (
        lambda: say.transaction_too_large(100),
        "amqp:resource-limit-exceeded",
        "Can't send more than 100 messages in a single transaction",
        "documentation: quotas",
    ),
    (
        say.transaction_spans_entities,
        "amqp:not-allowed",
        "Local transactions cannot span multiple top-level entities such as queue or topic.",
        "azure-sdk-for-net 18160",
    ),
    (
        say.transaction_spans_partitions,
        "amqp:not-allowed",
        "Transactions cannot span multiple entities or partitions of an entity.",
        "azure-sdk-for-net 18160",
    ),
    (
        lambda: say.transaction_undeclared(is_work=True),
        "amqp:transaction:unknown-id",
        "Transaction hasn't been declared yet, or has already been discharged",
        "azure-service-bus-java 362",
    ),
    (
        lambda: say.transaction_undeclared(is_work=False),
        "amqp:transaction:unknown-id",
        "Transaction is not declared",
        "azure-service-bus-java 424",
    ),
    (
        lambda: say.transaction_over(b"\x01\x02", 120, is_work=True),
        "amqp:not-allowed",
        "No active Transaction was found for ID 'txn:0102'. The Transaction may have timed out or attempted to span "
        "multiple top-level entities such as Queue or Topic. The server Transaction timeout is: 00:02:00.",
        "azure-sdk-for-net 6540",
    ),
    (
        lambda: say.claim_missing("Send", "sb://ns.servicebus.windows.net/q"),
        "amqp:unauthorized-access",
        "Unauthorized access. 'Send' claim(s) are required to perform this operation. Resource: "
        "'sb://ns.servicebus.windows.net/q'.",
        "azure-service-bus 182",
    ),
    (
        lambda: say.claim_expired("link", "Unauthorized access."),
        "amqp:link:detach-forced",
        "The link 'link' is force detached. Code: RenewToken. Details: Unauthorized access..",
        "azure-sdk-for-python 23487",
    ),
    (
        lambda: say.throttled("ns"),
        "com.microsoft:server-busy",
        "The request was terminated because the namespace ns is being throttled. Error code : 50009. Please wait 2 "
        "seconds and try again. To know more visit https://aka.ms/sbResourceMgrExceptions",
        "azure-sdk-for-python 19376",
    ),
    (
        lambda: say.link_closed("G1:2:link"),
        "amqp:link:detach-forced",
        "The link 'G1:2:link' is force detached. Code: consumer(link1). Details: InnerMessageReceiver was closed.",
        "azure-sdk-for-java 6280",
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
]


@pytest.mark.parametrize(("make", "condition", "text", "source"), TEXTS)
def test_a_refusal_has_its_condition_and_its_text(
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
