"""`import --terraform`: every attribute of azurerm, azapi, plans whose ids are not known, what is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from emubus.broker.model.descriptions import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.broker.model.properties import PROPERTIES_OF, Value
from emubus.declared.reading import Reading, fields_in
from emubus.declared.resources import Declared, Kind, Resources
from emubus.importing.azurerm import SETTINGS, TYPES, properties_of
from emubus.importing.terraform import NotTerraform, read_terraform

from .conftest import CommandLine

ID = "/subscriptions/0/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/ns"
Values = Mapping[str, object]

# The attributes of the provider, version by version (website/docs/r/servicebus_*.html.markdown): name, value, field.
BOTH = (
    ("auto_delete_on_idle", "PT10M", "auto_delete_on_idle_ms", 600_000),
    ("default_message_ttl", "P1D", "default_ttl_ms", 86_400_000),
    ("duplicate_detection_history_time_window", "PT1M", "duplicate_window_ms", 60_000),
    ("enable_batched_operations", False, "enable_batched_operations", False),
    ("batched_operations_enabled", False, "enable_batched_operations", False),
    ("enable_express", True, "enable_express", True),
    ("express_enabled", True, "enable_express", True),
    ("enable_partitioning", True, "enable_partitioning", True),
    ("partitioning_enabled", True, "enable_partitioning", True),
    ("max_message_size_in_kilobytes", 2048, "max_message_bytes", 2048 << 10),
    ("max_size_in_megabytes", 2048, "max_size_mb", 2048),
    ("requires_duplicate_detection", True, "requires_duplicate_detection", True),
    ("status", "Disabled", "status", "Disabled"),
)
RECEIVED = (
    ("dead_lettering_on_message_expiration", True, "dead_letter_on_expiration", True),
    ("forward_dead_lettered_messages_to", "x", "forward_dead_letters_to", "x"),
    ("forward_to", "x", "forward_to", "x"),
    ("lock_duration", "PT30S", "lock_duration_ms", 30_000),
    ("max_delivery_count", 3, "max_delivery_count", 3),
    ("requires_session", True, "requires_session", True),
)
ATTRIBUTES: tuple[tuple[str, type[EntityDescription], tuple[tuple[str, object, str, object], ...]], ...] = (
    ("azurerm_servicebus_queue", QueueDescription, (*BOTH, *RECEIVED)),
    (
        "azurerm_servicebus_topic",
        TopicDescription,
        (*BOTH, ("support_ordering", False, "support_ordering", False)),
    ),
    (
        "azurerm_servicebus_subscription",
        SubscriptionDescription,
        (
            *(each for each in BOTH if each[2] in ("auto_delete_on_idle_ms", "default_ttl_ms")),
            *(each for each in BOTH if each[2] in ("enable_batched_operations", "status")),
            *RECEIVED,
            ("dead_lettering_on_filter_evaluation_error", False, "dead_letter_on_filter_exceptions", False),
        ),
    ),
)
ROWS = [
    pytest.param(kind, description, *row, id=f"{kind.removeprefix('azurerm_servicebus_')}-{row[0]}")
    for kind, description, rows in ATTRIBUTES
    for row in rows
]


@pytest.mark.parametrize(("kind", "description", "attribute", "value", "field", "read"), ROWS)
def test_each_attribute_of_an_entity_is_read(
    kind: str, description: type[EntityDescription], attribute: str, value: object, field: str, read: object
) -> None:
    properties, unread = properties_of(TYPES[kind], {attribute: value})
    reading = Reading.of(properties)
    assert (fields_in(reading, description), reading.problems, reading.unread, unread) == ({field: read}, [], [], [])


def test_the_tables_have_each_property_that_the_service_has() -> None:
    """But user metadata, which azurerm can't set."""
    for _, description, rows in ATTRIBUTES:
        missing = {row.field for row in PROPERTIES_OF[description]} - {row[2] for row in rows}
        assert missing <= {"user_metadata"}, description
    assert Value.TEXT in {row.value for row in PROPERTIES_OF[QueueDescription]}


