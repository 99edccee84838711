"""Values that travel in two fields: what a client makes of the pair is what was sent, whichever way the message went.

A row of `WAYS` is a way of a message through the broker, from what a client sent to what a client gets; all of them are
walked by all `MESSAGES`. New ways and new pairs are a row each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, DeadLetter, Defer, Delivery, Home, ReceiveMode
from emubus.broker.aside import Aside
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.entities.entity import Entity
from emubus.broker.message.builder import envelope
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.broker.model.profiles import Profile, defaults_of, message_bytes_max
from emubus.codec.decode import decode
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Symbol, Timestamp, Uint, Ulong
from emubus.web.messages.jobs import Selection
from emubus.web.messages.transfer import exported, imported

from .namespace import Receiver, loop_turns, open_broker, send

NOW: Final = 1_800_000_000_000
LATENESS_MS: Final = 731  # between the sender's clock and the broker's, and before each hop
SCHEDULED_IN_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
UINT_MAX: Final = 2**32 - 1
HEADER, ANNOTATIONS, PROPERTIES = 0x70, 0x72, 0x73
TTLS: Final = (None, 2_000_000, UINT_MAX - 1, UINT_MAX, UINT_MAX + 1, 60 * DAY_MS, 400 * DAY_MS, 9_000_000_000_000)
KEYS: Final[Sequence[tuple[str | None, str | None]]] = ((None, None), (None, "k"), ("s", None), ("s", "s"))


@dataclass(frozen=True)
class Sent:
    """What a client means: its time to live, SessionId and PartitionKey, or None; and whether it has a clock."""

    ttl_ms: int | None
    session_id: str | None
    partition_key: str | None
    with_times: bool = True

    def encoded(self, now: int, scheduled_at: int | None = None) -> bytes:
        """The message as an SDK writes it at its time `now` (Unix ms)."""
        header = [None, None, None if self.ttl_ms is None else Uint(min(self.ttl_ms, UINT_MAX))]
        annotations: dict[object, object] = {}
        if self.partition_key is not None:
            annotations[Symbol("x-opt-partition-key")] = self.partition_key
        if scheduled_at is not None:
            annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(scheduled_at)
        fields: list[object] = [None] * 11
        if self.with_times and self.ttl_ms is not None:
            fields[8:10] = Timestamp(now + self.ttl_ms), Timestamp(now)
        fields[10] = self.session_id
        sections = ((HEADER, header), (ANNOTATIONS, annotations), (PROPERTIES, fields), (0x75, b"x"))
        return b"".join(encode_described(Ulong(code), encode(value)) for code, value in sections)


MESSAGES: Final = tuple(
    Sent(ttl_ms, session_id, partition_key, with_times)
    for ttl_ms in TTLS
    for session_id, partition_key in KEYS
    for with_times in ((True, False) if ttl_ms is not None and ttl_ms <= UINT_MAX else (True,))
)


@dataclass(frozen=True)
class Got:
    """What a client makes of a delivery, as the SDKs do."""

    ttl_ms: int | None
    header_ttl_ms: int | None
    session_id: str | None
    partition_key: str | None
    delivery_count: int
    sequence_number: int
    enqueued_at: int


def got(payload: bytes) -> Got:
    """The values of a delivered message. .NET, Java and JavaScript prefer the difference of the times to the header."""
    sections = sections_of(payload)
    header = [*sections.get(HEADER, []), *[None] * 5]
    fields = [*sections.get(PROPERTIES, []), *[None] * 13]
    annotations: Mapping[Any, Any] = sections.get(ANNOTATIONS, {})
    expiry, creation = fields[8], fields[9]
    ttl_ms = header[2] if expiry is None or creation is None else expiry - creation
    return Got(
        ttl_ms,
        header[2],
        fields[10],
        annotations.get("x-opt-partition-key"),
        header[4] or 0,
        annotations["x-opt-sequence-number"],
        annotations["x-opt-enqueued-time"],
    )


def sections_of(payload: bytes) -> dict[int, Any]:
    """The sections of an encoded message by their descriptor codes."""
    found: dict[int, Any] = {}
    at = 0
    while at < len(payload):
        assert payload[at : at + 2] == b"\x00\x53", "a section begins with a small descriptor"
        code = payload[at + 2]
        found[code], at = decode(payload, at + 3)
    return found


@dataclass
class Walk:
    """A broker, its clock, and what becomes of one message at a time."""

    broker: Broker
    clock: Clock

    async def sent(self, address: str, message: Sent, *, batch: bool = False, scheduled_in_ms: int = 0) -> None:
        """Send a message that was written a moment ago."""
        data = self.written(message, scheduled_in_ms)
        await send(self.broker, address, envelope([data]) if batch else data, batch=batch)

    def written(self, message: Sent, scheduled_in_ms: int = 0) -> bytes:
        """A message that was written a moment ago."""
        now = self.clock.now_ms()
        data = message.encoded(now, now + scheduled_in_ms if scheduled_in_ms else None)
        self.clock.advance(LATENESS_MS)
        return data

    async def received(self, address: str, settle: Callable[[], Any] | None = None) -> Delivery:
        """Receive one message: locked and settled as `settle()` says, or deleted."""
        mode = ReceiveMode.RECEIVE_AND_DELETE if settle is None else ReceiveMode.PEEK_LOCK
        receiver = Receiver(self.broker, address, mode)
        (delivery,) = await receiver.receive(1)
        if settle is not None:
            self.clock.advance(LATENESS_MS)
            assert await receiver.settle(delivery, settle()) is None
        receiver.consumer.close()
        return delivery

    def entity(self, path: str) -> Entity:
        """An entity that is there."""
        entity = self.broker.namespace.entity(path)
        assert entity is not None
        return entity


Way = Callable[[Walk, Sent], Awaitable[bytes]]


async def directly(walk: Walk, message: Sent) -> bytes:
    await walk.sent("q", message)
    return (await walk.received("q")).payload


async def in_a_batch(walk: Walk, message: Sent) -> bytes:
    await walk.sent("q", message, batch=True)
    return (await walk.received("q")).payload


async def through_partitions(walk: Walk, message: Sent) -> bytes:
    await walk.sent("parts", message)
    return (await walk.received("parts")).payload


async def scheduled(walk: Walk, message: Sent) -> bytes:
    await walk.sent("q", message, scheduled_in_ms=SCHEDULED_IN_MS)
    walk.clock.advance(SCHEDULED_IN_MS)
    return (await walk.received("q")).payload


async def scheduled_by_request(walk: Walk, message: Sent) -> bytes:
    await walk.broker.messages.schedule("parts", [walk.written(message, SCHEDULED_IN_MS)])
    walk.clock.advance(SCHEDULED_IN_MS)
    return (await walk.received("parts")).payload


async def forwarded_twice(walk: Walk, message: Sent) -> bytes:
    await walk.sent("first", message)
    return (await walk.received("third")).payload


async def copied(walk: Walk, message: Sent) -> bytes:
    await walk.sent("t", message)
    return (await walk.received("t/Subscriptions/s")).payload


async def copied_and_forwarded(walk: Walk, message: Sent) -> bytes:
    await walk.sent("on", message)
    return (await walk.received("third")).payload


async def dead_lettered(walk: Walk, message: Sent) -> bytes:
    await walk.sent("q", message)
    await walk.received("q", DeadLetter)
    return (await walk.received("q/$DeadLetterQueue")).payload


async def dead_lettered_and_forwarded(walk: Walk, message: Sent) -> bytes:
    await walk.sent("dead", message)
    await walk.received("dead", DeadLetter)
    return (await walk.received("third")).payload


async def resubmitted(walk: Walk, message: Sent) -> bytes:
    await walk.sent("q", message)
    await walk.received("q", DeadLetter)
    (dead,) = await walk.broker.messages.peek("q/$DeadLetterQueue", 0, 1, 1 << 20)
    entity = walk.entity("q")
    assert list((await entity.resubmit([got(dead).sequence_number], entity)).values()) == [None]
    return (await walk.received("q")).payload


async def deferred(walk: Walk, message: Sent) -> bytes:
    await walk.sent("q", message)
    number = (await walk.received("q", Defer)).sequence_number
    (delivery,) = await walk.broker.messages.receive_by_sequence_number("q", [number], ReceiveMode.RECEIVE_AND_DELETE)
    return delivery.payload


async def abandoned(walk: Walk, message: Sent) -> bytes:
    await walk.sent("q", message)
    await walk.received("q", Abandon)
    return (await walk.received("q")).payload


async def peeked(walk: Walk, message: Sent) -> bytes:
    await walk.sent("q", message)
    (payload,) = await walk.broker.messages.peek("q", 0, 1, 1 << 20)
    await walk.received("q")
    return payload


async def sent_through_another_queue(walk: Walk, message: Sent) -> bytes:
    answers: list[object] = []
    walk.broker.transactions.transfer(None, walk.entity("q"), walk.written(message), "third", answers.append)
    delivery = await walk.received("third")
    assert answers == [None]
    return delivery.payload


async def exported_and_imported(walk: Walk, message: Sent) -> bytes:
    await walk.sent("q", message)
    aside, entity = Aside(), walk.entity("q")
    lines = [line async for line in exported(walk.broker, entity, SubQueue.ACTIVE, Selection(), aside)]
    await walk.received("q")
    walk.clock.advance(LATENESS_MS)

    async def chunks() -> AsyncIterator[bytes]:
        for line in lines:
            yield line

    result = await imported(walk.broker, entity, chunks(), aside)
    assert result.failures == []
    return (await walk.received("q")).payload


WAYS: Final[Sequence[Way]] = (
    directly,
    in_a_batch,
    through_partitions,
    scheduled,
    scheduled_by_request,
    forwarded_twice,
    copied,
    copied_and_forwarded,
    dead_lettered,
    dead_lettered_and_forwarded,
    resubmitted,
    deferred,
    abandoned,
    peeked,
    sent_through_another_queue,
    exported_and_imported,
)
FAILED_ATTEMPTS: Final[Mapping[Way, int]] = {abandoned: 1, deferred: 1}
LEAVE_THE_QUEUE: Final = frozenset({dead_lettered, dead_lettered_and_forwarded})


@pytest.fixture
async def walk() -> Walk:
    clock = Clock(start_at=NOW, frozen=True)
    broker = open_broker(
        QueueDescription("q", max_delivery_count=100),
        QueueDescription("parts", enable_partitioning=True),
        QueueDescription("first", forward_to="second"),
        QueueDescription("second", forward_to="third"),
        QueueDescription("third"),
        QueueDescription("dead", forward_dead_letters_to="third"),
        QueueDescription("short", default_ttl_ms=60_000),
        clock=clock,
        profile=Profile.STANDARD,
    )
    for name, forward_to in (("t", None), ("on", "first")):
        broker.administration.create(TopicDescription(name))
        broker.administration.create(SubscriptionDescription(name, "s", forward_to=forward_to))
    return Walk(broker, clock)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_both_fields_say_what_was_sent_on_every_way(walk: Walk, way: Way) -> None:
    for message in MESSAGES:
        found = got(await way(walk, message))
        header_ttl_ms = None if message.ttl_ms is None else min(message.ttl_ms, UINT_MAX)
        assert (found.ttl_ms, found.header_ttl_ms) == (message.ttl_ms, header_ttl_ms), message
        assert (found.session_id, found.partition_key) == (message.session_id, message.partition_key), message
        if way not in LEAVE_THE_QUEUE:
            assert found.delivery_count == FAILED_ATTEMPTS.get(way, 0), message


async def test_the_time_to_live_that_an_entity_cuts_is_said_by_both_fields(walk: Walk) -> None:
    """A message whose time is cut where it arrives carries the shorter one on, in both fields."""
    for message in MESSAGES:
        await walk.sent("short", message)
        found = got((await walk.received("short")).payload)
        assert (found.ttl_ms, found.header_ttl_ms) == (60_000, 60_000), message


@pytest.mark.parametrize("with_times", [True, False])
async def test_a_message_ends_when_the_two_instants_that_a_client_adds_say_so(walk: Walk, with_times: bool) -> None:
    """ExpiresAt of the SDKs is EnqueuedTime + TimeToLive."""
    for address, target in (
        ("q", "q"),
        ("parts", "parts"),
        ("first", "third"),
        ("t", "t/Subscriptions/s"),
        ("on", "third"),
    ):
        for ttl_ms in (1_500, 60 * DAY_MS) if with_times else (1_500,):
            await walk.sent(address, Sent(ttl_ms, None, None, with_times))
            await loop_turns(200)
            (payload,) = await walk.broker.messages.peek(target, 0, 2, 1 << 20)
            found = got(payload)
            assert found.ttl_ms == ttl_ms
            walk.clock.advance(found.enqueued_at + ttl_ms - walk.clock.now_ms() - 1)
            assert len(await walk.broker.messages.peek(target, 0, 2, 1 << 20)) == 1
            walk.clock.advance(1)
            await loop_turns(20)
            assert await walk.broker.messages.peek(target, 0, 2, 1 << 20) == []


@pytest.mark.parametrize("partitioned", [False, True])
async def test_what_names_a_delivery_twice_names_the_same(walk: Walk, partitioned: bool) -> None:
    """The number, the end of the lock and the counts of an entity stand in several places."""
    path = "parts" if partitioned else "q"
    for number in range(8):
        await walk.sent(path, Sent(None, None, f"k{number}"))
    receiver = Receiver(walk.broker, path)
    deliveries = await receiver.receive(8)
    for delivery in deliveries:
        annotations = sections_of(delivery.payload)[ANNOTATIONS]
        assert annotations["x-opt-sequence-number"] == delivery.sequence_number
        assert annotations["x-opt-locked-until"] == walk.clock.now_ms() + 60_000
        (until_at,) = await walk.broker.messages.renew_locks(path, [delivery.token])
        assert until_at == annotations["x-opt-locked-until"]
        if partitioned:
            assert annotations["x-opt-partition-id"] == delivery.sequence_number >> 48
    entity = walk.entity(path)
    totals = entity.totals_now()
    assert totals.messages[Home.ACTIVE] == sum(entity.message_counts()) == 8


@pytest.mark.parametrize("profile", list(Profile))
async def test_the_limit_of_a_link_is_the_one_that_management_shows(profile: Profile) -> None:
    """A client reads the greatest message from the attach, an administrator from MaxMessageSizeInKilobytes."""
    broker = open_broker(profile=profile)
    limits = broker.limits
    sizes = (None,) if limits.message_bytes_settable is None else (None, 1 << 20, 3 << 20, 100 << 20)
    queue = QueueDescription("q", **defaults_of(QueueDescription, limits))
    broker.administration.create(queue)
    for size_bytes in sizes:
        entity = broker.administration.update(replace(queue, max_message_bytes=size_bytes))
        assert not isinstance(entity.description, SubscriptionDescription)
        sender = broker.open_sender("q", detached=print)
        shown = message_bytes_max(entity.description, limits)
        assert sender.message_bytes_max == shown == (size_bytes or limits.message_bytes_max)
        assert sender.batch_bytes_max <= max(shown, limits.batch_bytes_max)
        sender.close()
