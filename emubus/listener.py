"""The listening sockets: every port accepts AMQP and HTTP, with or without TLS; the first bytes decide.

Knows how each protocol begins: TLS with the byte 0x16, AMQP with its four letters, HTTP with anything else; and how
long a client may take to send that. Then it hands the connection over to a protocol made by one of the two factories.
Owns the listening sockets, and each connection until its first bytes have come.

TLS is detected by peeking at the first byte in the socket, because the TLS layer needs the whole hello. Inside TLS the
first bytes are read, and handed on to the protocol.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast
from weakref import WeakKeyDictionary

import structlog

from .broker.admin.refusal_log import RefusalLog
from .broker.clock import Clock, Timer
from .broker.lazy_dataclass import dataclass
from .broker.ledger import Ledger, MemoryAccount, Newcomer, Use
from .broker.repeated_lines import RepeatedLines


class Reached(NamedTuple):
    """Where a client has come: the port, and the name by which its TLS has asked for the server (SNI)."""

    port: int
    name: str = ""


Factory = Callable[[MemoryAccount, Reached], asyncio.Protocol]
"""Makes the protocol of a connection, with the account of what is held for its client."""

TLS_HELLO: Final = 0x16
AMQP_MAGIC: Final = b"AMQP"
SPEAK_WAIT_MS: Final = 60_000
"""How long a connection may take to send its first bytes, and TLS its handshake."""
HELLO_BYTES_MAX: Final = 16_384
TLS_END_WAIT_S: Final = 5.0
"""How long TLS may take to end: many clients don't answer, and all data is sent by then."""
ACCEPT_PAUSE_MS: Final = 1_000
"""How long to wait before accepting again when the process is out of file descriptors."""
FULL_LOGGED_EVERY_US: Final = 10_000_000
TLS_BYTES: Final = 72 * 1024
"""What a TLS connection costs besides what is read and written: a guess, two buffers of a record and a state."""
BACKLOG: Final = 1024
ACCEPT_AT_ONCE: Final = 4
"""Connections accepted per turn of the event loop, while all other connections wait."""
SEGMENT_BYTES_MAX: Final = 32_767
"""The largest TCP segment size that Linux lets a socket ask for. Over the loopback device it would be about 64 KiB, and
asyncio clients of azure-servicebus before 7.15, which set on their socket the size that they have read from it, fail
with TLS. A server without TLS keeps it: smaller segments send messages of 64 KiB a quarter slower."""

log = structlog.get_logger("emubus")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Silent:
    """A connection of which no byte has come."""

    account: MemoryAccount
    timer: Timer


