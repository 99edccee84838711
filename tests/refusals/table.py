"""The refusals of the service whose text is known, to the blank, each with its source.

A hole of a text is written in braces; `*` is the end of a text that emubus goes on with in words of its own. Sources
are reports of users with the service's text (repository and number of the issue), pages of Microsoft's documentation
(`docs:` and the last part of its address), recordings, and live tests of SDKs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .world import Face

MORE: Final = "To know more visit https://aka.ms/sbResourceMgrExceptions. "
SEE: Final = "For more information please see https://aka.ms/ServiceBusExceptions ."
UNABLE: Final = (
    "The service was unable to process the request; please retry the operation. For more information on exception "
    "types and proper exception handling, please refer to http://go.microsoft.com/fwlink/?LinkId=761101"
)
L, B, N, C = Face.LINK, Face.BATCH, Face.NODE, Face.CLAIMS
T, R, A = Face.COORDINATOR, Face.REST, Face.ATOM


@dataclass(frozen=True)
class Row:
    """One refusal: what happens, its condition (AMQP), its text, and the faces with the status that each has.

    `on_demand` is the condition of `docs/CONDITIONS.md` that makes it; `left_out` says why emubus never does.
    """

    name: str
    condition: str
    text: str
    source: str
    faces: Mapping[Face, int | None] = field(default_factory=dict[Face, int | None])
    on_demand: str = ""
    left_out: str = ""


NOT_ALLOWED, NOT_FOUND = "amqp:not-allowed", "amqp:not-found"
UNAUTHORIZED, LIMIT = "amqp:unauthorized-access", "amqp:resource-limit-exceeded"
BUSY, FORCED = "com.microsoft:server-busy", "amqp:link:detach-forced"
RANGE, ARGUMENT = "com.microsoft:argument-out-of-range", "com.microsoft:argument-error"
UNKNOWN, CONNECTION = "amqp:transaction:unknown-id", "amqp:connection:forced"
INTERNAL, MISSING = "amqp:internal-error", "com.microsoft:message-not-found"
LOCK_LOST, SESSION_LOST = "com.microsoft:message-lock-lost", "com.microsoft:session-lock-lost"
DISABLED, EXISTS = "com.microsoft:entity-disabled", "com.microsoft:entity-already-exists"
EXCEPTIONS_PAGE, MANAGER_PAGE = (
    "docs: service-bus-messaging-exceptions",
    "docs: service-bus-resource-manager-exceptions",
)
BASIC = "there is no Basic tier"
RESOURCE_MANAGER = "there is no Azure Resource Manager"

SENDING: Final = (
    Row(
        "a message above the size of the entity",
        "amqp:link:message-size-exceeded",
        "The received message (size:{size} bytes) exceeds the limit ({limit} bytes) currently allowed on the link.",
        "azure-amqp, and the SDKs' live tests; older quotes name the delivery before the size",
        {L: None},
    ),
    Row(
        "a property above 32 KB",
        INTERNAL,
        f"{UNABLE} .*",
        "azure-sdk-for-python 23191",
        {L: None, B: None, N: 500, T: None},
    ),
    Row(
        "a queue that is full",
        LIMIT,
        "The maximum entity size has been reached or exceeded for Queue: '{namespace}:Queue:{queue}'. Size of entity "
        "in "
        f"bytes:{{size}}, Max entity size in bytes: {{limit}}. {SEE}  QuotaType: EntitySize",
        "azure-service-bus 683, 199; docs: service-bus-messaging-exceptions",
        {L: None, B: None, N: 403, R: 403},
    ),
    Row(
        "a topic that is full",
        LIMIT,
        "The maximum entity size has been reached or exceeded for Topic: '{namespace}:Topic:{topic}'. Size of entity "
        "in "
        f"bytes:{{size}}, Max entity size in bytes: {{limit}}. {SEE}  QuotaType: EntitySize",
        "azure-service-bus 199; docs: service-bus-messaging-exceptions",
        {L: None, R: 403},
    ),
    Row(
        "no SessionId where sessions are required",
        NOT_ALLOWED,
        "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session "
        "support enabled can only receive messages that have the SessionId set to a valid value.",
        "azure-sdk-for-python 738",
        {L: None, B: None, N: 400, R: 405, T: None},
    ),
    Row(
        "no MessageId and no key on a partitioned entity that detects duplicates",
        NOT_ALLOWED,
        "Message to a partitioned entity with duplicate detection enabled must have either PartitionKey or MessageId "
        "set",
        "azure-docs 30242; azure-sdk-for-python 21955, 36333, 37744",
        {L: None, B: None, R: 400},
    ),
    Row(
        "several ids in one batch, or none in a scheduled message, on such an entity",
        NOT_ALLOWED,
        "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId  is not supported for an "
        "entity with partitioning and duplicate detection "
        "enabled.LogicalPartitionId:{number}::PartitionKey:{key}::SessionId:{session}::MessageId:{id}::ViaPartitionKey:::",
        "azure-service-bus 103; azure-sdk-for-python 21955; AspNetCore.Diagnostics.HealthChecks 248, 255",
        {B: None, N: 400, R: 400},
    ),
    Row(
        "a message without MessageId scheduled on a partitioned topic that detects duplicates",
        NOT_ALLOWED,
        "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId  is not supported for an "
        "entity with partitioning and duplicate detection "
        "enabled.LogicalPartitionId:{number}::PartitionKey:{key}::SessionId:{session}::MessageId:{id}::ViaPartitionKey:::",
        "AspNetCore.Diagnostics.HealthChecks 248",
        {N: 400},
    ),
    Row(
        "several keys in one batch on a partitioned topic",
        NOT_ALLOWED,
        "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with "
        "partitioning enabled.",
        "amqpnetlite 120",
        {B: None, R: 400},
    ),
    Row(
        "several keys in one batch on a partitioned entity",
        NOT_ALLOWED,
        "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with "
        "partitioning enabled.",
        "amqpnetlite 120",
        {B: None, R: 400},
    ),
    Row(
        "a batch without messages",
        NOT_ALLOWED,
        "The link '{link}' is force detached by the broker because publisher({publisher}) received a batch message "
        "with no data in it. Detach origin: Publisher.",
        "azure-sdk-for-net 26109; azure-sdk-for-js 20578",
        {B: None},
    ),
    Row(
        "a batch above 1 MB on Premium",
        NOT_ALLOWED,
        "The link '{link}' is force detached by the broker because publisher({publisher}) received a batch message "
        "with no data in it. Detach origin: Publisher.",
        "Brighter 3694; azure-sdk-for-net 44914; azure-sdk-for-python 38260",
        {B: None},
    ),
    Row(
        "a queue with status SendDisabled",
        DISABLED,
        "Messaging entity '{namespace}:Queue:{queue}' is currently disabled for Send operations. ",
        "azure-sdk-for-net 10535",
        {L: None, N: 403, R: 403},
    ),
    Row(
        "a topic with status SendDisabled",
        DISABLED,
        "Messaging entity '{namespace}:Topic:{topic}' is currently disabled for Send operations. ",
        "azure-sdk-for-net 10535",
        {L: None, R: 403},
    ),
    Row(
        "a queue with status Disabled, for senders",
        DISABLED,
        f"Messaging entity 'sb://{{host}}/{{queue}}' is currently disabled. {SEE}",
        "azure-service-bus 677",
        {L: None, N: 403, R: 403},
    ),
    Row(
        "a topic with status Disabled, for senders",
        DISABLED,
        f"Messaging entity 'sb://{{host}}/{{topic}}' is currently disabled. {SEE}",
        "azure-service-bus 677",
        {L: None, R: 403},
    ),
    Row(
        "a queue that there is not, for senders",
        NOT_FOUND,
        f"The messaging entity 'sb://{{host}}/{{queue}}' could not be found. {MORE}",
        "azure-service-bus 451",
        {L: None, R: 410},
    ),
    Row(
        "a topic that there is not, for senders",
        NOT_FOUND,
        f"The messaging entity 'sb://{{host}}/{{topic}}' could not be found. {MORE}",
        "azure-service-bus 451 (of a topic whose name was that of a subscription)",
        {L: None, R: 410},
    ),
)

RECEIVING: Final = (
    Row(
        "a queue that there is not, for receivers",
        NOT_FOUND,
        f"The messaging entity 'sb://{{host}}/{{queue}}' could not be found. {MORE}",
        "azure-service-bus 451",
        {L: None, N: None, R: 410},
    ),
    Row(
        "a subscription that there is not",
        NOT_FOUND,
        f"The messaging entity '{{namespace}}:Topic:{{topic}}|{{subscription}}' could not be found. {MORE}",
        "azure-sdk-for-net 7907",
        {L: None, R: 410},
    ),
    Row(
        "a subscription of a topic that there is not, for receivers",
        NOT_FOUND,
        f"The messaging entity 'sb://{{host}}/{{topic}}/Subscriptions/{{subscription}}' could not be found. {MORE}",
        "live tests of azure-sdk-for-js (serviceBusClient)",
        {L: None},
    ),
    Row(
        "a queue with status ReceiveDisabled",
        DISABLED,
        f"Messaging entity 'sb://{{host}}/{{queue}}' is currently disabled. {SEE}",
        "azure-service-bus 677",
        {L: None, R: 403},
    ),
    Row(
        "a queue with status Disabled, for receivers",
        DISABLED,
        f"Messaging entity 'sb://{{host}}/{{queue}}' is currently disabled. {SEE}",
        "azure-service-bus 677",
        {L: None, R: 403},
    ),
    Row(
        "a receiver of a subscription that forwards",
        NOT_ALLOWED,
        "Cannot create a message receiver on an entity with auto-forwarding enabled.",
        "AspNetCore.Diagnostics.HealthChecks 1560 (of a message browser)",
        {L: None, R: 405},
    ),
    Row(
        "a receiver without session of a subscription that requires sessions",
        NOT_ALLOWED,
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
        "azure-service-bus-dotnet 628",
        {L: None, R: 405},
    ),
    Row(
        "a request that there is not",
        "amqp:not-implemented",
        "Invalid command '{name}'.",
        "azure-service-bus-java 43",
        {N: 501},
    ),
    Row(
        "a receiver of an entity that forwards",
        NOT_ALLOWED,
        "Cannot create a message receiver on an entity with auto-forwarding enabled.",
        "azure-sdk-for-net 34816 (of a message browser)",
        {L: None, R: 405},
    ),
    Row(
        "a receiver of a dead-letter queue that forwards",
        NOT_ALLOWED,
        "Cannot create a message receiver on an entity with auto-forwarding enabled.",
        "azure-sdk-for-net 34816 (of a message browser)",
        {L: None},
    ),
    Row(
        "a peek of an entity that forwards",
        NOT_ALLOWED,
        "Cannot create a message browser on an entity with auto-forwarding enabled.",
        "AspNetCore.Diagnostics.HealthChecks 1560",
        {N: 400},
    ),
    Row(
        "rules of a subscription that forwards, over AMQP",
        NOT_ALLOWED,
        "Cannot create a message browser on an entity with auto-forwarding enabled.",
        "azure-sdk-for-net 34816; azure-service-bus-dotnet 489",
        {N: 400},
    ),
    Row(
        "a message scheduled by a request to an entity that forwards",
        NOT_ALLOWED,
        "Cannot create a message browser on an entity with auto-forwarding enabled.",
        "azure-service-bus-dotnet 626",
        {N: 400},
    ),
    Row(
        "a receiver without session where sessions are required",
        NOT_ALLOWED,
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
        "azure-service-bus 326",
        {L: None, R: 405},
    ),
    Row(
        "a session receiver where there are no sessions",
        NOT_ALLOWED,
        "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure "
        "RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior.",
        "workflow-core 1217; kafka-docker-playground 7949",
        {L: None, N: 400},
    ),
    Row(
        "a filter that the service does not know",
        NOT_ALLOWED,
        "The link '{link}' contains invalid filter type. System only support Jms or Apache selector filter type.",
        "constants of azure-sdk-for-net",
        {L: None},
    ),
    Row(
        "a session that another receiver holds",
        "com.microsoft:session-cannot-be-locked",
        "The requested session '{session}' cannot be accepted. It may be locked by another receiver.",
        "azure-sdk-for-js 7618",
        {L: None},
    ),
    Row(
        "the lock of a message that is over",
        LOCK_LOST,
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        "queue. "
        f"{SEE}",
        "azure-sdk-for-java 25121",
        {L: None, N: 410, R: 404, T: None},
    ),
    Row(
        "a lock that is renewed too late",
        LOCK_LOST,
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        "queue. "
        f"{SEE}",
        "azure-sdk-for-java 25121; docs: service-bus-amqp-request-response",
        {N: 410, R: 404},
    ),
    Row(
        "locks of several partitions settled by one request",
        NOT_ALLOWED,
        "Batching lock tokens for different partitions is not supported for an entity with partitioning enabled.",
        "azure-docs 11899 (of a consumer; its condition is a guess)",
        {N: 400},
    ),
    Row(
        "locks of several partitions renewed by one request",
        NOT_ALLOWED,
        "Batching lock tokens for different partitions is not supported for an entity with partitioning enabled.",
        "azure-docs 11899 (of a consumer; its condition is a guess)",
        {N: 400},
    ),
    Row(
        "the lock of a session that is over",
        SESSION_LOST,
        "The session lock has expired on the MessageSession. Accept a new MessageSession.",
        "azure-sdk-for-js 1051",
        {L: None, N: 410},
    ),
    Row(
        "the state of a session that is not held",
        SESSION_LOST,
        "The session lock has expired on the MessageSession. Accept a new MessageSession.",
        "azure-sdk-for-js 1051; docs: service-bus-amqp-request-response",
        {N: 410},
    ),
    Row(
        "scheduled messages that there are not",
        MISSING,
        "Messages not found. Missing sequence numbers: {numbers}",
        "azure-service-bus 265",
        {N: 404, T: 404},
    ),
    Row(
        "deferred messages that there are not",
        MISSING,
        "Failed to lock one or more specified messages. The message does not exist.",
        "live tests of azure-sdk-for-js",
        {N: 404},
    ),
    Row(
        "deferred messages of several partitions in one request",
        NOT_ALLOWED,
        "ReceiveBatch of sequence numbers from different partitions is not supported for an entity with partitioning "
        "enabled.",
        "azure-service-bus 287; keboola/component-ex-azure-service-bus, tried in 2026 (their condition is a guess)",
        {N: 400},
    ),
    Row(
        "more than 250 deferred messages received and deleted at once",
        NOT_ALLOWED,
        "ReceiveAndDelete only can process 250 deferred messages",
        "keboola/component-ex-azure-service-bus, tried in 2026 (the condition is a guess)",
        {N: 400},
    ),
    Row(
        "a rule that there is",
        EXISTS,
        "The messaging entity '{namespace}:Topic:{topic}|{subscription}|{rule}' already exists.",
        "eShopOnContainers 875",
        {N: 409},
    ),
    Row(
        "a rule that there is not",
        NOT_FOUND,
        f"The messaging entity '{{namespace}}:Topic:{{topic}}|{{subscription}}|{{rule}}' could not be found. {MORE}",
        "azure-sdk-for-net 7907 (of a subscription)",
        {N: 404},
    ),
    Row(
        "a rule that there is not, over HTTP",
        "",
        "Entity '{namespace}:Topic:{topic}|{subscription}|{rule}' was not found.",
        "docs: service-bus-resource-manager-exceptions",
        {A: 404},
    ),
    Row(
        "a subscription that there is not, over HTTP",
        "",
        "Entity '{namespace}:Topic:{topic}|{subscription}' was not found.",
        "docs: service-bus-resource-manager-exceptions",
        {A: 404},
    ),
)

RULES: Final = (
    Row(
        "SQL that can't be parsed",
        ARGUMENT,
        "There was an error parsing the SQL expression.\n[Token line={line}, column={column}, Token in error= {token}, "
        "Additional details= {problem}]\n*",
        "bicep 6557; azure-service-bus 15 (the same frame around a filter of a list)",
        {N: 400, A: 400},
    ),
    Row(
        "SQL of the first rule of a subscription that can't be parsed",
        "",
        "There was an error parsing the SQL expression.\n[Token line={line}, column={column}, Token in error= {token}, "
        "Additional details= {problem}]\n*",
        "bicep 6557",
        {A: 400},
    ),
    Row(
        "an action that can't be parsed",
        ARGUMENT,
        "There was an error parsing the SQL expression.\n[Token line={line}, column={column}, Token in error= {token}, "
        "Additional details= {problem}]\n*",
        "bicep 6557",
        {N: 400, A: 400},
    ),
)

TRANSACTIONS: Final = (
    Row(
        "a send in a transaction that is not declared",
        UNKNOWN,
        "Transaction hasn't been declared yet, or has already been discharged",
        "azure-service-bus-java 362, 424",
        {L: None},
    ),
    Row(
        "a settlement in a transaction that is not declared",
        UNKNOWN,
        "Transaction hasn't been declared yet, or has already been discharged",
        "azure-service-bus-java 424",
        {L: None},
    ),
    Row(
        "a request in a transaction that is not declared",
        UNKNOWN,
        "Transaction hasn't been declared yet, or has already been discharged",
        "azure-service-bus-java 362, 424 (of links)",
        {N: 400},
    ),
    Row(
        "the transaction of another connection",
        UNKNOWN,
        "Transaction hasn't been declared yet, or has already been discharged",
        "live tests of azure-sdk-for-net (CrossEntityTransactionSendsFirst); azure-service-bus-java 362",
        {L: None},
    ),
    Row(
        "a discharge of what is not declared",
        UNKNOWN,
        "Transaction is not declared",
        "azure-service-bus-java 424",
        {T: None},
    ),
    Row(
        "a second discharge",
        UNKNOWN,
        "Transaction is not declared",
        "azure-service-bus-java 424",
        {T: None},
    ),
    Row(
        "work in a transaction after two minutes",
        NOT_ALLOWED,
        "No active Transaction was found for ID 'txn:{id}'. The Transaction may have timed out or attempted to span "
        "multiple top-level entities such as Queue or Topic. The server Transaction timeout is: 00:02:00.",
        "azure-sdk-for-net 6540",
        {L: None, N: 400},
    ),
    Row(
        "a discharge after two minutes",
        UNKNOWN,
        "No active Transaction was found for ID 'txn:{id}'. The Transaction may have timed out or attempted to span "
        "multiple top-level entities such as Queue or Topic. The server Transaction timeout is: 00:02:00.",
        "azure-sdk-for-net 6540 (of work)",
        {T: None},
    ),
    Row(
        "more than 100 messages in a transaction",
        LIMIT,
        "Can't send more than 100 messages in a single transaction",
        "docs: service-bus-quotas",
        {L: None, B: None, N: 403},
    ),
    Row(
        "sends to two entities in a transaction",
        NOT_ALLOWED,
        "Local transactions cannot span multiple top-level entities such as queue or topic.",
        "azure-sdk-for-net 18160",
        {L: None, N: 400},
    ),
    Row(
        "a second receiver where transactions cross entities",
        NOT_ALLOWED,
        "Local transactions cannot span multiple top-level entities such as queue or topic.*",
        "azure-sdk-for-net 18160",
        {L: None},
    ),
    Row(
        "settlements in two partitions in a transaction",
        NOT_ALLOWED,
        "Transactions cannot span multiple entities or partitions of an entity.",
        "azure-sdk-for-net 18160",
        {N: 400},
    ),
)

RIGHTS: Final = (
    Row(
        "a token for a queue that there is not",
        NOT_FOUND,
        f"The messaging entity 'sb://{{host}}/{{queue}}' could not be found. {MORE}",
        "azure-service-bus 451; azure-service-bus-dotnet 415",
        {C: 404},
    ),
    Row(
        "a token for a subscription of a topic that there is not",
        NOT_FOUND,
        f"The messaging entity 'sb://{{host}}/{{topic}}/Subscriptions/{{subscription}}' could not be found. {MORE}",
        "live tests of azure-sdk-for-js (serviceBusClient)",
        {C: 404},
    ),
    Row(
        "no right to send",
        UNAUTHORIZED,
        "Unauthorized access. 'Send' claim(s) are required to perform this operation. Resource: '{resource}'.",
        "azure-service-bus 182",
        {L: None},
    ),
    Row(
        "no right to listen",
        UNAUTHORIZED,
        "Unauthorized access. 'Listen' claim(s) are required to perform this operation. Resource: '{resource}'.",
        "azure-service-bus 182",
        {L: None},
    ),
    Row(
        "a token that is over on an open link",
        FORCED,
        "The link '{link}' is force detached. Code: RenewToken. Details: Unauthorized access. 'Send' claim(s) are "
        "required to perform this operation. Resource: '{resource}'..",
        "azure-sdk-for-python 23487",
        {L: None},
    ),
    Row(
        "a token with a wrong signature",
        UNAUTHORIZED,
        "InvalidSignature: The token has an invalid signature.",
        "azure-service-bus 182",
        {C: 401, A: 401, R: 401},
    ),
    Row(
        "a token that is over",
        UNAUTHORIZED,
        "ExpiredToken: The token is expired. Expiration time: '{time}'.",
        "azure-service-bus 182",
        {C: 401, A: 401, R: 401},
    ),
    Row(
        "a token of another issuer",
        UNAUTHORIZED,
        "InvalidIssuer: Token issuer is invalid.",
        "azure-sdk-for-net 6462",
        {C: 401, A: 401, R: 401},
    ),
    Row(
        "a token of an identity for another resource",
        UNAUTHORIZED,
        "InvalidAudience: Invalid authorization token audience.",
        "azure-sdk-for-js 26360; azure-docs 19707; live tests of azure-sdk-for-js 1",
        {C: 401, A: 401, R: 401},
    ),
    Row(
        "a request without token",
        UNAUTHORIZED,
        "MissingToken: The authorization header was not found.",
        "docs: service-bus-resource-manager-exceptions",
        {A: 401, R: 401},
    ),
    Row(
        "an entity read without Manage",
        "",
        "Manage,EntityRead claims required for this operation.",
        "live tests of azure-sdk-for-go",
        {A: 401},
    ),
    Row(
        "an entity written without Manage",
        "",
        "Authorization failed for specified action: Manage,EntityWrite.",
        "live tests of azure-sdk-for-go",
        {A: 401},
    ),
    Row(
        "an entity deleted without Manage",
        "",
        "Authorization failed for specified action: Manage,EntityDelete.",
        "live tests of azure-sdk-for-go",
        {A: 401},
    ),
    *(
        Row(
            f"{operation} without Manage",
            "",
            f"401 SubCode=40100: Unauthorized : Unauthorized access for '{operation}' operation on endpoint "
            "'sb://{host}/{path}'.",
            "live tests of azure-sdk-for-go",
            {A: 401},
        )
        for operation in (
            "EnumerateSubscriptions",
            "GetSubscription",
            "CreateOrUpdateSubscription",
            "DeleteSubscription",
            "EnumerateRules",
            "GetRule",
            "CreateOrUpdateRule",
            "DeleteRule",
        )
    ),
)

CONNECTIONS: Final = (
    Row(
        "too many links in an AMQP session",
        LIMIT,
        "Cannot allocate more handles to the current session or connection. The maximum number of handles allowed is "
        "{number}. Please free up resources and try again.",
        "azure-sdk-for-java 32211",
        {L: None},
    ),
    Row(
        "too many tokens on a connection",
        LIMIT,
        "The maximum number of '{number}' tokens per connection has been reached.",
        "azure-sdk-for-js 1714; docs: service-bus-troubleshooting-guide",
        {C: 403},
    ),
    Row(
        "too many connections",
        LIMIT,
        "ConnectionsQuotaExceeded for namespace {namespace}.",
        "azure-service-bus 3; docs: service-bus-messaging-exceptions",
        {L: None},
    ),
    Row(
        "a client of JMS 2.0 outside of Premium",
        "amqp:not-implemented",
        "Full JMS 2.0 parity over AMQP is a feature supported only by a Premium Messaging namespace.",
        "azure-sdk-for-java 13644",
        {L: None},
    ),
)

DESCRIPTIONS: Final = (
    Row(
        "a sub-queue asked for as an entity of administration",
        "",
        f"The specified HTTP verb (GET) is not valid. {MORE}",
        "azure-sdk-for-net 36261; azure-sdk-for-python 1826 and azure-webjobs-sdk 67 without the address",
        {A: 400},
    ),
    Row(
        "a verb that a resource of administration does not have",
        "",
        f"The specified HTTP verb ({{verb}}) is not valid. {MORE}",
        "azure-sdk-for-php 387, without the address, which azure-sdk-for-net 36261 has",
        {A: 400},
    ),
    Row(
        "an update of a queue that there is not",
        "",
        "The Operation doesn't exist.",
        "docs: service-bus-resource-manager-exceptions",
        {A: 404},
    ),
    Row(
        "a deletion of a queue that there is not",
        "",
        "No service is hosted at the specified address.",
        "live tests of azure-sdk-for-js (atomManagement)",
        {A: 404},
    ),
    Row(
        "subscriptions of a topic that there is not",
        "",
        "Entity '{namespace}:Topic:{topic}' was not found.",
        "docs: service-bus-resource-manager-exceptions",
        {A: 404},
    ),
    Row(
        "a filter of a list that can't be parsed",
        "",
        "Invalid Filter. There was an error parsing the filter expression. [Token line=1, column={column}, Token in "
        "error= {token}, Additional details= {problem}]*",
        "azure-service-bus 15",
        {A: 400},
    ),
    Row(
        "a filter of a list with another property",
        "",
        "Invalid Filter. The specified property '{name}' does not exist or is not allowed.\nParameter name: "
        "propertyName*",
        "ServiceBusExplorer 571",
        {A: 400},
    ),
    Row(
        "a ForwardTo of a queue that requires sessions",
        "",
        "Bad Request. *",
        "azure-service-bus 317, 660; ServiceBusExplorer 384",
        {A: 400},
    ),
    Row(
        "a ForwardTo without the right to send to its target",
        "",
        "Unauthorized. *",
        "azure-sdk-for-java 22657",
        {A: 401},
    ),
    Row(
        "a ForwardTo in another namespace",
        "",
        "The auto forwarding destination entity '{entity}' does not exist.*",
        "azure-service-bus 203 (of a missing entity)",
        {A: 400},
    ),
    Row(
        "a ForwardTo that leads nowhere",
        "",
        "The auto forwarding destination entity '{entity}' does not exist.*",
        "azure-service-bus 203; docs: service-bus-resource-manager-exceptions",
        {A: 400},
    ),
    Row(
        "a ForwardDeadLetteredMessagesTo that leads nowhere",
        "",
        "The dead letter forwarding destination entity '{entity}' does not exist.*",
        "azure-service-bus 203 (of auto forwarding)",
        {A: 400},
    ),
    Row(
        "an update to a ForwardTo that leads nowhere",
        "",
        "The auto forwarding destination entity '{entity}' does not exist.*",
        "azure-service-bus 203, 693 (an update finds the target anew)",
        {A: 400},
    ),
    *(
        Row(
            f"{name} of a {kind} that there is",
            "",
            f"The value for the {name} property of an existing {kind} cannot be changed.*",
            "recorded by azure-sdk-for-python; docs: service-bus-resource-manager-exceptions",
            {A: 400},
        )
        for name, kind in (
            ("RequiresSession", "Queue"),
            ("RequiresDuplicateDetection", "Queue"),
            ("RequiresDuplicateDetection", "Topic"),
            ("RequiresSession", "Subscription"),
        )
    ),
    *(
        Row(
            f"EnablePartitioning of a {kind} that there is",
            "",
            f"Partitioning cannot be changed for {kind}. *",
            "recorded by azure-sdk-for-python; docs: service-bus-resource-manager-exceptions",
            {A: 400},
        )
        for kind in ("Queue", "Topic")
    ),
    *(
        Row(
            f"a {kind} with a character that no name has",
            "",
            f"'{scheme}://{{address}}' contains character(s) that is not allowed by Service Bus. Entity segments can "
            f"contain only letters, numbers, periods (.), hyphens (-), and underscores (_). {MORE}",
            "azure-service-bus-dotnet 151, 195; docs: service-bus-resource-manager-exceptions",
            {A: 400},
        )
        for kind, scheme in (("queue", "http"), ("topic", "http"), ("subscription", "sb"), ("rule", "sb"))
    ),
    Row(
        "a value of a description that can't be read",
        "",
        "Bad Request. *",
        "azure-sdk-for-python 479",
        {A: 400},
    ),
    Row(
        "a LockDuration above 5 minutes",
        "",
        "The supplied lock time exceeds the allowed maximum of '5' minutes.*",
        "docs: service-bus-resource-manager-exceptions",
        {A: 400},
    ),
    Row(
        "a MaxSizeInMegabytes that there is not",
        "",
        "The specified value {size} is invalid. The property 'MaxSizeInMegabytes', must be one of the following "
        "values: "
        f"1024;2048;3072;4096;5120. {MORE}",
        "docs: service-bus-resource-manager-exceptions",
        {A: 400},
    ),
    Row(
        "a MaxMessageSizeInKilobytes on Standard",
        "",
        "Bad Request. *",
        "live tests of azure-sdk-for-js",
        {A: 400},
    ),
    Row(
        "a MaxMessageSizeInKilobytes above 100 MB on Premium",
        "",
        f"The property value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400. {MORE}",
        "live tests of azure-sdk-for-js",
        {A: 400},
    ),
    Row(
        "EnableExpress with duplicate detection",
        "",
        f"Both DelayedPersistence property and RequiresDuplicateDetection property cannot be enabled together. {MORE}",
        "docs: service-bus-resource-manager-exceptions",
        {A: 400},
    ),
    *(
        Row(
            f"a {kind} that there is, made again",
            "",
            f"You're requesting an operation that isn't allowed in the resource's current state. {MORE}",
            "docs: service-bus-resource-manager-exceptions; recorded by azure-sdk-for-python",
            {A: 409},
        )
        for kind in ("queue", "topic")
    ),
    *(
        Row(
            f"a {kind} that there is, made again",
            "",
            f"The messaging entity '{{namespace}}:Topic:{name}' already exists.",
            "eShopOnContainers 875",
            {A: 409},
        )
        for kind, name in (("subscription", "{topic}|{subscription}"), ("rule", "{topic}|{subscription}|{rule}"))
    ),
    Row(
        "a queue of the name of a topic",
        "",
        f"You're requesting an operation that isn't allowed in the resource's current state. {MORE}",
        "live tests of module-ballerinax-asb (of a queue, and of a topic, that there are)",
        {A: 409},
    ),
    Row(
        "more partitioned entities than a namespace has",
        LIMIT,
        "The maximum number of resources of type '{type}' has been reached or exceeded*",
        "azure-docs 102698; docs: service-bus-resource-manager-exceptions",
        {A: 403},
    ),
)

ON_DEMAND: Final = (
    Row(
        "a namespace beyond its credits (50009)",
        BUSY,
        "The request was terminated because the namespace {namespace} is being throttled. Error code : 50009. Please "
        "wait 2 seconds and try again. To know more visit https://aka.ms/sbResourceMgrExceptions",
        "azure-sdk-for-python 19376; docs: service-bus-throttling",
        on_demand="throttle-credits",
    ),
    Row(
        "a node at its limit",
        BUSY,
        "The request was terminated because the namespace {namespace} is being throttled. Error code : {code}. Please "
        "wait 10 seconds and try again. To know more visit https://aka.ms/sbResourceMgrExceptions",
        "docs: service-bus-messaging-exceptions",
        on_demand="throttle-classic",
    ),
    Row("a node in trouble", INTERNAL, UNABLE, "azure-sdk-for-python 23191", on_demand="internal-error"),
    Row(
        "a broker that does not answer in time",
        "com.microsoft:timeout",
        "The operation did not complete within the allotted timeout of {time}. The time allotted to this operation may "
        "have been a portion of a longer timeout. For more information on exception types and proper exception "
        "handling, please refer to https://aka.ms/ServiceBusExceptions .",
        "azure-service-bus-java 439",
        on_demand="attach-refused",
    ),
    Row(
        "an entity that metadata have lost",
        NOT_FOUND,
        f"The messaging entity '{{name}}' could not be found. {MORE}",
        "azure-sdk-for-net 7907",
        on_demand="phantom-not-found",
    ),
    Row(
        "a partition that is unloaded",
        "com.microsoft:container-close",
        "The message container is being closed (10398).",
        "source of azure-sdk-for-python (the condition); azure-event-hubs 320 (the text)",
        on_demand="container-close",
    ),
    Row(
        "a receiver's link after ten idle minutes",
        FORCED,
        "The link '{link}' is force detached. Code: consumer({consumer}). Details: "
        "AmqpMessageConsumer.IdleTimerExpired: Idle timeout: {time}.",
        "azure-sdk-for-python 10127; docs: service-bus-amqp-troubleshoot (older words)",
        on_demand="idle-link",
    ),
    Row(
        "a sender's link after ten idle minutes",
        FORCED,
        "The link '{link}' is force detached. Code: publisher({publisher}). Details: "
        "AmqpMessagePublisher.IdleTimerExpired: Idle timeout: {time}.",
        "azure-sdk-for-js 38988; docs: service-bus-amqp-troubleshoot (older words)",
        on_demand="idle-link",
    ),
    Row(
        "a connection without links, since August 2024",
        CONNECTION,
        "The connection was closed by container '{container}' because it did not have any active links in the past "
        "{number} milliseconds.",
        "azure-sdk-for-python 36677",
        on_demand="idle-connection",
    ),
    Row(
        "a connection without links, before",
        CONNECTION,
        "The connection was inactive for more than the allowed {number} milliseconds and is closed by container "
        "'{container}'.",
        "docs: service-bus-amqp-troubleshoot",
        on_demand="idle-connection",
    ),
    Row(
        "an address that a firewall refuses",
        UNAUTHORIZED,
        "Ip has been prevented to connect to the endpoint.",
        "azure-docs 91061 (what it means; wording inferred)",
        on_demand="firewall",
    ),
    Row(
        "a token of administration with a wrong signature, in the words of a bad day",
        "",
        "SubCode=40103: Invalid authorization token signature",
        "azure-service-bus 182",
        on_demand="token-refused",
    ),
    Row(
        "an entity that moves, for receivers",
        FORCED,
        "The link '{link}' is force detached. Code: consumer({consumer}). Details: InnerMessageReceiver was closed.",
        "azure-sdk-for-java 6280",
        on_demand="broker-move",
    ),
    Row(
        "two changes of one entity",
        "",
        "SubCode=40901. Another conflicting operation is in progress",
        "durabletask 14; docs: service-bus-resource-manager-exceptions",
        on_demand="conflict-running",
    ),
    Row(
        "an entity that is still being removed",
        "",
        "Resource Conflict Occurred. Another conflicting operation may be in progress. If this is a retry for failed "
        f"operation, background clean up is still pending. Try again later. {MORE}",
        "azure-sdk-for-js 6276; docs: service-bus-resource-manager-exceptions",
        on_demand="conflict-cleanup",
    ),
    Row(
        "a failure of the management front end",
        "",
        "SubCode=50000. Internal Server Error",
        "azure-service-bus 178; docs: service-bus-resource-manager-exceptions",
        on_demand="admin-500-done",
    ),
)

_BASIC_PROPERTIES = (
    "RequiresDuplicateDetection",
    "AutoDeleteOnIdle",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableExpress",
    "ForwardTo",
)
LEFT_OUT: Final = (
    *(
        Row(
            f"{name} on Basic",
            "",
            f"Sub code=40000. The property '{name}' can't be set when creating a Queue because the namespace "
            "'{namespace}' is using the 'Basic' Tier. This operation is only supported in 'Standard' or 'Premium' "
            "tier.",
            MANAGER_PAGE,
            left_out=BASIC,
        )
        for name in _BASIC_PROPERTIES
    ),
    Row(
        "a topic on Basic",
        "",
        "SubCode=40000. Cannot operate on type Topic because the namespace '{namespace}' is using 'Basic' tier.",
        "spaarke-dev/spaarke, a deployment of 2026 (operator-followup-task071.md)",
        left_out=BASIC,
    ),
    Row(
        "a DefaultMessageTimeToLive above 14 days on Basic",
        "",
        "The property value for 'DefaultMessageTimeToLive' must be between 00:00:01 and 14.00:00:00 when the namespace "
        "'{namespace}' is using 'Basic' tier.",
        "azure-service-bus 306",
        left_out=BASIC,
    ),
    Row(
        "a namespace that there is not",
        "",
        "The namespace '{namespace}' doesn't exist.",
        MANAGER_PAGE,
        left_out="a server is one namespace",
    ),
    Row(
        "a request on an entity that another one is changing",
        "",
        "Request on entity '{entity}' conflicted with another request",
        MANAGER_PAGE,
        left_out=f"{RESOURCE_MANAGER}; changes of one entity are made one after the other",
    ),
    Row(
        "an update while another one runs",
        "",
        "Another update request is in progress for the entity '{entity}'.",
        MANAGER_PAGE,
        left_out=f"{RESOURCE_MANAGER}; changes of one entity are made one after the other",
    ),
    Row(
        "requests of administration that are throttled",
        "",
        "Sub code=50004. The request was terminated because the namespace {namespace} is being throttled.",
        MANAGER_PAGE,
        left_out="the condition throttle-admin has the words of the newer page",
    ),
    Row(
        "a policy of the namespace without body",
        "",
        "The incoming request isn't recognized as a namespace policy put request.",
        MANAGER_PAGE,
        left_out=RESOURCE_MANAGER,
    ),
    Row(
        "a change in a secondary namespace",
        "",
        "Invalid operation on the Secondary namespace. Secondary namespace is read-only.",
        MANAGER_PAGE,
        left_out="there is no pairing of namespaces",
    ),
    Row(
        "renewal of a lock by an old SDK on a partitioned entity",
        "amqp:not-implemented",
        "This SDK does not support operation 'com.microsoft:renew-lock' for an entity with partitioning enabled. "
        "Please use a newer version of the SDK.",
        "amqpnetlite 173",
        left_out="seen in 2016 only; every client may renew",
    ),
    Row(
        "a batch whose envelope has neither id nor key, on a partitioned entity that detects duplicates",
        NOT_ALLOWED,
        "Message to a partitioned entity with duplicate detection enabled must have either PartitionKey or MessageId "
        "set",
        "azure-sdk-for-python 21955",
        left_out="the messages decide, not the envelope: emubus takes such a batch if its messages have one key",
    ),
    Row(
        "deferred messages that are locked",
        MISSING,
        "Failed to lock one or more specified messages. Either the message is already locked or does not exist.",
        "azure-service-bus 256",
        left_out="the words of 2018; those of today are in the live tests of azure-sdk-for-js",
    ),
    Row(
        "a subscription of a topic that there is not",
        "",
        "The incoming request is not recoginzed as a namespace policy put request: Unrecognized policy type: "
        "SubscriptionDescription, http://schemas.microsoft.com/netservices/2010/10/servicebus/connect.",
        "azure-sdk-for-node 177, 1420",
        left_out="last seen in 2017; the status is the same (404), and the words say which topic is missing",
    ),
    Row(
        "a receiver of what is no subscription",
        NOT_ALLOWED,
        "Cannot open a Topic client for entity type Subscriber.",
        "amqpnetlite 427",
        left_out="which link was opened is not known from the report; a receiver on a topic has emubus's own words",
    ),
    Row(
        "an entity that is throttled",
        BUSY,
        "The request was terminated because the entity is being throttled. Error code: {code}. Please wait 10 seconds "
        "and try again.",
        EXCEPTIONS_PAGE,
        left_out="nothing is throttled unless a condition is on; those have the words of namespaces",
    ),
    Row(
        "an idle link, in the words of 2018",
        FORCED,
        "The link '{link}' is force detached by the broker due to errors occurred in publisher({publisher}). "
        "Detach origin: AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00.",
        "docs: service-bus-amqp-troubleshoot",
        left_out="the condition idle-link has the words of today",
    ),
)

ROWS: Final = (*SENDING, *RECEIVING, *RULES, *TRANSACTIONS, *RIGHTS, *CONNECTIONS, *DESCRIPTIONS, *ON_DEMAND, *LEFT_OUT)
