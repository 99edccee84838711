"""A server of the kit that has stopped leaves nothing of itself in the process that tests with it."""

from __future__ import annotations

import gc
import weakref
from http.client import HTTPConnection

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.broker.broker import Broker
from emubus.testing import EmubusServer


def used() -> weakref.ref[Broker]:
    """The broker of a server that was asked over each protocol, and has stopped."""
    with EmubusServer() as server:
        server.create_queue("q")
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_sender("q") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"))
        connection = HTTPConnection("127.0.0.1", server.http_port)
        connection.request("GET", "/emubus/v1/entities")
        assert connection.getresponse().read()
        connection.close()
        return weakref.ref(server.server.broker)


def test_a_stopped_server_keeps_no_broker_alive() -> None:
    brokers = [used() for _ in range(2)]
    gc.collect()
    assert [broker() for broker in brokers] == [None, None]
