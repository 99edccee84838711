"""The errors of the service with their exact texts: one function each.

Knows the sentences that SDKs and frameworks match [wire 4.5, 5.7, 9.3] and that users search for.
`tests/broker/test_service_errors.py` has every text with its source. The adapters append the tracking part
(`tracking.py`). Trailing blanks are the service's.
"""

from __future__ import annotations

from collections.abc import Sequence

from .errors import (
    BrokerError,
    Condition,
    EmptyBatchError,
    KeysDifferError,
    TargetMissingError,
    UnknownOutcomeError,
    WrongCharactersError,
)

HOST_SUFFIX = ".servicebus.windows.net"
SUBSCRIPTIONS = "/subscriptions/"
RULES = "/rules/"
EXCEPTIONS = "For more information please see https://aka.ms/ServiceBusExceptions ."
RESOURCES = "To know more visit https://aka.ms/sbResourceMgrExceptions. "
SEND_DISABLED = "SendDisabled"
THROTTLING = "is being throttled"  # in all texts of error codes 50001 to 50009
LOW_48_BITS = (1 << 48) - 1
SIGN_OF_48 = 1 << 47


def address_of(namespace: str, path: str) -> str:
    """The address of an entity in the service's texts."""
    return f"sb://{namespace}{HOST_SUFFIX}/{path}"


def name_of(namespace: str, path: str, *, topic: bool = False) -> str:
    """The service's internal name of an entity or rule: `ns:Queue:q`, `ns:Topic:t`, `ns:Topic:t|s`, `ns:Topic:t|s|r`.

    `topic`: a path without subscription is the path of a topic.
    """
    lowered = path.lower()
    at = lowered.find(SUBSCRIPTIONS)
    if at < 0:
        return f"{namespace}:{'Topic' if topic else 'Queue'}:{path}"
    below = path[at + len(SUBSCRIPTIONS) :]
    subscription, rule = below, ""
    if (rule_at := below.lower().find(RULES)) >= 0:
        subscription, rule = below[:rule_at], f"|{below[rule_at + len(RULES) :]}"
    return f"{namespace}:Topic:{path[:at]}|{subscription}{rule}"


def not_found(namespace: str, path: str, *, topic_exists: bool = True) -> BrokerError:
    """The entity does not exist. The JavaScript and Java SDKs match this text.

    The service's gateway knows queues and topics and names an address; its brokers know the rest and use a name. So a
    subscription of a topic that does not exist (not `topic_exists`) is named by its address, too.
    """
    below = topic_exists and SUBSCRIPTIONS in path.lower()
    name = name_of(namespace, path) if below else address_of(namespace, path)
    return BrokerError(Condition.NOT_FOUND, f"The messaging entity '{name}' could not be found. {RESOURCES}")


def already_exists(namespace: str, path: str) -> BrokerError:
    """An entity or rule of that name exists."""
    return BrokerError(
        Condition.ENTITY_ALREADY_EXISTS, f"The messaging entity '{name_of(namespace, path)}' already exists."
    )


def forward_target_missing(what: str, target: str) -> TargetMissingError:
    """The forwarding target does not exist; `what` is `auto forwarding` or `dead letter forwarding`."""
    return TargetMissingError(Condition.ARGUMENT_ERROR, f"The {what} destination entity '{target}' does not exist.")


def forward_target_elsewhere(what: str, target: str, namespace: str) -> TargetMissingError:
    """The forwarding target is in another namespace; `what` as above. The service's text for a missing target."""
    missing = forward_target_missing(what, target)
    remedy = f"It is in another namespace than '{namespace}'; name a queue or topic of this one by its path."
    return TargetMissingError(missing.condition, f"{missing.description} {remedy}")


def fixed_at_creation(name: str, kind: str) -> BrokerError:
    """An update would change a property that is fixed at creation (P1)."""
    if name == "EnablePartitioning":
        return BrokerError(Condition.NOT_ALLOWED, f"Partitioning cannot be changed for {kind.title()}. ")
    return BrokerError(
        Condition.NOT_ALLOWED, f"The value for the {name} property of an existing {kind.title()} cannot be changed."
    )


def wrong_characters(address: str) -> WrongCharactersError:
    """A part of a name holds a character that is not allowed; `address` as in the request."""
    return WrongCharactersError(
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"'{address}' contains character(s) that is not allowed by Service Bus. Entity segments can contain only "
        f"letters, numbers, periods (.), hyphens (-), and underscores (_). {RESOURCES}",
    )