@pytest.mark.parametrize(
    ("kind", "attributes", "properties", "unread"),
    [
        (
            "azurerm_servicebus_subscription_rule",
            {"filter_type": "SqlFilter", "sql_filter": "a = 1", "action": "SET b = 1", "correlation_filter": []},
            {
                "filterType": "SqlFilter",
                "sqlFilter": {"sqlExpression": "a = 1"},
                "action": {"sqlExpression": "SET b = 1"},
            },
            [],
        ),
        (
            "azurerm_servicebus_subscription_rule",
            {
                "filter_type": "CorrelationFilter",
                "sql_filter_compatibility_level": 20,
                "correlation_filter": [
                    {
                        "content_type": "a",
                        "correlation_id": "b",
                        "label": "c",
                        "message_id": "d",
                        "reply_to": "e",
                        "reply_to_session_id": "f",
                        "session_id": "g",
                        "to": "h",
                        "properties": {"someKey": "v"},
                        "colour": "i",
                    }
                ],
            },
            {
                "filterType": "CorrelationFilter",
                "correlationFilter": {
                    "contentType": "a",
                    "correlationId": "b",
                    "label": "c",
                    "messageId": "d",
                    "replyTo": "e",
                    "replyToSessionId": "f",
                    "sessionId": "g",
                    "to": "h",
                    "properties": {"someKey": "v"},
                },
            },
            ["correlation_filter.colour"],
        ),
        (
            "azurerm_servicebus_queue_authorization_rule",
            {
                "listen": True,
                "send": False,
                "manage": False,
                "primary_key": "p",
                "secondary_key": "s",
                "primary_connection_string": "x",
                "secondary_connection_string_alias": "x",
            },
            {"rights": ["Listen"], "primaryKey": "p", "secondaryKey": "s"},
            [],
        ),
        (
            "azurerm_servicebus_topic_authorization_rule",
            {"listen": True, "send": True, "manage": True, "colour": 1},
            {"rights": ["Send", "Listen", "Manage"]},
            ["colour"],
        ),
        (
            "azurerm_servicebus_namespace",
            {
                "sku": "Premium",
                "capacity": 1,
                "premium_messaging_partitions": 1,
                "local_auth_enabled": True,
                "minimum_tls_version": "1.2",
                "public_network_access_enabled": True,
                "network_rule_set": [{}],
                "identity": [{}],
                "customer_managed_key": [{}],
                "tags": {"a": "b"},
                "zone_redundant": True,
                "endpoint": "https://x",
                "default_primary_key": "x",
                "default_secondary_connection_string": "x",
            },
            {"sku": {"name": "Premium"}},
            [],
        ),
        (
            "azurerm_servicebus_namespace_network_rule_set",
            {
                "default_action": "Deny",
                "ip_rules": ["1.1.1.1"],
                "network_rules": [{}],
                "trusted_services_allowed": True,
            },
            {},
            [],
        ),
        ("azurerm_servicebus_queue", {"max_message_size_in_kilobytes": 256, "max_delivery_count": None}, {}, []),
        (
            "azurerm_servicebus_subscription",
            {
                "client_scoped_subscription_enabled": True,
                "client_scoped_subscription": [
                    {"client_id": "c", "is_client_scoped_subscription_shareable": False},
                ],
            },
            {"isClientAffine": True, "clientAffineProperties": {"clientId": "c", "isShared": False}},
            [],
        ),
    ],
)
def test_each_attribute_of_other_resources_is_read(
    kind: str, attributes: Values, properties: Values, unread: list[str]
) -> None:
    assert properties_of(TYPES[kind], attributes) == (properties, unread)


# ---------------------------------------------------------------- files


def of(kind: str, name: str, values: Values, index: object = None, module: str = "") -> dict[str, object]:
    key = "" if index is None else f"[{json.dumps(index)}]"
    address = f"{module}{'.' if module else ''}azurerm_servicebus_{kind}.{name}{key}"
    found: dict[str, object] = {"mode": "managed", "type": f"azurerm_servicebus_{kind}", "name": name}
    return {**found, "address": address, "values": values, **({} if index is None else {"index": index})}


def state(*resources: object, **more: object) -> dict[str, Any]:
    return {"format_version": "1.0", "values": {"root_module": {"resources": [*resources], **more}}}


def plan(*resources: object, configuration: object = None, **more: object) -> dict[str, Any]:
    root = {"resources": [*resources], **more}
    found: dict[str, Any] = {"format_version": "1.2", "planned_values": {"root_module": root}}
    return {**found, "configuration": {"root_module": configuration or {}}}


