"""A service in memory that answers as Azure's does where emubus answers better.

No operations of emubus; a peek of a partitioned entity gives one message and nothing of the next partition; batch
deletes are refused there; receivers lock. It is given to the source in the place of connections, so that no socket is
involved; bodies of requests and errors are tested with the wire.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from emubus.codec.encode import encode
from emubus.codec.types import Int, Symbol, Timestamp
from emubus.spark_connector.conditions import wire_error
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.options import SourceOptions, source_options
from emubus.spark_connector.source import claim, retries
from emubus.spark_connector.source.offsets import base_of, partition_of
from emubus.spark_connector.wire.values import described

from .kit import KilledError

CONNECTION_STRING = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=n;SharedAccessKey=azE="
START_MS = 1_900_000_000_000
ANSWER_COUNT = 40  # messages of an unpartitioned entity in one answer


@dataclass(order=True)
class Message:
    """What the service keeps of a message."""

    number: int
    enqueued_at_ms: int = field(compare=False)
    body: str = field(compare=False)
    session_id: str | None = field(default=None, compare=False)
    state: int = field(default=0, compare=False)
    properties: dict[str, str] = field(default_factory=dict[str, str], compare=False)
    is_locked: bool = field(default=False, compare=False)

    def encoded(self) -> bytes:
        """As it is peeked and delivered."""
        annotations = {
            Symbol("x-opt-sequence-number"): self.number,
            Symbol("x-opt-enqueued-time"): Timestamp(self.enqueued_at_ms),
            Symbol("x-opt-message-state"): Int(self.state),
        }
        return b"".join(
            (
                encode(described(0x72, annotations)),
                encode(described(0x73, [None] * 10 + [self.session_id])),
                encode(described(0x74, self.properties)),
                encode(described(0x75, self.body.encode())),
            )
        )


class Azure:
    """One entity; what was asked of it is counted in `calls`."""

    def __init__(self, partitions: Sequence[int] | None = None, *, requires_session: bool = False) -> None:
        self.partitioned = partitions is not None
        self.requires_session = requires_session
        self.messages: list[Message] = []
        self.now_ms = START_MS
        self.calls: dict[str, int] = {}
        self.out: set[int] = set()
        """Partitions that can't be reached."""
        self.busy_peeks = 0
        """So many peeks are refused because the service is busy."""
        self.failures: list[ConnectorError] = []
        """Raised by the next calls, one each."""
        self.calls_left: int | None = None
        """After so many calls the process that makes them is dead: each further one is a `KilledError`."""
        self._next = {partition: base_of(partition) + 1 for partition in partitions or (0,)}
        self._turn = 0

    def send(self, *bodies: object, session_id: str | None = None, gap_ms: int = 10) -> list[int]:
        """Messages without keys, in turn to the partitions; their numbers."""
        numbers = []
        for body in bodies:
            partitions = sorted(self._next)
            partition = partitions[self._turn % len(partitions)]
            self._turn += 1
            number = self._next[partition]
            self._next[partition] += 1
            self.now_ms += gap_ms
            insort(self.messages, Message(number, self.now_ms, str(body), session_id))
            numbers.append(number)
        return numbers

    def recreate(self, later_ms: int = 60_000) -> None:
        """The entity is deleted and created again."""
        self.messages.clear()
        self._next = {partition: base_of(partition) + 1 for partition in self._next}
        self.now_ms += later_ms

    def skip(self, count: int) -> None:
        """Use up numbers, as messages do that others have taken."""
        for partition in self._next:
            self._next[partition] += count

    def remove(self, numbers: Iterable[int]) -> None:
        """Somebody else takes messages."""
        gone = set(numbers)
        self.messages = [each for each in self.messages if each.number not in gone]

    def end_locks(self) -> None:
        """Time passes."""
        for each in self.messages:
            each.is_locked = False

    @property
    def numbers(self) -> list[int]:
        """What is there."""
        return [each.number for each in self.messages]

    def count(self, call: str) -> None:
        """Note a call, and fail it if it is to fail."""
        self.calls[call] = self.calls.get(call, 0) + 1
        if self.calls_left is not None:
            if not self.calls_left:
                raise KilledError(call)
            self.calls_left -= 1
        if self.failures:
            raise self.failures.pop(0)


class Connection:
    """Stands in for `wire.Connection`."""

    def __init__(self, service: Azure) -> None:
        self._service = service
        self.usable = True

    def management(self, entity: str) -> Management:
        """The node."""
        del entity
        return Management(self._service)

    def receiver(self, entity: str, *, session_id: str | None = None) -> Receiver:
        """A link."""
        del entity
        self._service.count("attach")
        if self._service.requires_session and session_id is None:
            raise ConnectorError(Code.SESSION_REQUIRED, "q: it requires sessions")
        return Receiver(self._service, session_id)


