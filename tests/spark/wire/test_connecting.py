"""Making a connection over each transport, and what becomes of one that fails."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.wire import Connection, Endpoint
from emubus.spark_connector.wire.management import Management
from emubus.testing import EmubusServer

from .conftest import KEY
from .kit import Proxy, endpoint_of, envelope, message, mute_peer, peeked, refused_port, talking_peer

BODIES = [b"%05d" % number + bytes(20_000) for number in range(30)]


@pytest.fixture(name="authority", scope="module")
def make_authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(name="ca_file")
def write_ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture(name="tls")
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.fixture(name="filled")
def fill(endpoint: Endpoint, queue: str) -> Iterator[str]:
    with Connection(endpoint, KEY) as connection:
        sender = connection.sender(queue, window=8)
        for body in BODIES:
            sender.send(message(body), envelope=False, key=body)
        assert dict(sender.flush()) == dict.fromkeys(BODIES)
        yield queue


def refusal(endpoint: Endpoint) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        Connection(endpoint, KEY)
    return caught.value


def peek_all(management: Management, first: int) -> list[bytes]:
    """The bodies of all messages of an unpartitioned queue, page by page: a response holds at most 256 KB."""
    found: list[bytes] = []
    while (page := management.peek(first + len(found), 100)) is not None:
        found += peeked(page)
    return found


def check_both_ways(endpoint: Endpoint, queue: str) -> None:
    """Send and peek several megabytes over the transport."""
    with Connection(endpoint, KEY) as connection:
        management = connection.management(queue)
        assert peek_all(management, 1) == BODIES
        sender = connection.sender(queue, window=4)
        for number in range(20):
            sender.send(envelope(*[message(body) for body in BODIES[:10]]), envelope=True, key=number)
        assert dict(sender.flush()) == dict.fromkeys(range(20))
        assert len(peek_all(management, len(BODIES) + 1)) == 200


def test_messages_go_both_ways_over_plain_tcp(endpoint: Endpoint, filled: str) -> None:
    check_both_ways(endpoint, filled)


def test_messages_go_both_ways_over_tls(server: EmubusServer, filled: str, tls: ssl.SSLContext, ca_file: str) -> None:
    with Proxy(server.amqp_port, tls=tls) as proxy:
        check_both_ways(endpoint_of(proxy.port, tls=True, ca_file=ca_file), filled)


def test_messages_go_both_ways_over_websocket(server: EmubusServer, filled: str) -> None:
    with Proxy(server.amqp_port, websocket=True) as proxy:
        check_both_ways(endpoint_of(proxy.port, transport="amqpws"), filled)


def test_messages_go_both_ways_over_websocket_under_tls(
    server: EmubusServer, filled: str, tls: ssl.SSLContext, ca_file: str
) -> None:
    with Proxy(server.amqp_port, tls=tls, websocket=True) as proxy:
        check_both_ways(endpoint_of(proxy.port, tls=True, ca_file=ca_file, transport="amqpws"), filled)


def test_a_certificate_of_an_unknown_authority_is_refused_for_good(server: EmubusServer, tls: ssl.SSLContext) -> None:
    with Proxy(server.amqp_port, tls=tls) as proxy:
        error = refusal(endpoint_of(proxy.port, tls=True))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, False)
    assert f"the certificate of localhost:{proxy.port} is not trusted" in error.text
    assert "caFile" in error.text


def test_a_certificate_for_another_host_is_refused_for_good(
    server: EmubusServer, tls: ssl.SSLContext, ca_file: str
) -> None:
    with Proxy(server.amqp_port, tls=tls) as proxy:
        error = refusal(endpoint_of(proxy.port, host="127.0.0.1", tls=True, ca_file=ca_file))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, False)
    assert f"127.0.0.1:{proxy.port}" in error.text


def test_a_ca_file_that_is_not_there_is_named(server: EmubusServer) -> None:
    error = refusal(endpoint_of(server.amqp_port, tls=True, ca_file="/nowhere/ca.pem"))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, False)
    assert "caFile '/nowhere/ca.pem' can't be used" in error.text


def test_a_peer_without_tls_is_named_with_host_and_port(server: EmubusServer) -> None:
    error = refusal(endpoint_of(server.amqp_port, tls=True, connect_timeout_s=1.0))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, True)
    assert f"no connection to localhost:{server.amqp_port} under TLS" in error.text


def test_a_refused_port_is_named_with_host_and_port() -> None:
    port = refused_port()
    error = refusal(endpoint_of(port))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, True)
    assert f"no connection to localhost:{port}: " in error.text


def test_a_host_that_is_not_found_is_named() -> None:
    error = refusal(endpoint_of(5672, host="nowhere.invalid"))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, True)
    assert "the host of nowhere.invalid:5672 can't be found" in error.text


@pytest.mark.parametrize("options", [{}, {"tls": True}, {"transport": "amqpws"}, {"tls": True, "transport": "amqpws"}])
def test_a_mute_peer_is_given_up_in_time(options: dict[str, object]) -> None:
    with mute_peer() as port:
        error = refusal(endpoint_of(port, connect_timeout_s=0.3, **options))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, True)
    assert f"localhost:{port}" in error.text


def test_a_peer_that_speaks_something_else_is_refused_for_good() -> None:
    with talking_peer(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as port:
        error = refusal(endpoint_of(port))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, False)
    assert f"localhost:{port} does not speak AMQP 1.0 here" in error.text


def test_a_peer_that_closes_at_once_may_be_tried_again() -> None:
    with talking_peer(b"") as port:
        error = refusal(endpoint_of(port))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, True)
    assert f"localhost:{port}" in error.text


def test_a_web_server_without_amqp_is_refused_for_good() -> None:
    with talking_peer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") as port:
        error = refusal(endpoint_of(port, transport="amqpws"))
    assert (error.code, error.retriable) == (Code.UNAVAILABLE, False)
    assert f"localhost:{port} speaks no AMQP over WebSocket" in error.text
    assert "404" in error.text


def test_a_connection_that_is_cut_in_a_reply_is_lost(server: EmubusServer, filled: str) -> None:
    with Proxy(server.amqp_port, drop_after_bytes=100_000) as proxy:
        connection = Connection(endpoint_of(proxy.port), KEY)
        with pytest.raises(ConnectorError) as caught:
            connection.management(filled).peek(1, 100)
        assert (caught.value.code, caught.value.retriable) == (Code.UNAVAILABLE, True)
        assert f"localhost:{proxy.port}" in caught.value.text
        assert not connection.usable
        with pytest.raises(ConnectorError, match=f"localhost:{proxy.port}"):
            connection.management(filled)
        connection.close()


@pytest.mark.parametrize("websocket", [False, True])
def test_a_connection_that_is_cut_anywhere_is_unavailable(server: EmubusServer, filled: str, websocket: bool) -> None:
    transport = "amqpws" if websocket else "amqp"
    with Proxy(server.amqp_port, websocket=websocket) as proxy:
        endpoint = endpoint_of(proxy.port, transport=transport)
        for drop_after_bytes in range(0, 3500, 71):
            proxy.drop_after_bytes = drop_after_bytes
            with pytest.raises(ConnectorError) as caught:
                use_everything(endpoint, filled)
            assert (caught.value.code, caught.value.retriable) == (Code.UNAVAILABLE, True), drop_after_bytes
            assert f"localhost:{proxy.port}" in caught.value.text


def use_everything(endpoint: Endpoint, queue: str) -> None:
    with Connection(endpoint, KEY) as connection:
        transaction = connection.transaction()
        transaction.declare()
        transaction.discharge(True)
        sender = connection.sender(queue, window=2)
        for number in range(10):
            sender.send(message(b"x"), envelope=False, key=number)
        sender.flush()
        sender.close()
        receiver = connection.receiver(queue)
        receiver.settle(receiver.receive(1, 5), "released")
        receiver.drain()
        connection.management(queue).peek(1, 100)


def test_an_answer_that_does_not_come_in_time_makes_the_connection_unusable(server: EmubusServer, queue: str) -> None:
    with Proxy(server.amqp_port) as proxy:
        connection = Connection(endpoint_of(proxy.port), KEY)
        management = connection.management(queue)
        management._requests._timeout_s = 0.3  # not before: a busy machine takes longer to open the links
        proxy.is_mute = True
        with pytest.raises(ConnectorError) as caught:
            management.peek(1, 1)
        assert (caught.value.code, caught.value.retriable) == (Code.UNAVAILABLE, True)
        assert f"localhost:{proxy.port} has not answered in time" in caught.value.text
        assert queue in caught.value.text
        assert not connection.usable
        connection.close()


def test_a_connection_that_the_server_drops_is_lost_with_host_and_port(
    server: EmubusServer, connection: Connection, queue: str
) -> None:
    management = connection.management(queue)
    assert server.drop_connections() > 0
    with pytest.raises(ConnectorError) as caught:
        management.peek(1, 1)
    assert (caught.value.code, caught.value.retriable) == (Code.UNAVAILABLE, True)
    assert f"localhost:{server.amqp_port}" in caught.value.text
    assert not connection.usable


def test_an_entity_that_is_missing_does_not_spoil_the_connection(connection: Connection, queue: str) -> None:
    for open_link in (
        lambda: connection.management("missing"),
        lambda: connection.sender("missing", window=1),
        lambda: connection.receiver("missing"),
    ):
        with pytest.raises(ConnectorError) as caught:
            open_link()
        assert (caught.value.code, caught.value.retriable) == (Code.ENTITY_NOT_FOUND, False)
        assert caught.value.condition == "amqp:not-found"
        assert caught.value.text.startswith("missing: ")
    assert connection.usable
    assert connection.management(queue).peek(1, 1) is None


def test_a_closed_connection_says_so(endpoint: Endpoint, queue: str) -> None:
    connection = Connection(endpoint, KEY)
    connection.close()
    connection.close()
    assert not connection.usable
    with pytest.raises(ConnectorError, match=f"the connection to localhost:{endpoint.port} is closed"):
        connection.management(queue)
