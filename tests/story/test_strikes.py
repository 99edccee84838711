"""What the story says of messages that conditions and faults have struck: sends, settlements, renewals, deliveries."""

from __future__ import annotations

from uuid import UUID

import pytest

from emubus.broker.api import Complete
from emubus.broker.broker import Broker
from emubus.broker.model.descriptions import QueueDescription
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Array, Ulong
from emubus.conditions.engine import Conditions
from emubus.conditions.faults import FaultKind, FaultOperation
from emubus.story.ring import Story
from emubus.story.search import Sought, search
from emubus.story.tracing import TraceEvent, trace_event

from ..amqp.asking import Asker
from ..amqp.wire import BATCH, DISPOSITION, TRANSFER, Wire, accepted
from ..broker.driving import encoded
from ..broker.namespace import Receiver, loop_turns, send
from ..conditions.wires import wire_to

TURNS = 20
QUEUES = (
    QueueDescription("q"),
    QueueDescription("parts", enable_partitioning=True),
    QueueDescription("s", requires_session=True),
)


@pytest.fixture
def story() -> Story:
    return Story(is_on=True)


@pytest.fixture
async def opened(story: Story) -> tuple[Wire, Broker]:
    return wire_to(*QUEUES, observer=story)


@pytest.fixture
def wire(opened: tuple[Wire, Broker]) -> Wire:
    return opened[0]


@pytest.fixture
def broker(opened: tuple[Wire, Broker]) -> Broker:
    return opened[1]


@pytest.fixture
def on(wire: Wire) -> Conditions:
    return wire.state.conditions


@pytest.fixture
def table(wire: Wire) -> Conditions:
    return wire.state.conditions


def events_of(story: Story, **sought: object) -> list[TraceEvent]:
    return [trace_event(each) for each in search(story.entries(), Sought(**sought))]  # type: ignore[arg-type]


def kinds(events: list[TraceEvent]) -> list[str]:
    return [each.found.entry.kind.value for each in events]


async def locked(wire: Wire, broker: Broker) -> bytes:
    """Have the client lock the message "a" of q; returns the lock token."""
    await send(broker, "q", encoded(id="a"))
    wire.attach_receiver("q", 3, credit=1)
    (transfer,) = await wire.frames(TRANSFER)
    return bytes(transfer.fields[2])


async def test_a_send_that_a_fault_refuses_is_in_the_story_before_the_one_that_succeeds(
    wire: Wire, table: Conditions, story: Story
) -> None:
    table.set_fault(FaultKind.SERVER_BUSY, entity="parts", operations=(FaultOperation.SEND,), count=1)
    wire.attach_sender("parts")
    for _ in range(2):
        wire.write(wire.transfer(encoded(id="a")))
    await wire.frames(DISPOSITION, DISPOSITION)
    struck, sent = events_of(story, message_id="a")
    shown = struck.to_json()
    by = shown.pop("by")
    assert by == wire.server.context.client_name
    assert shown == {
        "at": wire.clock.now_ms(),
        "event": "struck",
        "entity": "parts",
        "partition_id": None,
        "sequence_number": None,
        "message_id": "a",
        "struck_by": "the fault 'server-busy'",
        "text": f"The send by {by} was refused with com.microsoft:server-busy: struck by the fault 'server-busy'",
        "is_bad": True,
        "verdicts": [],
    }
    assert (kinds([sent]), sent.to_json()["struck_by"]) == (["sent"], None)


async def test_a_send_whose_outcome_is_lost_is_struck_and_sent(wire: Wire, on: Conditions, story: Story) -> None:
    on.start("accept-lost", count=1)
    wire.attach_sender("s")
    wire.write(wire.transfer(encoded(id="a", group_id="basket")))
    await wire.turns(TURNS)
    events = events_of(story, session_id="basket")
    assert kinds(events) == ["struck", "sent"]
    assert events[0].text.endswith(" was done and never confirmed: struck by the condition 'accept-lost'")


async def test_every_message_of_a_struck_batch_is_found(wire: Wire, on: Conditions, story: Story) -> None:
    on.start("internal-error")
    wire.attach_sender()
    parts = [encode_described(Ulong(0x75), encode(encoded(id=each))) for each in ("a", "b")]
    wire.write(wire.transfer(b"".join(parts), format=BATCH))
    await wire.frames(DISPOSITION)
    for each in ("a", "b"):
        (struck,) = events_of(story, message_id=each)
        assert (struck.message_id, struck.found.sequence_number) == (each, None)


async def test_a_send_that_cannot_be_read_is_struck_without_an_event(wire: Wire, on: Conditions, story: Story) -> None:
    on.start("internal-error")
    wire.attach_sender()
    wire.write(wire.transfer(b"\xff"))
    await wire.frames(DISPOSITION)
    assert list(story.entries()) == []


async def test_a_lost_settlement_is_in_the_story_of_its_message(
    wire: Wire, broker: Broker, on: Conditions, story: Story
) -> None:
    await locked(wire, broker)
    on.start("settle-lost", entity="q")
    wire.dispose(accepted, 0, settled=True)
    await wire.turns(TURNS)
    events = events_of(story, message_id="a")
    assert kinds(events) == ["sent", "locked", "struck"]
    assert events[2].found.sequence_number == 1
    name = wire.server.context.client_name
    what = f"The settlement by {name} was not done and not answered"
    assert events[2].text == f"{what}: struck by the condition 'settle-lost'"
    assert events_of(story, path="q", sequence_number=1)[2].text == events[2].text


