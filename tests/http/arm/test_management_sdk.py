"""The management SDK of Python against the endpoint, in each version; and answers held against the SDK's own models,
which are generated from the specification of Resource Manager (azure-rest-api-specs)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import EnumMeta
from typing import Any, Optional, Union, get_args

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.mgmt.servicebus import models

from emubus.testing import EmubusServer
from emubus.web.arm.groups import VERSIONS

from .client import NAMESPACE, ROOT, Arm, management


@pytest.mark.parametrize("version", VERSIONS)
def test_a_namespace_with_everything_is_made_read_changed_and_deleted(server: EmubusServer, version: str) -> None:
    with management(server.http_port, version) as client:
        made = client.namespaces.begin_create_or_update(
            "rg", "mybus", models.SBNamespace(location="westeurope", tags={"a": "b"})
        ).result(timeout=20)
        assert (made.name, made.tags, made.provisioning_state) == ("mybus", {"a": "b"}, "Succeeded")
        assert [each.name for each in client.namespaces.list()] == ["sbemulatorns", "mybus"]
        assert [each.name for each in client.namespaces.list_by_resource_group("rg")] == ["mybus"]
        changed = client.namespaces.update("rg", "mybus", models.SBNamespaceUpdateParameters(tags={"c": "d"}))
        assert changed is not None
        assert changed.tags == {"c": "d"}
        assert changed.location == "westeurope"
        is_free = client.namespaces.check_name_availability(models.CheckNameAvailability(name="mybus"))
        assert not is_free.name_available

        queue = models.SBQueue(lock_duration="PT45S", max_delivery_count=4, requires_session=True)  # type: ignore[call-overload]
        assert client.queues.create_or_update("rg", "mybus", "q", queue).max_delivery_count == 4
        found = client.queues.get("rg", "mybus", "q")
        assert found.requires_session
        assert found.count_details.active_message_count == 0
        topic = client.topics.create_or_update("rg", "mybus", "t", models.SBTopic(support_ordering=True))  # type: ignore[call-overload]
        assert topic.support_ordering
        assert topic.subscription_count == 0
        own = models.SBSubscription(max_delivery_count=3, forward_to="q2")  # type: ignore[call-overload]
        client.queues.create_or_update("rg", "mybus", "q2", models.SBQueue())
        assert client.subscriptions.create_or_update("rg", "mybus", "t", "s", own).forward_to == "q2"
        rule = models.Rule(  # type: ignore[call-overload]
            filter_type="SqlFilter",
            sql_filter=models.SqlFilter(sql_expression="a > 3"),
            action=models.Action(sql_expression="SET seen = TRUE"),
        )
        made_rule = client.rules.create_or_update("rg", "mybus", "t", "s", "sql", rule)
        assert made_rule.sql_filter.sql_expression == "a > 3"
        equal = models.CorrelationFilter(label="l", properties={"k": "v"})
        rule = models.Rule(filter_type="CorrelationFilter", correlation_filter=equal)  # type: ignore[call-overload]
        made_rule = client.rules.create_or_update("rg", "mybus", "t", "s", "equal", rule)
        assert made_rule.correlation_filter.properties == {"k": "v"}
        names = [each.name for each in client.rules.list_by_subscriptions("rg", "mybus", "t", "s")]
        assert names == ["$Default", "equal", "sql"]
        assert [each.name for each in client.subscriptions.list_by_topic("rg", "mybus", "t")] == ["s"]
        assert [each.name for each in client.queues.list_by_namespace("rg", "mybus")] == ["q", "q2"]

        rules = models.SBAuthorizationRule(rights=["Send"])  # type: ignore[call-overload]
        client.queues.create_or_update_authorization_rule("rg", "mybus", "q", "app", rules)
        client.topics.create_or_update_authorization_rule("rg", "mybus", "t", "app", rules)
        client.namespaces.create_or_update_authorization_rule("rg", "mybus", "app", rules)
        keys = client.queues.list_keys("rg", "mybus", "q", "app")
        assert keys.primary_connection_string == (
            f"Endpoint=sb://mybus.servicebus.windows.net/;SharedAccessKeyName=app;SharedAccessKey={keys.primary_key}"
            ";EntityPath=q"
        )
        again = models.RegenerateAccessKeyParameters(key_type="PrimaryKey")
        other = client.namespaces.regenerate_keys("rg", "mybus", "app", again)
        assert other.primary_key not in (keys.primary_key, other.secondary_key)
        assert client.namespaces.get_network_rule_set("rg", "mybus").default_action == "Allow"
        bad = models.SBQueue(lock_duration="PT10M")  # type: ignore[call-overload]
        with pytest.raises(HttpResponseError) as refused:
            client.queues.create_or_update("rg", "mybus", "bad", bad)
        assert refused.value.status_code == 400
        assert "LockDuration" in refused.value.message

        client.rules.delete("rg", "mybus", "t", "s", "equal")
        client.subscriptions.delete("rg", "mybus", "t", "s")
        client.topics.delete("rg", "mybus", "t")
        client.queues.delete("rg", "mybus", "q")
        with pytest.raises(ResourceNotFoundError):
            client.queues.get("rg", "mybus", "q")
        client.namespaces.begin_delete("rg", "mybus").result(timeout=20)
        with pytest.raises(ResourceNotFoundError):
            client.namespaces.get("rg", "mybus")


BELOW = f"{NAMESPACE}/topics/t/subscriptions"
ANSWERS = {
    "namespace": ("GET", NAMESPACE, models.SBNamespace),
    "namespaces": ("GET", f"{ROOT}/providers/Microsoft.ServiceBus/namespaces", models.SBNamespace),
    "queue": ("GET", f"{NAMESPACE}/queues/q", models.SBQueue),
    "queues": ("GET", f"{NAMESPACE}/queues", models.SBQueue),
    "topic": ("GET", f"{NAMESPACE}/topics/t", models.SBTopic),
    "subscription": ("GET", f"{BELOW}/s", models.SBSubscription),
    "subscriptions": ("GET", BELOW, models.SBSubscription),
    "rules": ("GET", f"{BELOW}/s/rules", models.Rule),
    "network rules": ("GET", f"{NAMESPACE}/networkRuleSets/default", models.NetworkRuleSet),
    "authorization rule": ("GET", f"{NAMESPACE}/authorizationRules", models.SBAuthorizationRule),
    "keys": ("POST", f"{NAMESPACE}/authorizationRules/RootManageSharedAccessKey/listKeys", models.AccessKeys),
}


@pytest.mark.parametrize(("method", "path", "model"), ANSWERS.values(), ids=ANSWERS)
def test_answers_have_what_the_specification_has_and_nothing_else(
    arm: Arm, method: str, path: str, model: type[Any]
) -> None:
    for put in (f"{NAMESPACE}/queues/q", f"{NAMESPACE}/topics/t", f"{BELOW}/s"):
        assert arm("PUT", put, {"properties": {"status": "Active"}})[0] == 200
    correlation = {"filterType": "CorrelationFilter", "correlationFilter": {"label": "l"}}
    assert arm("PUT", f"{BELOW}/s/rules/r", {"properties": correlation})[0] == 200
    status, answer = arm(method, path)
    assert status == 200
    items = answer.get("value", [answer])
    assert items
    for each in items:
        assert sorted(problems(each, model, model.__name__)) == []
        if "id" in each:
            assert each["id"].startswith(ROOT)
            assert arm("GET", each["id"])[1] == each


def problems(value: object, kind: object, where: str) -> list[str]:
    """What in a JSON value contradicts a model: other names, other types, values that an enumeration lacks."""
    kinds = [each for each in (get_args(kind) or (kind,)) if each is not type(None)]
    model: Any = next((each for each in kinds if hasattr(each, "_attr_to_rest_field")), None)
    if model is not None:
        assert isinstance(value, Mapping), where
        model({})  # the table is made with the first object
        known: dict[str, str] = {each._rest_name: name for name, each in model._attr_to_rest_field.items()}
        found = [f"{where}.{name} is not known" for name in value if name not in known]
        for name in set(value) & set(known):
            found += problems(value[name], annotation(model, known[name]), f"{where}.{name}")
        return found
    enums: list[Any] = [each for each in kinds if isinstance(each, EnumMeta)]
    if enums and value not in [member.value for member in enums[0]]:
        return [f"{where} is {value!r}"]
    for plain in (bool, int, str):
        if kinds == [plain] and type(value) is not plain:
            return [f"{where} is {value!r}, no {plain.__name__}"]
    return []


def annotation(model: type[Any], attribute: str) -> object:
    """The type of a model's attribute; annotations are texts in the module of the models."""
    bases: tuple[type[Any], ...] = model.__mro__
    for each in bases:
        if attribute in getattr(each, "__annotations__", {}):
            text = each.__annotations__[attribute]
            names = {**vars(models), "_models": models, "datetime": None, "Any": object}
            try:
                return eval(text, {**names, **TYPES}) if isinstance(text, str) else text  # the SDK's own text
            except (AttributeError, NameError, TypeError):
                return object
    return object


TYPES = {"Optional": Optional, "Union": Union}
