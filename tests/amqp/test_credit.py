"""The table of a receiver link's credit: each row by its label, and that every row is met."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emubus.amqp.links.credit import Credit, Phase, Step

SLICE = 10


def credit(phase: Phase, granted: int) -> Credit:
    """A credit in a phase, of which the broker has `granted`."""
    made = Credit(SLICE, 1 << 30)
    made.grant(granted if phase in (Phase.FREE, Phase.DRAINING) else SLICE, has_room=phase is not Phase.HELD)
    if phase in (Phase.DRAINING, Phase.DRAIN_HELD):
        made.begin_drain()
    if phase is Phase.DRAIN_HELD:
        assert made.hold() is Step.STOP_DRAIN
    assert made.phase is phase
    return made


def flow(
    *, is_new: bool = False, asks: bool = False, drains: bool = False, can_drain: bool = True
) -> Callable[[Credit], Step]:
    return lambda each: each.flow(is_new=is_new, asks=asks, drains=drains, can_drain=can_drain)


def drained(given: int, *, drains: bool = True) -> Callable[[Credit], Step]:
    return lambda each: each.drained(given, drains=drains)


def resume(*, drains: bool = False, can_drain: bool = True) -> Callable[[Credit], Step]:
    return lambda each: each.resume(drains=drains, can_drain=can_drain)


def sent(count: int, given: int) -> Callable[[Credit], Step]:
    return lambda each: each.sent(count, given, 100)


FREE, HELD, DRAINING, DRAIN_HELD = Phase
ROWS: list[tuple[str, Phase, int, Callable[[Credit], Step], Phase]] = [
    # label, phase, granted, event, the phase behind it
    ("A", FREE, 5, flow(), FREE),
    ("A", HELD, 0, flow(), HELD),
    ("B", DRAINING, 5, flow(is_new=True), DRAINING),
    ("B", DRAIN_HELD, 0, flow(is_new=True, asks=True, drains=True), DRAIN_HELD),
    ("C", FREE, 5, flow(is_new=True), FREE),
    ("C", HELD, 0, flow(is_new=True), HELD),
    ("D", FREE, 5, flow(asks=True), FREE),
    ("E", FREE, 5, flow(asks=True, drains=True), FREE),
    ("E", HELD, 0, flow(asks=True, drains=True), HELD),
    ("F", FREE, 0, flow(asks=True, drains=True, can_drain=False), FREE),
    ("G", DRAINING, 5, drained(5, drains=False), FREE),
    ("G", DRAIN_HELD, 0, drained(5, drains=False), FREE),
    ("H", DRAINING, 0, drained(5), DRAIN_HELD),
    ("I", DRAINING, 5, drained(5), FREE),
    ("I", DRAINING, 0, drained(0), FREE),
    ("J", FREE, 5, resume(), FREE),
    ("J", HELD, 0, resume(), HELD),
    ("K", DRAINING, 5, resume(drains=True), DRAINING),
    ("D", DRAIN_HELD, 0, resume(), FREE),
    ("E", DRAIN_HELD, 0, resume(drains=True), FREE),
    ("F", DRAIN_HELD, 0, resume(drains=True, can_drain=False), FREE),
    ("L", FREE, 5, Credit.hold, HELD),
    ("M", DRAINING, 5, Credit.hold, DRAIN_HELD),
    ("N", FREE, 0, Credit.hold, FREE),
    ("N", HELD, 0, Credit.hold, HELD),
    ("O", FREE, SLICE, sent(6, 9), FREE),
    ("O", HELD, 0, sent(1, 9), HELD),
    ("P", FREE, SLICE, sent(5, 9), FREE),
    ("P", FREE, 4, sent(1, 3), FREE),
    ("P", DRAINING, SLICE, sent(9, 9), DRAINING),
]


@pytest.mark.parametrize(
    ("label", "phase", "granted", "event", "behind"),
    [pytest.param(*row, id=f"{row[0]}-{row[1].value}-{number}") for number, row in enumerate(ROWS)],
)
def test_each_row_of_the_table(
    label: str, phase: Phase, granted: int, event: Callable[[Credit], Step], behind: Phase
) -> None:
    made = credit(phase, granted)
    assert (event(made).value, made.phase) == (label, behind)


def test_every_row_is_met() -> None:
    assert {row[0] for row in ROWS} == {step.value for step in Step}


def test_without_room_the_broker_has_nothing() -> None:
    made = credit(FREE, 5)
    assert made.grant(5, has_room=False) == 0
    assert made.phase is HELD
    assert made.grant(50, has_room=True) == SLICE
    assert made.phase is FREE


def test_a_slice_of_large_messages_is_bounded_by_bytes() -> None:
    made = Credit(1_000, 1 << 20)
    made.sent(1, 1, 1 << 20)
    assert made.slice == 1
    made.sent(1, 1, 0)  # one small message does not say that all are
    assert made.slice == 2


def test_the_end_says_whether_a_drain_is_to_be_answered() -> None:
    assert [credit(phase, 5).close() for phase in Phase] == [False, False, True, True]
