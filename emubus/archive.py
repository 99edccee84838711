"""Tar archives as streams: some files into one, and back into a folder.

Knows which names a snapshot's files have; anything else in an archive is refused, so that none can write elsewhere.
Refuses to know what is in the files.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tarfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 1 << 20
END: Final = b"\0" * (2 * tarfile.BLOCKSIZE)
NAMES: Final = re.compile(r"snapshot\.json|(?:namespace|store-\d{2})/data\.mdb", re.ASCII)
MEMBERS_MAX: Final = 128


class UnusableArchive(Exception):  # noqa: N818 - it says what the archive is
    """An archive can't be used; the text says why."""


async def pack(files: Sequence[tuple[str, Path]]) -> AsyncIterator[bytes]:
    """The archive with these files, by name, in pieces. OSError."""
    for name, path in files:
        info = tarfile.TarInfo(name)
        info.size = path.stat().st_size
        yield info.tobuf(tarfile.GNU_FORMAT)
        left = info.size
        with path.open("rb") as file:
            while left:
                chunk = await asyncio.to_thread(file.read, min(left, CHUNK_BYTES))
                if not chunk:
                    raise OSError(f"{path} became shorter while it was read")
                left -= len(chunk)
                yield chunk
        yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
    yield END


async def unpack(chunks: AsyncIterator[bytes], folder: Path, bytes_max: int) -> None:
    """Write the files of an archive into an empty folder; UnusableArchive, OSError."""
    whole = folder / "archive.tar"
    size_bytes = 0
    with whole.open("wb") as file:
        async for chunk in chunks:
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                raise UnusableArchive(f"it has more than {bytes_max} bytes")
            await asyncio.to_thread(file.write, chunk)
    await asyncio.to_thread(_extract, whole, folder)
    whole.unlink()


def _extract(whole: Path, folder: Path) -> None:
    try:
        with tarfile.open(whole, "r:") as archive:
            for count, member in enumerate(archive, 1):
                if not member.isreg() or NAMES.fullmatch(member.name) is None or count > MEMBERS_MAX:
                    raise UnusableArchive(f"{member.name!a} is no file of a snapshot")
                source = archive.extractfile(member)
                assert source is not None
                target = folder / member.name
                target.parent.mkdir(exist_ok=True)
                with target.open("wb") as file:
                    shutil.copyfileobj(source, file, CHUNK_BYTES)
    except tarfile.TarError as error:
        raise UnusableArchive(f"it is no tar archive: {error}") from error
