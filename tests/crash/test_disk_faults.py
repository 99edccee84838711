"""A real server on a disk that fails: faults by operations, judged by a ledger of the answers that clients got.

What was accepted is there, once; of what was refused with "nothing was stored" nothing is; of the rest all or nothing.
It holds while the disk fails, once it works again, and after SIGKILL and a new start. Meanwhile the server answers, and
its log says the beginning and the end of each failure.
"""

from __future__ import annotations

import http.client
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EDQUOT, EIO, ENOSPC, EROFS
from pathlib import Path
from typing import Final

import pytest

from ..can_build import COMPILERS
from ..rounds import rounds
from .answers import CONFIG, LARGE_BYTES, Client
from .server import ServerProcess, check

RULE: Final = struct.Struct("<5i108s")
WRITE, SYNC = 1, 2
NOT_DONE, DONE, SHORT, HANG = range(4)
FOR_GOOD: Final = -1


@dataclass(frozen=True)
class Fault:
    """These calls on files with `text` in their path fail like `how`, so many times."""

    calls: int
    how: int
    error: int
    left: int
    text: str


FAULTS: Final = [
    Fault(calls, how, error, left, text)
    for text in ("/journal-", "/store-", "/namespace/", "/data/")
    for calls in (WRITE, SYNC, WRITE | SYNC)
    for how, error in (
        (NOT_DONE, EIO),
        (DONE, EIO),
        (NOT_DONE, ENOSPC),
        (DONE, ENOSPC),
        (NOT_DONE, EDQUOT),
        (NOT_DONE, EROFS),
        (SHORT, 0),
    )
    for left in (1, 5, FOR_GOOD)
    if how != SHORT or calls == WRITE
]
FAULTS_COUNT: Final = rounds(6, len(FAULTS))


class Disk:
    """The rule that the preloaded library follows."""

    def __init__(self, folder: Path) -> None:
        self.library = folder / "faults.so"
        source = Path(__file__).with_name("faults.c")
        compiler = next(filter(None, map(shutil.which, COMPILERS)))
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", self.library, source, "-ldl"], check=True)
        self.file = folder / "rule"
        self.file.write_bytes(bytes(RULE.size))
        with self.file.open("r+b") as file:
            self._rule = mmap.mmap(file.fileno(), RULE.size)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "FAULTS_FILE": str(self.file)}

    def set(self, fault: Fault | None) -> None:
        self._rule[:4] = bytes(4)  # off, while the rest changes
        if fault is not None:
            rule = RULE.pack(0, fault.how, fault.error, fault.left, 0, fault.text.encode())
            self._rule[4:] = rule[4:]
            self._rule[:4] = fault.calls.to_bytes(4, "little")

    @property
    def hits(self) -> int:
        return int(RULE.unpack(self._rule[:])[4])


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    return Disk(tmp_path_factory.mktemp("disk"))


@contextmanager
def served(data: Path, disk: Disk, client: Client, durability: str = "full") -> Iterator[ServerProcess]:
    server = ServerProcess(
        data, "--durability", durability, config=CONFIG, environment={**os.environ, **disk.environment}
    )
    client.port = server.port
    try:
        yield server
    finally:
        disk.set(None)
        if server.process.poll() is None:
            server.kill()
        sys.stdout.write(server.log)  # pytest shows it if the test fails


def test_whatever_fails_nothing_acknowledged_is_lost_or_doubled_and_the_server_goes_on(
    tmp_path: Path, disk: Disk
) -> None:
    faults = random.Random(FAULTS_COUNT).sample(FAULTS, FAULTS_COUNT)
    client = Client(1)
    data = tmp_path / "data"
    hits = 0
    halves = {"full": faults[: FAULTS_COUNT // 2], "second": faults[FAULTS_COUNT // 2 :]}
    for durability, some in halves.items():
        with served(data, disk, client, durability) as server:
            client.judge()
            for fault in some:
                disk.set(fault)
                client.work()
                status, _, _ = client.ask("GET", "/livez")
                assert status == 200
                hits += disk.hits
                disk.set(None)
                client.wait_until_sound()
                client.judge()
            assert "Traceback" not in server.log
    with served(data, disk, client) as server:
        client.judge()
        client.work()
        assert server.stop() == 0
    check(data)
    assert hits > 2 * len(faults)
    assert {"send 201", "send 503", "complete 200"} <= client.answers.keys(), client.answers


@pytest.mark.parametrize(("text", "durability"), [("/store-", "full"), ("/journal-", "full"), ("/journal-", "second")])
def test_a_disk_that_never_answers_does_not_keep_the_process(
    tmp_path: Path, disk: Disk, text: str, durability: str
) -> None:
    client = Client(2)
    with served(tmp_path / "data", disk, client, durability) as server:
        client.send("plain")
        disk.set(Fault(SYNC, HANG, 0, FOR_GOOD, text))
        sending = http.client.HTTPConnection("127.0.0.1", client.port)
        sending.request("POST", "/plain/messages", bytes(LARGE_BYTES if text == "/store-" else 10))
        while not disk.hits:
            assert client.ask("GET", "/livez")[0] == 200
        assert server.stop() == 1
        sending.close()
        assert "ends without waiting for its disk" in server.log
        # With `second` the answer came before the sync: no commit waits for it.
        assert ("unconfirmed commits in messaging stores" in server.log) is (durability == "full")
