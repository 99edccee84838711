"""Whatever a sender can store, every view of it answers: page, control API, exports, REST.

Random messages go through what makes the views of them; a table of odd ones is sent, stored and asked for at every
address that can show a message. An address that is added without a place in `OF_THE_PAGE` or `OF_THE_API` fails.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from emubus.broker.admin.overview import Seen
from emubus.broker.api import Delivery
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.codec.encode import encode
from emubus.codec.errors import DecodeError
from emubus.codec.types import Array, Char, Described, Float, MapItems, Symbol, Timestamp, Ubyte, Uint, Ulong
from emubus.testing import EmubusServer
from emubus.web.control import ENDPOINTS
from emubus.web.control.message_json import message_json
from emubus.web.json_reader import read_json
from emubus.web.json_writer import json_pieces
from emubus.web.messages.json_lines import line_of, message_of
from emubus.web.messages.transfer import LINE_VALUES_MAX
from emubus.web.page.message_columns import COLUMNS
from emubus.web.page.rendering import body_bytes, message_view
from emubus.web.page.resending import form_values
from emubus.web.page.routes import VIEWS
from emubus.web.rest.received import answer

from ..codec.encoded import ENCODED, SPOILED, TEXT
from ..http.control.client import ROOT, Http
from ..log_levels import every_level
from ..rounds import rounds

# ---------------------------------------------------------------- random messages


def section(code: int, value: bytes) -> bytes:
    return bytes((0, 0x53, code)) + value


def several(code: int, items: list[bytes]) -> bytes:
    joined = b"".join(items)
    return bytes((code,)) + (len(joined) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + joined


def text_of(code: int, content: bytes) -> bytes:
    return bytes((code,)) + len(content).to_bytes(4, "big") + content


NAMES = st.sampled_from(
    [
        b"x-opt-enqueued-time",
        b"x-opt-message-state",
        b"x-opt-sequence-number",
        b"x-opt-partition-key",
        b"DeadLetterReason",
    ]
)
MARKS = st.lists(
    st.sampled_from(
        [*"<>/=\"'&;![]{}:,\\ ", "<a>", "</a>", "<!--", "-->", "<![CDATA[", "]]>", "<?x?>", "1e9", "\x00", "é"]
    )
).map(lambda parts: "".join(parts).encode())
CONTENT = st.one_of(
    MARKS,
    st.integers(0, 3000).map(lambda depth: b"<a>" * depth + b"</a>" * depth),
    st.integers(0, 3000).map(lambda depth: b"[" * depth + b"]" * depth),
    st.integers(0, 5000).map(lambda digits: b'{"a": 1' + b"0" * digits + b"}"),
    st.binary(max_size=40),
)
DATA = CONTENT.map(lambda content: section(0x75, text_of(0xB0, content)))


def listed(depth: int, value: bytes) -> bytes:
    for _ in range(depth):
        value = several(0xD0, [value])
    return value


NESTED = st.builds(listed, st.integers(0, 60), ENCODED)
BODIES = st.one_of(
    DATA,
    st.lists(DATA, max_size=3).map(b"".join),
    (ENCODED | NESTED).map(lambda value: section(0x77, value)),
    st.lists(ENCODED, max_size=3).map(lambda items: section(0x76, several(0xD0, items))),
    SPOILED.map(lambda value: section(0x77, value)),
    st.binary(max_size=20),
)


def entries(keys: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    pairs = st.lists(st.tuples(keys, ENCODED), max_size=4)
    return pairs.map(lambda found: several(0xD1, [each for pair in found for each in pair]))


ANNOTATIONS = entries((NAMES | TEXT).map(lambda name: text_of(0xB3, name)))
PROPERTIES = entries((NAMES | TEXT).map(lambda name: text_of(0xB1, name)) | ENCODED)
FIELDS = st.lists(st.just(b"\x40") | ENCODED, max_size=13).map(lambda items: several(0xD0, items))
MESSAGES = st.tuples(
    st.just(b"") | FIELDS.map(lambda fields: section(0x70, fields)),
    st.just(b"") | ANNOTATIONS.map(lambda found: section(0x72, found)),
    st.just(b"") | FIELDS.map(lambda fields: section(0x73, fields)),
    st.just(b"") | PROPERTIES.map(lambda found: section(0x74, found)),
    BODIES,
).map(b"".join)
EXAMPLES = rounds(60, 3_000)


@settings(max_examples=EXAMPLES)
@given(MESSAGES)
def test_the_control_api_shows_any_message_as_json(encoded: bytes) -> None:
    shown = message_json(Seen(0, 1, encoded, None))
    written = b"".join(json_pieces(shown))
    assert json.loads(written) == json.loads(json.dumps(shown))


@settings(max_examples=EXAMPLES)
@given(MESSAGES)
def test_the_page_shows_any_message_and_gives_its_body(encoded: bytes) -> None:
    view = message_view(Seen(0, 1, encoded, None))
    texts = [cell(view) for _, cell in COLUMNS.values()]
    texts += [view.preview, view.body.text, view.application_property("DeadLetterReason")]
    for pairs in (view.properties, view.application_properties, view.annotations):
        texts += [text for pair in pairs for text in pair]
    "".join(texts).encode()
    data, ending = body_bytes(view)
    assert ending in ("bin", "json", "xml", "txt")
    assert isinstance(data, bytes)


@settings(max_examples=EXAMPLES)
@given(MESSAGES)
def test_an_export_has_a_line_for_any_message_that_an_import_reads(encoded: bytes) -> None:
    try:
        line = b"".join(json_pieces(line_of(Seen(0, 1, encoded, None)), is_ascii=False))
    except DecodeError:
        return  # its line says so
    message_of(read_json(line, LINE_VALUES_MAX))


@settings(max_examples=EXAMPLES)
@given(MESSAGES)
def test_rest_gives_any_message(encoded: bytes) -> None:
    request = make_mocked_request("DELETE", "/q/messages/head")
    found = answer(request, Delivery(bytes(16), encoded, 1), locked=True, location="http://x/q/messages/1/t")
    assert found.status == 201
    for name, value in found.headers.items():
        assert not set("\r\n\0") & set(name + value)


@settings(max_examples=EXAMPLES)
@given(MESSAGES)
def test_the_form_of_sending_again_has_any_message(encoded: bytes) -> None:
    try:
        values = form_values(Seen(0, 1, encoded, None))
    except DecodeError:
        return  # the page says so
    assert all(isinstance(text, str) for texts in values.values() for text in texts)


# ---------------------------------------------------------------- odd messages, stored


def deep(value: object, depth: int) -> object:
    for _ in range(depth):
        value = [value]
    return value


def data(content: bytes) -> bytes:
    return encode(Described(Ulong(0x75), content))


def body(value: object) -> bytes:
    return encode(Described(Ulong(0x77), value))


def with_properties(*values: object) -> bytes:
    return encode(Described(Ulong(0x74), {f"p{number}": value for number, value in enumerate(values)})) + data(b"x")


LAST_MS, FIRST_MS = (1 << 63) - 1, -(1 << 63)
ODD = {
    "XML 1 500 deep": data(b"<a>" * 1_500 + b"</a>" * 1_500),
    "XML 9 000 deep": data(b"<a>" * 9_000 + b"</a>" * 9_000),
    "XML with a document type": data(b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"),
    "XML with many attributes": data(b"<a " + b" ".join(b"a%d='x'" % number for number in range(3_000)) + b"/>"),
    "JSON 30 000 deep": data(b"[" * 30_000 + b"]" * 30_000),
    "JSON 900 deep": data(b"[" * 900 + b"]" * 900),
    "a number of 5 000 digits": data(b'{"a": 1' + b"0" * 5_000 + b"}"),
    "NaN": data(b'{"a": 1e999, "b": NaN}'),
    "half a surrogate pair": data(b'{"a": "\\ud800"}'),
    "names given twice": data(b"{" + b",".join([b'"a":1'] * 2_000) + b"}"),
    "wide JSON": data(b"[" + b"[1,2]," * 10_000 + b"1]"),
    "all bytes": data(bytes(range(256)) * 20),
    "control characters": data(b"\x1b[31m\x9b\x85\r\n\x00"),
    "many sections": data(b"x") * 2_000,
    "a value 60 deep": body(deep(None, 60)),
    "a list of nulls": body([None] * 20_000),
    "a map with a map as its key": body(MapItems([(MapItems([]), 1)])),
    "a name given twice in a map": body(MapItems([("a", 1), ("a", 2)])),
    "the last instant": body(Timestamp(LAST_MS)),
    "the first instant": body(Timestamp(FIRST_MS)),
    "a character": body(Char("\U0010ffff")),
    "an array": body(Array(0x72, (Float(1.5), Float("nan")))),
    "described": body(Described(Symbol("com.microsoft:timespan"), LAST_MS)),
    "no section at all": b"\x40",
    "no value behind a section": b"\x00\x53\x77",
    "a sequence": encode(Described(Ulong(0x76), [deep(1, 50), float("inf")])) * 3,
    "properties of all kinds": with_properties(
        Timestamp(LAST_MS),
        Timestamp(FIRST_MS),
        float("nan"),
        Described(Symbol("x"), [1]),
        "\x00\r\n",
        b"\xff",
        Char("é"),
    ),
    "3 000 properties": with_properties(*[None] * 3_000),
    "ids of bytes": encode(Described(Ulong(0x73), [b"\xff" * 20, b"\x00", "to", "s\x00", "r", b"c"])) + data(b"x"),
    "an odd content type": encode(Described(Ulong(0x73), ["i", *[None] * 5, Symbol("a/b\r\nX: y")])) + data(b"x"),
    "times at the end": encode(Described(Ulong(0x73), ["i", *[None] * 7, Timestamp(LAST_MS), Timestamp(LAST_MS)]))
    + data(b"x"),
    "a header of other types": encode(Described(Ulong(0x70), [None, Ubyte(255), Uint((1 << 32) - 1)])) + data(b"x"),
    "a reason that is a list": encode(
        Described(Ulong(0x74), {"DeadLetterReason": [1], "DeadLetterErrorDescription": 5})
    )
    + data(b"x"),
}
NOT_OF_MESSAGES = ""
OF_THE_PAGE = {
    "messages": "path={entity}&open={number}&order=newest&column=scheduled&column=expires&column=enqueued&group=key"
    "&properties=p0,DeadLetterReason",
    "compare": "path={entity}&number={number}&number={number}",
    "now": "find={number}&stored=yes",
    "keys": "path={entity}",
    "body": "path={entity}&number={number}",
    "send": "path={entity}&number={number}",
    "story": "path={entity}&number={number}",
    "entity": "path={entity}",
    **dict.fromkeys(
        (
            "create",
            "edit",
            "rules",
            "namespace",
            "forwarding",
            "flow",
            "charts",
            "failures",
            "roles",
            "clients",
            "sessions",
            "session-state",
        ),
        NOT_OF_MESSAGES,
    ),
}
"""The query of each view; `NOT_OF_MESSAGES` for those that show nothing that a sender made."""
OF_THE_API = {
    "/entities/{entity}/messages": "?from_sequence_number={number}&count=250",
    "/entities/{entity}/messages/lines": "?from_sequence_number={number}&where=p0 IS NULL OR sys.Label = 'x'",
    "/story": "?sequence_number={number}&entity={entity}",
    "/entities/{entity}": "",
    "/entities/{entity}/partitions": "",
    "/templates": "",
    "/report": "",
    "/report/text": "",
}
"""As `OF_THE_PAGE`, of the control API."""
ELSEWHERE_IN_THE_API = {
    *(
        "/config",
        "/config/arm",
        "/config/commands",
        "/jobs",
        "/jobs/{job}",
        "/refusals",
        "/templates/{name}",
        "/entities",
        "/stores",
    ),
    *(
        "/entities/{entity}/rules",
        "/entities/{entity}/properties",
        "/entities/{entity}/route",
        "/faults",
        "/connections",
        "/refusals",
    ),
    *("/entities/{entity}/sessions", "/entities/{entity}/sessions/{session}/state", "/conditions", "/conditions/table"),
    *("/conditions/{id}", "/clock", "/samples", "/events", "/about", "/memory", "/snapshots", "/snapshots/{name}"),
    *("/snapshots/{name}/archive", "/roles", "/namespaces", "/namespaces/{name}"),
}
"""Show nothing that a sender made."""


PLACES = [("q", "q"), ("t", "t/Subscriptions/s")]


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("q"), TopicDescription("t"), SubscriptionDescription("t", "s")]) as running:
        Http(running.http_port).ask("PUT", "/story", {"is_on": True})
        yield running


def test_every_address_that_shows_messages_has_a_place_here() -> None:
    assert {name for method, name in VIEWS if method == "GET"} == set(OF_THE_PAGE)
    paths = {
        each.path.replace("{entity:[^/]+(?:/[Ss]ubscriptions/[^/]+)?}", "{entity}")
        for each in ENDPOINTS
        if each.method == "GET"
    }
    assert paths == OF_THE_API.keys() | ELSEWHERE_IN_THE_API


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(("target", "entity"), rounds(PLACES[:1], PLACES))
def test_every_view_shows_an_odd_message(server: EmubusServer, name: str, target: str, entity: str) -> None:
    http, where = Http(server.http_port, {"Accept": "text/html"}), quote(entity, safe="")
    line = {"message": {"body": {"kind": "malformed", "base64": base64.b64encode(ODD[name]).decode()}}}
    path = f"{ROOT}/entities/{target}/messages/lines"
    sent = http.send("POST", path, json.dumps(line).encode(), Content_Type="application/jsonl")
    if not sent.json["sent_count"]:
        assert sent.json["failed_count"] == 1  # the broker refuses it, and says why
        return
    (number,) = (each["sequence_number"] for each in http.get(f"/entities/{where}/messages")["messages"])
    with every_level(), capture_logs() as lines:
        for view, query in OF_THE_PAGE.items():
            if query is not NOT_OF_MESSAGES:
                asked = http.send("GET", f"/emubus/page/{view}?{query.format(entity=where, number=number)}")
                assert asked.status == 200, view
        for view, query in OF_THE_API.items():
            asked = http.send("GET", quote(f"{ROOT}{view}{query}", safe="/?=&{}").format(entity=where, number=number))
            assert asked.status == 200, view
        locked = http.post(f"/entities/{where}/receive", {"outcome": "lock"})["messages"]
        assert [each["sequence_number"] for each in locked] == [number]
        http.post(f"/entities/{where}/settle", {"outcome": "abandon", "lock_tokens": [locked[0]["lock_token"]]})
        assert http.send("DELETE", f"/{entity}/messages/head?timeout=0").status == 200
    assert [line for line in lines if line["log_level"] in ("error", "critical")] == []
    assert http.get(f"/entities/{where}/messages")["messages"] == []
