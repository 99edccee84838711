"""The namespace that the kill rounds use, and a peer that uses all of it at once until the broker dies.

Knows the entities, where a message sent to each of them belongs (`PLACES`), and what the broker confirmed
(`Confirmed`). The judgement is in `namespace_rounds`. Plain Proton, not an SDK, so that hundreds of deliveries are
under way at the kill.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from proton import Delivery, Message, symbol, timestamp
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, Container, Filter

from emubus.broker.model.descriptions import DEFAULT_RULE_NAME, JmsSubscription, SelectorFilter
from emubus.testing import (
    Description,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)

LOCK_MS: Final = 300_000
SESSIONS: Final = 7
KEYS: Final = 20
SOON_MS, LATER_MS = 150, 3_600_000
SESSION_FILTER: Final = symbol("com.microsoft:session-filter")
PARTITION_KEY: Final = symbol("x-opt-partition-key")
SCHEDULED_AT: Final = symbol("x-opt-scheduled-enqueue-time")


def _queue(name: str, **settings: Any) -> QueueDescription:
    return QueueDescription(name, lock_duration_ms=LOCK_MS, max_delivery_count=1000, **settings)


def _subscription(topic: str, name: str, **settings: Any) -> SubscriptionDescription:
    return SubscriptionDescription(topic, name, lock_duration_ms=LOCK_MS, max_delivery_count=1000, **settings)


def _jms_subscription(topic: str, name: str, selector: str) -> SubscriptionDescription:
    jms = JmsSubscription("client", is_durable=True, is_shared=False)
    rules = (RuleDescription(DEFAULT_RULE_NAME, SelectorFilter(selector)),)
    return _subscription(topic, f"{name}{jms.suffix}", jms=jms, rules=rules)


_REGROUPED = RuleDescription("regroup", action="SET sys.SessionId = user.team")

ENTITIES: Final[tuple[Description, ...]] = (
    _queue("plain"),
    _queue("parts", enable_partitioning=True, forward_dead_letters_to="graves"),
    _queue("sessions", enable_partitioning=True, requires_session=True),
    _queue("ledger"),
    _queue("target", enable_partitioning=True),
    _queue("graves", enable_partitioning=True),
    _queue("forwarding", enable_partitioning=True, forward_to="target"),
    _queue("chain", forward_to="news"),
    TopicDescription("news", enable_partitioning=True),
    _subscription("news", "all"),
    _subscription("news", "teams", requires_session=True, rules=(_REGROUPED,)),
    _subscription("news", "onward", forward_to="target"),
    TopicDescription("small-news"),
    _subscription("small-news", "all"),
    _jms_subscription("small-news", "teams", "team LIKE 'team-%' AND JMSPriority = 4"),
    _jms_subscription("small-news", "nobody", "team = 'nobody'"),
)

_NEWS: Final = frozenset({"news/Subscriptions/all", "news/Subscriptions/teams", "target"})
PLACES: Final[dict[str, frozenset[str]]] = {
    "plain": frozenset({"plain"}),
    "parts": frozenset({"parts"}),
    "sessions": frozenset({"sessions"}),
    "forwarding": frozenset({"target"}),
    "chain": _NEWS,
    "news": _NEWS,
    "small-news": frozenset({"small-news/Subscriptions/all", "small-news/Subscriptions/teams$client$D"}),
}
"""By the address that a message is sent to: the entities that hold one copy each in the end."""

RECEIVED: Final = ("plain", "parts", "news/Subscriptions/all", "target", "small-news/Subscriptions/teams$client$D")
"""The peer settles what it receives from these, and from two sessions of `sessions`."""

DEAD_LETTERS: Final[dict[str, tuple[str, str]]] = {"parts": ("graves", "active")}
"""Where dead letters of an entity go, if not into its own dead-letter queue."""

LEDGER_OLD: Final = 40
LEDGER_NEW: Final = 3


@dataclass
class Confirmed:
    """What the peer sent and asked for, and what of it the broker confirmed before it died."""

    sent_to: dict[str, str] = field(default_factory=dict[str, str])  # address of every message, by name
    accepted: set[str] = field(default_factory=set[str])
    refused: list[str] = field(default_factory=list[str])
    completing: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  # (entity, name)
    completed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    burying: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  # dead-letter was asked for
    buried: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    committing: set[str] = field(default_factory=set[str])  # old messages of the ledger
    committed: set[str] = field(default_factory=set[str])


class PeekLock(AtLeastOnce):
    """Peek-lock: the receiver asks for confirmation of its settlements (rcv-settle-mode second)."""

    def apply(self, link: Any) -> None:
        """Set the settle modes of both ends."""
        super().apply(link)
        link.rcv_settle_mode = 1


class NamespaceLoad(MessagingHandler):
    """Sends to every address, settles what comes back and commits transactions, until it is disconnected."""

    def __init__(self, url: str, seed: int, messages_max: int, kill: Callable[[], None], kill_at: int) -> None:
        """`kill` is called at the `kill_at`-th confirmation, if the broker didn't die before."""
        super().__init__(auto_accept=False, prefetch=0)
        self.confirmed = Confirmed()
        self._kill = kill
        self._kill_at = kill_at
        self._count = 0
        self._url = url
        self._messages_max = messages_max
        self._random = random.Random(seed)
        self._asked: dict[Delivery, tuple[set[tuple[str, str]], tuple[str, str]]] = {}
        self._received = 0

    # ---- the links

    def on_start(self, event: Any) -> None:
        """Open all links; one session of the connection each, as most SDKs do."""
        connect = {"reconnect": False, "allowed_mechs": "ANONYMOUS"}
        connection = event.container.connect(self._url, **connect)
        for address in PLACES:
            event.container.create_sender(connection, address, options=AtLeastOnce())
        for entity in RECEIVED:
            event.container.create_receiver(connection, entity, options=PeekLock()).flow(40)
        for number in range(2):
            named: dict[Any, Any] = {SESSION_FILTER: f"session-{number}"}
            receiver = event.container.create_receiver(
                connection, "sessions", name=f"session-{number}", options=[PeekLock(), Filter(named)]
            )
            receiver.flow(40)

    def on_disconnected(self, event: Any) -> None:
        """The broker is gone."""
        event.container.stop()

    def on_transport_error(self, event: Any) -> None:
        """The broker is gone."""
        event.container.stop()

    # ---- sending

    def on_sendable(self, event: Any) -> None:
        """Fill the link's window, up to 40 at a time."""
        self._send(event.sender)

    def _send(self, sender: Any) -> None:
        address = sender.target.address
        names = self.confirmed.sent_to
        while sender.credit and len(names) < self._messages_max and sender.queued < 40:
            name = f"{address}-{len(names)}"
            names[name] = address
            sender.send(self._message(name, address), tag=name)

    def _message(self, name: str, address: str) -> Message:
        chance = self._random
        annotations: dict[Any, Any] = {}
        team = {"team": f"team-{chance.randrange(SESSIONS)}"}
        message = Message(id=name, body=b"x" * chance.randrange(700), properties=team, inferred=True)
        if address == "sessions":
            message.group_id = f"session-{chance.randrange(SESSIONS)}"
        elif chance.random() < 0.5:
            annotations[PARTITION_KEY] = f"key-{chance.randrange(KEYS)}"
        if chance.random() < 0.15:
            # The broker is a process of its own and keeps the machine's time.
            at = time.time() * 1000 + (SOON_MS if chance.random() < 0.6 else LATER_MS)
            annotations[SCHEDULED_AT] = timestamp(int(at))
        message.annotations = annotations or None
        return message

    def on_accepted(self, event: Any) -> None:
        """A send that the broker acknowledged."""
        if event.link.is_sender:
            self.confirmed.accepted.add(event.delivery.tag)
            self._confirmation()
            self._send(event.link)

    def on_rejected(self, event: Any) -> None:
        """A send that the broker refused."""
        if event.link.is_sender:
            self.confirmed.refused.append(event.delivery.tag)

    # ---- receiving

    def on_message(self, event: Any) -> None:
        """Complete most, dead-letter some, leave the others locked: they are there again after the restart."""
        self._received += 1
        what = (event.receiver.source.address, str(event.message.id))
        kind = self._received % 5
        if kind == 0:
            return
        event.receiver.flow(1)
        confirmed = self.confirmed
        asked, done = (
            (confirmed.burying, confirmed.buried) if kind == 1 else (confirmed.completing, confirmed.completed)
        )
        asked.add(what)
        self._asked[event.delivery] = (done, what)
        event.delivery.update(Delivery.REJECTED if kind == 1 else Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        """A settlement that the broker confirmed."""
        if event.link.is_receiver:
            done, what = self._asked.pop(event.delivery, (None, None))
            state = Delivery.REJECTED if done is self.confirmed.buried else Delivery.ACCEPTED
            if done is not None and what is not None and event.delivery.remote_state == state:
                done.add(what)
                self._confirmation()

    def _confirmation(self) -> None:
        self._count += 1
        if self._count == self._kill_at:
            self._kill()


class LedgerLoad(MessagingHandler):
    """Transactions on the queue `ledger`: each completes an old message and sends three that carry its name."""

    def __init__(self, url: str, confirmed: Confirmed) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.confirmed = confirmed
        self._url = url
        self._sender: Any = None
        self._receiver: Any = None
        self._transaction: Any = None
        self._waiting: list[tuple[str, Any]] = []
        self._stored = 0
        self._name = ""

    def on_start(self, event: Any) -> None:
        """Open the links and send the old messages."""
        connection = event.container.connect(self._url, reconnect=False, allowed_mechs="ANONYMOUS")
        self._sender = event.container.create_sender(connection, "ledger")
        self._receiver = event.container.create_receiver(connection, "ledger", options=PeekLock())
        event.container.declare_transaction(connection, handler=_Handlers(self._declared, self._committed))
        for number in range(LEDGER_OLD):
            self._sender.send(Message(id=f"old-{number}", body=b"x", inferred=True), tag=f"old-{number}")

    def on_accepted(self, event: Any) -> None:
        """An old message is stored; when all are, they are received."""
        if event.link == self._sender and event.delivery.tag.startswith("old-"):
            self._stored += 1
            self.confirmed.accepted.add(event.delivery.tag)
            if self._stored == LEDGER_OLD:
                self._receiver.flow(1)

    def on_message(self, event: Any) -> None:
        """A message of the ledger: an old one is worked on, a new one stays locked."""
        name = str(event.message.id)
        if name.startswith("old-"):
            self._waiting.append((name, event.delivery))
            self._work()
        else:
            self._receiver.flow(1)

    def _declared(self, event: Any) -> None:
        self._transaction = event.transaction
        self._work()

    def _work(self) -> None:
        if not self._waiting or self._transaction is None:
            return
        self._name, delivery = self._waiting.pop(0)
        self.confirmed.committing.add(self._name)
        transaction, self._transaction = self._transaction, None
        transaction.accept(delivery)
        for number in range(LEDGER_NEW):
            transaction.send(self._sender, Message(id=f"new-{self._name}-{number}", body=b"x", inferred=True))
        transaction.commit()

    def _committed(self, event: Any) -> None:
        self.confirmed.committed.add(self._name)
        self._receiver.flow(1)
        event.container.declare_transaction(event.connection, handler=_Handlers(self._declared, self._committed))

    def on_disconnected(self, event: Any) -> None:
        """The broker is gone."""
        event.container.stop()

    def on_transport_error(self, event: Any) -> None:
        """The broker is gone."""
        event.container.stop()


class _Handlers:
    """What Proton calls back about a transaction."""

    def __init__(self, declared: Callable[[Any], None], committed: Callable[[Any], None]) -> None:
        self.on_transaction_declared = declared
        self.on_transaction_committed = committed


def run(handler: MessagingHandler) -> None:
    """Run a peer until the broker is gone."""
    Container(handler).run()
