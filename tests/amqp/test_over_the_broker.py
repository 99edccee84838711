"""The adapter over the real broker: what only the two together show. The clock stands still unless a test moves it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from emubus.amqp.limits import Limits
from emubus.amqp.nodes.management import OF_THE_SERVICE
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import (
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Array, Described, Int, Long, Symbol, Timestamp, Uint, Ulong

from ..broker.namespace import loop_turns, open_broker
from .asking import Asker, sections
from .fakes import FakeBroker
from .wire import (
    ACCEPTED,
    ATTACH,
    BATCH,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    FLOW,
    TRANSFER,
    Frame,
    Wire,
    accepted,
    frame,
    modified,
    rejected,
)

START = 1_767_225_600_000
FILTER, TIMEOUT = Symbol("com.microsoft:session-filter"), Symbol("com.microsoft:timeout")
TRANSACTIONAL = 0x34
QUEUES = (
    QueueDescription("q"),
    QueueDescription("other"),
    QueueDescription("part", enable_partitioning=True),
    QueueDescription("s", requires_session=True, lock_duration_ms=30_000),
)
PAUSE_MS = Limits().deleted_pause_ms
TURNS_MAX = 200


def message(body: str, session_id: str | None = None, scheduled_at: int | None = None) -> bytes:
    notes = {} if scheduled_at is None else {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(scheduled_at)}
    return b"".join(
        (
            encode_described(Ulong(0x72), encode(notes)),
            encode_described(Ulong(0x73), encode([body, *([None] * 9), session_id])),
            encode_described(Ulong(0x77), encode(body)),
        )
    )


def body(frame: Frame) -> str:
    return str(sections(frame.payload)[0x77])


def command(code: int, fields: list[Any]) -> bytes:
    return encode_described(Ulong(0x77), encode(Described(Ulong(code), fields)))


class Together:
    """A client's wire to the adapter over a real broker."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock
        self.wire = Wire(broker=cast("FakeBroker", broker), clock=clock)
        self.wire.open()

    async def any_frames(self, count: int) -> list[Frame]:
        """The next frames, so many of them."""
        got: list[Frame] = []
        for _ in range(TURNS_MAX):
            got += await self.wire.turn()
            if len(got) >= count:
                break
        assert len(got) == count
        return got

    async def frames(self, *codes: int) -> list[Frame]:
        """The next frames, whose codes must be these."""
        got = await self.any_frames(len(codes))
        assert [each.code for each in got] == list(codes)
        return got

    async def nothing(self) -> None:
        assert await self.wire.turn(30) == []

    async def send(self, *bodies: bytes, address: str = "q") -> None:
        handle = 30 if address == "q" else 31
        self.wire.attach_sender(address, handle=handle)
        for each in bodies:
            self.wire.write(self.wire.transfer(each, handle=handle))
            (answer,) = await self.frames(DISPOSITION)
            assert answer.get(4) == accepted
        self.wire.send(0, DETACH, [Uint(handle), True])
        await self.frames(DETACH)

    async def accept(self, name: object, handle: int = 0, timeout_ms: int | None = None) -> None:
        properties = None if timeout_ms is None else {TIMEOUT: Uint(timeout_ms)}
        assert self.wire.attach_receiver("s", handle, filter={FILTER: name}, properties=properties) == []

    async def transact(self, code: int, fields: list[Any], handle: int = 9) -> Frame:
        self.wire.write(self.wire.transfer(command(code, fields), handle=handle))
        (answer,) = await self.frames(DISPOSITION)
        return answer


@pytest.fixture
async def both() -> AsyncIterator[Together]:
    with capture_logs() as logs:
        clock = Clock(start_at=START, manual=True)
        broker = open_broker(*QUEUES, clock=clock)
        together = Together(broker, clock)
        yield together
        together.wire.lose()
        await broker.stop()
        clock.close()
        assert broker.transactions.open_count() == 0
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


# ---- message sessions


async def test_a_wait_for_any_session_ends_after_exactly_the_time_that_was_asked_for(both: Together) -> None:
    await both.accept(None, timeout_ms=59_900)
    both.clock.advance(59_899)
    await both.nothing()
    both.clock.advance(1)
    answer, detach = await both.frames(ATTACH, DETACH)
    assert answer.get(5) is None
    assert detach.get(2).value[0] == "com.microsoft:timeout"


