"""Least privilege: which identity, by its role on an entity or on all, may do what, over which face.

The table is generated from roles, scopes, entities and operations; what is expected comes from the right that an
operation needs (docs: service-bus-managed-service-identity), not from the code under test. Tokens come from
the server's own endpoint, over AMQP through the Python SDK.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue, TransportType
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError

from emubus.amqp.nodes.management import management_answer
from emubus.amqp.nodes.requests import ReplyRoom
from emubus.amqp.nodes.requests import Request as NodeRequest
from emubus.amqp.past_links import PastLinks
from emubus.broker.access import Access, Need
from emubus.broker.claims import Claims
from emubus.broker.clock import Clock
from emubus.broker.roles import Roles
from emubus.broker.tokens import Identity as Named
from emubus.broker.tokens import Issuer
from emubus.testing import (
    Auth,
    EmubusServer,
    QueueDescription,
    Right,
    Role,
    RoleAssignment,
    SubscriptionDescription,
    TopicDescription,
)

from ..amqp.jms_client import JmsClient, premium_broker
from ..amqp.wire import Frame
from ..http.administering import entry
from .test_rights import NODE_RIGHTS, refusal

WAIT_S = 60.0
RESOURCE = "https://servicebus.azure.net"
GIVES = {
    "sender": {Right.SEND},
    "receiver": {Right.LISTEN},
    "owner": {Right.SEND, Right.LISTEN, Right.MANAGE},
    "contributor": set[Right](),
}
SCOPES = {"": ("q", "q2", "t", "t/s", "t/s2"), "q": ("q",), "t": ("t", "t/s", "t/s2"), "t/s": ("t/s",)}
"""Where a role is assigned, and the entities that it opens; `t/s` is a subscription of the topic `t`."""
ENTITIES = (
    QueueDescription("q"),
    QueueDescription("q2"),
    TopicDescription("t"),
    SubscriptionDescription("t", "s"),
    SubscriptionDescription("t", "s2"),
)


@dataclass(frozen=True)
class Identity:
    """A client id with at most one role."""

    role: str | None
    scope: str = ""

    @property
    def client_id(self) -> str:
        return f"{self.role}-of-{self.scope.replace('/', '-') or 'all'}" if self.role else "nobody"

    def may(self, right: Right, entity: str) -> bool:
        """`entity` "" is the namespace."""
        opened = self.role is not None and (self.scope == "" or entity in SCOPES[self.scope])
        return opened and bool(GIVES[self.role or ""] & {right, Right.MANAGE})


IDENTITIES = (
    *(Identity(None), Identity("contributor")),
    *(Identity(role, scope) for role in GIVES if GIVES[role] for scope in SCOPES),
)
assert {each.short for each in Role} == set(GIVES)


def path_of(entity: str) -> str:
    topic, _, name = entity.partition("/")
    return f"{topic}/subscriptions/{name}" if name else entity


def assignments() -> list[RoleAssignment]:
    return [RoleAssignment.parse(each.client_id, each.role, path_of(each.scope)) for each in IDENTITIES if each.role]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmubusServer]:
    folder = tmp_path_factory.mktemp("tls")
    with EmubusServer(ENTITIES, auth=Auth.RBAC, roles=assignments(), tls_dir=folder) as running:
        yield running


def token_of(server: EmubusServer, client_id: str, resource: str = RESOURCE) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=WAIT_S)
    query = urlencode({"resource": resource, "client_id": client_id, "api-version": "2019-08-01"})
    connection.request("GET", f"/msi/token?{query}", headers={"X-IDENTITY-HEADER": "any"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return str(answer["access_token"])


# ---- HTTP


class Over:
    """One identity over HTTP."""

    def __init__(self, server: EmubusServer, identity: Identity) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=WAIT_S)
        self._headers = {"Authorization": f"Bearer {token_of(server, identity.client_id)}"}

    def __call__(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str]:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, body, {**self._headers, **more})
        answer = self._connection.getresponse()
        return answer.status, answer.read().decode()

    def close(self) -> None:
        self._connection.close()


Ask = Callable[[Over, str], tuple[int, str]]


def changed(over: Over, entity: str) -> tuple[int, str]:
    kind = "Subscription" if "/" in entity else "Topic" if entity == "t" else "Queue"
    return over("PUT", f"/{path_of(entity)}", entry(f"<{kind}Description/>"), If_Match="*")


HTTP: dict[str, tuple[Right, str, Ask]] = {
    # operation: the right that it needs, the entities that have it, how it is asked for
    "rest send": (Right.SEND, "q q2 t", lambda over, entity: over("POST", f"/{entity}/messages", "m")),
    "rest receive and delete": (
        Right.LISTEN,
        "q q2 t/s t/s2",
        lambda over, entity: over("DELETE", f"/{path_of(entity)}/messages/head?timeout=0"),
    ),
    "rest peek-lock": (
        Right.LISTEN,
        "q q2 t/s t/s2",
        lambda over, entity: over("POST", f"/{path_of(entity)}/messages/head?timeout=0"),
    ),
    "atom read": (Right.MANAGE, "q q2 t t/s t/s2", lambda over, entity: over("GET", f"/{path_of(entity)}")),
    "atom change": (Right.MANAGE, "q q2 t t/s t/s2", changed),
    "atom rules": (Right.MANAGE, "t/s t/s2", lambda over, entity: over("GET", f"/{path_of(entity)}/rules")),
    "atom list of subscriptions": (Right.MANAGE, "t", lambda over, entity: over("GET", f"/{entity}/subscriptions")),
    "atom list": (Right.MANAGE, "-", lambda over, _: over("GET", "/$Resources/queues")),
    "atom namespace": (Right.MANAGE, "-", lambda over, _: over("GET", "/$namespaceinfo")),
    "control": (Right.MANAGE, "-", lambda over, _: over("GET", "/emubus/v1/roles")),
    "metrics": (Right.MANAGE, "-", lambda over, _: over("GET", "/metrics")),
}
"""`-` is the namespace."""


@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda each: each.client_id)
def test_over_http_an_identity_may_do_what_its_role_gives(server: EmubusServer, identity: Identity) -> None:
    over = Over(server, identity)
    wrong = []
    for name, (right, entities, ask) in HTTP.items():
        for entity in entities.replace("-", " ").split() or [""]:
            status, text = ask(over, entity)
            expected = identity.may(right, entity)
            if (status == 401) is expected or status >= 500 or (expected and status not in (200, 201, 204)):
                wrong.append((name, entity, status, text[:200]))
            if not expected and name.startswith("rest"):
                resource = f"sb://sbemulatorns.servicebus.windows.net/{path_of(entity)}"
                words = f"Unauthorized access. '{right}' claim(s) are required to perform this operation. Resource: "
                assert f"{words}'{resource}'." in text, (name, text)
    over.close()
    assert wrong == []


# ---- AMQP


@dataclass
class Credential:
    """Gets its tokens as `ManagedIdentityCredential` does."""

    server: EmubusServer
    client_id: str
    asked: list[str] = field(default_factory=list[str])

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.asked += scopes
        token = token_of(self.server, self.client_id, scopes[0].removesuffix("/.default"))
        return AccessToken(token, Clock().now_ms() // 1000 + 3600)


def client_of(server: EmubusServer, client_id: str, transport: TransportType) -> ServiceBusClient:
    return ServiceBusClient(
        "localhost",
        Credential(server, client_id),
        transport_type=transport,
        custom_endpoint_address=f"sb://localhost:{server.amqp_port}",
        connection_verify=str(server.ca_file),
        retry_total=0,
        keep_alive=0,  # its thread takes up to a second to end
    )


def receiver_of(client: ServiceBusClient, entity: str) -> Any:
    topic, _, name = entity.partition("/")
    return client.get_subscription_receiver(topic, name) if name else client.get_queue_receiver(entity)


def sender_of(client: ServiceBusClient, entity: str) -> Any:
    return client.get_topic_sender(entity) if entity == "t" else client.get_queue_sender(entity)


def send(client: ServiceBusClient, entity: str) -> None:
    with sender_of(client, entity) as sender:
        sender.send_messages(ServiceBusMessage("m"))


def receive(client: ServiceBusClient, entity: str) -> None:
    with receiver_of(client, entity):  # attaches the link
        pass


def peek(client: ServiceBusClient, entity: str) -> None:
    with receiver_of(client, entity) as receiver:
        receiver.peek_messages()


def schedule(client: ServiceBusClient, entity: str) -> None:
    with sender_of(client, entity) as sender:
        numbers = sender.schedule_messages(ServiceBusMessage("m"), datetime.now(UTC) + timedelta(days=1))
        sender.cancel_scheduled_messages(numbers)


def dead_letters(client: ServiceBusClient, entity: str) -> None:
    topic, _, name = entity.partition("/")
    made = (
        client.get_subscription_receiver(topic, name, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        if name
        else client.get_queue_receiver(entity, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    )
    with made:
        pass


AMQP: dict[str, tuple[Right, str, Callable[[ServiceBusClient, str], None]]] = {
    "send": (Right.SEND, "q q2 t", send),
    "receive": (Right.LISTEN, "q q2 t/s t/s2", receive),
    "schedule and cancel": (Right.SEND, "q t", schedule),
    "peek": (Right.LISTEN, "q t/s", peek),
    "receive dead letters": (Right.LISTEN, "q t/s", dead_letters),
}


OVER_SDK = tuple(each for each in IDENTITIES if each.scope == "q" or each.role is None)
"""A refusal costs the SDK a second, since it waits for a thread of its own; the rest of the table is asked below."""


@pytest.mark.parametrize("transport", TransportType, ids=lambda each: each.name)
@pytest.mark.parametrize("identity", OVER_SDK, ids=lambda each: each.client_id)
def test_over_amqp_and_websocket_an_identity_may_do_what_its_role_gives(
    server: EmubusServer, identity: Identity, transport: TransportType
) -> None:
    wrong = []
    entity = identity.scope or "q"
    with client_of(server, identity.client_id, transport) as client:
        for name, (right, entities, act) in AMQP.items():
            if entity not in entities.split():
                continue
            expected, told = identity.may(right, entity), ""
            try:
                act(client, entity)
            except (ServiceBusAuthenticationError, ServiceBusAuthorizationError) as error:
                told = str(error)
            if (told == "") is not expected:
                wrong.append((name, entity, told))
            if told and f"'{right}' claim(s) are required to perform this operation. Resource: 'sb://" not in told:
                wrong.append((name, entity, told))
    assert wrong == []


ATTACHES: dict[str, tuple[Right, str, Callable[[JmsClient, str], list[Frame]]]] = {
    "sender": (Right.SEND, "q q2 t", lambda client, path: client.wire.attach_sender(path)),
    "receiver": (Right.LISTEN, "q q2 t/s t/s2", lambda client, path: client.wire.attach_receiver(path)),
    "receiver of dead letters": (
        Right.LISTEN,
        "q q2 t/s t/s2",
        lambda client, path: client.wire.attach_receiver(f"{path}/$DeadLetterQueue"),
    ),
}


async def test_every_identity_may_attach_what_its_role_gives() -> None:
    issuer = Issuer()
    issuer.prepare()
    access = Access(verify=True, issuer=issuer, roles=Roles(assignments()))
    wrong: list[object] = []
    async with premium_broker() as broker:
        for each in ENTITIES:
            if broker.namespace.entity(path_of(each.name)) is None or isinstance(each, SubscriptionDescription):
                broker.administration.create(each)
        for identity in IDENTITIES:
            token = issuer.issue(Named.of_client(identity.client_id), RESOURCE, broker.clock.now_ms() // 1000, 60)
            for name, (right, entities, attach) in ATTACHES.items():
                for entity in entities.split():
                    client = JmsClient(broker, access=access)
                    claims = client.wire.server.context.claims
                    claims.keep(claims.claim_of(token, f"sb://localhost/{path_of(entity)}"))
                    told = refusal(attach(client, path_of(entity)))
                    client.wire.lose()
                    if (told is None) is not identity.may(right, entity):
                        wrong.append((identity, name, entity, told))
                    if told is not None:
                        assert told[0] == "amqp:unauthorized-access", told
                        assert told[1].startswith(f"Unauthorized access. '{right}' claim(s) are required"), told
    assert wrong == []


# ---- $management


async def test_on_management_an_identity_may_do_what_its_role_gives() -> None:
    issuer = Issuer()
    issuer.prepare()
    access = Access(verify=True, issuer=issuer, roles=Roles(assignments()))
    wrong: list[object] = []
    async with premium_broker() as broker:
        tracker = JmsClient(broker).wire.server.context.tracker
        for identity in IDENTITIES:
            now_s = broker.clock.now_ms() // 1000
            token = issuer.issue(Named.of_client(identity.client_id), RESOURCE, now_s, 60)
            for entity in SCOPES[""]:
                claims = Claims(access, broker.clock, 10, lambda: None, lambda _: None)
                address = f"sb://localhost/{path_of(entity)}"
                claims.keep(claims.claim_of(token, address))

                def require(right: Right, claims: Claims = claims, address: str = address) -> None:
                    claims.require(Need(address, (right,)))

                answer = management_answer(broker, path_of(entity), require, tracker, PastLinks())
                for right, names in NODE_RIGHTS.items():
                    for name in sorted(names):
                        request = NodeRequest(properties={"operation": name})
                        response = await answer(request, ReplyRoom(1 << 20, nullcontext))
                        assert response is not None
                        is_refused = response.properties["statusCode"] == 401
                        if is_refused is identity.may(right, entity):
                            wrong.append((identity, entity, name, response.properties))
                claims.close()
    assert wrong == []


# ---- as roles change


def test_a_role_counts_from_when_it_is_assigned_until_it_is_taken_away(server: EmubusServer) -> None:
    with client_of(server, "late", TransportType.Amqp) as client:
        with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
            send(client, "q")
        server.assign_role("late", "sender", "q")
        with sender_of(client, "q") as sender:
            sender.send_messages(ServiceBusMessage("m"))
            server.remove_role("late", "sender", "q")
            with pytest.raises(ServiceBusError):  # the link was detached
                sender.send_messages(ServiceBusMessage("m"))
        with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
            send(client, "q")
