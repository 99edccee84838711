"""One account of memory: every byte that the server holds for a peer, with caps; and the sockets of all peers.

An adapter enters a gauge for each buffer that it fills for a peer; the ledger reads the gauges of an account when it
has grown by a step, and keeps sums for the connection, its identity (a key; an address where keys are not verified),
all strangers together, and everything. Where a sum is above its cap, an account that grows is held: nothing more is
read from it and nothing more is made for it. If that does not help, the account that holds most is closed. Knows
bytes and sockets. Does not know what the bytes are; holders, which the adapters are, obey. Owned by a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, Protocol

import structlog

from .clock import Clock, Timer
from .errors import BrokerError, Condition
from .lazy_dataclass import dataclass

KIB: Final = 1024
MIB: Final = 1024 * KIB

LOOK_MS: Final = 100
"""How often accounts that are not small are read without having grown: what they had may have gone."""
PATIENCE_LOOKS: Final = 20
"""For how many looks, two seconds, a sum may stay above its cap without shrinking before accounts are closed. A client
that reads at all makes room within milliseconds; others that need room wait as long."""
LARGEST_COUNT: Final = 10
"""The accounts that a report names."""
CUTS_LOGGED_EVERY_MS: Final = 1_000
TRIM_BYTES: Final = 16 * MIB
"""Memory goes back to the system after the sum has fallen by so much. A guess: less is not worth the call."""

log = structlog.get_logger(__name__)


class Need(Enum):
    """What has to happen before bytes go away."""

    WORK = "the server works them off"
    READING = "the peer reads"
    SENDING = "the peer sends more, or closes"


class Use(Enum):
    """What bytes are held for: a name for people and metrics, and what they need to go away."""

    INPUT = "input", Need.WORK
    PENDING = "deliveries_without_outcome", Need.WORK
    COPIES = "copies_under_way", Need.WORK
    TLS = "tls", Need.WORK
    OUTPUT = "unread_output", Need.READING
    PARTIAL = "unfinished_deliveries", Need.SENDING
    BUFFERS = "buffers_of_past_deliveries", Need.SENDING
    ASSEMBLY = "unfinished_websocket_messages", Need.SENDING
    BODIES = "http_bodies", Need.SENDING
    REPLIES = "responses_without_credit", Need.SENDING
    TRANSACTIONS = "transactions", Need.SENDING
    LINKS = "sessions_and_links", Need.SENDING

    def __init__(self, title: str, need: Need) -> None:
        self.title = title
        self.need = need


@dataclass(frozen=True, slots=True)
class Caps:
    """Bytes that a connection, a stranger, an identity, all strangers and everybody may hold; and sockets.

    The sum of everything is what an attack can add to the 60 to 80 MiB of a server: with Python's and the allocator's
    share 400 MiB were not reached (`pytest tests/attack`, EMUBUS_TEST_LONG=1). A connection may have 10 000 links
    of 5 KiB, and a key one such connection and as much again for its others. A third of everything is never one key's.
    """

    connection: int = 96 * MIB
    stranger: int = 512 * KIB
    """50 links in 50 AMQP sessions are 450 KiB."""
    identity: int = 128 * MIB
    strangers: int = 32 * MIB
    everything: int = 192 * MIB
    small: int = 64 * KIB
    """An account with less is never held or closed for what others have: a token and a few links have 30 KiB."""
    step: int = 64 * KIB
    """How much an account grows until its gauges are read again: a dozen calls, once for 64 messages of 1 KiB. Sums lag
    behind by so much for each account that has grown."""
    stranger_step: int = 8 * KIB
    """The same for a stranger: hundreds of them must not be a step behind together."""
    stranger_count: int = 500
    """Connections of strangers; with one more the oldest idle one is closed."""
    socket_count: int | None = None
    """Connections of everybody, as far as descriptors go."""

    @classmethod
    def for_messages(cls, bytes_max: int, socket_count: int | None = None) -> Caps:
        """Caps under which messages of `bytes_max` pass: a connection holds one in pieces and one that is stored,
        each of them twice, an identity one such connection more, and everything two more."""
        one = 4 * bytes_max if bytes_max > MIB else 0  # smaller ones are nothing to the caps
        plain = cls()
        return cls(
            connection=plain.connection + one,
            identity=plain.identity + 2 * one,
            everything=plain.everything + 3 * one,
            socket_count=socket_count,
        )


class Holder(Protocol):
    """What has a peer's socket at the moment."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being done for the peer."""
        ...

    def hold(self) -> None:
        """Read nothing more from the peer, and make nothing more for it."""
        ...

    def go_on(self) -> None:
        """Read and make again."""
        ...

    def expel(self, error: BrokerError) -> None:
        """Close the connection because of `error`, in the words of its protocol."""
        ...

    def cut(self) -> None:
        """Close the socket at once."""
        ...


