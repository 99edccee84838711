"""Runtime properties: what an entity holds is counted over all its partitions, in every state."""

from __future__ import annotations

import pytest

from emubus.testing import EmubusServer

from ..broker.driving import encoded
from ..broker.namespace import Receiver
from .administration import Runtime, queue_ref, subscription_ref, topic_ref
from .client import Sdk
from .conftest import MakeName
from .features import ADMINISTRATORS, only_clients

pytestmark = [pytest.mark.sdk, only_clients(*ADMINISTRATORS)]

HOUR_MS = 3_600_000
NEVER_AT = -62_135_596_800_000  # 0001-01-01T00:00:00Z
MESSAGES = [{"body": f"{number}"} for number in range(20)]


def counts(runtime: Runtime) -> Runtime:
    """The counts of messages, without those that are 0."""
    return {name: value for name, value in runtime.items() if name.endswith("_count") and value}


def transfer_to_nowhere(server: EmubusServer, queue: str) -> None:
    """Put a message among the dead letters of transfers, as a transaction does whose target is gone."""
    broker = server.server.broker

    async def transfer() -> None:
        via = broker.namespace.entity(queue)
        assert via is not None
        broker.transactions.transfer(None, via, encoded("lost"), "nowhere", lambda _: None)
        assert len(await Receiver(broker, f"{queue}/$Transfer/$DeadLetterQueue").receive(1)) == 1

    server.run(transfer())


def test_messages_of_a_queue_are_counted_by_their_state(
    sdk: Sdk, new_name: MakeName, partitioned: bool, server: EmubusServer
) -> None:
    queue = new_name()
    ref = queue_ref(queue)
    sdk.admin.create(ref, enable_partitioning=partitioned)
    empty = sdk.admin.runtime(ref)
    assert (counts(empty), empty["size_bytes"]) == ({}, 0)
    sdk.send(queue, *MESSAGES, how="batch")
    sdk.schedule(queue, server.clock.now_ms() + HOUR_MS, {"body": "later"}, {"body": "later"})
    receiver = sdk.receiver(queue)
    locked = receiver.receive_all(6)
    for message in locked[:3]:
        receiver.dead_letter(message)
    receiver.defer(locked[3])
    receiver.complete(locked[4])
    receiver.peek_until(lambda messages: len(messages) == len(MESSAGES) - 4 + 2)
    transfer_to_nowhere(server, queue)
    shown = sdk.admin.runtime(ref)
    assert counts(shown) == {
        "active_count": 16,
        "dead_letter_count": 3,
        "scheduled_count": 2,
        "transfer_dead_letter_count": 1,
        "total_count": 22,
    }
    assert shown["size_bytes"] > 0
    assert sdk.admin.runtimes("queues")[queue] == shown


def test_copies_are_counted_in_their_subscriptions(
    sdk: Sdk, new_name: MakeName, partitioned: bool, server: EmubusServer
) -> None:
    topic = new_name()
    sdk.admin.create(topic_ref(topic), enable_partitioning=partitioned)
    refs = [subscription_ref(topic, name) for name in ("a", "b")]
    for ref in refs:
        sdk.admin.create(ref)
    sdk.send(topic, *MESSAGES, how="batch")
    sdk.schedule(topic, server.clock.now_ms() + HOUR_MS, {"body": "later"})
    receiver = sdk.receiver(topic, subscription="a")
    receiver.dead_letter(receiver.receive_one())
    receiver.peek_until(lambda messages: len(messages) == len(MESSAGES) - 1)
    first, second = (sdk.admin.runtime(ref) for ref in refs)
    assert counts(first) == {"active_count": 19, "dead_letter_count": 1, "total_count": 20}
    assert counts(second) == {"active_count": 20, "total_count": 20}
    assert sdk.admin.runtimes("subscriptions", topic=topic) == {"a": first, "b": second}
    shown = sdk.admin.runtime(topic_ref(topic))
    assert counts(shown) == {"scheduled_count": 1, "subscription_count": 2}
    assert shown["size_bytes"] > 0
    assert sdk.admin.runtimes("topics")[topic] == shown


def test_an_entity_tells_when_it_was_made_changed_and_used(sdk: Sdk, new_name: MakeName, server: EmubusServer) -> None:
    queue = new_name()
    ref = queue_ref(queue)
    made_at = server.clock.now_ms()
    sdk.admin.create(ref)

    def instants() -> tuple[int, ...]:
        shown = sdk.admin.runtime(ref)
        return tuple(shown[name] - made_at for name in ("created_at_ms", "updated_at_ms", "accessed_at_ms"))

    assert instants() == (0, 0, NEVER_AT - made_at)
    server.advance(1_000)
    sdk.admin.update(ref, max_delivery_count=2)
    assert instants() == (0, 1_000, NEVER_AT - made_at)
    server.advance(1_000)
    sdk.send(queue, {"body": "x"})
    assert instants() == (0, 1_000, 2_000)


def test_a_topic_was_never_accessed_until_it_has_a_subscription_or_a_message(
    sdk: Sdk, new_name: MakeName, server: EmubusServer
) -> None:
    topic, made_at = new_name(), server.clock.now_ms()
    sdk.admin.create(topic_ref(topic))
    server.advance(1_000)
    assert sdk.admin.runtime(topic_ref(topic))["accessed_at_ms"] == NEVER_AT
    sdk.admin.create(subscription_ref(topic, "s"))
    assert sdk.admin.runtime(topic_ref(topic))["accessed_at_ms"] - made_at == 1_000
    server.advance(1_000)
    sdk.send(topic, {"body": "x"})
    assert sdk.admin.runtime(topic_ref(topic))["accessed_at_ms"] - made_at == 2_000


def test_a_namespace_says_what_it_is(sdk: Sdk, server: EmubusServer) -> None:
    assert sdk.admin.namespace() == {"name": server.server.broker.name, "sku": "Standard"}
