"""Sends a message with a TokenCredential instead of a key, as programs with Microsoft Entra ID do.

With --auth none, the default, any token is accepted. SDKs use such credentials over TLS only:

emubus serve --tls dev
python credential.py emubus-data/tls/ca.pem
"""

import os
import sys
import time

from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType


class AnyToken:
    """Stands for DefaultAzureCredential: there is no directory to ask."""

    def get_token(self, *scopes, **kwargs):
        return AccessToken("any token", int(time.time()) + 3600)


with (
    ServiceBusClient(
        "localhost",
        AnyToken(),
        custom_endpoint_address=os.environ.get("SERVICEBUS_ADDRESS", "sb://localhost:5672"),
        transport_type=TransportType.Amqp,
        connection_verify=sys.argv[1],
    ) as client,
    client.get_queue_sender("queue.1") as sender,
):
    sender.send_messages(ServiceBusMessage("hello"))
print("sent")
