"""Each property of an entity on each face: one table has them, and what one face writes it reads again."""

from __future__ import annotations

import ast
import asyncio
import html
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from importlib.resources import files as resources
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import fromstring

import pytest

from emubus.broker.api import Totals
from emubus.broker.model.catalog import Entry, path_of
from emubus.broker.model.descriptions import (
    EntityDescription,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    with_fields,
)
from emubus.broker.model.profiles import KIB, LIMITS, Profile, defaults_of
from emubus.broker.model.properties import KINDS, PROPERTIES, PROPERTIES_OF, Property, Value
from emubus.broker.partition.records import HOMES
from emubus.commands.client.entities import properties_of
from emubus.config_file.json_schema import schema
from emubus.config_file.reading import parse_config
from emubus.config_file.writing import config_json
from emubus.declared.applying import Status, apply
from emubus.declared.future import FutureNamespace
from emubus.templates.reading import evaluate
from emubus.testing import EmubusServer
from emubus.web.atom.descriptions import ReadContext, subscription_in, top_level_in
from emubus.web.atom.entries import entity_entry
from emubus.web.atom.fields import FIELDS, EntityView, description_markup
from emubus.web.atom.parsing import description_in
from emubus.web.control.administration import PROPERTY_FIELDS
from emubus.web.control.arm_template import arm_template
from emubus.web.control.create_commands import commands
from emubus.web.page.entity_fields import changed, facts, field_values, form_name
from emubus.web.page.forms import Form

from ..http.control.client import Http
from ..test_architecture import trees

LIMITS_HERE = LIMITS[Profile.RELAXED]
READING = ReadContext(LIMITS_HERE, "2024-05")
SAMPLES: Mapping[Value, object] = {
    Value.COUNT: 2048,
    Value.BYTES: 512 * KIB,
    Value.DURATION: 90_000,
    Value.LIMIT: 3_600_000,
    Value.TEXT: "a <text>",
    Value.TARGET: "target",
    Value.STATUS: EntityStatus.DISABLED,
}
ROWS = [pytest.param(kind, row, id=f"{kind.kind}-{row.name}") for kind in KINDS for row in PROPERTIES_OF[kind]]


def value_of(kind: type[EntityDescription], row: Property) -> object:
    """A value that is no default."""
    (default,) = (each.default for each in fields(kind) if each.name == row.field)
    return not default if row.value is Value.BOOLEAN else SAMPLES[row.value]


def plain(kind: type[EntityDescription], name: str = "e") -> EntityDescription:
    """An entity with the profile's defaults."""
    names = {"topic_name": "t"} if kind is SubscriptionDescription else {}
    return kind.from_json({**defaults_of(kind, LIMITS_HERE), **names, "name": name})


def with_value(kind: type[EntityDescription], row: Property) -> EntityDescription:
    return with_fields(plain(kind), {row.field: value_of(kind, row)})


def read_again(config: Mapping[str, object], kind: type[EntityDescription]) -> EntityDescription:
    """The entity of a Config.json that is of this kind and not a target."""
    found = parse_config(json.dumps(config), LIMITS_HERE).topology
    (entity,) = (
        each for each in (*found.queues, *found.topics, *found.subscriptions) if type(each) is kind and each.name == "e"
    )
    return entity


