"""Conditions: what a program sees with each SDK when the service has a bad day."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import pytest

from emubus.conditions.faults import FaultKind, FaultOperation
from emubus.testing import EmubusServer

from ..amqp.wire import ATTACH, DETACH, Frame
from .client import Sdk
from .conftest import MakeQueue, Outages
from .driver import DriverProcess, SdkError
from .features import (
    FAILS_WHAT_MEETS_A_LOSS,
    IGNORES_REFUSALS_IN_TRANSACTIONS,
    clients_with,
    only_clients,
    partitioned_only,
)
from .prepare import ALL_CLIENTS
from .tracing import Trace

pytestmark = [pytest.mark.sdk, partitioned_only]

IDLE_MS, LOCK_MS = 600_000, 60_000
AWAY_MS_MAX = 10_000
TRY_MS = 2_000


@pytest.fixture(autouse=True)
def nothing_on(server: EmubusServer) -> Iterator[None]:
    """At the end of a test nothing is on."""
    yield
    server.end_conditions()


def target_of(attach: Frame) -> object:
    """The address that a client sends to; None for another link."""
    return attach.get(6).value[0] if attach.get(2) is False and attach.get(6) is not None else None


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


@only_clients("javascript")
def test_the_errors_of_all_tries_come_together(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    with server.conditions("throttle-credits", entity=queue, credits_per_s=0):
        sdk.reset(retries={"max": 1, "delay_ms": 100})
        assert refused_to_send(sdk, queue).tries == ["ServiceBusy"] * 2
        sdk.reset(retries={"max": 0})
        refused = refused_to_send(sdk, queue)
        assert (refused.type, refused.code, refused.tries) == ("ServiceBusError", "ServiceBusy", [])


def test_a_sender_goes_on_after_its_link_was_idle(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    with server.conditions("idle-link", entity=queue) as on:
        sdk.send(queue, {"body": "before"})
        server.advance(IDLE_MS)
        if sdk.name in FAILS_WHAT_MEETS_A_LOSS:
            sdk.hear_of_loss(queue)
        sdk.send(queue, {"body": "after"})
        assert {each.scope for each in on.report.struck} == {queue}
    assert sorted(message.body or "" for message in sdk.receiver(queue).peek_all()) == ["after", "before"]


def test_a_trace_shows_why_an_idle_sender_attached_twice(queue: str, server: EmubusServer) -> None:
    # What SDKs write meanwhile goes by the machine's time: a clock that is moved takes them for silent.
    quiet = server.conditions("quiet-hours", entity=queue, silent_connection__idle_ms=2 * IDLE_MS)
    with Trace(server.amqp_port) as trace, quiet:
        driver = DriverProcess(
            ALL_CLIENTS["go"], server.connection_string.replace(f":{server.amqp_port};", f":{trace.port};")
        )
        go = Sdk(driver)
        go.send(queue, {"body": "before"})
        server.advance(IDLE_MS)
        go.send(queue, {"body": "after"})
        driver.close()
    first, second = (frame.get(0) for frame in trace.of_client if frame.code == ATTACH and target_of(frame) == queue)
    assert first != second
    errors = [frame.get(2).value[:2] for frame in trace.of_server if frame.code == DETACH and frame.get(2) is not None]
    ((condition, text),) = (error for error in errors if first in error[1])
    assert condition == "amqp:link:detach-forced"
    assert text.endswith("Details: AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00.")


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


@only_clients("javascript")
def test_a_hundred_messages_of_sixteen_partitions_are_peeked_one_by_one(
    sdk: Sdk, queue: str, server: EmubusServer
) -> None:
    sdk.send(queue, *({"body": f"{number}"} for number in range(100)))
    seen: list[str | None] = []
    with server.conditions("partition-quirks", entity=queue):
        receiver = sdk.receiver(queue)
        while found := receiver.peek(100):
            assert len(found) == 1
            seen += (message.body for message in found)
    assert sorted(map(str, seen)) == sorted(map(str, range(100)))


@only_clients("javascript")
def test_a_message_session_is_lost_in_an_upgrade_and_accepted_again(
    sdk: Sdk, server: EmubusServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(requires_session=True)
    sdk.send(queue, *({"body": body, "session_id": "s"} for body in "012"))
    receiver = sdk.accept_session(queue, "s")
    first = receiver.receive_one()
    with server.conditions("rolling-upgrade", seed=7, entity=queue) as on:
        moves_at = min(each.at for each in on.report.plan if each.behaviour == "broker-move")
        server.advance(moves_at - server.now_ms())
        with pytest.raises(SdkError) as lost:
            receiver.complete(first)
        assert lost.value.kind == "session-lock-lost"
        with pytest.raises(SdkError):  # it has no broker
            sdk.accept_session(queue, "s")
        server.advance(AWAY_MS_MAX)
        again = sdk.accept_session(queue, "s")
        assert [(each.body, each.delivery_count) for each in again.receive_all(3)] == [("0", 0), ("1", 0), ("2", 0)]


@only_clients("python-sync-7.14.3", "javascript")
def test_a_settlement_that_is_lost_brings_the_message_back(sdk: Sdk, server: EmubusServer, queue: str) -> None:
    sdk.send(queue, {"body": "x"})
    if sdk.name == "javascript":
        sdk.reset(retries={"max": 0, "try_ms": TRY_MS})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    with server.conditions("settle-lost", entity=queue, count=1) as on:
        if sdk.name == "javascript":
            with pytest.raises(SdkError) as refused:  # it gives up, and does not hang
                receiver.complete(message)
            assert refused.value.kind == "timeout"
        else:
            receiver.complete(message)
        assert on.report.struck_count == 1
    server.advance(LOCK_MS)
    again = sdk.receiver(queue).receive_one()
    assert (again.body, again.delivery_count) == ("x", 1)


@only_clients("python-sync", "python-aio", "javascript")
def test_a_request_whose_answer_is_lost_is_sent_again_when_its_try_ends(
    sdk: Sdk, server: EmubusServer, queue: str
) -> None:
    sdk.reset(retries={"max": 5, "try_ms": TRY_MS})  # without a limit of a try, it would wait for a minute
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    server.add_fault(FaultKind.MISSING_CONFIRMATION, entity=queue, operations=[FaultOperation.REQUEST], count=1)
    assert [message.body for message in receiver.peek()] == ["x"]
    assert server.clear_faults() == 0  # it has struck


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
def test_a_transaction_that_takes_more_than_two_minutes_is_over(
    sdk: Sdk, server: EmubusServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(lock_duration_ms=5 * LOCK_MS)
    sdk.send(queue, {"body": "before", "partition_key": "k"})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    transaction = sdk.begin_transaction(queue)
    sdk.send(queue, {"body": "1", "partition_key": "k"}, transaction=transaction)
    server.advance(120_000)
    over = partial(pytest.raises, SdkError, match="No active Transaction was found")
    with nullcontext() if sdk.name in IGNORES_REFUSALS_IN_TRANSACTIONS else over():
        sdk.send(queue, {"body": "2", "partition_key": "k"}, transaction=transaction)
    with over() as refused:
        receiver.complete(message, transaction=transaction)
    assert refused.value.type in ("UnsupportedOperationException", "InvalidOperationException")
    with over():
        sdk.end_transaction(transaction, commit=True)
    assert [each.body for each in sdk.receiver(queue).peek_all()] == ["before"]


@pytest.mark.slow
@only_clients("go")
def test_a_send_that_waits_for_another_store_fails_and_is_stored_all_the_same(
    sdk: Sdk, queue: str, server: EmubusServer, outages: Outages
) -> None:
    outages.begin()
    with server.conditions("reroute-slow", entity=queue, ms_min=15_000, ms=15_000) as on:
        assert refused_to_send(sdk, queue).kind == "timeout"  # its context ends after 20 seconds
        assert on.report.struck_count == 1
        outages.end()
        assert sdk.receiver(queue).peek_all() == []
        server.advance(15_000)
        (stored,) = sdk.receiver(queue).peek_all()
    sdk.send(queue, {"body": "refused"})  # a program that sends again has it twice
    assert [message.body for message in sdk.receiver(queue).peek_all()] == [stored.body] * 2
