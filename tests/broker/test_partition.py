"""What one partition does with its messages, without loop, disk or network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, Complete, DeadLetter, Defer, Delivery, Home, Outcome, ReceiveMode, Release
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.builder import NewMessage
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.contract import Received
from emubus.broker.partition.requests import (
    CancelScheduled,
    ExpireLocks,
    LockMessages,
    Peek,
    ProcessDue,
    Receive,
    ReceiveDeferred,
    Renew,
    Schedule,
)

from .driving import Driver, decoded, encoded, read

QUEUE = QueueDescription("q", lock_duration_ms=30_000, max_delivery_count=3)
DEAD = SubQueue.DEAD_LETTER


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver(QUEUE)
    yield driver
    driver.check()


def bodies(driver: Driver, count: int = 100) -> list[str]:
    return [bytes(message.body).decode() for message in decoded(driver.take(count))]


def test_messages_come_out_in_the_order_of_their_sequence_numbers(driver: Driver) -> None:
    for name in "abc":
        assert driver.send(encoded(name)) is None
    deliveries = driver.take(3)
    assert [delivery.sequence_number for delivery in deliveries] == [(3 << 48) + n for n in (1, 2, 3)]
    assert [bytes(message.body) for message in decoded(deliveries)] == [b"a", b"b", b"c"]


def test_p22_the_topmost_16_bits_of_a_sequence_number_are_the_partition() -> None:
    for index in (0, 3, 15):
        driver = Driver(QUEUE, index=index)
        driver.send(encoded())
        assert driver.take()[0].sequence_number >> 48 == index


def test_sequence_numbers_of_an_unpartitioned_queue_start_at_one() -> None:
    driver = Driver(QUEUE, index=0, partitioned=False)
    driver.send(encoded())
    assert driver.take()[0].sequence_number == 1


def test_p20_a_locked_message_is_not_given_to_another(driver: Driver) -> None:
    driver.send(encoded())
    assert len(driver.take()) == 1
    assert driver.take() == []


def test_a_completed_message_is_gone(driver: Driver) -> None:
    driver.send(encoded())
    (delivery,) = driver.take()
    assert driver.settle(delivery.token, Complete()) is None
    driver.reopen()
    assert driver.take() == []


def test_a_second_settlement_is_answered_with_lock_lost(driver: Driver) -> None:
    driver.send(encoded())
    (delivery,) = driver.take()
    driver.settle(delivery.token, Complete())
    error = driver.settle(delivery.token, Complete())
    assert error is not None
    assert error.condition is Condition.MESSAGE_LOCK_LOST


def test_an_abandoned_message_is_next_and_counts(driver: Driver) -> None:
    driver.send(encoded("a"))
    driver.send(encoded("b"))
    (first,) = driver.take()
    driver.settle(first.token, Abandon({"why": "later"}))
    again = decoded(driver.take(2))
    assert [(bytes(m.body), m.delivery_count, m.properties) for m in again] == [
        (b"a", 1, {"why": "later"}),
        (b"b", 0, None),
    ]


def test_a_released_message_does_not_count(driver: Driver) -> None:
    driver.send(encoded())
    (delivery,) = driver.take()
    driver.settle(delivery.token, Release())
    assert [message.delivery_count for message in decoded(driver.take())] == [0]


def test_the_delivery_count_survives_a_restart(driver: Driver) -> None:
    driver.send(encoded())
    driver.settle(driver.take()[0].token, Abandon())
    driver.reopen()
    assert [message.delivery_count for message in decoded(driver.take())] == [1]


def test_the_last_allowed_attempt_dead_letters(driver: Driver) -> None:
    driver.send(encoded("a", id="m"))
    for _ in range(3):
        driver.settle(driver.take()[0].token, Abandon())
    assert driver.take() == []
    (dead,) = decoded(driver.take(sub_queue=DEAD))
    assert (dead.id, dead.delivery_count, dead.properties) == (
        "m",
        3,
        {
            "DeadLetterReason": "MaxDeliveryCountExceeded",
            "DeadLetterErrorDescription": "Message could not be consumed after 3 delivery attempts.",
        },
    )


def test_dead_lettering_keeps_reason_description_and_properties(driver: Driver) -> None:
    driver.send(encoded("a", properties={"kept": 1}))
    driver.settle(driver.take()[0].token, DeadLetter("bad", "very", {"more": "x"}))
    (dead,) = decoded(driver.take(sub_queue=DEAD))
    assert dead.properties == {
        "kept": 1,
        "more": "x",
        "DeadLetterReason": "bad",
        "DeadLetterErrorDescription": "very",
    }


def test_nothing_is_dead_lettered_out_of_the_dead_letter_queue(driver: Driver) -> None:
    driver.send(encoded())
    driver.settle(driver.take()[0].token, DeadLetter())
    (dead,) = driver.take(sub_queue=DEAD)
    error = driver.settle(dead.token, DeadLetter("again"))
    assert error is not None
    assert error.condition is Condition.NOT_ALLOWED
    assert driver.settle(dead.token, Complete()) is None


def test_a_dead_letter_keeps_the_delivery_count_that_it_came_with(driver: Driver) -> None:
    driver.send(encoded())
    driver.settle(driver.take()[0].token, Abandon())
    driver.settle(driver.take()[0].token, DeadLetter())
    for _ in range(10):
        driver.settle(driver.take(sub_queue=DEAD)[0].token, Abandon({"looked": True}))
    assert len(driver.take(sub_queue=DEAD)) == 1
    driver.now += 30_000
    driver.run(ExpireLocks())
    assert [(dead.delivery_count, dead.properties) for dead in decoded(driver.take(sub_queue=DEAD))] == [
        (1, {"looked": True})
    ]


def test_receive_and_delete_leaves_nothing(driver: Driver) -> None:
    driver.send(encoded())
    assert len(driver.take(mode=ReceiveMode.RECEIVE_AND_DELETE)) == 1
    driver.reopen()
    assert driver.take() == []


def test_an_expired_lock_counts_and_gives_the_message_back(driver: Driver) -> None:
    driver.send(encoded())
    (delivery,) = driver.take()
    driver.now += 30_000
    driver.run(ExpireLocks())
    assert [message.delivery_count for message in decoded(driver.take())] == [1]
    error = driver.settle(delivery.token, Complete())
    assert error is not None
    assert error.condition is Condition.MESSAGE_LOCK_LOST


def test_renewing_starts_the_lock_duration_anew(driver: Driver) -> None:
    driver.send(encoded())
    (delivery,) = driver.take()
    driver.now += 20_000
    assert driver.ask(Renew, SubQueue.ACTIVE, [delivery.token]) == [driver.now + 30_000]
    driver.now += 20_000
    driver.run(ExpireLocks())
    assert driver.settle(delivery.token, Complete()) is None


def test_renewing_one_lost_lock_renews_none(driver: Driver) -> None:
    driver.send(encoded("a"))
    (delivery,) = driver.take()
    answer = driver.ask(Renew, SubQueue.ACTIVE, [delivery.token, b"\0" * 16])
    assert isinstance(answer, BrokerError)
    assert answer.condition is Condition.MESSAGE_LOCK_LOST
    driver.now += 30_000
    driver.run(ExpireLocks())
    assert len(driver.take()) == 1


def test_a_deferred_message_comes_back_by_its_number_only(driver: Driver) -> None:
    driver.send(encoded("a"))
    (delivery,) = driver.take()
    driver.settle(delivery.token, Defer({"later": True}))
    driver.reopen()
    assert driver.take() == []
    numbers = [delivery.sequence_number]
    (again,) = driver.ask(ReceiveDeferred, SubQueue.ACTIVE, numbers, ReceiveMode.PEEK_LOCK, None)
    assert decoded([again])[0].properties == {"later": True}
    error = driver.ask(ReceiveDeferred, SubQueue.ACTIVE, numbers, ReceiveMode.PEEK_LOCK, None)
    assert error.condition is Condition.MESSAGE_NOT_FOUND
    driver.settle(again.token, Abandon())
    assert driver.take() == []
    (third,) = driver.ask(ReceiveDeferred, SubQueue.ACTIVE, numbers, ReceiveMode.PEEK_LOCK, None)
    assert [message.delivery_count for message in decoded([delivery, again, third])] == [0, 1, 2]
    assert driver.settle(third.token, Complete()) is None


def test_each_deferral_counts_as_a_delivery_and_the_last_one_dead_letters() -> None:
    driver = Driver(replace(QUEUE, max_delivery_count=3))
    driver.send(encoded("a"))
    (delivery,) = driver.take()
    numbers = [delivery.sequence_number]
    counts: list[int] = []
    for _ in range(2):
        assert driver.settle(delivery.token, Defer()) is None
        (delivery,) = driver.ask(ReceiveDeferred, SubQueue.ACTIVE, numbers, ReceiveMode.PEEK_LOCK, None)
        counts.append(decoded([delivery])[0].delivery_count)
    assert counts == [1, 2]
    assert driver.settle(delivery.token, Defer({"kept": 1})) is None
    (dead,) = decoded(driver.take(sub_queue=DEAD))
    assert (dead.delivery_count, dead.properties["DeadLetterReason"]) == (3, "MaxDeliveryCountExceeded")
    assert dead.properties["kept"] == 1
    driver.check()


def test_a_deferral_of_the_only_delivery_dead_letters() -> None:
    driver = Driver(replace(QUEUE, max_delivery_count=1))
    driver.send(encoded("a"))
    (delivery,) = driver.take()
    assert driver.settle(delivery.token, Defer()) is None
    assert len(driver.take(sub_queue=DEAD)) == 1
    error = driver.ask(ReceiveDeferred, SubQueue.ACTIVE, [delivery.sequence_number], ReceiveMode.PEEK_LOCK, None)
    assert error.condition is Condition.MESSAGE_NOT_FOUND


def test_dead_letters_are_deferred_as_often_as_one_likes() -> None:
    driver = Driver(replace(QUEUE, max_delivery_count=1))
    driver.send(encoded("a"))
    (delivery,) = driver.take()
    driver.settle(delivery.token, DeadLetter())
    (delivery,) = driver.take(sub_queue=DEAD)
    for _ in range(3):
        assert driver.settle(delivery.token, Defer()) is None
        (delivery,) = driver.ask(ReceiveDeferred, DEAD, [delivery.sequence_number], ReceiveMode.PEEK_LOCK, None)


def test_an_operator_locks_messages_by_number_wherever_they_stand(driver: Driver) -> None:
    for name in "abcd":
        driver.send(encoded(name))
    first, second, third, fourth = (number for number, _ in driver.ask(Peek, SubQueue.ACTIVE, 0, 9, 1 << 20, None))
    (deferred,) = driver.take()
    driver.settle(deferred.token, Defer())
    (taken,) = driver.take()
    assert (deferred.sequence_number, taken.sequence_number) == (first, second)
    locked = driver.ask(LockMessages, SubQueue.ACTIVE, [fourth, first, second, fourth, 99])
    assert [each.sequence_number for each in locked] == [fourth, first]
    assert [each.sequence_number for each in driver.take(9)] == [third]
    driver.settle(locked[0].token, Release())
    (again,) = driver.take(9)
    assert (again.sequence_number, decoded([again])[0].delivery_count) == (fourth, 0)
    assert driver.settle(locked[1].token, Complete()) is None
    driver.now += 60_000
    driver.run(ExpireLocks())
    driver.check()


def test_messages_that_an_operator_locks_again_and_again_are_delivered_once(driver: Driver) -> None:
    for name in "abc":
        driver.send(encoded(name))
    numbers = [number for number, _ in driver.ask(Peek, SubQueue.ACTIVE, 0, 9, 1 << 20, None)]
    for _ in range(3):
        for each in driver.ask(LockMessages, SubQueue.ACTIVE, numbers[1:]):
            driver.check()
            driver.settle(each.token, Release())
    assert [each.sequence_number for each in driver.take(9)] == numbers
    assert driver.take(9) == []
    driver.check()


def test_a_scheduled_message_is_delivered_before_its_time(driver: Driver) -> None:
    at = driver.now + 9_000
    messages = [NewMessage(each, scheduled_enqueue_at=at).encoded() for each in (b"a", b"b")]
    numbers = driver.ask(Schedule, [parse_message(each) for each in messages])
    answers: list[BrokerError | None] = []
    driver.run(CancelScheduled([numbers[0], 99], answers.append, is_delivery=True))
    assert driver.take(9) == []
    driver.run(CancelScheduled([numbers[0]], answers.append, is_delivery=True))
    assert [error is None for error in answers] == [False, True]
    (delivery,) = driver.take(9)
    assert (delivery.sequence_number, delivery.payload[-1:]) == (max(numbers) + 1, b"a")
    driver.now = at
    assert [number for _, _, number in driver.due_rows()] == [numbers[1]]


def test_a_deferred_message_takes_its_delivery_count_to_the_dead_letter_queue(driver: Driver) -> None:
    driver.send(encoded("a"))
    (delivery,) = driver.take()
    driver.settle(delivery.token, Defer())
    (again,) = driver.ask(ReceiveDeferred, SubQueue.ACTIVE, [delivery.sequence_number], ReceiveMode.PEEK_LOCK, None)
    driver.settle(again.token, DeadLetter("unwanted"))
    (dead,) = driver.take(sub_queue=DEAD)
    driver.settle(dead.token, Defer())
    (deferred,) = driver.ask(ReceiveDeferred, DEAD, [dead.sequence_number], ReceiveMode.PEEK_LOCK, None)
    assert [message.delivery_count for message in decoded([dead, deferred])] == [1, 1]


@pytest.mark.parametrize(
    "outcome",
    [
        DeadLetter("why", "x" * 33_000),
        DeadLetter("x" * 33_000),
        Abandon({"large": b"x" * 33_000}),
        Defer({"a": "x" * 30_000, "b": "x" * 30_000, "c": "x" * 30_000}),
    ],
    ids=["description", "reason", "one property", "many properties"],
)
def test_a_settlement_that_adds_too_large_a_property_is_refused_and_the_lock_goes_on(
    driver: Driver, outcome: Outcome
) -> None:
    driver.send(encoded("a"))
    (delivery,) = driver.take()
    error = driver.settle(delivery.token, outcome)
    assert error is not None
    assert error.condition is Condition.INTERNAL_ERROR
    assert driver.take() == []
    assert driver.settle(delivery.token, DeadLetter("why", "x" * 32_768)) is None
    (dead,) = decoded(driver.take(sub_queue=DEAD))
    assert dead.properties == {"DeadLetterReason": "why", "DeadLetterErrorDescription": "x" * 32_768}


def test_an_expired_message_is_dropped(driver: Driver) -> None:
    driver.send(encoded(ttl=5))
    driver.now += 5_000
    assert driver.take() == []
    driver.reopen()
    assert driver.take() == []


def test_an_expired_message_is_dead_lettered_if_the_queue_says_so() -> None:
    driver = Driver(replace(QUEUE, dead_letter_on_expiration=True, default_ttl_ms=1_000))
    driver.send(encoded("a", ttl=50))
    driver.now += 1_000
    driver.run(ProcessDue(driver.due_rows()))
    (dead,) = decoded(driver.take(sub_queue=DEAD))
    assert dead.properties == {
        "DeadLetterReason": "TTLExpiredException",
        "DeadLetterErrorDescription": "The message expired and was dead lettered.",
    }
    driver.check()


def test_a_message_locked_when_it_expires_can_be_completed(driver: Driver) -> None:
    driver.send(encoded(ttl=1))
    (delivery,) = driver.take()
    driver.now += 2_000
    driver.run(ProcessDue(driver.due_rows()))
    assert driver.settle(delivery.token, Complete()) is None


def test_a_message_that_expired_under_lock_goes_when_the_lock_ends(driver: Driver) -> None:
    driver.send(encoded(ttl=1))
    (delivery,) = driver.take()
    driver.now += 2_000
    driver.run(ProcessDue(driver.due_rows()))
    driver.settle(delivery.token, Abandon())
    assert driver.take() == []


def test_a_message_in_the_window_that_expires_is_not_delivered_twice(driver: Driver) -> None:
    driver.send(encoded("old", ttl=1))
    driver.send(encoded("new"))
    driver.now += 2_000
    driver.run(ProcessDue(driver.due_rows()))
    assert bodies(driver) == ["new"]


def test_peek_shows_every_state_in_order_and_locks_nothing(driver: Driver) -> None:
    for name in "abcd":
        driver.send(encoded(name))
    first, second = driver.take(2)
    driver.settle(first.token, Defer())
    assert second.sequence_number > first.sequence_number
    rows = driver.ask(Peek, SubQueue.ACTIVE, 0, 10, 1 << 20, None)
    states = [decoded_state(payload) for _, payload in rows]
    assert states == [("a", 1), ("b", 0), ("c", 0), ("d", 0)]
    assert bodies(driver) == ["c", "d"]


def test_a_peek_shows_how_long_messages_are_locked_and_no_token(driver: Driver) -> None:
    for name in "abcd":
        driver.send(encoded(name))
    first, _ = driver.take(2)
    driver.settle(first.token, Release())
    driver.now += 1_000
    driver.take()
    peeked = [read(payload) for _, payload in driver.ask(Peek, SubQueue.ACTIVE, 0, 10, 1 << 20, None)]
    seen = [(bytes(each.body).decode(), each.annotations.get("x-opt-locked-until")) for each in peeked]
    lock_ms = QUEUE.lock_duration_ms
    ends = [driver.now + lock_ms, driver.now - 1_000 + lock_ms, None, None]
    assert seen == list(zip("abcd", ends, strict=True))
    assert not any("x-opt-lock-token" in (each.instructions or {}) for each in peeked)


def decoded_state(payload: bytes) -> tuple[str, int]:
    message = read(payload)
    return bytes(message.body).decode(), message.annotations["x-opt-message-state"]


def test_peek_in_small_pages_sees_each_message_once(driver: Driver) -> None:
    for number in range(20):
        driver.send(encoded(str(number)))
    for delivery in driver.take(8)[::2]:
        driver.settle(delivery.token, Defer())
    seen: list[int] = []
    start = 0
    while rows := driver.ask(Peek, SubQueue.ACTIVE, start, 3, 1 << 20, None):
        seen += [number for number, _ in rows]
        start = seen[-1] + 1
    assert seen == [(3 << 48) + n for n in range(1, 21)]


def test_peek_stops_at_the_size_limit_but_shows_at_least_one(driver: Driver) -> None:
    for _ in range(3):
        driver.send(encoded("x" * 1000))
    assert len(driver.ask(Peek, SubQueue.ACTIVE, 0, 10, 2500, None)) == 2
    assert len(driver.ask(Peek, SubQueue.ACTIVE, 0, 10, 10, None)) == 1


def test_a_full_partition_refuses_and_stores_nothing() -> None:
    driver = Driver(QUEUE, size_bytes_max=3000)
    assert driver.send(encoded("x" * 2000)) is None
    error = driver.send(encoded("x" * 2000))
    assert error is not None
    assert error.condition is Condition.RESOURCE_LIMIT_EXCEEDED
    assert len(driver.take(5)) == 1
    driver.check()


def test_a_batch_is_stored_whole(driver: Driver) -> None:
    driver.send(encoded("a"), encoded("b"), encoded("c"))
    assert bodies(driver) == ["a", "b", "c"]


def test_a_refused_commit_stores_nothing_and_forgets_the_locks(driver: Driver) -> None:
    driver.send(encoded("a"))
    driver.refusing = True
    assert driver.send(encoded("b")) is not None
    driver.refusing = False
    assert bodies(driver) == ["a"]


def test_an_empty_line_announces_new_messages_once(driver: Driver) -> None:
    driver.take()
    driver.send(encoded("a"))
    driver.send(encoded("b"))
    assert driver.place.announced == [SubQueue.ACTIVE]


def test_a_backlog_larger_than_the_window_comes_out_whole() -> None:
    driver = Driver(QUEUE)
    driver.budget.bytes_max = 5_000
    for number in range(300):
        driver.send(encoded(f"{number:03}" + "x" * 100))
    driver.reopen()
    seen: list[str] = []
    while found := bodies(driver, 7):
        seen += found
    assert [body[:3] for body in seen] == [f"{number:03}" for number in range(300)]
    driver.check()
    assert driver.budget.bytes_used == 0


def test_take_says_whether_there_is_more(driver: Driver) -> None:
    driver.send(encoded("a"))
    driver.send(encoded("b"))
    answers: list[Received[Delivery]] = []
    driver.run(Receive(SubQueue.ACTIVE, 1, ReceiveMode.PEEK_LOCK, answers.append))
    driver.run(Receive(SubQueue.ACTIVE, 1, ReceiveMode.PEEK_LOCK, answers.append))
    assert [answer.more for answer in answers] == [True, False]


def test_counters_follow_every_move(driver: Driver) -> None:
    for _ in range(4):
        driver.send(encoded())
    first, second, third = driver.take(3)
    driver.settle(first.token, Defer())
    driver.settle(second.token, DeadLetter())
    driver.settle(third.token, Complete())
    assert driver.partition is not None
    counts = {home.name: count for home, count in zip(Home, driver.partition.counters.messages, strict=True) if count}
    assert counts == {"ACTIVE": 1, "DEFERRED": 1, "DEAD_LETTER": 1}


def test_a_deferred_message_that_is_asked_for_twice_is_given_once(driver: Driver) -> None:
    driver.send(encoded("a"))
    (delivery,) = driver.take()
    driver.settle(delivery.token, Defer())
    numbers = [delivery.sequence_number] * 2
    (again,) = driver.ask(ReceiveDeferred, SubQueue.ACTIVE, numbers, ReceiveMode.PEEK_LOCK, None)
    driver.check()
    assert driver.settle(again.token, Defer()) is None
    (gone,) = driver.ask(ReceiveDeferred, SubQueue.ACTIVE, numbers, ReceiveMode.RECEIVE_AND_DELETE, None)
    assert gone.sequence_number == delivery.sequence_number
    driver.check()
