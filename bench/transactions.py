"""The load client's links in transactions: `GROUP` messages each, several transactions at a time.

Knows the coordinator link and the transactional state [AMQP 4]. A transaction is declared; its messages are sent, or
received ones completed, in its name; when all are answered it is committed. A transaction that is not committed fails
the run.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from cproton_ffi import ffi, lib
from engine import Engine, Pointer, TagWriter, put_bytes
from links import Receiving, Sending, is_accepted
from messages import GROUP, Template

OPEN_MAX: Final = 10
"""Transactions that are open at a time."""

DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34
_ACCEPTED: Final = 0x24
_DECLARE: Final = bytes.fromhex("00537700533145")


def _discharge(transaction: bytes) -> bytes:
    """A commit: amqp-value of the described list [transaction id, fail = false]."""
    fields = b"\xa0" + bytes([len(transaction)]) + transaction + b"\x42"
    return bytes.fromhex("005377005332c0") + bytes([len(fields) + 1, 2]) + fields


class Coordinator:
    """The link by which transactions are declared and committed, and the deliveries that belong to them.

    A transaction is committed when all its deliveries have their answers.
    """

    def __init__(self, engine: Engine) -> None:
        self.link = engine.open_coordinator("bench-coordinator")
        self._declared: deque[bytes] = deque()
        self._declaring = 0
        self._open = 0
        self._tags = TagWriter()
        self._sent = 0
        self._commits: set[Pointer] = set()
        self._transactions: dict[Pointer, bytes] = {}
        self._unanswered: dict[bytes, int] = {}

    @property
    def idle(self) -> bool:
        """True when no transaction is open."""
        return self._open == 0

    def declare(self, needed: int) -> None:
        """Ask for as many transactions as are needed and allowed."""
        while self._open < OPEN_MAX and self._declaring + len(self._declared) < needed:
            self._declaring += 1
            self._open += 1
            self._send(_DECLARE)

    def next(self) -> bytes | None:
        """A declared transaction without deliveries, if there is one; it is the caller's."""
        return self._declared.popleft() if self._declared else None

    def enlist(self, transaction: bytes, delivery: Pointer, outcome: int | None) -> None:
        """Make a delivery, with its outcome if it is one that we received, a part of a transaction."""
        self._transactions[delivery] = transaction
        self._unanswered[transaction] = self._unanswered.get(transaction, 0) + 1
        _set_state(delivery, transaction, outcome)

    def answered(self, delivery: Pointer) -> bool:
        """Whether the answer to an enlisted delivery has come, for the first time. Raises EngineError if it is no."""
        transaction = self._transactions.get(delivery)
        if transaction is None or not is_accepted(delivery, TRANSACTIONAL):
            return False
        del self._transactions[delivery]
        self._unanswered[transaction] -= 1
        if not self._unanswered[transaction]:
            del self._unanswered[transaction]
            self._commits.add(self._send(_discharge(transaction)))
        return True

    def event(self, delivery: Pointer) -> None:
        """Handle the answer to a declaration or a commit. Raises EngineError if it is a refusal."""
        if delivery in self._commits:
            if is_accepted(delivery):
                self._commits.remove(delivery)
                self._open -= 1
                lib.pn_delivery_settle(delivery)
        elif is_accepted(delivery, DECLARED):
            self._declared.append(_transaction_of(delivery))
            self._declaring -= 1
            lib.pn_delivery_settle(delivery)

    def _send(self, command: bytes) -> Pointer:
        self._tags.write(self._sent)
        self._sent += 1
        delivery = lib.pn_delivery(self.link, self._tags.tag)
        lib.pn_link_send(self.link, command, len(command))
        lib.pn_link_advance(self.link)
        return delivery


def _transaction_of(delivery: Pointer) -> bytes:
    data = lib.pn_disposition_data(lib.pn_delivery_remote(delivery))
    lib.pn_data_rewind(data)
    lib.pn_data_next(data)
    lib.pn_data_enter(data)
    lib.pn_data_next(data)
    found = lib.pn_data_get_binary(data)
    return bytes(ffi.buffer(found.start, found.size))


