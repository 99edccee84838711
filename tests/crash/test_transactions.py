"""`kill -9` at every step of a commit while transactions run: each is all there, or not at all (P29).

Every transaction completes one old message and sends three new ones that carry its name; the broker dies at the N-th
passage of a failpoint. After the restart the old message is gone exactly if all three new ones are there, and what was
confirmed is there.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from emubus.config import FAILPOINT_NAMES

from ..rounds import rounds
from .load import Peek
from .server import ServerProcess, check
from .test_kill import collect

OLD_MESSAGES = 60
SENT_PER_TRANSACTION = 3
OCCURRENCES = rounds((17,), (3, 11, 17, 29, 41))


class Fill(MessagingHandler):
    """Sends the old messages, then ends."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.accepted = 0
        self._sent = 0

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        event.container.create_sender(connection, "plain")

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._sent < OLD_MESSAGES:
            event.sender.send(Message(id=f"old-{self._sent}", body=b"x", inferred=True))
            self._sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == OLD_MESSAGES:
            event.connection.close()


class Work(MessagingHandler, TransactionHandler):
    """One transaction after the other, until the broker is gone."""

    def __init__(self, url: str) -> None:
        super().__init__(prefetch=1, auto_accept=False)
        self.url = url
        self.confirmed: list[str] = []
        self._sender: Any = None
        self._receiver: Any = None
        self._waiting: list[Any] = []
        self._transaction: Any = None
        self._name = ""

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self._sender = event.container.create_sender(connection, "plain")
        self._receiver = event.container.create_receiver(connection, "plain", options=Peek())
        event.container.declare_transaction(connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        self._work()

    def on_message(self, event: Any) -> None:
        self._waiting.append((str(event.message.id), event.delivery))
        self._work()

    def _work(self) -> None:
        while self._waiting and self._transaction is not None:
            name, delivery = self._waiting.pop(0)
            if not name.startswith("old-"):
                self._receiver.flow(1)  # a new one: leave it locked
                continue
            self._name = name
            transaction, self._transaction = self._transaction, None
            transaction.accept(delivery)
            for number in range(SENT_PER_TRANSACTION):
                transaction.send(self._sender, Message(id=f"new-{name}-{number}", body=b"x", inferred=True))
            transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.confirmed.append(self._name)
        if len(self.confirmed) == OLD_MESSAGES:
            event.container.stop()
            return
        self._receiver.flow(1)
        event.container.declare_transaction(event.connection, handler=self)

    def on_disconnected(self, event: Any) -> None:
        event.container.stop()

    def on_transport_error(self, event: Any) -> None:
        event.container.stop()


def fill(data: Path) -> None:
    server = ServerProcess(data, "--durability", "process")
    handler = Fill(server.url)
    Container(handler).run()
    assert server.stop() == 0
    assert handler.accepted == OLD_MESSAGES


def work_until_killed(data: Path, *options: str) -> list[str]:
    server = ServerProcess(data, "--durability", "process", *options)
    handler = Work(server.url)
    try:
        Container(handler).run()  # until the broker dies, or all transactions are committed
    finally:
        server.process.kill()
        server.wait()
    assert "Traceback" not in server.log, server.log
    return handler.confirmed


def assert_all_or_nothing(found: Counter[str], confirmed: list[str]) -> None:
    for number in range(OLD_MESSAGES):
        name = f"old-{number}"
        new = sum(found[f"new-{name}-{each}"] for each in range(SENT_PER_TRANSACTION))
        assert (found[name], new) in {(1, 0), (0, SENT_PER_TRANSACTION)}, name
        if name in confirmed:
            assert new == SENT_PER_TRANSACTION


@pytest.mark.slow
@pytest.mark.parametrize("occurrence", OCCURRENCES)
@pytest.mark.parametrize("failpoint", FAILPOINT_NAMES)
def test_p29_a_transaction_is_all_there_or_not_at_all(tmp_path: Path, failpoint: str, occurrence: int) -> None:
    data = tmp_path / "data"
    fill(data)
    confirmed = work_until_killed(data, "--failpoint", f"{failpoint}:{occurrence}")
    check(data)
    assert_all_or_nothing(collect(data), confirmed)
    check(data)


def test_transactions_really_commit(tmp_path: Path) -> None:
    """The test above would pass with a broker that never commits; this one would not."""
    data = tmp_path / "data"
    fill(data)
    confirmed = work_until_killed(data)
    assert len(confirmed) == OLD_MESSAGES
    found = collect(data)
    assert_all_or_nothing(found, confirmed)
    assert sum(found.values()) == OLD_MESSAGES * SENT_PER_TRANSACTION
