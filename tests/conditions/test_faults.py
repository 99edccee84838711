"""Faults: which one strikes, how often, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.conditions.chance import SEED_MAX, fraction
from emubus.conditions.engine import FAULT_STRUCK_MAX, FAULTS_MAX, Conditions
from emubus.conditions.faults import DELAYING, STRIKES, FaultKind, FaultOperation
from emubus.conditions.strikes import Attempt, Effect, Strike

from ..broker.namespace import _brokers_stop, brokers_stop, loop_turns, open_broker
from .test_lateness import NO_CLIENTS

__all__ = ["_brokers_stop", "brokers_stop"]

SEND, SETTLE = FaultOperation.SEND, FaultOperation.SETTLE


class Setting:
    """The conditions of a broker, and how often they began to be asked, or stopped."""

    def __init__(self, draw: Callable[[], float] = lambda: 0.5) -> None:
        self.clock = Clock(start_at=0, manual=True)
        self.on = Conditions(self.clock, open_broker(QueueDescription("q"), clock=self.clock), NO_CLIENTS, draw)
        self.changes: list[bool] = []
        self.on.watch(lambda: self.changes.append(self.on.are_set))

    def cause(self, address: str, operation: FaultOperation = SEND) -> str | None:
        """What strikes an operation; None: nothing."""
        strike = self.on.strike(Attempt(operation, address, lambda: 1))
        return None if strike is None else strike.cause

    def hits(self) -> list[tuple[FaultKind, int | None, int]]:
        return [(each.kind, each.left, each.hit_count) for each in self.on.faults()]


@pytest.fixture
async def setting() -> Setting:
    return Setting()


BUSY = "the fault 'server-busy'"


def test_every_kind_can_strike_something() -> None:
    assert set(STRIKES) == set(FaultKind)
    assert all(STRIKES.values())


@pytest.mark.parametrize("kind", FaultKind)
async def test_only_the_kinds_that_delay_have_a_delay(setting: Setting, kind: FaultKind) -> None:
    fault = setting.on.set_fault(kind, delay_ms=1_000)
    assert fault.delay_ms == (1_000 if kind in DELAYING else 0)


@pytest.mark.parametrize("effect", Effect)
def test_every_effect_has_words(effect: Effect) -> None:
    assert Strike(effect).what


async def test_a_fault_strikes_its_entity_and_its_operations_until_it_is_used_up(setting: Setting) -> None:
    setting.on.set_fault(FaultKind.SERVER_BUSY, entity="Q", operations=[SEND], count=2)
    assert [setting.cause("other"), setting.cause("q", SETTLE)] == [None, None]
    assert setting.cause("amqps://host/q") == BUSY
    assert setting.hits() == [(FaultKind.SERVER_BUSY, 1, 1)]
    assert setting.cause("q/$DeadLetterQueue") == BUSY
    assert (setting.hits(), setting.cause("q")) == ([], None)
    await loop_turns(2)
    assert setting.changes == [True, False]
    assert setting.on.clear_faults() == 0


async def test_the_oldest_fault_strikes_first_and_a_probability_lets_the_next_one_have_its_turn() -> None:
    def first(seed: int, kind: FaultKind) -> float:
        return fraction(seed, kind.value, "q", 1)

    unlikely = next(each for each in range(99) if first(each, FaultKind.DROPPED_LINK) > 0.5)
    likely = next(each for each in range(99) if first(each, FaultKind.SERVER_BUSY) < 0.5)
    draws = iter([unlikely / SEED_MAX, likely / SEED_MAX, 0.0])
    setting = Setting(lambda: next(draws))
    setting.on.set_fault(FaultKind.DROPPED_LINK, probability=0.5)
    setting.on.set_fault(FaultKind.SERVER_BUSY, probability=0.5)
    setting.on.set_fault(FaultKind.DROPPED_CONNECTION)
    assert setting.cause("q") == BUSY
    assert [hit for _, _, hit in setting.hits()] == [0, 1, 0]


async def test_a_fault_strikes_before_a_condition_that_is_older(setting: Setting) -> None:
    setting.on.start("internal-error")
    setting.on.set_fault(FaultKind.SERVER_BUSY, count=1)
    assert [setting.cause("q"), setting.cause("q")] == [BUSY, "the condition 'internal-error'"]


async def test_conditions_and_faults_have_numbers_of_their_own(setting: Setting) -> None:
    assert setting.on.start("internal-error").number == setting.on.set_fault(FaultKind.LOST_LOCK).number == 1
    assert setting.on.clear_faults() == 1
    assert [each.name for each in setting.on.list()] == ["internal-error"]
    assert setting.on.are_on
    setting.on.set_fault(FaultKind.LOST_LOCK)
    assert setting.on.end_all() == 1
    assert (setting.on.are_on, setting.on.are_set, len(setting.on.faults())) == (False, True, 1)


async def test_a_fault_is_removed_by_its_number_and_all_by_clearing(setting: Setting) -> None:
    numbers = [setting.on.set_fault(FaultKind.LOST_LOCK).number for _ in range(3)]
    assert setting.on.clear_fault(numbers[1])
    assert not setting.on.clear_fault(numbers[1])
    assert [each.number for each in setting.on.faults()] == [numbers[0], numbers[2]]
    assert setting.on.clear_faults() == 2
    assert setting.on.clear_faults() == 0
    assert setting.changes == [True, False]


async def test_the_last_strikes_of_a_fault_are_listed_and_all_are_counted(setting: Setting) -> None:
    fault = setting.on.set_fault(FaultKind.SERVER_BUSY)
    for _ in range(FAULT_STRUCK_MAX + 5):
        setting.cause("q")
    struck = setting.on.struck_by_fault(fault.number)
    assert [each.number for each in struck] == list(range(6, FAULT_STRUCK_MAX + 6))
    assert {(each.behaviour, each.scope, each.what) for each in struck} == {("server-busy", "q", "send")}
    assert setting.on.counts == {"server-busy": FAULT_STRUCK_MAX + 5}
    assert setting.hits() == [(FaultKind.SERVER_BUSY, None, FAULT_STRUCK_MAX + 5)]
    assert setting.on.struck_by_fault(fault.number + 1) == []


async def test_what_a_kind_cannot_strike_and_too_many_faults_are_refused(setting: Setting) -> None:
    with pytest.raises(BrokerError, match="can strike settle, renew, not send"):
        setting.on.set_fault(FaultKind.LOST_LOCK, operations=[SETTLE, SEND])
    for _ in range(FAULTS_MAX):
        setting.on.set_fault(FaultKind.LOST_LOCK)
    with pytest.raises(BrokerError) as refused:
        setting.on.set_fault(FaultKind.LOST_LOCK)
    assert refused.value.condition is Condition.RESOURCE_LIMIT_EXCEEDED
