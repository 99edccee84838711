"""The part of the fake broker that is no plain queue: message sessions, schedules, transactions, rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emubus.broker.api import Claimed, Delivery, Extent, Outcome, ReceiveMode, Run, RunDone, SharedLock, TransactionRef
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import RuleDescription
from emubus.broker.service_errors import already_exists, not_found, scheduled_not_found, session_lock_lost

Done = Callable[[BrokerError | None], None]


def nothing(deliveries: Sequence[Delivery]) -> None:
    raise AssertionError(f"{len(deliveries)} deliveries before there was credit")


@dataclass
class FakeSessionConsumer:
    """A message session in the hands of a link; the test delivers and loses it."""

    session_id: str
    locked_until_at: int
    detached: Callable[[BrokerError], None]
    address: str = "q"
    lock_token: bytes | None = None
    deliver: Callable[[Sequence[Delivery]], None] = nothing
    credit: int = 0
    closed: bool = False
    settled: list[tuple[bytes, Outcome]] = field(default_factory=list)

    @property
    def holds_session(self) -> bool:
        return not self.closed

    def set_credit(self, count: int) -> None:
        self.credit = count

    def drain(self, drained: Callable[[], None]) -> None:
        self.credit = 0
        drained()

    def settle(self, run: Sequence[bytes], outcome: Outcome, done: RunDone | None) -> None:
        self.settled += [(token, outcome) for token in run]
        if done is not None:
            done(range(len(run)), None)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeWait:
    """A receiver that waits; the test grants or refuses."""

    address: str
    session_id: str | None
    mode: ReceiveMode
    timeout_ms: int
    granted: Callable[[Any], None]
    refused: Callable[[BrokerError], None]
    detached: Callable[[BrokerError], None]
    shared: SharedLock | None = None
    cancelled: bool = False

    def grant(
        self, session_id: str | None = None, until_at: int = 1_767_225_600_000, lock_token: bytes | None = None
    ) -> FakeSessionConsumer:
        consumer = FakeSessionConsumer(session_id or self.session_id or "", until_at, self.detached)
        consumer.lock_token = lock_token
        self.granted(consumer)
        return consumer

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class FakeTransactions:
    """What was declared (with its owner and via), worked and ended: by id."""

    declared: dict[bytes, tuple[object, Callable[[], Any]]] = field(default_factory=dict)
    work: list[tuple[object, ...]] = field(default_factory=list)
    ended: list[tuple[bytes, bool]] = field(default_factory=list)
    error: BrokerError | None = None
    let_go: list[bytes] = field(default_factory=list)
    on_commit: list[Callable[[], None]] = field(default_factory=list)
    connections: dict[bytes, object] = field(default_factory=dict)

    def declare(
        self, owner: object, via: Callable[[], Any] = lambda: None, *, connection: object = None
    ) -> TransactionRef:
        ref = TransactionRef(connection, b"txn\xff%d" % (len(self.declared) + 1))
        self.declared[ref.id] = (owner, via)
        self.connections[ref.id] = connection
        return ref

    def discharge(self, ref: TransactionRef, *, fail: bool, done: Done) -> None:
        try:
            self.check(ref)
        except BrokerError as error:
            done(error)
            return
        self.end(ref.id, fail)
        done(None)

    def end(self, transaction_id: bytes, fail: bool) -> None:
        del self.declared[transaction_id]
        self.ended.append((transaction_id, fail))
        calls, self.on_commit = self.on_commit, []
        for call in () if fail else calls:
            call()

    def leave(self, owner: object) -> None:
        for transaction_id in [each for each, (whose, _) in self.declared.items() if whose is owner]:
            self.end(transaction_id, fail=True)

    def open_count(self) -> int:
        return len(self.declared)

    def bytes_of(self, connection: object) -> int:
        del connection
        return sum(len(part) for each in self.work for part in each[2:] if isinstance(part, bytes))

    def open_count_of(self, connection: object) -> int:
        return sum(self.connections[each] is connection for each in self.declared)

    def transfer(
        self, ref: TransactionRef | None, via: Any, data: bytes, destination: str, done: Done, *, batch: bool
    ) -> None:
        self.work.append(("transfer", ref and ref.id, via, data, destination, batch))
        done(self.error)

    def check(self, ref: TransactionRef) -> None:
        if self.error is not None:
            raise self.error
        if ref.id not in self.declared or self.connections[ref.id] is not ref.connection:
            raise BrokerError(Condition.TRANSACTION_UNKNOWN_ID, "The transaction is unknown.")


@dataclass
class FakeAdministration:
    """The rules of the one subscription that there is."""

    path: str = "t/Subscriptions/s"
    all_rules: tuple[RuleDescription, ...] = ()

    def add_rule(self, path: str, rule: RuleDescription) -> None:
        if any(each.name == rule.name for each in self.rules(path)):
            raise already_exists("ns", f"{path}/Rules/{rule.name}")
        self.all_rules = (*self.all_rules, rule)

    def remove_rule(self, path: str, name: str) -> None:
        left = tuple(each for each in self.rules(path) if each.name != name)
        if len(left) == len(self.all_rules):
            raise not_found("ns", f"{path}/Rules/{name}")
        self.all_rules = left

    def rules(self, path: str) -> tuple[RuleDescription, ...]:
        if path.lower() != self.path.lower():
            raise BrokerError(Condition.NOT_ALLOWED, f"'{path}' has no rules: it is not a subscription.")
        return self.all_rules


class FakeSessions:
    """Verbs for message sessions; `states` has those that are held."""

    def __init__(self, calls: list[tuple[object, ...]]) -> None:
        self.states: dict[str, bytes | None] = {}
        self._calls = calls

    async def renew(self, address: str, session_id: str) -> int:
        self.held(session_id)
        return 1_767_225_600_000

    async def set_state(self, address: str, session_id: str, state: bytes | None) -> None:
        self.held(session_id)
        self.states[session_id] = state

    async def state(self, address: str, session_id: str) -> bytes | None:
        return self.held(session_id)

    async def names(self, address: str, updated_after: int | None) -> list[str]:
        self._calls.append(("sessions", address, updated_after))
        return sorted(self.states)

    def held(self, session_id: str) -> bytes | None:
        if session_id not in self.states:
            raise session_lock_lost()
        return self.states[session_id]


class FakeWork:
    """Work of transactions."""

    def __init__(self, transactions: FakeTransactions, sessions: FakeSessions) -> None:
        self._transactions = transactions
        self._sessions = sessions

    def send(self, ref: TransactionRef, sender: Any, data: bytes, *, batch: bool) -> None:
        self._transactions.check(ref)
        self._transactions.work.append(("send", ref.id, data, batch))

    async def schedule(self, ref: TransactionRef, address: str, encoded: Sequence[bytes]) -> list[int]:
        self._transactions.check(ref)
        self._transactions.work.append(("schedule", ref.id, address, list(encoded)))
        return [100 + index for index in range(len(encoded))]

    async def cancel(self, ref: TransactionRef, address: str, numbers: Sequence[int]) -> None:
        self._transactions.check(ref)
        self._transactions.work.append(("cancel", ref.id, address, list(numbers)))

    async def set_state(self, ref: TransactionRef, address: str, session_id: str, state: bytes | None) -> None:
        self._transactions.check(ref)
        self._sessions.held(session_id)
        self._transactions.work.append(("set state", ref.id, address, session_id, state))

    def settle(
        self,
        ref: TransactionRef,
        address: str,
        token: bytes,
        outcome: Outcome,
        *,
        settled: bool = False,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        self._transactions.check(ref)
        self._transactions.work.append(("settle", ref.id, address, token, outcome))
        if settled:
            self._transactions.let_go.append(token)
        if on_commit is not None:
            self._transactions.on_commit.append(on_commit)


class FakeVerbs:
    """Verbs of the broker; arguments are kept in `calls` for the tests to look at."""

    def __init__(self) -> None:
        self.waits: list[FakeWait] = []
        self.transactions = FakeTransactions()
        self.administration = FakeAdministration()
        self.calls: list[tuple[object, ...]] = []
        self.scheduled: dict[int, bytes] = {}
        self.sessions = FakeSessions(self.calls)
        self.work = FakeWork(self.transactions, self.sessions)
        self.accept_error: BrokerError | None = None
        self.deletable = 0

    def accept_session(
        self,
        address: str,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        timeout_ms: int,
        granted: Callable[[Any], None],
        refused: Callable[[BrokerError], None],
        detached: Callable[[BrokerError], None],
        client: str = "",
        shared: SharedLock | None = None,
    ) -> FakeWait:
        if self.accept_error is not None:
            raise self.accept_error
        self.waits.append(FakeWait(address, session_id, mode, timeout_ms, granted, refused, detached, shared))
        return self.waits[-1]

    async def schedule(self, address: str, encoded: Sequence[bytes]) -> list[int]:
        numbers = list(range(len(self.scheduled) + 1, len(self.scheduled) + 1 + len(encoded)))
        self.scheduled.update(zip(numbers, encoded, strict=True))
        self.calls.append(("schedule", address, list(encoded)))
        return numbers

    async def cancel_scheduled(self, address: str, numbers: Sequence[int]) -> None:
        if any(number not in self.scheduled for number in numbers):
            raise scheduled_not_found(numbers)
        self.calls.append(("cancel", address, list(numbers)))

    async def delete_messages(self, address: str, count: int, before_at: int, session_id: str | None = None) -> int:
        self.calls.append(("delete", address, count, before_at, session_id))
        return min(count, self.deletable)

    def generation(self, address: str) -> str:
        return "g-1"

    async def extents(self, address: str) -> list[Extent | None]:
        self.calls.append(("extents", address))
        return [Extent(0, 3, 8, 5), None, Extent(2, (2 << 48) + 1, (2 << 48) + 1, 0)]

    async def delete_before(self, address: str, partition_id: int, number: int, count: int) -> int:
        self.calls.append(("delete before", address, partition_id, number, count))
        return min(count, self.deletable)

    async def list_numbers(self, address: str, partition_id: int, first: int, count: int) -> list[int]:
        self.calls.append(("list numbers", address, partition_id, first, count))
        return [first, first + 7]

    async def delete_by_number(self, address: str, numbers: Sequence[int]) -> int:
        self.calls.append(("delete by number", address, [*numbers]))
        return min(len(numbers), self.deletable)

    async def claim(
        self,
        address: str,
        partition_id: int,
        before: int,
        count: int,
        properties: Mapping[str, object],
        finished: Sequence[Run] = (),
    ) -> Claimed:
        self.calls.append(("claim", address, partition_id, before, count, dict(properties), [*finished]))
        return Claimed([5, 3, 4, 9], more=True, kept=[1])