def lock_too_long(minutes_max: int, span: str) -> BrokerError:
    """A LockDuration above the maximum; `span` as .NET writes it."""
    return BrokerError(
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"The supplied lock time exceeds the allowed maximum of '{minutes_max}' minutes. {RESOURCES}\n"
        f"Parameter name: LockDuration\nActual value was {span}.",
    )


def size_not_listed(size_mb: int, choices: Sequence[int]) -> BrokerError:
    """MaxSizeInMegabytes is none of the sizes of the tier."""
    return BrokerError(
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"The specified value {size_mb} is invalid. The property 'MaxSizeInMegabytes', must be one of the following "
        f"values: {';'.join(map(str, choices))}. {RESOURCES}",
    )


def message_size_fixed(kilobytes: float, kilobytes_max: int) -> BrokerError:
    """MaxMessageSizeInKilobytes can't be chosen. The service says no more than the first two words."""
    return BrokerError(
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"Bad Request. MaxMessageSizeInKilobytes is {kilobytes:g}; allowed is {kilobytes_max} (fixed). {RESOURCES}",
    )


def message_size_out_of_range(kilobytes_min: int, kilobytes_max: int) -> BrokerError:
    """MaxMessageSizeInKilobytes is not within the tier's range."""
    return BrokerError(
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"The property value for 'MaxMessageSizeInKilobytes' must be between {kilobytes_min} and {kilobytes_max}. "
        f"{RESOURCES}",
    )


def forwards_sessions(target: str) -> BrokerError:
    """ForwardTo of an entity that requires sessions. The service says no more than the first two words."""
    return BrokerError(
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"Bad Request. ForwardTo is {target!r}; allowed is none, as RequiresSession is true. {RESOURCES}",
    )


def express_with_duplicates() -> BrokerError:
    """EnableExpress together with duplicate detection."""
    return BrokerError(
        Condition.ARGUMENT_ERROR,
        "Both DelayedPersistence property and RequiresDuplicateDetection property cannot be enabled together. "
        f"{RESOURCES}",
    )


def sql_not_parsed(line: int, column: int, token: str, problem: str) -> BrokerError:
    """The SQL of a rule is wrong at a line (from 1) and a column (from 0)."""
    return BrokerError(
        Condition.ARGUMENT_ERROR,
        f"There was an error parsing the SQL expression.\n[Token line={line}, column={column}, Token in error= "
        f"{token}, Additional details= {problem}]\n",
    )


def lock_lost() -> BrokerError:
    """The lock token is unknown or expired."""
    return BrokerError(
        Condition.MESSAGE_LOCK_LOST,
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        f"queue. {EXCEPTIONS}",
    )


def session_lock_lost() -> BrokerError:
    """The receiver does not hold the message session (any more)."""
    return BrokerError(
        Condition.SESSION_LOCK_LOST,
        "The session lock has expired on the MessageSession. Accept a new MessageSession.",
    )


def session_cannot_be_locked(session_id: str) -> BrokerError:
    """Another receiver holds the requested session."""
    return BrokerError(
        Condition.SESSION_CANNOT_BE_LOCKED,
        f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver.",
    )


def session_not_supported() -> BrokerError:
    """The entity does not use message sessions."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure "
        "RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior.",
    )


def invalid_filter(link: str) -> BrokerError:
    """A receiver asks for a filter that the namespace does not have. .NET matches the text."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        f"The link '{link}' contains invalid filter type. System only support Jms or Apache selector filter type.",
    )


def renew_in_session() -> BrokerError:
    """A session renews its message locks itself."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "Message locks can't be renewed on an entity that requires sessions; renew the lock of the session.",
    )


def dead_letter_of_dead_letter() -> BrokerError:
    """A message of a dead-letter queue can't be dead-lettered."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "A message in a dead-letter queue can't be dead-lettered again; complete it instead.",
    )


def scheduled_not_found(numbers: Sequence[int]) -> BrokerError:
    """No scheduled messages have these numbers. The service prints their low 48 bits, sign-extended [wire 7.2]."""
    shown = ", ".join(str(((number & LOW_48_BITS) ^ SIGN_OF_48) - SIGN_OF_48) for number in numbers)
    return BrokerError(Condition.MESSAGE_NOT_FOUND, f"Messages not found. Missing sequence numbers: {shown}")


def forwards() -> BrokerError:
    """An entity with ForwardTo has no receivers."""
    return BrokerError(
        Condition.NOT_ALLOWED, "Cannot create a message receiver on an entity with auto-forwarding enabled."
    )