@pytest.mark.parametrize("asked", [None, 100_000])
async def test_nobody_waits_longer_than_65_seconds(both: Together, asked: int | None) -> None:
    await both.accept(None, timeout_ms=asked)
    both.clock.advance(64_999)
    await both.nothing()
    both.clock.advance(1)
    await both.frames(ATTACH, DETACH)


async def test_who_waits_gets_the_first_session_that_has_a_message(both: Together) -> None:
    await both.accept(None)
    other = Together(both.broker, both.clock)
    await other.send(message("m", "s-1"), address="s")
    (attach,) = await both.frames(ATTACH)
    assert attach.fields[5].value[7] == {FILTER: "s-1"}
    assert attach.fields[13]["com.microsoft:locked-until-utc"] == 639028224000000000 + 30_000 * 10_000
    both.wire.flow(0, 5)
    (transfer,) = await both.frames(TRANSFER)
    assert body(transfer) == "m"
    both.wire.dispose(accepted, 0)
    await both.frames(DISPOSITION)
    other.wire.lose()


async def test_a_session_that_another_has_is_refused_at_once_and_free_once_it_is_given_back(both: Together) -> None:
    await both.accept("s-1")
    await both.frames(ATTACH)
    await both.accept("s-1", handle=1)
    _, detach = await both.frames(ATTACH, DETACH)
    assert detach.get(2).value[0] == "com.microsoft:session-cannot-be-locked"
    both.wire.send(0, DETACH, [Uint(1), True])
    both.wire.send(0, DETACH, [Uint(0), True])
    await both.frames(DETACH)
    await both.accept("s-1", handle=2)
    await both.frames(ATTACH)


async def test_a_client_that_gave_up_waiting_gets_no_session(both: Together) -> None:
    await both.accept(None)
    both.wire.send(0, DETACH, [Uint(0), True])
    await both.nothing()
    await both.send(message("m", "s-1"), address="s")
    await both.accept(None, handle=1)
    await both.frames(ATTACH)


async def test_a_lock_that_runs_out_closes_the_link_and_refuses_later_settlements(both: Together) -> None:
    await both.send(message("m", "s-1"), address="s")
    await both.accept("s-1")
    await both.frames(ATTACH)
    both.wire.flow(0, 5)
    await both.frames(TRANSFER)
    both.clock.advance(30_000)
    (detach,) = await both.frames(DETACH)
    assert detach.get(2).value[0] == "com.microsoft:session-lock-lost"
    both.wire.dispose(accepted, 0)
    (answer,) = await both.frames(DISPOSITION)
    assert answer.get(4).value[0].value[0] == "com.microsoft:session-lock-lost"
    both.wire.send(0, DETACH, [Uint(0), True])
    await both.nothing()
    await both.accept("s-1", handle=1)
    await both.frames(ATTACH)
    both.wire.flow(1, 5)
    (transfer,) = await both.frames(TRANSFER)
    assert sections(transfer.payload)[0x70][4] == 1


async def test_a_sessions_state_and_lock_are_kept_over_the_node(both: Together) -> None:
    await both.accept("s-1")
    await both.frames(ATTACH)
    ask = Asker(both.wire, "s")
    both.clock.advance(29_000)
    assert (await ask("renew-session-lock", {"session-id": "s-1"})).body == {"expiration": START + 59_000}
    assert (await ask("set-session-state", {"session-id": "s-1", "session-state": b"x"})).status == 200
    assert (await ask("get-session-state", {"session-id": "s-1"})).body == {"session-state": b"x"}
    listed = await ask("get-message-sessions", {"last-updated-time": Timestamp(253_402_300_800_000), "top": Int(9)})
    assert listed.body == {"skip": 0, "sessions-ids": Array(0xB1, ("s-1",))}
    both.clock.advance(29_000)
    await both.nothing()
    both.clock.advance(1_000)
    assert (await ask("renew-session-lock", {"session-id": "s-1"})).condition == "com.microsoft:session-lock-lost"
    both.clock.advance(1_500)  # it had nothing to settle: it learns of it a while later
    await both.frames(DETACH)


