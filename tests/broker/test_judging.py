"""Every message is judged before anything is stored: ways in, bad messages, places in the batch, kinds of entities.

A bad message is refused with its own condition wherever it stands and however it comes; nothing of its delivery is
stored, what others send at that moment is, and the log has no error.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import pytest
from structlog.testing import capture_logs

from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.builder import envelope
from emubus.broker.model.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)

from ..log_levels import every_level
from ..rounds import IS_LONG
from .driving import encoded
from .namespace import WAIT_S, open_broker, send

START: Final = 1_800_000_000_000
SOON: Final = START + 1_000

NULL, INT, LIST = b"\x40", b"\x71\x00\x00\x00\x07", b"\xc0\x02\x01\x40"
NO_UTF8, NO_UTF8_LONG = b"\xa1\x03\xff\xfe\xfd", b"\xb1\x00\x00\x00\x02\xff\xff"
LONG_KEY = b"\xb1" + struct.pack(">I", 129) + b"k" * 129
IN_THE_FUTURE = b"\x83" + struct.pack(">q", SOON)


def text(value: str) -> bytes:
    return b"\xa1" + bytes((len(value.encode()),)) + value.encode()


def section(code: int, compound: int, *items: bytes) -> bytes:
    body = struct.pack(">I", len(items)) + b"".join(items)
    return bytes((0, 0x53, code, compound)) + struct.pack(">I", len(body)) + body


def properties(message_id: bytes = NULL, session_id: bytes = NULL, subject: bytes = NULL) -> bytes:
    return section(0x73, 0xD0, message_id, NULL, NULL, subject, *[NULL] * 6, session_id)


def noted(**values: bytes) -> bytes:
    named = ((b"\xa3" + text(f"x-opt-{name.replace('_', '-')}")[1:], value) for name, value in values.items())
    return section(0x72, 0xD1, *(item for pair in named for item in pair))


def message(*sections: bytes) -> bytes:
    return b"".join(sections) + b"\x00\x53\x75\xa0\x01x"


DECODE, FIELD = Condition.DECODE_ERROR, Condition.INVALID_FIELD
RANGE, ALLOWED = Condition.ARGUMENT_OUT_OF_RANGE, Condition.NOT_ALLOWED
BAD: Final[dict[str, tuple[Condition, bytes]]] = {
    "a SessionId that is a number": (FIELD, message(properties(session_id=INT))),
    "a SessionId that is a list": (FIELD, message(properties(session_id=LIST))),
    "a SessionId that is no UTF-8": (DECODE, message(properties(session_id=NO_UTF8))),
    "a SessionId that is no UTF-8, long form": (DECODE, message(properties(session_id=NO_UTF8_LONG))),
    "a SessionId of 129 characters": (RANGE, message(properties(session_id=LONG_KEY))),
    "a MessageId that is an int": (FIELD, message(properties(message_id=INT, session_id=text("s")))),
    "a MessageId that is a list": (FIELD, message(properties(message_id=LIST))),
    "a MessageId that is no UTF-8": (DECODE, message(properties(message_id=NO_UTF8, session_id=text("s")))),
    "a MessageId that is no UTF-8, beside a key": (
        DECODE,
        message(noted(partition_key=text("k")), properties(message_id=NO_UTF8)),
    ),
    "a MessageId of 129 characters": (RANGE, message(properties(message_id=LONG_KEY))),
    "a PartitionKey that is a number": (FIELD, message(noted(partition_key=INT), properties())),
    "a PartitionKey that is no UTF-8": (DECODE, message(noted(partition_key=NO_UTF8), properties())),
    "a PartitionKey of 129 characters": (RANGE, message(noted(partition_key=LONG_KEY), properties())),
    "a ViaPartitionKey that is a number": (FIELD, message(noted(via_partition_key=INT), properties())),
    "a SessionId that differs from the PartitionKey": (
        ALLOWED,
        message(noted(partition_key=text("k")), properties(session_id=text("s"))),
    ),
    "the same with a scheduled time": (
        ALLOWED,
        message(noted(partition_key=text("k"), scheduled_enqueue_time=IN_THE_FUTURE), properties(session_id=text("s"))),
    ),
    "a scheduled time that is a number": (FIELD, message(noted(scheduled_enqueue_time=INT), properties())),
    "a scheduled time and a SessionId that is a number": (
        FIELD,
        message(noted(scheduled_enqueue_time=IN_THE_FUTURE), properties(session_id=INT)),
    ),
    "an application property that is cut off": (
        DECODE,
        message(properties(session_id=text("s")), b"\x00\x53\x74\xc1\x04\x02\xa1\x09a"),
    ),
    "a header that is no list": (DECODE, message(b"\x00\x53\x70\xa1\x01x")),
    "a body of an unknown type": (DECODE, properties(session_id=text("s")) + b"\x00\x53\x77\x99"),
    "no message": (DECODE, b"nonsense"),
}

ENTITIES: Final = {
    "q": "plain",
    "p": "partitioned",
    "s": "sessions",
    "d": "duplicates",
    "pd": "partitioned, duplicates",
    "ps": "partitioned, sessions",
    "t": "a topic with rules and a session subscription",
    "td": "a topic that detects duplicates",
    "e": "expires, buries elsewhere",
    "to-s": "forwards to sessions",
    "to-d": "forwards to duplicates",
    "to-p": "forwards to partitions",
}
PARTITIONED: Final = frozenset({"p", "pd", "ps"})
RULES: Final = (
    RuleDescription("keys", SqlFilter("sys.SessionId = 'a' OR sys.MessageId LIKE '%' OR sys.PartitionKey = 'b'")),
    RuleDescription("correlation", CorrelationFilter(session_id="s", properties={"p": 1})),
    RuleDescription("arithmetic", SqlFilter("p + 1 > 2 OR -p < 3 OR p / 2 = 1 OR p * p <> p")),
    RuleDescription("text", SqlFilter("p LIKE '%a_' OR P IN ('a', 5) OR EXISTS(mine) OR p > sys.EnqueuedTimeUtc")),
    RuleDescription("times", SqlFilter("sys.ExpiresAtUtc > sys.ScheduledEnqueueTimeUtc OR sys.TimeToLive <> p")),
    RuleDescription("sets keys", action="SET sys.SessionId = p; SET sys.MessageId = sys.SessionId; SET sys.To = P"),
    RuleDescription("sets text", action="SET P = p + 'x'; SET new = sys.EnqueuedTimeUtc; SET sys.TimeToLive = p"),
    RuleDescription("removes", action="REMOVE p; SET p = sys.CorrelationId; REMOVE sys.SessionId"),
)


def open_namespace(clock: Clock) -> Broker:
    broker = open_broker(
        QueueDescription("q"),
        QueueDescription("neighbour"),
        QueueDescription("p", enable_partitioning=True),
        QueueDescription("s", requires_session=True),
        QueueDescription("d", requires_duplicate_detection=True),
        QueueDescription("pd", requires_duplicate_detection=True, enable_partitioning=True),
        QueueDescription("ps", requires_session=True, enable_partitioning=True),
        QueueDescription("e", default_ttl_ms=400, dead_letter_on_expiration=True, forward_dead_letters_to="d"),
        QueueDescription("to-s", forward_to="s"),
        QueueDescription("to-d", forward_to="d"),
        QueueDescription("to-p", forward_to="p"),
        clock=clock,
    )
    for topic in (TopicDescription("t"), TopicDescription("td", requires_duplicate_detection=True)):
        broker.administration.create(topic)
        broker.administration.create(SubscriptionDescription(topic.name, "plain"))
        broker.administration.create(SubscriptionDescription(topic.name, "ruled", rules=RULES))
        broker.administration.create(SubscriptionDescription(topic.name, "sessions", requires_session=True))
        broker.administration.create(
            SubscriptionDescription(topic.name, "strict", rules=RULES, dead_letter_on_filter_exceptions=False)
        )
    return broker


# ---- ways in: each sends these messages in one go


async def as_batch(broker: Broker, path: str, messages: Sequence[bytes]) -> None:
    await send(broker, path, envelope(messages), batch=True)


async def as_run(broker: Broker, path: str, messages: Sequence[bytes]) -> None:
    """Deliveries of their own: only the bad ones are refused."""
    answers: dict[int, BrokerError | None] = {}
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(positions: Sequence[int], error: BrokerError | None) -> None:
        answers.update(dict.fromkeys(positions, error))
        if len(answers) == len(messages):
            over.set_result(None)

    broker.open_sender(path, detached=print).send(messages, done)
    await asyncio.wait_for(over, WAIT_S)
    refused = [error for error in answers.values() if error is not None]
    assert len(refused) == 1
    raise refused[0]


async def scheduled(broker: Broker, path: str, messages: Sequence[bytes]) -> None:
    await broker.messages.schedule(path, messages)


async def in_a_transaction(broker: Broker, path: str, messages: Sequence[bytes]) -> None:
    ref = broker.transactions.declare(broker)
    sender = broker.open_sender(path, detached=print)
    try:
        broker.work.send(ref, sender, envelope(messages), batch=True)
    finally:
        broker.transactions.discharge(ref, fail=True, done=lambda _: None)


async def one_by_one_in_a_transaction(broker: Broker, path: str, messages: Sequence[bytes]) -> None:
    """The client ignores the refusal of a message and commits."""
    ref = broker.transactions.declare(broker)
    sender = broker.open_sender(path, detached=print)
    refusals: list[BrokerError] = []
    for each in messages:
        try:
            broker.work.send(ref, sender, each, batch=False)
        except BrokerError as error:
            refusals.append(error)
    answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    broker.transactions.discharge(ref, fail=False, done=answer.set_result)
    rolled_back = await asyncio.wait_for(answer, WAIT_S)
    assert rolled_back is not None
    assert rolled_back.condition is Condition.TRANSACTION_ROLLBACK
    raise refusals[0]


async def scheduled_in_a_transaction(broker: Broker, path: str, messages: Sequence[bytes]) -> None:
    ref = broker.transactions.declare(broker)
    try:
        await broker.work.schedule(ref, path, messages)
    finally:
        broker.transactions.discharge(ref, fail=True, done=lambda _: None)


async def via_another_queue(broker: Broker, path: str, messages: Sequence[bytes]) -> None:
    answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    via = broker.namespace.find("q")[0]
    broker.transactions.transfer(None, via, envelope(messages), path, answer.set_result, batch=True)
    error = await asyncio.wait_for(answer, WAIT_S)
    if error is not None:
        raise error


Way = Callable[[Broker, str, Sequence[bytes]], Awaitable[None]]
WHOLE: Final[dict[str, Way]] = {
    "batch": as_batch,
    "schedule": scheduled,
    "transaction": in_a_transaction,
    "transaction, one by one": one_by_one_in_a_transaction,
    "transaction, schedule": scheduled_in_a_transaction,
    "via another queue": via_another_queue,
}
KEYS: Final = {
    "with one key": (properties(session_id=text("k")), properties(session_id=text("k"))),
    "with two keys": (properties(session_id=text("k")), properties(session_id=text("l"))),
    "with a key and none": (noted(partition_key=text("k")) + properties(), properties(text("no key"))),
    "without keys": (properties(text("1")), properties(text("2"))),
}
"""What the good messages beside the bad one have: a difference must not end the reading of the batch."""


def nothing_went_wrong(logs: Sequence[Mapping[str, object]]) -> bool:
    return [entry for entry in logs if entry["log_level"] not in ("debug", "info")] == []


def batches(path: str, bad: bytes) -> list[list[bytes]]:
    """The bad message alone, and first, in the middle and last among good ones."""
    found = [[bad]]
    for name, (first, second) in KEYS.items():
        if path in ("s", "ps") and name in ("with a key and none", "without keys"):
            continue  # refused for the good ones
        good = [message(first), message(second)]
        found += [[*good[:position], bad, *good[position:]] for position in range(3)]
    # The second kind of neighbours, with the bad one last, is what was once not read to its end.
    return found if IS_LONG else [found[0], found[2], found[9 if len(found) > 9 else 6]]


def stored_counts(broker: Broker) -> dict[str, int]:
    return {entity.path: sum(entity.message_counts()) for entity in broker.namespace.entities()}


@pytest.mark.parametrize("way", WHOLE)
async def test_a_bad_message_is_refused_with_all_of_its_delivery(way: str) -> None:
    clock = Clock(start_at=START, frozen=True)
    broker = open_namespace(clock)
    expected = stored_counts(broker)
    with every_level(), capture_logs() as logs:
        for path in ENTITIES:
            for name, (condition, bad) in BAD.items():
                for batch in batches(path, bad):
                    beside = asyncio.create_task(send(broker, "neighbour", encoded("beside")))
                    with pytest.raises(BrokerError) as refused:
                        await WHOLE[way](broker, path, batch)
                    await beside
                    expected["neighbour"] += 1
                    # Of several reasons to refuse the delivery any may be named.
                    others = {ALLOWED} if path in PARTITIONED or way.startswith("transaction") else set()
                    assert refused.value.condition in {condition, *others}, (path, name, batch, refused.value)
        assert stored_counts(broker) == expected
    assert nothing_went_wrong(logs)


async def test_of_single_deliveries_the_bad_one_alone_is_refused() -> None:
    clock = Clock(start_at=START, frozen=True)
    broker = open_namespace(clock)
    with every_level(), capture_logs() as logs:
        for path in ENTITIES:
            for condition, bad in BAD.values():
                for batch in batches(path, bad):
                    with pytest.raises(BrokerError) as refused:
                        await as_run(broker, path, batch)
                    assert refused.value.condition is condition
    assert nothing_went_wrong(logs)
