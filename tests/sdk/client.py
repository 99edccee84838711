"""An SDK as the tests see it: sends, receivers and messages, whatever the language behind them.

Knows the operations of the protocol (``PROTOCOL.md``) and brings their answers into one form. Does not know how a
driver runs and which SDK it is, except for what the driver itself says that its SDK can't do. A ``Sdk`` belongs to one
test; the driver behind it is shared, and ``reset`` gives back everything that the test opened in it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .administration import Administration
from .driver import REQUEST_SECONDS_MAX, DriverProcess, SdkError

Spec = Mapping[str, Any]  # a "message in" of the protocol
How = Literal["single", "list", "batch"]
Mode = Literal["peek-lock", "receive-and-delete"]
SubQueue = Literal["dead-letter", "transfer-dead-letter"]
Credential = Mapping[str, str]  # a credential of the protocol

ARRIVAL_WAIT_MS = 60_000  # ends a hang: a message that was sent arrives before, however slow the machine is
RECONNECT_WAIT_MS = 15_000  # the same for one try of several, where the SDK has lost its link or connection
EMPTY_WAIT_MS = 300  # how long a receiver waits where nothing is expected
FIRST_EMPTY_WAIT_MS = 1_000  # the same in its first receive call: for some SDKs the time includes opening the link
PROCESS_WAIT_MS = 60_000  # ends a hang: a processor has its messages before
ACCEPT_WAIT_MS = 60_000  # ends a hang: a named session, and one that is free, is given or refused before
RECEIVE_CALLS_MAX = 100
LOSS_TRIES_MAX = 3

SETTABLE = (
    "body",
    "message_id",
    "subject",
    "session_id",
    "partition_key",
    "correlation_id",
    "content_type",
    "reply_to",
    "reply_to_session_id",
    "to",
    "ttl_ms",
    "scheduled_at_ms",
    "properties",
)


@dataclass(frozen=True)
class Message:
    """A received or peeked message: the protocol's "message out" with sequence numbers as integers.

    ``properties`` are in the protocol's form with every whole number and every timestamp as a ``long``, because some
    SDKs show no difference between them.
    """

    handle: str | None = field(default=None, compare=False)
    body: str | None = None
    body_size: int = 0
    body_sha256: str = ""
    message_id: str | None = None
    subject: str | None = None
    session_id: str | None = None
    partition_key: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    to: str | None = None
    ttl_ms: int | None = None
    scheduled_at_ms: int | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    sequence_number: int = 0
    enqueued_at_ms: int = 0
    expires_at_ms: int | None = None
    locked_until_ms: int | None = None
    delivery_count: int = 0
    state: str = "active"
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_letter_source: str | None = None

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Message:
        """The message of an answer."""
        values = {f.name: answer[f.name] for f in fields(cls) if answer.get(f.name) is not None}
        values["sequence_number"] = int(values["sequence_number"])
        values["properties"] = plain_properties(values.get("properties", {}))
        return cls(**values)

    @property
    def partition(self) -> int:
        """The partition that the top 16 bits of the sequence number name."""
        return self.sequence_number >> 48

    def as_sent(self) -> dict[str, Any]:
        """What a sender can set, without what is not set: comparable with the message that was sent."""
        return {name: value for name in SETTABLE if (value := getattr(self, name)) not in (None, {})}


def plain_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Typed properties with every whole number and timestamp as ``long``."""
    return {name: _plain_property(value) for name, value in properties.items()}


def _plain_property(value: Any) -> Any:
    if isinstance(value, Mapping) and value["type"] in ("int", "long", "timestamp"):
        return {"type": "long", "value": str(value["value"])}
    return value


