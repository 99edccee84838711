"""Forwarding that administration clients ask for: it takes effect wherever in the description its element stands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emubus.broker.api import DeadLetter
from emubus.broker.model.profiles import LIMITS, Profile
from emubus.config_file.cursor import ConfigFileError
from emubus.config_file.reading import parse_config
from emubus.server import Server

from ..broker.driving import encoded
from ..broker.namespace import Receiver, loop_turns, send
from .administering import Raw, entry, raw, running

FORWARD = "<ForwardTo>target</ForwardTo>"
FORWARD_DEAD = "<ForwardDeadLetteredMessagesTo>graves</ForwardDeadLetteredMessagesTo>"
EXPRESS, SESSION = "<EnableExpress>false</EnableExpress>", "<RequiresSession>false</RequiresSession>"
SIZE = "<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>"
ORDERS = {
    "the service's": "{session}{forward}{dead}{express}{size}",
    "Python's": "{session}{express}{forward}<UserMetadata>m</UserMetadata>{dead}",
    "at the end": "{session}{express}{size}{dead}{forward}",
    "at the beginning": "{dead}{forward}{session}{express}{size}",
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path) as server:
        yield server


@pytest.fixture
async def http(server: Server) -> AsyncIterator[Raw]:
    async with raw(server) as client:
        for name in ("target", "graves"):
            await client.put(f"/{name}", "<QueueDescription/>")
        yield client


def described(order: str, *, forward: str, dead: str) -> str:
    inside = ORDERS[order].format(session=SESSION, express=EXPRESS, size=SIZE, forward=forward, dead=dead)
    return f"<QueueDescription>{inside}</QueueDescription>"


@pytest.mark.parametrize("update", [False, True], ids=["created", "updated"])
@pytest.mark.parametrize("order", list(ORDERS))
async def test_messages_are_forwarded_wherever_the_element_stands(
    http: Raw, server: Server, order: str, update: bool
) -> None:
    if update:
        await http.put("/q", "<QueueDescription/>")
    answer = await http.put("/q", described(order, forward=FORWARD, dead=FORWARD_DEAD), update=update)
    assert (answer.status, answer.elements["ForwardTo"]) == (200 if update else 201, "target")
    await send(server.broker, "q", encoded("x"))
    assert await arrived(server, "target") == 1


@pytest.mark.parametrize("order", list(ORDERS))
async def test_dead_letters_are_forwarded_wherever_the_element_stands(http: Raw, server: Server, order: str) -> None:
    answer = await http.put("/q", described(order, forward="", dead=FORWARD_DEAD))
    assert (answer.status, answer.elements["ForwardDeadLetteredMessagesTo"]) == (201, "graves")
    await send(server.broker, "q", encoded("x"))
    receiver = Receiver(server.broker, "q")
    (message,) = await receiver.receive(1)
    await server.broker.messages.settle("q", [message.token], DeadLetter())
    assert await arrived(server, "graves") == 1


async def arrived(server: Server, queue: str) -> int:
    """How many messages a queue has, once the first has come."""
    (_,) = await Receiver(server.broker, queue).receive(1)
    await loop_turns(20)
    return len(await server.broker.messages.peek(queue, 0, 10, 1 << 20))


@pytest.mark.parametrize("element", ["ForwardTo", "ForwardDeadLetteredMessagesTo"])
@pytest.mark.parametrize("kind", ["Queue", "Subscription"])
async def test_a_target_of_another_namespace_is_refused_and_one_of_this_server_taken(
    http: Raw, element: str, kind: str
) -> None:
    await http.put("/t", "<TopicDescription/>")
    path = "/q" if kind == "Queue" else "/t/subscriptions/s"
    for host in ("another-company.servicebus.windows.net", "other.servicebus.chinacloudapi.cn", "example.com:443"):
        given = f"<{kind}Description><{element}>sb://{host}/target</{element}></{kind}Description>"
        refused = await http.put(path, given)
        what = "auto forwarding" if element == "ForwardTo" else "dead letter forwarding"
        expected = f"SubCode=40400. The {what} destination entity 'sb://{host}/target' does not exist. It is in another"
        assert (refused.status, refused.detail[: len(expected)]) == (400, expected)
    ours = ("localhost:1", "127.0.0.1", "[::1]:5300", "emubus", "SBemulatorNS.servicebus.windows.net", http.authority)
    for host in (*ours, "host.docker.internal", "sbemulatorns.servicebus.usgovcloudapi.net"):
        given = f"<{kind}Description><{element}>sb://{host}/target</{element}></{kind}Description>"
        assert (await http.put(path, given)).status == 201, host
        assert (await http.put(path, given, update=True)).status == 200
        assert (await http("DELETE", path)).status == 200


async def test_the_name_that_a_request_uses_is_this_servers(http: Raw) -> None:
    given = "<QueueDescription><ForwardTo>sb://mine.servicebus.windows.net/target</ForwardTo></QueueDescription>"
    assert (await http("PUT", "/q", entry(given), Host="mine.servicebus.windows.net")).status == 201


async def test_a_target_that_does_not_exist_is_a_bad_request_with_the_sub_code_of_what_is_missing(http: Raw) -> None:
    """As in azure-service-bus 203."""
    for element, what in (("ForwardTo", "auto"), ("ForwardDeadLetteredMessagesTo", "dead letter")):
        refused = await http.put("/q", f"<QueueDescription><{element}>none</{element}></QueueDescription>")
        expected = f"SubCode=40400. The {what} forwarding destination entity 'none' does not exist."
        assert (refused.status, refused.root.findtext("Code")) == (400, "400")
        assert refused.detail.startswith(expected)


JSON = {"Content_Type": "application/json"}
ELSEWHERE = "sb://another-company.servicebus.windows.net/target"


async def test_the_control_api_refuses_another_namespace_in_the_same_words(http: Raw, server: Server) -> None:
    properties = {"forward_dead_letters_to": ELSEWHERE}
    body = json.dumps({"kind": "queue", "properties": properties})
    created = await http("PUT", "/emubus/v1/entities/q", body, version=None, **JSON)
    await http.put("/q", "<QueueDescription/>")
    updated = await http("PATCH", "/emubus/v1/entities/q/properties", json.dumps(properties), version=None, **JSON)
    for refused in (created, updated):
        assert refused.status == 400, refused.text
        assert (
            f"dead letter forwarding destination entity '{ELSEWHERE}' does not exist. It is in another" in refused.text
        )
    entity = server.broker.namespace.entity("q")
    assert entity is not None
    assert getattr(entity.description, "forward_dead_letters_to", 0) is None


async def test_a_target_that_an_entity_has_already_may_stay(http: Raw) -> None:
    given = "<QueueDescription><ForwardTo>sb://mine.example.com/target</ForwardTo></QueueDescription>"
    assert (await http("PUT", "/q", entry(given), Host="mine.example.com")).status == 201
    assert (await http.put("/q", given, update=True)).status == 200
    other = given.replace("mine.", "other.")
    assert (await http.put("/q", other, update=True)).status == 400


def config_of(target: str, namespace: str) -> str:
    queues = [{"Name": "target", "Properties": {}}, {"Name": "q", "Properties": {"ForwardTo": target}}]
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": namespace, "Queues": queues, "Topics": []}]}})


@pytest.mark.parametrize(
    "host", ["another-company.servicebus.windows.net", "example.com", "a.servicebus.usgovcloudapi.net"]
)
def test_a_configuration_file_names_no_other_namespace(host: str) -> None:
    expected = f'Queues\\[1\\].Properties.ForwardTo is "sb://{host}/target", an address of another namespace than "ns"'
    with pytest.raises(ConfigFileError, match=expected):
        parse_config(config_of(f"sb://{host}/target", "ns"), LIMITS[Profile.STANDARD])


@pytest.mark.parametrize(
    "host", ["NS.servicebus.windows.net", "sbemulatorns.servicebus.windows.net", "localhost:5672", "emubus", "10.1.2.3"]
)
def test_a_configuration_file_names_its_own_namespace_by_any_host(host: str) -> None:
    target = f"sb://{host}/target"
    topology = parse_config(config_of(target, "ns"), LIMITS[Profile.STANDARD]).topology
    assert {each.name: each.forward_to for each in topology.queues} == {"target": None, "q": target}


async def test_an_imported_file_may_name_the_namespace_that_it_has(http: Raw, server: Server) -> None:
    text = config_of("sb://prod.servicebus.windows.net/target", "prod")
    answer = await http("POST", "/emubus/v1/config", text, version=None, **JSON)
    assert answer.status == 200, answer.text
    entity = server.broker.namespace.entity("q")
    assert entity is not None
    assert getattr(entity.description, "forward_to", 0) == "sb://prod.servicebus.windows.net/target"
