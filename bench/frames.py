"""How many Python functions a message passes inside the broker when it is alone, and in how many files.

    python bench/frames.py [--partitioned] [--trace]

A message alone is what `await sender.send(message)` makes, and what a receiver with one credit gets: nothing is shared
with other messages, so each function that it passes costs it a call. *send* counts to the `accepted` outcome, *receive*
a delivery, its disposition and the next credit. Starts a broker of its own in this process, with durability `second`;
the client is `load.py`. Shown is the lower quartile of the messages: a busy machine reads a disposition and the credit
behind it apart, and has the journal's thread write for a while, which takes up to 25 calls more. Fails if a figure is
above its bar.

`--trace` prints the calls of one message, each below its caller, in their order: the way as a reader would follow it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from starting import client_figures, exit_code

if TYPE_CHECKING:
    from emubus.testing import EmubusServer

MESSAGES: Final = 200
SIZE_BYTES: Final = 1_000
SETTLE_S: Final = 0.2
"""After a run, for what it leaves to timers."""

LATE_MS: Final = 60_000
"""How long completions without an answer may wait: how many share a batch is not to depend on the machine's speed."""

FRAMES_MAX: Final = {"send": 120, "receive": 100}
"""Calls for a message alone to a queue without partitions, with its story: 105 and 86; ten more while writes go to the
journal's thread, because the disk was slow. Fold something, and lower them."""

FILES_MAX: Final = {"send": 29, "receive": 30}
"""Files that most such messages pass: 29 and 30, the story's among them."""

MARKS: Final = {"send": "IncomingDeliveries.take_run", "receive": "OutgoingDeliveries.transfer"}
"""What each message passes once: from one to the next is the way of a message, however its bytes were read."""

BESIDE: Final = ("sampling", "figures")
"""Parts of names of files that work by the clock, not for a message."""


@dataclass(slots=True)
class Call:
    """A call inside the broker: the file, the function, and how deep it lies."""

    file: str
    function: str
    line: int
    depth: int


@dataclass(slots=True)
class Recording:
    """The calls in files below `root` on all threads while it is `on`."""

    root: str
    on: bool = False
    calls: list[Call] = field(default_factory=list)

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """For `threading.setprofile`."""
        if event != "call" or not self.on or not frame.f_code.co_filename.startswith(self.root):
            return
        name = frame.f_code.co_filename.removeprefix(self.root)
        if "site-packages" in name or any(each in name for each in BESIDE):
            return
        depth, below = 0, frame.f_back
        while below is not None:
            depth, below = depth + 1, below.f_back
        self.calls.append(Call(name, frame.f_code.co_qualname, frame.f_code.co_firstlineno, depth))

    def messages(self, mark: str) -> list[list[Call]]:
        """The calls from one call of `mark` to the next: those of a message each, without the first and last."""
        begins = [at for at, call in enumerate(self.calls) if call.function == mark]
        each = [self.calls[start:stop] for start, stop in pairwise(begins)]
        return each[len(each) // 10 : -len(each) // 10]


@dataclass(frozen=True, slots=True)
class Way:
    """What a message alone passes: the lower quartile of the calls, the files of most, and the calls of one."""

    frames: int
    files: frozenset[str]
    example: list[Call]


def ways(*, partitioned: bool) -> dict[str, Way]:
    """Measure both ways in a broker of this process. Raises BrokerError."""
    recording = Recording("")
    threading.setprofile(recording.profile)
    try:
        from emubus import testing  # its threads begin after the line above
        from emubus.broker.stores import late_completions

        late_completions.LATE_MS = LATE_MS  # type: ignore[misc]
        recording.root = str(Path(os.path.realpath(testing.__file__)).parent.parent) + os.sep
        with tempfile.TemporaryDirectory() as folder:
            queue = testing.QueueDescription("q", enable_partitioning=partitioned)
            with testing.EmubusServer([queue], data_dir=Path(folder) / "data") as server:
                return {mode: _way(server, recording, mode) for mode in ("send", "receive")}
    finally:
        threading.setprofile(None)


def _way(server: EmubusServer, recording: Recording, mode: str) -> Way:
    recording.calls, recording.on = [], True
    client_figures(server.amqp_port, mode, "q", MESSAGES, SIZE_BYTES, "--window", "1")
    time.sleep(SETTLE_S)
    recording.on = False
    return way_of(recording.messages(MARKS[mode]))


def way_of(each: Sequence[list[Call]]) -> Way:
    """What most of the messages with these calls have passed."""
    frames = round(quantiles(map(len, each))[0])
    passed = Counter(file for calls in each for file in {call.file for call in calls})
    files = frozenset(file for file, count in passed.items() if count > len(each) / 2)
    return Way(frames, files, min(each, key=lambda calls: abs(len(calls) - frames)))


def is_above(mode: str, way: Way) -> bool:
    """Whether a way to a queue without partitions is longer than its bars."""
    return way.frames > FRAMES_MAX[mode] or len(way.files) > FILES_MAX[mode]


def main(argv: list[str]) -> int:
    """Measure, print, and compare with the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitioned", action="store_true", help="a queue with partitions, which has no bars")
    parser.add_argument("--trace", action="store_true", help="print the calls of one message")
    arguments = parser.parse_args(argv)
    failed = False
    for mode, way in ways(partitioned=arguments.partitioned).items():
        if arguments.trace:
            lowest = min(call.depth for call in way.example)
            for call in way.example:
                print(f"{' ' * (call.depth - lowest)}{call.file}:{call.line} {call.function}")
        line = f"{mode} alone: {way.frames} calls in {len(way.files)} files"
        if not arguments.partitioned:
            too_many = is_above(mode, way)
            failed |= too_many
            line += f" (at most {FRAMES_MAX[mode]} in {FILES_MAX[mode]}){': too many' if too_many else ''}"
        print(line)
    return int(failed)


if __name__ == "__main__":
    sys.exit(exit_code(main))
