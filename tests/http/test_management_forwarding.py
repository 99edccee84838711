"""Forwarding that administration clients ask for: it takes effect wherever in the description its element stands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emubus.broker.api import DeadLetter
from emubus.broker.model.profiles import LIMITS, Profile
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
    await server.broker.settle("q", [message.token], DeadLetter())
    assert await arrived(server, "graves") == 1


async def arrived(server: Server, queue: str) -> int:
    """How many messages a queue has, once the first has come."""
    (_,) = await Receiver(server.broker, queue).receive(1)
    await loop_turns(20)
    return len(await server.broker.peek(queue, 0, 10, 1 << 20))


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


def test_a_configuration_file_may_name_any_host() -> None:
    elsewhere = "sb://another-company.servicebus.windows.net/target"
    queues = [{"Name": "target", "Properties": {}}, {"Name": "q", "Properties": {"ForwardTo": elsewhere}}]
    text = json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": queues, "Topics": []}]}})
    found = {each.name: each.forward_to for each in parse_config(text, LIMITS[Profile.STANDARD]).topology.queues}
    assert found == {"target": None, "q": elsewhere}
