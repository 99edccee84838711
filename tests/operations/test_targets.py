"""What an entity forwards to, by creation and update, over each face: the same is refused, and changes nothing."""

from __future__ import annotations

import html
import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from emubus.broker.errors import BrokerError
from emubus.broker.model.catalog import Description, path_of
from emubus.broker.model.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    with_fields,
)
from emubus.broker.model.profiles import LIMITS, Profile, defaults_of
from emubus.testing import EmubusServer, RemoteEmubus
from emubus.web.page.entity_fields import field_values

from ..commands.conftest import CommandLine
from ..http.administering import entry
from ..http.arm.client import ROOT, Arm

CHAIN = tuple(QueueDescription(f"c{n}", forward_to=f"c{n + 1}" if n < 6 else None) for n in range(7))
WORLD: tuple[Description, ...] = (
    *CHAIN,
    QueueDescription("sessions", requires_session=True),
    QueueDescription("old"),
    TopicDescription("t"),
    SubscriptionDescription("t", "s"),
    SubscriptionDescription("t", "old"),
)
CONFIGURED = f"{ROOT}/resourceGroups/emubus/providers/Microsoft.ServiceBus/namespaces/sbemulatorns"
WAYS = {"ForwardTo": "forward_to", "ForwardDeadLetteredMessagesTo": "forward_dead_letters_to"}
WORDS = {"ForwardTo": "auto forwarding", "ForwardDeadLetteredMessagesTo": "dead letter forwarding"}
MISSING = "The {way} destination entity '{target}' does not exist."
REFUSED = {
    "what is not there": ("nowhere", MISSING),
    "a subscription": ("t/Subscriptions/s", MISSING),
    "a dead-letter queue": ("c1/$DeadLetterQueue", MISSING),
}
TAKEN = {"a queue": "c6", "a topic": "t", "a queue with sessions": "sessions", "the head of six hops": "c0"}
"""The fifth hop is refused for a message, not for an entity [SB: service-bus-auto-forwarding]. .NET's sample 21 has a
target with sessions."""


class World:
    """A server, and each face's way to ask for a target: the text of the refusal, "" if it is taken."""

    def __init__(self, server: EmubusServer, cli: CommandLine, folder: Path) -> None:
        self.server = server
        self.cli = cli
        self.folder = folder

    def http(self, method: str, path: str, body: str, **headers: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port, timeout=60)
        own = {"Origin": f"http://127.0.0.1:{self.server.http_port}", "Accept": "text/html"}
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body.encode(), own)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status < 500, text
        return html.unescape(text) if answer.status >= 400 else ""

    def atom(self, description: Description, name: str, target: str, is_new: bool) -> str:
        kind = f"{description.kind.value.capitalize()}Description"
        body = entry(f"<{kind}><{name}>{target}</{name}></{kind}>")
        more = {} if is_new else {"If_Match": "*"}
        return self.http("PUT", f"/{quote(path_of(description))}", body, Content_Type="application/atom+xml", **more)

    def control(self, description: Description, name: str, target: str, is_new: bool) -> str:
        values = {WAYS[name]: target}
        body: dict[str, object] = {"kind": description.kind.value, "properties": values} if is_new else {**values}
        path = f"/emubus/v1/entities/{quote(path_of(description), safe='')}{'' if is_new else '/properties'}"
        return self.http("PUT" if is_new else "PATCH", path, json.dumps(body), Content_Type="application/json")

    def page(self, description: Description, name: str, target: str, is_new: bool) -> str:
        described = with_fields(description, {WAYS[name]: target})
        values = {field: "yes" if value is True else value for field, value in field_values(described).items() if value}
        own: dict[str, object] = {"path": path_of(description)}
        if is_new:
            own = {"kind": description.kind.value, "name": path_of(description)}
        if is_new and isinstance(description, SubscriptionDescription):
            own |= {"name": description.name, "topic": description.topic_name}
        form = urlencode({**values, **own})
        path = f"/emubus/page/{'create' if is_new else 'edit'}"
        return self.http("POST", path, form, Content_Type="application/x-www-form-urlencoded")

    def command(self, description: Description, name: str, target: str, is_new: bool) -> str:
        verb = ("create", description.kind.value) if is_new else ("update",)
        url = f"--url=http://127.0.0.1:{self.server.http_port}"
        ended = self.cli(*verb, path_of(description), f"--set={name}={target}", url)
        assert (ended.code == 0) is not bool(ended.err), ended
        return ended.err

    def arm(self, description: Description, name: str, target: str, _is_new: bool) -> str:
        with Arm(self.server.http_port) as client:
            body = {"properties": {f"{name[0].lower()}{name[1:]}": target}}
            status, answer = client("PUT", f"{CONFIGURED}/{resource(description, '/')}", body)
        return json.dumps(answer) if status >= 400 else ""

    def template(self, description: Description, name: str, target: str, _is_new: bool) -> str:
        queue = isinstance(description, QueueDescription)
        kind = "queues" if queue else "topics/subscriptions"
        declared = {
            "type": f"Microsoft.ServiceBus/namespaces/{kind}",
            "apiVersion": "2021-11-01",
            "name": "/".join(("ns", *path_of(description).split("/Subscriptions/"))),
            "properties": {f"{name[0].lower()}{name[1:]}": target},
        }
        file = self.folder / "template.json"
        file.write_text(json.dumps({"resources": [declared]}))
        ended = self.cli("import", "--arm", str(file), f"--url=http://127.0.0.1:{self.server.http_port}")
        assert ended.code in (0, 1), ended
        return ended.out + ended.err if ended.code else ""

    def kit(self, description: Description, name: str, target: str, is_new: bool) -> str:
        return self._by(self.server, description, name, target, is_new)

    def remote(self, description: Description, name: str, target: str, is_new: bool) -> str:
        url = f"http://127.0.0.1:{self.server.http_port}"
        return self._by(RemoteEmubus(url), description, name, target, is_new)

    def _by(
        self, kit: EmubusServer | RemoteEmubus, description: Description, name: str, target: str, is_new: bool
    ) -> str:
        described = with_fields(description, {WAYS[name]: target})
        try:
            kit.create(described) if is_new else kit.update(described)
        except BrokerError as error:
            return error.description
        return ""


