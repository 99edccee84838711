"""Run it with pytest where Docker is. No test of this repository runs it; it was tried by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from emubus_testcontainers import EmubusContainer

CONFIG = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "orders"}]}]}}


@pytest.fixture(scope="module")
def client() -> Iterator[ServiceBusClient]:
    with (
        EmubusContainer(config=CONFIG) as container,
        ServiceBusClient.from_connection_string(container.get_connection_string()) as client,
    ):
        yield client


def test_an_order_arrives(client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("order 7"))
    with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages(max_message_count=1)
        assert str(message) == "order 7"
        receiver.complete_message(message)