async def test_a_message_lock_that_is_over_says_nothing_about_a_session_that_is_held(both: Together) -> None:
    await both.send(message("m", "s-1"), address="s")
    await both.accept("s-1")
    await both.frames(ATTACH)
    both.wire.flow(0, 5)
    (transfer,) = await both.frames(TRANSFER)
    ask = Asker(both.wire, "s")
    tokens = {"lock-tokens": Array(0x98, (UUID(bytes_le=transfer.get(2)),)), "disposition-status": "completed"}
    assert (await ask("update-disposition", {**tokens, "session-id": "s-1"})).status == 200
    again = await ask("update-disposition", {**tokens, "session-id": "s-1"})
    assert again.condition == "com.microsoft:message-lock-lost"
    elsewhere = [await ask("update-disposition", {**tokens, **more}) for more in ({}, {"session-id": "s-2"})]
    assert {each.condition for each in elsewhere} == {"com.microsoft:session-lock-lost"}
    both.wire.dispose(accepted, 0)
    (answer,) = await both.frames(DISPOSITION)
    assert answer.get(4).value[0].value[0] == "com.microsoft:message-lock-lost"
    await both.nothing()


async def test_plain_receivers_and_session_receivers_keep_to_their_own_kind(both: Together) -> None:
    _, detach = both.wire.attach_receiver("s")
    assert "non-sessionful message receiver" in detach.get(2).value[1]
    _, detach = both.wire.attach_receiver("q", 1, filter={FILTER: None})
    assert "does not require sessions" in detach.get(2).value[1]
    _, detach = both.wire.attach_receiver("s/$DeadLetterQueue", 2, filter={FILTER: None})
    assert detach.get(2).value[0] == "amqp:not-allowed"
    assert both.wire.attach_receiver("s/$DeadLetterQueue", 3)[0].code == ATTACH


# ---- schedules and deferred messages


async def test_a_message_is_scheduled_seen_cancelled_or_comes_in_time(both: Together) -> None:
    ask = Asker(both.wire)
    messages = [{"message": message(name, scheduled_at=START + 1000)} for name in ("one", "two")]
    answer = await ask("schedule-message", {"messages": messages})
    numbers = answer.body["sequence-numbers"]
    assert numbers == Array(0x81, (Long(1), Long(2)))
    assert (await ask("cancel-scheduled-message", {"sequence-numbers": Array(0x81, (Long(1),))})).status == 200
    assert (await ask("cancel-scheduled-message", {"sequence-numbers": numbers})).status == 404
    peeked = await ask("peek-message", {"from-sequence-number": Long(0), "message-count": Int(9)})
    (seen,) = peeked.body["messages"]
    assert sections(seen["message"])[0x72]["x-opt-message-state"] == 2
    both.wire.attach_receiver("q", credit=5)
    await both.nothing()
    both.clock.advance(1000)
    (transfer,) = await both.frames(TRANSFER)
    assert body(transfer) == "two"


@pytest.mark.parametrize("address", ["q/$DeadLetterQueue"])
async def test_nothing_is_scheduled_where_nothing_can_be_sent(both: Together, address: str) -> None:
    answer = await Asker(both.wire, address)("schedule-message", {"messages": [{"message": message("m")}]})
    assert (answer.status, answer.condition) == (400, "amqp:not-allowed")


async def test_a_scheduled_message_has_the_same_limit_of_size(both: Together) -> None:
    messages = [{"message": message("m" * 300_000, scheduled_at=START + 1000)}]
    answer = await Asker(both.wire)("schedule-message", {"messages": messages})
    assert (answer.status, answer.condition) == (403, "amqp:link:message-size-exceeded")


async def test_an_entity_that_forwards_answers_no_request_but_its_dead_letters_do(both: Together) -> None:
    both.broker.administration.create(QueueDescription("forwards", forward_to="other"))
    ask = Asker(both.wire, "forwards")
    for name in OF_THE_SERVICE:
        answer = await ask(name.partition(":")[2], {})
        assert (answer.status, answer.condition) == (400, "amqp:not-allowed"), name
        assert answer.description.startswith("Cannot create a message browser on an entity with auto-forwarding")
    peek = {"from-sequence-number": Long(0), "message-count": Int(1)}
    other = Together(both.broker, both.clock)
    assert (await Asker(other.wire, "forwards/$DeadLetterQueue")("peek-message", peek)).status == 204
    other.wire.lose()
    both.broker.administration.update(QueueDescription("forwards"))
    assert (await ask("peek-message", peek)).status == 204


