"""The table of faults: which one strikes, how often, and what can be asked of it."""

from __future__ import annotations

import pytest

from emubus.broker.errors import BrokerError, Condition
from emubus.conditions.fault_table import DELAYING, FAULTS_MAX, STRIKES, FaultKind, FaultOperation, FaultTable
from emubus.conditions.strikes import Effect, Strike

SEND, SETTLE = FaultOperation.SEND, FaultOperation.SETTLE


def test_every_kind_can_strike_something() -> None:
    assert set(STRIKES) == set(FaultKind)
    assert all(STRIKES.values())


@pytest.mark.parametrize("kind", FaultKind)
def test_only_the_kinds_that_delay_have_a_delay(kind: FaultKind) -> None:
    fault = FaultTable(lambda: None).add(kind, delay_ms=1_000)
    assert fault.delay_ms == (1_000 if kind in DELAYING else 0)


@pytest.mark.parametrize("effect", Effect)
def test_every_effect_has_words(effect: Effect) -> None:
    assert Strike(effect).what


def test_a_fault_strikes_its_entity_and_its_operations_until_it_is_used_up() -> None:
    changes: list[bool] = []
    table = FaultTable(lambda: changes.append(table.is_empty))
    fault = table.add(FaultKind.SERVER_BUSY, entity="Q", operations=[SEND], count=2)
    assert table.next_fault("other", SEND) is None
    assert table.next_fault("q", SETTLE) is None
    assert table.next_fault("amqps://host/q", SEND) is fault
    assert (fault.left, fault.hit_count) == (1, 1)
    assert table.next_fault("q/$DeadLetterQueue", SEND) is fault
    assert table.next_fault("q", SEND) is None
    assert changes == [False, True]


def test_the_oldest_fault_strikes_first_and_a_probability_lets_the_next_one_have_its_turn() -> None:
    draws = iter([0.9, 0.1, 0.4])
    table = FaultTable(lambda: None, lambda: next(draws))
    unlikely = table.add(FaultKind.DROPPED_LINK, probability=0.5)
    likely = table.add(FaultKind.SERVER_BUSY, probability=0.5)
    assert table.next_fault("q", SEND) is likely
    assert table.next_fault("q", SEND) is unlikely
    assert [each.hit_count for each in table.list()] == [1, 1]


def test_a_fault_is_removed_by_its_number_and_all_by_clearing() -> None:
    changes: list[bool] = []
    table = FaultTable(lambda: changes.append(table.is_empty))
    numbers = [table.add(FaultKind.LOST_LOCK).number for _ in range(3)]
    assert table.remove(numbers[1])
    assert not table.remove(numbers[1])
    assert [each.number for each in table.list()] == [numbers[0], numbers[2]]
    assert table.clear() == 2
    assert table.clear() == 0
    assert changes == [False, True]


def test_what_a_kind_cannot_strike_and_too_many_faults_are_refused() -> None:
    table = FaultTable(lambda: None)
    with pytest.raises(BrokerError, match="can strike settle, renew, not send"):
        table.add(FaultKind.LOST_LOCK, operations=[SETTLE, SEND])
    for _ in range(FAULTS_MAX):
        table.add(FaultKind.LOST_LOCK)
    with pytest.raises(BrokerError) as refused:
        table.add(FaultKind.LOST_LOCK)
    assert refused.value.condition is Condition.RESOURCE_LIMIT_EXCEEDED