def browses_forwarding() -> BrokerError:
    """An entity with ForwardTo answers no requests about its messages and rules."""
    return BrokerError(
        Condition.NOT_ALLOWED, "Cannot create a message browser on an entity with auto-forwarding enabled."
    )


def deferred_not_found() -> BrokerError:
    """At least one sequence number does not name a deferred, unlocked message."""
    return BrokerError(
        Condition.MESSAGE_NOT_FOUND,
        "Failed to lock one or more specified messages. The message does not exist.",
    )


def deferred_of_several_partitions() -> BrokerError:
    """Deferred messages of one request are in several partitions."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "ReceiveBatch of sequence numbers from different partitions is not supported for an entity with partitioning "
        "enabled.",
    )


def locks_of_several_partitions() -> BrokerError:
    """Lock tokens of one request are those of several partitions."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "Batching lock tokens for different partitions is not supported for an entity with partitioning enabled.",
    )


def too_many_deferred(count_max: int) -> BrokerError:
    """A request receives and deletes more deferred messages than one may."""
    return BrokerError(Condition.NOT_ALLOWED, f"ReceiveAndDelete only can process {count_max} deferred messages")


def dead_letter_not_found(number: int) -> BrokerError:
    """The dead-letter queue does not contain the number (any more)."""
    return BrokerError(
        Condition.MESSAGE_NOT_FOUND, f"There is no message {number} in the dead-letter queue (any more)."
    )


def dead_letter_locked_by_receiver(number: int) -> BrokerError:
    """A receiver of the dead-letter queue holds the lock."""
    return BrokerError(
        Condition.MESSAGE_LOCK_LOST, f"Message {number} is locked by a receiver of the dead-letter queue."
    )


def would_be_dropped(number: int, message_id: str) -> BrokerError:
    """Duplicate detection would drop the resubmitted message."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        f"Message {number} would be dropped as a duplicate: its MessageId '{message_id}' is still within the window "
        "of duplicate detection.",
    )


def entity_full(kind: str, name: str, size_bytes: int, size_bytes_max: int) -> BrokerError:
    """The entity or its partition is full; `name` as from `name_of`."""
    return BrokerError(
        Condition.RESOURCE_LIMIT_EXCEEDED,
        f"The maximum entity size has been reached or exceeded for {kind}: '{name}'. "
        f"Size of entity in bytes:{size_bytes}, Max entity size in bytes: {size_bytes_max}. {EXCEPTIONS}  "
        "QuotaType: EntitySize",
    )


def properties_too_large(name: str, size_bytes: int, size_bytes_max: int) -> BrokerError:
    """One property, or all of them, exceed the profile's size: `name` says which.

    The service has no better condition and only the first two sentences; SDKs retry.
    """
    return BrokerError(
        Condition.INTERNAL_ERROR,
        "The service was unable to process the request; please retry the operation. For more information on "
        "exception types and proper exception handling, please refer to http://go.microsoft.com/fwlink/?LinkId=761101 "
        f". {name}: {size_bytes} bytes; at most {size_bytes_max} are allowed. Shorten it, or send it in the body.",
    )


def too_large(size_bytes: int, size_bytes_max: int) -> BrokerError:
    """A delivery exceeds the limit of the link."""
    return BrokerError(
        Condition.MESSAGE_SIZE_EXCEEDED,
        f"The received message (size:{size_bytes} bytes) exceeds the limit ({size_bytes_max} bytes) currently "
        "allowed on the link.",
    )


def batch_empty(link: str) -> BrokerError:
    """A batch holds no message, or is larger than a batch may be: the broker takes that for an empty one."""
    return EmptyBatchError(
        Condition.NOT_ALLOWED,
        f"The link '{link}' is force detached by the broker because publisher(link1) received a batch message with no "
        "data in it. Detach origin: Publisher.",
    )


def too_many_receives(path: str, count_max: int) -> BrokerError:
    """The entity, or the topic with its subscriptions, has the maximum of waiting receivers."""
    return BrokerError(
        Condition.SERVER_BUSY,
        f"The request was terminated because the entity '{path}' is being throttled: {count_max} receive requests wait "
        "on it already. Please wait 10 seconds and try again.",
    )


def disabled(namespace: str, path: str, status: str, *, topic: bool = False) -> BrokerError:
    """The status of the entity forbids the operation."""
    if status == SEND_DISABLED:
        name = name_of(namespace, path, topic=topic)
        text = f"Messaging entity '{name}' is currently disabled for Send operations. "
    else:
        text = f"Messaging entity '{address_of(namespace, path)}' is currently disabled. {EXCEPTIONS}"
    return BrokerError(Condition.ENTITY_DISABLED, text)


def mixed_keys() -> BrokerError:
    """A batch for a partitioned entity holds more than one key (P12)."""
    return KeysDifferError(
        Condition.NOT_ALLOWED,
        "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with "
        "partitioning enabled.",
    )


def mixed_ids(partition: int, partition_key: str | None, session_id: str | None, message_id: str | None) -> BrokerError:
    """The same for an entity that detects duplicates, where the MessageId is a key: says what the first message has.

    A message without any key is refused so when it is scheduled. The two blanks and the full stop are the service's.
    """
    return KeysDifferError(
        Condition.NOT_ALLOWED,
        "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId  is not supported for an "
        f"entity with partitioning and duplicate detection enabled.LogicalPartitionId:{partition}::"
        f"PartitionKey:{partition_key or ''}::SessionId:{session_id or ''}::MessageId:{message_id or ''}::"
        "ViaPartitionKey:::",
    )


def key_missing() -> BrokerError:
    """A message without a key for a partitioned entity that detects duplicates (P8): it can have no partition."""
    return KeysDifferError(
        Condition.NOT_ALLOWED,
        "Message to a partitioned entity with duplicate detection enabled must have either PartitionKey or MessageId "
        "set",
    )


def key_mismatch(session_id: str, partition_key: str) -> BrokerError:
    """SessionId and PartitionKey are both set and differ (P9)."""
    return KeysDifferError(
        Condition.NOT_ALLOWED,
        f"The PartitionKey property value '{partition_key}' must be equal to the SessionId property value "
        f"'{session_id}' when both are set.",
    )


def session_id_missing() -> BrokerError:
    """A message without SessionId for an entity that requires message sessions."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session "
        "support enabled can only receive messages that have the SessionId set to a valid value.",
    )