async def test_a_deferred_message_carries_its_lock_token(both: Together) -> None:
    await both.send(message("m"))
    both.wire.attach_receiver("q", credit=1)
    await both.frames(TRANSFER)
    both.wire.dispose(modified(None, True), 0)
    await both.frames(DISPOSITION)
    numbers = Array(0x81, (Long(1),))
    ask = Asker(both.wire)
    answer = await ask("receive-by-sequence-number", {"sequence-numbers": numbers, "receiver-settle-mode": Uint(1)})
    (row,) = answer.body["messages"]
    encoded = sections(row["message"])
    assert encoded[0x71] == {"x-opt-lock-token": row["lock-token"]}
    assert encoded[0x72]["x-opt-locked-until"] == START + 60_000
    settled = {"disposition-status": "completed", "lock-tokens": Array(0x98, (row["lock-token"],))}
    assert (await ask("update-disposition", settled)).status == 200
    assert (await ask("update-disposition", settled)).status == 410


async def test_a_message_is_settled_by_its_lock_token_over_another_connection(both: Together) -> None:
    await both.send(message("m"))
    both.wire.attach_receiver("q", credit=1)
    (transfer,) = await both.frames(TRANSFER)
    other = Together(both.broker, both.clock)
    settled = {"disposition-status": "completed", "lock-tokens": Array(0x98, (UUID(bytes_le=transfer.get(2)),))}
    assert (await Asker(other.wire)("update-disposition", settled)).status == 200
    other.wire.lose()
    both.wire.dispose(accepted, 0)
    (answer,) = await both.frames(DISPOSITION)
    assert answer.get(4).value[0].value[0] == "com.microsoft:message-lock-lost"


# ---- transactions


async def declared(both: Together) -> bytes:
    both.wire.attach_sender(handle=9, target=Described(Ulong(COORDINATOR), []))
    answer = await both.transact(0x31, [None])
    assert answer.get(4).descriptor == 0x33
    return bytes(answer.get(4).value[0])


def within(transaction: bytes, outcome: object = None) -> Described:
    return Described(Ulong(TRANSACTIONAL), [transaction, outcome])


@pytest.mark.parametrize("fail", [False, True])
async def test_sends_and_settlements_come_true_together_or_not_at_all(both: Together, fail: bool) -> None:
    await both.send(message("old"))
    both.wire.attach_receiver("q", 0, credit=5)
    await both.frames(TRANSFER)
    both.wire.attach_sender("q", handle=1)
    transaction = await declared(both)
    both.wire.write(both.wire.transfer(message("new"), handle=1, state=within(transaction)))
    both.wire.dispose(within(transaction, accepted), 0)
    answers = await both.frames(DISPOSITION, DISPOSITION)
    confirmed = Described(TRANSACTIONAL, [transaction, Described(ACCEPTED, [])])
    assert [each.get(4) for each in answers] == [confirmed] * 2
    scheduled = {"messages": [{"message": message("later", scheduled_at=START + 1000)}]}
    answer = await Asker(both.wire)("schedule-message", scheduled, within(transaction))
    assert answer.status == 200
    both.clock.advance(1000)
    await both.nothing()
    both.wire.write(both.wire.transfer(command(0x32, [transaction, fail]), handle=9))
    got = await both.any_frames(1 if fail else 4)
    dispositions = [(each.get(0), each.get(3), each.get(4)) for each in got if each.code == DISPOSITION]
    assert dispositions == ([] if fail else [(False, True, confirmed)]) + [(True, True, accepted)]
    assert sorted(body(each) for each in got if each.code == TRANSFER) == ([] if fail else ["later", "new"])
    both.clock.advance(60_000)
    if fail:
        (again,) = await both.frames(TRANSFER)
        assert (body(again), sections(again.payload)[0x70][4]) == ("old", 1)


async def test_a_scheduled_message_that_is_too_large_is_refused_at_once(both: Together) -> None:
    answer = await Asker(both.wire)("schedule-message", {"messages": [{"message": message("x" * 300_000)}]})
    assert (answer.status, answer.condition) == (403, "amqp:link:message-size-exceeded")


