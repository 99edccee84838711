"""Servers of one process have a thread each, and share nothing that one of them changes during a call.

One buffer for the output of all connections let a server write frames of another: Proton's calls let other threads run
before what they have copied is read. Clients waited for answers that never came, on busy machines most often.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from cproton_ffi import ffi

from emubus.amqp.wire.buffers import Buffers, buffers
from emubus.kit.in_process import EmubusServer
from tests.broker.test_caches import modules

SERVERS = 3
MESSAGES = 1_000
"""Of each client. With one buffer for all servers a client got no answer in each of five runs."""
ANSWER_S = 60
SWITCH_S = 1e-6
"""Threads change places at each chance, as on a busy machine."""


def test_no_module_keeps_a_buffer_that_all_threads_use() -> None:
    kept = {
        f"{name}.{key}"
        for name in modules()
        for key, value in vars(importlib.import_module(name)).items()
        if isinstance(value, bytearray | memoryview | ffi.buffer) or _is_owned(value)
    }
    assert kept == set()


def _is_owned(value: Any) -> bool:
    """Whether a value has memory of C, instead of pointing to some."""
    return isinstance(value, ffi.CData) and "owning" in repr(value)


def test_each_thread_has_its_own_buffers() -> None:
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(lambda: dict(vars(buffers))).result()
    ours = vars(buffers)
    assert set(ours) == set(theirs) == set(vars(Buffers()))
    assert [name for name in ours if ours[name] is theirs[name]] == []


@pytest.fixture
def busy_threads() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("busy_threads")
def test_clients_of_servers_in_one_process_get_their_own_answers() -> None:
    servers = [EmubusServer() for _ in range(SERVERS)]
    try:
        for server in servers:
            server.create_queue("q")
        with ThreadPoolExecutor(SERVERS) as clients:
            list(clients.map(_send_and_receive, servers, range(SERVERS)))
    finally:
        for server in servers:
            server.close()


def _send_and_receive(server: EmubusServer, number: int) -> None:
    """Send and receive messages one by one."""
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("q") as sender,
        client.get_queue_receiver("q") as receiver,
    ):
        for count in range(MESSAGES):
            text = f"message {count} of server {number}"
            sender.send_messages(ServiceBusMessage(text), timeout=ANSWER_S)
            (message,) = receiver.receive_messages(1, max_wait_time=ANSWER_S)
            assert str(message) == text
            receiver.complete_message(message)
