"""The refusals that clients match by their text, or that people see most often: one function each.

Knows the exact first clauses that SDKs look for [wire 4.5, 5.7, 9.3]. The tracking part is appended where the service
prints one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from .errors import BrokerError, Condition, UnknownOutcomeError

AUTHORITY = "emubus"  # of the addresses in these texts; the service prints the namespace's host name
LOW_48_BITS = (1 << 48) - 1
SIGN_OF_48 = 1 << 47


def not_found(path: str) -> BrokerError:
    """The entity does not exist. JavaScript and Java match this sentence to tell it from a passing fault."""
    return BrokerError(
        Condition.NOT_FOUND,
        f"The messaging entity 'sb://{AUTHORITY}/{path}' could not be found. "
        "To know more visit https://aka.ms/sbResourceMgrExceptions.",
    )


def already_exists(path: str) -> BrokerError:
    """An entity of that name is there."""
    return BrokerError(
        Condition.ENTITY_ALREADY_EXISTS, f"The messaging entity 'sb://{AUTHORITY}/{path}' already exists."
    )


def fixed_at_creation(name: str, kind: str) -> BrokerError:
    """An update would change what is chosen at creation (P1), in the service's words."""
    if name == "EnablePartitioning":
        return BrokerError(Condition.NOT_ALLOWED, f"Partitioning cannot be changed for {kind.title()}. ")
    return BrokerError(
        Condition.NOT_ALLOWED, f"The value for the {name} property of an existing {kind.title()} cannot be changed."
    )


def lock_lost() -> BrokerError:
    """The lock token is unknown here or its time is over."""
    return BrokerError(
        Condition.MESSAGE_LOCK_LOST,
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        "queue. For more information please see https://aka.ms/ServiceBusExceptions .",
    )


def session_lock_lost() -> BrokerError:
    """The message session is not (or no longer) held by the one who asks."""
    return BrokerError(
        Condition.SESSION_LOCK_LOST,
        "The session lock has expired on the message session. Accept a new message session and try again.",
    )


def session_cannot_be_locked(session_id: str) -> BrokerError:
    """Another receiver holds the session that was asked for."""
    return BrokerError(
        Condition.SESSION_CANNOT_BE_LOCKED,
        f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver.",
    )


def session_not_supported(path: str) -> BrokerError:
    """A message session is asked for on an entity that has none."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure "
        "RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior. "
        f"Entity: '{path}'.",
    )


def renew_in_session() -> BrokerError:
    """Message locks of a session are renewed with the session."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "Message locks can't be renewed on an entity that requires sessions; renew the lock of the session.",
    )


def dead_letter_of_dead_letter() -> BrokerError:
    """A dead-lettered message is the end of the line."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "A message in a dead-letter queue can't be dead-lettered again; complete it instead.",
    )


def scheduled_not_found(numbers: Sequence[int]) -> BrokerError:
    """No scheduled messages of these numbers. The service prints their low 48 bits, sign-extended [wire 7.2]."""
    shown = ", ".join(str(((number & LOW_48_BITS) ^ SIGN_OF_48) - SIGN_OF_48) for number in numbers)
    return BrokerError(Condition.MESSAGE_NOT_FOUND, f"Messages not found. Missing sequence numbers: {shown}")


def forwards(path: str, target: str) -> BrokerError:
    """Nothing can be received from an entity that forwards everything."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        f"Can't receive from '{path}': it forwards its messages to '{target}'.",
    )


def deferred_not_found() -> BrokerError:
    """At least one of the sequence numbers is not that of a deferred, unlocked message."""
    return BrokerError(
        Condition.MESSAGE_NOT_FOUND,
        "Failed to lock one or more specified messages. The message does not exist.",
    )


def dead_letter_not_found(number: int) -> BrokerError:
    """There is no dead-lettered message of that number (any more)."""
    return BrokerError(
        Condition.MESSAGE_NOT_FOUND, f"There is no message {number} in the dead-letter queue (any more)."
    )