async def test_a_batch_without_messages_closes_its_link(both: Together) -> None:
    both.wire.attach_sender("q", handle=1, name="mine")
    await both.nothing()
    both.wire.write(both.wire.transfer(b"", handle=1, format=BATCH))
    (detach,) = await both.frames(DETACH)
    condition, text, _ = detach.get(2).value
    assert condition == "amqp:not-allowed"
    assert text.startswith("The link '")
    assert "mine' is force detached by the broker because publisher(link1)" in text


async def test_a_transaction_that_takes_too_long_is_unknown(both: Together) -> None:
    transaction = await declared(both)
    both.clock.advance(120_000)
    both.wire.attach_sender("q", handle=1)
    await both.nothing()
    both.wire.write(both.wire.transfer(message("late"), handle=1, state=within(transaction)))
    (refused,) = await both.frames(DISPOSITION)
    assert refused.get(4).value[0].value[0] == "amqp:not-allowed"
    answer = await both.transact(0x32, [transaction, False])
    assert answer.get(4).value[0].value[0] == "amqp:transaction:unknown-id"


async def test_a_message_for_another_entity_arrives_with_the_commit(both: Together) -> None:
    wire = both.wire
    wire.begin(1)
    wire.attach_sender(handle=9, channel=1, target=Described(Ulong(COORDINATOR), []))
    wire.attach_receiver("q", 0, channel=1)
    wire.attach_sender("other", handle=1, channel=1)
    wire.attach_receiver("other", 0, credit=5)
    wire.write(wire.transfer(command(0x31, [None]), handle=9, channel=1))
    (answer,) = await both.frames(DISPOSITION)
    transaction = answer.get(4).value[0]
    wire.write(wire.transfer(message("m"), handle=1, channel=1, state=within(transaction)))
    await both.frames(DISPOSITION)
    wire.write(wire.transfer(command(0x32, [transaction, False]), handle=9, channel=1))
    answer, transfer = await both.frames(DISPOSITION, TRANSFER)
    assert (answer.get(4), body(transfer)) == (accepted, "m")


async def test_a_message_that_is_sent_through_an_entity_arrives_at_its_destination(both: Together) -> None:
    destination = {Symbol("com.microsoft:transfer-destination-address"): "other"}
    both.wire.attach_sender("q", handle=1, properties=destination)
    both.wire.attach_receiver("other", 0, credit=5)
    both.wire.write(both.wire.transfer(message("m"), handle=1))
    answer, transfer = await both.frames(DISPOSITION, TRANSFER)
    assert (answer.get(4), body(transfer)) == (accepted, "m")


# ---- rules


async def test_rules_that_are_added_over_the_wire_decide_who_gets_a_message(both: Together) -> None:
    both.broker.administration.create(TopicDescription("t"))
    both.broker.administration.create(SubscriptionDescription("t", "s"))
    ask = Asker(both.wire, "t/Subscriptions/s")
    rule = {"sql-filter": {"expression": "sys.MessageId = 'wanted'"}}
    assert (await ask("remove-rule", {"rule-name": "$Default"})).status == 200
    assert (await ask("add-rule", {"rule-name": "r", "rule-description": rule})).status == 200
    assert both.broker.administration.rules("t/Subscriptions/s") == (
        RuleDescription("r", SqlFilter("sys.MessageId = 'wanted'")),
    )
    bad = {"sql-filter": {"expression": "sys.MessageId = "}}
    answer = await ask("add-rule", {"rule-name": "bad", "rule-description": bad})
    assert (answer.status, answer.condition) == (400, "com.microsoft:argument-error")
    answer = await ask("enumerate-rules", {"top": Int(100), "skip": Int(0)})
    assert [each["rule-description"].value[2] for each in answer.body["rules"]] == ["r"]
    await both.send(message("unwanted"), message("wanted"), address="t")
    both.wire.attach_receiver("t/subscriptions/S", 0, credit=5)
    (transfer,) = await both.frames(TRANSFER)
    assert body(transfer) == "wanted"


# ---- settlements whose link has gone


