"""A small data folder: two messaging stores, one partitioned queue with a few messages."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

import lmdb
from proton import symbol

from emubus.broker.admin.folder_view import JOURNAL_PREFIX, part_names
from emubus.broker.api import alone
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.records import OLD_STATE_VALUE, STATE
from emubus.config import Config, load_config
from emubus.server import Server
from emubus.storage.journal.journal import GROUP, GROUP_MAGIC, HALF_BYTES, HEAD_BYTES

from ...broker.driving import encoded
from .opening import STORES

MESSAGES: Final = 40
AT_A_TIME: Final = 10


def config(data: Path, durability: str = "full") -> Config:
    texts = {"data": str(data), "profile": "premium", "premium_partitions": "2", "amqp_port": "0", "http_port": "0"}
    return load_config({**texts, "durability": durability}, {})


async def put(server: Server, count: int) -> None:
    """Send messages with keys, so that both stores have some; a few at a time, so that there are several commits."""
    loop = asyncio.get_running_loop()
    sender = server.broker.open_sender("q", detached=print)
    for first in range(0, count, AT_A_TIME):
        answers: list[asyncio.Future[Any]] = []
        for number in range(first, min(first + AT_A_TIME, count)):
            message = encoded(annotations={symbol("x-opt-partition-key"): f"key {number}"})
            answer: asyncio.Future[Any] = loop.create_future()
            sender.send([message], alone(answer.set_result))
            answers.append(answer)
        await asyncio.gather(*answers)


async def _run(data: Path, killed: Path | None, durability: str) -> None:
    server = Server(config(data, durability))
    await server.start()
    try:
        if server.broker.namespace.entity("q") is None:
            server.broker.administration.create(QueueDescription("q", enable_partitioning=True))
        await put(server, MESSAGES)
        if killed is not None:
            copy(data, killed)
    finally:
        await server.stop()


def run(data: Path, killed: Path | None = None, durability: str = "full") -> None:
    """Start a server, send messages, stop it; `killed` becomes a copy of the folder as a kill would leave it."""
    asyncio.run(_run(data, killed, durability))


def copy(data: Path, target: Path) -> None:
    """Copy a folder; of journals and stores, which end in room for more, only what is written takes room."""

    def copy_file(source: str, place: str) -> None:
        content = Path(source).read_bytes()
        with Path(place).open("wb") as file:
            file.write(content.rstrip(b"\0"))
            file.truncate(len(content))

    shutil.copytree(data, target, copy_function=copy_file)


def journals(data: Path) -> list[Path]:
    """The journals in a folder."""
    return sorted(data.glob(f"{JOURNAL_PREFIX}*"))


def groups(journal: Path) -> list[tuple[int, int]]:
    """The begin and end in the file of each group of the first lap of a journal."""
    content = journal.read_bytes()
    at, found = HEAD_BYTES + HALF_BYTES, list[tuple[int, int]]()
    while content[at : at + len(GROUP_MAGIC)] == GROUP_MAGIC:
        size = GROUP.unpack_from(content, at)[2]
        found.append((at, at + size))
        at += size
    return found


def age(data: Path) -> None:
    """Let a folder be as release 0.1.0 made it: without manifest and marks."""
    (data / "emubus.json").unlink()
    for name in part_names(STORES):
        with lmdb.open(str(data / name), max_dbs=16, lock=False) as env, env.begin(write=True) as txn:
            if name.startswith("store"):
                counters = env.open_db(STATE.encode(), txn)
                for key, row in list(txn.cursor(counters)):
                    txn.put(key, row[: OLD_STATE_VALUE.size], db=counters)
            meta = env.open_db(b"meta", txn)
            txn.delete(b"mark", db=meta)
            txn.put(b"format", b"1", db=meta)


def put_row(data: Path, part: str, table: str, key: bytes, value: bytes) -> None:
    """Write a row behind the server's back, as a defect of another program would, in a folder that was killed."""
    with lmdb.open(str(data / part), max_dbs=16, lock=False) as env, env.begin(write=True) as txn:
        txn.put(key, value, db=env.open_db(table.encode(), txn))
