"""`config check`, `export`, `schema`: answer, JSON, errors, exit code; an export that is served exports the same."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

from emubus.broker.keys import Right
from emubus.broker.model.descriptions import (
    DEFAULT_RULE_NAME,
    TEXT_TYPE_NAMES,
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
    TypedText,
)
from emubus.broker.model.profiles import Profile
from emubus.broker.rules.values import TEXT_TYPES
from emubus.testing import EmubusServer

from .conftest import CommandLine

SAMPLE = Path(__file__).resolve().parents[2] / "docker" / "Config.json"
THREE_ERRORS = """{
  "UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [
    {"Name": "a", "Properties": {"LockDuration": "PT1H", "Colour": 1}},
    {"Name": "b", "Properties": {"MaxDeliveryCount": "x"}},
    {"Name": "a"}
  ]}]},
  "More": 1
}"""
GUID = TypedText("guid", "00000000-0000-0000-0000-000000000001")
EVERYTHING = (
    QueueDescription("plain"),
    QueueDescription(
        "full",
        enable_partitioning=True,
        lock_duration_ms=30_000,
        max_delivery_count=3,
        default_ttl_ms=1_500,
        dead_letter_on_expiration=True,
        max_size_mb=2048,
        requires_duplicate_detection=True,
        duplicate_window_ms=60_000,
        forward_dead_letters_to="plain",
        auto_delete_on_idle_ms=3_600_000,
        status=EntityStatus.SEND_DISABLED,
        user_metadata="text",
        enable_batched_operations=False,
        authorization_rules=(AuthorizationRule("k", (Right.LISTEN, Right.SEND), "p", "s"),),
    ),
    TopicDescription("t", support_ordering=False, enable_express=True),
    SubscriptionDescription("t", "all", requires_session=True),
    SubscriptionDescription(
        "t",
        "some",
        dead_letter_on_filter_exceptions=False,
        forward_to="plain",
        rules=(
            RuleDescription("sql", SqlFilter("a = @a", {"@a": 1}), "SET b = @b", action_parameters={"@b": 1.5}),
            RuleDescription(
                "like", CorrelationFilter(label="l", properties={"n": 1, "at": TypedText("duration", "PT1S")})
            ),
            RuleDescription("typed", CorrelationFilter(properties={"g": GUID, "l": TypedText("long", "1")})),
            RuleDescription("no", FalseFilter()),
        ),
    ),
)


def test_every_error_of_a_file_is_printed_with_line_and_column(offline: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(THREE_ERRORS)
    ended = offline("config", "check", str(path))
    assert (ended.code, ended.out) == (2, "")
    at = "$.UserConfig.Namespaces[0].Queues"
    assert ended.err.splitlines() == [
        f"{path}:3:50: {at}[0].Properties.LockDuration is PT1H; allowed is PT5S to PT5M (profile standard)",
        f'{path}:4:54: {at}[1].Properties.MaxDeliveryCount is "x"; it must be a whole number',
        f'{path}:5:5: {at}[2] is named "a"; line 3 has another queue or topic of that name '
        "(upper and lower case are the same)",
        f"{path}:7:11: $.More is not a known property: it is passed over (warning)",
        f"{path}:3:68: {at}[0].Properties.Colour is not a known property: it is passed over (warning)",
    ]
    found = offline("config", "check", str(path), "--json")
    assert found.code == 2
    assert [(each["line"], each["column"]) for each in found.json["errors"]] == [(3, 50), (4, 54), (5, 5)]
    assert [(each["line"], each["column"]) for each in found.json["warnings"]] == [(7, 11), (3, 68)]
    refused = offline("serve", "--config", str(path))
    assert (refused.code, len(refused.err.splitlines())) == (2, 3)


def test_a_file_without_errors_is_summed_up(offline: CommandLine, tmp_path: Path) -> None:
    assert offline.done("config", "check", str(SAMPLE)).startswith(f"{SAMPLE}: ")
    path = tmp_path / "c.json"
    path.write_text('{"UserConfig": {"Namespaces": [{"Name": "ns"}]},\n "More": 1}')
    ended = offline("config", "check", str(path))
    assert (ended.code, ended.out) == (0, f"{path}: 0 queues, 0 topics, 0 subscriptions\n")
    assert ended.err == f"{path}:2:10: $.More is not a known property: it is passed over (warning)\n"
    assert offline("config", "check", str(tmp_path / "none")).code == 2
    assert offline("config", "check", str(SAMPLE), "--profile", "premum").code == 2


def test_an_export_that_is_served_exports_the_same(
    offline: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    with EmubusServer(EVERYTHING) as first:
        monkeypatch.setenv("EMUBUS_URL", f"http://127.0.0.1:{first.http_port}")
        exported = json.loads(offline.done("config", "export"))
        assert offline.done("config", "export", "--file", str(file)) == f"exported to {file}\n"
    with EmubusServer(config_file=file) as second:
        monkeypatch.setenv("EMUBUS_URL", f"http://127.0.0.1:{second.http_port}")
        assert json.loads(offline.done("config", "export")) == exported
        entities = second.call(lambda: list(second.server.broker.namespace.entities()))
        found = {each.path: each.description for each in entities}
        assert {path: found[path] for path in ("plain", "full", "t")} == {each.name: each for each in EVERYTHING[:3]}
        assert found["t/Subscriptions/some"] == EVERYTHING[4]
    assert schema(offline).is_valid(exported)


def test_subscriptions_of_jms_are_exported_with_their_selectors_and_what_goes_with_its_client_is_not(
    offline: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    durable = (JmsSubscription("c", True, False), JmsSubscription("", True, True))
    selected = RuleDescription(DEFAULT_RULE_NAME, SelectorFilter("k = 'it''s' AND JMSPriority > 3"))
    kept = [
        SubscriptionDescription("t", f"s{each.suffix}", dead_letter_on_filter_exceptions=False, jms=each, rules=rules)
        for each, rules in zip(durable, ((selected,), (RuleDescription(DEFAULT_RULE_NAME),)), strict=True)
    ]
    passing = JmsSubscription("", False, True)
    others = (SubscriptionDescription("t", "s$$ND", jms=passing), QueueDescription("temporary", is_temporary=True))
    with EmubusServer((TopicDescription("t"), *kept), profile=Profile.PREMIUM) as first:
        for each in others:
            first.create(each)
        monkeypatch.setenv("EMUBUS_URL", f"http://127.0.0.1:{first.http_port}")
        offline.done("config", "export", "--file", str(file))
    with EmubusServer(config_file=file, profile=Profile.PREMIUM) as second:
        entities = second.call(lambda: list(second.server.broker.namespace.entities()))
        assert [each.description for each in entities][1:] == [kept[1], kept[0]]
    assert schema(offline).is_valid(json.loads(file.read_text()))
    refused = offline("config", "check", str(file))
    is_set = "ClientAffineProperties is set; allowed is none: JMS needs the profile premium, without partitions"
    assert [line.partition("Subscriptions")[2] for line in refused.err.splitlines()] == [
        f"[0].Properties.{is_set} (profile standard)",
        "[1].Rules[0].Properties.SelectorFilter.Selector is for JMS, which a namespace of the profile standard has not",
        f"[1].Properties.{is_set} (profile standard)",
    ]
    file.write_text(file.read_text().replace('"IsDurable": true', '"IsDurable": false').replace("k = ", "k = = "))
    wrong = offline("config", "check", str(file), "--profile", "premium").err
    assert "IsDurable is false; allowed is true" in wrong
    assert "Selector can't be used: " in wrong


def test_every_type_of_a_value_is_one_of_the_files(offline: CommandLine, tmp_path: Path) -> None:
    assert set(TEXT_TYPES) == set(TEXT_TYPE_NAMES)
    file = tmp_path / "c.json"
    rules = [
        {
            "Name": kind,
            "Properties": {
                "FilterType": "Correlation",
                "CorrelationFilter": {"Properties": {"x": {"Type": kind, "Value": "?"}}},
            },
        }
        for kind in TEXT_TYPE_NAMES
    ]
    topic = {"Name": "t", "Subscriptions": [{"Name": "s", "Rules": rules}]}
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "n", "Topics": [topic]}]}}))
    errors = offline("config", "check", str(file)).err.splitlines()
    assert [f"Rules[{index}]" in error for index, error in enumerate(errors)] == [True] * len(TEXT_TYPE_NAMES)


def schema(offline: CommandLine) -> jsonschema_rs.Validator:
    """The schema that the command prints, checked against its own."""
    own = json.loads(offline.done("config", "schema"))
    assert jsonschema_rs.meta.is_valid(own)
    return jsonschema_rs.validator_for(own)


def test_the_schema_takes_what_the_reader_takes_and_refuses_what_it_refuses(offline: CommandLine) -> None:
    own = schema(offline)
    assert own.is_valid({"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "q"}]}]}, "More": 1})
    for wrong in ({"Nme": "q"}, {"Name": "q", "Properties": {"LockDuration": 60}}, {"Name": 1}):
        assert not own.is_valid({"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [wrong]}]}})


def test_an_export_needs_a_server_and_a_place(emubus: CommandLine, offline: CommandLine) -> None:
    assert emubus("config", "export", "--file", "/no/such/folder/c.json").code == 2
    assert offline("config", "export", "--url", "http://127.0.0.1:1").code == 3