@pytest.mark.parametrize("closed", [False, True], ids=["detached", "closed"])
async def test_what_was_settled_behind_a_detach_may_be_asked_for_once_more(both: Together, closed: bool) -> None:
    """Python's SDK sees the answer to its detach before the outcome, and goes over to `$management` then."""
    await both.send(message("m"))
    ask = Asker(both.wire)
    both.wire.attach_receiver("q", 0, credit=5)
    (transfer,) = await both.frames(TRANSFER)
    both.wire.send(0, DETACH, [Uint(0), closed])
    both.wire.dispose(accepted, transfer.get(1))
    detach, outcome = await both.frames(DETACH, DISPOSITION)
    assert (detach.get(1) is True, outcome.get(4)) == (closed, accepted)
    lock = {"lock-tokens": Array(0x98, (uuid.UUID(bytes_le=transfer.get(2)),))}
    for status, answered in (("abandoned", 410), ("completed", 200), ("completed", 410)):
        answer = await ask("update-disposition", {**lock, "disposition-status": status})
        assert (answer.status, answer.condition is None) == (answered, answered == 200)
    assert await both.broker.messages.peek("q", 0, 10, 1 << 20) == []


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (accepted, "completed"),
        (modified(), "abandoned"),
        (modified(undeliverable=True), "defered"),
        (rejected("why", "how"), "suspended"),
    ],
    ids=["complete", "abandon", "defer", "dead-letter"],
)
async def test_an_answer_that_comes_behind_that_to_the_detach_may_be_asked_for_once_more(
    both: Together, state: Described, status: str
) -> None:
    """The client disposes and detaches before the message is settled: it hears of the detach first."""
    await both.send(message("m"))
    ask = Asker(both.wire)
    both.wire.attach_receiver("q", 0, credit=5)
    (transfer,) = await both.frames(TRANSFER)
    disposition = frame(0, DISPOSITION, [True, Uint(transfer.get(1)), None, False, state, None])
    both.wire.write(disposition + frame(0, DETACH, [Uint(0), True]))
    await both.frames(DETACH, DISPOSITION)
    lock = {"lock-tokens": Array(0x98, (uuid.UUID(bytes_le=transfer.get(2)),))}
    for answered in (200, 410):
        assert (await ask("update-disposition", {**lock, "disposition-status": status})).status == answered


async def test_what_was_settled_on_an_open_link_is_not_asked_for_once_more(both: Together) -> None:
    await both.send(message("m"))
    ask = Asker(both.wire)
    both.wire.attach_receiver("q", 0, credit=5)
    (transfer,) = await both.frames(TRANSFER)
    both.wire.dispose(accepted, transfer.get(1))
    await both.frames(DISPOSITION)
    both.wire.send(0, DETACH, [Uint(0), True])
    await both.frames(DETACH)
    lock = {"lock-tokens": Array(0x98, (uuid.UUID(bytes_le=transfer.get(2)),))}
    answer = await ask("update-disposition", {**lock, "disposition-status": "completed"})
    assert (answer.status, answer.condition) == (410, "com.microsoft:message-lock-lost")


# ---- entities that go away


@pytest.fixture
async def four_links(both: Together) -> Together:
    """Sender, receiver, a held session and one that is waited for."""
    both.wire.attach_sender("q", handle=0)
    both.wire.attach_receiver("q", 1)
    await both.accept("s-1", handle=2)
    await both.frames(ATTACH)
    await both.accept(None, handle=3)
    return both


async def test_a_deleted_entity_takes_its_links_along(four_links: Together) -> None:
    four_links.broker.administration.delete("q")
    (of_sender,) = await four_links.frames(DETACH)
    four_links.clock.advance(PAUSE_MS - 1)
    await four_links.nothing()
    four_links.clock.advance(1)
    (of_receiver,) = await four_links.frames(DETACH)
    assert {each.get(2).value[0] for each in (of_sender, of_receiver)} == {"amqp:not-found"}
    four_links.broker.administration.delete("s")
    _, of_waiting = await four_links.frames(ATTACH, DETACH)
    four_links.clock.advance(PAUSE_MS)
    (of_session,) = await four_links.frames(DETACH)
    assert {each.get(2).value[0] for each in (of_waiting, of_session)} == {"amqp:not-found"}
    _, detach = four_links.wire.attach_sender("q", handle=5)
    assert "could not be found" in detach.get(2).value[1]


