"""`import --pulumi`: resources of Azure Native and Azure Classic, secrets, what is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from emubus.declared.resources import Declared, Kind
from emubus.importing.pulumi import SIGNATURE, read_pulumi

from .conftest import CommandLine

ID = "/subscriptions/0/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/ns"
SECRET = "1b47061264138c4ac30d75fd1eb44270"
Values = Mapping[str, object]


def resource(kind: str, name: str, inputs: Values, **more: object) -> dict[str, object]:
    urn = f"urn:pulumi:dev::shop::{kind}::{name}"
    return {"urn": urn, "custom": True, "type": kind, "inputs": inputs, **more}


def native(kind: str, name: str, inputs: Values, **more: object) -> dict[str, object]:
    return resource(f"azure-native:servicebus:{kind}", name, inputs, **more)


def classic(kind: str, name: str, inputs: Values, **more: object) -> dict[str, object]:
    return resource(f"azure:servicebus/{kind[0].lower()}{kind[1:]}:{kind}", name, inputs, **more)


def stack(*resources: object) -> dict[str, Any]:
    root = {
        "urn": "urn:pulumi:dev::shop::pulumi:pulumi:Stack::shop-dev",
        "custom": False,
        "type": "pulumi:pulumi:Stack",
    }
    return {"version": 3, "deployment": {"manifest": {}, "resources": [root, *resources]}}


def ciphertext() -> dict[str, str]:
    return {SIGNATURE: SECRET, "ciphertext": "v1:abc"}


def plaintext(value: object) -> dict[str, str]:
    return {SIGNATURE: SECRET, "plaintext": json.dumps(value)}


NATIVE = (
    native("Namespace", "bus", {"namespaceName": "ns", "sku": {"name": "Standard"}, "location": "x"}, id=ID),
    native(
        "Queue",
        "q",
        {
            "queueName": "pu-q",
            "namespaceName": "ns",
            "resourceGroupName": "g",
            "maxDeliveryCount": 4,
            "forwardTo": "pu-t",
        },
        id=f"{ID}/queues/pu-q",
    ),
    native("Topic", "t", {"topicName": "pu-t", "namespaceName": "ns", "resourceGroupName": "g"}),
    native(
        "Subscription",
        "s",
        {"subscriptionName": "pu-s", "topicName": "pu-t", "namespaceName": "ns", "lockDuration": "PT30S"},
    ),
    native(
        "Rule",
        "r",
        {
            "ruleName": "pu-r",
            "subscriptionName": "pu-s",
            "topicName": "pu-t",
            "namespaceName": "ns",
            "filterType": "SqlFilter",
            "sqlFilter": {"sqlExpression": "a = 1"},
        },
    ),
    native(
        "DefaultRule",
        "d",
        {
            "subscriptionName": "pu-s",
            "topicName": "pu-t",
            "namespaceName": "ns",
            "filterType": "SqlFilter",
            "sqlFilter": {"sqlExpression": "1=0"},
        },
    ),
    native(
        "QueueAuthorizationRule",
        "k",
        {"authorizationRuleName": "pu-k", "queueName": "pu-q", "namespaceName": "ns", "rights": ["Listen"]},
    ),
    native("DisasterRecoveryConfig", "dr", {}),
    resource("azure-native:resources:ResourceGroup", "g", {}),
)


def test_a_stack_of_azure_native_is_imported_twice(emubus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "stack.json"
    file.write_text(json.dumps(stack(*NATIVE)))
    ended = emubus("import", "--pulumi", str(file))
    assert (ended.code, ended.out.splitlines()) == (
        0,
        [
            "unchanged namespace",
            "created queue pu-q",
            "created topic pu-t",
            "created subscription pu-t/Subscriptions/pu-s",
            "created rule pu-t/Subscriptions/pu-s/Rules/pu-r",
            "removed rule pu-t/Subscriptions/pu-s/Rules/$Default: it is declared to match nothing",
            "created authorization rule pu-q/pu-k",
        ],
    )
    assert ended.err.splitlines() == [
        "emubus: passed over: azure-native:servicebus:DisasterRecoveryConfig::dr: emubus has no such setting",
        "emubus: passed over: 1 resource of other services: azure-native:resources:ResourceGroup",
    ]
    assert emubus.json("show", "pu-q")["properties"]["forward_to"] == "pu-t"
    again = emubus("import", "--pulumi", str(file))
    assert {line.partition(" ")[0] for line in again.out.splitlines()} == {"unchanged"}


@pytest.mark.parametrize(
    "kind",
    [
        "azure-native:servicebus:Queue",
        "azure-native:servicebus/v20240101:Queue",
        "azure-native_servicebus_v20221001preview:servicebus:Queue",
    ],
)
def test_each_spelling_of_a_type_of_azure_native_is_known(kind: str) -> None:
    found = read_pulumi(stack(resource(kind, "q", {"queueName": "a~b", "namespaceName": "ns"})), "stack.json")
    assert found.declared == (Declared(Kind.QUEUE, ("a/b",), {}),)
    assert found.declared[0].namespace == "ns"


CLASSIC: tuple[tuple[str, Values, Kind, tuple[str, ...], Values], ...] = (
    ("Namespace", {"name": "ns", "sku": "Premium", "capacity": 1}, Kind.NAMESPACE, (), {"sku": {"name": "Premium"}}),
    (
        "Queue",
        {"name": "q", "namespaceId": ID, "partitioningEnabled": True, "defaultMessageTtl": "P1D", "__defaults": []},
        Kind.QUEUE,
        ("q",),
        {"enablePartitioning": True, "defaultMessageTimeToLive": "P1D"},
    ),
    (
        "Topic",
        {"name": "t", "namespaceId": ID, "supportOrdering": True},
        Kind.TOPIC,
        ("t",),
        {"supportOrdering": True},
    ),
    (
        "Subscription",
        {
            "name": "s",
            "topicId": f"{ID}/topics/t",
            "maxDeliveryCount": 1,
            "deadLetteringOnFilterEvaluationError": False,
        },
        Kind.SUBSCRIPTION,
        ("t", "s"),
        {"maxDeliveryCount": 1, "deadLetteringOnFilterEvaluationExceptions": False},
    ),
    (
        "SubscriptionRule",
        {
            "name": "r",
            "subscriptionId": f"{ID}/topics/t/subscriptions/s",
            "filterType": "CorrelationFilter",
            "correlationFilter": {"replyToSessionId": "x", "properties": {"someKey": "v"}},
        },
        Kind.RULE,
        ("t", "s", "r"),
        {
            "filterType": "CorrelationFilter",
            "correlationFilter": {"replyToSessionId": "x", "properties": {"someKey": "v"}},
        },
    ),
    (
        "NamespaceAuthorizationRule",
        {"name": "k", "namespaceId": ID, "listen": True, "send": True},
        Kind.AUTHORIZATION_RULE,
        ("k",),
        {"rights": ["Send", "Listen"]},
    ),
    (
        "QueueAuthorizationRule",
        {"name": "k", "queueId": f"{ID}/queues/q", "send": True},
        Kind.AUTHORIZATION_RULE,
        ("q", "k"),
        {"rights": ["Send"]},
    ),
    ("NamespaceNetworkRuleSet", {"namespaceId": ID, "name": "x"}, Kind.NETWORK_RULES, (), {}),
)


@pytest.mark.parametrize(
    ("word", "inputs", "kind", "path", "properties"), CLASSIC, ids=[str(each[0]) for each in CLASSIC]
)
def test_each_type_of_azure_classic_is_read(
    word: str, inputs: Values, kind: Kind, path: tuple[str, ...], properties: Values
) -> None:
    found = read_pulumi(stack(classic(word, "x", inputs)), "stack.json")
    assert (found.left_out, found.declared) == ((), (Declared(kind, path, properties),))


def test_what_is_being_deleted_and_what_is_read_from_elsewhere_is_not_declared() -> None:
    found = read_pulumi(
        stack(
            native("Queue", "q", {"queueName": "q", "namespaceName": "ns"}, delete=True),
            {**resource("my:component:Bus", "b", {}), "custom": False},
        ),
        "stack.json",
    )
    assert (found.declared, found.left_out, found.foreign) == ((), (), {})


def test_secrets_that_are_shown_are_read_and_others_are_named() -> None:
    inputs = {"namespaceName": "ns", "forwardTo": ciphertext(), "maxDeliveryCount": plaintext(3)}
    found = read_pulumi(
        stack(
            native("Queue", "shown", {**inputs, "queueName": plaintext("q")}),
            native("Queue", "hidden", {"namespaceName": "ns", "queueName": ciphertext()}),
            native("Queue", "unknown", {"namespaceName": "ns", "queueName": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"}),
            classic("Queue", "old", {"namespaceId": ciphertext(), "name": "q"}),
        ),
        "stack.json",
    )
    assert found.declared == (Declared(Kind.QUEUE, ("q",), {"maxDeliveryCount": 3}),)
    remedy = "`pulumi stack export --show-secrets` has it"
    assert [(each.why, each.remedy, each.is_entity) for each in found.left_out] == [
        ("the property forwardTo is a secret or not known", remedy, False),
        ("its name is a secret or not known", remedy, True),
        ("its name is a secret or not known", remedy, True),
        ("its name, or what it is in, is a secret or not known", remedy, True),
    ]


def test_a_secret_within_a_block_is_named_by_its_path() -> None:
    inputs = {
        "namespaceName": "ns",
        "topicName": "t",
        "subscriptionName": "s",
        "ruleName": "r",
        "correlationFilter": {"label": ciphertext(), "to": "x"},
    }
    found = read_pulumi(stack(native("Rule", "r", inputs)), "stack.json")
    assert found.declared[0].properties == {"correlationFilter": {"to": "x"}}
    assert [each.why for each in found.left_out] == ["the property correlationFilter.label is a secret or not known"]


@pytest.mark.parametrize("document", [{}, {"deployment": 1}, {"deployment": {"resources": 1}}])
def test_a_file_of_something_else_is_refused_with_one_line(
    emubus: CommandLine, tmp_path: Path, document: object
) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(document))
    ended = emubus("import", "--pulumi", str(file))
    text = "it has no deployment with resources; give what `pulumi stack export` prints"
    assert (ended.code, ended.out, ended.err) == (2, "", f"emubus: error: {file}: {text}\n")