def dead_letter_locked(number: int) -> BrokerError:
    """A receiver of the dead-letter queue has it."""
    return BrokerError(
        Condition.MESSAGE_LOCK_LOST, f"Message {number} is locked by a receiver of the dead-letter queue."
    )


def would_be_dropped(number: int, message_id: str) -> BrokerError:
    """Sent anew it would be lost: its message id is still remembered."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        f"Message {number} would be dropped as a duplicate: its MessageId '{message_id}' is still within the window "
        "of duplicate detection.",
    )


def entity_full(kind: str, name: str, size_bytes: int, size_bytes_max: int) -> BrokerError:
    """The entity (or this partition of it) has reached its size."""
    return BrokerError(
        Condition.RESOURCE_LIMIT_EXCEEDED,
        f"The maximum entity size has been reached or exceeded for {kind}: '{name}'. "
        f"Size of entity in bytes:{size_bytes}, Max entity size in bytes:{size_bytes_max}",
    )


def too_large(size_bytes: int, size_bytes_max: int) -> BrokerError:
    """A delivery is bigger than the link allows."""
    return BrokerError(
        Condition.MESSAGE_SIZE_EXCEEDED,
        f"The received message (size: {size_bytes} bytes) exceeds the limit ({size_bytes_max} bytes) currently "
        "allowed on the link.",
    )


def disabled(path: str, status: str) -> BrokerError:
    """The entity exists but doesn't take (or give) messages now."""
    return BrokerError(
        Condition.ENTITY_DISABLED,
        f"Messaging entity 'sb://{AUTHORITY}/{path}' is currently disabled ({status}).",
    )


def mixed_keys() -> BrokerError:
    """A batch for a partitioned entity holds more than one key (P12)."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with "
        "partitioning enabled.",
    )


def key_mismatch(session_id: str, partition_key: str) -> BrokerError:
    """SessionId and PartitionKey are both set and differ (P9)."""
    return BrokerError(
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


def session_receiver_required(path: str) -> BrokerError:
    """A plain receiver on an entity that requires message sessions."""
    return BrokerError(
        Condition.NOT_ALLOWED,
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver. "
        f"Entity: '{path}'.",
    )


def store_unavailable(store_index: int, cause: str) -> BrokerError:
    """The messaging store could not commit; nothing was stored and the client may try again."""
    return BrokerError(
        Condition.SERVER_BUSY,
        f"Messaging store {store_index} could not complete the operation: {cause}. Nothing of it was stored; "
        "please retry.",
    )


def namespace_unavailable(cause: str) -> BrokerError:
    """The store of the namespace could not commit a change of its entities."""
    return BrokerError(
        Condition.SERVER_BUSY, f"The store of the namespace could not keep the change: {cause}. Please retry."
    )


def outcome_unknown(store_index: int, cause: str) -> UnknownOutcomeError:
    """The disk failed in the middle of a commit; a client that tries again may do the work a second time."""
    return UnknownOutcomeError(
        Condition.SERVER_BUSY,
        f"Messaging store {store_index} could not confirm the operation: {cause}. All of it is stored or nothing; "
        "which of both is not known. Please retry.",
    )


def connections_quota_exceeded(namespace: str, connections_max: int) -> BrokerError:
    """As many clients as the profile allows are connected."""
    return BrokerError(
        Condition.RESOURCE_LIMIT_EXCEEDED,
        f"ConnectionsQuotaExceeded for namespace: {namespace}. "
        f"At most {connections_max} connections can be open at a time.",
    )


def with_tracking(text: str, tracking_id: str, system: str, now_ms: int) -> str:
    """`text` with the tracking tail that the service appends and some tools parse [wire 9.2]."""
    stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text} TrackingId:{tracking_id}_G0, SystemTracker:{system}, Timestamp:{stamp}"
