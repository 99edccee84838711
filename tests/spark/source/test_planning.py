"""Offsets, admission and plans: pure, held by properties."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.source.admission import TriggerGate, admitted, backlogs
from emubus.spark_connector.source.offsets import (
    ClaimOffset,
    Offset,
    base_of,
    numbers_in,
    parse_claim_offset,
    parse_offset,
    runs_of,
)
from emubus.spark_connector.source.plan import Span, split, split_runs, stretches

COUNTERS = st.integers(0, (1 << 48) - 1)
PARTITION_IDS = st.integers(0, 31)


@st.composite
def numbers(draw: st.DrawFn) -> dict[int, int]:
    counters = draw(st.dictionaries(PARTITION_IDS, COUNTERS, max_size=8))
    return {partition: base_of(partition) + counter for partition, counter in counters.items()}


# ---- offsets


@given(numbers(), st.one_of(st.none(), numbers()), st.booleans(), st.frozensets(PARTITION_IDS))
def test_an_offset_survives_spark_whatever_the_order_of_its_making(
    following: dict[int, int], start: dict[int, int] | None, is_initial: bool, lost: frozenset[int]
) -> None:
    offset = Offset("q", following, start, is_initial, lost)
    text = json.dumps(offset.to_json())
    assert parse_offset(json.loads(text), "Q") == offset
    turned = Offset("q", dict(reversed(following.items())), start, is_initial, lost)
    assert json.dumps(turned.to_json()) == text
    assert json.dumps(json.loads(text)) == text


def test_an_offset_shows_numbers_within_partitions() -> None:
    following = {10: base_of(10) + 7, 2: base_of(2) + 5, 0: 3}
    assert Offset("q", following).to_json() == {"v": 1, "e": "q", "p": {"0": 3, "2": 5, "10": 7}}
    assert list(Offset("q", following).to_json()["p"]) == ["0", "2", "10"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"v": 1, "e": "other", "p": {}}, "q: the checkpoint belongs to 'other'"),
        ({"v": 2, "e": "q", "p": {}}, "version 2"),
        ({"offset": 5}, "version None"),
        ({"v": 1, "e": "q"}, "can't be read"),
        ({"v": 1, "e": "q", "p": {"x": "y"}}, "can't be read"),
        ({"v": 1, "e": "q", "claim": "c", "runs": []}, "mode=claim"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(raw: dict[str, object], text: str) -> None:
    with pytest.raises(ConnectorError, match=text) as refused:
        parse_offset(raw, "q")
    assert refused.value.code is Code.CHECKPOINT_MISMATCH


def test_a_claims_checkpoint_is_of_its_claim_id() -> None:
    offset = ClaimOffset("q", "c", ((1, 5), (9, 1)), ((7, 1),))
    assert parse_claim_offset(json.loads(json.dumps(offset.to_json())), "q", "c") == offset
    for raw, text in ((offset.to_json(), "claimId is 'c', the query's is 'd'"), (Offset("q", {}).to_json(), "browse")):
        with pytest.raises(ConnectorError, match=text):
            parse_claim_offset(raw, "q", "d")


@given(st.lists(st.integers(0, 200)))
def test_runs_hold_their_numbers(some: list[int]) -> None:
    runs = runs_of(some)
    assert list(numbers_in(runs)) == sorted(set(some))
    assert all(left[0] + left[1] < right[0] for left, right in pairwise(runs))


# ---- admission


@st.composite
def extents(draw: st.DrawFn) -> tuple[dict[int, int], dict[int, int]]:
    ends = draw(numbers())
    starts = {
        partition: end - draw(st.integers(0, end - base_of(partition)))
        for partition, end in ends.items()
        if draw(st.booleans())
    }
    return starts, ends


@given(extents(), st.one_of(st.none(), st.integers(1, 1000)))
def test_admission_keeps_to_its_limit_and_goes_on(
    between: tuple[dict[int, int], dict[int, int]], count_max: int | None
) -> None:
    starts, ends = between
    given_ends = admitted(starts, ends, count_max)
    waiting, given_now = backlogs(starts, ends), backlogs(starts, given_ends)
    assert given_ends.keys() == ends.keys()
    assert all(given_now[each] <= waiting[each] for each in given_now)
    assert sum(given_now.values()) == (
        sum(waiting.values()) if count_max is None else min(count_max, sum(waiting.values()))
    )


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=16), st.integers(1, 10**5))
def test_admission_is_in_proportion(counts: list[int], count_max: int) -> None:
    ends = {partition: base_of(partition) + count for partition, count in enumerate(counts)}
    shares = backlogs({}, admitted({}, ends, count_max))
    total = sum(counts)
    if total > count_max:
        for partition, count in enumerate(counts):
            assert abs(shares.get(partition, 0) - count_max * count / total) < 1


@given(extents(), st.integers(1, 30))
def test_admission_comes_to_an_end_step_by_step(between: tuple[dict[int, int], dict[int, int]], parts: int) -> None:
    starts, ends = between
    limit = max(1, sum(backlogs(starts, ends).values()) // parts)
    steps = 0
    while backlogs(starts, ends):
        starts = admitted(starts, ends, limit)
        steps += 1
    assert steps <= 2 * parts
    assert steps == 0 or starts == ends


def test_small_batches_are_held_back_for_a_time_but_not_the_first() -> None:
    gate = TriggerGate(10, 60.0)
    assert gate.may_go(1, 1000.0)
    gate.went(1000.0)
    assert not gate.may_go(9, 1059.0)
    assert gate.may_go(10, 1059.0)
    assert gate.may_go(1, 1060.0)
    assert TriggerGate(None, 60.0).may_go(0, 0.0)


# ---- plans

SPANS = st.lists(
    st.tuples(PARTITION_IDS, st.integers(0, 1000)).map(
        lambda each: Span(base_of(each[0]) + 1, base_of(each[0]) + 1 + each[1])
    ),
    max_size=10,
)


@given(SPANS, st.one_of(st.none(), st.integers(1, 50)), st.one_of(st.none(), st.integers(1, 400)))
def test_a_plan_covers_every_number_once_in_pieces_of_the_wanted_size(
    spans: list[Span], count_min: int | None, size_max: int | None
) -> None:
    pieces = split(spans, count_min, size_max)
    assert [n for piece in pieces for n in range(piece.low, piece.high)] == [
        n for span in spans for n in range(span.low, span.high)
    ]
    assert all(piece.high > piece.low for piece in pieces)
    assert size_max is None or all(piece.high - piece.low <= size_max for piece in pieces)
    total = sum(span.high - span.low for span in spans)
    assert count_min is None or len(pieces) >= min(count_min, total)
    if count_min is None and size_max is None:
        assert pieces == [span for span in spans if span.high > span.low]


RUNS = st.sets(st.integers(0, 500)).map(runs_of)


@given(RUNS, st.one_of(st.none(), st.integers(1, 20)), st.one_of(st.none(), st.integers(1, 40)))
def test_runs_are_shared_out_whole(
    runs: tuple[tuple[int, int], ...], count_min: int | None, size_max: int | None
) -> None:
    groups = split_runs(runs, count_min, size_max)
    assert [n for group in groups for n in numbers_in(group)] == list(numbers_in(runs))
    total = sum(count for _, count in runs)
    assert count_min is None or len(groups) >= min(count_min, total)
    assert size_max is None or all(sum(count for _, count in group) <= size_max for group in groups)
    assert all(groups)


@given(RUNS)
def test_stretches_cover_runs_without_overlap(runs: tuple[tuple[int, int], ...]) -> None:
    spans = stretches(runs)
    assert {n for n in numbers_in(runs) if any(span.low <= n < span.high for span in spans)} == set(numbers_in(runs))
    assert all(left.high < right.low for left, right in pairwise(spans))
