"""The two comparisons: of commits, run for real on a small scale, and of brokers, without any."""

from __future__ import annotations

import re
from pathlib import Path

import brokers
import compare
import pytest
import trees
from rivals import Artemis
from starting import BrokerError


@pytest.mark.slow
def test_a_commit_is_compared_with_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Two servers; the client sends in transactions, and pings while it sends."""
    words = ["--quick", "--rounds", "1", "--cells", "send-part-tx,stall-send-plain"]
    assert compare.main(["HEAD", *words]) == 0
    printed = capsys.readouterr()
    assert "round 1 of 1" in printed.err
    tables = [text.splitlines() for text in printed.out.split("\n\n")]
    assert re.fullmatch(r"this (runs|has) .*; HEAD (runs|has) .*", tables.pop()[0])
    titles = ["processor, us per message", "messages per second", "stalls of the event loop"]
    assert [lines[0] for lines in tables] == titles
    for lines, cell in zip(tables, ["send-part-tx", "send-part-tx", "stall-send-plain"], strict=True):
        name, *figures = lines[-1].split()
        assert name == cell
        assert all(float(figure.replace(",", "")) > 0 for figure in figures)


def test_a_commit_that_git_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="git has no commit 'no-such-commit' here"):
        trees.unpack("no-such-commit", tmp_path / "ref")


def test_a_wrong_cell_is_answered_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.main(["HEAD", "--cells", "send-all"])
    assert "no cell is named 'send-all'; the cells are send-plain, " in capsys.readouterr().err


def test_rates_of_emubus_are_divided_by_those_of_the_others() -> None:
    columns = [("emubus", "plain"), ("emubus", "partitioned"), ("rabbitmq", "classic"), ("artemis", "durable")]
    rates = {"plain": [10.0, 30.0], "partitioned": [5.0, 15.0], "classic": [20.0, 60.0], "durable": [50.0, 150.0]}
    results = {
        (("send", 1024, 20), column): [{"rate": rate, "process_us": 1e6 / rate} for rate in rates[column[1]]]
        for column in columns
    }
    row = brokers.lines(results, columns).splitlines()[-1]
    assert row.startswith("send 1024 B, window 20")
    assert row.split()[-4:] == ["0.50", "0.20", "0.25", "0.10"]


def test_a_broker_that_can_not_run_here_is_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Artemis.missing() == "Artemis needs javac and mvn: apt-get install openjdk-17-jdk-headless maven"
    assert brokers.available(["emubus", "artemis", "rabbitmq"]) == ["emubus"]
    assert "brokers: Artemis needs javac and mvn" in capsys.readouterr().err
    with pytest.raises(BrokerError, match="no broker is named 'kafka'"):
        brokers.available(["kafka"])