class Newcomer:
    """The holder of a connection that has said nothing yet: there is nothing to hold; `close()` closes its socket."""

    is_idle = True

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    def hold(self) -> None:
        """Nothing is read from it."""

    def go_on(self) -> None:
        """Nothing is read from it."""

    def expel(self, error: BrokerError) -> None:
        """Close its socket: it speaks no protocol yet."""
        self._close()

    def cut(self) -> None:
        self._close()


class Scope:
    """Accounts whose sum has a cap; above it the scope is over, until it has fallen to three quarters."""

    __slots__ = ("accounts", "bytes", "cap", "is_over", "kept", "lowest", "name", "waited")

    def __init__(self, name: str, cap: int) -> None:
        self.name = name
        self.cap = cap
        self.accounts: dict[MemoryAccount, None] = {}
        self.bytes = 0
        self.kept = 0
        """The part that only the peers can make go away."""
        self.is_over = False
        self.lowest = 0
        self.waited = 0
        """How many looks the sum has not shrunk below `lowest` by a sixteenth of the cap."""

    def look(self) -> bool:
        """Whether the scope is over now."""
        if self.is_over:
            self.is_over = self.bytes > self.cap * 3 // 4
        elif self.bytes > self.cap:
            self.is_over, self.lowest, self.waited = True, self.bytes, 0
        return self.is_over

    def is_stuck(self) -> bool:
        """Whether the sum has not shrunk for long; to be asked once in a look, while the scope is over."""
        self.waited += 1
        if self.bytes < self.lowest - self.cap // 16:
            self.lowest, self.waited = self.bytes, 0
        if self.waited < PATIENCE_LOOKS:
            return False
        self.waited = 0
        return True


class MemoryAccount:
    """What one peer's connection holds; `close` ends it. Bytes come from gauges, which its layers enter."""

    __slots__ = ("_fresh", "_gauges", "_ledger", "_step", "bytes", "holder", "host", "identity",
                 "is_closing", "is_cut", "is_held", "kept", "own", "port", "scopes")  # fmt: skip

    def __init__(self, ledger: Ledger, holder: Holder, host: str, port: int) -> None:
        self._ledger = ledger
        self.holder = holder
        self.host = host
        self.port = port
        self.identity: str | None = None
        """A key's name, or the address where keys are not verified; None of a stranger."""
        self.bytes = 0
        self.kept = 0
        self.is_held = False
        self.is_cut = False
        """Its socket went to a newer connection."""
        self.is_closing = False
        """It is to be closed: what it holds will be free."""
        self.own = Scope("connection", ledger.caps.stranger)
        self.scopes: tuple[Scope, ...] = ()
        self._gauges: list[tuple[Use, bool, Callable[[], int]]] = []
        self._step = ledger.caps.stranger_step
        self._fresh = 0

    @property
    def address(self) -> str:
        """The peer for people."""
        return f"{self.host}:{self.port}"

    def enter(self, use: Use, gauge: Callable[[], int]) -> None:
        """Count the bytes of `gauge()` from now on."""
        self._gauges.append((use, use.need is not Need.WORK, gauge))

    def grew(self, by_bytes: int) -> None:
        """Bytes came, or were made for the peer; its gauges are read once they are a step."""
        self._fresh += by_bytes
        if self._fresh >= self._step:
            self.read()

    def read(self) -> None:
        """Read all gauges now, and hold the account or let it go on."""
        self.count()
        self._ledger.judge(self)

    def count(self) -> None:
        """Read all gauges."""
        self._fresh = total = kept = 0
        for _, is_kept, gauge in self._gauges:
            held = gauge()
            total += held
            if is_kept:
                kept += held
        by_bytes, by_kept = total - self.bytes, kept - self.kept
        if by_bytes or by_kept:
            self.bytes, self.kept = total, kept
            for scope in self.scopes:
                scope.bytes += by_bytes
                scope.kept += by_kept

    def sending_bytes(self) -> int:
        """The part that goes away only if the peer sends."""
        return sum(gauge() for use, _, gauge in self._gauges if use.need is Need.SENDING)

    def by_use(self) -> dict[Use, int]:
        found: dict[Use, int] = {}
        for use, _, gauge in self._gauges:
            found[use] = found.get(use, 0) + gauge()
        return found

    def move_to(self, holder: Holder) -> None:
        """Another layer obeys from now on."""
        self.holder = holder
        if self.is_held:
            holder.hold()

    def identify(self, identity: str) -> None:
        """The peer is no stranger any more."""
        if self.identity is None and self.scopes:
            self._ledger.known(self, identity)
            self._step = self._ledger.caps.step

    def close(self) -> None:
        """The socket is closed and nothing is held any more."""
        self._gauges.clear()
        self._ledger.closed(self)