@pytest.mark.parametrize(("name", "handle"), [("q", 1), ("s", 2)])
async def test_a_receiver_of_a_deleted_entity_is_drained_and_closed_before_it_is_detached(
    four_links: Together, name: str, handle: int
) -> None:
    """.NET does it when a program closes its receiver right behind the deletion, and waits for the answer."""
    four_links.wire.flow(handle, 5)
    await four_links.nothing()
    four_links.broker.administration.delete(name)
    await four_links.wire.turn(30)
    four_links.wire.flow(handle, 5, drain=True)
    (answer,) = await four_links.frames(FLOW)
    assert (answer.get(4), answer.get(5), answer.get(6), answer.get(8)) == (handle, 5, 0, True)
    four_links.wire.flow(handle, 3, count=5, drain=True)  # and once more
    (answer,) = await four_links.frames(FLOW)
    assert (answer.get(5), answer.get(6)) == (8, 0)
    four_links.wire.send(0, DETACH, [Uint(handle), True])
    (detach,) = await four_links.frames(DETACH)
    assert detach.get(2) is None
    four_links.clock.advance(PAUSE_MS)
    await four_links.nothing()


async def test_a_drain_that_is_under_way_when_the_entity_is_deleted_is_answered(four_links: Together) -> None:
    four_links.wire.flow(1, 5, drain=True)
    four_links.broker.administration.delete("q")
    got = await four_links.any_frames(2)
    assert sorted(each.code for each in got) == [FLOW, DETACH]
    (answer,) = [each for each in got if each.code == FLOW]
    assert (answer.get(4), answer.get(5), answer.get(6)) == (1, 5, 0)


async def test_a_connection_may_go_before_its_links_of_a_deleted_entity_are_detached(four_links: Together) -> None:
    four_links.broker.administration.delete("q")
    four_links.broker.administration.delete("s")
    four_links.wire.lose()
    four_links.clock.advance(PAUSE_MS)
    await four_links.nothing()


async def test_a_changed_setting_detaches_no_link_and_holds_from_the_next_message_on(four_links: Together) -> None:
    four_links.broker.administration.update(QueueDescription("q", lock_duration_ms=7_000))
    await four_links.nothing()
    four_links.wire.write(four_links.wire.transfer(message("x"), handle=0))
    (answer,) = await four_links.frames(DISPOSITION)
    assert answer.get(4) == accepted
    four_links.wire.flow(credit=1, handle=1)
    (delivery,) = await four_links.frames(TRANSFER)
    locked_until = sections(delivery.payload)[0x72][Symbol("x-opt-locked-until")]
    assert locked_until == START + 7_000


async def test_a_disabled_entity_detaches_its_links_and_refuses_new_ones(four_links: Together) -> None:
    four_links.broker.administration.update(QueueDescription("q", status=EntityStatus.DISABLED))
    detaches = await four_links.frames(DETACH, DETACH)
    assert {each.get(2).value[0] for each in detaches} == {"com.microsoft:entity-disabled"}
    _, detach = four_links.wire.attach_sender("q", handle=5)
    assert detach.get(2).value[0] == "com.microsoft:entity-disabled"


async def test_a_client_that_is_alone_is_answered_with_its_input(both: Together) -> None:
    """All of it in one write each: a message and its outcome, a credit and the message, an outcome and its answer."""
    await loop_turns(3)  # the workers wait
    wire = Wire(broker=cast("FakeBroker", both.broker), clock=both.clock, answers_at_once=True)
    wire.open()
    wire.attach_sender("q", handle=0)
    wire.write(wire.transfer(message("m"), handle=0))
    (outcome,) = wire.read()
    assert (outcome.code, outcome.get(4)) == (DISPOSITION, accepted)
    attach, *_, transfer = wire.attach_receiver("q", 1, credit=1)
    assert (attach.code, transfer.code, body(transfer)) == (ATTACH, TRANSFER, "m")
    wire.dispose(accepted, transfer.get(1))
    (answer,) = wire.read()
    assert (answer.code, answer.get(4)) == (DISPOSITION, accepted)
    assert await wire.turn(12) == []
