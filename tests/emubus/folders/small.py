"""A small data folder: two messaging stores, one partitioned queue with a few messages."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

import lmdb
from proton import symbol

from emubus.broker.admin.folder_view import part_names
from emubus.broker.model.descriptions import QueueDescription
from emubus.config import Config, load_config
from emubus.server import Server

from ...broker.driving import encoded
from .opening import STORES

MESSAGES: Final = 40


def config(data: Path) -> Config:
    texts = {"data": str(data), "profile": "premium", "premium_partitions": "2", "amqp_port": "0", "http_port": "0"}
    return load_config(texts, {})


async def put(server: Server, count: int) -> None:
    """Send messages with keys, so that both stores have some."""
    loop = asyncio.get_running_loop()
    sender = server.broker.open_sender("q", detached=print)
    answers: list[asyncio.Future[Any]] = []
    for number in range(count):
        message = encoded(annotations={symbol("x-opt-partition-key"): f"key {number}"})
        answer: asyncio.Future[Any] = loop.create_future()
        sender.send(message, batch=False, done=answer.set_result)
        answers.append(answer)
    await asyncio.gather(*answers)


async def _run(data: Path, killed: Path | None = None) -> None:
    """Start, send messages, stop; `killed` becomes a copy of the folder as a kill would leave it."""
    server = Server(config(data))
    await server.start()
    try:
        if server.broker.entity("q") is None:
            server.broker.administration.create(QueueDescription("q", enable_partitioning=True))
        await put(server, MESSAGES)
        if killed is not None:
            shutil.copytree(data, killed)
    finally:
        await server.stop()


def run(data: Path, killed: Path | None = None) -> None:
    """Start a server, send messages, stop it; `killed` becomes a copy of the folder as a kill would leave it."""
    asyncio.run(_run(data, killed))


def age(data: Path) -> None:
    """Let a folder be as release 0.1.0 made it: without manifest and marks."""
    (data / "emubus.json").unlink()
    for name in part_names(STORES):
        with lmdb.open(str(data / name), max_dbs=4, lock=False) as env, env.begin(write=True) as txn:
            meta = env.open_db(b"meta", txn)
            txn.delete(b"mark", db=meta)
            txn.put(b"format", b"1", db=meta)


def put_row(data: Path, part: str, table: str, key: bytes, value: bytes) -> None:
    """Write a row behind the server's back, as a defect of another program would, in a folder that was killed."""
    with lmdb.open(str(data / part), max_dbs=16, lock=False) as env, env.begin(write=True) as txn:
        txn.put(key, value, db=env.open_db(table.encode(), txn))
