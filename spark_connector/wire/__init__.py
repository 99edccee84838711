"""An AMQP client for Service Bus: connections, and the kinds of links that the connector needs.

`connection` is the interface: management nodes, senders, receivers and transactions of one connection; `pool` keeps
connections between tasks. Below it: `engine` runs Proton on a stream (`dialing`), `links` has what all links share,
`requests` the pairs of links to `$cbs` (`cbs`) and `$management` (`management`), `envelopes` writes the message-format
of batches, `values` the AMQP values of requests.

Nothing here knows Spark or reads the messages that it carries.
"""

from ..dialing.connection_string import ConnectionString, parse_connection_string
from ..dialing.credentials import ClientSecret, Credential, SasKey, SasToken, TokenProvider
from ..dialing.endpoint import Endpoint, Transport, default_port
from .connection import Connection
from .management import Management, PartitionRange, Response
from .pool import pooled
from .receiver import NO_SESSION, Modified, Received, Receiver
from .requests import Pending
from .sender import Sender
from .transactions import Transaction

__all__ = [
    "NO_SESSION",
    "ClientSecret",
    "Connection",
    "ConnectionString",
    "Credential",
    "Endpoint",
    "Management",
    "Modified",
    "PartitionRange",
    "Pending",
    "Received",
    "Receiver",
    "Response",
    "SasKey",
    "SasToken",
    "Sender",
    "TokenProvider",
    "Transaction",
    "Transport",
    "default_port",
    "parse_connection_string",
    "pooled",
]
