"""The thread that writes a journal, in Python and in C: durable writes, and what it says of those that fail."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emubus.codec.native import native_module
from emubus.storage import DiskWriter, PythonWriter

LIMIT_S = 20
NATIVE = native_module("emubus.storage.journal._writing")
WRITERS: dict[str, Callable[[int], DiskWriter]] = {
    "python": PythonWriter,
    **({} if NATIVE is None else {"c": NATIVE.Writer}),
}
make_writers = pytest.mark.parametrize("make", WRITERS.values(), ids=list(WRITERS))


@contextmanager
def running(make: Callable[[int], DiskWriter], fd: int) -> Iterator[DiskWriter]:
    writer = make(fd)
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        yield writer
    finally:
        writer.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        writer.close()


@contextmanager
def opened(path: str | Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


@make_writers
def test_writes_of_random_places_and_lengths_are_in_the_file(make: Callable[[int], DiskWriter], tmp_path: Path) -> None:
    chance = random.Random(7)
    expected = bytearray(70_000)
    path = tmp_path / "file"
    path.write_bytes(expected)
    with opened(path, os.O_RDWR) as fd, running(make, fd) as writer:
        for _ in range(100):
            writes = []
            for _ in range(chance.randrange(3)):
                offset, data = chance.randrange(60_000), chance.randbytes(chance.randrange(1, 9_000))
                expected[offset : offset + len(data)] = data
                writes.append((offset, data))
            if chance.random() < 0.5:
                writer.start(writes)
                assert writer.finish() == (len(writes), 0)
            else:
                assert writer.write(writes, chance.random() < 0.5) == (len(writes), 0)
            assert path.read_bytes() == expected


@make_writers
def test_a_write_that_fails_ends_the_others_and_says_that_nothing_of_it_was_written(
    make: Callable[[int], DiskWriter], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"....")
    with opened(path, os.O_RDWR) as fd, running(make, fd) as writer:
        for writes, expected in (
            ([(-2, b"a"), (0, b"b")], (0, -errno.EINVAL)),
            ([(0, b"c"), (-2, b"d")], (1, -errno.EINVAL)),
        ):
            writer.start(writes)
            assert writer.finish() == expected == writer.write(writes)
    assert path.read_bytes() == b"c..."
    with opened("/dev/full", os.O_WRONLY) as fd, running(make, fd) as writer:
        writer.start([(0, b"a")])
        assert writer.finish() == (0, -errno.ENOSPC)
    with opened(path, os.O_RDONLY) as fd, running(make, fd) as writer:
        writer.start([(0, b"a")])
        assert writer.finish() == (0, -errno.EBADF)


@make_writers
def test_a_wait_for_the_disk_that_fails_says_so(make: Callable[[int], DiskWriter]) -> None:
    with opened("/dev/null", os.O_WRONLY) as fd, running(make, fd) as writer:  # takes all, and can't be synced
        writer.start([(0, b"a"), (0, b"b")])
        assert writer.finish() == (0, errno.EINVAL)
        assert writer.write([(0, b"a"), (0, b"b")]) == (0, errno.EINVAL)
        assert writer.write([(0, b"a"), (0, b"b")], False) == (0, errno.EINVAL)  # it waits behind the first one
        assert writer.write([(0, b"a")], False) == (1, 0)


@make_writers
def test_a_closed_writer_writes_nothing_to_the_file_that_stays_open(
    make: Callable[[int], DiskWriter], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.touch()
    with opened(path, os.O_RDWR) as fd:
        writer = make(fd)
        writer.close()
        assert writer.write([(0, b"a")]) == (0, -errno.EBADF)
    assert path.read_bytes() == b""


@make_writers
def test_no_writes_begin_before_the_others_have_ended(make: Callable[[int], DiskWriter], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with opened(path, os.O_RDWR) as fd, running(make, fd) as writer:
        writer.start([(0, b"first")])
        with pytest.raises(ValueError, match="1 writes have not ended"):
            writer.start([(0, b"other")])
        with pytest.raises(ValueError, match="1 writes have not ended"):
            writer.write([(0, b"other")])
        assert writer.finish() == (1, 0)
        writer.start([])
        assert writer.finish() == (0, 0)
    assert path.read_bytes() == b"first"


@make_writers
def test_its_thread_ends_after_the_writes_that_were_asked_for_and_its_pipes_are_closed(
    make: Callable[[int], DiskWriter], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.touch()
    with opened(path, os.O_RDWR) as fd:
        before = open_files()
        with running(make, fd) as writer:
            writer.start([(0, b"last")])
            assert len(open_files() - before) == 4
        assert path.read_bytes() == b"last"
        unused = make(fd)
        unused.close()
        unused.close()
        assert open_files() <= before


def open_files() -> set[str]:
    """The numbers of this process's open files."""
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone


@make_writers
def test_content_that_nothing_else_has_is_kept_until_it_is_written(
    make: Callable[[int], DiskWriter], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.touch()
    with opened(path, os.O_RDWR) as fd, running(make, fd) as writer:
        for _ in range(20):
            writer.start([(number * 1000, str(number).encode() * 1000) for number in range(2)])
            assert writer.finish() == (2, 0)
    assert path.read_bytes() == b"0" * 1000 + b"1" * 1000


@make_writers
def test_more_writes_than_a_group_has_are_refused(make: Callable[[int], DiskWriter], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with opened(path, os.O_RDWR) as fd, running(make, fd) as writer:
        with pytest.raises(ValueError, match="4 writes at a time; at most 3"):
            writer.start([(0, b"a")] * 4)
        writer.start([(0, b"b")])
        assert writer.finish() == (1, 0)
    assert path.read_bytes() == b"b"


@pytest.mark.parametrize("make", [make for name, make in WRITERS.items() if name == "c"])
def test_the_writer_in_c_takes_nothing_but_offsets_and_bytes(make: Callable[[int], DiskWriter], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    wrong: list[object] = [[(0, bytearray(b"a"))], [(0, "a")], [b"a"], [(0,)], 5, [(1 << 70, b"a")]]
    with opened(path, os.O_RDWR) as fd, running(make, fd) as writer:
        for writes in wrong:
            with pytest.raises((TypeError, OverflowError)):
                writer.start(writes)  # type: ignore[arg-type]
        writer.start([(0, b"a")])
        assert writer.finish() == (1, 0)
    assert path.read_bytes() == b"a"