def _set_state(delivery: Pointer, transaction: bytes, outcome: int | None) -> None:
    """Give a delivery the state {transaction, outcome}."""
    data = lib.pn_disposition_data(lib.pn_delivery_local(delivery))
    lib.pn_data_clear(data)
    lib.pn_data_put_list(data)
    lib.pn_data_enter(data)
    put_bytes(lib.pn_data_put_binary, data, transaction)
    if outcome is not None:
        lib.pn_data_put_described(data)
        lib.pn_data_enter(data)
        lib.pn_data_put_ulong(data, outcome)
        lib.pn_data_put_list(data)
        lib.pn_data_exit(data)
    lib.pn_data_exit(data)
    lib.pn_delivery_update(delivery, TRANSACTIONAL)


class TransactedSending(Sending):
    """Sends each `GROUP` of messages in a transaction of its own."""

    def __init__(self, engine: Engine, address: str, count: int, template: Template) -> None:
        super().__init__(engine, address, count, template, count)
        self._coordinator = Coordinator(engine)
        self.links.append(self._coordinator.link)

    @property
    def done(self) -> bool:
        """True when all transactions are committed."""
        return super().done and self._coordinator.idle

    def step(self) -> None:
        """Declare transactions and send what belongs to declared ones."""
        coordinator = self._coordinator
        coordinator.declare((self.count - self.sent) // GROUP)
        while lib.pn_link_credit(self.link) - lib.pn_link_queued(self.link) >= GROUP:
            if (transaction := coordinator.next()) is None:
                return
            for number in range(self.sent, self.sent + GROUP):
                self._tags.write(number)
                self._template.write(number)
                delivery = lib.pn_delivery(self.link, self._tags.tag)
                lib.pn_link_send(self.link, self._template.data, self._template.length)
                coordinator.enlist(transaction, delivery, None)
                lib.pn_link_advance(self.link)
            self.sent += GROUP

    def event(self, delivery: Pointer) -> None:
        """Handle an answer of the coordinator, or the outcome of a message within its transaction."""
        if lib.pn_delivery_link(delivery) == self._coordinator.link:
            self._coordinator.event(delivery)
        elif self._coordinator.answered(delivery):
            self.accepted += 1
            lib.pn_delivery_settle(delivery)


class TransactedReceiving(Receiving):
    """Completes each `GROUP` of neighbouring messages in a transaction of its own."""

    def __init__(self, engine: Engine, address: str, count: int, seen: bytearray, window: int) -> None:
        super().__init__(engine, address, count, seen, window, confirmed=True)
        self._coordinator = Coordinator(engine)
        self._groups: dict[int, list[Pointer]] = {}
        self._whole: deque[list[Pointer]] = deque()
        self.links.append(self._coordinator.link)

    @property
    def done(self) -> bool:
        """True when all transactions are committed, and all completions are confirmed."""
        return super().done and self._coordinator.idle

    def step(self) -> None:
        """Grant credit, declare transactions for groups that are whole, and complete those."""
        super().step()
        coordinator = self._coordinator
        coordinator.declare(len(self._whole))
        while self._whole and (transaction := coordinator.next()) is not None:
            for delivery in self._whole.popleft():
                coordinator.enlist(transaction, delivery, _ACCEPTED)

    def event(self, delivery: Pointer) -> None:
        """Handle an answer of the coordinator, a message, the answer to its completion, or the commit of that."""
        if lib.pn_delivery_link(delivery) == self._coordinator.link:
            self._coordinator.event(delivery)
        elif not lib.pn_delivery_readable(delivery):
            self._coordinator.answered(delivery)
            if lib.pn_delivery_settled(delivery):
                self.answered += 1
                lib.pn_delivery_settle(delivery)
        elif not lib.pn_delivery_partial(delivery):
            number = self._take() // GROUP
            group = self._groups.setdefault(number, [])
            group.append(delivery)
            lib.pn_link_advance(self.link)
            if len(group) == GROUP:
                self._whole.append(self._groups.pop(number))
