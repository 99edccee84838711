"""Administration of topics and subscriptions: what is set is kept and shown, by every SDK alike."""

from __future__ import annotations

import pytest

from .administration import key_of, last_part, rule_ref, subscription_ref, topic_ref
from .client import Sdk
from .conftest import MakeName
from .features import (
    FORGETS_THE_TTL,
    KEEPS_STATUS_OF_SUBSCRIPTIONS_BACK,
    MAKES_DEFAULT_RULES,
    clients_with,
    created_by,
    only_clients,
    shown_by,
)

pytestmark = pytest.mark.sdk

TOPIC_DEFAULTS = {
    "max_size_mb": 1024,
    "requires_duplicate_detection": False,
    "duplicate_window_ms": 600_000,
    "enable_batched_operations": True,
    "status": "Active",
    "enable_partitioning": False,
    "enable_express": False,
    "max_message_size_kb": 256,
    "supports_ordering": True,
    "availability": "Available",
}
TOPIC_CHOSEN = {
    "max_size_mb": 3072,
    "requires_duplicate_detection": True,
    "default_ttl_ms": 86_400_000,
    "duplicate_window_ms": 60_000,
    "enable_batched_operations": False,
    "auto_delete_on_idle_ms": 600_000,
    "user_metadata": "a topic",
    "authorization_rules": [
        {"name": "sender", "rights": ["Send"], "primary_key": key_of(b"p"), "secondary_key": key_of(b"s")},
    ],
}
TOPIC_CHANGED = {"default_ttl_ms": 60_000, "duplicate_window_ms": 30_000, "status": "SendDisabled"}
SUBSCRIPTION_DEFAULTS = {
    "lock_duration_ms": 60_000,
    "requires_session": False,
    "dead_lettering_on_expiration": False,
    "dead_lettering_on_filter_error": True,
    "max_delivery_count": 10,
    "enable_batched_operations": True,
    "status": "Active",
    "availability": "Available",
}
SUBSCRIPTION_CHOSEN = {
    "lock_duration_ms": 30_000,
    "requires_session": True,
    "default_ttl_ms": 5_400_000,
    "dead_lettering_on_expiration": True,
    "dead_lettering_on_filter_error": False,
    "max_delivery_count": 3,
    "enable_batched_operations": False,
    "auto_delete_on_idle_ms": 300_000,
    "user_metadata": "a subscription",
}
SUBSCRIPTION_CHANGED = {
    "lock_duration_ms": 10_000,
    "dead_lettering_on_expiration": False,
    "dead_lettering_on_filter_error": True,
    "max_delivery_count": 4,
    "status": "Disabled",
}


@clients_with("administration")
def test_a_topic_is_made_read_changed_listed_and_deleted(sdk: Sdk, new_name: MakeName) -> None:
    plain, topic = topic_ref(new_name()), topic_ref(new_name())
    defaults = shown_by(sdk, created_by(sdk, TOPIC_DEFAULTS))
    assert (sdk.admin.create(plain), sdk.admin.get(plain)) == (defaults, defaults)
    made = shown_by(sdk, {**created_by(sdk, TOPIC_DEFAULTS), **TOPIC_CHOSEN})
    assert (sdk.admin.create(topic, **TOPIC_CHOSEN), sdk.admin.get(topic)) == (made, made)
    changed = {**made, **TOPIC_CHANGED}
    del changed["user_metadata"]
    assert sdk.admin.update(topic, **TOPIC_CHANGED, user_metadata=None) == changed
    assert {plain["topic"], topic["topic"]} <= set(sdk.admin.names("topics"))
    assert sdk.admin.runtimes("topics").keys() == set(sdk.admin.names("topics"))
    sdk.admin.delete(topic)
    assert (sdk.admin.exists(plain), sdk.admin.exists(topic)) == (True, False)
    assert topic["topic"] not in sdk.admin.names("topics")


@clients_with("administration")
def test_a_subscription_is_made_read_changed_listed_and_deleted(sdk: Sdk, new_name: MakeName) -> None:
    topic, target = new_name(), new_name()
    for name in (topic, target):
        sdk.admin.create(topic_ref(name))
    plain, subscription = subscription_ref(topic, "plain"), subscription_ref(topic, "Chosen")
    defaults = shown_by(sdk, SUBSCRIPTION_DEFAULTS)
    assert (sdk.admin.create(plain), sdk.admin.get(plain)) == (defaults, defaults)
    chosen = {**SUBSCRIPTION_CHOSEN, "forward_dead_letters_to": target}
    made = shown_by(sdk, {**SUBSCRIPTION_DEFAULTS, **chosen, "forward_dead_letters_to": last_part(target)})
    assert (sdk.admin.create(subscription, **chosen), sdk.admin.get(subscription)) == (made, made)
    changing = {**SUBSCRIPTION_CHANGED}
    if sdk.name in KEEPS_STATUS_OF_SUBSCRIPTIONS_BACK:
        del changing["status"]
    changed = {**made, **changing}
    del changed["user_metadata"], changed["forward_dead_letters_to"]
    if sdk.name in FORGETS_THE_TTL:
        del changed["default_ttl_ms"]
    sent = {**changing, "user_metadata": None, "forward_dead_letters_to": None}
    assert sdk.admin.update(subscription, **sent) == changed
    assert sdk.admin.names("subscriptions", topic=topic) == ["Chosen", "plain"]
    assert sdk.admin.names("rules", topic=topic, subscription="plain") == ["$Default"]
    assert sdk.admin.update(plain, forward_to=target) == {**defaults, "forward_to": last_part(target)}
    sdk.admin.delete(plain)
    assert (sdk.admin.exists(plain), sdk.admin.exists(subscription)) == (False, True)
    sdk.admin.delete(topic_ref(topic))
    assert sdk.admin.exists(subscription) is False


@only_clients(*MAKES_DEFAULT_RULES)
def test_a_subscription_is_made_with_a_first_rule_of_its_own(sdk: Sdk, new_name: MakeName) -> None:
    topic = new_name()
    sdk.admin.create(topic_ref(topic))
    rule = {"name": "red", "filter": {"sql": "colour = 'red'"}, "action": "SET seen = 'yes'"}
    sdk.admin.create(subscription_ref(topic, "s"), default_rule=rule)
    assert sdk.admin.names("rules", topic=topic, subscription="s") == ["red"]
    assert sdk.admin.get(rule_ref(topic, "s", "red")) == {"filter": rule["filter"], "action": rule["action"]}
