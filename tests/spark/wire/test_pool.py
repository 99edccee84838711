"""Connections that are kept for the next task."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from emubus.spark_connector.errors import ConnectorError
from emubus.spark_connector.wire import Connection, Endpoint, SasKey, pool, pooled
from emubus.testing import EmubusServer

from ...programs import PROGRAM_S_MAX
from ..idle import close_idle
from .conftest import KEY
from .kit import Proxy, endpoint_of

FORKED = """
import os, sys
from emubus.spark_connector.wire import Endpoint, SasKey, pooled
from emubus.spark_connector.wire.pool import _idle
def close_idle():
    for connection, _ in sum(_idle.values(), []):
        connection.close()
endpoint = Endpoint("localhost", int(sys.argv[1]), tls=False, operation_timeout_s=60)
key = SasKey("RootManageSharedAccessKey", "SAS_KEY_VALUE")
with pooled(endpoint, key) as parents:
    parents.management(sys.argv[2]).peek(1, 1)
child = os.fork()
if child == 0:
    assert not parents.usable
    with pooled(endpoint, key) as own:
        assert own is not parents
        own.management(sys.argv[2]).peek(1, 1)
    close_idle()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
with pooled(endpoint, key) as again:
    assert again is parents
    again.management(sys.argv[2]).peek(1, 1)
close_idle()
"""


def test_a_connection_is_used_again(endpoint: Endpoint, queue: str) -> None:
    with pooled(endpoint, KEY) as first:
        first.management(queue).peek(1, 1)
    with pooled(endpoint, KEY) as second:
        assert second is first
        second.management(queue).peek(1, 1)


def test_a_connection_is_used_by_one_block_at_a_time(endpoint: Endpoint) -> None:
    with pooled(endpoint, KEY) as first, pooled(endpoint, KEY) as second:
        assert first is not second


def test_connections_of_other_credentials_and_endpoints_are_others(endpoint: Endpoint, server: EmubusServer) -> None:
    with pooled(endpoint, KEY) as first:
        pass
    with pooled(endpoint, SasKey("other", "key")) as second:
        assert second is not first
    with pooled(endpoint_of(server.amqp_port, operation_timeout_s=50.0), KEY) as third:
        assert third is not first


def test_a_connection_is_closed_when_its_block_raises(endpoint: Endpoint) -> None:
    with pytest.raises(KeyError), pooled(endpoint, KEY) as first:
        raise KeyError
    assert not first.usable


def test_a_connection_is_closed_when_its_generator_is(endpoint: Endpoint) -> None:
    seen: list[Connection] = []

    def rows() -> Iterator[int]:
        with pooled(endpoint, KEY) as connection:
            seen.append(connection)
            yield 1
            yield 2

    generator = rows()
    assert next(generator) == 1
    generator.close()  # type: ignore[attr-defined]
    assert not seen[0].usable


@pytest.mark.parametrize("what", ["sender", "receiver", "peek", "transaction"])
def test_a_connection_with_something_open_is_not_kept(endpoint: Endpoint, queue: str, what: str) -> None:
    with pooled(endpoint, KEY) as first:
        if what == "sender":
            first.sender(queue, window=1)
        elif what == "receiver":
            first.receiver(queue)
        elif what == "peek":
            first.management(queue).begin_peek(1, 1)
        else:
            first.transaction().declare()
    assert not first.usable


def test_a_connection_that_idled_for_too_long_is_discarded(
    server: EmubusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = endpoint_of(server.amqp_port, idle_timeout_s=10.0)
    now_s = 1000.0
    monkeypatch.setattr(pool, "monotonic_s", lambda: now_s)
    with pooled(endpoint, KEY) as first:
        pass
    now_s = 1010.0
    with pooled(endpoint, KEY) as second:
        assert second is first
    now_s = 1020.1
    with pooled(endpoint, KEY) as third:
        assert third is not first
    assert not first.usable


def test_a_connection_that_was_lost_while_it_idled_is_not_given_out(server: EmubusServer, queue: str) -> None:
    with Proxy(server.amqp_port) as proxy:
        endpoint = endpoint_of(proxy.port)
        with pooled(endpoint, KEY) as first:
            first.management(queue).peek(1, 1)
        proxy.drop()
        with pooled(endpoint, KEY) as second:
            assert second is not first
            second.management(queue).peek(1, 1)
        assert (first.usable, proxy.connections) == (False, 2)


def test_only_so_many_connections_are_kept(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_MAX", 1)
    with pooled(endpoint, KEY) as first, pooled(endpoint, KEY) as second:
        pass
    assert sorted((first.usable, second.usable)) == [False, True]
    assert close_idle() == 1
    assert not first.usable
    assert not second.usable


def test_a_forked_process_has_connections_of_its_own(server: EmubusServer, queue: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", FORKED, str(server.amqp_port), queue],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_connection_of_another_process_is_refused(
    endpoint: Endpoint, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Connection(endpoint, KEY) as connection:
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda: -1)
            assert not connection.usable
            with pytest.raises(RuntimeError, match="of the process that made it"):
                connection.management(queue)
        assert connection.usable


def test_a_service_that_is_not_there_is_reported_by_the_pool(queue: str) -> None:
    with pytest.raises(ConnectorError, match="no connection to localhost:1:"), pooled(endpoint_of(1), KEY):
        raise AssertionError(queue)
