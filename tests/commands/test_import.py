"""`import` from a live namespace and from an ARM template: what it makes, what it passes over, errors, exit codes."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emubus.broker.keys import Right
from emubus.broker.model.descriptions import (
    DEFAULT_RULE_NAME,
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    JmsSubscription,
    QueueDescription,
    RuleDescription,
    SelectorFilter,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    TypedText,
)
from emubus.broker.model.profiles import Profile
from emubus.config import Auth
from emubus.testing import EmubusServer

from ..http.control.client import Http
from .conftest import CommandLine

SOURCE = (
    QueueDescription("a", requires_session=True, lock_duration_ms=30_000, user_metadata="text"),
    QueueDescription("b", enable_partitioning=True, requires_duplicate_detection=True, max_size_mb=2048),
    QueueDescription("c", forward_to="z", default_ttl_ms=5_000, dead_letter_on_expiration=True),
    QueueDescription("deep/er", forward_dead_letters_to="t1", auto_delete_on_idle_ms=3_600_000),
    QueueDescription(
        "z",
        status=EntityStatus.SEND_DISABLED,
        max_delivery_count=3,
        authorization_rules=(AuthorizationRule("k", (Right.LISTEN, Right.SEND), "p" * 44, "s" * 44),),
    ),
    TopicDescription("t1", enable_partitioning=True, support_ordering=False),
    TopicDescription("t2"),
    SubscriptionDescription("t1", "all"),
    SubscriptionDescription("t1", "none", rules=(RuleDescription("no", FalseFilter()),)),
    SubscriptionDescription(
        "t2",
        "every",
        forward_to="a",
        rules=(
            RuleDescription("same", CorrelationFilter(label="l", to="t", properties={"n": 1, "x": "1", "ok": True})),
            RuleDescription("sql", SqlFilter("a = @a", {"@a": 1}), "SET b = @b", action_parameters={"@b": 1.5}),
            RuleDescription("typed", CorrelationFilter(properties={"at": TypedText("duration", "PT1S")})),
            RuleDescription("yes", TrueFilter()),
        ),
    ),
)


def connection_string(server: EmubusServer) -> str:
    return server.connection_string.replace("localhost", "127.0.0.1")


def export(offline: CommandLine, server: EmubusServer) -> Any:
    return json.loads(offline.done("config", "export", "--connection-string", connection_string(server)))


def test_a_namespace_is_imported_into_another_server_and_into_a_file(offline: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    with EmubusServer(SOURCE, auth=Auth.SAS) as source, EmubusServer() as target:
        given = ("import", "--namespace", connection_string(source))
        printed = offline.done(*given, "--connection-string", connection_string(target))
        assert "created queue deep/er\n" in printed
        assert "created subscription t2/Subscriptions/every\n" in printed
        wanted = export(offline, source)
        assert export(offline, target) == wanted
        assert offline.done(*given, "--file", str(file)) == f"wrote 10 entities to {file}\n"
        again = offline(
            "import", "--namespace", connection_string(source), "--connection-string", connection_string(target)
        )
        assert (again.code, again.err) == (0, "")
        assert {line.partition(" ")[0] for line in again.out.splitlines()} == {"unchanged"}
        wrong = connection_string(source).replace("SAS_KEY_VALUE", "wrong")
        refused = offline("import", "--namespace", wrong, "--file", str(file))
        assert (refused.code, "HTTP status 401" in refused.err) == (1, True)
    with EmubusServer(config_file=file) as served:
        assert export(offline, served) == wanted


def test_subscriptions_of_jms_are_imported_as_such_and_what_goes_with_its_consumers_is_passed_over(
    offline: CommandLine, tmp_path: Path
) -> None:
    template = tmp_path / "main.json"
    selected = RuleDescription(DEFAULT_RULE_NAME, SelectorFilter("k BETWEEN 1 AND 2"))
    shared, own = JmsSubscription("", is_durable=True, is_shared=True), JmsSubscription("c", True, False)
    passing = SubscriptionDescription("t", "s$$ND", jms=JmsSubscription("", is_durable=False, is_shared=True))
    durable = (
        SubscriptionDescription("t", "own$c$D", jms=own, rules=(selected,)),
        SubscriptionDescription("t", "shared$$D", jms=shared),
    )
    with EmubusServer((TopicDescription("t"), *durable), profile=Profile.PREMIUM) as source:
        source.call(lambda: source.server.broker.administration.create(passing))
        template.write_text(json.dumps(Http(source.http_port).get("/config/arm")))
        script = Http(source.http_port).send("GET", "/emubus/v1/config/commands").content.decode()
        for way in (("--namespace", connection_string(source)), ("--arm", str(template))):
            with EmubusServer(profile=Profile.PREMIUM) as target:
                made = offline("import", *way, "--connection-string", connection_string(target))
                assert made.code == 0, made.err
                passed_over = "emubus: passed over: t/Subscriptions/s$$ND: it goes with its JMS consumers\n"
                assert made.err == (passed_over if way[0] == "--namespace" else "")
                found = {each.path: each.description for each in target.call(target.server.broker.namespace.entities)}
                assert list(found) == ["t", *(each.path for each in durable)]
                for each in durable:
                    there = found[each.path]
                    assert isinstance(there, SubscriptionDescription)
                    assert (there.jms, there.rules[0].filter) == (each.jms, each.rules[0].filter)
        with EmubusServer() as standard:
            refused = offline("import", *way, "--connection-string", connection_string(standard))
            assert (refused.code, "JMS needs the profile premium" in refused.err) == (1, True), refused.err
    assert "# subscription 't/own$c$D' is one of JMS: take it from the Config.json\n" in script


TEMPLATE = {
    "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    "parameters": {
        "ns": {"type": "string"},
        "queues": {"type": "array", "defaultValue": ["one"]},
        "lock": {"type": "string", "defaultValue": "PT30S"},
    },
    "variables": {"topic": "[toLower('EVENTS')]", "unique": "[uniqueString(resourceGroup().id)]"},
    "resources": [
        {"type": "Microsoft.ServiceBus/namespaces", "name": "[parameters('ns')]", "sku": {"name": "Standard"}},
        {
            "type": "Microsoft.ServiceBus/namespaces/queues",
            "name": "[format('{0}/{1}-{2}', parameters('ns'), parameters('queues')[copyIndex()], copyIndex('q', 1))]",
            "copy": {"name": "q", "count": "[length(parameters('queues'))]"},
            "properties": {"lockDuration": "[parameters('lock')]", "requiresSession": True, "isNew": 1},
        },
        {
            "type": "Microsoft.ServiceBus/namespaces/topics",
            "name": "[concat(parameters('ns'), '/', variables('topic'))]",
            "resources": [
                {
                    "type": "subscriptions",
                    "name": "mine",
                    "properties": {"maxDeliveryCount": 3},
                    "resources": [
                        {
                            "type": "rules",
                            "name": "red",
                            "properties": {
                                "filterType": "CorrelationFilter",
                                "correlationFilter": {"label": "l", "properties": {"colour": "red"}},
                                "action": {"sqlExpression": "SET seen = TRUE"},
                            },
                        }
                    ],
                }
            ],
        },
        {
            "type": "Microsoft.ServiceBus/namespaces/queues",
            "name": "[concat(parameters('ns'), '/', variables('unique'))]",
        },
        {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "n/never", "condition": "[equals(1, 2)]"},
        {"type": "Microsoft.Storage/storageAccounts", "name": "disk"},
        {
            "type": "Microsoft.Resources/deployments",
            "name": "module",
            "properties": {
                "parameters": {"name": {"value": "[parameters('ns')]"}},
                "template": {
                    "parameters": {"name": {"type": "string"}},
                    "resources": {
                        "q": {
                            "type": "Microsoft.ServiceBus/namespaces/queues",
                            "name": "[concat(parameters('name'), '/nested')]",
                        }
                    },
                },
            },
        },
    ],
}


def test_an_arm_template_with_five_entities_gives_five(emubus: CommandLine, tmp_path: Path) -> None:
    template, parameters = tmp_path / "main.json", tmp_path / "main.parameters.json"
    template.write_text(json.dumps(TEMPLATE))
    parameters.write_text(json.dumps({"parameters": {"ns": {"value": "n"}, "queues": {"value": ["x", "y"]}}}))
    ended = emubus("import", "--arm", str(template), "--parameters", str(parameters), "--json")
    made = ["x-1", "y-2", "events", "events/Subscriptions/mine", "nested"]
    assert (ended.code, ended.json["entities"]) == (1, made)
    assert ended.json["passed_over"] == [
        "queue x-1: the property isNew",
        "queue y-2: the property isNew",
        "1 resource of other services: Microsoft.Storage/storageAccounts",
    ]
    assert ended.err.splitlines()[3:] == [
        "emubus: error: left out queue …: its name depends on what is not known: resourceGroup() is a value of the "
        f"cloud ({template}:1 $.resources[3])",
        "emubus: error: 1 left out of 8 resources; what the other lines say is done",
    ]
    assert emubus.json("show", "x-1")["properties"]["lock_duration_ms"] == 30_000
    default, rule = emubus.json("rules", "events/mine")["rules"]
    assert default["name"] == "$Default"
    assert (rule["name"], rule["action"]) == ("red", "SET seen = TRUE")


def test_what_can_be_wrong_with_a_template(emubus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "main.json"
    queue = {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "n/q", "properties": {"lockDuration": "PT1H"}}
    file.write_text(json.dumps({"resources": [queue]}))
    refused = emubus("import", "--arm", str(file))
    assert (refused.code, refused.out) == (1, "there are no entities\n")
    assert "LockDuration is PT1H; allowed is PT5S to PT5M" in refused.err
    file.write_text(json.dumps({"resources": [{**queue, "name": "[parameters('none')]"}]}))
    assert "the template has no parameter 'none'" in emubus("import", "--arm", str(file)).err
    file.write_text("[")
    assert "is not JSON" in emubus("import", "--arm", str(file)).err


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ((), 2, "give one of --namespace, --arm, --terraform, --pulumi"),
        (("--namespace", "x", "--arm", "y"), 2, "give one of --namespace, --arm, --terraform, --pulumi"),
        (("--namespace", "SharedAccessKey=secret"), 2, "Endpoint=sb://HOST"),
        (("--namespace", "x", "--parameters", "y"), 2, "needs --arm"),
        (("--arm", "/no/such/file"), 2, "can't be read"),
        (
            ("--namespace", "Endpoint=sb://127.0.0.1:1;SharedAccessKey=k;UseDevelopmentEmulator=true"),
            3,
            "no answer from 127.0.0.1",
        ),
    ],
)
def test_what_is_wrong_is_refused(emubus: CommandLine, arguments: tuple[str, ...], code: int, error: str) -> None:
    ended = emubus("import", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert error in ended.err
    assert "secret" not in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    "template", ['{"resources": 1}', '{"parameters": []}', '{"resources": [null]}', '{"variables": ""}']
)
def test_json_that_is_no_template_is_refused_with_one_line(emubus: CommandLine, tmp_path: Path, template: str) -> None:
    file = tmp_path / "template.json"
    file.write_text(template)

    ended = emubus("import", "--arm", str(file))

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"emubus: error: {file}: ")
    assert "what must be an " in ended.err


def test_parameters_that_are_no_object_are_refused_by_the_name_of_their_file(
    emubus: CommandLine, tmp_path: Path
) -> None:
    template, values = tmp_path / "template.json", tmp_path / "values.json"
    template.write_text("{}")
    values.write_text('{"parameters": 1}')

    ended = emubus("import", "--arm", str(template), "--parameters", str(values))

    assert (ended.code, ended.err) == (
        2,
        f"emubus: error: {values}: parameters: what must be an object is of type int\n",
    )


def test_an_exported_template_and_exported_commands_make_the_same_entities(emubus: CommandLine, tmp_path: Path) -> None:
    plain = RuleDescription("plain", SqlFilter("a = 'it''s' AND b > 1"), "SET c = 1")
    equal = RuleDescription("equal", CorrelationFilter(label="l", properties={"x": "1"}))
    entities = [
        replace(each, authorization_rules=()) if isinstance(each, QueueDescription) else each
        for each in SOURCE
        if each.name != "every"  # its rules have typed values
    ]
    entities.append(SubscriptionDescription("t2", "plain", forward_to="a", rules=(plain, equal)))
    with EmubusServer([]) as source:
        for each in entities:
            targets: dict[str, Any] = {
                name: None for name in ("forward_to", "forward_dead_letters_to") if hasattr(each, name)
            }
            source.create(replace(each, **targets))
        for each in entities:
            source.update(each)
        http = Http(source.http_port)
        config, template = http.get("/config"), http.get("/config/arm")
        script = http.send("GET", "/emubus/v1/config/commands").content.decode()
    (tmp_path / "template.json").write_text(json.dumps(template))
    for way in ("template", "commands"):
        with EmubusServer([]) as target:
            url = ("--url", f"http://localhost:{target.http_port}")
            if way == "template":
                emubus.done("import", "--arm", str(tmp_path / "template.json"), *url)
            else:
                for line in script.splitlines():
                    emubus.done(*shlex.split(line)[1:], *url)
            made = Http(target.http_port).get("/config")
        assert normal(made) == normal(config), way


def normal(config: Any) -> Any:
    """The entities; rules that match nothing in one form."""
    (namespace,) = config["UserConfig"]["Namespaces"]
    for topic in namespace["Topics"]:
        for subscription in topic["Subscriptions"]:
            rules = [each for each in subscription.get("Rules", ()) if each["Name"] not in ("$Default", "no")]
            subscription["Rules"] = rules
    return namespace["Queues"], namespace["Topics"]
