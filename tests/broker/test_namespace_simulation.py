"""The whole namespace under random commands, compared with a plain model of Service Bus; see `namespace_simulation`."""

from __future__ import annotations

import pytest

from ..rounds import rounds
from .namespace_simulation import comparing
from .namespace_simulation.cases import CASES, Case
from .namespace_simulation.commands import Command, Send, Spec
from .namespace_simulation.generator import COMMANDS_PER_SEED
from .namespace_simulation.jms import namespace_with_jms
from .namespace_simulation.misjudged import MISJUDGED
from .namespace_simulation.misjudged_copies import MISJUDGED_COPIES
from .namespace_simulation.running import Failure, SeededRun, replay, run_seed, source, written
from .namespace_simulation.searching import search
from .namespace_simulation.shapes import Rule, Shape
from .namespace_simulation.shrinking import Shrinking
from .namespace_simulation.steps import Run

SEEDS_PER_TEST = 4
# A seed takes half a second of processor time; `make simulation` tries ten million commands.
SEEDS = range(1, 1 + rounds(50, 400))


def reported(failure: Failure | None) -> None:
    """Fail with the shortest version of what was found."""
    if failure is not None:
        pytest.fail(f"seed {failure.seed}: {failure.seen}\n{written(Shrinking(failure).smallest())}")


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_the_broker_does_what_service_bus_does_whatever_is_asked_and_whatever_fails(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        reported(run_seed(seed, COMMANDS_PER_SEED))


@pytest.mark.parametrize("seed", range(rounds(2, 200)))
def test_subscriptions_of_jms_do_what_is_asked_whatever_fails(seed: int) -> None:
    reported(run_seed(seed, COMMANDS_PER_SEED, shapes=namespace_with_jms))


@pytest.mark.parametrize("case", [*CASES, *MISJUDGED, *MISJUDGED_COPIES], ids=lambda case: case.found)
def test_what_failed_once_passes(case: Case) -> None:
    failure = replay(case.shapes, case.commands)
    assert failure is None, written(failure)


@pytest.mark.parametrize("case", [*MISJUDGED, *MISJUDGED_COPIES], ids=lambda case: case.found)
def test_all_outcomes_together_explain_what_single_ones_do_not(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "_unexplained", lambda *_: 1)
    failure = replay(case.shapes, case.commands)
    assert failure is None, written(failure)


def test_all_outcomes_together_explain_neither_a_stray_message_nor_a_lost_one() -> None:
    run = Run((Shape("q"),))
    with run.world.running():
        run.world.start()
        run.do(Send("q", (Spec(1), Spec(2)), batch=True))
        rows = run.world.rows()
        items = [run.model.items[row.label][0] for row in rows]
        assert search(items, rows, run.model, comparing.fits) == [[pair] for pair in zip(items, rows, strict=True)]
        assert search(items[:1], rows, run.model, comparing.fits) is None
        assert search(items, rows[:1], run.model, comparing.fits) is None
        items[1].doubts.add("taken")
        assert search(items, rows[:1], run.model, comparing.fits) == [[(items[0], rows[0])], []]


def test_one_seed_is_one_run() -> None:
    runs = [SeededRun(5) for _ in range(2)]  # there the broker gives ids that choose partitions
    for run in runs:
        reported(run.go(400))
    first, second = runs
    assert (first.done, first.rows()) == (second.done, second.rows())
    assert len(first.done) > 100


def test_a_failure_is_written_as_python() -> None:
    commands: tuple[Command, ...] = (Send("q", (Spec(1, ttl_ms=5),), batch=True),)
    shapes = (Shape("q", partitioned=True, rules=(Rule("r", "red"),)),)
    text = written(Failure("lost", "seen", shapes, commands))
    assert "Send('q', (Spec(1, ttl_ms=5),), batch=True)," in text
    assert "# lost: seen" in text
    assert eval(source(shapes[0])) == shapes[0]
