"""The broker as a whole: routing, dispatching, committing, restarting. No wire."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emubus.broker.api import Abandon, Complete, ReceiveMode, partition_for_key
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.entities.router import Router
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.builder import NewMessage, envelope
from emubus.broker.message.message import parse_message
from emubus.broker.model.catalog import CatalogError
from emubus.broker.model.descriptions import EntityStatus, QueueDescription, TopicDescription
from emubus.broker.service_errors import key_missing, mixed_ids

from .driving import decoded, encoded, read
from .namespace import Receiver, loop_turns, open_broker, per_partition, send

PARTITIONED = QueueDescription("parts", enable_partitioning=True)
PLAIN = QueueDescription("plain")


def batch(*messages: bytes) -> bytes:
    """An envelope as SDKs send it: one data section per encoded message."""
    return b"".join(b"\x00\x53\x75\xb0" + len(each).to_bytes(4, "big") + each for each in messages)


def keyed(key: str, body: str = "x") -> bytes:
    return encoded(body, annotations={"x-opt-partition-key": key})


def test_p10_a_key_goes_to_the_same_partition_on_every_machine() -> None:
    assert [partition_for_key(key, 16) for key in ("a", "order-1", "", "Zürich")] == [3, 15, 0, 2]


def test_p08_session_id_comes_before_partition_key_and_message_id() -> None:
    router = Router(16)
    session = parse_message(encoded(group_id="s", id="m"))
    key = parse_message(encoded(annotations={"x-opt-partition-key": "k"}, id="m"))
    plain = parse_message(encoded(id="m"))
    assert router.route_keyed([session], duplicate_detection=True) == partition_for_key("s", 16)
    assert router.route_keyed([key], duplicate_detection=True) == partition_for_key("k", 16)
    assert router.route_keyed([plain], duplicate_detection=True) == partition_for_key("m", 16)
    assert router.route_keyed([plain], duplicate_detection=False) is None


async def test_p09_session_id_and_partition_key_that_differ_are_refused() -> None:
    broker = open_broker(PARTITIONED)
    with pytest.raises(BrokerError) as refused:
        await send(broker, "parts", encoded(group_id="s", annotations={"x-opt-partition-key": "k"}))
    assert refused.value.condition is Condition.NOT_ALLOWED
    assert await Receiver(broker, "parts").drain() == []


async def test_p11_messages_without_a_key_fill_the_partitions_evenly() -> None:
    broker = open_broker(PARTITIONED)
    for _ in range(160):
        await send(broker, "parts", encoded())
    assert per_partition(await Receiver(broker, "parts").drain()) == dict.fromkeys(range(16), 10)


async def test_p10_a_key_stays_on_its_partition_over_a_restart(tmp_path: Path) -> None:
    broker = open_broker(PARTITIONED, folder=tmp_path)
    for number in range(32):
        await send(broker, "parts", keyed(f"key-{number % 4}"))
    await broker.stop()
    broker = open_broker(PARTITIONED, folder=tmp_path)
    for number in range(32):
        await send(broker, "parts", keyed(f"key-{number % 4}"))
    found = await Receiver(broker, "parts").drain()
    places: dict[str, set[int]] = {}
    for delivery, message in zip(found, decoded(found), strict=True):
        places.setdefault(message.annotations["x-opt-partition-key"], set()).add(delivery.sequence_number >> 48)
    assert places == {f"key-{n}": {partition_for_key(f"key-{n}", 16)} for n in range(4)}
    assert len(found) == 64


async def test_p12_a_batch_with_different_keys_is_refused_whole() -> None:
    broker = open_broker(PARTITIONED, PLAIN)
    data = batch(keyed("a"), keyed("b"))
    with pytest.raises(BrokerError) as refused:
        await send(broker, "parts", data, batch=True)
    assert refused.value.condition is Condition.NOT_ALLOWED
    assert await Receiver(broker, "parts").drain() == []
    await send(broker, "plain", data, batch=True)
    assert len(await Receiver(broker, "plain").drain()) == 2


@pytest.mark.parametrize("topic", [False, True])
@pytest.mark.parametrize("way", ["send", "batch", "run", "schedule"])
async def test_p08_a_message_without_a_key_is_refused_where_its_id_would_be_the_key(way: str, topic: bool) -> None:
    """As five teams met it in production; texts: azure-docs 30242, HealthChecks 248 and 255."""
    broker = open_broker(PARTITIONED)
    kind = TopicDescription if topic else QueueDescription
    broker.administration.create(kind("once", enable_partitioning=True, requires_duplicate_detection=True))
    bare, *taken = (
        NewMessage(b"x").encoded(),
        NewMessage(b"x", {"message-id": "m"}).encoded(),
        NewMessage(b"x", partition_key="k").encoded(),
    )

    async def sent(path: str, *messages: bytes) -> list[str | None]:
        answers: dict[int, BrokerError | None] = {}
        try:
            if way == "schedule":
                await broker.messages.schedule(path, list(messages))
            elif way == "run":
                over = asyncio.get_running_loop().create_future()

                def done(positions: Sequence[int], error: BrokerError | None) -> None:
                    answers.update(dict.fromkeys(positions, error))
                    if len(answers) == len(messages):
                        over.set_result(None)

                broker.open_sender(path, detached=print).send(messages, done)
                await asyncio.wait_for(over, 60)
            else:
                is_batch = way == "batch"
                await send(broker, path, batch(*messages) if is_batch else messages[0], batch=is_batch)
        except BrokerError as error:
            answers = dict.fromkeys(range(len(messages)), error)
        return [None if error is None else error.description for _, error in sorted(answers.items())]

    missing, mixed = key_missing().description, mixed_ids(0, None, None, None).description
    said = [mixed if way == "schedule" else missing]
    assert (await sent("once", bare))[:1] == said
    if way == "run":
        assert await sent("once", taken[0], bare, taken[1], bare) == [None, missing, None, missing]
    for each in taken:
        assert await sent("once", each) in ([None], [])
    assert await sent("parts", bare) in ([None], [])


@pytest.mark.parametrize("queue", ["parts", "plain"])
async def test_two_consumers_never_hold_the_same_message(queue: str) -> None:
    broker = open_broker(PARTITIONED, PLAIN)
    receivers = [Receiver(broker, queue) for _ in range(2)]
    for receiver in receivers:
        receiver.consumer.set_credit(200)
    for number in range(300):
        await send(broker, queue, encoded(str(number)))
    rest = [await receiver.drain() for receiver in receivers]
    numbers = [delivery.sequence_number for found in rest for delivery in found]
    assert len(numbers) == len(set(numbers)) == 300
    assert all(rest)


async def test_p19_a_receiver_gets_the_first_message_that_any_partition_has() -> None:
    broker = open_broker(PARTITIONED)
    receiver = Receiver(broker, "parts")
    waiting = asyncio.create_task(receiver.receive(1))
    await asyncio.wait([waiting], timeout=0)
    await send(broker, "parts", keyed("a"))
    (delivery,) = await waiting
    assert delivery.sequence_number >> 48 == partition_for_key("a", 16)


async def test_a_consumer_that_leaves_gives_back_what_was_under_way() -> None:
    broker = open_broker(PLAIN)
    await send(broker, "plain", encoded("a"))
    first = Receiver(broker, "plain")
    first.consumer.set_credit(1)
    first.consumer.close()
    (delivery,) = await Receiver(broker, "plain").receive(1)
    assert first.got == []
    assert decoded([delivery])[0].delivery_count == 0


async def test_p23_peeking_again_and_again_sees_every_message_once() -> None:
    broker = open_broker(PARTITIONED)
    for number in range(100):
        await send(broker, "parts", encoded(str(number)))
    seen: list[str] = []
    first = 0
    while page := await broker.messages.peek("parts", first, 7, 1 << 18):
        for payload in page:
            message = read(payload)
            seen.append(bytes(message.body).decode())
            first = message.annotations["x-opt-sequence-number"] + 1
    assert sorted(seen, key=int) == [str(number) for number in range(100)]


async def test_p23_a_page_that_is_full_hides_nothing_of_its_partition() -> None:
    broker = open_broker(PARTITIONED)
    for number in range(64):
        large = number % 16 == 0 and number >= 16  # in the first partition, behind a small one
        await send(broker, "parts", encoded(f"{number} ".ljust(3_000 if large else 0, "x")))
    seen: list[int] = []
    first = 0
    while page := await broker.messages.peek("parts", first, 100, 4_000):
        for payload in page:
            message = read(payload)
            seen.append(int(bytes(message.body).split()[0]))
            first = message.annotations["x-opt-sequence-number"] + 1
    assert sorted(seen) == list(range(64))


async def test_a_refused_commit_fails_its_callers_and_the_queue_goes_on() -> None:
    refusing = False

    def failpoint(name: str) -> None:
        if refusing and name == "commit-started":
            raise OSError(28, "No space left on device")

    clock = Clock()
    broker = open_broker(PLAIN, failpoint=failpoint, clock=clock)
    receiver = Receiver(broker, "plain")
    await send(broker, "plain", encoded("kept"))
    (delivery,) = await receiver.receive(1)
    refusing = True
    with pytest.raises(BrokerError) as refused:
        await send(broker, "plain", encoded("lost"))
    assert refused.value.condition is Condition.SERVER_BUSY
    assert "No space left on device" in refused.value.description
    refusing = False
    assert await receiver.settle(delivery, Complete()) is not None  # the lock went with the partition's memory
    clock.advance(1_000)
    (again,) = await receiver.receive(1)
    assert await receiver.settle(again, Complete()) is None
    assert await receiver.drain() == []


async def test_an_expired_lock_comes_back_when_the_clock_moves() -> None:
    clock = Clock()
    broker = open_broker(PLAIN, clock=clock)
    await send(broker, "plain", encoded())
    receiver = Receiver(broker, "plain")
    (delivery,) = await receiver.receive(1)
    waiting = asyncio.create_task(receiver.receive(1))
    await asyncio.wait([waiting], timeout=0)
    clock.advance(60_000)
    (again,) = await waiting
    assert decoded([again])[0].delivery_count == 1
    error = await receiver.settle(delivery, Complete())
    assert error is not None
    assert error.condition is Condition.MESSAGE_LOCK_LOST


async def test_a_lock_ends_at_its_time_after_an_earlier_one_was_settled() -> None:
    clock = Clock(frozen=True)
    broker = open_broker(QueueDescription("q", lock_duration_ms=60_000), clock=clock)
    await send(broker, "q", encoded("settled"))
    await send(broker, "q", encoded("forgotten"))
    receiver = Receiver(broker, "q")
    (settled,) = await receiver.receive(1)
    clock.advance(10_000)
    await receiver.receive(1)
    assert await receiver.settle(settled, Complete()) is None
    clock.advance(50_000)  # where the lock of the settled one would have ended
    await loop_turns(20)
    clock.advance(10_000)
    (again,) = await receiver.receive(1)
    assert bytes(decoded([again])[0].body) == b"forgotten"


async def test_messages_expire_without_anybody_receiving(tmp_path: Path) -> None:
    clock = Clock()
    queue = QueueDescription("ttl", default_ttl_ms=10_000, dead_letter_on_expiration=True)
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    for _ in range(3):
        await send(broker, "ttl", encoded())
    await broker.stop()
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    dead = Receiver(broker, "ttl/$DeadLetterQueue")
    waiting = asyncio.create_task(dead.receive(3))
    await asyncio.wait([waiting], timeout=0)
    clock.advance(10_000)
    assert {m.properties["DeadLetterReason"] for m in decoded(await waiting)} == {"TTLExpiredException"}


async def test_everything_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    broker = open_broker(PLAIN, PARTITIONED, folder=tmp_path)
    for number in range(50):
        await send(broker, "plain", encoded(str(number)))
    receiver = Receiver(broker, "plain")
    for delivery in await receiver.receive(10):
        assert await receiver.settle(delivery, Complete()) is None
    (eleventh,) = await receiver.receive(1)
    assert await receiver.settle(eleventh, Abandon()) is None
    await broker.stop()
    broker = open_broker(PLAIN, PARTITIONED, folder=tmp_path)
    left = decoded(await Receiver(broker, "plain").drain())
    assert [bytes(message.body) for message in left] == [str(number).encode() for number in range(10, 50)]
    assert [message.delivery_count for message in left] == [1, *[0] * 39]


async def test_receive_and_delete_takes_from_every_partition() -> None:
    broker = open_broker(PARTITIONED)
    for _ in range(64):
        await send(broker, "parts", encoded())
    found = await Receiver(broker, "parts", ReceiveMode.RECEIVE_AND_DELETE).receive(64)
    assert len(per_partition(found)) == 16
    assert await Receiver(broker, "parts").drain() == []


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
async def test_the_status_of_a_queue_decides_who_may_attach(status: EntityStatus, sends: bool, receives: bool) -> None:
    broker = open_broker(QueueDescription("q", status=status))
    assert allowed(lambda: broker.open_sender("q", detached=print)) is sends
    assert allowed(lambda: Receiver(broker, "q")) is receives


def allowed(action: Callable[[], object]) -> bool:
    try:
        action()
    except BrokerError as error:
        if error.condition is not Condition.ENTITY_DISABLED:
            raise
        return False
    return True


@pytest.mark.parametrize("address", ["nothing", "plain/$other", "$cbs", ""])
async def test_a_missing_entity_is_refused_with_the_sentence_that_clients_match(address: str) -> None:
    broker = open_broker(PLAIN)
    with pytest.raises(BrokerError, match=r"The messaging entity '.*' could not be found") as refused:
        broker.open_sender(address, detached=print)
    assert refused.value.condition is Condition.NOT_FOUND


@pytest.mark.parametrize(
    "address", ["plain", "PLAIN", "/plain", "amqps://host:5671/Plain", "sb://h/plain/", "amqp://h/pl%61in"]
)
async def test_an_address_is_found_however_it_is_written(address: str) -> None:
    broker = open_broker(PLAIN)
    assert broker.open_sender(address, detached=print).entity_path == "plain"


async def test_nothing_can_be_sent_to_a_dead_letter_queue() -> None:
    broker = open_broker(PLAIN)
    with pytest.raises(BrokerError) as refused:
        broker.open_sender("plain/$DeadLetterQueue", detached=print)
    assert refused.value.condition is Condition.NOT_ALLOWED


async def test_p01_partitioning_cannot_be_changed_by_a_new_configuration(tmp_path: Path) -> None:
    await open_broker(QueueDescription("q"), folder=tmp_path).stop()
    with pytest.raises(CatalogError, match="'q': EnablePartitioning is false"):
        open_broker(QueueDescription("q", enable_partitioning=True), folder=tmp_path)


async def test_a_changed_configuration_keeps_the_messages(tmp_path: Path) -> None:
    broker = open_broker(QueueDescription("q", max_delivery_count=10), folder=tmp_path)
    await send(broker, "q", encoded("kept"))
    await broker.stop()
    broker = open_broker(QueueDescription("Q", max_delivery_count=1), folder=tmp_path)
    receiver = Receiver(broker, "q")
    (delivery,) = await receiver.receive(1)
    await receiver.settle(delivery, Abandon())
    assert len(await Receiver(broker, "q/$DeadLetterQueue").receive(1)) == 1


async def test_a_queue_that_the_configuration_no_longer_names_stays(tmp_path: Path) -> None:
    broker = open_broker(PLAIN, folder=tmp_path)
    await send(broker, "plain", encoded())
    await broker.stop()
    broker = open_broker(PARTITIONED, folder=tmp_path)
    assert len(await Receiver(broker, "plain").drain()) == 1


async def test_a_message_over_the_limit_is_refused_and_the_next_is_taken() -> None:
    broker = open_broker(PLAIN)
    with pytest.raises(BrokerError) as refused:
        await send(broker, "plain", encoded("x" * 300_000))
    assert refused.value.condition is Condition.MESSAGE_SIZE_EXCEEDED
    await send(broker, "plain", encoded("small"))
    assert len(await Receiver(broker, "plain").drain()) == 1


async def test_locks_are_renewed_and_settled_by_token_from_any_partition() -> None:
    broker: Broker = open_broker(PARTITIONED)
    for _ in range(32):
        await send(broker, "parts", encoded())
    deliveries = await Receiver(broker, "parts").drain()
    tokens = [delivery.token for delivery in deliveries]
    assert len(await broker.messages.renew_locks("parts", tokens)) == 32
    await broker.messages.settle("parts", tokens, Complete())
    with pytest.raises(BrokerError) as refused:
        await broker.messages.renew_locks("parts", tokens[:1])
    assert refused.value.condition is Condition.MESSAGE_LOCK_LOST


async def test_p07_each_partition_is_kept_by_a_messaging_store_of_its_own(tmp_path: Path) -> None:
    broker = open_broker(PARTITIONED, folder=tmp_path)
    for _ in range(32):
        await send(broker, "parts", encoded())
    entity = broker.namespace.entity("parts")
    assert entity is not None
    assert [place.worker.index for place in entity.partitions] == list(range(16))
    partitions = [place.worker.partition(entity.queue_id) for place in entity.partitions]
    assert [partition.counters.messages[0] for partition in partitions if partition is not None] == [2] * 16


async def test_p21_nothing_is_lost_by_what_another_receiver_holds_ahead() -> None:
    clock = Clock()
    broker = open_broker(PARTITIONED, clock=clock)
    for _ in range(5):
        await send(broker, "parts", encoded())
    ahead, other = Receiver(broker, "parts"), Receiver(broker, "parts")
    assert len(await ahead.receive(5)) == 5
    assert await other.drain() == []
    ahead.consumer.close()
    clock.advance(60_000)
    assert len(await other.receive(5)) == 5


async def test_a_locked_message_says_its_lock_token_in_its_delivery_annotations_too() -> None:
    broker = open_broker(QueueDescription("q"))
    for _ in range(2):
        await send(broker, "q", encoded("x"))
    (locked,) = await Receiver(broker, "q").receive(1)
    (removed,) = await Receiver(broker, "q", ReceiveMode.RECEIVE_AND_DELETE).receive(1)
    reported = [message.instructions for message in decoded([locked, removed])]
    assert reported == [{"x-opt-lock-token": uuid.UUID(bytes_le=locked.token)}, {}]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("message_id", ["x" * 129, "ä" * 129, b"x" * 129])
async def test_a_message_id_that_is_too_long_is_refused_without_duplicate_detection_too(
    message_id: str | bytes, batch: bool
) -> None:
    broker = open_broker(QueueDescription("q"))
    for length, refused in ((128, False), (129, True)):
        data = encoded("x", id=message_id[:length])
        try:
            await send(broker, "q", envelope([data]) if batch else data, batch=batch)
            error = None
        except BrokerError as found:
            error = found
        assert (error is not None) is refused
    assert error is not None
    assert (error.condition, "129 characters" in error.description) == (Condition.ARGUMENT_OUT_OF_RANGE, True)
    assert len(await Receiver(broker, "q").drain()) == 1
