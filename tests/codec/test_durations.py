"""Durations as text: ISO 8601, .NET's TimeSpan, a number and its unit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.codec.durations import (
    TICKS_PER_MS,
    TICKS_PER_S,
    UNLIMITED_TEXT,
    clock_ticks,
    format_duration,
    format_span,
    format_time,
    iso_ticks,
    parse_duration,
    parse_limit,
    parse_seconds,
    parse_span,
    parse_time,
    unit_ticks,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1M", 60_000), ("P14D", 14 * DAY_MS), ("PT1H", HOUR_MS), ("P1DT2H3M4.5S", 93_784_500), ("PT0.25S", 250),
        ("PT0S", 0), ("P1W", 7 * DAY_MS), ("P1Y", 365 * DAY_MS), ("P1M", 30 * DAY_MS), ("PT90S", 90_000),
        ("PT5.4775807S", 5_477),
    ],
)  # fmt: skip
def test_an_iso_8601_duration_is_read_in_milliseconds(text: str, ms: int) -> None:
    assert parse_duration(text) == parse_time(text.lower()) == ms
    assert parse_span(text) // TICKS_PER_MS == ms
    assert parse_duration(format_duration(ms)) == ms


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "1M", "PT1", "PT-1S", "-PT1S", "pt1m", "PT1M ", "00:01:00", "P1S", "PT1S1M", "PT.5S"],
)
def test_what_is_no_iso_8601_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_duration(text)


@pytest.mark.parametrize("read", [parse_duration, parse_limit, parse_span, parse_time, parse_seconds])
@pytest.mark.parametrize("text", [f"PT{'9' * 10_000}S", f"{'9' * 10_000}s", f"{'9' * 10_000}.00:00:00", "soon", "5"])
def test_texts_of_absurd_length_and_bare_numbers_are_no_durations(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(ValueError, match=r"is not an ISO 8601 duration|a number and a unit"):
        read(text)


@pytest.mark.parametrize("text", [UNLIMITED_TEXT, "P10675199DT2H48M5.477539S"])
def test_the_longest_time_span_of_dotnet_and_what_python_makes_of_it_are_no_limit(text: str) -> None:
    assert parse_limit(text) is None
    assert format_duration(None) == UNLIMITED_TEXT


@pytest.mark.parametrize(
    ("ms", "text"), [(60_000, "PT1M"), (DAY_MS, "P1D"), (0, "PT0S"), (250, "PT0.25S"), (90_061_000, "P1DT1H1M1S")]
)
def test_a_duration_is_written_in_its_shortest_form(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.00:00:40", 40),
        ("1.02:03:04.5", 93_784.5),
        ("00:01:00", 60),
        ("00:01", 60),
        ("40", None),
        ("1:2:3:4", 93_784),
        ("24:00:00", 24 * 86_400),
        ("24:00", None),
        ("00:60:00", None),
        ("", None),
    ],
)
def test_a_time_span_is_days_hours_minutes_and_seconds(text: str, seconds: float | None) -> None:
    assert clock_ticks(text) == (None if seconds is None else seconds * TICKS_PER_S)


def test_a_time_span_is_what_dotnet_reads() -> None:
    """`csharp/time_spans.txt` is what `csharp/Program.cs` wrote on .NET 10: special cases and random ones."""
    lines = (Path(__file__).parent / "csharp" / "time_spans.txt").read_text().splitlines()
    wrong = []
    for line in lines:
        found, text = line.split("\t")
        ticks = clock_ticks(text.removeprefix("-"))
        if found != ("no" if ticks is None else str(-ticks if text.startswith("-") else ticks)):
            wrong.append((line, ticks))
    assert wrong == []
    assert sum(not line.startswith("no") for line in lines) > 50


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("-00:00:01", -TICKS_PER_S),
        ("-PT1S", -TICKS_PER_S),
        ("00:00:00.0000001", 1),
        ("PT0.0000001S", 1),
        ("PT0.00000019S", 1),
        ("-P1D", -864_000_000_000),
    ],
)
def test_a_span_has_a_sign_and_is_exact_to_the_tick(text: str, ticks: int) -> None:
    assert parse_span(text) == ticks


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2),
        ("5s", 5.0),
        ("2m", 120.0),
        ("1h", 3_600.0),
        ("1d", 86_400.0),
        ("1.5 Minutes", 90.0),
        ("3 SEC", 3.0),
        ("0.5 h", 1_800.0),
        ("10min", 600.0),
    ],
)
def test_a_duration_may_be_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)
    assert parse_time(text) == seconds * 1_000
    assert parse_time(format_time(seconds * 1_000)) == seconds * 1_000


@given(st.integers(0, 10**15))
def test_each_writer_is_understood_by_a_reader(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms
    assert clock_ticks(format_span(ms)) == (ms * TICKS_PER_MS if ms * TICKS_PER_MS < 2**63 else None)
    if ms < 10**6:
        assert parse_time(format_time(ms)) == ms


@given(st.text("PT0123456789.:YMWDHSsmhd -", max_size=20))
def test_no_text_has_two_forms(text: str) -> None:
    assert [iso_ticks(text), clock_ticks(text), unit_ticks(text)].count(None) >= 2
