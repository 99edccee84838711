"""Deployments of templates: what they make, again, in part, and what is refused before anything is made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emubus.testing import EmubusServer
from emubus.web.arm.loose_json import read_deployment
from emubus.web.json_reader import JsonError

from .client import GROUP, NAMESPACE, ROOT, Arm, Json

VERSION = "2021-04-01"
DEPLOYMENT = f"{GROUP}/providers/Microsoft.Resources/deployments/d"
NAME = "parameters('name')"
TEMPLATE: Json = {
    "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    "contentVersion": "1.0.0.0",
    "parameters": {"name": {"type": "string"}, "count": {"type": "int", "defaultValue": 3}},
    "resources": [
        {
            "type": "Microsoft.ServiceBus/namespaces/topics/subscriptions/rules",
            "apiVersion": "2021-11-01",
            "name": f"[concat({NAME}, '/t/s/r')]",
            "properties": {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "a = 1"}},
        },
        {
            "type": "Microsoft.ServiceBus/namespaces/topics/subscriptions",
            "apiVersion": "2021-11-01",
            "name": f"[concat({NAME}, '/t/s')]",
            "properties": {"forwardTo": "q"},
        },
        {
            "type": "Microsoft.ServiceBus/namespaces",
            "apiVersion": "2021-11-01",
            "name": f"[{NAME}]",
            "location": "[resourceGroup().location]",
            "sku": {"name": "Standard"},
            "resources": [
                {"type": "topics", "apiVersion": "2021-11-01", "name": "t"},
                {
                    "type": "queues",
                    "apiVersion": "2021-11-01",
                    "name": "q",
                    "properties": {"maxDeliveryCount": "[parameters('count')]"},
                },
                {
                    "type": "authorizationRules",
                    "apiVersion": "2021-11-01",
                    "name": "app",
                    "properties": {"rights": ["Send"]},
                },
            ],
        },
    ],
    "outputs": {
        "key": {
            "type": "string",
            "value": f"[listKeys(resourceId('Microsoft.ServiceBus/namespaces/authorizationRules', {NAME}, 'app'), "
            "'2021-11-01').primaryKey]",
        },
        "hidden": {"type": "secureString", "value": "x"},
    },
}


def deployment(template: object = TEMPLATE, **parameters: object) -> Json:
    given = {name: {"value": value} for name, value in {"name": "mybus", **parameters}.items()}
    return {"properties": {"mode": "Incremental", "template": template, "parameters": given}}


@pytest.fixture
def group(arm: Arm) -> Arm:
    assert arm("PUT", GROUP, {"location": "westeurope"}, VERSION)[0] in (200, 201)
    return arm


def test_a_deployment_makes_what_its_template_declares_in_any_order_and_again(group: Arm) -> None:
    properties: Any = None
    for _ in range(2):
        status, answer = group("PUT", DEPLOYMENT, deployment(), VERSION)
        assert status == 201, answer
        properties = answer["properties"]
        assert properties["provisioningState"] == "Succeeded"
        key = group("POST", f"{NAMESPACE}/authorizationRules/app/listKeys")[1]["primaryKey"]
        assert properties["outputs"] == {"key": {"type": "string", "value": key}, "hidden": {"type": "secureString"}}
        assert len(properties["outputResources"]) == 6
        assert group("GET", f"{NAMESPACE}/queues/q")[1]["properties"]["maxDeliveryCount"] == 3
        below = f"{NAMESPACE}/topics/t/subscriptions/s"
        assert group("GET", below)[1]["properties"]["forwardTo"] == "q"
        names = [each["name"] for each in group("GET", f"{below}/rules")[1]["value"]]
        assert names == ["$Default", "r"]
    assert group("GET", DEPLOYMENT, version=VERSION)[1]["properties"]["outputs"] == properties["outputs"]
    listed = group("GET", DEPLOYMENT.rpartition("/")[0], version=VERSION)[1]["value"]
    assert [each["name"] for each in listed] == ["d"]
    assert len(group("GET", f"{DEPLOYMENT}/operations", version=VERSION)[1]["value"]) == 6
    assert group("HEAD", DEPLOYMENT, version=VERSION)[0] == 204
    assert group("DELETE", DEPLOYMENT, version=VERSION)[0] == 200
    assert group("HEAD", DEPLOYMENT, version=VERSION)[0] == 404
    assert group("PUT", DEPLOYMENT, deployment(count=7), VERSION)[0] == 201
    assert group("GET", f"{NAMESPACE}/queues/q")[1]["properties"]["maxDeliveryCount"] == 7


def test_the_first_one_of_the_subscription(group: Arm) -> None:
    path = f"{ROOT}/providers/Microsoft.Resources/deployments/d"
    body = {"location": "here", **deployment()}
    assert group("PUT", path, body, VERSION)[0] == 201
    assert group("GET", f"{NAMESPACE}/queues/q")[0] == 200
    assert group("GET", path, version=VERSION)[1]["properties"]["provisioningState"] == "Succeeded"


def test_validation_and_what_if_make_nothing(group: Arm) -> None:
    status, answer = group("POST", f"{DEPLOYMENT}/validate", deployment(), VERSION)
    assert (status, len(answer["properties"]["validatedResources"])) == (200, 6)
    status, answer = group("POST", f"{DEPLOYMENT}/whatIf", deployment(), VERSION)
    kinds = [each["changeType"] for each in answer["properties"]["changes"]]
    assert (status, kinds) == (200, ["Create", "Create", "NoChange", *["Create"] * 3])
    assert group("GET", f"{NAMESPACE}/queues/q")[0] == 404
    assert group("GET", DEPLOYMENT, version=VERSION)[0] == 404
    assert group("PUT", DEPLOYMENT, deployment(), VERSION)[0] == 201
    answer = group("POST", f"{DEPLOYMENT}/whatIf", deployment(count=9), VERSION)[1]
    (changed,) = [each for each in answer["properties"]["changes"] if each["changeType"] == "Modify"]
    assert changed["resourceId"].endswith("/queues/q")
    (delta,) = changed["delta"]
    assert (delta["path"], delta["before"], delta["after"]) == ("properties.maxDeliveryCount", 3, 9)


def with_queue(**properties: object) -> Json:
    queue = {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "mybus/bad", "properties": properties}
    good = {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "mybus/good"}
    return {"parameters": {"name": {"type": "string"}}, "resources": [queue, good]}


def test_a_deployment_that_fails_names_what_and_why_and_keeps_what_was_made(group: Arm) -> None:
    status, answer = group("PUT", DEPLOYMENT, deployment(with_queue(lockDuration="PT1H")), VERSION)
    assert (status, answer["properties"]["provisioningState"]) == (201, "Failed")
    status, answer = group("GET", f"{DEPLOYMENT}/operationStatuses/1", version=VERSION)
    assert (status, answer["status"], answer["error"]["code"]) == (200, "Failed", "DeploymentFailed")
    text = group.refused("PUT", f"{NAMESPACE}/queues/bad", {"properties": {"lockDuration": "PT1H"}})[2]
    assert "The supplied lock time exceeds the allowed maximum" in text
    assert f"queue bad: {text.strip()}" in answer["error"]["message"]
    assert group("GET", f"{NAMESPACE}/queues/good")[0] == 200
    properties = group("GET", DEPLOYMENT, version=VERSION)[1]["properties"]
    assert properties["provisioningState"] == "Failed"
    (detail,) = properties["error"]["details"]
    assert detail["target"].endswith("/queues/bad")
    assert [each["id"].rpartition("/")[2] for each in properties["outputResources"]] == ["good"]


# ---------------------------------------------------------------- the engine

QUEUE, TOPIC = "Microsoft.ServiceBus/namespaces/queues", "Microsoft.ServiceBus/namespaces/topics"
STEPS: dict[str, tuple[list[Json], list[str]]] = {
    "targets behind their sources": (
        [
            {"type": QUEUE, "name": "mybus/a", "properties": {"forwardTo": "b", "forwardDeadLetteredMessagesTo": "b"}},
            {"type": QUEUE, "name": "mybus/b"},
        ],
        ["Create", "Create"],
    ),
    "a circle": (
        [
            {"type": QUEUE, "name": "mybus/a", "properties": {"forwardDeadLetteredMessagesTo": "b"}},
            {"type": QUEUE, "name": "mybus/b", "properties": {"forwardDeadLetteredMessagesTo": "a"}},
        ],
        ["Create", "Create"],
    ),
    "a namespace of its own": (
        [
            {"type": QUEUE, "name": "other/a"},
            {
                "type": "Microsoft.ServiceBus/namespaces",
                "name": "other",
                "location": "northeurope",
                "tags": {"team": "a"},
                "sku": {"name": "Premium"},
            },
            {"type": "Microsoft.ServiceBus/namespaces/networkRuleSets", "name": "other/default", "properties": {}},
        ],
        ["Create", "Create", "Create"],
    ),
    "a rule in other case": (
        [
            {"type": f"{TOPIC}/subscriptions/rules", "name": "mybus/T/S/r", "properties": {}},
            {"type": f"{TOPIC}/subscriptions", "name": "mybus/t/s"},
            {"type": TOPIC, "name": "mybus/t"},
        ],
        ["Create", "Create", "Create"],
    ),
    "a key that is no right": (
        [
            {"type": f"{QUEUE}/authorizationRules", "name": "mybus/q/k", "properties": {"rights": ["Manage"]}},
            {"type": QUEUE, "name": "mybus/q"},
        ],
        ["Unsupported", "Create"],
    ),
    "what has no parent": (
        [
            {"type": f"{TOPIC}/subscriptions", "name": "mybus/none/s"},
            {"type": QUEUE, "name": "nowhere/q"},
        ],
        ["Unsupported", "Unsupported"],
    ),
}


@pytest.mark.parametrize(("declared", "expected"), STEPS.values(), ids=list(STEPS))
def test_what_if_says_what_the_deployment_does_and_the_second_one_changes_nothing(
    group: Arm, declared: list[Json], expected: list[str]
) -> None:
    def foreseen() -> list[str]:
        status, answer = group("POST", f"{DEPLOYMENT}/whatIf", body, VERSION)
        assert status == 200, answer
        return [each["changeType"] for each in answer["properties"]["changes"]]

    body = deployment({"parameters": {"name": {"type": "string"}}, "resources": declared})
    assert foreseen() == expected
    is_whole = "Unsupported" not in expected
    for _ in range(2):
        status, answer = group("PUT", DEPLOYMENT, body, VERSION)
        assert (status, answer["properties"]["provisioningState"]) == (201, "Succeeded" if is_whole else "Failed")
        details = answer["properties"].get("error", {}).get("details", [])
        assert len(details) == expected.count("Unsupported")
        made = [each["id"] for each in answer["properties"]["outputResources"]]
        assert len(made) == len(expected) - len(details)
        assert all(group("GET", each)[0] == 200 for each in made)
        after = ["Unsupported" if each == "Unsupported" else "NoChange" for each in expected]
        assert foreseen() == after


def test_a_namespace_of_a_template_has_its_place_and_tags(group: Arm) -> None:
    declared, _ = STEPS["a namespace of its own"]
    body = deployment({"parameters": {"name": {"type": "string"}}, "resources": declared})
    assert group("PUT", DEPLOYMENT, body, VERSION)[0] == 201
    made = group("GET", NAMESPACE.replace("/mybus", "/other"))[1]
    assert (made["location"], made["tags"], made["sku"]["name"]) == ("northeurope", {"team": "a"}, "Premium")


def test_conditions_strike_the_changes_of_a_deployment(server: EmubusServer, group: Arm) -> None:
    first = NAMESPACE.replace("mybus", "sbemulatorns")
    assert group("PUT", first, {"location": "here"})[0] == 200
    server.start_condition("conflict-running", share=1.0)
    body = json.loads(json.dumps(deployment(with_queue())).replace("mybus/", "sbemulatorns/"))
    answer = group("PUT", DEPLOYMENT, body, VERSION)[1]
    assert answer["properties"]["provisioningState"] == "Failed", answer
    assert "SubCode=40901" in answer["properties"]["error"]["message"]


REFUSED = {
    "no template": ({"properties": {"mode": "Incremental"}}, "properties.template"),
    "a link": ({"properties": {"templateLink": {"uri": "https://x"}}}, "behind a link"),
    "no object": ({"properties": {"template": []}}, "no object"),
    "no value": ({"properties": {"template": TEMPLATE}}, "'name' has no value"),
    "a parameter too many": (deployment(other=1), "other"),
    "an expression": (deployment({"resources": [{"type": "Microsoft.ServiceBus/namespaces", "name": "[nope("}]}), ""),
}


@pytest.mark.parametrize(("body", "words"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("action", ["", "/validate", "/whatIf"])
def test_a_template_that_can_not_be_read_makes_nothing(group: Arm, action: str, body: Json, words: str) -> None:
    method = "POST" if action else "PUT"
    status, code, text = group.refused(method, f"{DEPLOYMENT}{action}", body, VERSION)
    assert (status, code) == (400, "InvalidTemplate")
    assert words in text
    assert group("GET", DEPLOYMENT, version=VERSION)[0] == 404


def test_a_group_that_is_not_there_is_named(server: EmubusServer) -> None:
    with Arm(server.http_port) as arm:
        assert arm.refused("PUT", DEPLOYMENT, deployment(), VERSION)[:2] == (404, "ResourceGroupNotFound")


LOOSE = {
    "strict": b'{"properties": {"mode": "x", "template": {"a": 1}}}',
    "as the Azure CLI sends it": b'{"properties": {"mode": "x", template:{"a": 1}}}',
    "comments": b'{"properties": {"mode": "x", template:{ // "b": 2\n "a": /* 3 */ 1}}}',
    "a comma behind the last": b'{"properties": {"mode": "x", template:{"a": 1, /* end */ },}}',
}


@pytest.mark.parametrize("body", LOOSE.values(), ids=LOOSE)
def test_bodies_of_the_azure_cli(body: bytes) -> None:
    assert read_deployment(body) == {"properties": {"mode": "x", "template": {"a": 1}}}


def test_texts_stay_as_they_are() -> None:
    text = 'a "quoted", template:{ // no comment /* none */ ,}\\'
    body = b'{"properties": {"p": %s, template:{"t": %s, "m": "two\nlines"}}}'
    written = json.dumps(text).encode()
    found = {"properties": {"p": text, "template": {"t": text, "m": "two\nlines"}}}
    assert read_deployment(body % (written, written)) == found


@pytest.mark.parametrize("body", [b"{", b'{"a": template:{}}', b"{template:{}", b'{"a": "\xff', b'{"a": /* '])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(JsonError):
        read_deployment(body)
