"""Values by operation and face: what can't be is refused by each face that offers the operation, and changes nothing.

An operation that a face offers stands in `…_HERE` and has a row in `MATRIX`, or in `…_ELSEWHERE` with the file that
tests its values: a new form, endpoint, verb or command that is in neither fails.
"""

from __future__ import annotations

import html
import http.client
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
import structlog

from emubus.broker.amounts import Period, Seed, Span, Times
from emubus.broker.errors import BrokerError
from emubus.broker.instants import CLOCK_MS_MAX
from emubus.broker.model.profiles import LIMITS, Profile
from emubus.broker.names import TemplateName
from emubus.commands.table import COMMANDS
from emubus.conditions.faults import FaultKind
from emubus.config_file.cursor import ConfigFileError
from emubus.config_file.properties import QUEUE_PROPERTIES
from emubus.config_file.reading import parse_config
from emubus.testing import Emubus, EmubusServer, OutageKind, RemoteEmubus
from emubus.web.control import ENDPOINTS
from emubus.web.page.routes import VIEWS

from ..amqp.jms_client import LIBRARY, JmsClient, premium_broker, refusal, symbols
from ..broker.test_names import NO_NAMES
from ..commands.conftest import CommandLine
from ..http.administering import entry
from ..rounds import rounds
from .faces import ENTITIES, control_path
from .test_rights import WAIT_S, state

ROOT_OF_TESTS = Path(__file__).parents[1]
DAY_MS = 86_400_000

# ---- values that can't be, by operation

NO_PATHS = (
    *("a/../b", "a/./b", "..", "/", "a//b", "a/", "$cbs", "a/$x", "a/Subscriptions/b/c", "a?b", "a#b", "a\\b", "a*"),
    *("a\nb", "a\x00b", "-a", "x" * 261, "ä", "a b", ".a"),
)
NO_CONFIGS = (
    *("", "{", "null", "[]", '{"UserConfig": {}}', '{"UserConfig": {"Namespaces": []}}', '{"Other": {}}', "\x00"),
    '{"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [{"Name": "new"}, {"Name": "a/../b"}]}]}}',
    '{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "x", "Properties": {"LockDuration": "P"}}]}]}}',
)
NO_TEMPLATES = ("x" * (TemplateName.CHARS_MAX + 1), "a\x00b", "a\x1b[2J")
TOO_FAR_MS = (CLOCK_MS_MAX, 10**18, -1)
NO_COUNTS = (0, -1, Times.MOST + 1, 10**30)
NO_PERIODS = (0, -1, Period.MOST + 1, 10**30)
NO_DELAYS = (-1, Span.MOST + 1, 10**30)
NO_SEEDS = (-1, Seed.MOST + 1, 10**30)
NO_CHANCES = (0, -1, 1.5, 7)
NO_STORES = (-1, 16, 99, 10**30)


@dataclass
class Faces:
    """All that can be asked of one server; each function returns the text of the refusal, and fails without one."""

    server: EmubusServer
    cli: CommandLine
    remote: RemoteEmubus = field(init=False)

    def __post_init__(self) -> None:
        self.remote = RemoteEmubus(f"http://127.0.0.1:{self.server.http_port}")

    def http(self, method: str, path: str, body: bytes | None, media: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port, timeout=WAIT_S)
        own = {"Origin": f"http://127.0.0.1:{self.server.http_port}", "Accept": "text/html", "Content-Type": media}
        connection.request(method, path, body, own)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def page(self, view: str, **fields: object) -> str:
        form = urlencode(fields, errors="surrogatepass").encode()
        status, text = self.http("POST", f"/emubus/page/{view}", form, "application/x-www-form-urlencoded")
        assert 400 <= status < 500, (view, fields, status, text[-300:])
        return html.unescape(text)

    def upload(self, view: str, name: str, content: str) -> str:
        head = f'--edge\r\nContent-Disposition: form-data; name="{name}"; filename="file"\r\n\r\n'
        data = f"{head}{content}\r\n--edge--\r\n".encode()
        status, text = self.http("POST", f"/emubus/page/{view}", data, "multipart/form-data; boundary=edge")
        assert 400 <= status < 500, (view, content, status, text[-300:])
        return html.unescape(text)

    def control(self, method: str, path: str, body: object = None, media: str = "application/json") -> str:
        data = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        status, text = self.http(method, f"/emubus/v1{path}", data, media)
        assert 400 <= status < 500, (method, path, body, status, text[-300:])
        return str(json.loads(text)["error"]["message"])

    def atom(self, path: str, description: str) -> str:
        status, text = self.http("PUT", f"/{quote(path, safe='')}", entry(description).encode(), "application/atom+xml")
        assert 400 <= status < 500, (path, status, text[-300:])
        return text

    def command(self, *arguments: object) -> str:
        ended = self.cli(*map(str, arguments), *((f"--url=http://127.0.0.1:{self.server.http_port}",)))
        assert ended.code in (1, 2), (arguments, ended)
        assert "Traceback" not in ended.err
        assert ended.err.strip(), arguments
        return ended.err

    @staticmethod
    def kit(act: Callable[[], object]) -> str:
        with pytest.raises((BrokerError, ValueError)) as refused:
            act()
        return str(refused.value)


