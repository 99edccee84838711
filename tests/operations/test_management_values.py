"""Bodies of `$management` that can't be: each operation refuses them, on every kind of entity."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from emubus.amqp.nodes import operations
from emubus.amqp.nodes.management import OPERATIONS, management_answer
from emubus.amqp.nodes.requests import ReplyRoom, Request
from emubus.amqp.past_links import PastLinks
from emubus.broker.broker import Broker
from emubus.broker.keys import Right
from emubus.codec.types import Array, Described, Int, Long, Symbol, Timestamp, Ulong

from ..amqp.jms_client import JmsClient, premium_broker
from ..rounds import rounds

FIELDS = (
    *(
        "sequence-numbers",
        "from-sequence-number",
        "message-count",
        "message-ids",
        "messages",
        "lock-tokens",
        "session-id",
    ),
    *("session-state", "disposition-status", "deadletter-reason", "deadletter-description"),
    "properties-to-modify",
    *("receiver-settle-mode", "last-updated-time", "skip", "top", "rule-name", "rule-description", "enqueued-time-utc"),
    *("partition-id", "sequence-number-before", "finished-runs"),
)
"""All fields that an operation reads; `test_all_fields_are_tried` compares them with the code."""
VALUES: tuple[object, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1,
        1 << 62,
        -(1 << 63),
        (1 << 64) - 1,
        1.5,
        float("nan"),
        "",
        "x",
        "a/../b",
        "\x00",
        "x" * 5_000,
    ),
    *(
        b"",
        b"\xff",
        [],
        [None],
        [1, "x"],
        [[]],
        {},
        {"a": {"b": []}},
        uuid.UUID(int=0),
        [uuid.UUID(int=1)],
        Symbol("s"),
    ),
    *(Array(0x81, (-1, 1 << 62)), Array(0x98, (uuid.UUID(int=1),)), Int(5), Long(-5), Timestamp(1 << 62)),
    *([{"message": b"\xff"}], [{"message": b""}], [{"message-id": "m", "message": b"\x00\x53\x70\x45"}], [{}]),
    *(
        Described(Ulong(1), []),
        {"sql-filter": {"expression": "a = = 1"}},
        {"correlation-filter": {}},
        {"sql-filter": 1},
    ),
)
ROOM = ReplyRoom(1 << 20, nullcontext)
PATHS = ("q", "q/$DeadLetterQueue", "t", "t/Subscriptions/plain")


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with premium_broker() as broker:
        yield broker


def test_all_fields_are_tried() -> None:
    folder = Path(operations.__file__).parent
    texts = [path.read_text() for path in folder.glob("operations*.py")]
    read = {name for text in texts for name in re.findall(r"""body\.\w+\(\s*"([\w:-]+)\"""", text)}
    assert len(read) > 15
    assert read <= set(FIELDS)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_body_that_can_not_be_is_the_clients_mistake(name: str, broker: Broker) -> None:
    def allow(right: Right) -> None:
        del right

    wrong: list[object] = []
    tracker = JmsClient(broker).wire.server.context.tracker
    for path in PATHS:
        answer = management_answer(broker, path, allow, tracker, PastLinks())
        for number in range(rounds(60, 2_000)):
            chance = random.Random(f"{name} {path} {number}")
            count = chance.randrange(5)
            body: object = {field: chance.choice(VALUES) for field in chance.sample(FIELDS, count)}
            if count == 4:
                body = {field: chance.choice(VALUES) for field in FIELDS}
            elif number < len(VALUES) and count == 0:
                body = VALUES[number]
            response = await answer(Request(properties={"operation": name}, body=body), ROOM)
            assert response is not None
            status = response.properties["statusCode"]
            if not isinstance(status, int) or status >= 500:
                wrong.append((path, body, status, response.properties["statusDescription"]))
    assert wrong == []