def configured(kind: str, name: str, **references: list[str]) -> dict[str, object]:
    expressions = {each: {"references": found} for each, found in references.items()}
    return {"type": f"azurerm_servicebus_{kind}", "name": name, "expressions": expressions}


def paths(found: Resources) -> list[tuple[Kind, tuple[str, ...]]]:
    return [(each.kind, each.path) for each in found.declared]


def test_a_state_has_all_ids(emubus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    below = {
        "address": "module.bus",
        "resources": [
            of("subscription", "s", {"name": "tf-s", "topic_id": f"{ID}/topics/tf-t", "max_delivery_count": 4}),
            of(
                "subscription_rule",
                "r",
                {
                    "name": "tf-r",
                    "filter_type": "SqlFilter",
                    "sql_filter": "a = 1",
                    "subscription_id": f"{ID}/topics/tf-t/subscriptions/tf-s",
                },
            ),
        ],
    }
    document = state(
        of("namespace", "n", {"name": "ns", "sku": "Standard", "id": ID}),
        of("queue", "q", {"name": "tf-q/a", "id": f"{ID}/queues/tf-q~a", "namespace_id": ID, "colour": "red"}),
        of("topic", "t", {"name": "tf-t", "namespace_id": ID}),
        of("queue_authorization_rule", "k", {"name": "tf-k", "queue_id": f"{ID}/queues/tf-q~a", "listen": True}),
        of("namespace_disaster_recovery_config", "d", {"name": "d"}),
        {"mode": "managed", "type": "azurerm_resource_group", "name": "g", "address": "azurerm_resource_group.g"},
        {"mode": "data", "type": "azurerm_servicebus_queue", "name": "g", "values": {"name": "never"}},
        child_modules=[below],
    )
    file.write_text(json.dumps(document))
    ended = emubus("import", "--terraform", str(file))
    assert (ended.code, ended.out.splitlines()) == (
        0,
        [
            "unchanged namespace",
            "created queue tf-q/a",
            "created topic tf-t",
            "created authorization rule tf-q/a/tf-k",
            "created subscription tf-t/Subscriptions/tf-s",
            "created rule tf-t/Subscriptions/tf-s/Rules/tf-r",
        ],
    )
    assert ended.err.splitlines() == [
        "emubus: passed over: azurerm_servicebus_queue azurerm_servicebus_queue.q: the attribute colour is not read",
        "emubus: passed over: azurerm_servicebus_namespace_disaster_recovery_config "
        "azurerm_servicebus_namespace_disaster_recovery_config.d: emubus has no such setting",
        "emubus: passed over: 1 resource of other services: azurerm_resource_group",
    ]
    again = emubus("import", "--terraform", str(file))
    assert {line.partition(" ")[0] for line in again.out.splitlines()} == {"unchanged"}
    properties = emubus.json("show", "tf-t/tf-s")["properties"]
    assert properties["max_delivery_count"] == 4


SUBSCRIPTION_OF = {
    "by reference": (
        [of("topic", "t", {"name": "events"}), of("subscription", "s", {"name": "s"})],
        [configured("subscription", "s", topic_id=["azurerm_servicebus_topic.t.id", "azurerm_servicebus_topic.t"])],
    ),
    "by key of for_each": (
        [
            of("topic", "t", {"name": "other"}, "a"),
            of("topic", "t", {"name": "events"}, "b"),
            of("subscription", "s", {"name": "s"}, "b"),
        ],
        [configured("subscription", "s", topic_id=["azurerm_servicebus_topic.t", "each.key"])],
    ),
    "by count": (
        [
            of("topic", "t", {"name": "other"}, 0),
            of("topic", "t", {"name": "events"}, 1),
            of("subscription", "s", {"name": "s"}, 1),
        ],
        [configured("subscription", "s", topic_id=["azurerm_servicebus_topic.t", "count.index"])],
    ),
    "by key that is written": (
        [
            of("topic", "t", {"name": "other"}, "a"),
            of("topic", "t", {"name": "events"}, "b.c"),
            of("subscription", "s", {"name": "s"}),
        ],
        [
            configured(
                "subscription",
                "s",
                topic_id=['azurerm_servicebus_topic.t["b.c"].id', 'azurerm_servicebus_topic.t["b.c"]'],
            )
        ],
    ),
    "the only one": (
        [of("topic", "t", {"name": "events"}, "a"), of("subscription", "s", {"name": "s"}, "x-y")],
        [configured("subscription", "s", topic_id=["azurerm_servicebus_topic.t", "each.value.topic"])],
    ),
    "by names, as version 2 had them": (
        [of("subscription", "s", {"name": "s", "topic_name": "events", "namespace_name": "ns"})],
        [],
    ),
}


@pytest.mark.parametrize(("resources", "configuration"), SUBSCRIPTION_OF.values(), ids=SUBSCRIPTION_OF)
def test_a_plan_knows_what_a_subscription_is_in(resources: list[object], configuration: list[object]) -> None:
    found = read_terraform(plan(*resources, configuration={"resources": configuration}), "plan.json")
    assert (found.left_out, paths(found)[-1]) == ((), (Kind.SUBSCRIPTION, ("events", "s")))


def test_a_plan_follows_arguments_and_outputs_of_modules() -> None:
    topic = {"address": "module.topic", "resources": [of("topic", "t", {"name": "events"}, module="module.topic")]}
    inner = 'module.subs["x"]'
    subs = {"address": inner, "resources": [of("subscription", "s", {"name": "s"}, module=inner)]}
    rule = of("subscription_rule", "r", {"name": "r", "filter_type": "SqlFilter", "sql_filter": "1=1"}, module=inner)
    subs["resources"] = [*subs["resources"], rule]
    configuration = {
        "module_calls": {
            "topic": {
                "module": {
                    "resources": [configured("topic", "t")],
                    "outputs": {"id": {"expression": {"references": ["azurerm_servicebus_topic.t.id"]}}},
                }
            },
            "subs": {
                "expressions": {"topic": {"references": ["module.topic.id", "module.topic"]}},
                "module": {
                    "resources": [
                        configured("subscription", "s", topic_id=["var.topic"]),
                        configured("subscription_rule", "r", subscription_id=["azurerm_servicebus_subscription.s.id"]),
                    ]
                },
            },
        }
    }
    found = read_terraform(plan(child_modules=[topic, subs], configuration=configuration), "plan.json")
    assert (found.left_out, paths(found)) == (
        (),
        [
            (Kind.TOPIC, ("events",)),
            (Kind.SUBSCRIPTION, ("events", "s")),
            (Kind.RULE, ("events", "s", "r")),
        ],
    )


@pytest.mark.parametrize(
    ("resource", "references", "why"),
    [
        (of("queue", "q", {"max_delivery_count": 1}), {}, "its name is known after apply"),
        (of("subscription", "s", {"name": "s"}), {}, "what it is in (topic_id) is known after apply"),
        (of("subscription", "s", {"name": "s"}), {"topic_id": ["local.topics"]}, "what it is in (topic_id)"),
        (of("subscription", "s", {"name": "s"}), {"topic_id": ["var.topic"]}, "what it is in (topic_id)"),
        (
            of("subscription_rule", "r", {"name": "r"}),
            {"subscription_id": ["azurerm_servicebus_subscription_rule.r.id"]},
            "what it is in (subscription_id)",
        ),
    ],
)
def test_what_a_plan_does_not_know_is_left_out_and_named(
    resource: dict[str, Any], references: dict[str, list[str]], why: str
) -> None:
    kind = resource["type"].removeprefix("azurerm_servicebus_")
    document = plan(resource, configuration={"resources": [configured(kind, resource["name"], **references)]})
    found = read_terraform(document, "plan.json")
    (left,) = found.left_out
    assert (found.declared, left.is_entity, left.what) == ((), True, f"{resource['type']} {resource['address']}")
    assert left.why.startswith(why)
    assert "terraform show -json" in left.remedy


def test_an_attribute_that_a_plan_does_not_know_is_named_if_the_configuration_sets_it() -> None:
    document = plan(
        of("queue", "q", {"name": "q"}), configuration={"resources": [configured("queue", "q", forward_to=[])]}
    )
    after = {"forward_to": True, "lock_duration": True, "id": True}
    document["resource_changes"] = [{"address": "azurerm_servicebus_queue.q", "change": {"after_unknown": after}}]
    found = read_terraform(document, "plan.json")
    assert [(each.why, each.is_entity) for each in found.left_out] == [
        ("the attribute forward_to is known after apply", False)
    ]


def azapi(kind: str, name: str, body: object, **values: object) -> dict[str, object]:
    own = {"type": f"Microsoft.ServiceBus/namespaces/{kind}@2022-10-01-preview", "name": name, "body": body, **values}
    return {
        "mode": "managed",
        "type": "azapi_resource",
        "name": name,
        "address": f"azapi_resource.{name}",
        "values": own,
    }


BODY = {"properties": {"maxDeliveryCount": 3}}


@pytest.mark.parametrize("body", [BODY, json.dumps(BODY), {"type": ["object", {}], "value": BODY}])
def test_azapi_has_its_body_as_text_or_as_an_object(body: object) -> None:
    found = read_terraform(state(azapi("queues", "q~a", body, parent_id=ID)), "state.json")
    assert found.declared == (Declared(Kind.QUEUE, ("q/a",), BODY["properties"]),)
    assert found.declared[0].namespace == "ns"


def test_azapi_is_found_below_what_it_refers_to() -> None:
    configuration = {
        "resources": [
            {
                "type": "azapi_resource",
                "name": "s",
                "expressions": {"parent_id": {"references": ["azurerm_servicebus_topic.t.id"]}},
            },
            {
                "type": "azapi_resource",
                "name": "r",
                "expressions": {"parent_id": {"references": ["azapi_resource.s.id", "azapi_resource.s"]}},
            },
        ]
    }
    document = plan(
        of("topic", "t", {"name": "events"}),
        azapi("topics/subscriptions", "s", BODY),
        azapi("topics/subscriptions/rules", "r", {"properties": {"filterType": "SqlFilter"}}),
        azapi("queues", "q", None),
        {
            "mode": "managed",
            "type": "azapi_resource",
            "name": "x",
            "values": {"type": "Microsoft.Web/sites@2024-01-01"},
        },
        configuration=configuration,
    )
    found = read_terraform(document, "plan.json")
    assert (found.left_out, found.foreign) == ((), {"Microsoft.Web/sites": 1})
    assert paths(found) == [
        (Kind.TOPIC, ("events",)),
        (Kind.SUBSCRIPTION, ("events", "s")),
        (Kind.RULE, ("events", "s", "r")),
        (Kind.QUEUE, ("q",)),
    ]


def test_a_subscription_of_jms_has_the_name_that_azurerm_makes() -> None:
    values = {"name": "s", "topic_id": f"{ID}/topics/t", "client_scoped_subscription_enabled": True}
    found = read_terraform(state(of("subscription", "s", values)), "state.json")
    assert paths(found) == [(Kind.SUBSCRIPTION, ("t", "s$$D"))]


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({}, "it has no format_version; give what `terraform show -json` prints of a plan or a state"),
        ({"format_version": "2.0"}, "its format_version is '2.0'; allowed is 1 (and 0)"),
        (
            {"version": 4, "terraform_version": "1.9.0", "resources": []},
            "it is a state file; give what `terraform show -json` prints of it",
        ),
    ],
)
def test_a_file_of_something_else_is_refused_with_one_line(
    emubus: CommandLine, tmp_path: Path, document: object, error: str
) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(document))
    ended = emubus("import", "--terraform", str(file))
    assert (ended.code, ended.out, ended.err) == (2, "", f"emubus: error: {file}: {error}\n")


def test_modules_without_end_are_refused() -> None:
    document = plan()
    module = document["planned_values"]["root_module"]
    for _ in range(100):
        module["child_modules"] = [{}]
        module = module["child_modules"][0]
    with pytest.raises(NotTerraform, match="nested more than 64 deep"):
        read_terraform(document, "plan.json")


@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {"a": 1}])
@pytest.mark.parametrize("name", ["planned_values", "configuration", "resource_changes"])
def test_a_file_that_is_shaped_otherwise_is_read_as_far_as_it_goes(name: str, value: object) -> None:
    document = plan(of("queue", "q", {"name": "q"}))
    document[name] = value
    assert len(read_terraform(document, "plan.json").declared) <= 1


def test_settings_have_no_row_among_the_types() -> None:
    assert not SETTINGS & set(TYPES)


def test_the_page_names_each_type() -> None:
    page = (Path(__file__).parents[2] / "docs" / "BICEP_AND_TERRAFORM.md").read_text()
    assert [each for each in (*TYPES, *SETTINGS) if f"`{each}`" not in page] == []
