"""Administration of queues: what is set is kept and shown, by every SDK alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.testing import EmubusServer

from .administration import key_of, last_part, queue_ref
from .client import Sdk
from .conftest import MakeName
from .features import clients_with, created_by, shown_by

pytestmark = [pytest.mark.sdk, clients_with("administration")]

PAGE_ENTITIES = 100
DEFAULTS = {
    "lock_duration_ms": 60_000,
    "max_size_mb": 1024,
    "requires_duplicate_detection": False,
    "requires_session": False,
    "dead_lettering_on_expiration": False,
    "duplicate_window_ms": 600_000,
    "max_delivery_count": 10,
    "enable_batched_operations": True,
    "status": "Active",
    "enable_partitioning": False,
    "enable_express": False,
    "max_message_size_kb": 256,
    "availability": "Available",
}
CHOSEN = {
    "lock_duration_ms": 45_000,
    "max_size_mb": 2048,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "default_ttl_ms": 3_600_000,
    "dead_lettering_on_expiration": True,
    "duplicate_window_ms": 90_500,
    "max_delivery_count": 8,
    "enable_batched_operations": False,
    "auto_delete_on_idle_ms": 7_200_000,
    "user_metadata": 'größe <&> "x"',
    "authorization_rules": [
        {
            "name": "all",
            "rights": ["Listen", "Manage", "Send"],
            "primary_key": key_of(b"p"),
            "secondary_key": key_of(b"s"),
        },
        {"name": "listener", "rights": ["Listen"], "primary_key": key_of(b"l"), "secondary_key": key_of(b"m")},
    ],
}
CHANGED = {
    "lock_duration_ms": 5_000,
    "default_ttl_ms": 1_000,
    "duplicate_window_ms": 20_000,
    "max_delivery_count": 2_000,
    "enable_batched_operations": True,
    "auto_delete_on_idle_ms": 300_000,
    "status": "ReceiveDisabled",
}


def test_a_queue_is_made_with_the_services_defaults(sdk: Sdk, new_name: MakeName) -> None:
    queue = queue_ref(new_name())
    assert sdk.admin.exists(queue) is False
    expected = shown_by(sdk, created_by(sdk, DEFAULTS))
    assert (sdk.admin.create(queue), sdk.admin.get(queue)) == (expected, expected)
    assert sdk.admin.exists(queue) is True
    assert queue["queue"] in sdk.admin.names("queues")
    sdk.admin.delete(queue)
    assert sdk.admin.exists(queue) is False
    assert queue["queue"] not in sdk.admin.names("queues")


def test_what_is_set_of_a_queue_is_kept_and_can_be_changed(sdk: Sdk, new_name: MakeName) -> None:
    queue, target = queue_ref(new_name()), new_name()
    sdk.admin.create(queue_ref(target))
    made = shown_by(sdk, {**created_by(sdk, DEFAULTS), **CHOSEN, "forward_dead_letters_to": last_part(target)})
    asked = {**CHOSEN, "forward_dead_letters_to": target}
    assert (sdk.admin.create(queue, **asked), sdk.admin.get(queue)) == (made, made)
    sent = {"user_metadata": None, "forward_dead_letters_to": None, **CHANGED}
    changed = {name: value for name, value in {**made, **CHANGED}.items() if name not in sent or name in CHANGED}
    assert sdk.admin.update(queue, **sent) == changed
    assert sdk.admin.update(queue, status="Active", max_delivery_count=3) == {
        **changed,
        "status": "Active",
        "max_delivery_count": 3,
    }


def test_a_queue_forwards_to_where_its_administrator_says(sdk: Sdk, new_name: MakeName) -> None:
    source, first, second = new_name(), new_name(), new_name()
    for target in (first, second):
        sdk.admin.create(queue_ref(target))
    assert sdk.admin.create(queue_ref(source), forward_to=first)["forward_to"] == last_part(first)
    sdk.send(source, {"body": "to the first"})
    assert sdk.admin.update(queue_ref(source), forward_to=second)["forward_to"] == last_part(second)
    sdk.send(source, {"body": "to the second"})
    assert "forward_to" not in sdk.admin.update(queue_ref(source), forward_to=None)
    sdk.send(source, {"body": "stays"})
    received = [sdk.receiver(queue, "receive-and-delete").receive_one().body for queue in (first, second, source)]
    assert received == ["to the first", "to the second", "stays"]


@pytest.fixture
def many(server: EmubusServer) -> Iterator[list[str]]:
    """More queues, subscriptions of the topic `many` and rules of its subscription `m000` than a page holds."""
    names = [f"m{number:03}" for number in range(2 * PAGE_ENTITIES + 5)]
    rules = tuple(RuleDescription(name) for name in names)
    server.create(TopicDescription("many"))
    for name in names:
        server.create(QueueDescription(name))
        server.create(SubscriptionDescription("many", name, rules=rules if name == names[0] else ()))
    yield names
    server.delete("many")
    for name in names:
        server.delete(name)


def test_lists_longer_than_a_page_are_complete(sdk: Sdk, many: list[str]) -> None:
    assert [name for name in sdk.admin.names("queues") if name in many] == many
    assert [name for name in sdk.admin.runtimes("queues") if name in many] == many
    assert sdk.admin.names("subscriptions", topic="many") == many
    assert sdk.admin.names("rules", topic="many", subscription=many[0]) == many
