"""Ports with TLS in front of an emubus without it: `python tls_ports.py --data DIR PORT=HOST:PORT …`.

Serves the service `tls` of docker-compose.yml. The certificate is one of the development CA in `DIR/tls`, which is made
if missing. Takes the TLS off, and passes bytes on in both directions until both sides have ended; knows nothing of AMQP
and HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import sys
from pathlib import Path

from emubus.tls import FOLDER, TlsError, development_context

PIECE_BYTES = 64 * 1024


class Forward:
    """One port: each connection is opened once more to `host` and `port`, without TLS."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on until it has ended; a target that does not answer closes it."""
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError as error:
            sys.stderr.write(f"no connection to {self._host}:{self._port}: {error}\n")
            writer.close()
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(passed_on(reader, far_writer))
            tasks.create_task(passed_on(far_reader, writer))


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until `reader` ends, then end `writer`. A lost connection is an end like any other."""
    with contextlib.suppress(OSError, ssl.SSLError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError, ssl.SSLError):
        writer.close()
        await writer.wait_closed()


async def serve(data: Path, forwards: list[tuple[int, Forward]]) -> None:
    """Listen on every port, print each, and serve until cancelled. TlsError, OSError."""
    context = development_context(data / FOLDER, ports=[port for port, _ in forwards])
    async with contextlib.AsyncExitStack() as stack:
        for port, forward in forwards:
            server = await stack.enter_async_context(
                await asyncio.start_server(forward.serve, "0.0.0.0", port, ssl=context)
            )
            print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - what a caller that passed 0 waits for
        await asyncio.get_running_loop().create_future()


def forward_of(text: str) -> tuple[int, Forward]:
    """`443=emulator:5300`: the port here, and what it leads to. ValueError."""
    port, _, target = text.partition("=")
    host, _, target_port = target.rpartition(":")
    if not host:
        raise ValueError
    return int(port), Forward(host, int(target_port))


def main() -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(description="Take TLS off connections and pass them on.")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="data folder with the development CA")
    parser.add_argument("forwards", type=forward_of, nargs="+", metavar="PORT=HOST:PORT")
    parsed = parser.parse_args()
    try:
        asyncio.run(serve(parsed.data, parsed.forwards))
    except (OSError, TlsError) as error:
        sys.stderr.write(f"tls_ports: {error}\n")
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