Refused = Callable[[Faces, object], str]


def quoted(value: object) -> str:
    return quote(str(value), safe="", errors="surrogatepass")


def snapshot_of(action: str, method: str, suffix: str) -> Mapping[str, Refused]:
    return {
        "page": lambda faces, value: faces.page("snapshot", do=action, name=f"{value}"),
        "control": lambda faces, value: faces.control(method, f"/snapshots/{quoted(value)}{suffix}"),
        "command": lambda faces, value: faces.command("snapshot", action, "--file=x", "--", value),
    }


def fault(**values: object) -> dict[str, object]:
    return {"kind": "server-busy", **values}


def kits(act: Callable[[Emubus, object], object]) -> Mapping[str, Refused]:
    return {
        "kit": lambda faces, value: faces.kit(lambda: act(faces.server, value)),
        "remote": lambda faces, value: faces.kit(lambda: act(faces.remote, value)),
    }


def a_config(queue: object) -> str:
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [queue]}]}})


def refused_config(queue: object) -> str:
    with pytest.raises(ConfigFileError) as refused:
        parse_config(a_config(queue), LIMITS[Profile.STANDARD])
    return str(refused.value)


NO_IDENTITIES = ("", "a b", "x" * 401, "a\nb", "\u202e")
NO_ROLES = ("", "reader", "Owner of all", "Azure Event Hubs Data Owner", "x" * 201)
NO_ENTITIES = ("missing", "a/../b", "..", "mine/x", "x" * 401)


def role_of(name: str) -> Mapping[str, Refused]:
    """Assigning a role with one wrong part."""

    def parts(value: object) -> dict[str, str]:
        return {"identity": "id", "role": "sender", "entity": "mine", name: str(value)}

    return {
        "page": lambda faces, value: faces.page("assign-role", **parts(value)),
        "page, removing": lambda faces, value: faces.page("remove-role", **parts(value)),
        "control": lambda faces, value: faces.control("POST", "/roles", parts(value)),
        "control, removing": lambda faces, value: faces.control(
            "DELETE", f"/roles?{urlencode(parts(value), errors='surrogatepass')}"
        ),
        "command": lambda faces, value: faces.command("role", "assign", "--", *parts(value).values()),
        "command, removing": lambda faces, value: faces.command("role", "remove", "--", *parts(value).values()),
        **kits(lambda emubus, value: emubus.assign_role(**parts(value))),
    }


