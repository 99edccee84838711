"""The same seed and traffic give the same events, in two runs from their start, with several behaviours on."""

from __future__ import annotations

from emubus.broker.broker import Broker
from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.conditions.behaviour import Value
from emubus.conditions.presets import PRESETS

from ..amqp.wire import Wire, accepted
from ..broker.driving import encoded
from ..broker.namespace import _brokers_stop, brokers_stop, send
from .wires import wire_to

__all__ = ["_brokers_stop", "brokers_stop"]

Event = tuple[int, str, str, str, int]
MINUTE_MS = 60_000
SINGLE: tuple[tuple[str, dict[str, Value]], ...] = (
    ("unsettled-window", {"max": 4}),
    ("partitioned-20-minutes", {}),
    ("rule-late", {"ms": 5_000}),
    ("tls-fails", {"share": 0.5}),
    ("lock-lost", {"share": 0.5}),
)


def with_rule(expression: str) -> SubscriptionDescription:
    return SubscriptionDescription("t", "s", rules=(RuleDescription("r", SqlFilter(expression)),))


async def traffic(wire: Wire, broker: Broker) -> None:
    """Sends, receives, settlements, changes of rules, handshakes, and half an hour."""
    wire.attach_receiver(credit=20)
    wire.attach_sender(handle=1)
    for number in range(12):
        wire.write(wire.transfer(encoded(str(number)), handle=1))
        await wire.turns(8)
    for number in range(8):
        wire.dispose(accepted, number)
        wire.clock.advance(10_000)
        await wire.turns(8)
    for expression in ("1=0", "1=1"):
        broker.administration.update(with_rule(expression))
        wire.state.conditions.handshake()
        wire.clock.advance(MINUTE_MS)
    for _ in range(10):
        wire.state.conditions.handshake()
    wire.clock.advance(30 * MINUTE_MS)
    wire.dispose(accepted, 8, 11)
    await wire.turns(8)


async def events(seed: int) -> list[Event]:
    """What struck and what was planned in one run, with the failover of a region at its end."""
    wire, broker = wire_to(QueueDescription("q", enable_partitioning=True, lock_duration_ms=5 * MINUTE_MS))
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(with_rule("1=1"))
    on = wire.state.conditions
    begun = [on.start(name, seed=seed, values=values) for name, values in SINGLE]
    await traffic(wire, broker)
    begun.append(on.start("region-failover", seed=seed, values={"lost_ms": 1}))
    await wire.turns(8)
    for condition in begun:
        on.end(condition.number)
    wire.lose()
    struck = [(e.at, e.behaviour, e.scope, e.what, e.decision) for each in begun for e in each.struck]
    return struck + [(e.at, e.behaviour, "plan", e.what, 0) for each in begun for e in each.plan]


async def test_two_runs_of_a_seed_are_alike_and_those_of_another_are_not() -> None:
    first = await events(7)
    assert {behaviour for _, behaviour, *_ in first} == {"region-failover", *(name for name, _ in SINGLE)}
    assert await events(7) == first
    assert await events(8) != first


async def test_two_runs_of_each_preset_are_alike() -> None:
    for name in PRESETS:
        found = []
        for _ in range(2):
            wire, broker = wire_to(QueueDescription("q", enable_partitioning=True))
            for number in range(8):
                await send(broker, "q", encoded(str(number)))
            condition = wire.state.conditions.start(name, seed=7)
            wire.attach_receiver(credit=20)
            for _ in range(40):
                wire.clock.advance(5_000)
                await wire.turns(4)
            wire.state.conditions.end(condition.number)
            wire.lose()
            struck = [(e.at, e.behaviour, e.scope, e.what, e.decision) for e in condition.struck]
            found.append((struck, [(e.at, e.behaviour, e.what) for e in condition.plan]))
        assert found[0] == found[1], name
