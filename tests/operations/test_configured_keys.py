"""Keys of a Config.json and of the test kit, for the namespace and for entities, as a real client shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError

from emubus.broker.keys import Right, SharedKey
from emubus.testing import Auth, EmubusServer

WAIT_S = 20
NAMES = ("q", "other", "t")


@dataclass(frozen=True)
class Key:
    """A key: the entity that it is configured for (`""`: the namespace), its right, and whether the file has it."""

    scope: str
    right: str
    is_of_file: bool

    @property
    def name(self) -> str:
        return f"{'file' if self.is_of_file else 'kit'}-{self.scope or 'all'}-{self.right}".lower()

    @property
    def secret(self) -> str:
        return f"secret-of-{self.name}"

    def opens(self, entity: str, right: str) -> bool:
        return self.scope in ("", entity) and right == self.right

    @property
    def rule(self) -> dict[str, object]:
        return {"KeyName": self.name, "Rights": [self.right], "PrimaryKey": self.secret}

    @property
    def shared(self) -> SharedKey:
        return SharedKey(self.name, self.secret, frozenset({Right(self.right)}), scope=self.scope or None)


KEYS = tuple(
    Key(scope, right, is_of_file)
    for scope in ("", "q", "t")
    for right in ("Send", "Listen")
    for is_of_file in (True, False)
)


def config() -> dict[str, object]:
    def rules(scope: str) -> list[dict[str, object]]:
        return [each.rule for each in KEYS if each.is_of_file and each.scope == scope]

    queues = [{"Name": each, "Properties": {"AuthorizationRules": rules(each)}} for each in ("q", "other")]
    topic = {"Name": "t", "Properties": {"AuthorizationRules": rules("t")}, "Subscriptions": [{"Name": "s"}]}
    namespace = {"Name": "ns", "AuthorizationRules": rules(""), "Queues": queues, "Topics": [topic]}
    return {"UserConfig": {"Namespaces": [namespace]}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmubusServer]:
    path = tmp_path_factory.mktemp("keys") / "Config.json"
    path.write_text(json.dumps(config()))
    others = [each.shared for each in KEYS if not each.is_of_file]
    with EmubusServer(config_file=path, auth=Auth.SAS, keys=others) as running:
        with ServiceBusClient.from_connection_string(running.connection_string) as client:
            for entity in NAMES:
                with sender_of(client, entity) as sender:  # a message for each key that may listen
                    sender.send_messages([ServiceBusMessage("there") for _ in KEYS])
        yield running


def receiver_of(client: ServiceBusClient, entity: str) -> ServiceBusReceiver:
    if entity == "t":
        return client.get_subscription_receiver("t", "s", max_wait_time=WAIT_S)
    return client.get_queue_receiver(entity, max_wait_time=WAIT_S)


def sender_of(client: ServiceBusClient, entity: str) -> ServiceBusSender:
    return client.get_topic_sender(entity) if entity == "t" else client.get_queue_sender(entity)


def send(client: ServiceBusClient, entity: str) -> None:
    with sender_of(client, entity) as sender:
        sender.send_messages(ServiceBusMessage("m"))


def receive(client: ServiceBusClient, entity: str) -> None:
    with receiver_of(client, entity) as receiver:
        (message,) = receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
        receiver.renew_message_lock(message)
        receiver.complete_message(message)
        receiver.peek_messages()


ACTS = {"Send": send, "Listen": receive}
REFUSED = {"Send": "other", "Listen": ""}
"""Where a refusal is asked for: it costs the SDK a second."""


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_a_configured_key_opens_what_it_is_configured_for(server: EmubusServer, key: Key) -> None:
    string = (
        f"Endpoint=sb://localhost:{server.amqp_port};SharedAccessKeyName={key.name};"
        f"SharedAccessKey={key.secret};UseDevelopmentEmulator=true;"
    )
    wrong: list[object] = []
    with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
        for right, act in ACTS.items():
            for entity in NAMES:
                expected, told = key.opens(entity, right), ""
                if not expected and entity != REFUSED[right]:
                    continue
                try:
                    act(client, entity)
                except (ServiceBusAuthenticationError, ServiceBusAuthorizationError) as error:
                    told = str(error)
                if (told == "") is not expected:
                    wrong.append((right, entity, told))
    assert wrong == []
