"""The operations of `$management` on partitions: what goes in, and the exact AMQP types of what comes out."""

from __future__ import annotations

import pytest

from emubus.amqp.limits import Limits
from emubus.amqp.nodes.management import OPERATIONS
from emubus.broker.api import ReceiveMode
from emubus.codec.types import Array, Int, Long

from .asking import Asker
from .wire import Wire


@pytest.fixture
async def ask(wire: Wire) -> Asker:
    return Asker(wire)


async def test_partitions_are_reported_with_their_extents_and_those_out_of_reach_by_number(ask: Asker) -> None:
    answer = await ask("emubus:get-partitions", {})
    assert (answer.status, answer.condition) == (200, None)
    empty = (2 << 48) + 1
    assert answer.body == {
        "generation": "g-1",
        "partitions": [
            {"partition-id": 0, "first-sequence-number": 3, "next-sequence-number": 8, "message-count": 5},
            {"partition-id": 2, "first-sequence-number": empty, "next-sequence-number": empty, "message-count": 0},
        ],
        "unavailable-partitions": [1],
    }
    types = {name: type(value) for name, value in answer.body["partitions"][0].items()}
    assert types.pop("partition-id") is Int
    assert set(types.values()) == {Long}
    assert type(answer.body["unavailable-partitions"][0]) is Int


async def test_deleting_below_a_number_tells_how_many_it_were(ask: Asker) -> None:
    ask.wire.broker.deletable = 3
    body = {"partition-id": Int(2), "sequence-number-before": Long(2 << 48), "message-count": Int(100)}
    answer = await ask("emubus:delete-messages-before", body)
    assert (answer.status, answer.body) == (200, {"message-count": 3})
    assert ask.wire.broker.calls == [("delete before", "q", 2, 2 << 48, 100)]


@pytest.mark.parametrize("missing", ["partition-id", "sequence-number-before", "message-count"])
async def test_deleting_below_a_number_names_the_field_that_is_missing(ask: Asker, missing: str) -> None:
    body: dict[str, object] = {"partition-id": Int(2), "sequence-number-before": Long(9), "message-count": Int(100)}
    del body[missing]
    answer = await ask("emubus:delete-messages-before", body)
    assert (answer.status, answer.condition) == (400, "com.microsoft:argument-error")
    assert missing in answer.description


async def test_numbers_are_listed_without_their_messages(ask: Asker) -> None:
    body = {"partition-id": Int(2), "from-sequence-number": Long(2 << 48), "message-count": Int(9_999)}
    answer = await ask("emubus:list-sequence-numbers", body)
    assert (answer.status, list(answer.body["sequence-numbers"].values)) == (200, [2 << 48, (2 << 48) + 7])
    assert ask.wire.broker.calls == [("list numbers", "q", 2, 2 << 48, 2_000)]


async def test_deleting_by_number_tells_how_many_it_were(ask: Asker) -> None:
    ask.wire.broker.deletable = 2
    answer = await ask("emubus:delete-messages", {"sequence-numbers": Array(0x81, (3, 2 << 48, 5))})
    assert (answer.status, answer.body) == (200, {"message-count": 2})
    assert ask.wire.broker.calls == [("delete by number", "q", [3, 2 << 48, 5])]
    answer = await ask("emubus:delete-messages", {})
    assert (answer.status, answer.condition) == (400, "com.microsoft:argument-error")
    assert "sequence-numbers" in answer.description


@pytest.mark.parametrize("name", sorted(each for each in OPERATIONS if each.startswith("emubus:")))
async def test_on_request_no_operation_is_known_that_the_service_does_not_have(name: str) -> None:
    wire = Wire(limits=Limits(own_operations=False))
    wire.open()
    ask = Asker(wire)
    answer = await ask(name, {"sequence-numbers": Array(0x81, (3,))})
    assert (answer.status, answer.condition) == (501, "amqp:not-implemented")
    assert wire.broker.calls == []
    answer = await ask("com.microsoft:peek-message", {"from-sequence-number": Long(1), "message-count": Int(1)})
    assert answer.status in (200, 204)


