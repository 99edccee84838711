"""Counters of entities where no SDK gets: transactions, failed commits, the number of reasons, sessions. No wire."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from emubus.broker.admin import figures
from emubus.broker.api import Complete, Counted, DeadLetter, Release
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.broker.stores.counting import OTHER_REASONS, REASONS_MAX

from .driving import encoded
from .namespace import Receiver, loop_turns, open_broker, send
from .test_transactions import OWNER, discharge, work

TRANSFER = "$Transfer/$DeadLetterQueue"


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def counts(broker: Broker, path: str) -> dict[tuple[Counted, str], int]:
    """What was counted of an entity."""
    return {
        key: count
        for found, of_it in figures.message_counts(broker.namespace)
        for key, count in of_it.items()
        if found == path
    }


async def test_a_transaction_counts_when_it_is_committed(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    await send(broker, "q", encoded("old"))
    (old,) = await Receiver(broker, "q").receive(1)
    expected = {(Counted.SENT, ""): 1, (Counted.DELIVERED, ""): 1}
    for fails in (True, False):
        transaction_id = broker.transactions.declare(OWNER)
        work(broker, transaction_id, "q", encoded("new"))
        broker.work.settle(transaction_id, "q", old.token, Complete())
        assert counts(broker, "q") == expected
        assert await discharge(broker, transaction_id, fail=fails) is None
    assert counts(broker, "q") == {**expected, (Counted.SENT, ""): 2, (Counted.COMPLETED, ""): 1}


async def test_a_transfer_counts_where_it_leaves_and_where_it_arrives(clock: Clock) -> None:
    broker = open_broker(QueueDescription("via"), QueueDescription("target"), clock=clock)
    via = broker.namespace.entity("via")
    assert via is not None
    for target in ("target", "nowhere"):
        answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        broker.transactions.transfer(None, via, encoded(), target, answer.set_result)
        assert await answer is None
    lost = Receiver(broker, f"via/{TRANSFER}")
    (delivery,) = await lost.receive(1)
    assert await lost.settle(delivery, Complete()) is None
    await Receiver(broker, "target").receive(1)
    assert counts(broker, "target") == {(Counted.FORWARDED, ""): 1, (Counted.DELIVERED, ""): 1}
    assert counts(broker, "via") == {
        (Counted.SENT, ""): 2,
        (Counted.DEAD_LETTERED, "MessagingEntityNotFound"): 1,
        (Counted.DELIVERED, TRANSFER): 1,
        (Counted.COMPLETED, TRANSFER): 1,
    }


async def test_what_is_not_committed_does_not_count(clock: Clock) -> None:
    is_failing = False

    def disk(name: str) -> None:
        if is_failing and name == "batch-applied":
            raise OSError(5, "Input/output error")

    broker = open_broker(QueueDescription("q"), clock=clock, failpoint=disk)
    await send(broker, "q", encoded())
    is_failing = True
    with pytest.raises(BrokerError):
        await send(broker, "q", encoded())
    is_failing = False
    await loop_turns(50)
    assert counts(broker, "q") == {(Counted.SENT, ""): 1}


async def test_clients_that_make_up_reasons_do_not_fill_the_memory(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    receiver = Receiver(broker, "q")
    for number in range(REASONS_MAX + 3):
        await send(broker, "q", encoded())
        (delivery,) = await receiver.receive(1)
        assert await receiver.settle(delivery, DeadLetter(f"reason {number}", None)) is None
    found = {detail: count for (what, detail), count in counts(broker, "q").items() if what is Counted.DEAD_LETTERED}
    assert found == {**{f"reason {number}": 1 for number in range(REASONS_MAX)}, OTHER_REASONS: 3}


async def test_a_dead_letter_that_comes_back_undelivered_counts_once(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", forward_dead_letters_to="later"), QueueDescription("later"), clock=clock)
    broker.administration.delete("later")
    receiver = Receiver(broker, "q")
    await send(broker, "q", encoded())
    (delivery,) = await receiver.receive(1)
    assert await receiver.settle(delivery, DeadLetter("bad", None)) is None
    await loop_turns(50)
    (figures_of_q,) = figures.used_partitions(broker.namespace)
    assert figures_of_q.messages["dead-letter"] == 1
    assert sum(count for (what, _), count in counts(broker, "q").items() if what is Counted.DEAD_LETTERED) == 1


async def test_released_messages_and_copies_of_rules_that_fail(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    await send(broker, "q", encoded())
    receiver = Receiver(broker, "q")
    (delivery,) = await receiver.receive(1)
    assert await receiver.settle(delivery, Release()) is None
    assert counts(broker, "q")[Counted.RELEASED, ""] == 1
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(SubscriptionDescription("t", "s"))
    await send(broker, "t", encoded())
    assert counts(broker, "t") == {(Counted.SENT, ""): 1}
    assert counts(broker, "t/Subscriptions/s") == {(Counted.COPIED, ""): 1}


async def test_the_oldest_message_has_an_age_until_it_is_gone(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    began_at = clock.now_ms()
    oldest = Counter[int | None]()
    for _ in range(2):
        await send(broker, "q", encoded())
        clock.advance(1_000)
        oldest[next(figures.used_partitions(broker.namespace)).oldest_at] += 1
    assert oldest == {began_at: 2}
    receiver = Receiver(broker, "q")
    for expected in (began_at + 1_000, None):
        (delivery,) = await receiver.receive(1)
        assert await receiver.settle(delivery, Complete()) is None
        assert next(figures.used_partitions(broker.namespace)).oldest_at == expected
