"""What the story says of messages that a broker really had: every outcome, over every way between entities. No wire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proton import timestamp

from emubus.broker.api import Abandon, Complete, DeadLetter, Defer, ReceiveMode
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.model.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.story.ring import Entry, Kept, Story
from emubus.story.search import Sought, search
from emubus.story.tracing import TraceEvent, trace_event

from ..broker.driving import encoded
from ..broker.namespace import Receiver, loop_turns, open_broker, send

NOW = 1_800_000_000_000
QUEUES = (
    QueueDescription("q"),
    QueueDescription("dup", requires_duplicate_detection=True),
    QueueDescription("parts", enable_partitioning=True),
    QueueDescription("expiring", default_ttl_ms=1_000, dead_letter_on_expiration=True),
    QueueDescription("gone", default_ttl_ms=1_000),
    QueueDescription("from", forward_to="q"),
    QueueDescription("s", requires_session=True),
    QueueDescription("tiny", max_size_mb=1),
)


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=NOW, frozen=True)


@pytest.fixture
def story() -> Story:
    return Story(is_on=True)


@pytest.fixture
async def broker(clock: Clock, story: Story) -> Broker:
    return open_broker(*QUEUES, clock=clock, observer=story)


def events_of(story: Story, **sought: object) -> list[TraceEvent]:
    return [trace_event(each) for each in search(story.entries(), Sought(**sought))]  # type: ignore[arg-type]


def kinds(story: Story, **sought: object) -> list[str]:
    return [each.found.entry.kind.value for each in events_of(story, **sought)]


async def sent(broker: Broker, address: str, message_id: str, **fields: Any) -> None:
    await send(broker, address, encoded(id=message_id, **fields))


async def moved(clock: Clock, ms: int) -> None:
    clock.advance(ms)
    await loop_turns(20)


async def test_a_message_is_followed_from_its_sender_to_its_completion(broker: Broker, story: Story) -> None:
    sender = broker.open_sender("q", detached=print, client="shop 1.2")
    sender.send([encoded(id="a"), encoded(id="b")], print)
    receiver = Receiver(broker, "q")
    for each in await receiver.receive(2):
        await receiver.settle(each, Complete())
    found = events_of(story, message_id="b")
    assert [each.found.entry.kind.value for each in found] == ["sent", "locked", "completed"]
    assert found[0].text == "Sent by shop 1.2"
    assert {each.found.sequence_number for each in found} == {2}
    assert kinds(story, path="q", sequence_number=1) == ["sent", "locked", "completed"]
    assert kinds(story, path="parts", sequence_number=1) == []


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Abandon({"why": "later"}), ("abandoned", "Abandoned, with why = later")),
        (Defer({}), ("deferred", "Deferred")),
        (DeadLetter("bad", "no name", {}), ("dead-lettered", "Dead-lettered: bad: no name")),
    ],
)
async def test_outcomes_have_their_words(
    broker: Broker, story: Story, outcome: Abandon | Defer | DeadLetter, expected: tuple[str, str]
) -> None:
    await sent(broker, "q", "a")
    receiver = Receiver(broker, "q")
    (delivery,) = await receiver.receive(1)
    await receiver.settle(delivery, outcome)
    last = events_of(story, message_id="a")[-1]
    assert (last.found.entry.kind.value, last.text) == expected


async def test_a_dead_letter_is_the_same_message_with_its_number(broker: Broker, story: Story) -> None:
    await sent(broker, "q", "a")
    receiver = Receiver(broker, "q")
    await receiver.settle((await receiver.receive(1))[0], DeadLetter("bad", None, {}))
    (dead,) = await Receiver(broker, "q/$deadletterqueue").receive(1)
    assert dead.sequence_number == 1
    assert kinds(story, path="q", sequence_number=1) == ["sent", "locked", "dead-lettered", "locked"]


async def test_locks_and_times_to_live_that_end_are_shown(broker: Broker, story: Story, clock: Clock) -> None:
    for queue in ("q", "expiring", "gone"):
        await sent(broker, queue, f"in {queue}")
    await Receiver(broker, "q").receive(1)
    await moved(clock, 61_000)
    assert kinds(story, message_id="in q")[-1] == "lock-expired"
    assert kinds(story, message_id="in gone")[-1] == "expired"
    assert "TTLExpiredException" in events_of(story, message_id="in expiring")[-1].text


async def test_a_duplicate_and_a_refused_message_are_shown_though_they_have_no_number(
    broker: Broker, story: Story
) -> None:
    await sent(broker, "dup", "a")
    await sent(broker, "dup", "a")
    first, second = events_of(story, message_id="a")
    assert (first.found.sequence_number, second.found.sequence_number) == (1, None)
    assert second.is_bad
    assert "duplicate detection window" in second.text
    for number in range(5):
        await send(broker, "tiny", encoded("x" * 200_000, id=f"tiny {number}"))
    with pytest.raises(BrokerError):
        await send(broker, "tiny", encoded("x" * 200_000, id="too much"))
    (last,) = events_of(story, path="tiny", message_id="too much")
    assert last.text.startswith("Refused: ")


async def test_the_reason_for_the_partition_is_shown(broker: Broker, story: Story) -> None:
    await sent(broker, "parts", "keyed", annotations={"x-opt-partition-key": "k"})
    await sent(broker, "parts", "keyless")
    assert "that of its partition key, 'k'" in events_of(story, message_id="keyed")[0].text
    assert "partitions take turns" in events_of(story, message_id="keyless")[0].text


async def test_a_scheduled_message_keeps_its_story_when_its_number_changes(
    broker: Broker, story: Story, clock: Clock
) -> None:
    (number,) = await broker.messages.schedule(
        "q", [encoded(id="later", annotations={"x-opt-scheduled-enqueue-time": timestamp(NOW + 5_000)})]
    )
    await moved(clock, 6_000)
    assert "scheduled for 2027-01-15" in events_of(story, path="q", sequence_number=number)[0].text
    await Receiver(broker, "q", ReceiveMode.RECEIVE_AND_DELETE).receive(1)
    assert kinds(story, message_id="later") == ["sent", "activated", "received"]


async def test_a_schedule_that_is_canceled_or_not_waited_for_says_so(broker: Broker, story: Story) -> None:
    at = timestamp(NOW + 5_000)
    early, never = await broker.messages.schedule(
        "q", [encoded(id=each, annotations={"x-opt-scheduled-enqueue-time": at}) for each in ("early", "never")]
    )
    await broker.messages.deliver_scheduled("q", early)
    await broker.messages.cancel_scheduled("q", [never])
    assert [each.text for each in events_of(story, message_id="early")][1:] == ["Delivered before its time, on request"]
    assert kinds(story, message_id="never") == ["sent", "canceled"]


async def test_a_forwarded_message_is_followed_to_its_target(broker: Broker, story: Story) -> None:
    await sent(broker, "from", "a")
    receiver = Receiver(broker, "q")
    await receiver.settle((await receiver.receive(1))[0], Complete())
    found = events_of(story, path="from", sequence_number=1)
    assert [(each.found.entry.path, each.found.entry.kind.value) for each in found] == [
        ("from", "sent"),
        ("from", "forwarding"),
        ("q", "forwarded"),
        ("q", "locked"),
        ("q", "completed"),
    ]


async def test_the_messages_of_a_session_are_shown_with_its_locks(broker: Broker, story: Story) -> None:
    await sent(broker, "s", "a", group_id="basket 7")
    granted: list[object] = []
    broker.accept_session(
        "s", "basket 7", mode=ReceiveMode.PEEK_LOCK, timeout_ms=0, granted=granted.append, refused=print, detached=print
    )
    await loop_turns(20)
    assert len(granted) == 1
    assert kinds(story, session_id="basket 7") == ["sent", "session-accepted"]
    assert kinds(story, session_id="basket 8") == []


@pytest.fixture
async def topic(broker: Broker) -> Broker:
    create = broker.administration.create
    create(TopicDescription("t"))
    red = RuleDescription("red", SqlFilter("color = 'red' AND (size > 10 OR priority IN (1, 2))"))
    create(SubscriptionDescription("t", "red", rules=(red,)))
    note = RuleDescription("note", CorrelationFilter(label="note", properties={"lang": "de"}))
    create(SubscriptionDescription("t", "note", rules=(note,)))
    return broker


def verdicts(found: list[TraceEvent]) -> dict[str, str]:
    (routed,) = [each for each in found if each.verdicts]
    return {each.path: "; ".join(rule.reason for rule in each.rules) for each in routed.verdicts}


async def test_a_message_that_no_subscription_took_shows_why(topic: Broker, story: Story) -> None:
    await sent(topic, "t", "a", properties={"color": "blue"}, subject="order")
    found = events_of(story, message_id="a")
    assert [each.found.entry.kind.value for each in found] == ["sent", "routed"]
    assert found[1].text == "No subscription takes the message: no rule matches"
    assert found[1].is_bad
    assert verdicts(found) == {
        "t/Subscriptions/red": "color = 'red' is false (color is 'blue')",
        "t/Subscriptions/note": "sys.Label must be 'note', and is 'order'; lang must be 'de', and is not set",
    }


async def test_the_alternatives_of_an_or_are_all_explained(topic: Broker, story: Story) -> None:
    await sent(topic, "t", "a", properties={"color": "red", "size": 3})
    assert verdicts(events_of(story, message_id="a"))["t/Subscriptions/red"] == (
        "size > 10 is false (size is 3); priority IN (1, 2) is unknown (priority is not set)"
    )


async def test_copies_are_followed_and_judged_by_the_rules_of_their_time(topic: Broker, story: Story) -> None:
    await sent(topic, "t", "a", properties={"color": "red", "size": 30}, subject="x")
    topic.administration.delete("t/Subscriptions/red")
    found = events_of(story, message_id="a")
    assert [(each.found.entry.path, each.found.entry.kind.value) for each in found] == [
        ("t", "sent"),
        ("t", "routed"),
        ("t/Subscriptions/red", "copied"),
    ]
    assert found[1].text == "1 of 2 subscriptions take the message"
    assert found[1].to_json()["verdicts"]


async def test_the_ring_is_bounded_and_forgets_the_oldest(clock: Clock) -> None:
    story = Story(is_on=True, messages_max=10)
    broker = open_broker(*QUEUES, clock=clock, observer=story)
    for number in range(30):
        await sent(broker, "q", f"m{number}")
    assert (story.message_count, story.forgotten_count) == (10, 20)
    assert kinds(story, message_id="m0") == []
    assert kinds(story, message_id="m29") == ["sent"]


async def test_of_a_second_that_brings_too_many_the_rest_is_left_out_until_somebody_wants_all(clock: Clock) -> None:
    instants = [100.0]
    story = Story(is_on=True, a_second_max=3, monotonic_s=lambda: instants[0])
    broker = open_broker(*QUEUES, clock=clock, observer=story)
    for number in range(5):
        await sent(broker, "q", f"m{number}")
    assert story.message_count == 3
    instants[0] += 0.9
    await sent(broker, "q", "the same second")
    assert story.message_count == 3
    instants[0] += 0.1
    for number in range(5):
        await sent(broker, "q", f"n{number}")
    assert story.message_count == 6
    story.switch(is_on=True)
    for number in range(5):
        await sent(broker, "q", f"o{number}")
    assert story.message_count == 11


async def test_messages_that_came_together_are_told_apart(clock: Clock) -> None:
    story = Story(is_on=True)
    broker = open_broker(*QUEUES, clock=clock, observer=story)
    sizes = (10, 3_000, 500)
    answers: asyncio.Queue[object] = asyncio.Queue()
    run = [encoded("x" * size, id=f"m{size}") for size in sizes]
    broker.open_sender("q", detached=print).send(run, lambda *answer: answers.put_nowait(answer))
    await asyncio.wait_for(answers.get(), 60)
    assert [kinds(story, message_id=f"m{size}") for size in sizes] == [["sent"]] * 3


async def test_large_messages_are_kept_without_their_bodies(clock: Clock) -> None:
    story = Story(is_on=True)
    broker = open_broker(*QUEUES, clock=clock, observer=story)
    await send(broker, "q", encoded("x" * 100_000, id="large"))
    assert kinds(story, message_id="large") == ["sent"]
    assert sum(len(data) for entry in story.entries() for data in entry.arrived) < 1_000


async def test_nothing_is_kept_while_it_is_off(broker: Broker, story: Story) -> None:
    story.switch(is_on=False)
    await sent(broker, "q", "a")
    assert list(story.entries()) == []
    story.switch(is_on=True)
    await sent(broker, "q", "b")
    assert kinds(story, message_id="b") == ["sent"]


async def test_a_search_gets_the_events_of_one_instant_and_unpacks_what_it_looks_at(
    broker: Broker, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await send(broker, "q", encoded(str(number)))
    entries = story.entries()
    await send(broker, "q", encoded("later"))
    ids = [each.number for each in entries]
    assert (len(ids), ids) == (5, sorted(set(ids)))
    assert [each.number for each in reversed(entries)] == ids[::-1]
    assert [each.number for each in entries[-2:]] == ids[-2:]
    assert (entries[0].number, entries[-1].number) == (ids[0], ids[-1])
    unpacked: list[int] = []
    unpack = Entry.__init__

    def counted(entry: Entry, number: int, kept: Kept) -> None:
        unpacked.append(number)
        unpack(entry, number, kept)

    monkeypatch.setattr(Entry, "__init__", counted)
    assert [each.entry.number for each in search(story.entries(), Sought(), 1)] == [ids[-1] + 1]
    assert len(unpacked) <= 2
