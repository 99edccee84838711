"""Requests as bytes: which are meant for Resource Manager, versions, bodies, values, and the words of refusals."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any

import pytest

from emubus.testing import Auth, EmubusServer, QueueDescription
from emubus.web.arm.calls import Operation
from emubus.web.arm.table import OPERATIONS

from .client import GROUP, NAMESPACE, NAMESPACES, ROOT, VERSION, WAIT_S, Arm, Json

QUEUE = f"{NAMESPACE}/queues/q"
RULE = f"{NAMESPACE}/topics/t/subscriptions/s/rules/r"
NAMES = {
    "subscription": ROOT.rpartition("/")[2],
    "group": "rg",
    "namespace": "mybus",
    "provider": "Microsoft.ServiceBus",
    "queue": "q",
    "topic": "t",
    "subscription_name": "s",
    "rule": "r",
    "authorization_rule": "k",
    "deployment": "d",
    "operation": "1",
}


def path_of(row: str) -> str:
    return f"/{row.format(**NAMES)}"


def raw(port: int, method: str, path: str, headers: dict[str, str] | None = None) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers.get_content_type(), content


# ---------------------------------------------------------------- which are meant

MEANT = {
    "below a subscription": (f"{ROOT}/anything", 400),
    "with a version": (f"{ROOT}/anything?api-version=2021-04-01", 404),
    "in other case": (f"{ROOT.upper()}/ANYTHING?api-version=2021-04-01", 404),
    "metadata": ("/metadata/endpoints", 200),
    "metadata of az": ("/metadata/endpoints?api-version=2015-01-01", 200),
    "tenants": ("/tenants?api-version=2020-01-01", 200),
    "subscriptions": ("/subscriptions?api-version=2020-01-01", 200),
    "providers": ("/providers/Microsoft.Storage/operations?api-version=2020-01-01", 404),
}


@pytest.mark.parametrize(("path", "status"), MEANT.values(), ids=MEANT)
def test_what_is_meant_for_it_is_answered_with_its_json(server: EmubusServer, path: str, status: int) -> None:
    found, kind, content = raw(server.http_port, "GET", path)
    assert (found, kind) == (status, "application/json"), content


@pytest.mark.parametrize(("version", "is_list"), [("2015-01-01", False), ("2019-05-01", True), ("2022-09-01", False)])
def test_endpoints_of_the_cloud_have_the_form_of_their_version(arm: Arm, version: str, is_list: bool) -> None:
    answer: Any = arm("GET", "/metadata/endpoints", version=version)[1]
    found = answer[0] if is_list else answer
    assert found["authentication"]["loginEndpoint"].startswith("http://127.0.0.1:")


NOT_MEANT = {
    "an entity with that name": "/subscriptions?api-version=2021-05",
    "no version": "/tenants",
    "a subscription of a topic": "/topic/subscriptions/s?api-version=2021-05",
    "a path that only begins so": "/subscriptionsx?api-version=2021-05",
}


@pytest.mark.parametrize("path", NOT_MEANT.values(), ids=NOT_MEANT)
def test_the_management_api_keeps_its_paths(server: EmubusServer, path: str) -> None:
    assert raw(server.http_port, "GET", path)[1] != "application/json"


def test_a_queue_with_the_name_of_a_root_takes_messages_over_rest() -> None:
    with EmubusServer([QueueDescription("subscriptions")]) as server:
        assert raw(server.http_port, "POST", "/subscriptions/messages")[0] == 201
        assert sum(server.message_counts("subscriptions").values()) == 1


# ---------------------------------------------------------------- versions, methods, bodies

REFUSED: dict[str, tuple[str, str, object, str, int, str, str]] = {
    "no version": ("GET", QUEUE, None, "", 400, "MissingApiVersionParameter", "api-version"),
    "no day": ("GET", QUEUE, None, "2021-5-1", 400, "InvalidApiVersionParameter", "2021-5-1"),
    "unknown version": ("GET", QUEUE, None, "1999-01-01", 400, "NoRegisteredProviderFound", "2021-11-01"),
    "unknown path": (
        "GET",
        f"{NAMESPACE}/disasterRecoveryConfigs",
        None,
        "2021-11-01",
        404,
        "InvalidResourceType",
        "d",
    ),
    "unknown method": ("PATCH", QUEUE, {}, "2021-11-01", 405, "MethodNotAllowed", "DELETE, GET, PUT"),
    "no JSON": ("PUT", QUEUE, b"{", "2021-11-01", 400, "InvalidRequestContent", "line 1"),
    "a name twice": ("PUT", QUEUE, b'{"a": 1, "a": 2}', "2021-11-01", 400, "InvalidRequestContent", "twice"),
    "no object": ("PUT", QUEUE, [], "2021-11-01", 400, "InvalidRequestContent", "a list"),
    "too long": ("PUT", QUEUE, b" " * (300 << 10), "2021-11-01", 413, "RequestEntityTooLarge", "262144"),
    "properties no object": ("PUT", QUEUE, {"properties": 1}, "2021-11-01", 400, "InvalidRequestContent", "properties"),
    "no location": ("PUT", f"{NAMESPACES}/other", {}, "2021-11-01", 400, "LocationRequired", "location"),
    "bad name": ("PUT", f"{NAMESPACES}/a_b", {"location": "x"}, "2021-11-01", 400, "BadRequest", "a_b"),
    "bad tier": ("PUT", NAMESPACE, {"location": "x", "sku": {"name": "Gold"}}, "2021-11-01", 400, "BadRequest", "Gold"),
    "bad tags": ("PUT", NAMESPACE, {"location": "x", "tags": []}, "2021-11-01", 400, "InvalidRequestContent", "tags"),
    "bad group": (
        "PUT",
        f"{ROOT}/resourceGroups/a%20b",
        {"location": "x"},
        "2021-04-01",
        400,
        "InvalidResourceGroupName",
        "a b",
    ),
    "no group": ("GET", f"{ROOT}/resourceGroups/none", None, "2021-04-01", 404, "ResourceGroupNotFound", "none"),
    "no namespace": ("GET", f"{NAMESPACES}/none", None, "2021-11-01", 404, "ResourceNotFound", "none"),
    "other group": ("GET", NAMESPACE.replace("/rg/", "/b/"), None, "2021-11-01", 404, "ResourceNotFound", "mybus"),
    "no queue": ("GET", f"{NAMESPACE}/queues/none", None, "2021-11-01", 404, "NotFound", "none"),
    "no topic above": (
        "PUT",
        f"{NAMESPACE}/topics/none/subscriptions/s",
        {},
        "2021-11-01",
        404,
        "ParentResourceNotFound",
        "none",
    ),
    "no subscription above": (
        "PUT",
        f"{NAMESPACE}/topics/t/subscriptions/none/rules/r",
        {},
        "2021-11-01",
        404,
        "ParentResourceNotFound",
        "none",
    ),
    "queue is a topic": ("PUT", f"{NAMESPACE}/queues/t", {}, "2021-11-01", 409, "Conflict", "topic 't'"),
    "no key rule": (
        "POST",
        f"{NAMESPACE}/authorizationRules/none/listKeys",
        None,
        "2021-11-01",
        404,
        "NotFound",
        "none",
    ),
    "key type": (
        "POST",
        f"{NAMESPACE}/authorizationRules/RootManageSharedAccessKey/regenerateKeys",
        {"keyType": "x"},
        "2021-11-01",
        400,
        "BadRequest",
        "PrimaryKey",
    ),
    "provider": (
        "GET",
        f"{ROOT}/providers/Microsoft.Web",
        None,
        "2021-04-01",
        404,
        "InvalidResourceNamespace",
        "Microsoft.Web",
    ),
    "page": ("GET", f"{NAMESPACE}/queues?$top=0", None, "2021-11-01", 400, "BadRequest", "$top"),
    "defaultAction": (
        "PUT",
        f"{NAMESPACE}/networkRuleSets/default",
        {"properties": {"defaultAction": "x"}},
        "2021-11-01",
        400,
        "BadRequest",
        "Allow or Deny",
    ),
}


@pytest.mark.parametrize(
    ("method", "path", "body", "version", "status", "code", "words"), REFUSED.values(), ids=list(REFUSED)
)
def test_what_is_refused_says_so_in_one_line(
    arm: Arm, method: str, path: str, body: object, version: str, status: int, code: str, words: str
) -> None:
    for put in (f"{NAMESPACE}/topics/t", f"{NAMESPACE}/topics/t/subscriptions/s"):
        assert arm("PUT", put, {})[0] == 200
    found = arm.refused(method, path, body, version)
    assert found[:2] == (status, code)
    assert words in found[2]
    assert "\n" not in found[2]


# ---------------------------------------------------------------- values

VALUES: dict[str, tuple[Json, Json]] = {
    "numbers as text": ({"maxDeliveryCount": "7"}, {"maxDeliveryCount": 7}),
    "truth as text": ({"requiresSession": "True"}, {"requiresSession": True}),
    "other case": ({"MaxDeliveryCount": 7}, {"maxDeliveryCount": 7}),
    "whole floats": ({"maxDeliveryCount": 7.0}, {"maxDeliveryCount": 7}),
    "null": ({"maxDeliveryCount": None, "forwardTo": None}, {"maxDeliveryCount": 10}),
    "not known": ({"noSuchProperty": {}, "countDetails": {}, "sizeInBytes": 5}, {"sizeInBytes": 0}),
    "never": ({"autoDeleteOnIdle": "P10675199DT2H48M5.4775807S"}, {"autoDeleteOnIdle": "P10675199DT2H48M5.4775807S"}),
    "status": ({"status": "SendDisabled"}, {"status": "SendDisabled"}),
    "partitions": ({"enablePartitioning": True, "maxSizeInMegabytes": 1024}, {"maxSizeInMegabytes": 16384}),
    "forward": ({"forwardTo": "target"}, {"forwardTo": "target"}),
    "by url": (
        {"forwardTo": "sb://mybus.servicebus.windows.net/target"},
        {"forwardTo": "sb://mybus.servicebus.windows.net/target"},
    ),
}


@pytest.mark.parametrize(("given", "shown"), VALUES.values(), ids=list(VALUES))
def test_values_are_taken_as_the_service_takes_them(arm: Arm, given: Json, shown: Json) -> None:
    assert arm("PUT", f"{NAMESPACE}/queues/target", {})[0] == 200
    status, answer = arm("PUT", QUEUE, {"properties": given})
    assert status == 200, answer
    assert {name: answer["properties"][name] for name in shown} == shown
    assert arm("GET", QUEUE)[1] == answer


BAD_VALUES = {
    "an object": ({"maxDeliveryCount": {}}, "properties.maxDeliveryCount"),
    "no number": ({"maxDeliveryCount": "ten"}, "properties.maxDeliveryCount"),
    "no duration": ({"lockDuration": "5 minutes"}, "properties.lockDuration"),
    "empty": ({"lockDuration": ""}, "it is empty"),
    "too long": ({"lockDuration": "PT10M"}, "LockDuration"),
    "no status": ({"status": "On"}, "none of Active"),
    "no target": ({"forwardTo": "nowhere"}, "forward"),
    "a fraction": ({"maxDeliveryCount": 1.5}, "properties.maxDeliveryCount"),
}


@pytest.mark.parametrize(("given", "words"), BAD_VALUES.values(), ids=list(BAD_VALUES))
def test_a_value_that_can_not_be_used_is_named_and_nothing_is_made(arm: Arm, given: Json, words: str) -> None:
    status, _, text = arm.refused("PUT", QUEUE, {"properties": given})
    assert status == 400
    assert words in text
    assert arm("GET", QUEUE)[0] == 404


def test_put_gives_what_it_leaves_out_its_default_and_keeps_what_is_fixed(arm: Arm) -> None:
    assert arm("PUT", QUEUE, {"properties": {"requiresSession": True, "maxDeliveryCount": 3}})[0] == 200
    status, answer = arm("PUT", QUEUE, {"properties": {"lockDuration": "PT30S"}})
    shown = answer["properties"]
    assert (status, shown["requiresSession"], shown["maxDeliveryCount"], shown["lockDuration"]) == (
        200,
        True,
        10,
        "PT30S",
    )
    status, code, text = arm.refused("PUT", QUEUE, {"properties": {"requiresSession": False}})
    assert (status, code) == (400, "MessagingGatewayBadRequest")
    assert "RequiresSession" in text


def test_what_a_client_has_read_it_may_send_back(arm: Arm) -> None:
    below = f"{NAMESPACE}/topics/t/subscriptions/s"
    for path in (QUEUE, f"{NAMESPACE}/topics/t", below, f"{below}/rules/r", NAMESPACE):
        body = {"location": "x", "properties": {"enablePartitioning": True} if path.endswith(("q", "t")) else {}}
        assert arm("PUT", path, body)[0] == 200, path
        read = arm("GET", path)[1]
        status, again = arm("PUT", path, read)
        assert status == 200
        for each in (read, again):
            for name in ("updatedAt", "accessedAt"):
                each["properties"].pop(name, None)
        assert again == read


def test_a_slash_in_a_name_is_a_tilde_in_paths(arm: Arm, server: EmubusServer) -> None:
    status, answer = arm("PUT", f"{NAMESPACE}/queues/a~b", {})
    assert (status, answer["name"]) == (200, "a~b")
    broker = server.run(server.server.namespaces.open("mybus")).broker
    assert "a/b" in [each.path for each in broker.namespace.entities()]
    assert arm("GET", answer["id"])[1]["id"] == answer["id"]
    assert arm("PUT", f"{NAMESPACE}/topics/t%2Fu", {})[1]["name"] == "t~u"


RULES: dict[str, tuple[Json, Json]] = {
    "nothing": ({}, {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "1=1", "compatibilityLevel": 20}}),
    "empty action": ({"action": {}, "sqlFilter": {"sqlExpression": "a=1"}}, {"action": {}, "filterType": "SqlFilter"}),
    "type not named": (
        {"correlationFilter": {"to": "x"}},
        {"filterType": "CorrelationFilter", "correlationFilter": {"to": "x", "properties": {}}},
    ),
    "type in other case": (
        {"filterType": "correlationfilter", "correlationFilter": {"Label": "x"}},
        {"filterType": "CorrelationFilter"},
    ),
    "values as text": (
        {"correlationFilter": {"properties": {"n": 5, "b": True}}},
        {"correlationFilter": {"properties": {"n": "5", "b": "true"}}},
    ),
}


@pytest.mark.parametrize(("given", "shown"), RULES.values(), ids=list(RULES))
def test_rules(arm: Arm, given: Json, shown: Json) -> None:
    for put in (f"{NAMESPACE}/topics/t", f"{NAMESPACE}/topics/t/subscriptions/s"):
        assert arm("PUT", put, {})[0] == 200
    status, answer = arm("PUT", RULE, {"properties": given})
    assert status == 200, answer
    assert {name: answer["properties"][name] for name in shown} == shown
    assert arm("DELETE", RULE)[0] == 200
    assert arm("DELETE", RULE)[0] == 204


BAD_RULES = {
    "a type": ({"filterType": "Sql"}, "filterType"),
    "an expression": ({"sqlFilter": {"sqlExpression": "a ="}}, "parsing"),
    "an empty correlation": ({"correlationFilter": {}}, "orrelation"),
    "an action": ({"action": {"sqlExpression": "SETT a = 1"}}, "SETT"),
}


@pytest.mark.parametrize(("given", "words"), BAD_RULES.values(), ids=list(BAD_RULES))
def test_bad_rules(arm: Arm, given: Json, words: str) -> None:
    for put in (f"{NAMESPACE}/topics/t", f"{NAMESPACE}/topics/t/subscriptions/s"):
        assert arm("PUT", put, {})[0] == 200
    status, _, text = arm.refused("PUT", RULE, {"properties": given})
    assert status == 400
    assert words in text


def test_lists_have_pages(arm: Arm) -> None:
    names = [f"q{number}" for number in range(5)]
    for each in names:
        assert arm("PUT", f"{NAMESPACE}/queues/{each}", {})[0] == 200
    found: list[str] = []
    path, version = f"{NAMESPACE}/queues?$top=2", VERSION
    while path:
        status, answer = arm("GET", path, version=version)
        assert status == 200
        found += [each["name"] for each in answer["value"]]
        following = answer.get("nextLink", "").partition("://")[2]
        path, version = "/".join(["", *following.split("/")[1:]]) if following else "", ""
    assert found == names


# ---------------------------------------------------------------- rights


@pytest.fixture(scope="module")
def locked() -> Iterator[EmubusServer]:
    with EmubusServer(auth=Auth.SAS) as running:
        yield running


@pytest.mark.parametrize(
    "row", [each for each in OPERATIONS if not each.is_public], ids=lambda each: f"{each.method} {each.path}"
)
def test_no_operation_answers_a_stranger(locked: EmubusServer, row: Operation) -> None:
    method, path = row.method, row.path
    with Arm(locked.http_port) as stranger:
        if method == "HEAD":
            assert stranger(method, path_of(path))[0] == 401
        else:
            assert stranger.refused(method, path_of(path))[:2] == (401, "AuthenticationFailed")
    with Arm(locked.http_port, "Basic Um9vdE1hbmFnZVNoYXJlZEFjY2Vzc0tleTpTQVNfS0VZX1ZBTFVF") as owner:
        assert owner(method, path_of(path), version="2021-11-01")[0] != 401


def test_a_page_of_another_origin_can_not_write(server: EmubusServer) -> None:
    headers = {"Origin": "http://evil.example", "Content-Type": "application/json"}
    status, kind, _ = raw(server.http_port, "PUT", f"{GROUP}?api-version=2021-04-01", headers)
    assert (status, kind) == (403, "application/json")
