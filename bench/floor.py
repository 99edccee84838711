"""The floor of the architecture: uvloop, Proton and one LMDB file, and nothing else of a broker.

One queue for all addresses, without locks, limits or properties. Messages that came while a commit was under way are
written in the next one, by a thread of a pool; a message is accepted after the fsync. Received messages are read from
the file and deleted when they are accepted. What emubus uses above this is what its features cost. Prints its port and
runs until it is terminated.

    python bench/floor.py FOLDER [--durability process]
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import lmdb
import uvloop
from cproton_ffi import ffi, lib
from engine import Engine, EngineError, Pointer, TagWriter

CREDIT: Final = 2000
MAP_BYTES: Final = 1 << 34
BUFFER_BYTES: Final = 1 << 21
_BUFFER: Final = ffi.new("char[]", BUFFER_BYTES)


class Store:
    """The file: messages by their numbers."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self._env = lmdb.open(str(folder), map_size=MAP_BYTES, sync=sync, metasync=sync, lock=False)
        self._pool = ThreadPoolExecutor(1)
        self.last = 0
        self.taken = 0

    def commit(self, rows: list[bytes], deleted: list[bytes]) -> asyncio.Future[None]:
        """Write messages and delete others in one commit; the future ends after the fsync."""
        first, self.last = self.last, self.last + len(rows)

        def write() -> None:
            with self._env.begin(write=True) as txn:
                for number, row in enumerate(rows, first):
                    txn.put(number.to_bytes(8, "big"), row, append=True)
                for key in deleted:
                    txn.delete(key)

        return asyncio.get_running_loop().run_in_executor(self._pool, write)

    def take(self, count: int, end: int) -> list[tuple[int, bytes]]:
        """The next `count` messages before number `end`, each once."""
        with self._env.begin() as txn, txn.cursor() as cursor:
            found: list[tuple[int, bytes]] = []
            if cursor.set_range(self.taken.to_bytes(8, "big")):
                for key, row in cursor:
                    number = int.from_bytes(key, "big")
                    if number >= end or len(found) == count:
                        break
                    found.append((number, row))
        if found:
            self.taken = found[-1][0] + 1
        return found


class Floor:
    """One connection."""

    def __init__(self, sock: socket.socket, store: Store) -> None:
        self._store = store
        self._engine = Engine(sock, container="floor", serving=True)
        self._engine.accepts, self._engine.on_delivery = self._opened, self._event
        self._engine.on_flow = lambda link: self._givers.add(link) if lib.pn_link_is_sender(link) else None
        self._givers: set[Pointer] = set()
        self._tags = TagWriter()
        self._arrived: list[tuple[Pointer, bytes]] = []
        self._deleted: list[bytes] = []
        self._given: dict[Pointer, int] = {}
        self._committed = store.last
        self._loop = asyncio.get_running_loop()
        self._commit: asyncio.Task[None] | None = None
        self._loop.add_reader(self._engine.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            self._engine.read()
            self._engine.dispatch()
            if self._commit is None and (self._arrived or self._deleted):
                self._commit = self._loop.create_task(self._commits())
            self._give()
            self._flush()
        except EngineError as error:
            print(error, file=sys.stderr)
            self._engine.closed = True
        if self._engine.closed:
            self._loop.remove_reader(self._engine.fileno())
            self._loop.remove_writer(self._engine.fileno())
            if self._commit is None:
                self._engine.close()

    def _flush(self) -> None:
        self._engine.flush()
        if self._engine.write_blocked:
            self._loop.add_writer(self._engine.fileno(), self._readable)
        else:
            self._loop.remove_writer(self._engine.fileno())

    def _opened(self, link: Pointer) -> None:
        lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
        lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
        lib.pn_link_open(link)
        if lib.pn_link_is_receiver(link):
            lib.pn_link_flow(link, CREDIT)

    def _event(self, delivery: Pointer) -> None:
        link = lib.pn_delivery_link(delivery)
        if lib.pn_link_is_sender(link):
            if lib.pn_delivery_remote_state(delivery) == lib.PN_ACCEPTED:
                self._deleted.append(self._given.pop(delivery).to_bytes(8, "big"))
                lib.pn_delivery_settle(delivery)
        elif not lib.pn_delivery_partial(delivery):
            size = lib.pn_link_recv(link, _BUFFER, BUFFER_BYTES)
            self._arrived.append((delivery, ffi.buffer(_BUFFER, size)[:]))
            lib.pn_link_advance(link)

    async def _commits(self) -> None:
        """Commit what has come, again and again, until nothing has come meanwhile."""
        while self._arrived or self._deleted:
            arrived, deleted = self._arrived, self._deleted
            self._arrived, self._deleted = [], []
            await self._store.commit([row for _, row in arrived], deleted)
            self._committed = self._store.last
            if self._engine.closed:
                continue
            if arrived:
                lib.pn_link_flow(lib.pn_delivery_link(arrived[0][0]), len(arrived))
            for delivery, _ in arrived:
                lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)
                lib.pn_delivery_settle(delivery)
            self._give()
            self._flush()
        self._commit = None
        if self._engine.closed:
            self._engine.close()

    def _give(self) -> None:
        """Spend the credit of receiving links."""
        for link in self._givers:
            credit = lib.pn_link_credit(link) - lib.pn_link_queued(link)
            for number, row in self._store.take(credit, self._committed) if credit > 0 else ():
                self._tags.write(number)
                delivery = lib.pn_delivery(link, self._tags.tag)
                lib.pn_link_send(link, row, len(row))
                lib.pn_link_advance(link)
                self._given[delivery] = number


async def serve(folder: Path, *, sync: bool) -> None:
    """Serve one connection after the other."""
    loop, store = asyncio.get_running_loop(), Store(folder, sync=sync)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        print(listener.getsockname()[1], flush=True)
        while True:
            peer, _ = await loop.sock_accept(listener)
            Floor(peer, store)


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--durability", choices=["full", "process"], default="full")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.folder, sync=arguments.durability == "full"))


if __name__ == "__main__":
    main()
