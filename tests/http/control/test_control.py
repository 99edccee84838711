"""The control API as such: who may, what is refused and changes nothing, and its description of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.broker.access import DEFAULT_KEY, DEFAULT_KEY_NAME, sign
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import QueueDescription
from emubus.config import Auth
from emubus.testing import EmubusServer
from emubus.web.control import ENDPOINTS
from emubus.web.control.endpoints import BODY_BYTES_MAX

from ...web.namespace import send
from .client import ROOT, Http
from .conftest import PARTS

JSON = {"Content_Type": "application/json"}


def state(control: Http) -> list[Any]:
    """What a refused request must leave as it is."""
    return [control.get(path) for path in ("/entities", "/stores", "/faults", "/snapshots")]


def test_the_document_names_every_endpoint_and_is_served_by_the_api_itself(control: Http) -> None:
    document = control.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert sum(len(methods) for methods in document["paths"].values()) == len(ENDPOINTS)
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(ENDPOINTS)
    assert f"{ROOT}/entities/{{entity}}/partitions" in document["paths"]
    advance = document["paths"][f"{ROOT}/clock/advance"]["post"]
    assert document["components"]["schemas"]["AdvanceClockRequest"]["required"] == ["ms"]
    assert set(advance["responses"]) == {"200", "400", "401", "409", "413", "415", "503"}


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("POST", "/clock/advance", b"{", "body can't be read as JSON: "),
        ("POST", "/clock/advance", b"\xff\xfe", "body can't be read as JSON: "),
        ("POST", "/clock/advance", b'{"ms": NaN}', "line 1, column 8: 'NaN' is no value of JSON"),
        ("POST", "/clock/advance", b"[" * 50_000, "nested more than 256 deep, which is the limit"),
        ("POST", "/clock/advance", b"[" * 300 + b"]" * 300, "nested more than 256 deep, which is the limit"),
        ("POST", "/clock/advance", b'{"ms": 1, "ms": 2}', "line 1, column 11: the name 'ms' is given twice"),
        ("POST", "/clock/advance", b'{"ms": 1e400}', "is larger than a double can be"),
        ("POST", "/clock/advance", b'{"ms": ' + b"9" * 300 + b"}", "it must be at least 0 and at most"),
        ("POST", "/clock/advance", b'{"ms": ' + b"9" * 5000 + b"}", "more than 300 characters"),
        ("POST", "/clock/advance", b"", "body can't be read as JSON: "),
        ("POST", "/clock/advance", b"[]", "body is []; it must be an object"),
        ("POST", "/clock/advance", b"{}", "body must have the field 'ms'"),
        ("POST", "/clock/advance", b'{"ms": "1"}', "body.ms is '1'; it must be a whole number"),
        ("POST", "/clock/advance", b'{"ms": true}', "body.ms is True; it must be a whole number"),
        ("POST", "/clock/advance", b'{"ms": -1}', "body.ms is -1; it must be at least 0"),
        ("POST", "/clock/advance", b'{"ms": 1, "m": 2}', "body has no field 'm'; it has ms"),
        ("POST", "/clock/freeze", b"{}", "this endpoint takes no body"),
        ("POST", "/outages", b'{"stores": [0, 0], "kind": "down"}', "body.stores names an item twice"),
        ("POST", "/outages", b'{"stores": [], "kind": "down"}', "body.stores has 0 items; it must have 1 to 64"),
        ("POST", "/outages", b'{"stores": [0], "kind": "off"}', "body.kind is 'off'; allowed: down, slow, failing"),
        (
            "POST",
            "/faults",
            b'{"kind": "server-busy", "probability": 0}',
            "body.probability is 0; it must be more",
        ),
        ("POST", "/faults", b'{"kind": "server-busy", "entity": "\\ud800"}', "lone surrogate"),
        ("POST", "/reset", b'{"to": "nowhere"}', "allowed: empty, config"),
        ("PUT", "/stores/x/outage", b'{"kind": "down"}', "store is 'x'; it must be a whole number"),
        ("PUT", "/snapshots/.hidden", None, "name is '.hidden'; it must look like"),
        ("GET", "/entities?top=0", None, "top is 0; it must be at least 1"),
        ("GET", "/entities?top=1&top=2", None, "'top' is given more than once"),
        ("GET", "/entities?to=1", None, "there is no query parameter 'to'"),
        ("GET", "/entities/parts/messages?sub_queue=x", None, "sub_queue is 'x'"),
    ],
)
def test_what_is_not_as_described_is_refused_and_nothing_happens(
    control: Http, method: str, path: str, body: bytes | None, message: str
) -> None:
    before = state(control)
    refused = control.send(method, ROOT + path, body, **(JSON if body is not None else {}))
    assert (refused.status, refused.json["error"]["code"]) == (400, "bad-request")
    assert message in refused.json["error"]["message"]
    assert control.get("/clock")["offset_ms"] < 1_000
    assert control.get("/clock")["is_frozen"] is False
    assert state(control) == before


def test_a_body_that_is_too_large_is_refused_with_or_without_its_length(control: Http) -> None:
    large = b'{"ms": 1' + b" " * BODY_BYTES_MAX + b"}"
    for headers in ({}, {"Transfer_Encoding": "chunked"}):
        content: Any = large if not headers else (b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large))
        refused = control.send("POST", f"{ROOT}/clock/advance", content, **JSON, **headers)
        assert (refused.status, refused.json["error"]["code"]) == (413, "too-large")
    assert control.get("/clock")["offset_ms"] < 1_000


def test_a_body_of_another_type_is_refused(control: Http) -> None:
    for kind in ("text/plain", "application/xml"):
        refused = control.send("POST", f"{ROOT}/clock/advance", b'{"ms": 1}', Content_Type=kind)
        assert (refused.status, refused.json["error"]["code"]) == (415, "unsupported-media-type")


def test_what_is_not_there_is_not_found_and_other_methods_are_named(control: Http) -> None:
    for path in ("", "/", "/x", "/entities/nothing", "/entities/nothing/messages", "/snapshots/none", "/faults/99"):
        missing = control.ask("DELETE" if path.startswith("/faults") else "GET", path)
        assert (missing.status, missing.json["error"]["code"]) == (404, "not-found"), path
    refused = control.ask("PUT", "/clock")
    assert (refused.status, refused.headers["Allow"], refused.json["error"]["code"]) == (
        405,
        "GET",
        "method-not-allowed",
    )
    assert control.ask("PATCH", f"/entities/{PARTS}").headers["Allow"] == "DELETE, GET, PUT"


@pytest.fixture
def guarded() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription(PARTS)], auth=Auth.SAS) as running:
        yield running


def token(resource: str, key: str = DEFAULT_KEY, *, expiry: int | None = None) -> str:
    at = str(expiry or 10**11)
    encoded = quote(resource, safe="")
    signature = quote(sign(encoded, at, key), safe="")
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={at}&skn={DEFAULT_KEY_NAME}"


def test_with_verification_only_those_who_may_manage_the_namespace_get_in(guarded: EmubusServer) -> None:
    good = token("http://localhost/")
    for path in (f"{ROOT}/entities", "/metrics"):
        for header, status in (
            (None, 401),
            ("nonsense", 401),
            (token("http://localhost/", "wrong"), 401),
            (token("http://localhost/", expiry=1), 401),
            (good, 200),
        ):
            http = Http(guarded.http_port, {} if header is None else {"Authorization": header})
            assert http.send("GET", path).status == status, (path, header)
    refused = Http(guarded.http_port).ask("POST", "/reset", {"to": "empty"})
    assert refused.status == 401
    assert refused.json["error"]["code"] == "unauthorized"
    assert "WWW-Authenticate" in refused.headers


def test_errors_are_json_in_one_form(control: Http) -> None:
    for answered in (control.ask("GET", "/x"), control.ask("PUT", "/clock"), control.ask("GET", "/entities?x=1")):
        assert answered.headers["Content-Type"] == "application/problem+json"
        problem = json.loads(answered.content)
        assert (problem["type"], problem["status"], problem["detail"]) == (
            "about:blank",
            answered.status,
            problem["error"]["message"],
        )
        assert set(answered.json["error"]) == {"code", "message"}


def test_lists_have_one_way_to_page(control: Http, server: EmubusServer) -> None:
    send(server, PARTS, *(NewMessage(b"x") for _ in range(7)))
    for path, name, key in (("/entities", "entities", "path"), (f"/entities/{PARTS}/messages", "messages", None)):
        found: list[Any] = []
        page: str | None = ""
        while page is not None:
            answer = control.get(f"{path}?count=2{f'&page={page}' if page else ''}")
            found += answer[name]
            page = answer["next_page"]
            assert len(answer[name]) <= 2
        whole = control.get(f"{path}?count=200")
        assert (found, whole["next_page"]) == (whole[name], None)
        assert key is None or [each[key] for each in found] == sorted(each[key] for each in found)
    assert control.ask("GET", f"/entities/{PARTS}/messages?page=x").status == 400


def test_connections_are_listed_page_by_page(control: Http, sdk: ServiceBusClient) -> None:
    with sdk.get_queue_sender(PARTS) as one, sdk.get_queue_receiver(PARTS) as other:
        one.send_messages(ServiceBusMessage("x"))
        other.receive_messages(max_wait_time=60)
        first = control.get("/connections?count=1")
        second = control.get(f"/connections?count=1&page={first['next_page']}")
        one_by_one = [each["number"] for answer in (first, second) for each in answer["connections"]]
        assert one_by_one == [each["number"] for each in control.get("/connections")["connections"]]
        assert (len(one_by_one), second["next_page"]) == (2, None)


def test_the_server_says_what_it_is(control: Http, server: EmubusServer) -> None:
    about = control.get("/about")
    assert (about["name"], about["api_version"], about["authentication"]) == ("emubus", "v1", "none")
    assert about["ports"]["http"] == server.http_port


def test_the_document_has_named_schemas_and_tags(control: Http) -> None:
    document = control.get("/openapi.json")
    schemas = document["components"]["schemas"]
    assert {"Entity", "Message", "Job", "Problem", "Clock", "Snapshot"} <= schemas.keys()
    tags = {each["name"] for each in document["tags"]}
    for methods in document["paths"].values():
        for operation in methods.values():
            assert set(operation["tags"]) <= tags
            assert operation["operationId"].isidentifier()
            body = operation.get("requestBody", {"content": {}})["content"].get("application/json")
            assert body is None or "$ref" in body["schema"]
            assert operation["responses"]["400"]["content"].keys() == {"application/problem+json"}