def resource(description: Description, separator: str) -> str:
    if isinstance(description, SubscriptionDescription):
        return separator.join(("topics", description.topic_name, "subscriptions", description.name))
    return separator.join(("queues", description.name))


Ask = Callable[[World, Description, str, str, bool], str]
FACES: Mapping[str, Ask] = {
    "atom": World.atom,
    "control": World.control,
    "page": World.page,
    "command": World.command,
    "arm": World.arm,
    "template": World.template,
    "kit": World.kit,
    "remote": World.remote,
}
IN_ANY_ORDER = {"kit"}
"""Which create entities in any order, as a Config.json does: a target may come later."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer([filled(each) for each in WORLD]) as running:
        yield running


def filled(description: Description) -> Description:
    """With the defaults that the other faces give it."""
    return with_fields(description, defaults_of(type(description), LIMITS[Profile.STANDARD]))


@pytest.fixture
def world(server: EmubusServer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> World:
    server.reset()
    return World(server, CommandLine(capsys), tmp_path)


def found(world: World, path: str) -> Description | None:
    entity = world.server.call(lambda: world.server.server.broker.namespace.entity(path))
    return None if entity is None else entity.description


@pytest.mark.parametrize("is_new", [True, False], ids=["created", "updated"])
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_target_is_refused(world: World, case: str, name: str, face: str, is_new: bool) -> None:
    target, words = REFUSED[case]
    for description in sources(is_new):
        if is_new and face in IN_ANY_ORDER:
            continue
        before = found(world, path_of(description))
        refused = FACES[face](world, description, name, target, is_new)
        assert words.format(way=WORDS[name], target=target) in refused
        left = found(world, path_of(description))
        assert left == before or (face == "template" and is_new and left == without(left))


@pytest.mark.parametrize("is_new", [True, False], ids=["created", "updated"])
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("case", TAKEN)
def test_a_queue_or_topic_that_is_there_is_a_target(
    world: World, case: str, name: str, face: str, is_new: bool
) -> None:
    for description in sources(is_new):
        assert FACES[face](world, description, name, TAKEN[case], is_new) == ""
        assert getattr(found(world, path_of(description)), WAYS[name]) == TAKEN[case]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", WAYS)
def test_an_update_may_name_the_queue_itself(world: World, name: str, face: str) -> None:
    """The service takes it: azure-sdk-for-python's live tests of queues update both properties so."""
    queue = filled(QueueDescription("old"))
    assert FACES[face](world, queue, name, "old", False) == ""
    assert getattr(found(world, "old"), WAYS[name]) == "old"


def sources(is_new: bool) -> tuple[Description, ...]:
    name = "new" if is_new else "old"
    return filled(QueueDescription(name)), filled(SubscriptionDescription("t", name))


def without(description: Description | None) -> Description | None:
    assert description is not None
    return with_fields(description, dict.fromkeys(WAYS.values()))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", WAYS)
def test_an_entity_whose_target_is_gone_can_be_changed_otherwise(world: World, name: str, face: str) -> None:
    """Clients send all properties back to change one."""
    for description in sources(is_new=False):
        assert FACES[face](world, description, name, "c6", False) == ""
    world.server.delete("c6")
    for description in sources(is_new=False):
        assert FACES[face](world, description, name, "c6", False) == ""