class Listener:
    """Listens on any number of ports and gives each connection to `amqp()` or `http()`; no TLS without `tls`.

    `handshake()` gives the bytes with which a TLS connection ends instead, or the context that it gets (`conditions`).
    """

    def __init__(
        self,
        amqp: Factory,
        http: Factory,
        clock: Clock,
        ledger: Ledger,
        tls: ssl.SSLContext | None = None,
        handshake: Callable[[], ssl.SSLContext | bytes | None] = lambda: None,
    ) -> None:
        self._amqp = amqp
        self._http = http
        self._clock = clock
        self._ledger = ledger
        self._tls = tls
        self._names: WeakKeyDictionary[ssl.SSLObject, str] = WeakKeyDictionary()
        """What clients of TLS have asked for."""
        if tls is not None:
            tls.sni_callback = self._note_name
        self._handshake = handshake
        self._refusals = RefusalLog(list)
        self._lines = RepeatedLines(clock)
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._silent: dict[socket.socket, Silent] = {}
        self._refused_at_us = 0  # when a line said that the process is out of descriptors
        self._undecided: set[ProtocolDetector] = set()
        self._pauses: dict[socket.socket, Timer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, host: str, port: int) -> int:
        """Listen on every address of `host`, on `port` (0: a free one); returns it. OSError if it can't be bound."""
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, number, _, address in dict.fromkeys(addresses):
            bound = socket.socket(family, kind, number)
            self._listening.append(bound)
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                bound.bind((address[0], port, *address[2:]))
            except OSError as error:
                raise OSError(error.errno, f"can't listen on {address[0]} port {port}: {error.strerror}") from None
            if self._tls is not None and sys.platform == "linux":
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES_MAX)
            bound.listen(BACKLOG)
            port = bound.getsockname()[1]  # all addresses get the same free port
            self._loop.add_reader(bound, self._accept, bound)
        return port

    @property
    def addresses(self) -> list[str]:
        """The numeric IP addresses that it listens on."""
        return sorted({bound.getsockname()[0] for bound in self._listening})

    def stop_listening(self, port: int) -> None:
        """Stop listening on a port; its connections stay."""
        for bound in [each for each in self._listening if each.getsockname()[1] == port]:
            self._listening.remove(bound)
            pause = self._pauses.pop(bound, None)
            if pause is not None:
                pause.cancel()
            self._loop.remove_reader(bound)
            bound.close()

    def _note_name(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        del context
        if name is not None:
            self._names[connection] = name

    async def stop(self) -> None:
        """Stop listening; close connections without a protocol. The others belong to their protocols."""
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        for bound in self._listening:
            self._loop.remove_reader(bound)
            bound.close()
        self._listening.clear()
        for silent in list(self._silent):
            self._drop(silent)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for detector in list(self._undecided):
            detector.abort()

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                connection, address = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file descriptors. The socket stays readable, so wait before trying again.
                self._log_full(error)
                self._loop.remove_reader(bound)
                self._pauses[bound] = self._clock.call_after(ACCEPT_PAUSE_MS, partial(self._accept_again, bound))
                return
            connection.setblocking(False)
            timer = self._clock.call_after(SPEAK_WAIT_MS, partial(self._drop, connection))
            self._loop.add_reader(connection, self._look, connection)
            drop = partial(self._drop, connection)
            account = self._ledger.open(Newcomer(drop), address[0], address[1])
            self._silent[connection] = Silent(account, timer)
            if account.is_cut:
                self._drop(connection)

    def _log_full(self, error: OSError) -> None:
        """Log once in a while that no connection can be accepted: each pause would be a line."""
        now_us = self._clock.stopwatch_us()
        if not self._refused_at_us or now_us - self._refused_at_us >= FULL_LOGGED_EVERY_US:
            self._refused_at_us = now_us
            log.warning("accept failed", error=str(error), connections=self._ledger.socket_count)

    def _accept_again(self, bound: socket.socket) -> None:
        del self._pauses[bound]
        self._loop.add_reader(bound, self._accept, bound)

    def _look(self, connection: socket.socket) -> None:
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        secret = first[:1] == bytes([TLS_HELLO])
        if not first or (secret and self._tls is None):
            if first:
                self._log_tls(connection)
            self._drop(connection)
            return
        account = self._release(connection)
        task = self._loop.create_task(self._hand_over(connection, secret, account))
        account.move_to(Newcomer(lambda: _cancel(task)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _log_tls(self, connection: socket.socket) -> None:
        """Tell why a TLS client is refused: the commonest mistake of all, and the client sees a reset only."""
        try:
            client = str(connection.getpeername()[0])
        except OSError:
            return  # the client has gone
        reason = "a TLS client on a server without TLS"
        remedy = "add UseDevelopmentEmulator=true to the connection string, or start with --tls dev"
        if self._refusals.is_due(client, "", reason):
            log.info("refused", client=client, reason=reason, remedy=remedy)

    async def _hand_over(self, connection: socket.socket, secret: bool, account: MemoryAccount) -> None:
        """Give an accepted socket to the event loop, over TLS if the client began it; a failure ends its account."""
        tls = self._tls if secret else None
        instead = self._handshake() if secret else None
        if isinstance(instead, bytes):
            _end_with(connection, instead)
            account.close()
            return
        if secret:
            account.enter(Use.TLS, lambda: TLS_BYTES)
        port = connection.getsockname()[1]
        detector = ProtocolDetector(
            self._amqp, self._http, self._clock, self._undecided, account, port, self._names.get
        )
        try:
            async with self._clock.time_limit(SPEAK_WAIT_MS):
                await self._loop.connect_accepted_socket(
                    lambda: detector,
                    connection,
                    ssl=instead or tls,
                    ssl_handshake_timeout=2 * SPEAK_WAIT_MS / 1000 if secret else None,  # the clock's limit comes first
                    ssl_shutdown_timeout=TLS_END_WAIT_S if secret else None,
                )
        except (OSError, ssl.SSLError) as error:  # for instance a client that does not trust the certificate
            self._lines.write(log.info, "TLS handshake failed", error=str(error) or type(error).__name__)
            connection.close()
            account.close()
        except asyncio.CancelledError:  # the server stops, or a newer client needs the socket
            connection.close()
            account.close()
            raise

    def _release(self, connection: socket.socket) -> MemoryAccount:
        silent = self._silent.pop(connection)
        silent.timer.cancel()
        self._loop.remove_reader(connection)
        return silent.account

    def _drop(self, connection: socket.socket) -> None:
        if connection in self._silent:
            account = self._release(connection)
            connection.close()
            account.close()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _end_with(connection: socket.socket, data: bytes) -> None:
    """Answer what has come with `data`, and close."""
    try:
        connection.recv(HELLO_BYTES_MAX)  # what is unread would reset the connection, and the answer with it
        connection.send(data)
    except OSError:
        pass  # the client has gone
    connection.close()


class ProtocolDetector(asyncio.Protocol):
    """Reads the first bytes of a connection, then makes it AMQP or HTTP. Until then it is in `undecided`."""

    def __init__(
        self,
        amqp: Factory,
        http: Factory,
        clock: Clock,
        undecided: set[ProtocolDetector],
        account: MemoryAccount,
        port: int,
        name_of: Callable[[ssl.SSLObject], str | None],
    ) -> None:
        self._amqp = amqp
        self._http = http
        self._clock = clock
        self._undecided = undecided
        self._account = account
        self._port = port
        self._name_of = name_of
        self._transport: asyncio.Transport | None = None
        self._first = b""
        self._timer: Timer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the time until the first bytes."""
        self._undecided.add(self)
        self._transport = cast("asyncio.Transport", transport)
        self._account.move_to(Newcomer(self.abort))
        self._timer = self._clock.call_after(SPEAK_WAIT_MS, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Wait until the bytes decide, then hand them to that protocol."""
        assert self._transport is not None
        self._first += data
        if len(self._first) < len(AMQP_MAGIC) and AMQP_MAGIC.startswith(self._first):
            return
        self._decided()
        tls = self._transport.get_extra_info("ssl_object")
        reached = Reached(self._port, "" if tls is None else self._name_of(tls) or "")
        protocol = (self._amqp if self._first.startswith(AMQP_MAGIC) else self._http)(self._account, reached)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._first)

    def connection_lost(self, exc: Exception | None) -> None:
        self._decided()
        self._account.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _decided(self) -> None:
        self._undecided.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
