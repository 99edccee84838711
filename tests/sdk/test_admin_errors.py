"""Refusals of administration: each reaches the application as what it is, and nothing has changed by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from emubus.broker.model.descriptions import QueueDescription
from emubus.config import Auth
from emubus.testing import EmubusServer

from .administration import Ref, queue_ref, rule_ref, subscription_ref, topic_ref
from .client import Sdk
from .conftest import MakeName
from .driver import DriverProcess, SdkError
from .features import ADMINISTRATORS, CHANGES_NOTHING_IMMUTABLE, CHECKS_VALUES_ITSELF, only_clients
from .prepare import ALL_CLIENTS

pytestmark = pytest.mark.sdk


def refusal(call: Callable[[], object]) -> SdkError:
    """The error that a call ends with."""
    with pytest.raises(SdkError) as refused:
        call()
    return refused.value


@only_clients(*ADMINISTRATORS)
def test_what_is_not_there_is_not_found(sdk: Sdk, new_name: MakeName) -> None:
    admin, topic, missing = sdk.admin, new_name(), new_name()
    admin.create(topic_ref(topic))
    admin.create(subscription_ref(topic, "s"))
    entities: list[Ref] = [
        queue_ref(missing),
        topic_ref(missing),
        subscription_ref(topic, "nothing"),
        subscription_ref(missing, "s"),
    ]
    for ref in [*entities, rule_ref(topic, "s", "r"), rule_ref(topic, "nothing", "r")]:
        kinds = [refusal(partial(call, ref)).kind for call in (admin.get, admin.delete)]
        assert (ref, kinds, admin.exists(ref)) == (ref, ["not-found", "not-found"], False)
    for ref in entities:
        assert (ref, refusal(partial(admin.runtime, ref)).kind) == (ref, "not-found")
    assert refusal(lambda: admin.create(subscription_ref(missing, "s"))).kind == "not-found"
    assert refusal(lambda: admin.create(rule_ref(topic, "nothing", "r"), filter={"true": True})).kind == "not-found"
    assert refusal(lambda: admin.names("subscriptions", topic=missing)).kind == "not-found"
    assert refusal(lambda: admin.names("rules", topic=topic, subscription="nothing")).kind == "not-found"


@only_clients(*ADMINISTRATORS)
def test_what_is_there_is_not_made_again(sdk: Sdk, new_name: MakeName) -> None:
    admin, queue, topic = sdk.admin, new_name(), new_name()
    refs = [queue_ref(queue), topic_ref(topic), subscription_ref(topic, "s"), rule_ref(topic, "s", "r")]
    for ref in refs:
        options = {"filter": {"sql": "a = 1"}} if "rule" in ref else {"user_metadata": "the first"}
        admin.create(ref, **options)
        before = admin.get(ref)
        others = {"filter": {"sql": "a = 2"}} if "rule" in ref else {"user_metadata": "the second"}
        error = refusal(partial(admin.create, ref, **others))
        assert (ref, error.kind, admin.get(ref)) == (ref, "exists", before)
    assert refusal(lambda: admin.create(topic_ref(queue))).kind == "exists"
    assert refusal(lambda: admin.create(queue_ref(topic.upper()))).kind == "exists"


@only_clients(*ADMINISTRATORS)
def test_values_that_are_not_allowed_are_refused_by_name_and_limit(sdk: Sdk, new_name: MakeName) -> None:
    admin, queue, topic = sdk.admin, queue_ref(new_name()), new_name()
    error = refusal(lambda: admin.create(queue, lock_duration_ms=600_000))
    assert (error.kind, "exceeds the allowed maximum of '5' minutes" in error.message) == ("argument", True), error
    assert admin.exists(queue) is False
    admin.create(queue)
    before = admin.get(queue)
    kind, words = (
        ("other", "MaxDeliveryCount") if sdk.name in CHECKS_VALUES_ITSELF else ("argument", "MaxDeliveryCount is 0")
    )
    error = refusal(lambda: admin.update(queue, max_delivery_count=0))
    assert (error.kind, words in error.message) == (kind, True), error
    error = refusal(lambda: admin.update(queue, user_metadata="x" * 1_025))
    assert (error.kind, "UserMetadata" in error.message) == (kind, True), error
    assert admin.get(queue) == before
    admin.create(topic_ref(topic))
    assert refusal(lambda: admin.create(subscription_ref(topic, "s" * 51))).kind == kind
    assert admin.names("subscriptions", topic=topic) == []


@only_clients(*[name for name in ADMINISTRATORS if name not in CHANGES_NOTHING_IMMUTABLE])
def test_what_is_chosen_at_creation_stays(sdk: Sdk, new_name: MakeName) -> None:
    admin, queue, topic = sdk.admin, queue_ref(new_name()), new_name()
    subscription = subscription_ref(topic, "s")
    admin.create(queue)
    admin.create(topic_ref(topic))
    admin.create(subscription)
    changes = [(queue, "requires_session"), (queue, "requires_duplicate_detection"), (subscription, "requires_session")]
    for ref, name in changes:
        before = admin.get(ref)
        error = refusal(partial(admin.update, ref, **{name: True}, max_delivery_count=3))
        assert (ref, name, error.kind, admin.get(ref)) == (ref, name, "argument", before)


@pytest.fixture(scope="module")
def verifying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmubusServer]:
    """A server that verifies keys."""
    with EmubusServer([QueueDescription("q")], auth=Auth.SAS, tls_dir=tmp_path_factory.mktemp("tls")) as server:
        yield server


@pytest.mark.parametrize("name", ADMINISTRATORS)
def test_a_wrong_key_opens_nothing(name: str, verifying: EmubusServer) -> None:
    text = verifying.connection_string.replace("=SAS_KEY_VALUE", "=wrong")
    driver = DriverProcess(ALL_CLIENTS[name], text, ca_file=verifying.ca_file)
    try:
        sdk = Sdk(driver)
        calls: list[Callable[[], object]] = [
            lambda: sdk.admin.create(queue_ref("new")),
            lambda: sdk.admin.get(queue_ref("q")),
            lambda: sdk.admin.names("queues"),
            lambda: sdk.admin.delete(queue_ref("q")),
        ]
        assert [refusal(call).kind for call in calls] == ["unauthorized"] * len(calls)
    finally:
        driver.close()
    names = [entry.description.name for entry in verifying.call(verifying.server.broker.namespace.catalog.entries)]
    assert names == ["q"]
