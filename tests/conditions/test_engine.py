"""The table, chance by seeds, and the life of a condition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emubus.conditions.behaviour import Way
from emubus.conditions.chance import Stream, fraction
from emubus.conditions.faults import FaultKind
from emubus.conditions.presets import PRESETS
from emubus.conditions.table import BEHAVIOURS, TABLE, read_values
from emubus.testing import (
    BrokerError,
    Condition,
    Emubus,
    EmubusServer,
    OutageKind,
    QueueDescription,
    RemoteEmubus,
)

QUEUE, OTHER = "orders", "invoices"


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription(QUEUE), QueueDescription(OTHER)]) as running:
        yield running


@pytest.fixture(params=["in the process", "over HTTP"])
def broker(request: pytest.FixtureRequest, server: EmubusServer) -> Emubus:
    server.reset()
    there: Emubus = RemoteEmubus(f"http://localhost:{server.http_port}")
    return server if request.param == "in the process" else there


def test_the_table_has_every_fault_outage_and_behaviour_once() -> None:
    names = [row.name for row in TABLE]
    assert len(names) == len(set(names))
    by_way = {way: {row.name for row in TABLE if row.way is way} for way in Way}
    assert by_way[Way.FAULT] == set(FaultKind)
    assert by_way[Way.OUTAGE] == set(OutageKind)
    assert all(row.make is not None for row in BEHAVIOURS.values())
    assert all(row.about.endswith(".") and row.wire and row.source for row in TABLE)


def test_the_presets_name_behaviours_and_allowed_values() -> None:
    assert len(PRESETS) == 8
    for preset in PRESETS.values():
        for name, values in preset.behaviours.items():
            assert set(read_values(BEHAVIOURS[name], values)) == {each.name for each in BEHAVIOURS[name].parameters}


def test_defaults_are_allowed_values() -> None:
    for row in TABLE:
        for parameter in row.parameters:
            assert parameter.read(parameter.default) == parameter.default


def test_a_decision_depends_on_its_seed_behaviour_scope_and_number_only() -> None:
    assert fraction(7, "reset", "q", 1) == fraction(7, "reset", "q", 1)
    assert (
        len({fraction(*each) for each in ((7, "a", "q", 1), (8, "a", "q", 1), (7, "b", "q", 1), (7, "a", "r", 1))}) == 4
    )
    alone, beside = Stream(7, "a"), Stream(7, "a")
    wanted = [alone.draw("q") for _ in range(50)]
    found = []
    for _ in range(50):
        found.append(beside.draw("q"))
        beside.draw("another queue")
    assert found == wanted
    assert 0.3 < sum(wanted) / 50 < 0.7


def test_a_condition_is_started_read_and_ended(broker: Emubus, server: EmubusServer) -> None:
    with broker.conditions("internal-error", seed=3, entity=QUEUE, share=0.5) as running:
        report = running.report
        assert (report.name, report.seed, report.entity, report.is_on) == ("internal-error", 3, QUEUE, True)
        assert (report.struck_count, list(report.struck)) == (0, [])
    assert not running.report.is_on
    broker.start_condition("throttled", throttle_credits__credits_per_s=5)
    broker.start_condition("quiet-hours")
    assert broker.end_conditions() == 2
    broker.start_condition("trickle")
    broker.reset()
    assert server.call(server.server.amqp.conditions.list) == []


def test_an_exercise_has_each_preset_on_for_one_turn_of_a_loop(broker: Emubus) -> None:
    broker.freeze()
    exercise = broker.exercise(minutes=8, seed=7, presets=["unsure", "far-away", "rolling-upgrade"])
    seen = []
    for on in exercise:
        report = on.report
        seen.append(report.name)
        assert (report.is_on, report.seed, report.ends_at) == (True, 7, broker.now_ms() + 128_000)
    assert seen == list(exercise.order) != sorted(seen)
    assert [(each.name, each.is_on) for each in exercise.reports] == [(name, False) for name in seen]
    (upgrade,) = (each for each in exercise.reports if each.name == "rolling-upgrade")
    assert upgrade.plan
    assert all(each.at < (upgrade.ends_at or 0) for each in upgrade.plan)  # its times fit
    with pytest.raises(BrokerError, match="no preset 'storm'"):
        broker.exercise(presets=["storm"])


def test_an_exercise_that_fails_leaves_nothing_on(broker: Emubus) -> None:
    def fail() -> None:
        for _ in broker.exercise():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert broker.end_conditions() == 0


def test_a_condition_ends_at_its_time(broker: Emubus) -> None:
    broker.freeze()
    report = broker.start_condition("firewall", duration_ms=1_000)
    assert report.ends_at == broker.now_ms() + 1_000
    broker.advance(999)
    assert broker.condition(report.number).is_on
    broker.advance(1)
    assert not broker.condition(report.number).is_on


def test_the_plan_of_a_seed_is_always_the_same(broker: Emubus) -> None:
    def plan(seed: int) -> list[tuple[int, str]]:
        broker.reset()
        broker.freeze()
        now = broker.now_ms()
        with broker.conditions("rolling-upgrade", seed=seed) as running:
            return [(each.at - now, each.what) for each in running.report.plan]

    first = plan(7)
    assert first == plan(7) != plan(8)
    assert [QUEUE in what for _, what in first] == [False, True, False]
    assert all(at_ms > 0 for at_ms, _ in first)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("reset", {"share": 2}, "share is 2"),
        ("idle-link", {"idle_ms": 0}, "idle_ms is 0"),
        ("accept-lost", {"then": "nothing"}, "allowed: silence, cut"),
        ("accept-lost", {"color": 1}, "no parameter 'color'"),
        ("throttled", {"idle_link__idle_ms": 5}, "throttled has no 'idle-link.idle_ms'"),
    ],
)
def test_what_a_condition_does_not_have_is_refused(
    server: EmubusServer, name: str, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(BrokerError, match=words) as refused:
        server.start_condition(name, **values)
    assert refused.value.condition is Condition.ARGUMENT_ERROR


def test_an_unknown_condition_names_the_known_ones(server: EmubusServer) -> None:
    with pytest.raises(BrokerError, match="There is no condition 'storm'; there are: throttled, ") as refused:
        server.start_condition("storm")
    assert refused.value.condition is Condition.NOT_FOUND
