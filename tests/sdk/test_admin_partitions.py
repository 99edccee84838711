"""Administration of partitioned entities: how they are made, what they hold, and what an outage lets be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from emubus.broker.model.profiles import Limits, Profile, limits_for
from emubus.testing import EmubusServer

from .administration import Ref, queue_ref, rule_ref, subscription_ref, topic_ref
from .client import Sdk
from .conftest import STORES, MakeName, Outages
from .driver import SdkError
from .features import ADMINISTRATORS, CHANGES_NOTHING_IMMUTABLE, LACKS_PROPERTIES, only_clients

pytestmark = pytest.mark.sdk

REFS: tuple[Callable[[str], Ref], ...] = (queue_ref, topic_ref)
SetLimits = Callable[[Limits], None]


def refused(call: Callable[[], object]) -> tuple[str, str]:
    """The kind and the message of the error that a call ends with."""
    with pytest.raises(SdkError) as refusal:
        call()
    return refusal.value.kind, refusal.value.message


def partition_count(server: EmubusServer, path: str) -> int:
    """How many partitions an entity has."""
    entity = server.server.broker.namespace.entity(path)
    assert entity is not None
    return len(entity.partitions)


def size_of_partitions(server: EmubusServer, ref: Ref) -> int:
    """How many megabytes each partition of a queue or topic may hold."""
    (path,) = ref.values()
    entity = server.server.broker.namespace.entity(path)
    assert entity is not None
    (size_bytes,) = {place.size_bytes_max for place in entity.partitions}
    return size_bytes >> 20


@pytest.fixture
def set_limits(server: EmubusServer) -> Iterator[SetLimits]:
    """Gives the namespace other limits for the time of a test: entities are made by those of the moment."""
    broker = server.server.broker
    before = broker.limits

    def set_limits(limits: Limits) -> None:
        server.call(lambda: setattr(broker.namespace, "limits", limits))

    yield set_limits
    set_limits(before)


@only_clients(*[name for name in ADMINISTRATORS if name not in CHANGES_NOTHING_IMMUTABLE])
def test_p01_partitioning_is_chosen_at_creation_and_a_flip_changes_nothing(sdk: Sdk, new_name: MakeName) -> None:
    for make_ref in REFS:
        for partitioned in (False, True):
            ref = make_ref(new_name())
            made = sdk.admin.create(ref, enable_partitioning=partitioned)
            assert made["enable_partitioning"] is partitioned
            flip = {"enable_partitioning": not partitioned, "user_metadata": "changed"}
            kind, error = refused(partial(sdk.admin.update, ref, **flip))
            assert (kind, "Partitioning cannot be changed" in error) == ("argument", True), error
            assert sdk.admin.get(ref) == made


@only_clients(*ADMINISTRATORS)
def test_p02_p06_partitioned_and_unpartitioned_entities_live_side_by_side(
    sdk: Sdk, new_name: MakeName, server: EmubusServer
) -> None:
    partitioned, plain, topic = new_name(), new_name(), new_name()
    sdk.admin.create(queue_ref(partitioned), enable_partitioning=True)
    sdk.admin.create(queue_ref(plain), enable_partitioning=False)
    sdk.admin.create(topic_ref(topic), enable_partitioning=True)
    assert [partition_count(server, name) for name in (partitioned, plain, topic)] == [len(STORES), 1, len(STORES)]
    messages = [{"body": f"{number}"} for number in range(2 * len(STORES))]
    for name in (partitioned, plain):
        sdk.send(name, *messages)
    found = [
        Counter(message.partition for message in sdk.receiver(name).peek_all(page=64)) for name in (partitioned, plain)
    ]
    assert found == [dict.fromkeys(STORES, 2), {0: 2 * len(STORES)}]


@only_clients(*ADMINISTRATORS)
def test_p03_the_namespace_decides_where_it_is_premium(
    sdk: Sdk, new_name: MakeName, server: EmubusServer, set_limits: SetLimits
) -> None:
    for count, expected in ((4, True), (None, False)):
        set_limits(limits_for(Profile.PREMIUM, count))
        said, other, topic = new_name(), new_name(), new_name()
        assert sdk.admin.create(queue_ref(said), enable_partitioning=expected)["enable_partitioning"] is expected
        kind, error = refused(partial(sdk.admin.create, queue_ref(other), enable_partitioning=not expected))
        assert (kind, "EnablePartitioning" in error) == ("argument", True), error
        assert sdk.admin.exists(queue_ref(other)) is False
        sdk.admin.create(topic_ref(topic), enable_partitioning=expected)
        assert [partition_count(server, name) for name in (said, topic)] == [count or 1] * 2


@only_clients(*ADMINISTRATORS)
def test_p04_the_size_of_a_partitioned_entity_is_shown_as_that_of_all_partitions(
    sdk: Sdk, new_name: MakeName, server: EmubusServer
) -> None:
    for make_ref in REFS:
        default, largest, plain = (make_ref(new_name()) for _ in range(3))
        assert sdk.admin.create(default, enable_partitioning=True)["max_size_mb"] == 16 * 1024
        assert sdk.admin.create(largest, enable_partitioning=True, max_size_mb=5120)["max_size_mb"] == 16 * 5120
        assert sdk.admin.create(plain, max_size_mb=5120)["max_size_mb"] == 5120
        # An update sends the size back that was shown.
        changed = [sdk.admin.update(ref, user_metadata="x")["max_size_mb"] for ref in (default, largest, plain)]
        assert changed == [16 * 1024, 16 * 5120, 5120]
        assert [size_of_partitions(server, ref) for ref in (default, largest, plain)] == [1024, 5120, 5120]
        odd = make_ref(new_name())
        kind, error = refused(partial(sdk.admin.create, odd, max_size_mb=6144))
        assert (kind, "The property 'MaxSizeInMegabytes', must be one of" in error) == ("argument", True), error
        assert sdk.admin.exists(odd) is False


@only_clients(*ADMINISTRATORS)
def test_p05_a_namespace_has_a_number_of_partitioned_entities_that_is_the_most(
    sdk: Sdk, new_name: MakeName, server: EmubusServer, set_limits: SetLimits
) -> None:
    broker = server.server.broker
    there = sum(
        getattr(entry.description, "enable_partitioning", False)
        for entry in server.call(broker.namespace.catalog.entries)
    )
    set_limits(replace(broker.limits, partitioned_entities_max=there + 1))
    last, refs = new_name(), [queue_ref(new_name()), topic_ref(new_name())]
    sdk.admin.create(queue_ref(last), enable_partitioning=True)
    for ref in refs:
        kind, error = refused(partial(sdk.admin.create, ref, enable_partitioning=True))
        assert (kind, f"allowed is at most {there + 1} (profile standard)" in error) == ("quota", True), error
        assert sdk.admin.exists(ref) is False
        sdk.admin.create(ref, enable_partitioning=False)


@only_clients(*ADMINISTRATORS)
def test_p17_entities_are_changed_on_all_partitions_or_not_at_all(
    sdk: Sdk, new_name: MakeName, outages: Outages
) -> None:
    admin, topic = sdk.admin, new_name()
    queue, new = queue_ref(new_name()), queue_ref(new_name())
    subscription, added = subscription_ref(topic, "s"), subscription_ref(topic, "new")
    rule = rule_ref(topic, "s", "red")
    admin.create(queue, enable_partitioning=True)
    admin.create(topic_ref(topic), enable_partitioning=True)
    admin.create(subscription)
    before = {name: value for name, value in admin.get(queue).items() if name != "availability"}
    changes: list[Callable[[], object]] = [
        lambda: admin.create(new, enable_partitioning=True),
        lambda: admin.create(added),
        lambda: admin.create(rule, filter={"sql": "colour = 'red'"}),
        lambda: admin.update(queue, max_delivery_count=99),
        lambda: admin.delete(queue),
        lambda: admin.delete(subscription),
    ]
    outages.begin(stores=[5])
    assert [refused(change)[0] for change in changes] == ["busy"] * len(changes)
    outages.end()
    assert {name: value for name, value in admin.get(queue).items() if name != "availability"} == before
    assert [admin.exists(ref) for ref in (queue, new, subscription, added, rule)] == [True, False, True, False, False]
    for change in changes:
        change()
    assert [admin.exists(ref) for ref in (queue, new, subscription, added)] == [False, True, False, True]


@only_clients(*ADMINISTRATORS)
def test_p17_reading_counts_what_can_be_reached_and_says_that_it_is_limited(
    sdk: Sdk, new_name: MakeName, outages: Outages
) -> None:
    queue, topic = new_name(), new_name()
    subscription = subscription_ref(topic, "s")
    sdk.admin.create(queue_ref(queue), enable_partitioning=True)
    sdk.admin.create(topic_ref(topic), enable_partitioning=True)
    sdk.admin.create(subscription)
    refs = [queue_ref(queue), topic_ref(topic), subscription]
    for name in (queue, topic):
        sdk.send(name, *[{"body": f"{number}"} for number in range(2 * len(STORES))])

    def shown() -> tuple[list[str | None], list[int]]:
        availability = [sdk.admin.get(ref).get("availability") for ref in refs]
        return availability, [sdk.admin.runtime(ref)["active_count"] for ref in (queue_ref(queue), subscription)]

    shows = "availability" not in LACKS_PROPERTIES.get(sdk.name, ())
    whole = (["Available" if shows else None] * 3, [32, 32])
    assert shown() == whole
    outages.begin(stores=[5, 6, 7])
    assert shown() == (["Limited" if shows else None] * 3, [26, 26])
    assert sdk.admin.runtimes("queues")[queue]["active_count"] == 26
    outages.end()
    assert shown() == whole
