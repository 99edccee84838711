"""The lines of the Spark benchmark: medians, and ratios within each round."""

from __future__ import annotations

from spark_figures import MICRO_BATCH, MS, OWN_BATCH, Measured, by_key, lines


def test_figures_are_medians_and_ratios_are_those_of_the_rounds() -> None:
    this = [Measured(100, "claim", "body", rate, broker_us=30.0, spark_us=20.0) for rate in (20_000, 10_000, 90_000)]
    other = [Measured(100, "claim", "body", rate, broker_us=60.0, spark_us=80.0) for rate in (10_000, 10_000, 10_000)]
    (line,) = lines(by_key(this), by_key(other))
    for part in ("20,000 rows/s", "[10,000 to 90,000]", "broker  30.0, Spark  20.0 us CPU/row"):
        assert part in line
    assert line.endswith("this / other:  2.00 x rows/s,  0.50 x broker's CPU,  0.25 x Spark's CPU")


def test_processor_time_of_no_tick_has_no_ratio() -> None:
    this, other = (Measured(100, "claim", "body", 10.0, broker_us=4.0, spark_us=each) for each in (2.0, 0.0))
    (line,) = lines(by_key([this]), by_key([other]))
    assert line.endswith("this / other:  1.00 x rows/s,  1.00 x broker's CPU")


def test_a_line_stands_beside_what_bounds_it() -> None:
    runs = [
        Measured(100, "source", "all columns", 50.0),
        Measured(100, "source ceiling", "all columns", 100.0),
        Measured(100, "link receive", "", 25.0),
        Measured(100, MICRO_BATCH, "source to nothing", 130.0, MS),
        Measured(100, MICRO_BATCH, OWN_BATCH, 100.0, MS),
    ]
    text = "\n".join(lines(by_key(runs)))
    assert "0.500 x ceiling  2.000 x link receive" in text
    assert "1.300 x Spark's own" in text
    assert "this / other" not in text