MATRIX: Mapping[str, tuple[tuple[object, ...], Mapping[str, Refused]]] = {
    "assign a role to nobody": (NO_IDENTITIES, role_of("identity")),
    "assign no role": (NO_ROLES, role_of("role")),
    "assign a role on no entity": (NO_ENTITIES, role_of("entity")),
    "create": (
        NO_PATHS,
        {
            "page": lambda faces, value: faces.page("create", kind="queue", name=value),
            "control": lambda faces, value: faces.control("PUT", f"/entities/{quoted(value)}", {"kind": "queue"}),
            "atom": lambda faces, value: faces.atom(str(value), "<QueueDescription/>"),
            "config": lambda _, value: refused_config({"Name": value}),
            "command": lambda faces, value: faces.command("create", "queue", "--", value),
            **kits(lambda emubus, value: emubus.create_queue(str(value))),
        },
    ),
    "import a Config.json": (
        NO_CONFIGS,
        {
            "page": lambda faces, value: faces.upload("import-config", "config", str(value)),
            "control": lambda faces, value: faces.control("POST", "/config", str(value)),
        },
    ),
    "take a snapshot": (
        tuple(NO_NAMES),
        {**snapshot_of("take", "PUT", ""), **kits(lambda emubus, value: emubus.snapshot(str(value)))},
    ),
    "restore a snapshot": (
        tuple(NO_NAMES),
        {**snapshot_of("restore", "POST", "/restore"), **kits(lambda emubus, value: emubus.restore(str(value)))},
    ),
    "delete a snapshot": (tuple(NO_NAMES), snapshot_of("delete", "DELETE", "")),
    "download a snapshot": (
        tuple(NO_NAMES),
        {
            "control": lambda faces, value: faces.control("GET", f"/snapshots/{quoted(value)}/archive"),
            "command": lambda faces, value: faces.command("snapshot", "download", "--", value),
        },
    ),
    "upload a snapshot": (
        tuple(NO_NAMES),
        {
            "control": lambda faces, value: faces.control(
                "PUT", f"/snapshots/{quoted(value)}/archive", {}, "application/x-tar"
            ),
            "command": lambda faces, value: faces.command("snapshot", "upload", f"--file={__file__}", "--", value),
        },
    ),
    "keep a template": (
        NO_TEMPLATES,
        {
            "page": lambda faces, value: faces.page("keep-template", path="mine", template_name=value, body="x"),
            "control": lambda faces, value: faces.control("PUT", f"/templates/{quoted(value)}", {"message": {}}),
        },
    ),
    "delete a template": (
        NO_TEMPLATES,
        {
            "page": lambda faces, value: faces.page("delete-template", path="mine", template_name=value),
            "control": lambda faces, value: faces.control("DELETE", f"/templates/{quoted(value)}"),
        },
    ),
    "advance the clock": (
        TOO_FAR_MS,
        {
            "page": lambda faces, value: faces.page("clock", do="advance", by=f"{value}ms"),
            "control": lambda faces, value: faces.control("POST", "/clock/advance", {"ms": value}),
            "command": lambda faces, value: faces.command("clock", "advance", f"{value}ms"),
            **kits(lambda emubus, value: emubus.advance(int(str(value)))),
        },
    ),
    "begin an outage: the store": (
        NO_STORES,
        {
            "page": lambda faces, value: faces.page("outage", store=value, kind="down"),
            "control": lambda faces, value: faces.control("POST", "/outages", {"stores": [0, value], "kind": "down"}),
            "command": lambda faces, value: faces.command("outage", "down", "--", value),
            **kits(lambda emubus, value: emubus.begin_outage([0, int(str(value))], OutageKind.DOWN)),
        },
    ),
    "begin an outage: how long": (
        NO_PERIODS,
        {
            "page": lambda faces, value: faces.page("outage", store=0, kind="down", **{"for": f"{value}ms"}),
            "control": lambda faces, value: faces.control(
                "PUT", "/stores/0/outage", {"kind": "down", "duration_ms": value}
            ),
            "command": lambda faces, value: faces.command("outage", "down", "0", f"--for={value}ms"),
            **kits(lambda emubus, value: emubus.begin_outage([0], OutageKind.DOWN, duration_ms=int(str(value)))),
        },
    ),
    "begin an outage: the delay": (
        NO_DELAYS,
        {
            "page": lambda faces, value: faces.page("outage", store=0, kind="slow", delay=f"{value}ms"),
            "control": lambda faces, value: faces.control(
                "PUT", "/stores/0/outage", {"kind": "slow", "delay_ms": value}
            ),
            "command": lambda faces, value: faces.command("outage", "slow", "0", f"--delay={value}ms"),
            **kits(lambda emubus, value: emubus.begin_outage([0], OutageKind.SLOW, delay_ms=int(str(value)))),
        },
    ),
    "end an outage": (
        NO_STORES,
        {
            "page": lambda faces, value: faces.page("end-failure", kind="store", number=value),
            "control": lambda faces, value: faces.control("DELETE", f"/stores/{value}/outage"),
            "command": lambda faces, value: faces.command("outage", "end", "--", value),
            **kits(lambda emubus, value: emubus.end_outage([int(str(value))])),
        },
    ),
    "add a fault: how often": (
        NO_COUNTS,
        {
            "page": lambda faces, value: faces.page(
                "begin-failure", what="fault", operation="all", **fault(count=value)
            ),
            "control": lambda faces, value: faces.control("POST", "/faults", fault(count=value)),
            "command": lambda faces, value: faces.command("fault", "add", "server-busy", f"--count={value}"),
            **kits(lambda emubus, value: emubus.add_fault(FaultKind.SERVER_BUSY, count=int(str(value)))),
        },
    ),
    "add a fault: how likely": (
        NO_CHANCES,
        {
            "page": lambda faces, value: faces.page(
                "begin-failure", what="fault", operation="all", **fault(percent=float(str(value)) * 100)
            ),
            "control": lambda faces, value: faces.control("POST", "/faults", fault(probability=value)),
            "command": lambda faces, value: faces.command("fault", "add", "server-busy", f"--probability={value}"),
            **kits(lambda emubus, value: emubus.add_fault(FaultKind.SERVER_BUSY, probability=float(str(value)))),
        },
    ),
    "add a fault: the delay": (
        NO_DELAYS,
        {
            "page": lambda faces, value: faces.page(
                "begin-failure", what="fault", operation="all", **fault(delay=f"{value}ms")
            ),
            "control": lambda faces, value: faces.control("POST", "/faults", fault(delay_ms=value)),
            "command": lambda faces, value: faces.command("fault", "add", "server-busy", f"--delay={value}ms"),
            **kits(lambda emubus, value: emubus.add_fault(FaultKind.SERVER_BUSY, delay_ms=int(str(value)))),
        },
    ),
    "start a condition: how long": (
        NO_PERIODS,
        {
            "page": lambda faces, value: faces.page(
                "begin-failure", what="condition", name="throttled", **{"for": f"{value}ms"}
            ),
            "control": lambda faces, value: faces.control(
                "POST", "/conditions", {"name": "throttled", "duration_ms": value}
            ),
            **kits(lambda emubus, value: emubus.start_condition("throttled", duration_ms=int(str(value)))),
        },
    ),
    "start a condition: how often": (
        NO_COUNTS,
        {
            "page": lambda faces, value: faces.page("begin-failure", what="condition", name="throttled", count=value),
            "control": lambda faces, value: faces.control("POST", "/conditions", {"name": "throttled", "count": value}),
            **kits(lambda emubus, value: emubus.start_condition("throttled", count=int(str(value)))),
        },
    ),
    "end a condition": (
        NO_SEEDS,
        {
            "page": lambda faces, value: faces.page("end-failure", kind="condition", number=value),
            "control": lambda faces, value: faces.control("DELETE", f"/conditions/{value}"),
        },
    ),
    "start a condition: the seed": (
        NO_SEEDS,
        {
            "page": lambda faces, value: faces.page("begin-failure", what="condition", name="throttled", seed=value),
            "control": lambda faces, value: faces.control("POST", "/conditions", {"name": "throttled", "seed": value}),
            **kits(lambda emubus, value: emubus.start_condition("throttled", seed=int(str(value)))),
        },
    ),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "precious").write_text("kept")
    return folder


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[EmubusServer]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with EmubusServer(ENTITIES, data_dir=place / "data") as running:
        yield running


