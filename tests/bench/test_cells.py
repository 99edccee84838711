"""The cells of a comparison, their choice by name, and the table of medians and ratios."""

from __future__ import annotations

import pytest
from cells import CELLS, FLOOR_FORMS, FORMS, STALLS, chosen, comparison, ratio, table
from messages import BATCH, GROUP, SHAPES


def test_each_form_is_sent_and_received_plain_and_partitioned() -> None:
    assert len(CELLS) == 4 * len(FORMS)
    assert list(CELLS)[:4] == ["send-plain", "receive-plain", "send-part", "receive-part"]
    assert {"send-plain-batch", "receive-part-sessions", "send-part-topic", "receive-plain-tx"} <= CELLS.keys()
    assert set(STALLS) == {"stall-send-plain", "stall-receive-plain", "stall-send-part", "stall-receive-part"}
    assert FORMS.keys() >= FLOOR_FORMS


@pytest.mark.parametrize("part", [1, 7, 10, 10**9])
def test_a_run_has_whole_batches_groups_and_shares(part: int) -> None:
    for form in FORMS.values():
        count = form.count(part)
        assert count > 0
        assert count % BATCH == count % GROUP == 0
        assert count % max(1, form.subscriptions, SHAPES[form.shape].sessions) == 0
    assert FORMS["bare"].count(1) == FORMS["bare"].messages


def test_the_receiver_of_a_topic_has_all_subscriptions_as_sources() -> None:
    words = FORMS["topic"].words("receive", "plain-topic")
    assert words.count("--source") == 10
    assert words[-1] == "plain-topic/Subscriptions/s9"
    assert "--source" not in FORMS["topic"].words("send", "plain-topic")


def test_cells_are_chosen_by_pattern_in_their_own_order() -> None:
    assert chosen(["receive-part", "send-p*-w1"], CELLS) == ["receive-part", "send-plain-w1", "send-part-w1"]
    with pytest.raises(ValueError, match="no cell is named 'send-plan'; the cells are send-plain, receive-plain"):
        chosen(["send-plan"], CELLS)


def test_a_ratio_is_taken_within_each_round() -> None:
    """The ratio of the medians would be 33 / 80."""
    assert ratio([30, 90, 33], [40, 80, 120]) == pytest.approx(0.75)
    assert ratio([10, 40], [10, 10]) == pytest.approx(1 / ratio([10, 10], [10, 40])) == pytest.approx(2)


def test_a_table_has_medians_and_ratios_and_leaves_out_what_was_not_measured() -> None:
    results = {
        ("send-plain", "this"): [{"main_us": 10.0}, {"main_us": 30.0}, {"main_us": 20.0}],
        ("send-plain", "906ba26"): [{"main_us": 40.0}, {"main_us": 40.0}, {"main_us": 40.0}],
        ("send-plain", "floor"): [{"main_us": 5.0}, {"main_us": 5.0}, {"main_us": 5.0}],
        ("send-plain-tx", "this"): [{"main_us": 8.0}],
        ("send-plain-tx", "906ba26"): [{"main_us": 4.0}],
    }
    names = ["send-plain", "send-plain-tx", "send-part"]
    lines = comparison(results, names, ("this", "906ba26", "floor"), {"main_us": ".1f"}).splitlines()
    assert lines[1].split() == ["cell", *["main_us"] * 5]
    assert [line.split() for line in lines[2:]] == [
        ["send-plain", "20.0", "40.0", "5.0", "0.50", "4.00"],
        ["send-plain-tx", "8.0", "4.0", "2.00"],
    ]


def test_columns_are_aligned_and_headings_stand_on_the_last_line() -> None:
    assert table([["cell", "this msg/s"], ["send", "5"], ["receive-part", "70,000"]]) == (
        "                this\n"
        "cell           msg/s\n"
        "send               5\n"
        "receive-part  70,000"
    )  # fmt: skip
