"""Sends a message to queue.1 and receives it: `pip install azure-servicebus`, then `python hello.py`."""

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION_STRING = os.environ.get(
    "SERVICEBUS_CONNECTION_STRING",
    "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true",
)

with ServiceBusClient.from_connection_string(CONNECTION_STRING) as client:
    with client.get_queue_sender("queue.1") as sender:
        sender.send_messages(ServiceBusMessage("hello"))
    with client.get_queue_receiver("queue.1", max_wait_time=5) as receiver:
        for message in receiver:
            print(f"received: {message}")
            receiver.complete_message(message)
            break
