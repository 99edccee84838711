"""Administration of rules: filters and actions are kept as they are set, and decide what a subscription gets."""

from __future__ import annotations

from typing import Any

import pytest

from .administration import rule_ref, subscription_ref, topic_ref
from .client import Sdk
from .conftest import MakeName
from .driver import SdkError
from .features import FILTERS_WITH_TEXTS_ONLY, clients_with

pytestmark = [pytest.mark.sdk, clients_with("administration")]

TYPED = {
    "whole": {"type": "int", "value": 7},
    "fraction": {"type": "double", "value": 2.5},
    "flag": False,
}
EXPRESSIONS = {"true": "1=1", "false": "1=0"}
CORRELATION = {
    "correlation_id": "c",
    "message_id": "m",
    "to": "t",
    "reply_to": "r",
    "subject": "s",
    "session_id": "i",
    "reply_to_session_id": "j",
    "content_type": "text/plain",
    "properties": {"colour": "größe <&>"},
}


@pytest.fixture
def topic(sdk: Sdk, new_name: MakeName) -> str:
    """A topic with the subscription `s`."""
    topic = new_name()
    sdk.admin.create(topic_ref(topic))
    sdk.admin.create(subscription_ref(topic, "s"))
    return topic


def plain(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule with every whole number as one type, and filters for all and nothing as the expressions they stand for.

    Not every SDK shows which they were.
    """
    shown: dict[str, Any] = rule["filter"]
    for name, expression in EXPRESSIONS.items():
        if name in shown:
            rule["filter"] = {"sql": expression}
    correlation = shown.get("correlation", {})
    for value in correlation.get("properties", {}).values():
        if isinstance(value, dict) and value["type"] in ("int", "long"):
            value.update(type="long", value=str(value["value"]))
    return rule


def test_filters_of_every_kind_are_kept_and_can_be_changed(sdk: Sdk, topic: str) -> None:
    typed = {} if sdk.name in FILTERS_WITH_TEXTS_ONLY else TYPED
    correlation = {**CORRELATION, "properties": {**CORRELATION["properties"], **typed}}  # type: ignore[dict-item]
    rules: dict[str, dict[str, Any]] = {
        "sql": {"filter": {"sql": "colour = 'größe' AND size < 3"}, "action": "SET size = 4; REMOVE colour"},
        "correlation": {"filter": {"correlation": correlation}},
        "all": {"filter": {"true": True}, "action": "SET note = 'x'"},
        "none": {"filter": {"false": True}},
    }
    for name, rule in rules.items():
        ref = rule_ref(topic, "s", name)
        made, read = plain(sdk.admin.create(ref, **rule)), plain(sdk.admin.get(ref))
        assert (made, read) == (plain(rule), plain(rule))
    assert sdk.admin.names("rules", topic=topic, subscription="s") == ["$Default", *sorted(rules)]
    assert sdk.admin.update(rule_ref(topic, "s", "all"), filter={"sql": "a = 'b'"}, action=None) == {
        "filter": {"sql": "a = 'b'"}
    }
    changed = sdk.admin.update(rule_ref(topic, "s", "none"), filter={"true": True}, action="SET a = 1")
    assert plain(changed) == {"filter": {"sql": "1=1"}, "action": "SET a = 1"}
    sdk.admin.delete(rule_ref(topic, "s", "sql"))
    assert sdk.admin.exists(rule_ref(topic, "s", "sql")) is False
    assert sdk.admin.names("rules", topic=topic, subscription="s") == ["$Default", "all", "correlation", "none"]


def test_rules_decide_about_the_next_message(sdk: Sdk, topic: str) -> None:
    red = {"body": "red", "properties": {"colour": "red"}}
    blue = {"body": "blue", "properties": {"colour": "blue"}}
    rule = rule_ref(topic, "s", "$Default")
    sdk.admin.update(rule, filter={"sql": "colour = 'red'"})
    sdk.send(topic, red, blue)
    sdk.admin.update(rule, filter={"correlation": {"properties": {"colour": "blue"}}}, action="SET colour = 'green'")
    sdk.send(topic, red, blue)
    sdk.admin.delete(rule)
    sdk.send(topic, red, blue)
    sdk.admin.create(rule, filter={"true": True})
    sdk.send(topic, red)
    received = sdk.receiver(topic, "receive-and-delete", subscription="s").receive_all(3)
    seen = [(message.body, message.properties["colour"]) for message in received]
    assert seen == [("red", "red"), ("blue", "green"), ("red", "red")]


def test_a_filter_that_cannot_be_read_is_refused_with_its_reason(sdk: Sdk, topic: str) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.admin.create(rule_ref(topic, "s", "bad"), filter={"sql": "colour = = 'red'"})
    assert refused.value.kind == "argument"
    assert "[Token line=1, column=9," in refused.value.message
    assert sdk.admin.names("rules", topic=topic, subscription="s") == ["$Default"]
