"""The way of a message alone through the broker stays as short as the bars of `bench/frames.py` say."""

from __future__ import annotations

import subprocess
import sys

import frames

from ..building import ROOT
from ..programs import PROGRAM_S_MAX


def test_a_message_alone_passes_no_more_calls_and_files_than_the_bars_say() -> None:
    command = [sys.executable, str(ROOT / "bench" / "frames.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(" alone: ")[0] for line in done.stdout.splitlines()] == ["send", "receive"]


def test_a_way_is_what_lies_between_two_marks_and_a_call_too_many_is_found() -> None:
    """Twenty messages of two calls each, of which one went another way."""
    recording = frames.Recording("/root/")
    for number in range(20):
        recording.calls += [frames.Call("a.py", "mark", 1, 1), frames.Call("b.py", "f", 1, 2)]
        if number == 10:
            recording.calls.append(frames.Call("c.py", "g", 1, 3))
    way = frames.way_of(recording.messages("mark"))
    assert (way.frames, way.files, len(way.example)) == (2, frozenset({"a.py", "b.py"}), 2)
    assert frames.is_above("send", way) is False
    long = frames.Way(frames.FRAMES_MAX["send"] + 1, way.files, way.example)
    wide = frames.Way(2, frozenset(map(str, range(frames.FILES_MAX["send"] + 1))), way.example)
    assert [frames.is_above("send", each) for each in (long, wide)] == [True, True]
