"""Each test has an empty broker in the test process, and a clock that it moves.

Needs emubus, azure-servicebus and pytest.
"""

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage


@pytest.fixture
def client(servicebus_connection_string):
    with ServiceBusClient.from_connection_string(servicebus_connection_string) as client:
        yield client


def test_an_order_arrives(client):
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("order 7"))
    with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages()
        receiver.complete_message(message)
        assert str(message) == "order 7"


def test_an_unsettled_order_comes_back(client, emubus_clock):
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("order 7"))
    with client.get_queue_receiver("orders") as slow, client.get_queue_receiver("orders") as other:
        slow.receive_messages()
        emubus_clock.advance(timedelta(seconds=30))
        assert [each.delivery_count for each in other.receive_messages()] == [1]


def test_the_next_test_begins_with_an_empty_queue(emubus):
    assert emubus.peek("orders") == []