@pytest.fixture
def faces(server: EmubusServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Faces:
    for name in ("EMUBUS_URL", "EMUBUS_CONNECTION_STRING", "EMUBUS_SAS_KEY", "EMUBUS_HTTP_PORT", "EMUBUS_CA"):
        monkeypatch.delenv(name, raising=False)
    return Faces(server, CommandLine(capsys))


@pytest.mark.parametrize(
    ("operation", "face"), [(operation, face) for operation, (_, faces) in MATRIX.items() for face in faces]
)
def test_what_can_not_be_is_refused_by_each_face_and_changes_nothing(
    operation: str, face: str, faces: Faces, place: Path
) -> None:
    values, offered = MATRIX[operation]
    before, frozen = state(faces.server), faces.server.now_ms()
    few = rounds(values[:: max(1, len(values) // 8)], values)
    for value in few:
        if face.partition(",")[0] in ("page", "command") and isinstance(value, str) and value != value.strip():
            continue  # a form leaves blanks at the ends out
        if face == "command" and isinstance(value, str) and "\x00" in value:
            continue  # no argument of a program has one
        if face == "page" and operation.startswith("end") and isinstance(value, int) and value >= 10**29:
            assert "is not a whole number" in offered[face](faces, value)
            continue
        text = offered[face](faces, value)
        assert "Internal error" not in text, (operation, face, value)
        assert text.strip(), (operation, face, value)
    assert state(faces.server) == before
    assert faces.server.now_ms() - frozen < DAY_MS
    assert sorted(each.name for each in place.iterdir()) == ["data", "precious"]


@pytest.mark.parametrize("number", NO_SEEDS)
def test_the_kit_ends_no_condition_by_a_number_that_none_has(number: int, faces: Faces) -> None:
    faces.server.start_condition("throttled")
    before = state(faces.server)
    for emubus in (faces.server, faces.remote):
        with suppress(BrokerError):
            emubus.end_condition(number)
    assert state(faces.server) == before
    assert faces.server.end_conditions() == 1


@pytest.mark.parametrize("path", ["a/../b", "..", "/", "a//b", "$x", "a/$x", "x" * 261])
async def test_the_library_for_jms_makes_no_entity_of_a_path_that_can_not_be(path: str) -> None:
    async with premium_broker() as broker:
        before = {each.path for each in broker.namespace.entities()}
        client = JmsClient(broker, properties=LIBRARY)
        capability = [None] * 5
        refused = refusal(client.attach("s", [], [path, *capability, symbols("queue")], receives=False))
        assert refused[0] in ("com.microsoft:argument-out-of-range", "amqp:not-found", "amqp:not-allowed")
        assert {each.path for each in broker.namespace.entities()} == before
        client.wire.lose()


# ---- every operation of every face has a row above, or a file that tests its values

CONTROL_HERE = {
    *("PUT /snapshots/{name}", "DELETE /snapshots/{name}", "POST /snapshots/{name}/restore"),
    "POST /config",
    *("GET /snapshots/{name}/archive", "PUT /snapshots/{name}/archive"),
    *("PUT /templates/{name}", "DELETE /templates/{name}"),
    *("PUT /entities/{entity}", "POST /clock/advance", "POST /outages", "PUT /stores/{store}/outage"),
    *("DELETE /stores/{store}/outage", "POST /faults", "POST /conditions"),
    *("POST /roles", "DELETE /roles"),
}
CONTROL_ELSEWHERE = "http/control/test_control_fuzz.py"
"""Values of the others are those of their schemas, which that file tries for every endpoint."""
PAGE_HERE = {
    *("create", "import-config", "snapshot", "keep-template", "delete-template"),
    *("clock", "outage", "end-failure", "begin-failure"),
    *("assign-role", "remove-role"),
}
PAGE_ELSEWHERE = {
    "web/test_requests.py": {
        "delete",
        "purge",
        "act",
        "send",
        "where",
        "add-rule",
        "delete-rule",
        "reset",
        "stop",
        "try-rules",
    },
    "web/test_entities.py": {"edit"},
    "web/test_features.py": {"import"},
    "web/test_operations.py": {"story", "drop-connection", "release-session"},
    "web/test_session_state.py": {"session-state"},
}
KIT_HERE = {
    *("create_queue", "snapshot", "restore", "advance"),
    *("begin_outage", "end_outage", "add_fault", "start_condition", "end_condition", "assign_role"),
}
KIT_ELSEWHERE = {
    "kit/test_remote.py": {
        *("connection_string", "create", "create_topic", "create_subscription"),
        *("update", "delete", "peek", "message_counts", "route", "purge", "reset", "now_ms", "thaw"),
        *("clear_faults", "condition", "drop_connections", "drop_links"),
        *("roles", "remove_role"),
    },
    "conditions/test_handshakes.py": {"unresolved_connection_string"},
    "conditions/test_engine.py": {"conditions", "end_conditions", "freeze"},
    "commands/test_exercise.py": {"exercise"},
    "kit/test_namespaces.py": {"namespace"},
    "kit/test_words.py": {
        *("send", "wait_for", "sessions", "entities", "story", "keep_story", "why_not"),
        *("refusals", "running_conditions", "started_conditions"),
    },
}
COMMANDS_HERE = {"create", "snapshot", "clock", "outage", "fault", "role"}
COMMANDS_ELSEWHERE = {
    "emubus/test_cli.py": {"serve", "health", "check", "route"},
    "emubus/test_certificates.py": {"ca"},
    "commands/test_help.py": {"completion"},
    "commands/test_config_command.py": {"config"},
    "commands/test_simulation.py": {"connection-string", "token", "reset", "condition"},
    "commands/test_entities.py": {"ls", "show", "update", "delete", "rules", "sessions", "connections"},
    "commands/test_import.py": {"import"},
    "commands/test_messages.py": {"send", "peek", "receive", "settle", "purge", "resubmit", "job", "export"},
    "commands/test_trace.py": {"trace"},
    "commands/test_errands.py": {"find", "refusals"},
    "commands/test_exercise.py": {"exercise"},
    "emubus/test_namespaces.py": {"namespace"},
}


def verbs_of_the_kit() -> set[str]:
    return {name for name in dir(EmubusServer) if not name.startswith("_") and hasattr(RemoteEmubus, name)}


@pytest.mark.parametrize(
    ("offered", "here", "elsewhere"),
    [
        ({name for method, name in VIEWS if method == "POST"}, PAGE_HERE, PAGE_ELSEWHERE),
        (verbs_of_the_kit(), KIT_HERE, KIT_ELSEWHERE),
        (set(COMMANDS), COMMANDS_HERE, COMMANDS_ELSEWHERE),
    ],
    ids=["page", "kit", "commands"],
)
def test_every_operation_of_a_face_has_its_bad_values(
    offered: set[str], here: set[str], elsewhere: Mapping[str, set[str]]
) -> None:
    others = [name for names in elsewhere.values() for name in names]
    assert sorted([*here, *others]) == sorted(offered)
    for file, names in elsewhere.items():
        text = (ROOT_OF_TESTS / file).read_text()
        missing = {name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)}
        assert missing == set(), file


def test_every_endpoint_of_the_control_api_has_its_bad_values() -> None:
    offered = {f"{each.method} {control_path(each.path).removeprefix('/emubus/v1')}" for each in ENDPOINTS}
    assert offered >= CONTROL_HERE
    assert "for each in ENDPOINTS" in (ROOT_OF_TESTS / CONTROL_ELSEWHERE).read_text()


# ---- Config.json

WRONG: tuple[object, ...] = (-1, 1.5, 10**30, "soon", "P", "-PT1S", [], "x" * 5_000)
"""What no property of a queue but a text may be."""
TEXTS = {"UserMetadata", "ForwardTo", "ForwardDeadLetteredMessagesTo"}


@pytest.mark.parametrize("name", QUEUE_PROPERTIES)
def test_a_property_of_config_json_that_can_not_be_is_named(name: str) -> None:
    for value in WRONG:
        if not (name in TEXTS and isinstance(value, str)):
            assert name in refused_config({"Name": "q", "Properties": {name: value}}), value
