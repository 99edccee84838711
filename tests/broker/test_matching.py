"""Rules that take long are evaluated before the batch, in slices: others' sends to the same store go on meanwhile."""

from __future__ import annotations

from emubus.broker.broker import Broker
from emubus.broker.errors import BrokerError
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.broker.stores.matching import EVALUATIONS_MAX

from .namespace import _brokers_stop, brokers_stop, loop_turns, open_broker, send
from .rules.messages import encoded

__all__ = ["_brokers_stop", "brokers_stop"]

RULES = 400
MESSAGES = EVALUATIONS_MAX // RULES + 1


def rules(count: int = RULES) -> tuple[RuleDescription, ...]:
    return tuple(RuleDescription(f"r{number}", SqlFilter(f"a LIKE '%{number}_'")) for number in range(count))


def opened() -> Broker:
    """A broker with a topic whose rules take long."""
    broker = open_broker()
    create = broker.administration.create
    create(TopicDescription("t"))
    create(SubscriptionDescription("t", "slow", rules=rules()))
    create(SubscriptionDescription("t", "all"))
    return broker


def neighbour(broker: Broker) -> str:
    """A queue in the topic's store."""
    home = broker.namespace.find("t")[0].partitions[0].worker
    for number in range(1_000):
        queue = broker.administration.create(QueueDescription(f"q{number}"))
        if queue.partitions[0].worker is home:
            return queue.path
    raise AssertionError("no queue is there")


class Sends:
    """Sends runs to the topic; `accepted` has the numbers of those that are stored, in their order."""

    def __init__(self, broker: Broker) -> None:
        self.accepted: list[int] = []
        self.errors: list[BrokerError] = []
        self._sender = broker.open_sender("t", detached=print)
        self._sent = 0

    def run(self, count: int) -> None:
        first = self._sent
        self._sent += count
        run = [encoded({"a": "17x"}, message_id=f"{first + number}") for number in range(count)]

        def done(positions: object, error: BrokerError | None) -> None:
            assert isinstance(positions, list | range | tuple)
            if error is not None:
                self.errors.append(error)
            self.accepted += [first + position for position in positions]

        self._sender.send(run, done)

    async def all(self) -> None:
        for _ in range(10_000):
            if len(self.accepted) == self._sent:
                return
            await loop_turns(1)
        raise AssertionError(f"{len(self.accepted)} of {self._sent} are stored")


async def ids(broker: Broker, subscription: str) -> list[str | None]:
    found = await broker.messages.peek(f"t/Subscriptions/{subscription}", 0, 1_000, 1 << 20)
    return [parse_message(data).message_id for data in found]


async def test_sends_whose_rules_take_long_keep_their_order_and_match_what_they_should() -> None:
    broker = opened()
    sends = Sends(broker)
    for count in (MESSAGES, 1, MESSAGES, 1):  # a short one does not overtake
        sends.run(count)
    await sends.all()
    expected = [f"{number}" for number in range(2 * MESSAGES + 2)]
    assert sends.accepted == list(range(2 * MESSAGES + 2))
    assert await ids(broker, "all") == await ids(broker, "slow") == expected


async def test_who_sends_to_a_queue_of_the_same_store_does_not_wait_for_them() -> None:
    broker = opened()
    queue = neighbour(broker)
    sends = Sends(broker)
    for _ in range(40):
        sends.run(MESSAGES)
    await send(broker, queue, encoded())
    assert len(sends.accepted) < 40 * MESSAGES
    await sends.all()


async def test_a_subscription_that_goes_meanwhile_gets_nothing() -> None:
    broker = opened()
    sends = Sends(broker)
    for _ in range(10):
        sends.run(MESSAGES)
    await loop_turns(3)
    broker.administration.delete("t/Subscriptions/slow")
    await sends.all()
    assert sends.errors == []
    assert len(await ids(broker, "all")) == 10 * MESSAGES


async def test_what_waits_when_the_broker_stops_is_stored() -> None:
    broker = opened()
    sends = Sends(broker)
    for _ in range(10):
        sends.run(MESSAGES)
    await broker.stop()
    assert sends.accepted == list(range(10 * MESSAGES))
    assert sends.errors == []
