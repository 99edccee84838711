"""How a batch that comes alone gets to the disk: the ways to hand it over, and what each costs.

    python bench/handover.py [--commits 2000] [--rounds 5] [--data FOLDER]

Each way commits one group after the other to a journal, as a worker does for a client with one message in flight. The
time is from the batch to its outcome on the event loop, the processor time that of the process, its threads included.
Ways take turns, so that a slow minute of the machine hits all of them. `bench/README.md` says what was decided from it.

    thread   the journal's thread writes and waits, and answers through a pipe that the loop watches
    idle     the same, but the loop waits for the answer at the pipe, as long as nothing else comes to it
    poll     the same, but the loop waits for the answer at the pipe and does nothing else
    spin     the same, but the loop asks the pipe again and again
    here     the loop writes and waits for the disk itself
    second   the loop writes; nobody waits (durability `second`)
"""

from __future__ import annotations

import argparse
import asyncio
import select
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import uvloop
from cells import table

from emubus.data_folder import JOURNAL_WRITER
from emubus.storage import Journal

ROW_BYTES: Final = 1200
"""Of a message of 1 KB with its properties, and its other rows."""

SYNC_EVERY: Final = 1000
"""Commits between two syncs of the journal that does not wait: about a second's worth."""


class Batch:
    """A batch of one store with one row; it counts its outcome."""

    def __init__(self, number: int) -> None:
        self._rows = {"messages": {number.to_bytes(8, "big"): bytes(ROW_BYTES)}}

    def start_commit(self) -> tuple[str, Mapping[str, Mapping[bytes, bytes | None]]]:
        """See `journal.Committable`."""
        return "store-00", self._rows

    def end_commit(self, byte_count: int, error: Exception | None) -> None:
        """See `journal.Committable`."""
        if error is not None:
            raise error


class Ways:
    """The ways to commit a batch alone to `journal`, whose answers the running loop watches."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._answered: asyncio.Future[None] | None = None
        self._poll = select.poll()
        self._poll.register(journal.fileno(), select.POLLIN)
        self._loop.add_reader(journal.fileno(), self._answer)
        self._either = select.poll()
        self._either.register(journal.fileno(), select.POLLIN)
        self._either.register(self._loop._get_backend_id(), select.POLLIN)  # type: ignore[attr-defined]

    def _answer(self) -> None:
        self._journal.finish()
        answered, self._answered = self._answered, None
        if answered is not None:
            answered.set_result(None)

    async def thread(self, batch: Batch) -> None:
        """Have the journal's thread do it, and go back to the loop."""
        answered = self._answered = self._loop.create_future()
        self._journal.start([batch])
        await answered

    async def idle(self, batch: Batch) -> None:
        """Have the journal's thread do it, and wait for it here as long as nothing else comes."""
        answered = self._answered = self._loop.create_future()
        self._journal.start([batch])
        self._loop.call_soon(self._wait)
        await answered

    def _wait(self) -> None:
        if self._answered is not None and self._journal.fileno() in dict(self._either.poll(1)):
            self._answer()

    async def poll(self, batch: Batch) -> None:
        """Have the journal's thread do it, and wait for it here."""
        self._journal.start([batch])
        self._poll.poll()
        self._journal.finish()

    async def spin(self, batch: Batch) -> None:
        """Have the journal's thread do it, and ask for it again and again."""
        self._journal.start([batch])
        while not self._poll.poll(0):
            pass
        self._journal.finish()

    async def here(self, batch: Batch) -> None:
        """Write, and wait if the journal does."""
        self._journal.start([batch], here=True)
        assert self._journal.has_ended
        self._journal.finish()

    def close(self) -> None:
        """Stop watching."""
        self._loop.remove_reader(self._journal.fileno())


async def run(journal: Journal, way: str, commits: int) -> tuple[list[float], float]:
    """Commit so many batches; the microseconds of each, and the processor time for one."""
    ways = Ways(journal)
    commit: Callable[[Batch], Awaitable[None]] = getattr(ways, way)
    took: list[float] = []
    began_cpu = time.process_time()
    for number in range(commits):
        batch = Batch(number)
        began = time.perf_counter()
        await commit(batch)
        took.append((time.perf_counter() - began) * 1e6)
        journal.flushed("store-00")
        if number % SYNC_EVERY == 0:
            journal.sync()
    cpu = (time.process_time() - began_cpu) / commits * 1e6
    ways.close()
    return took, cpu


def main(argv: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", help="folder for the journals; default: the system's temporary folder")
    options = parser.parse_args(argv)
    results: dict[str, list[tuple[list[float], float]]] = defaultdict(list)
    names = {"thread": "thread", "idle": "idle", "poll": "poll", "spin": "spin", "here": "here", "second": "here"}
    with tempfile.TemporaryDirectory(dir=options.data) as folder:
        for number in range(options.rounds):
            for name in list(names)[:: -1 if number % 2 else 1]:
                journal = Journal(Path(folder) / f"{name}-{number}", "bench", JOURNAL_WRITER, waits=name != "second")
                try:
                    results[name].append(uvloop.run(run(journal, names[name], options.commits)))
                finally:
                    journal.close()
    rows = [["way", "median us", "p90 us", "processor us"]]
    for name, rounds in results.items():
        took = [each for part, _ in rounds for each in part]
        cpu = median(each for _, each in rounds)
        rows.append([name, f"{median(took):.0f}", f"{quantiles(took, n=10)[-1]:.0f}", f"{cpu:.1f}"])
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