class Management:
    """Stands in for `wire.Management`."""

    def __init__(self, service: Azure) -> None:
        self._service = service
        self.unavailable_partitions = ()

    def partitions(self) -> None:
        """Not known."""
        self._service.count("partitions")

    def delete_before(self, *_: int) -> None:
        """Not known."""
        self._service.count("delete_before")

    def peek(self, from_sequence_number: int, count: int, *, partition_id: int | None = None) -> bytes | None:
        """One message where there are partitions, some where there are none; None at a partition's end."""
        number = from_sequence_number
        assert partition_id is None, "the service doesn't know this"
        self._service.count("peek")
        if partition_of(number) in self._service.out:
            raise wire_error("amqp:internal-error", "the partition is out", entity="q")
        if self._service.busy_peeks:
            self._service.busy_peeks -= 1
            raise wire_error("com.microsoft:server-busy", "the namespace is throttled", entity="q")
        messages = self._service.messages
        at = bisect_left(messages, number, key=lambda each: each.number)
        found = messages[at : at + min(count, ANSWER_COUNT)]
        if self._service.partitioned:
            found = [each for each in found[:1] if partition_of(each.number) == partition_of(number)]
        if not found:
            return None
        rows = [{"message": each.encoded()} for each in found]
        return encode(described(0x77, {"messages": rows}))

    def begin_peek(
        self, from_sequence_number: int, count: int, *, partition_id: int | None = None, deferred_only: bool = False
    ) -> Any:
        """Answered at once."""
        assert not deferred_only, "the service doesn't know this"
        try:
            return self.peek(from_sequence_number, count, partition_id=partition_id)
        except ConnectorError as error:
            return error

    def end(self, pending: Any) -> bytes | None:
        """The answer."""
        if isinstance(pending, ConnectorError):
            raise pending
        assert pending is None or isinstance(pending, bytes)
        return pending

    def batch_delete(self, count: int, enqueued_before_ms: int) -> int | None:
        """The oldest before a time; not with partitions."""
        self._service.count("batch_delete")
        if self._service.partitioned:
            return None
        gone = [
            each.number
            for each in self._service.messages
            if each.enqueued_at_ms < enqueued_before_ms and not each.is_locked and each.state == 0
        ][:count]
        self._service.remove(gone)
        return len(gone)

    def receive_by_sequence_number(self, numbers: Sequence[int], *, delete: bool) -> list[Any]:
        """Take deferred messages away, all or none."""
        assert delete
        self._service.count("receive_by_sequence_number")
        there = {each.number for each in self._service.messages if each.state == 1}
        if not set(numbers) <= there:
            raise wire_error("com.microsoft:message-not-found", "not there", entity="q")
        self._service.remove(numbers)
        return []

    def begin_disposition(self, *_: object, **__: object) -> None:
        """Refused at the end: outcomes of links are taken."""

    def end_disposition(self, _pending: None) -> None:
        """Not known."""
        self._service.count("update_disposition")
        raise wire_error("amqp:not-implemented", "not known", entity="q")

    def message_sessions(self) -> list[str]:
        """Those with messages."""
        return sorted({each.session_id for each in self._service.messages if each.session_id is not None})


@dataclass(frozen=True)
class Received:
    """Stands in for `wire.Received`."""

    number: int
    data: bytes
    lock_token: None = None


class Receiver:
    """Stands in for `wire.Receiver`: messages in the order of their numbers, locked until they are settled."""

    def __init__(self, service: Azure, session_id: str | None) -> None:
        self._service = service
        self._session_id = session_id

    def receive(self, count: int, wait_s: float) -> list[Received]:
        """What is there."""
        del wait_s
        self._service.count("receive")
        found = [
            each
            for each in self._service.messages
            if not each.is_locked and each.state == 0 and each.session_id == self._session_id
        ][:count]
        for each in found:
            each.is_locked = True
        return [Received(each.number, each.encoded()) for each in found]

    def ask(self, count: int) -> None:
        """Nothing comes before it is received."""

    def drain(self) -> list[Received]:
        """Nothing was sent besides."""
        return []

    def settle(self, received: Sequence[Received], outcome: Any) -> None:
        """Delete, give back, or defer."""
        self._service.count("settle")
        numbers = {each.number for each in received}
        for each in self._service.messages:
            if each.number in numbers:
                each.is_locked = False
                if not isinstance(outcome, str):
                    each.state = 1
                    each.properties |= outcome.properties
        if outcome == "accepted":
            self._service.remove(numbers)

    def close(self) -> None:
        """The link is gone; locks stay."""


def options_for(*, streaming: bool = True, **raw: object) -> SourceOptions:
    """A reader's options for a fake service; waits are short."""
    given = {"connectionString": CONNECTION_STRING, "queue": "q", "retryTimeout": "1s", "operationTimeout": "1s"}
    if streaming:
        given["pollInterval"] = "10ms"
    return source_options(given | {name: str(value) for name, value in raw.items()}, streaming=streaming)


class AtOnce:
    """Stands in for `claim_round.Ahead`: the work is done when the batch begins."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._error: Exception | None = None
        try:
            work()
        except Exception as error:
            self._error = error

    def join(self) -> None:
        """It is done."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """It is done."""


class AtTheEnd:
    """Stands in for `claim_round.Ahead`: the work is done when the batch is over."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.join = work

    def stop(self) -> None:
        """The process ends first."""


@contextlib.contextmanager
def serving(service: Azure, ahead: type[AtOnce | AtTheEnd] = AtTheEnd) -> Iterator[Azure]:
    """The source asks `service`, whatever its options say; a claim runs beside a batch at one of its ends."""

    @contextlib.contextmanager
    def pooled(*_: object) -> Iterator[Connection]:
        yield Connection(service)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retries, "pooled", pooled)
        patch.setattr(claim, "Ahead", ahead)
        yield service
