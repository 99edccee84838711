"""Connections that don't come about: TLS that fails, and a host without an address."""

from __future__ import annotations

import socket
import ssl

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from emubus.kit.verbs import UNKNOWN_HOST
from emubus.testing import EmubusServer, RemoteEmubus

from .conftest import QUEUE


def handshake(server: EmubusServer) -> str | None:
    """The version of TLS that a client which trusts the development CA agrees on with the server."""
    context = ssl.create_default_context(cafile=server.ca_file)
    with (
        socket.create_connection(("localhost", server.amqp_port)) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as tls,
    ):
        return tls.version()


@pytest.mark.parametrize(
    ("how", "reason"), [("alert", "HANDSHAKE_FAILURE"), ("certificate", "CERTIFICATE_VERIFY_FAILED")]
)
def test_a_handshake_fails_as_often_as_is_asked_for(server: EmubusServer, how: str, reason: str) -> None:
    with server.conditions("tls-fails", how=how, count=2) as on:
        for _ in range(2):
            with pytest.raises(ssl.SSLError, match=reason):
                handshake(server)
        assert handshake(server) is not None
        assert [each.what for each in on.report.struck] == [f"TLS handshake fails: {how}"] * 2


def test_a_client_with_tls_tries_again_and_gets_in(server: EmubusServer) -> None:
    with server.conditions("tls-fails", count=1) as on:
        client = ServiceBusClient.from_connection_string(
            server.tls_connection_string,
            custom_endpoint_address=f"sb://localhost:{server.amqp_port}",  # else it is 5671
            connection_verify=str(server.ca_file),
            retry_backoff_factor=0.01,
        )
        with client, client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("x"))
        assert on.report.struck_count == 1
    assert len(server.peek(QUEUE)) == 1


def test_a_client_without_tls_meets_nothing(server: EmubusServer) -> None:
    with server.conditions("tls-fails") as on:
        client = ServiceBusClient.from_connection_string(server.connection_string)
        with client, client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("x"))
        assert on.report.struck_count == 0


def test_the_host_of_a_connection_string_has_no_address(server: EmubusServer) -> None:
    here, there = server.unresolved_connection_string, RemoteEmubus("http://[::1]:5300").unresolved_connection_string
    assert here == server.connection_string.replace("localhost", UNKNOWN_HOST)
    assert there.startswith(f"Endpoint=sb://{UNKNOWN_HOST}:5300;")
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo(UNKNOWN_HOST, 5672)
    client = ServiceBusClient.from_connection_string(here, retry_total=0)
    with client, pytest.raises(ServiceBusError), client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(ServiceBusMessage("x"))
