"""The harness itself: a driver that misbehaves fails its test, is killed, and its last words are shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .driver import DriverFailedError, DriverProcess, SdkError
from .prepare import Build, Client, PrepareError, prepare

START_S_MAX = 120.0  # only for a program that hangs: a busy machine starts it late
SILENT = "import sys; sys.stdin.readline(); sys.stdin.readline()"
ENDING = "import sys; sys.stdin.readline(); sys.exit('last words')"
BABBLING = "import sys; sys.stdin.readline(); sys.stderr.write('last words'); print('hello', flush=True); input()"
REFUSING = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    error = {"kind": "busy", "type": "Busy", "code": None, "message": "later"}
    print(json.dumps({"id": request["id"], "ok": request["op"] == "close", "error": error, "result": {}}), flush=True)
    if request["op"] == "close":
        break
"""

ANSWERING_TWICE = """
import json, sys
sys.stderr.write('last words')
sys.stderr.flush()
for number in (1, 2):
    sys.stdin.readline()
    print(json.dumps({"id": number, "ok": True, "result": {}}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], DriverProcess]:
    def start(script: str) -> DriverProcess:
        return DriverProcess(Client("made up", tmp_path, (sys.executable, "-c", script)), "nowhere")

    return start


@pytest.mark.parametrize(
    ("script", "answers", "limit_s", "what"),
    [
        (ANSWERING_TWICE, 2, 1.0, "no answer within 1.0 s"),
        (ENDING, 0, START_S_MAX, "ended instead"),
        (BABBLING, 0, START_S_MAX, "broke the protocol"),
    ],
    ids=["silent", "ending", "babbling"],
)
def test_a_driver_that_does_not_answer_is_killed_and_its_stderr_shown(
    start: Callable[[str], DriverProcess], script: str, answers: int, limit_s: float, what: str
) -> None:
    driver = start(script)
    for _ in range(answers):
        driver.request("hello", timeout_s=START_S_MAX)
    with pytest.raises(DriverFailedError, match=what) as failure:
        driver.request("hello", timeout_s=limit_s)
    assert "last words" in str(failure.value)
    assert not driver.alive


@pytest.mark.parametrize(
    ("script", "answers", "limit"),
    [(SILENT, 0, "no answer within 1.5 s"), (ANSWERING_TWICE, 2, "no answer within 0.5 s")],
    ids=["the first", "the third"],
)
def test_the_first_requests_of_a_process_may_take_longer_where_the_sdk_is_slow_to_load(
    tmp_path: Path, script: str, answers: int, limit: str
) -> None:
    client = Client("made up", tmp_path, (sys.executable, "-c", script), warm_up_s=1.0)
    driver = DriverProcess(client, "nowhere")
    for _ in range(answers):
        driver.request("hello", timeout_s=START_S_MAX)
    with pytest.raises(DriverFailedError, match=limit):
        driver.request("hello", timeout_s=0.5)


def test_an_error_answer_leaves_the_driver_running(start: Callable[[str], DriverProcess]) -> None:
    driver = start(REFUSING)
    for _ in range(2):
        with pytest.raises(SdkError) as refused:
            driver.request("hello", timeout_s=START_S_MAX)
        assert (refused.value.kind, refused.value.type) == ("busy", "Busy")
        assert (refused.value.code, refused.value.message) == (None, "later")
    driver.close()
    assert not driver.alive


def test_a_driver_is_built_again_only_when_its_sources_change(tmp_path: Path) -> None:
    source, output = tmp_path / "source.txt", tmp_path / "out"
    source.write_text("one")
    copy = (
        sys.executable,
        "-c",
        "import pathlib, shutil; pathlib.Path('out').mkdir(); shutil.copy('source.txt', 'out')",
    )
    client = Client("made up", tmp_path, (), Build(tmp_path, ("*.txt",), output, (copy,)))
    assert [prepare(client), prepare(client)] == [True, False]
    source.write_text("two")
    assert [prepare(client), prepare(client)] == [True, False]
    assert (output / "source.txt").read_text() == "two"


def test_a_driver_that_cannot_be_built_is_an_error_with_the_end_of_the_output(tmp_path: Path) -> None:
    broken = (sys.executable, "-c", "raise SystemExit('no compiler')")
    client = Client("made up", tmp_path, (), Build(tmp_path, (), tmp_path / "out", (broken,)))
    for _ in range(2):
        with pytest.raises(PrepareError, match="no compiler"):
            prepare(client)