class Ledger:
    """The accounts of one server. `trim()` gives free memory back to the system."""

    def __init__(self, clock: Clock, caps: Caps | None = None, trim: Callable[[], None] = lambda: None) -> None:
        self.caps = caps or Caps()
        self._clock = clock
        self._trim = trim
        self.everything = Scope("everything", self.caps.everything)
        self.strangers = Scope("all strangers", self.caps.strangers)
        self._identities: dict[str, Scope] = {}
        self._large: dict[MemoryAccount, None] = {}  # that were not small when they were read last
        self._timer: Timer | None = None
        self._peak_bytes = 0
        self._cuts: Counter[str] = Counter()  # sockets that no log line has counted yet
        self._is_cut_logged = False  # in this second
        self.closed_count = 0
        """Connections that were closed for what they held."""
        self.cut_count = 0
        """Connections of strangers that were closed for newer ones."""

    # ---- accounts

    def widen(self, caps: Caps) -> None:
        """Use these caps from now on; connections that are known keep theirs."""
        self.caps = caps
        self.everything.cap, self.strangers.cap = caps.everything, caps.strangers
        for scope in self._identities.values():
            scope.cap = caps.identity

    def open(self, holder: Holder, host: str = "", port: int = 0) -> MemoryAccount:
        """The account of a new connection, a stranger's; the oldest idle stranger makes room for it."""
        account = MemoryAccount(self, holder, host, port)
        account.scopes = account.own, self.strangers, self.everything
        for scope in account.scopes:
            scope.accounts[account] = None
        self._make_room(account)
        return account

    def known(self, account: MemoryAccount, identity: str) -> None:
        """The peer of an account has shown a key, or needs none."""
        account.identity = identity
        scope = self._identities.get(identity)
        if scope is None:
            scope = self._identities[identity] = Scope(f"'{identity}'", self.caps.identity)
        self._leave(account, self.strangers)
        scope.accounts[account] = None
        scope.bytes += account.bytes
        scope.kept += account.kept
        account.own.cap = self.caps.connection
        account.scopes = account.own, scope, self.everything

    def closed(self, account: MemoryAccount) -> None:
        """Nothing of an account is left; once."""
        if account not in account.own.accounts:
            return
        for scope in account.scopes:
            self._leave(account, scope)
        account.scopes = ()
        account.bytes = account.kept = 0
        self._large.pop(account, None)
        if account.identity is not None and not self._identities[account.identity].accounts:
            del self._identities[account.identity]

    def _leave(self, account: MemoryAccount, scope: Scope) -> None:
        if scope.accounts.pop(account, self) is None:
            scope.bytes -= account.bytes
            scope.kept -= account.kept

    # ---- bytes

    def judge(self, account: MemoryAccount) -> None:
        """Hold an account that has grown while one of its scopes is over, else let it go on."""
        is_over = False
        for scope in account.scopes:
            is_over = scope.look() or is_over
        is_large = account.bytes > self.caps.small
        if is_large and account not in self._large:
            self._large[account] = None
            self._watch()
        if is_over and is_large:
            if not account.is_held:
                account.is_held = True
                account.holder.hold()
        elif account.is_held:
            account.is_held = False
            account.holder.go_on()

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_after(LOOK_MS, self._look)

    def _look(self) -> None:
        """Read the accounts that may have become smaller; close some where holding did not help."""
        self._timer = None
        for account in self._large:
            account.count()
        self._peak_bytes = max(self._peak_bytes, self.everything.bytes)
        looked = set[Scope]()
        for account in list(self._large):
            self.judge(account)
            for scope in account.scopes:
                if scope.is_over and scope not in looked:
                    looked.add(scope)
                    if scope.is_stuck():
                        self._relieve(scope)
            if account.bytes <= self.caps.small:
                self._large.pop(account, None)
        if self._large:
            self._watch()
        if self._peak_bytes - self.everything.bytes >= TRIM_BYTES:
            self._peak_bytes = self.everything.bytes
            self._trim()

    def _relieve(self, scope: Scope) -> None:
        """Close the accounts of a scope that hold most, until it is no longer over; what only waits for the server's
        own work is no reason."""
        # Unread output of one connection alone is no harm to others: that is held, and may be read at any time.
        weights = {each: each.sending_bytes() if scope is each.own else each.kept for each in scope.accounts}
        if 2 * sum(weights.values()) < scope.cap:
            return
        leaving = sum(each.bytes for each in scope.accounts if each.is_closing)
        closed: list[MemoryAccount] = []
        for account in sorted(scope.accounts, key=weights.__getitem__, reverse=True):
            if scope.bytes - leaving <= scope.cap * 3 // 4 or weights[account] <= self.caps.small:
                break
            if not account.is_closing:
                account.is_closing = True
                leaving += account.bytes
                closed.append(account)
        if not closed:
            return
        self.closed_count += len(closed)
        largest = closed[0]
        log.warning(
            "connections closed: they held too much memory",
            count=len(closed),
            of=scope.name,
            bytes=scope.bytes,
            bytes_max=scope.cap,
            largest_bytes=largest.bytes,
            largest=largest.address,
            largest_holds=", ".join(f"{use.title}: {size}" for use, size in largest.by_use().items() if size),
        )
        text = f"The memory held for {scope.name} is {scope.bytes} bytes; at most {scope.cap} are allowed."
        for account in closed:
            account.holder.expel(BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, text))

    # ---- sockets

    @property
    def socket_count(self) -> int:
        return len(self.everything.accounts)

    def _make_room(self, newest: MemoryAccount) -> None:
        caps = self.caps
        while len(self.strangers.accounts) > caps.stranger_count or (
            caps.socket_count is not None and len(self.everything.accounts) > caps.socket_count
        ):
            oldest = next(self._evictable(newest), newest)
            self._leave(oldest, self.strangers)
            self._leave(oldest, self.everything)
            oldest.scopes = (oldest.own,)
            oldest.is_cut = True
            self.cut_count += 1
            self._log_cut("too many strangers" if oldest is not newest else "no socket is left")
            oldest.holder.cut()
            if oldest is newest:
                return

    def _evictable(self, newest: MemoryAccount) -> Iterator[MemoryAccount]:
        """Strangers, the oldest idle one first."""
        others = [each for each in self.strangers.accounts if each is not newest]
        yield from (each for each in others if each.holder.is_idle)
        yield from others

    def _log_cut(self, reason: str) -> None:
        """Log the first cut at once and those of the next second together: many come with a flood of connections."""
        self._cuts[reason] += 1
        if not self._is_cut_logged:
            self._log_cuts()

    def _log_cuts(self) -> None:
        self._is_cut_logged = bool(self._cuts)
        if self._is_cut_logged:
            for reason, count in self._cuts.items():
                log.info(
                    "connections cut",
                    reason=reason,
                    count=count,
                    strangers_max=self.caps.stranger_count,
                    sockets_max=self.caps.socket_count,
                )
            self._cuts.clear()
            self._clock.call_after(CUTS_LOGGED_EVERY_MS, self._log_cuts)

    # ---- reports

    def survey(self) -> Report:
        """Read every account now."""
        by_use: Counter[Use] = Counter()
        for account in self.everything.accounts:
            account.count()
            by_use.update(account.by_use())
        accounts = sorted(self.everything.accounts, key=lambda each: each.bytes, reverse=True)
        largest = [
            Holding(each.address, each.identity, each.bytes, {use: size for use, size in each.by_use().items() if size})
            for each in accounts[:LARGEST_COUNT]
            if each.bytes
        ]
        return Report(
            bytes=self.everything.bytes,
            bytes_max=self.caps.everything,
            by_use={use: by_use[use] for use in Use},
            strangers_bytes=self.strangers.bytes,
            strangers_bytes_max=self.caps.strangers,
            identity_bytes_max=self.caps.identity,
            connection_bytes_max=self.caps.connection,
            largest=largest,
            held_count=sum(1 for each in accounts if each.is_held),
            closed_count=self.closed_count,
            sockets=len(accounts),
            sockets_max=self.caps.socket_count,
            strangers=len(self.strangers.accounts),
            strangers_max=self.caps.stranger_count,
            cut_count=self.cut_count,
        )


@dataclass(frozen=True, slots=True)
class Holding:
    """What one connection holds; `identity` is None for a stranger."""

    address: str
    identity: str | None
    bytes: int
    by_use: dict[Use, int]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report:
    """The ledger at one moment."""

    bytes: int
    bytes_max: int
    by_use: dict[Use, int]
    strangers_bytes: int
    strangers_bytes_max: int
    identity_bytes_max: int
    connection_bytes_max: int
    largest: list[Holding]
    held_count: int
    closed_count: int
    sockets: int
    sockets_max: int | None
    strangers: int
    strangers_max: int
    cut_count: int