@pytest.mark.parametrize(
    ("operation", "more", "what"),
    [
        ("renew-lock", {}, "renewal"),
        ("update-disposition", {"disposition-status": "completed"}, "settlement"),
    ],
)
async def test_requests_with_lock_tokens_are_struck_as_settlements_and_renewals(
    wire: Wire, broker: Broker, table: Conditions, story: Story, operation: str, more: dict[str, object], what: str
) -> None:
    token = await locked(wire, broker)
    ask = Asker(wire)
    table.set_fault(FaultKind.LOST_LOCK, count=1)
    answer = await ask(operation, {"lock-tokens": Array(0x98, (UUID(bytes_le=token),)), **more})
    assert answer.status == 410
    struck = events_of(story, path="q", sequence_number=1)[2]
    assert (kinds([struck]), struck.text.split(" by ")[0]) == (["struck"], f"The {what}")
    assert struck.text.endswith(" was refused, and the lock ended: struck by the fault 'lost-lock'")


async def test_a_lock_that_is_over_names_no_message(wire: Wire, broker: Broker, on: Conditions, story: Story) -> None:
    await locked(wire, broker)
    wire.clock.advance(61_000)
    await loop_turns(TURNS)
    on.start("settle-lost", entity="q")
    wire.dispose(accepted, 0, settled=True)
    await wire.turns(TURNS)
    assert on.counts["settle-lost"] == 1
    assert "struck" not in kinds(events_of(story, path="q", sequence_number=1))


async def test_a_delivery_that_is_kept_back_is_struck_once(
    wire: Wire, broker: Broker, on: Conditions, story: Story
) -> None:
    on.start("accepted-not-visible", entity="parts", values={"ms": 2_000})
    await send(broker, "parts", encoded(id="a"))
    receiver = Receiver(broker, "parts")
    for _ in range(2):
        assert await receiver.drain() == []
    wire.clock.advance(2_000)
    assert len(await receiver.receive(1)) == 1
    events = events_of(story, message_id="a")
    assert kinds(events) == ["sent", "struck", "locked"]
    cause = "the condition 'accepted-not-visible'"
    assert events[1].text == f"The delivery was kept back for 2000 ms: struck by {cause}"
    assert len({each.found.entry.partition_id for each in events}) == 1


async def test_a_delivery_with_a_short_lock_is_struck(broker: Broker, on: Conditions, story: Story) -> None:
    on.start("short-lock", entity="q", values={"cut_ms": 5_000, "lie_ms": 1_000}, count=1)
    for each in ("a", "b"):
        await send(broker, "q", encoded(id=each))
    receiver = Receiver(broker, "q")
    (first,) = await receiver.receive(1)
    assert await receiver.settle(first, Complete()) is None
    await receiver.receive(1)
    events = events_of(story, message_id="a")
    assert kinds(events) == ["sent", "locked", "struck", "completed"]
    what = "given a lock that ends 6000 ms early, 1000 ms of which the client does not know"
    assert events[2].text == f"The delivery was {what}: struck by the condition 'short-lock'"
    assert kinds(events_of(story, message_id="b")) == ["sent", "locked"]


async def test_what_a_front_end_keeps_is_struck_and_what_the_client_gets_is_not(
    wire: Wire, broker: Broker, on: Conditions, story: Story
) -> None:
    for each in ("a", "b", "c"):
        await send(broker, "parts", encoded(id=each))
    on.start("foreign-cache", entity="parts")
    wire.attach_receiver("parts", credit=1)
    await wire.frames(TRANSFER)
    stories = sorted(kinds(events_of(story, message_id=each)) for each in ("a", "b", "c"))
    assert stories == [["sent", "locked"], *[["sent", "locked", "struck"]] * 2]
    (first, _) = [each for each in events_of(story) if kinds([each]) == ["struck"]]
    cause = "the condition 'foreign-cache'"
    what = f"The delivery to {wire.server.context.client_name} was kept by a front end, with its lock"
    assert first.text == f"{what}: struck by {cause}"


async def test_a_behaviour_of_a_preset_is_named_with_it(wire: Wire, on: Conditions, story: Story) -> None:
    condition = on.start("unsure", values={"accept-lost.share": 1.0})
    wire.attach_sender()
    wire.write(wire.transfer(encoded(id="a")))
    await wire.turns(TURNS)
    cause = f"the condition '{condition.name}' (accept-lost)"
    assert events_of(story, message_id="a")[0].to_json()["struck_by"] == cause


async def test_nothing_is_kept_of_strikes_while_the_story_is_off(wire: Wire, on: Conditions, story: Story) -> None:
    story.switch(is_on=False)
    on.start("internal-error")
    wire.attach_sender()
    wire.write(wire.transfer(encoded(id="a")))
    await wire.frames(DISPOSITION)
    assert (on.counts["internal-error"], len(story.entries())) == (1, 0)