def config_of(entity: EntityDescription) -> dict[str, Any]:
    return config_json("ns", [entity, QueueDescription("target"), TopicDescription("t")])


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_config_json_reads_what_it_wrote(kind: type[EntityDescription], row: Property) -> None:
    entity = with_value(kind, row)
    config = config_of(entity)
    assert f'"{row.name}"' in json.dumps(config)
    assert read_again(config, kind) == entity


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_an_arm_template_is_read_as_the_entity_that_it_was_made_of(
    kind: type[EntityDescription], row: Property
) -> None:
    entity = with_value(kind, row)
    template = arm_template(config_of(entity))
    assert f'"{row.name[0].lower()}{row.name[1:]}"' in json.dumps(template)
    found = evaluate(template, {}).resources
    assert found.left_out == ()
    namespace = FutureNamespace(LIMITS_HERE)
    results = asyncio.run(apply(found, namespace))
    assert {each.status for each in results} == {Status.CREATED}
    assert namespace.find(path_of(entity)) == entity


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_the_commands_of_an_export_set_it(kind: type[EntityDescription], row: Property) -> None:
    entity = with_value(kind, row)
    path = "t/e" if kind is SubscriptionDescription else "e"
    lines = [shlex.split(line) for line in commands(config_of(entity))]
    own = [word for line in lines if path in line for word in line]
    given = [own[at + 1] for at, word in enumerate(own) if word == "--set"]
    assert with_fields(plain(kind), properties_of(kind.kind, given)) == entity


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_atom_reads_what_it_wrote(kind: type[EntityDescription], row: Property) -> None:
    entity = with_value(kind, row)
    view = EntityView(
        Entry(1, entity),
        Totals([0] * len(HOMES), 0, is_limited=False),
        None,
        LIMITS_HERE,
        READING.version,
        details=True,
    )
    for node in (description_in(entity_entry(entity)), fromstring(description_markup(view))):
        assert f"{{{node.tag[1:].partition('}')[0]}}}{row.name}" in {part.tag for part in node}
        if kind is SubscriptionDescription:
            found: EntityDescription = subscription_in(node, "t", "e", None, READING)
        else:
            found = top_level_in(node, "e", None, READING)
        assert getattr(found, row.field) == getattr(entity, row.field)


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_the_page_reads_what_its_field_says(kind: type[EntityDescription], row: Property) -> None:
    entity = with_value(kind, row)
    values = {name: ["yes" if value is True else str(value)] for name, value in field_values(entity).items() if value}
    assert changed(plain(kind), Form(values), is_new=True) == entity
    assert facts(entity)[row.field] != facts(plain(kind))[row.field]


def test_a_field_of_the_page_that_is_not_touched_leaves_its_property_as_it_is() -> None:
    odd = QueueDescription("e", max_message_bytes=1_500, lock_duration_ms=90_001, default_ttl_ms=None)
    values = {name: ["yes" if value is True else str(value)] for name, value in field_values(odd).items() if value}
    assert values["max_message_bytes"] == ["1.46484"]
    assert changed(odd, Form(values)) == odd
    without = changed(odd, Form({**values, "max_message_bytes": [""]}))
    assert without == with_fields(odd, {"max_message_bytes": None})


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer(profile=Profile.RELAXED) as running:
        running.create(QueueDescription("target"))
        running.create(TopicDescription("t"))
        yield running


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_the_control_api_and_the_page_of_a_server_have_it(
    server: EmubusServer, kind: type[EntityDescription], row: Property
) -> None:
    http, name = Http(server.http_port), f"{kind.kind}-{row.name}"
    path = f"t/Subscriptions/{name}" if kind is SubscriptionDescription else name
    at, value = f"/entities/{quote(path, safe='')}", value_of(kind, row)
    http.done(http.ask("PUT", at, {"kind": kind.kind, "properties": {row.field: value}}))
    assert http.get(f"{at}/properties")["properties"][row.field] == value
    for page in ("entity", "edit", "create"):
        answer = http.send("GET", f"/emubus/page/{page}?path={quote(path)}&kind={kind.kind}", Accept="text/html")
        text = html.unescape(answer.content.decode())
        assert answer.status == 200, text
        if page == "entity":
            assert row.label in text or row.field in ("enable_partitioning", "max_size_mb")
        elif not (row.is_fixed and page == "edit") and not (row.value is Value.STATUS and page == "create"):
            assert f'name="{form_name(row)}"' in text, page


def test_every_face_has_the_rows_of_the_table_and_no_others() -> None:
    assert list(PROPERTY_FIELDS) == [row.field for row in PROPERTIES]
    for kind in KINDS:
        names = {row.name for row in PROPERTIES_OF[kind]}
        assert {field.name for field in FIELDS[kind] if field.own is not None} == names
        known = {each.name for each in fields(kind) if each.default is not MISSING}
        assert known - {row.field for row in PROPERTIES_OF[kind]} <= {
            *("authorization_rules", "is_temporary", "jms", "rules", "shown_forward_to"),
        }
    text = json.dumps(schema())
    assert all(f'"{row.name}":' in text for row in PROPERTIES)


def test_the_names_of_the_service_stand_in_the_table_alone() -> None:
    """Other files may name one property, to say something of it; more of them would be a list."""
    names = {row.name for row in PROPERTIES} - {"Status"}  # a word of the page, too
    names |= {f"{name[0].lower()}{name[1:]}" for name in names}
    found: dict[str, set[str]] = {}
    for path, tree in trees():
        constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        found[path] = {each for each in constants if isinstance(each, str)} & names
    assert {path for path, each in found.items() if len(each) > 1} == {"broker/model/properties.py"}
    for template in resources("emubus.web.page").joinpath("templates").iterdir():
        text = template.read_text()
        assert len([name for name in names if re.search(rf"\b{name}\b", text)]) <= 1, template
