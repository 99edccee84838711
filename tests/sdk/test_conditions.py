"""Conditions: what a program sees with each SDK when the service has a bad day."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emubus.testing import EmubusServer

from .client import Sdk
from .conftest import Outages
from .driver import SdkError
from .features import FAILS_WHAT_MEETS_A_LOSS, clients_with, only_clients, partitioned_only

pytestmark = [pytest.mark.sdk, partitioned_only]

IDLE_MS = 600_000


@pytest.fixture(autouse=True)
def nothing_on(server: EmubusServer) -> Iterator[None]:
    """At the end of a test nothing is on."""
    yield
    server.end_conditions()


def refused_to_send(sdk: Sdk, queue: str) -> SdkError:
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, {"body": "refused"})
    return refused.value


def test_a_throttled_send_fails_as_busy_when_the_tries_are_used_up(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    with server.conditions("throttle-credits", entity=queue, credits_per_s=0) as on:
        assert refused_to_send(sdk, queue).kind == "busy"
        assert on.report.struck_count >= 1
    sdk.send(queue, {"body": "later"})
    assert [message.body for message in sdk.receiver(queue).peek_all()] == ["later"]


def test_a_sender_goes_on_after_its_link_was_idle(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    with server.conditions("idle-link", entity=queue) as on:
        sdk.send(queue, {"body": "before"})
        server.advance(IDLE_MS)
        if sdk.name in FAILS_WHAT_MEETS_A_LOSS:
            sdk.hear_of_loss(queue)
        sdk.send(queue, {"body": "after"})
        assert {each.scope for each in on.report.struck} == {queue}
    assert sorted(message.body or "" for message in sdk.receiver(queue).peek_all()) == ["after", "before"]


def test_an_entity_that_is_not_found_is_not_tried_again(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    with server.conditions("phantom-not-found", entity=queue) as on:
        assert refused_to_send(sdk, queue).kind == "not-found"
        assert on.report.struck_count == 1
        server.advance(15_000)
        sdk.send(queue, {"body": "again"})
    assert [message.body for message in sdk.receiver(queue).peek_all()] == ["again"]


def test_a_peek_of_many_gives_one_and_the_next_goes_on_behind_it(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    for number in range(5):
        sdk.send(queue, {"body": f"{number}"})
    with server.conditions("peek-partition-end", entity=queue):
        receiver = sdk.receiver(queue)
        assert len(receiver.peek(100)) == 1
        assert sorted(message.body or "" for message in receiver.peek_all(page=100)) == list("01234")


@only_clients("javascript", "java", "go")
def test_links_come_back_after_a_change_of_their_entity(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "before"})
    with server.conditions("entity-changed", entity=queue) as on:
        assert on.report.struck_count >= 1
        if sdk.name in FAILS_WHAT_MEETS_A_LOSS:
            sdk.hear_of_loss(queue)
        sdk.send(queue, {"body": "after"})
    assert sorted(message.body or "" for message in sdk.receiver(queue).peek_all()) == ["after", "before"]


@clients_with("transactions")
def test_a_transaction_that_takes_more_than_two_minutes_is_over(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    transaction = sdk.begin_transaction(queue)
    sdk.send(queue, {"body": "1", "partition_key": "k"}, transaction=transaction)
    server.advance(120_000)
    with pytest.raises(SdkError, match="No active Transaction was found"):
        sdk.end_transaction(transaction, commit=True)
    assert sdk.receiver(queue).peek_all() == []


@pytest.mark.slow
@only_clients("go")
def test_a_send_that_waits_for_another_store_fails_and_is_stored_all_the_same(
    sdk: Sdk, queue: str, server: EmubusServer, outages: Outages
) -> None:
    outages.begin()
    with server.conditions("reroute-slow", entity=queue, ms_min=15_000, ms=15_000) as on:
        assert refused_to_send(sdk, queue).kind == "timeout"  # its context ends after 10 seconds
        assert on.report.struck_count == 1
        outages.end()
        assert sdk.receiver(queue).peek_all() == []
        server.advance(15_000)
        (stored,) = sdk.receiver(queue).peek_all()
    sdk.send(queue, {"body": "refused"})  # a program that sends again has it twice
    assert [message.body for message in sdk.receiver(queue).peek_all()] == [stored.body] * 2
