"""Figures over time: what is sampled of a broker, how it is kept within bounds, and how it is drawn. No server."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from emubus.broker.admin import figures
from emubus.broker.api import Complete, Outage, OutageKind
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.telemetry.sampler import ENTITIES_MAX, OF_NAMESPACE, OLDEST_READ_MAX, Rates, Sampler
from emubus.telemetry.series import MINUTES, SECONDS, SPANS, Ring, Series
from emubus.web.page.charts import POINTS_MAX, charts_of, nice_ticks, runs_of, thinned

from ..broker.driving import encoded
from ..broker.namespace import Receiver, loop_turns, open_broker, send

FIVE = SPANS["5m"]


class Stopwatch(Clock):
    """A clock whose stopwatch a test moves."""

    seconds = 0.0

    def stopwatch_us(self) -> int:  # type: ignore[override]
        return int(self.seconds * 1e6)


@pytest.fixture
def clock() -> Stopwatch:
    return Stopwatch(start_at=1_800_000_000_000, frozen=True)


@pytest.fixture
async def broker(clock: Stopwatch) -> Broker:
    return open_broker(QueueDescription("q"), QueueDescription("other"), clock=clock)


def last(sampler: Sampler, path: str | None, clock: Stopwatch, seconds: float = 1.0) -> dict[str, Any]:
    """Sample after some seconds; the newest figures."""
    clock.seconds += seconds
    sampler.sample()
    return {name: values[-1] for name, values in sampler.samples(path, "5m").items()}


async def test_counters_become_rates_of_the_time_since_the_last_sample(broker: Broker, clock: Stopwatch) -> None:
    await send(broker, "q", encoded("before"))
    assert figures.activity(broker.namespace)["q"].came == 1
    sampler = Sampler(broker, clock)
    sampler.start()
    for _ in range(4):
        await send(broker, "q", encoded())
    assert last(sampler, "q", clock, 2.0) == {
        "in": 2.0,
        "out": 0.0,
        "depth": 5.0,
        "dead": 0.0,
        "refused": 0.0,
        "lock_losses": 0.0,
        "age_s": 0.0,
    }
    await Receiver(broker, "q").receive(3)
    clock.advance(61_000)
    await loop_turns(20)
    broker.refusals.refused("c", "q", BrokerError(Condition.NOT_FOUND, "x"))
    broker.refusals.refused("c", "no such queue", BrokerError(Condition.NOT_FOUND, "x"))
    found = last(sampler, "q", clock)
    assert (found["in"], found["lock_losses"], found["refused"]) == (0.0, 3.0, 1.0)
    whole = last(sampler, None, clock)
    assert set(whole) == set(OF_NAMESPACE)
    assert sampler.samples(None, "5m")["refused"][-2] == 2.0
    assert sampler.samples("other", "5m") == {}
    sampler.stop()


async def test_every_entity_has_rates_those_without_a_series_too(broker: Broker, clock: Stopwatch) -> None:
    sampler = Sampler(broker, clock)
    sampler.start()
    assert sampler.rates("q") == Rates(None, None, ())
    for _ in range(4):
        await send(broker, "q", encoded())
    last(sampler, "q", clock, 2.0)
    assert sampler.rates("q") == Rates(2.0, 0.0, [2.0])
    assert sampler.rates("other") == Rates(0.0, 0.0, [])
    last(sampler, "q", clock)
    assert sampler.rates("q") == Rates(0.0, 0.0, [2.0, 0.0])
    sampler.stop()


async def test_the_age_of_the_oldest_message_is_known_of_each_entity_in_turn(clock: Stopwatch) -> None:
    names = [f"q{number}" for number in range(OLDEST_READ_MAX + 2)]
    broker = open_broker(*map(QueueDescription, names), clock=clock)
    sampler = Sampler(broker, clock)
    for each in names:
        await send(broker, each, encoded())
    clock.advance(90_000)
    last(sampler, None, clock)
    ages = [sampler.samples(each, "5m")["age_s"][-1] for each in names]
    assert Counter(ages) == {90.0: OLDEST_READ_MAX, 0.0: 2}  # those of the others are found in the next second
    last(sampler, None, clock)
    assert {sampler.samples(each, "5m")["age_s"][-1] for each in names} == {90.0}
    receiver = Receiver(broker, "q0")
    (delivery,) = await receiver.receive(1)
    await receiver.settle(delivery, Complete())
    assert last(sampler, "q0", clock)["age_s"] == 0.0
    assert last(sampler, None, clock)["age_s"] == 90.0
    broker.outages.begin(0, Outage(OutageKind.SLOW))
    assert last(sampler, None, clock)["stores_out"] == 1.0


async def test_a_sampler_samples_by_itself_until_it_is_stopped(broker: Broker, clock: Stopwatch) -> None:
    sampler = Sampler(broker, clock)
    sampler.start()
    manual = Clock(manual=True)
    other = Sampler(broker, manual)
    other.start()
    await send(broker, "q", encoded())
    manual.advance(1_000)
    await loop_turns(5)
    assert "q" not in sampler.samples("q", "5m")
    assert other.samples("q", "5m")["depth"][-1] == 1.0
    other.stop()
    sampler.stop()


def test_a_ring_keeps_its_last_slots_and_knows_its_gaps() -> None:
    ring = Ring(["x"], 4)
    for slot in (0, 1, 3):
        ring.put(slot, {"x": float(slot)})
    assert ring.last("x", 5, 4) == [0.0, 1.0, None, 3.0, None]
    ring.put(5, {"x": 5.0})
    assert ring.last("x", 4, 5) == [None, 3.0, None, 5.0]
    ring.put(100, {"x": 7.0})
    assert ring.last("x", 4, 100) == [None, None, None, 7.0]


def test_a_day_is_kept_in_minutes_within_bounded_memory() -> None:
    series = Series(["x"])
    for second in range(0, 3 * 86_400, 30):
        series.put(second, {"x": float(second)})
    minutes = series.last("x", SPANS["1d"], 3 * 86_400 - 1)
    assert len(minutes) == MINUTES
    assert minutes[-1] == pytest.approx(3 * 86_400 - 105)
    assert len(series.last("x", SPANS["1h"], 3 * 86_400 - 1)) == SECONDS


async def test_the_entity_that_was_quiet_for_longest_makes_room(clock: Stopwatch) -> None:
    queues = [QueueDescription(f"q{number}") for number in range(ENTITIES_MAX + 1)]
    broker = open_broker(*queues, clock=clock)
    sampler = Sampler(broker, clock)
    sampler.start()
    for each in queues:
        await send(broker, each.name, encoded())
        last(sampler, None, clock)
    assert sampler.samples("q0", "5m") == {}
    assert sampler.samples("q1", "5m") != {}
    sampler.stop()


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (0.0, [0, 1]),
        (3.0, [0, 1, 2, 3]),
        (2.0, [0, 0.5, 1, 1.5, 2]),
        (9.5, [0, 5, 10]),
        (80.0, [0, 20, 40, 60, 80]),
        (0.04, [0, 0.01, 0.02, 0.03, 0.04]),
    ],
)
def test_ticks_are_round_and_reach_the_highest_value(highest: float, expected: list[float]) -> None:
    assert nice_ticks(highest) == pytest.approx(expected)


def test_a_chart_has_axes_units_and_gaps() -> None:
    values: list[float | None] = [None] * 100 + [1.0] * 100 + [None] * 50 + [8.0] * 50
    out: list[float | None] = [None] * 100 + [0.0] * 50 + [1.0] * 30 + [0.0] * 90 + [2.0] * 30
    (chart,) = charts_of({"in": values, "out": [0.0] * 300}, "5m", out, 1_800_000_000_000)
    assert (chart.title, chart.unit) == ("Messages in and out", "messages/s")
    assert [line.label for line in chart.lines] == ["in", "out"]
    assert [len(line.pieces) for line in chart.lines] == [2, 1]
    assert [line.last for line in chart.lines] == ["8", "0"]
    assert [label for _, label in chart.y_ticks] == ["0", "2", "4", "6", "8"]
    assert chart.x_ticks[-1][1] == "now"
    given = json.loads(chart.samples)
    assert given["outages"] == [[150, 180], [270, 300]]
    assert (given["labels"], given["values"][0], given["slot_s"]) == (["in", "out"], values, 1)
    assert [round(across) for _, across in chart.outages] == [50, 50]
    assert runs_of([]) == []
    assert len(thinned([1.0] * 3_600)) <= POINTS_MAX