def session_receiver_required() -> BrokerError:
    """A plain receiver on an entity that requires message sessions."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
    )


def store_unavailable(store_index: int, cause: str) -> BrokerError:
    """The messaging store could not commit; nothing was stored and the client may retry."""
    return BrokerError(
        Condition.SERVER_BUSY,
        f"Messaging store {store_index} could not complete the operation: {cause}. Nothing of it was stored; "
        "please retry.",
    )


def still_forwarded(store_index: int) -> BrokerError:
    """A scheduled message has its sequence number, and its store could not yet hand it to its partition."""
    return BrokerError(
        Condition.SERVER_BUSY,
        f"A scheduled message is still on its way from messaging store {store_index} to its partition. Please retry.",
    )


def namespace_unavailable(cause: str) -> BrokerError:
    """The catalog could not commit a change."""
    return BrokerError(
        Condition.SERVER_BUSY, f"The store of the namespace could not keep the change: {cause}. Please retry."
    )


def outcome_unknown(store_index: int, cause: str) -> UnknownOutcomeError:
    """The disk failed during a commit; a retry may do the work twice."""
    return UnknownOutcomeError(
        Condition.SERVER_BUSY,
        f"Messaging store {store_index} could not confirm the operation: {cause}. All of it is stored or nothing; "
        "which of both is not known. Please retry.",
    )


def connections_quota_exceeded(namespace: str) -> BrokerError:
    return BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, f"ConnectionsQuotaExceeded for namespace {namespace}.")


def handles_exceeded(handles_max: int) -> BrokerError:
    """An AMQP session has the maximum of links; the service ends the session."""
    return BrokerError(
        Condition.RESOURCE_LIMIT_EXCEEDED,
        "Cannot allocate more handles to the current session or connection. The maximum number of handles allowed is "
        f"{handles_max}. Please free up resources and try again.",
    )


def jms_not_supported(*, partitioned: bool) -> BrokerError:
    """A client of JMS 2.0 is connected to a namespace that is not Premium, or to a partitioned one."""
    text = "Full JMS 2.0 parity over AMQP is a feature supported only by a Premium Messaging namespace."
    if partitioned:
        text = "JMS 2.0 over AMQP is not supported on a partitioned Premium namespace."
    return BrokerError(Condition.NOT_IMPLEMENTED, text)


def tokens_exceeded(tokens_max: int) -> BrokerError:
    """A connection has the maximum of tokens."""
    return BrokerError(
        Condition.RESOURCE_LIMIT_EXCEEDED,
        f"The maximum number of '{tokens_max}' tokens per connection has been reached.",
    )


def resources_exceeded(what: str, count: int, count_max: int, profile: str) -> BrokerError:
    """A namespace or topic has the maximum of entities, subscriptions or rules."""
    return BrokerError(
        Condition.RESOURCE_LIMIT_EXCEEDED,
        f"The maximum number of resources of type '{what}' has been reached or exceeded: there are {count}; allowed is "
        f"at most {count_max} (profile {profile}).",
    )


def transaction_too_large(messages_max: int) -> BrokerError:
    """A transaction has the maximum of messages."""
    return BrokerError(
        Condition.RESOURCE_LIMIT_EXCEEDED, f"Can't send more than {messages_max} messages in a single transaction"
    )


def transaction_spans_entities() -> BrokerError:
    """Work of one transaction on two entities [wire 8]."""
    return BrokerError(
        Condition.NOT_ALLOWED, "Local transactions cannot span multiple top-level entities such as queue or topic."
    )


def transaction_spans_partitions() -> BrokerError:
    """Work of one transaction on two partitions of an entity (P27)."""
    return BrokerError(Condition.NOT_ALLOWED, "Transactions cannot span multiple entities or partitions of an entity.")


def transaction_undeclared(*, is_work: bool) -> BrokerError:
    """The connection has declared no such transaction, or has discharged it: the answer to work, or to a discharge.

    Work closes its link: the Java SDK takes work that is rejected with unknown-id for done.
    """
    text = "Transaction is not declared"
    if is_work:
        text = "Transaction hasn't been declared yet, or has already been discharged"
    return BrokerError(Condition.TRANSACTION_UNKNOWN_ID, text)


def transaction_over(transaction_id: bytes, timeout_s: int, *, is_work: bool) -> BrokerError:
    """The time of a transaction was over: an answer to work in it, or to a discharge."""
    minutes, seconds = divmod(timeout_s, 60)
    return BrokerError(
        Condition.NOT_ALLOWED if is_work else Condition.TRANSACTION_UNKNOWN_ID,
        f"No active Transaction was found for ID 'txn:{transaction_id.hex()}'. The Transaction may have timed out or "
        "attempted to span multiple top-level entities such as Queue or Topic. The server Transaction timeout is: "
        f"00:{minutes:02}:{seconds:02}.",
    )


def claim_missing(right: str, resource: str) -> BrokerError:
    """The connection has no claim with the needed right."""
    return BrokerError(
        Condition.UNAUTHORIZED_ACCESS,
        f"Unauthorized access. '{right}' claim(s) are required to perform this operation. Resource: '{resource}'.",
    )


def claim_expired(link: str, missing: str) -> BrokerError:
    """The token of a link has expired; `missing` is the text of `claim_missing`. The service writes two full stops."""
    return BrokerError(
        Condition.DETACH_FORCED, f"The link '{link}' is force detached. Code: RenewToken. Details: {missing}."
    )


def throttled(namespace: str) -> BrokerError:
    """The namespace is throttled; clients retry."""
    return BrokerError(
        Condition.SERVER_BUSY,
        f"The request was terminated because the namespace {namespace} is being throttled. Error code : 50009. Please "
        "wait 2 seconds and try again. To know more visit https://aka.ms/sbResourceMgrExceptions",
    )


def link_closed(link: str, condition: Condition = Condition.DETACH_FORCED, *, sends: bool = False) -> BrokerError:
    """The broker has closed the link, for example after a change of its entity."""
    code, what = ("publisher", "InnerMessageSender") if sends else ("consumer", "InnerMessageReceiver")
    return BrokerError(
        condition, f"The link '{link}' is force detached. Code: {code}(link1). Details: {what} was closed."
    )


def namespace_not_found(namespace: str) -> BrokerError:
    """There is no namespace of that name, or no longer. The text is the service's answer to a token for one (Azure/
    azure-sdk-for-js#26788)."""
    name = f"Invalid audience: Namespace cannot be resolved '{address_of(namespace, '')}'"
    return BrokerError(Condition.NOT_FOUND, f"The messaging entity '{name}' could not be found. {RESOURCES}")


def connection_closed(container: str) -> BrokerError:
    """The server stops."""
    return BrokerError(Condition.CONNECTION_FORCED, f"The connection was closed by container '{container}'.")


# ---- reasons of dead letters

# As the page on dead-letter queues has it, and .NET's sample 21 prints it.
REASON_NO_SESSION = (
    "Session ID is null.",
    "Session enabled entity doesn't allow a message whose session identifier is null.",
)


def too_many_hops(hops_max: int) -> tuple[str, str]:
    """The dead-letter reason and description of a message with `hops_max` hops."""
    return (
        "MaxTransferHopCountExceeded",
        "The maximum number of allowed hops when forwarding between queues has been exceeded. "
        f"This value is set to {hops_max}.",
    )
