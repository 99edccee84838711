"""What a template declares: names, loops, conditions, modules, references, parameters; what is left out and why."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from emubus.broker.model.descriptions import SubscriptionDescription
from emubus.broker.model.profiles import LIMITS, Profile
from emubus.declared.applying import Status, apply
from emubus.declared.future import FutureNamespace
from emubus.declared.resources import Declared, Kind, LeftOut
from emubus.templates.evaluating import Place
from emubus.templates.reading import Evaluated, evaluate, parameters_in
from emubus.templates.values import Unknown, Unresolved

NAMESPACE = "Microsoft.ServiceBus/namespaces"
PLACE = Place("s", "g", "westeurope", "t", "main", datetime(2020, 1, 2, tzinfo=UTC), lambda: "guid")
UNIQUE = "uniqueString(resourceGroup().id)"


def queue(name: str, **more: object) -> dict[str, object]:
    return {"type": f"{NAMESPACE}/queues", "name": name, **more}


def read(*resources: object, given: Mapping[str, object] | None = None, **sections: Any) -> Evaluated:
    return evaluate({"resources": [*resources], **sections}, given or {})


def names(found: Evaluated) -> list[str]:
    return ["/".join(each.path) for each in found.resources.declared]


def properties(found: Evaluated) -> Mapping[str, object]:
    (only,) = found.resources.declared
    return only.properties


def left(found: Evaluated) -> list[tuple[str, str]]:
    return [(each.what, each.remedy) for each in found.resources.left_out]


def module(resources: object, given: Mapping[str, object] | None = None, *, inner: bool = True, **sections: Any) -> Any:
    scope = {"expressionEvaluationOptions": {"scope": "inner"}} if inner else {}
    values = {name: {"value": each} for name, each in (given or {}).items()}
    template = {"resources": resources, **sections}
    return {
        "type": "Microsoft.Resources/deployments",
        "name": "module",
        "properties": {**scope, "parameters": values, "template": template},
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("n/q", ("n", "q")),
        ("n/a~b", ("n", "a/b")),
        (f"[format('{{0}}/{{1}}', take(format('x-{{0}}', {UNIQUE}), 50), 'q')]", ("", "q")),
        (f"[concat(toLower({UNIQUE}), '/Q')]", ("", "Q")),
        ("[concat(parameters('ns'), '/q')]", ("", "q")),
    ],
)
def test_the_name_of_a_namespace_need_not_be_known(name: str, expected: tuple[str, str]) -> None:
    (found,) = read(queue(name), parameters={"ns": {"type": "string"}}).resources.declared
    assert (found.namespace, *found.path) == expected


@pytest.mark.parametrize(
    ("name", "why", "remedy"),
    [
        (f"[concat('n/', {UNIQUE})]", "resourceGroup() is a value of the cloud", ""),
        ("[concat('n/', parameters('q'))]", "the parameter 'q' has no value", "give the parameter 'q' a value"),
        ("[concat('n/', parameters('d'))]", "is a value of the cloud", "give the parameter 'd' a value"),
        ("[concat('n/', variables('helped'))]", "is a value of the cloud", "give the parameter 'own' a value"),
        ("[parameters('q')]", "the parameter 'q' has no value", "give the parameter 'q' a value"),
        ("q", "its name 'q' has 1 parts; its type has 2", ""),
        ("n/q/r", "its name 'n/q/r' has 3 parts; its type has 2", ""),
        ("n/", "has an empty part", ""),
        ("[5]", "its name is 5, which is no text", ""),
        ("[concat('n/']", "can't be read", ""),
    ],
)
def test_an_entity_whose_name_is_not_known_is_left_out_with_what_would_help(name: str, why: str, remedy: str) -> None:
    found = read(
        queue(name),
        parameters={
            "q": {"type": "string"},
            "d": {"type": "string", "defaultValue": f"[{UNIQUE}]"},
            "own": {"type": "string", "defaultValue": ""},
        },
        variables={"helped": f"[if(empty(parameters('own')), {UNIQUE}, parameters('own'))]"},
    )
    (line,) = found.resources.left_out
    assert (why in line.why, line.remedy, line.is_entity) == (True, remedy, True), line
    assert found.resources.declared == ()


def test_with_a_place_the_cloud_is_known() -> None:
    unique = queue(f"[concat('n/', {UNIQUE})]")
    first, second = (evaluate({"resources": [unique]}, {}, scope=PLACE) for _ in range(2))
    assert first == second
    assert len(names(first)[0]) == 13


def test_stand_ins_are_said_and_do_not_stand_for_what_has_no_text() -> None:
    template = {
        "parameters": {
            "q": {"type": "string"},
            "tier": {"type": "string", "allowedValues": ["Standard", "Premium"]},
            "count": {"type": "int"},
        },
        "resources": [
            queue("[concat('n/', parameters('q'), '-', parameters('tier'))]"),
            queue("n/x", copy={"name": "c", "count": "[parameters('count')]"}),
        ],
    }
    found = evaluate(template, {}, stand_ins=True)
    assert names(found) == ["q-Standard"]
    assert found.notes == (
        "the parameter 'q' has no value; 'q' stands for it",
        "the parameter 'tier' has no value; 'Standard' stands for it",
    )
    assert left(found) == [("queue 'n/x'", "give the parameter 'count' a value")]
    assert found.missing == ("q", "tier", "count")


@pytest.mark.parametrize(
    ("declared", "value", "problem"),
    [
        ({"type": "string", "allowedValues": ["a", "b"]}, "c", "the parameter 'p' is 'c'; allowed is a, b"),
        ({"type": "int", "maxValue": 3}, 4, "the parameter 'p' is 4; its maxValue is 3"),
        ({"type": "string", "minLength": 3}, "ab", "the parameter 'p' is 'ab'; its minLength is 3"),
        ({"type": "int"}, "4", "the parameter 'p' is '4'; it must be of type int"),
        ({"$ref": "#/definitions/size"}, 9, "the parameter 'p' is 9; its maxValue is 5"),
        ({"type": "string", "nullable": True}, None, ""),
    ],
)
def test_a_value_that_a_parameter_does_not_allow_is_a_problem(
    declared: dict[str, object], value: object, problem: str
) -> None:
    found = read(
        queue("[concat('n/', string(parameters('p')))]"),
        given={"p": value},
        parameters={"p": declared},
        definitions={"size": {"type": "int", "maxValue": 5}},
    )
    assert "; ".join(found.problems) == problem


def test_a_parameter_that_the_template_does_not_have_is_a_problem() -> None:
    found = read(given={"ques": 1}, parameters={"queues": {"type": "int", "defaultValue": 1}})
    assert found.problems == ("the template has no parameter 'ques'; did you mean 'queues'?",)


def test_loops_of_resources_properties_and_variables() -> None:
    found = read(
        queue(
            "[concat('n/', variables('all')[copyIndex()].name, '-', copyIndex('q', 1))]",
            copy={"name": "q", "count": "[length(variables('all'))]", "mode": "serial", "batchSize": 1},
            properties={
                "maxDeliveryCount": "[add(copyIndex(), 3)]",
                "copy": [{"name": "tags", "count": 2, "input": "[concat(copyIndex('q'), copyIndex('tags'))]"}],
            },
        ),
        variables={"copy": [{"name": "all", "count": 2, "input": {"name": "[concat('v', copyIndex('all'))]"}}]},
    )
    assert names(found) == ["v0-1", "v1-2"]
    assert [each.properties for each in found.resources.declared] == [
        {"maxDeliveryCount": 3, "tags": ["00", "01"]},
        {"maxDeliveryCount": 4, "tags": ["10", "11"]},
    ]


def test_children_in_their_parents_and_beside_them() -> None:
    rule = {"type": "rules", "name": "r", "properties": {"filterType": "SqlFilter"}}
    subscription = {"type": "Subscriptions", "name": "[concat('s', copyIndex())]", "resources": [rule]}
    topic = {
        "type": f"{NAMESPACE}/topics",
        "name": "n/t",
        "resources": [{**subscription, "copy": {"name": "c", "count": 2}}],
    }
    alone = {"type": f"{NAMESPACE}/topics/subscriptions", "name": "n/of-the-server/s"}
    found = read(topic, alone)
    assert names(found) == ["t", "t/s0", "t/s0/r", "t/s1", "t/s1/r", "of-the-server/s"]


def test_every_kind_of_resource() -> None:
    found = read(
        {"type": NAMESPACE, "name": "n", "sku": {"name": "Premium"}, "properties": {"premiumMessagingPartitions": "2"}},
        {"type": f"{NAMESPACE}/networkRuleSets", "name": "n/default", "properties": {"defaultAction": "Deny"}},
        {"type": f"{NAMESPACE}/AuthorizationRules", "name": "n/k", "properties": {"rights": ["Send"]}},
        {"type": f"{NAMESPACE}/queues/authorizationRules", "name": "n/q/k"},
        {"type": f"{NAMESPACE}/topics/authorizationRules", "name": "n/t/k"},
        {"type": f"{NAMESPACE}/disasterRecoveryConfigs", "name": "n/d"},
        {"type": f"{NAMESPACE}/brandNew", "name": "n/b"},
        {"type": f"{NAMESPACE}/providers/diagnosticSettings", "name": "n/x/y"},
        {"type": "Microsoft.Storage/storageAccounts", "name": "[fail('never evaluated')]"},
    )
    assert [(each.kind, each.path, dict(each.properties)) for each in found.resources.declared] == [
        (Kind.NAMESPACE, (), {"premiumMessagingPartitions": 2, "sku": {"name": "Premium"}}),
        (Kind.NETWORK_RULES, (), {"defaultAction": "Deny"}),
        (Kind.AUTHORIZATION_RULE, ("k",), {"rights": ["Send"]}),
        (Kind.AUTHORIZATION_RULE, ("q", "k"), {}),
        (Kind.AUTHORIZATION_RULE, ("t", "k"), {}),
    ]
    assert [(each.why, each.is_entity) for each in found.resources.left_out] == [
        ("emubus has no geo-disaster recovery", False),
        ("emubus knows no such type of Service Bus", True),
    ]
    assert found.resources.foreign == {
        f"{NAMESPACE}/providers/diagnosticSettings": 1,
        "Microsoft.Storage/storageAccounts": 1,
    }


@pytest.mark.parametrize(
    ("condition", "made"),
    [(True, True), (False, False), ("[equals(1, 2)]", False), ("True", True), ("[parameters('on')]", True)],
)
def test_a_condition_decides(condition: object, made: bool) -> None:
    found = read(queue("n/q", condition=condition), parameters={"on": {"type": "bool", "defaultValue": True}})
    assert (names(found), left(found)) == (["q"] if made else [], [])


def test_a_condition_that_is_not_known_leaves_the_entity_out() -> None:
    found = read(queue("n/q", condition="[parameters('on')]"), parameters={"on": {"type": "bool"}})
    assert left(found) == [("queue q", "give the parameter 'on' a value")]


def test_a_property_that_is_not_known_is_passed_over_and_the_entity_stays() -> None:
    found = read(queue("n/q", properties={"userMetadata": "[resourceGroup().id]", "maxDeliveryCount": 3}))
    assert properties(found) == {"maxDeliveryCount": 3}
    (line,) = found.resources.left_out
    assert (line.what, line.is_entity) == ("queue q: the property userMetadata", False)
    assert line.origin.path == "$.resources[0].properties.userMetadata"


def test_properties_that_are_partly_known() -> None:
    other = "if(equals(resourceGroup().name, 'a'), createObject(), json('{}'))"
    whole = f"[union(createObject('lockDuration', 'PT1M'), {other})]"
    found = read(queue("n/q", properties=whole))
    assert properties(found) == {"lockDuration": "PT1M"}
    assert left(found) == [("queue q: some of its properties", "")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"maxDeliveryCount": "10", "requiresSession": "False"}, {"maxDeliveryCount": 10, "requiresSession": False}),
        ({"maxSizeInMegabytes": 1024.0, "lockDuration": None}, {"maxSizeInMegabytes": 1024}),
        ({"userMetadata": 5, "maxDeliveryCount": "many"}, {"userMetadata": "5", "maxDeliveryCount": "many"}),
        (
            {"action": {}, "sqlFilter": {"requiresPreprocessing": "true"}},
            {"sqlFilter": {"requiresPreprocessing": True}},
        ),
        ({"filterType": "SqlFilter", "correlationFilter": {}}, {"filterType": "SqlFilter"}),
        (
            {"filterType": "CorrelationFilter", "correlationFilter": {"label": 5, "properties": {"to": 5}}},
            {"filterType": "CorrelationFilter", "correlationFilter": {"label": "5", "properties": {"to": 5}}},
        ),
        (
            {"filterType": "CorrelationFilter", "correlationFilter": {}},
            {"filterType": "CorrelationFilter", "correlationFilter": {}},
        ),
    ],
)
def test_values_are_read_as_arm_reads_them(given: dict[str, object], expected: dict[str, object]) -> None:
    assert properties(read(queue("n/q", properties=given))) == expected


def test_a_module_gets_what_it_is_given_when_it_asks_for_it() -> None:
    inner = module(
        [queue("[concat(parameters('ns'), '/', parameters('q'))]", tags="[parameters('tags')]")],
        {"ns": f"[{UNIQUE}]", "q": "[parameters('name')]", "tags": "[fail('never asked for')]"},
        parameters={
            "ns": {"type": "string"},
            "q": {"type": "string"},
            "tags": {"type": "object"},
            "none": {"type": "string", "nullable": True},
        },
    )
    found = read(inner, parameters={"name": {"type": "string", "defaultValue": "orders"}})
    assert (names(found), left(found)) == (["orders"], [])


def test_a_nested_template_without_an_inner_scope_sees_the_outer_one() -> None:
    own = {"variables": {"v": "inner", "w": "inner"}}
    found = read(
        module([queue("[concat('n/', variables('v'), variables('w'))]")], inner=False, **own), variables={"v": "outer-"}
    )
    assert names(found) == ["outer-inner"]


def test_outputs_of_a_module_name_what_another_one_makes() -> None:
    topic = module(
        [{"type": f"{NAMESPACE}/topics", "name": "n/t"}],
        outputs={"name": {"type": "string", "value": "t"}, "id": {"type": "string", "value": _id("topics", "n", "t")}},
    )
    by_id = "last(split(reference('first').outputs.id.value, '/'))"
    by_name = "reference(resourceId('Microsoft.Resources/deployments', 'first')).outputs.name.value"
    subscription = {
        "type": f"{NAMESPACE}/topics/subscriptions",
        "name": f"[concat('n/', {by_name}, '/', {by_id})]",
    }
    found = read({**topic, "name": "first"}, subscription)
    assert (names(found), left(found)) == (["t", "t/t"], [])


def _id(kind: str, *own: str) -> str:
    words = ", ".join(f"'{each}'" for each in own)
    return f"[resourceId('{NAMESPACE}/{kind}', {words})]"


def test_symbolic_names_of_version_2() -> None:
    template = {
        "languageVersion": "2.0",
        "resources": {
            "bus": {"existing": True, "type": NAMESPACE, "name": "n"},
            "all": {
                **queue("[concat(resourceInfo('bus').name, '/q', copyIndex())]", properties={"lockDuration": "PT1M"}),
                "copy": {"name": "all", "count": 2},
            },
            "one": queue("n/one", properties={"lockDuration": "[reference('all[1]').lockDuration]"}),
            "many": queue("n/many", properties={"maxDeliveryCount": "[length(references('all'))]"}),
        },
        "outputs": {
            "lock": {"type": "string", "value": "[reference('one').lockDuration]"},
            "endpoint": {"type": "string", "value": "[reference('bus').serviceBusEndpoint]"},
            "never": {"type": "string", "condition": False, "value": "x"},
            "list": {"type": "array", "copy": {"count": 2, "input": "[copyIndex()]"}},
        },
    }
    found = evaluate(template, {})
    assert names(found) == ["q0", "q1", "one", "many"]
    assert [each.properties for each in found.resources.declared[2:]] == [
        {"lockDuration": "PT1M"},
        {"maxDeliveryCount": 2},
    ]
    assert found.outputs["lock"] == {"type": "string", "value": "PT1M"}
    assert found.outputs["list"] == {"type": "array", "value": [0, 1]}
    endpoint = found.outputs["endpoint"]
    assert isinstance(endpoint, dict)
    assert isinstance(endpoint["value"], Unknown)
    assert "never" not in found.outputs


class Server:
    """A namespace with a queue and its keys."""

    def resource(self, kind: str, names: tuple[str, ...]) -> Mapping[str, object] | None:
        return {"properties": {"lockDuration": "PT2M"}} if names == ("n", "q") else None

    def listing(self, function: str, kind: str, names: tuple[str, ...]) -> object | None:
        return {"primaryKey": f"key of {names[-1]}"}


def test_what_exists_answers_references_and_lists() -> None:
    template = {
        "resources": [],
        "outputs": {
            "lock": {"type": "string", "value": f"[reference({_id('queues', 'n', 'q')[1:-1]}).lockDuration]"},
            "key": {
                "type": "string",
                "value": f"[listKeys({_id('authorizationRules', 'n', 'root')[1:-1]}, '2021-11-01').primaryKey]",
            },
        },
    }
    found = evaluate(template, {}, scope=PLACE, existing=Server())
    assert found.outputs == {
        "lock": {"type": "string", "value": "PT2M"},
        "key": {"type": "string", "value": "key of root"},
    }


def test_functions_of_the_template_and_their_types() -> None:
    functions = [
        {
            "namespace": "own",
            "members": {
                "full": {
                    "parameters": [{"name": "a", "type": "string"}],
                    "output": {"type": "string", "value": "[own.prefixed(parameters('a'))]"},
                },
                "prefixed": {
                    "parameters": [{"name": "b", "type": "string"}],
                    "output": {"type": "string", "value": "[concat('n/x-', parameters('b'))]"},
                },
            },
        }
    ]
    assert names(read(queue("[own.full('q')]"), functions=functions)) == ["x-q"]


def test_values_that_depend_on_themselves_end() -> None:
    found = read(queue("[variables('a')]"), variables={"a": "[variables('b')]", "b": "[variables('a')]"})
    assert "depends on itself" in found.resources.left_out[0].why


@pytest.mark.parametrize(
    ("link", "asked"),
    [
        ({"relativePath": "modules/q.json"}, "modules/q.json"),
        ({"uri": "[concat(parameters('_artifactsLocation'), '/modules/q.json')]"}, "modules/q.json"),
        ({"uri": "https://host/owner/repository/main/modules/q.json?token=x"}, "modules/q.json"),
        ({"uri": "[uri(deployment().properties.templateLink.uri, 'modules/q.json')]"}, None),
        ({"id": "/subscriptions/s/templateSpecs/q/versions/1.0.json"}, None),
    ],
)
def test_a_linked_template_is_looked_for_beside_the_file(link: dict[str, str], asked: str | None) -> None:
    linked = {"type": "Microsoft.Resources/deployments", "name": "m", "properties": {"templateLink": link}}
    beside = {"modules/q.json": {"resources": [queue("n/q")]}}
    template = {"resources": [linked], "parameters": {"_artifactsLocation": {"type": "string"}}}
    found = evaluate(template, {}, linked=beside.get)
    assert names(found) == ([] if asked is None else ["q"])
    assert [each.is_entity for each in found.resources.left_out] == [True] * (asked is None)


def test_a_parameters_file() -> None:
    secret = {"keyVault": {"id": "x"}, "secretName": "s"}
    found = parameters_in({"$schema": "x", "parameters": {"a": {"value": 1}, "b": 2, "c": {"reference": secret}}})
    assert (found["a"], found["b"]) == (1, 2)
    assert isinstance(found["c"], Unknown)


@pytest.mark.parametrize("template", [{"resources": 1}, {"parameters": []}, {"resources": [None]}, {"variables": 5}])
def test_what_is_no_template_is_refused(template: dict[str, object]) -> None:
    with pytest.raises(Unresolved, match="what must be an"):
        evaluate(template, {})


def test_the_values_are_those_of_the_interface() -> None:
    found = read(queue("n/q"), queue("n"))
    assert isinstance(found.resources.declared[0], Declared)
    assert isinstance(found.resources.left_out[0], LeftOut)


def test_a_default_rule_that_matches_nothing_is_taken_away() -> None:
    rule = {"type": "rules", "name": "$Default", "properties": {"sqlFilter": {"sqlExpression": "1=0"}}}
    subscription = {"type": "subscriptions", "name": "s", "resources": [rule, {**rule, "name": "own"}]}
    found = read({"type": f"{NAMESPACE}/topics", "name": "n/t", "resources": [subscription]})
    server = FutureNamespace(LIMITS[Profile.STANDARD])
    assert [each.status for each in asyncio.run(apply(found.resources, server))][2] is Status.REMOVED
    assert {each.status for each in asyncio.run(apply(found.resources, server))} == {Status.UNCHANGED}
    made = server.find("t/Subscriptions/s")
    assert isinstance(made, SubscriptionDescription)
    assert [each.name for each in made.rules] == ["own"]
