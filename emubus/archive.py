"""Streamed tar archives of snapshots: pack files, and unpack them into a folder.

Knows the file names of a snapshot, and one form of tar: plain files with short names, as `pack` writes it. Anything
else is refused before a byte is unpacked, so that no archive can write outside the folder or beyond the size limit.
Does not know what the files contain.
"""

from __future__ import annotations

import asyncio
import re
import tarfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from .storage import make_folder, make_private_file

CHUNK_BYTES: Final = 1 << 20
END: Final = b"\0" * (2 * tarfile.BLOCKSIZE)
NAMES: Final = re.compile(r"snapshot\.json|(?:namespace|store-\d{2})/data\.mdb", re.ASCII)
PLAIN_TYPES: Final = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE})


class UnusableArchive(Exception):  # noqa: N818 - it says what the archive is
    """An archive can't be used; the text says why."""


async def pack(files: Sequence[tuple[str, Path]]) -> AsyncIterator[bytes]:
    """The archive of these files, by name, in pieces. OSError."""
    for name, path in files:
        info = tarfile.TarInfo(name)
        info.size = path.stat().st_size
        yield info.tobuf(tarfile.GNU_FORMAT)
        left = info.size
        with path.open("rb") as file:
            while left:
                chunk = await asyncio.to_thread(file.read, min(left, CHUNK_BYTES))
                if not chunk:
                    raise OSError(f"{path} shrank while it was read")
                left -= len(chunk)
                yield chunk
        yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
    yield END


async def unpack(chunks: AsyncIterator[bytes], folder: Path, bytes_max: int) -> None:
    """Write the files of an archive into an empty folder; UnusableArchive, OSError."""
    whole = folder / "archive.tar"
    size_bytes = 0
    with make_private_file(whole) as file:
        async for chunk in chunks:
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                raise UnusableArchive(f"it has more than {bytes_max} bytes")
            await asyncio.to_thread(file.write, chunk)
    await asyncio.to_thread(_extract, whole, folder)
    whole.unlink()


def _extract(whole: Path, folder: Path) -> None:
    with whole.open("rb") as archive:
        members = list(_members(archive, whole.stat().st_size))
        for name, start, size_bytes in members:
            target = folder / name
            make_folder(target.parent)
            archive.seek(start)
            with make_private_file(target) as file:
                while size_bytes:
                    size_bytes -= file.write(archive.read(min(size_bytes, CHUNK_BYTES)))


def _members(archive: BinaryIO, archive_bytes: int) -> Iterator[tuple[str, int, int]]:
    """Each file's name, where its content begins, and its size; UnusableArchive for anything but plain files."""
    names: set[str] = set()
    at = 0
    while header := archive.read(tarfile.BLOCKSIZE):
        if not any(header):
            break
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            raise UnusableArchive(f"it is not a tar archive: {error}") from error
        at += tarfile.BLOCKSIZE
        if member.type not in PLAIN_TYPES:
            raise UnusableArchive(
                f"{member.name!a} is of type {member.type!a}, but only plain files are allowed; repack it with "
                "'tar --format=ustar --no-recursion'"
            )
        if NAMES.fullmatch(member.name) is None:
            raise UnusableArchive(f"{member.name!a} is not a file of a snapshot")
        if member.name in names:
            raise UnusableArchive(f"{member.name!a} occurs twice")
        if not 0 <= member.size <= archive_bytes - at:
            raise UnusableArchive(f"{member.name!a} has {member.size} bytes, and {archive_bytes - at} follow")
        names.add(member.name)
        yield member.name, at, member.size
        at += -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        archive.seek(at)
    if not names:
        raise UnusableArchive("it has no file")