def made_body_sha256(size_bytes: int) -> str:
    """The digest of the body that drivers make for ``body_size``."""
    period = bytes((index * 31 + 7) % 256 for index in range(256))
    return hashlib.sha256((period * (size_bytes // 256 + 1))[:size_bytes]).hexdigest()


class Receiver:
    """One open receiver."""

    def __init__(self, driver: DriverProcess, receiver_id: str) -> None:
        self._driver = driver
        self.id = receiver_id
        self.settle_s_max = REQUEST_SECONDS_MAX

    def receive(self, count_max: int = 1, wait_ms: int = ARRIVAL_WAIT_MS, **options: Any) -> list[Message]:
        """What one receive call of the SDK gives."""
        return self._messages("receive", max=count_max, wait_ms=wait_ms, **options)

    def receive_one(self) -> Message:
        """The next message; fails the test when none arrives."""
        messages = self.receive(1)
        assert len(messages) == 1, f"one message expected, received {messages}"
        return messages[0]

    def receive_all(self, count: int) -> list[Message]:
        """Exactly ``count`` messages, with as many receive calls as it takes; fails when they don't arrive."""
        messages: list[Message] = []
        for _ in range(RECEIVE_CALLS_MAX):
            if len(messages) >= count:
                break
            more = self.receive(count - len(messages))
            assert more, f"{count} messages expected, received {len(messages)}: {messages}"
            messages += more
        assert len(messages) == count
        return messages

    def complete(self, *messages: Message, transaction: str | None = None) -> None:
        """Complete messages that were received here."""
        for message in messages:
            self._settle(message, "complete", transaction=transaction)

    def abandon(self, message: Message, properties: Spec | None = None, transaction: str | None = None) -> None:
        """Abandon a message that was received here."""
        self._settle(message, "abandon", properties=properties, transaction=transaction)

    def defer(self, message: Message, properties: Spec | None = None, transaction: str | None = None) -> None:
        """Defer a message that was received here."""
        self._settle(message, "defer", properties=properties, transaction=transaction)

    def dead_letter(
        self,
        message: Message,
        reason: str | None = None,
        description: str | None = None,
        properties: Spec | None = None,
        transaction: str | None = None,
    ) -> None:
        """Dead-letter a message that was received here."""
        options = {"reason": reason, "description": description, "properties": properties, "transaction": transaction}
        self._settle(message, "dead-letter", **options)

    def renew_lock(self, message: Message) -> int:
        """Renew the lock of a message; returns the instant it holds until, in Unix milliseconds."""
        answer = self._request("renew_lock", message=message.handle)
        return int(answer["locked_until_ms"])

    def peek(self, count_max: int = 10, from_sequence_number: int | None = None) -> list[Message]:
        """What one peek call of the SDK gives."""
        start = None if from_sequence_number is None else str(from_sequence_number)
        return self._messages("peek", max=count_max, from_sequence_number=start)

    def peek_all(self, page: int = 10) -> list[Message]:
        """Every message, by peeking on from the last sequence number seen until there is no more."""
        messages: list[Message] = []
        while more := self.peek(page, messages[-1].sequence_number + 1 if messages else 1):
            messages += more
        return messages

    def peek_until(self, wanted: Callable[[list[Message]], bool]) -> list[Message]:
        """``peek_all``, repeated until it shows what is wanted; fails when it does not.

        For SDKs that don't wait until a settlement is confirmed: the peek may overtake it.
        """
        messages: list[Message] = []
        for _ in range(RECEIVE_CALLS_MAX):
            messages = self.peek_all()
            if wanted(messages):
                return messages
        raise AssertionError(f"peeking goes on showing {messages}")

    def receive_deferred(self, *sequence_numbers: int) -> list[Message]:
        """The deferred messages of these sequence numbers, locked."""
        return self._messages("receive_deferred", sequence_numbers=[str(number) for number in sequence_numbers])

    def close(self) -> None:
        """Close the receiver; its locks stay until they expire."""
        self._request("receiver_close")

    def _settle(self, message: Message, action: str, **options: Any) -> None:
        self._request("settle", self.settle_s_max, message=message.handle, action=action, **_present(options))

    def _messages(self, op: str, **arguments: Any) -> list[Message]:
        answer = self._request(op, **_present(arguments))
        return [Message.from_json(message) for message in answer["messages"]]

    def _request(self, op: str, timeout_s: float = REQUEST_SECONDS_MAX, **arguments: Any) -> dict[str, Any]:
        return self._driver.request(op, timeout_s=timeout_s, receiver=self.id, **arguments)


class SessionReceiver(Receiver):
    """One open receiver of one message session."""

    def __init__(self, driver: DriverProcess, receiver_id: str, session_id: str, locked_until_ms: int | None) -> None:
        super().__init__(driver, receiver_id)
        self.session_id = session_id
        self.locked_until_ms = locked_until_ms
        self.lock_token: str | None = None
        """Of a session that others may take over."""

    def complete_of(self, other: Receiver, message: Message) -> None:
        """Complete a message that another receiver of this session has received."""
        self._request("settle", message=message.handle, action="complete", received_by=other.id)

    def renew_session(self) -> int:
        """Renew the lock of the message session; returns the instant it holds until, in Unix milliseconds."""
        return int(self._request("session_renew")["locked_until_ms"])

    def state(self) -> bytes | None:
        """The state of the message session; None when it has none."""
        state = self._request("session_get_state").get("state_base64")
        return None if state is None else base64.b64decode(state)

    def set_state(self, state: bytes | None) -> None:
        """Set the state of the message session; None clears it."""
        encoded = None if state is None else base64.b64encode(state).decode()
        self._request("session_set_state", state_base64=encoded)


class Sdk:
    """One SDK for one test."""

    def __init__(self, driver: DriverProcess) -> None:
        self._driver = driver
        hello = driver.request("hello", timeout_s=REQUEST_SECONDS_MAX)
        self.name = driver.client.name
        self.property_types: Sequence[str] = hello["property_types"]
        self.keeps_peek_cursor: bool = hello.get("peek_cursor") is not False
        self.modifies_properties: bool = hello.get("modify_properties") is not False
        self.confirms_settlement: bool = hello.get("settlement_confirmed") is not False
        self.features: Sequence[str] = hello.get("features") or ()
        self.admin = Administration(driver)

    def send(
        self,
        entity: str,
        *messages: Spec,
        how: How = "single",
        transaction: str | None = None,
        timeout_s: float = REQUEST_SECONDS_MAX,
    ) -> None:
        """Send messages, one call each, as one list or as one batch."""
        arguments = _present({"entity": entity, "messages": messages, "how": how, "transaction": transaction})
        self._driver.request("send", timeout_s=timeout_s, **arguments)

    def fill_batch(self, entity: str, body_bytes: int, max_bytes: int | None = None) -> int:
        """Send one batch with as many messages as the SDK lets into it; returns their count."""
        arguments = _present({"entity": entity, "body_bytes": body_bytes, "max_bytes": max_bytes})
        answer = self._driver.request("fill_batch", timeout_s=REQUEST_SECONDS_MAX, **arguments)
        return int(answer["count"])

    def receiver(
        self,
        entity: str,
        mode: Mode = "peek-lock",
        sub_queue: SubQueue | None = None,
        prefetch: int | None = None,
        subscription: str | None = None,
        *,
        renewing: bool = False,
    ) -> Receiver:
        """Open a receiver. Some SDKs open its link with the first receive only."""
        options: dict[str, Any] = {
            "entity": entity,
            "subscription": subscription,
            "mode": mode,
            "sub_queue": sub_queue,
        }
        if renewing:  # only JavaScript's driver knows it
            options["renewing"] = True
        answer = self._request("receiver_open", **options, prefetch=prefetch)
        return Receiver(self._driver, answer["receiver"])

    def accept_session(
        self,
        entity: str,
        session_id: str | None = None,
        *,
        subscription: str | None = None,
        mode: Mode = "peek-lock",
        wait_ms: int = ACCEPT_WAIT_MS,
        shared: bool | None = None,
        lock_token: str | None = None,
    ) -> SessionReceiver:
        """Open a receiver of a message session: the named one, or the next that is free.

        A ``shared`` one can be taken over with its ``lock_token``.
        """
        options = {"entity": entity, "subscription": subscription, "mode": mode, "wait_ms": wait_ms}
        locking = {"shared": shared, "session_lock_token": lock_token}
        answer = self._request("session_accept", **options, **locking, session_id=session_id)
        receiver = SessionReceiver(
            self._driver, answer["receiver"], answer["session_id"], answer.get("locked_until_ms")
        )
        receiver.lock_token = answer.get("session_lock_token")
        return receiver

    def list_sessions(
        self, entity: str, subscription: str | None = None, updated_after_ms: int | None = None
    ) -> list[str]:
        """The ids of the message sessions that have messages or state, or whose state was set after an instant."""
        options = {"entity": entity, "subscription": subscription, "updated_after_ms": updated_after_ms}
        return list(self._request("session_list", **options)["session_ids"])

    def process(
        self, entity: str, count: int, *, concurrent: int, sessions: bool = False, failing: Sequence[str] = ()
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Run a processor until its handler was called ``count`` times: those calls, and where errors came from."""
        options = {"concurrent": concurrent, "count": count, "sessions": sessions, "failing": list(failing)}
        answer = self._request("process", entity=entity, wait_ms=PROCESS_WAIT_MS, **options)
        return list(answer["handled"]), list(answer["errors"])

    def schedule(self, entity: str, at_ms: int, *messages: Spec, transaction: str | None = None) -> list[int]:
        """Schedule messages for an instant (Unix ms); returns their sequence numbers, in order."""
        options = {"entity": entity, "messages": messages, "at_ms": at_ms, "transaction": transaction}
        return [int(number) for number in self._request("schedule", **options)["sequence_numbers"]]

    def cancel_scheduled(self, entity: str, *sequence_numbers: int) -> None:
        """Take scheduled messages back."""
        self._request("cancel_scheduled", entity=entity, sequence_numbers=[str(number) for number in sequence_numbers])

    def add_rule(self, topic: str, subscription: str, name: str, rule_filter: Spec, action: str | None = None) -> None:
        """Add a rule to a subscription; the filter is in the protocol's form."""
        options = {"entity": topic, "subscription": subscription, "name": name, "filter": rule_filter}
        self._request("rule_add", **options, action=action)

    def rules(self, topic: str, subscription: str) -> dict[str, tuple[Spec, str | None]]:
        """The rules of a subscription: filter and action by name."""
        answer = self._request("rule_list", entity=topic, subscription=subscription)
        return {rule["name"]: (rule["filter"], rule.get("action")) for rule in answer["rules"]}

    def remove_rule(self, topic: str, subscription: str, name: str) -> None:
        """Remove a rule from a subscription."""
        self._request("rule_remove", entity=topic, subscription=subscription, name=name)

    def delete_messages(self, entity: str, count_max: int, before_ms: int, sub_queue: SubQueue | None = None) -> int:
        """Delete the oldest messages that were enqueued before an instant (Unix ms); returns how many it were."""
        options = {"entity": entity, "sub_queue": sub_queue, "max": count_max, "before_ms": before_ms}
        return int(self._request("delete_messages", **options)["count"])

    def begin_transaction(self, via: str | Receiver) -> str:
        """Begin a transaction with the sender of an entity, or with a receiver; returns its id."""
        arguments = {"receiver": via.id} if isinstance(via, Receiver) else {"entity": via}
        return str(self._request("transaction_begin", **arguments)["transaction"])

    def end_transaction(self, transaction: str, *, commit: bool) -> None:
        """Commit a transaction or roll it back."""
        self._request("transaction_end", transaction=transaction, commit=commit)

    def round_trip(self) -> None:
        """Ask the driver what needs no connection; it takes note of what has happened to those that it has."""
        self._request("hello")

    def hear_of_loss(self, queue: str) -> None:
        """Ask something over the same connection until there is an answer: what was lost is known by then."""
        receiver = self.receiver(queue)
        for _ in range(LOSS_TRIES_MAX):
            try:
                receiver.peek()
            except SdkError:
                continue  # it met the loss
            receiver.close()
            return
        raise AssertionError("the loss goes on")

    def reset(
        self,
        *,
        cross_entity: bool = False,
        retries: Mapping[str, int] | None = None,
        credential: Credential | None = None,
        namespace: str | None = None,
        address: str | None = None,
    ) -> None:
        """Close everything that was opened through the driver; the next client may be one across entities.

        JavaScript's and Python's may have retries of their own: `max` of them, `delay_ms` apart, `try_ms` for each try.
        The next client may show a credential in place of the key, name a namespace that is not the host it connects to,
        or connect to another address (`host:port`).
        """
        if self._driver.alive:
            reach = {"credential": credential, "namespace": namespace, "address": address}
            self._request("reset", cross_entity=cross_entity or None, retries=retries, **reach)

    def _request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self._driver.request(op, timeout_s=REQUEST_SECONDS_MAX, **_present(arguments))


def _present(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