async def test_a_claim_tells_the_numbers_of_what_it_deferred_as_runs(ask: Asker) -> None:
    body = {"partition-id": Int(2), "message-count": Int(5_000), "properties-to-modify": {"mark": "mine"}}
    answer = await ask("emubus:claim-messages", body)
    assert (answer.status, answer.body["has-more"]) == (200, True)
    assert list(answer.body["claimed-runs"].values) == [3, 3, 9, 1]
    assert list(answer.body["locked-runs"].values) == [1, 1]
    more = {"sequence-number-before": Long(9), "message-count": Int(0), "finished-runs": Array(0x81, (1, 2, 8, 1))}
    await ask("emubus:claim-messages", body | more)
    assert ask.wire.broker.calls == [
        ("claim", "q", 2, (1 << 63) - 1, 2_000, {"mark": "mine"}, []),
        ("claim", "q", 2, 9, 0, {"mark": "mine"}, [(1, 2), (8, 1)]),
    ]


async def test_an_earlier_connector_gets_the_numbers_one_by_one(ask: Asker) -> None:
    """Its request has no runs, and its next one deletes by number."""
    body: dict[str, object] = {"partition-id": Int(2), "message-count": Int(5)}
    answer = await ask("emubus:claim-messages", body)
    assert list(answer.body["sequence-numbers"].values) == [5, 3, 4, 9]
    answer = await ask("emubus:claim-messages", body | {"finished-runs": Array(0x81, ())})
    assert "sequence-numbers" not in answer.body
    ask.wire.broker.q.deferred.update({1: b"1", 3: b"3"})
    answer = await ask("emubus:delete-deferred-messages", {"sequence-numbers": Array(0x81, (1, 3))})
    assert (answer.status, answer.body["message-count"]) == (200, 2)
    assert ask.wire.broker.calls[-1] == ("deferred", "q", [1, 3], ReceiveMode.RECEIVE_AND_DELETE, None)


@pytest.mark.parametrize("runs", [(1,), (1, 0), (-1, 2), (1, 2_001), (1, 1_000, 5_000, 1_001)])
async def test_a_claim_names_what_is_wrong_with_the_finished_runs(ask: Asker, runs: tuple[int, ...]) -> None:
    body = {"partition-id": Int(2), "message-count": Int(1), "finished-runs": Array(0x81, runs)}
    answer = await ask("emubus:claim-messages", body)
    assert (answer.status, answer.condition) == (400, "com.microsoft:argument-error")
    assert "'finished-runs' of the request must be an array of first numbers and counts" in answer.description
    assert ask.wire.broker.calls == []


async def test_a_peek_may_be_of_one_partition(ask: Asker) -> None:
    ask.wire.broker.q.put(b"m")
    body = {"from-sequence-number": Long(1), "message-count": Int(5), "emubus:partition-id": Int(2)}
    answer = await ask("com.microsoft:peek-message", body)
    assert (answer.status, answer.body) == (200, {"messages": [{"message": b"m"}]})
    await ask("com.microsoft:peek-message", body | {"emubus:deferred-only": Int(1)})
    assert ask.wire.broker.calls == [("peek", "q", 1, 5, None, 2), ("peek", "q", 1, 5, None, 2, "deferred")]


async def test_a_peek_returns_250_messages_at_most_and_more_of_one_partition(ask: Asker) -> None:
    body = {"from-sequence-number": Long(1), "message-count": Int(10_000)}
    await ask("com.microsoft:peek-message", body)
    await ask("com.microsoft:peek-message", body | {"emubus:partition-id": Int(2)})
    assert ask.wire.broker.calls == [("peek", "q", 1, 250, None), ("peek", "q", 1, 5_000, None, 2)]


@pytest.mark.parametrize("operation", ["emubus:delete-messages-before", "com.microsoft:peek-message"])
async def test_a_request_for_another_generation_is_refused_before_it_does_anything(ask: Asker, operation: str) -> None:
    body = {"partition-id": Int(2), "sequence-number-before": Long(9), "message-count": Int(1)}
    body["from-sequence-number"] = Long(1)
    answer = await ask(operation, body, **{"emubus:generation": "g-0"})
    assert (answer.status, answer.condition) == (412, "amqp:precondition-failed")
    assert answer.description.startswith("'q' has generation g-1, not g-0: it was created again or restored.")
    assert ask.wire.broker.calls == []
    answer = await ask(operation, body, **{"emubus:generation": "g-1"})
    assert answer.status in (200, 204)
    assert len(ask.wire.broker.calls) == 1
