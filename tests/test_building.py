"""What tests need is built side by side, and what can't be built is reported by name."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from .building import Build, PrepareError, build, build_all

SECONDS_MAX = 30


def test_builds_run_side_by_side_and_one_that_fails_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    met = threading.Barrier(2)

    def built() -> bool:
        met.wait(SECONDS_MAX)  # for the one that fails
        return True

    def failing() -> bool:
        met.wait(SECONDS_MAX)
        raise PrepareError("two can't be built: no compiler")

    failed = build_all({"one": built, "two": failing, "three": lambda: False})
    assert failed == {"two": "two can't be built: no compiler"}
    assert capsys.readouterr() == ("one: built\nthree: ready\n", "two: two can't be built: no compiler\n")
    assert build_all({"three": lambda: False}) == {}


def test_a_command_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    wanted = Build(tmp_path, (), tmp_path / "out", (("no-such-compiler", "-v"),))
    with pytest.raises(PrepareError, match=r"^the tool can't be built: no-such-compiler -v: .*No such file"):
        build("the tool", wanted)
