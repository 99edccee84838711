"""The service's words for its bad days: one function for each text, with the condition that goes with it.

Knows texts that `broker/service_errors.py` has no need for in normal operation. The adapters append the tail, of the
form that an error names or that its place has. Blanks and missing full stops are the service's. `docs/CONDITIONS.md`
names the sources.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ..broker.errors import BrokerError, Condition
from ..broker.service_errors import RESOURCES
from ..broker.tracking import Form
from .strikes import FormedError

SHARED_NODE: Final = "To know more visit https://aka.ms/sbResourceMgrExceptions"
_DETAILS: Final = "For more information on exception types and proper exception handling, please refer to"
UNABLE: Final = (
    "The service was unable to process the request; please retry the operation. "
    f"{_DETAILS} http://go.microsoft.com/fwlink/?LinkId=761101"
)
"""The text of a node in trouble."""
NO_SERVICE: Final = "No service is hosted at the specified address"


def clock_of(ms: int) -> str:
    """A duration as the texts write it: hours, minutes and seconds."""
    minutes, seconds = divmod(ms // 1000, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def node_busy(namespace: str, code: int) -> BrokerError:
    """The node that a namespace shares with others, or its own units, are at their limit."""
    return BrokerError(
        Condition.SERVER_BUSY,
        f"The request was terminated because the namespace {namespace} is being throttled. Error code : {code}. Please "
        f"wait 10 seconds and try again. {SHARED_NODE}",
    )


def internal() -> BrokerError:
    """A node is in trouble."""
    return BrokerError(Condition.INTERNAL_ERROR, UNABLE)


def internal_at_attach() -> BrokerError:
    """The gateway found no node for an attach."""
    return FormedError(Condition.INTERNAL_ERROR, UNABLE, Form.GATEWAY)


def timed_out(ms: int) -> BrokerError:
    """A broker did not answer the gateway in time."""
    return FormedError(
        Condition.TIMEOUT,
        f"The operation did not complete within the allotted timeout of {clock_of(ms)}. The time allotted to this "
        f"operation may have been a portion of a longer timeout. {_DETAILS} https://aka.ms/ServiceBusExceptions .",
        Form.BOTH,
    )


def missing_for_now(name: str) -> BrokerError:
    """The gateway's metadata has lost an entity that exists; `name` as from `service_errors.name_of`."""
    text = f"The messaging entity '{name}' could not be found. {RESOURCES}"
    return FormedError(Condition.NOT_FOUND, text, Form.BOTH)


def operation_unknown(name: str) -> BrokerError:
    """A management node does not know what it is asked for; in the words that emubus has for any unknown name."""
    return BrokerError(Condition.NOT_IMPLEMENTED, f"The operation '{name}' is not supported.")


def container_closing() -> BrokerError:
    """A broker unloads a partition."""
    return BrokerError(Condition.CONTAINER_CLOSE, "The message container is being closed (10398).")


def link_idle(link: str, ms: int, *, sends: bool) -> BrokerError:
    """Nothing was done over a link for a time; the text of a sender has no tail."""
    code, what = ("publisher", "AmqpMessagePublisher") if sends else ("consumer", "AmqpMessageConsumer")
    return FormedError(
        Condition.DETACH_FORCED,
        f"The link '{link}' is force detached. Code: {code}(link1). Details: {what}.IdleTimerExpired: "
        f"Idle timeout: {clock_of(ms)}.",
        None if sends else Form.BROKER,
    )


def connection_without_links(container: str, ms: int) -> BrokerError:
    """A connection had no links for a time; the wording since August 2024."""
    return BrokerError(
        Condition.CONNECTION_FORCED,
        f"The connection was closed by container '{container}' because it did not have any active links in the past "
        f"{ms} milliseconds.",
    )


def connection_inactive(container: str, ms: int) -> BrokerError:
    """A connection was idle; with the container `LinkTracker` the wording of one without links before August 2024."""
    return BrokerError(
        Condition.CONNECTION_FORCED,
        f"The connection was inactive for more than the allowed {ms} milliseconds and is closed by container "
        f"'{container}'.",
    )


def address_refused() -> BrokerError:
    """A firewall rule forbids the client's address."""
    return BrokerError(Condition.UNAUTHORIZED_ACCESS, "Ip has been prevented to connect to the endpoint.")


def token_expired(now_ms: int) -> BrokerError:
    """A token is over, as the service sees it: since a second ago."""
    ended = datetime.fromtimestamp(now_ms / 1000 - 1, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    text = f"ExpiredToken: The token is expired. Expiration time: '{ended}'."
    return BrokerError(Condition.UNAUTHORIZED_ACCESS, text)


def token_not_signed() -> BrokerError:
    """A token is signed with another key."""
    return BrokerError(Condition.UNAUTHORIZED_ACCESS, "InvalidSignature: The token has an invalid signature.")


def admin_token_refused() -> str:
    """A token of an administration client is signed with another key."""
    return "SubCode=40103: Invalid authorization token signature"


def rolled_back() -> BrokerError:
    """A transaction could not be committed."""
    return BrokerError(Condition.TRANSACTION_ROLLBACK, "The transaction was rolled back: it could not be committed.")


def transaction_unknown() -> BrokerError:
    """The coordinator has forgotten a transaction."""
    return BrokerError(Condition.TRANSACTION_UNKNOWN_ID, "The transaction is not known to the coordinator.")


def conflict_running() -> str:
    """Two administration clients change one entity."""
    return "SubCode=40901. Another conflicting operation is in progress"


def conflict_cleanup() -> str:
    """An entity is created again while the old one is being removed."""
    return (
        "Resource Conflict Occurred. Another conflicting operation may be in progress. If this is a retry for failed "
        f"operation, background clean up is still pending. Try again later. {RESOURCES}"
    )


def admin_failed() -> str:
    """The management front end fails."""
    return "SubCode=50000. Internal Server Error"
