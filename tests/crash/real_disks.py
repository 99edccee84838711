"""Faults of a real file system by operations, judged by the ledger of answers.

    python -m tests.crash.real_disks [NAME …]

`test_disk_faults` makes calls fail; here the kernel does: an ext4 of 64 MiB on a loop device that is full, nearly full,
out of inodes or frozen for a while, or that is aborted or shut down for good. Each fault meets a server of its own, at
`full` and, where nothing has to survive a power cut, at `second`. In turn: work, work while it fails, then SIGKILL; a
file system that is gone is mounted again, as after a power cut. Then the ledger must agree, before and after a start.

Runs as root; `make real-disks` gives it a mount namespace of its own, so that nothing stays mounted. `make test-long`
runs it, too.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .answers import CONFIG, Client
from .server import ServerProcess, check

SIZE_MIB: Final = 64
LEFT_BYTES: Final = 192 * 1024
"""Of a disk that is nearly full: less than a segment of the journal has, more than a commit of small messages."""
FROZEN_S: Final = 2.0
"""Long beside a commit, short beside the wait of a client."""
ROUNDS: Final = 3
ROUNDS_MAX: Final = SIZE_MIB
"""On a full disk the journal still has the room that it took before; a round sends more than half a MiB."""
SHUT_DOWN: Final = 0x8004587D
"""EXT4_IOC_SHUTDOWN; what was not synced is lost (`linux/ext4.h`)."""
WITHOUT_LOG: Final = (2).to_bytes(4, "little")


class Disk:
    """An ext4 in a file."""

    def __init__(self, folder: Path) -> None:
        self._image, self.point = folder / "image", folder / "disk"
        self.point.mkdir()
        with self._image.open("wb") as file:
            file.truncate(SIZE_MIB << 20)
        _run("mkfs.ext4", "-q", "-F", "-N", "2048", str(self._image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.point))

    def unmount(self) -> None:
        _run("umount", str(self.point))

    def fill(self, left_bytes: int = 0) -> None:
        """Leave so little room."""
        with (self.point / "filler").open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))
            file.truncate(file.tell() - left_bytes)
            with suppress(OSError):  # delayed allocation: what has no room yet is said here
                os.fsync(file.fileno())

    def empty(self) -> None:
        (self.point / "filler").unlink()

    def use_up_inodes(self) -> None:
        folder = self.point / "many"
        folder.mkdir()
        try:
            for number in range(1 << 20):
                (folder / str(number)).touch()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def give_inodes(self) -> None:
        shutil.rmtree(self.point / "many")

    def freeze(self) -> None:
        """Let every write wait for a while."""
        _run("fsfreeze", "--freeze", str(self.point))
        threading.Timer(FROZEN_S, self.thaw).start()

    def thaw(self) -> None:
        subprocess.run(["fsfreeze", "--unfreeze", str(self.point)], capture_output=True, check=False)

    def abort(self) -> None:
        """What the kernel does after an error in its own journal: from now on it can only be read."""
        _run("mount", "-o", "remount,abort", str(self.point))

    def shut_down(self) -> None:
        """No call reaches it any more, and what was not synced is lost."""
        at = os.open(self.point, os.O_RDONLY)
        try:
            fcntl.ioctl(at, SHUT_DOWN, WITHOUT_LOG)
        finally:
            os.close(at)


@dataclass(frozen=True)
class Fault:
    """`end` is None where the disk is gone for good: then it is mounted again."""

    begin: Callable[[Disk], None]
    end: Callable[[Disk], None] | None
    refuses: bool = True
    """Whether a send must be refused meanwhile."""


FAULTS: Final = {
    "full": Fault(Disk.fill, Disk.empty),
    "nearly-full": Fault(lambda disk: disk.fill(LEFT_BYTES), Disk.empty, refuses=False),
    "no-inodes": Fault(Disk.use_up_inodes, Disk.give_inodes, refuses=False),
    "frozen": Fault(Disk.freeze, Disk.thaw, refuses=False),
    "aborted": Fault(Disk.abort, None),
    "shut-down": Fault(Disk.shut_down, None),
}


def judged(name: str, durability: str, folder: Path, seed: int) -> str:
    """One fault and one server; what was answered. AssertionError if an answer was wrong."""
    fault, disk, client = FAULTS[name], Disk(folder), Client(seed)
    data = folder / "data"
    data.symlink_to(disk.point / "data")  # the server's configuration lies beside it, on a disk that works
    (disk.point / "data").mkdir()
    server = _serve(data, client, durability)
    try:
        client.work()
        client.judge()
        fault.begin(disk)
        before = client.answers.copy()
        rounds = refused = 0
        failed = before - before
        while rounds < ROUNDS or (fault.refuses and not refused and rounds < ROUNDS_MAX):
            client.work()
            assert client.ask("GET", "/livez")[0] == 200
            rounds += 1
            failed = client.answers - before
            refused = sum(count for answer, count in failed.items() if answer.startswith("send 5"))
        assert refused or not fault.refuses, failed
        if fault.end is not None:
            fault.end(disk)
            client.wait_until_sound()
            client.judge()
            client.work()
            client.judge()
    finally:
        server.kill()
        sys.stderr.write(server.log if "Traceback" in server.log else "")
    assert "Traceback" not in server.log
    if fault.end is None:
        disk.unmount()
        disk.mount()
    server = _serve(data, client, durability)
    try:
        client.judge()
        client.work()
        client.judge()
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()
    check(data)
    disk.unmount()
    answers = ", ".join(f"{answer} {count} times" for answer, count in sorted(failed.items()))
    return f"{answers}; {len(client.stored)} there, {len(client.never)} refused, {len(client.doubtful)} not known"


def _serve(data: Path, client: Client, durability: str) -> ServerProcess:
    server = ServerProcess(data, "--durability", durability, config=CONFIG)
    client.port = server.port
    return server


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PermissionError(f"{' '.join(command)}: {done.stderr.strip()}; run as root, with loop devices")


def main() -> int:
    """Each fault in each durability, a line each; 1 if one was judged wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FAULTS)}; default: all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.names) - set(FAULTS):
        parser.error(f"{min(unknown)!r} is no fault; they are {', '.join(FAULTS)}")
    wrong = 0
    for name in options.names or FAULTS:
        for durability in ("full", "second") if FAULTS[name].end else ("full",):
            with tempfile.TemporaryDirectory(prefix="emubus-real-disks-") as folder:
                try:
                    found = judged(name, durability, Path(folder), options.seed)
                except AssertionError as error:
                    wrong += 1
                    found = f"WRONG {error}"
                finally:
                    subprocess.run(["umount", "--lazy", f"{folder}/disk"], capture_output=True, check=False)
                sys.stdout.write(f"{name} {durability}: {found}\n")
                sys.stdout.flush()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
