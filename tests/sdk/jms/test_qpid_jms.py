"""Scenarios of JMS 2.0 against a Premium namespace: both generations of Qpid JMS, and of the library of Service Bus.

One Java process for each client runs them all (`program/`), and tells how each has ended. The library finds no
queue and no topic: it makes them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, Self

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection

from emubus.broker.admin.jms import is_passing
from emubus.broker.keys import Right, SharedKey
from emubus.broker.model.profiles import Profile
from emubus.config import Auth
from emubus.testing import EmubusServer
from emubus.tls import FOLDER

from ...building import build
from ...crash.server import ServerProcess
from ...rounds import rounds
from ...toolchains import BRIEF_JAVA
from .prepare import BUILDS, jar

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

SCENARIOS: Final = (
    *("queue-selector", "two-selectors", "selector-and-redelivery", "bad-selector", "browser", "message-types"),
    *("foreign-messages", "headers", "anonymous-producer", "delivery-delay"),
    *("unshared-non-durable", "durable-resumes", "client-ids", "durable-is-exclusive", "durable-selector"),
    *("durable-changes-topic", "shared-against-unshared", "shared-durable", "shared-durable-of-a-client"),
    *("shared-non-durable", "unsubscribe", "no-local"),
    *("request-reply", "temporary-topic", "many-temporary-queues"),
    *("transaction", "delay-in-transaction", "dead-letter", "acknowledgements", "recover", "nothing-there"),
    *("wrong-key", "send-only-key", "auto-delete", "token", "expired-in-buffer", "standard", "partitioned"),
    *("detached-links", "killed"),
)
WITH_MESSAGES: Final = ("foreign-messages", "expired-in-buffer")
PAIRS: Final = [("qpid-jms-1", "library"), ("qpid-jms-2", "qpid"), ("qpid-jms-1", "qpid"), ("qpid-jms-2", "library")]
"""Generation and what finds destinations, each of them in the first two; a pair takes 15 s of processor time."""
SENDS: Final = SharedKey("Sends", "Sends", frozenset({Right.SEND}))
CONFIG_OF_KILLED: Final = (
    '{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", '
    '"Queues": [{"Name": "killed"}], "Topics": [{"Name": "killed-topic"}]}]}}'
)


@pytest.fixture(scope="module")
def others(tls_folder: Path) -> Iterator[list[EmubusServer]]:
    """Premium that verifies nothing, Standard, and Premium with partitions."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(EmubusServer(profile=profile, premium_partitions=count, tls_dir=tls_folder))
            for profile, count in ((Profile.PREMIUM, None), (Profile.STANDARD, None), (Profile.PREMIUM, 2))
        ]
        for server, name in zip(servers, ("token", "standard", "partitioned"), strict=True):
            server.create_queue(name)
        yield servers


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("jms_client", "kind"), rounds(PAIRS[:2], PAIRS))
def test_the_scenarios_of_jms_pass_and_only_what_is_durable_is_left(
    jms_client: str, kind: str, tls_folder: Path, trust: list[str], others: list[EmubusServer], tmp_path: Path
) -> None:
    build(f"the program of {jms_client}", BUILDS[jms_client])
    with (
        EmubusServer(profile=Profile.PREMIUM, auth=Auth.SAS, keys=[SENDS], tls_dir=tls_folder) as server,
        Killed(tmp_path, tls_folder) as killed,
    ):
        for name in SCENARIOS if kind == "qpid" else WITH_MESSAGES:
            server.create_queue(name)
            server.create_topic(f"{name}-topic")
        if kind == "qpid":
            server.create_topic("other-topic")
        send_foreign_messages(server)
        send_expired(server, "expired-in-buffer")
        addresses = [*(f"localhost:{each.amqp_port}" for each in (server, *others)), f"localhost:{killed.port}"]
        command = ("java", *BRIEF_JAVA, *trust, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-jar")
        doers: dict[str, Callable[[], None]] = {
            "detach": partial(detach, server, "detached-links"),
            "kill": killed.again,
        }
        ends = ends_of((*command, str(jar(jms_client)), kind, *addresses), doers)
        assert {name: end for name, end in ends.items() if end != "passed"} == {}
        assert [*ends] == [*SCENARIOS]
        assert idle_times(server, "auto-delete-made") == [600_000] * 3
        assert answer_to_foreign_messages(server) == b"from JMS"
        (expired,) = server.peek("expired-in-buffer")
        assert expired.state == "deferred"
        (deferred,) = server.peek("acknowledgements")
        assert deferred.state == "deferred"
        assert server.call(lambda: passing_entities(server)) == []


def ends_of(command: Sequence[str], doers: Mapping[str, Callable[[], None]]) -> dict[str, str]:
    """Run a program, and do what it asks for; how its scenarios ended, by name in their order."""
    ends: dict[str, str] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            for line in program.stdout:
                name, is_end, end = line.rstrip("\n").partition(": ")
                if is_end:
                    ends[name] = end.replace("\\n", "\n")
                else:
                    doers[name]()
                    program.stdin.write("done\n")
                    program.stdin.flush()
        finally:
            program.kill()
    return ends


def detach(server: EmubusServer, name: str) -> None:
    """Detach every link of the entities of a scenario."""
    for entity in server.call(lambda: [each.path for each in server.server.broker.namespace.entities()]):
        if entity.startswith(name):
            server.drop_links(entity)


def idle_times(server: EmubusServer, name: str) -> list[int | None]:
    """AutoDeleteOnIdle of a scenario's entities, in ms."""
    entities = server.call(server.server.broker.namespace.entities)
    return [each.description.auto_delete_on_idle_ms for each in entities if each.path.startswith(name)]


class Killed:
    """A server in a process of its own, that is killed and started again with its data and port."""

    def __init__(self, folder: Path, tls_folder: Path) -> None:
        self._data = folder / "data"
        shutil.copytree(tls_folder / FOLDER, self._data / FOLDER)
        self._server = self._started("0")
        self.port = self._server.port

    def _started(self, port: str) -> ServerProcess:
        options = ("--profile", "premium", "--tls", "dev", "--amqp-port", port)
        return ServerProcess(self._data, *options, config=CONFIG_OF_KILLED)

    def again(self) -> None:
        self._server.kill()
        self._server = self._started(str(self.port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()


def send_foreign_messages(server: EmubusServer) -> None:
    """Text without a content type, JSON, and bytes, as another SDK sends them."""
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("foreign-messages") as sender,
    ):
        sender.send_messages(ServiceBusMessage("text"))
        sender.send_messages(ServiceBusMessage("{}", content_type="application/json"))
        sender.send_messages(ServiceBusMessage(b"\x00\x01\x02\xff"))


def answer_to_foreign_messages(server: EmubusServer) -> object:
    """What a JMS client has sent, as another SDK reads it."""
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("foreign-messages") as receiver,
    ):
        (message,) = receiver.receive_messages(max_wait_time=60)
        return message.raw_amqp_message.body


def send_expired(server: EmubusServer, queue: str) -> None:
    """A message that has expired for its receiver, but not for the broker; and one that stays."""
    url = f"amqp://localhost:{server.amqp_port}"
    connection = BlockingConnection(url, user="RootManageSharedAccessKey", password="SAS_KEY_VALUE", timeout=60)
    sender = connection.create_sender(queue)
    sender.send(ProtonMessage("expired", expiry_time=1.0))
    sender.send(ProtonMessage("stays"))
    connection.close()


def passing_entities(server: EmubusServer) -> list[str]:
    """The temporary destinations, and the subscriptions that are not durable."""
    return [entity.path for entity in server.server.broker.namespace.entities() if is_passing(entity.description)]
