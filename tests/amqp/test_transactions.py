"""Transactions over the wire: the coordinator, work within them, and what a cross-entity AMQP session may reach."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emubus.amqp.limits import Limits
from emubus.broker.access import Access
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import SharedKey
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Array, Described, Symbol, Uint, Ulong

from ..rounds import rounds
from .fakes import FakeQueue
from .transacting import (
    DECLARE,
    DECLARED,
    DISCHARGE,
    ID,
    TRANSACTIONAL,
    command,
    condition,
    coordinate,
    declare,
    discharge,
    within,
)
from .wire import (
    ATTACH,
    BATCH,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    Frame,
    Wire,
    accepted,
)

REFUSAL = BrokerError(Condition.NOT_ALLOWED, "Local transactions cannot span multiple top-level entities.")
DESTINATION = "com.microsoft:transfer-destination-address"


# ---- the coordinator


async def test_the_coordinators_target_is_echoed_and_there_is_credit_at_once(wire: Wire) -> None:
    attach, flow = coordinate(wire)
    assert (attach.code, flow.code) == (ATTACH, FLOW)
    assert attach.fields[6] == Described(COORDINATOR, [Array(0xA3, ("amqp:local-transactions",))])
    assert flow.get(6) == 100


async def test_a_coordinator_without_capabilities_has_none_in_the_answer(wire: Wire) -> None:
    attach, _ = wire.attach_sender(target=Described(Ulong(COORDINATOR), []))
    assert attach.fields[6].descriptor == COORDINATOR


async def test_the_attach_of_a_coordinator_states_no_greatest_message_size(wire: Wire) -> None:
    attach, _ = coordinate(wire)
    assert attach.get(10) is None


async def test_it_takes_no_right_to_be_a_coordinators_client() -> None:
    wire = Wire(access=Access((), verify=True))
    wire.open()
    assert [each.code for each in coordinate(wire)] == [ATTACH, FLOW]
    wire.lose()


async def test_a_declare_is_answered_with_declared_and_a_binary_id(wire: Wire) -> None:
    coordinate(wire)
    first, second = declare(wire), declare(wire)
    assert (first.code, first.fields[:2], first.get(3)) == (DISPOSITION, [True, 0], True)
    assert [each.get(4) for each in (first, second)] == [
        Described(DECLARED, [b"txn\xff1"]),
        Described(DECLARED, [b"txn\xff2"]),
    ]


@pytest.mark.parametrize("fail", [True, False])
async def test_a_discharge_is_plainly_accepted(open_transaction: Wire, fail: bool) -> None:
    assert discharge(open_transaction, [ID, fail]).get(4) == accepted
    assert open_transaction.broker.transactions.ended == [(ID, fail)]


async def test_a_discharge_without_fail_commits(open_transaction: Wire) -> None:
    assert discharge(open_transaction, [ID]).get(4) == accepted
    assert open_transaction.broker.transactions.ended == [(ID, False)]


async def test_symbolic_descriptors_are_understood(wire: Wire) -> None:
    coordinate(wire)
    wire.write(wire.transfer(command(Symbol("amqp:declare:list"), []), handle=9))
    assert wire.read()[0].get(4).descriptor == DECLARED
    wire.write(wire.transfer(command(Symbol("amqp:discharge:list"), [ID, False]), handle=9))
    assert wire.read()[0].get(4) == accepted


async def test_an_unknown_transaction_can_t_be_discharged(open_transaction: Wire) -> None:
    answer = discharge(open_transaction, [b"other", False])
    assert (answer.get(3), condition(answer)) == (True, "amqp:transaction:unknown-id")


async def test_a_commit_that_fails_is_rejected(open_transaction: Wire) -> None:
    open_transaction.broker.transactions.error = BrokerError(Condition.TRANSACTION_ROLLBACK, "The store is down.")
    assert condition(discharge(open_transaction, [ID, False])) == "amqp:transaction:rollback"


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (command(Ulong(DECLARE), [b"global"]), "amqp:not-implemented"),
        (command(Ulong(DISCHARGE), []), "amqp:invalid-field"),
        (command(Ulong(DISCHARGE), ["text", False]), "amqp:invalid-field"),
        (command(Ulong(0x35), []), "amqp:not-implemented"),
        (encode_described(Ulong(0x77), encode("declare")), "amqp:not-implemented"),
        (b"\xff\xff", "amqp:decode-error"),
        (b"", "amqp:not-implemented"),
    ],
)
async def test_what_is_neither_declare_nor_discharge_is_rejected(wire: Wire, data: bytes, wanted: str) -> None:
    coordinate(wire)
    wire.write(wire.transfer(data, handle=9))
    (answer,) = wire.read()
    assert condition(answer) == wanted


async def test_open_transactions_have_a_limit() -> None:
    wire = Wire(limits=Limits(transactions_max=2))
    wire.open()
    coordinate(wire)
    states = [declare(wire) for _ in range(3)]
    assert [each.get(4).descriptor for each in states] == [DECLARED, DECLARED, 0x25]
    assert condition(states[2]) == "amqp:resource-limit-exceeded"
    wire.lose()


@pytest.mark.parametrize("end", [(DETACH, [Uint(9), True]), (END, []), (0x18, [])])
async def test_what_is_open_is_rolled_back_when_the_coordinators_link_goes(
    open_transaction: Wire, end: tuple[int, list[Any]]
) -> None:
    open_transaction.send(0, *end)
    open_transaction.lose()
    assert open_transaction.broker.transactions.ended == [(ID, True)]


async def test_what_is_open_is_rolled_back_when_the_connection_is_lost(open_transaction: Wire) -> None:
    open_transaction.lose()
    assert open_transaction.broker.transactions.ended == [(ID, True)]


# ---- whose it is


async def test_a_transaction_of_another_connection_is_unknown(open_transaction: Wire) -> None:
    other = Wire(broker=open_transaction.broker)
    other.open()
    other.attach_sender(handle=8)
    coordinate(other)
    other.attach_receiver(handle=1, credit=1)
    other.broker.q.put(b"one")
    await other.turn()
    other.write(other.transfer(b"m", handle=8, state=within()))
    other.dispose(within(accepted), 0)
    gone = other.read()
    assert [(each.code, each.get(2).value[0]) for each in gone] == [(DETACH, "amqp:transaction:unknown-id")] * 2
    assert condition(discharge(other, [ID, True])) == "amqp:transaction:unknown-id"
    assert open_transaction.broker.transactions.work == []
    other.lose()
    assert discharge(open_transaction, [ID, False]).get(4) == accepted


@pytest.mark.parametrize("how", ["of one connection", "without a claim", "of all, without a claim"])
async def test_a_connection_has_few_open_transactions_and_fewer_without_a_claim(how: str) -> None:
    access = Access((SharedKey("k", "v"),), verify=True)
    limits = Limits(
        transactions_per_connection_max=3,
        unclaimed_transactions_per_connection_max=2,
        unclaimed_transactions_max=5 if how != "of all, without a claim" else 2,
    )
    wire = Wire(access=access, limits=limits)
    wire.open()
    coordinate(wire)
    claimed = how == "of one connection"
    if claimed:
        wire.server.context.claims.show_key("k", "v")
    answers = [declare(wire).get(4) for _ in range(5)]
    count = 3 if claimed else 2
    assert [each.descriptor for each in answers] == [DECLARED] * count + [0x25] * (5 - count)
    assert answers[-1].value[0].value[0] == "amqp:resource-limit-exceeded"
    wire.lose()


# ---- sends


async def test_a_transactional_send_is_confirmed_with_the_same_transaction_and_accepted(open_transaction: Wire) -> None:
    wire = open_transaction
    wire.write(wire.transfer(b"in it", handle=8, state=within()) + wire.transfer(b"not in it", handle=8))
    frames = wire.read()
    assert [each.get(4) for each in frames] == [Described(TRANSACTIONAL, [ID, Described(0x24, [])]), accepted]
    assert all(each.get(3) is True for each in frames)
    assert wire.broker.transactions.work == [("send", ID, b"in it", False)]
    assert wire.broker.q.sent == [(b"not in it", False)]


async def test_a_batch_is_a_batch_within_a_transaction_too(open_transaction: Wire) -> None:
    open_transaction.write(open_transaction.transfer(b"batch", handle=8, state=within(), format=BATCH))
    assert open_transaction.broker.transactions.work == [("send", ID, b"batch", True)]


@pytest.mark.parametrize("state", [within(transaction=b"other"), within(transaction=None), Described(Ulong(0x34), [])])
async def test_a_send_in_an_unknown_transaction_closes_its_link_and_is_not_done(
    open_transaction: Wire, state: object
) -> None:
    """A reject would be taken for an acceptance by the Java SDK (azure-service-bus-java 362 has the detach)."""
    open_transaction.write(open_transaction.transfer(b"m", handle=8, state=state))
    (answer,) = open_transaction.read()
    assert (answer.code, answer.get(1), answer.get(2).value[0]) == (DETACH, True, "amqp:transaction:unknown-id")
    assert open_transaction.broker.q.sent == []


async def test_a_presettled_transactional_send_is_done_and_not_answered(open_transaction: Wire) -> None:
    open_transaction.write(open_transaction.transfer(b"m", handle=8, state=within(), settled=True))
    assert await open_transaction.turn() == []
    assert open_transaction.broker.transactions.work == [("send", ID, b"m", False)]


async def test_a_transactional_send_of_many_frames_is_one_send(open_transaction: Wire) -> None:
    wire = open_transaction
    first = wire.transfer(b"first ", handle=8, state=within(), more=True)
    wire.write(first + wire.transfer(b"last", handle=8))
    assert wire.read()[-1].get(4).descriptor == TRANSACTIONAL
    assert wire.broker.transactions.work == [("send", ID, b"first last", False)]


async def test_a_send_of_another_state_is_plain(open_transaction: Wire) -> None:
    open_transaction.write(open_transaction.transfer(b"m", handle=8, state=accepted))
    assert open_transaction.read()[0].get(4) == accepted
    assert open_transaction.broker.q.sent == [(b"m", False)]


async def test_neither_tokens_nor_commands_are_part_of_a_transaction(open_transaction: Wire) -> None:
    open_transaction.write(open_transaction.transfer(command(Ulong(DECLARE), [None]), handle=9, state=within()))
    (answer,) = open_transaction.read()
    assert condition(answer) == "amqp:not-allowed"


# ---- what an AMQP session may reach


@pytest.fixture
async def two_queues(bare: Wire) -> Wire:
    bare.broker.queues |= {"other": FakeQueue(), "t/subscriptions/s": FakeQueue(), "t/subscriptions/r": FakeQueue()}
    bare.broker.queues["t"] = FakeQueue()
    bare.open()
    return bare


def refused(frames: list[Frame]) -> bool:
    codes = [each.code for each in frames]
    if codes[:2] == [ATTACH, DETACH]:
        assert frames[1].get(2).value[0] == "amqp:not-allowed"
        assert "Local transactions cannot span multiple top-level entities" in frames[1].get(2).value[1]
        return True
    return False


@pytest.mark.parametrize("first", ["sender", "receiver"])
async def test_behind_a_coordinator_the_first_entity_is_the_one_that_others_are_reached_through(
    two_queues: Wire, first: str
) -> None:
    wire = two_queues
    coordinate(wire)
    wire.attach_sender("q", handle=0) if first == "sender" else wire.attach_receiver("amqps://h:1/Q", handle=0)
    assert not refused(wire.attach_sender("other", handle=1))
    assert not refused(wire.attach_receiver("q", handle=2))
    assert refused(wire.attach_receiver("other", handle=3))
    assert refused(wire.attach_receiver("other", handle=4, filter={Symbol("com.microsoft:session-filter"): None}))
    declare(wire)
    assert wire.broker.transactions.declared[ID][1]() is wire.broker.q


@pytest.mark.parametrize("by", ["client", "broker"])
async def test_once_the_links_to_the_first_entity_are_gone_another_one_may_be_the_first(
    two_queues: Wire, by: str
) -> None:
    wire = two_queues
    coordinate(wire)
    wire.attach_receiver("q", handle=0)
    wire.attach_sender("q", handle=1)
    wire.send(0, DETACH, [Uint(1), True])
    wire.read()
    assert refused(wire.attach_receiver("other", handle=2))  # a receiver of the first one is left
    if by == "broker":
        wire.broker.q.consumers[0].detached(BrokerError(Condition.DETACH_FORCED, "dropped"))
    wire.send(0, DETACH, [Uint(0), True])
    wire.read()
    assert not refused(wire.attach_receiver("other", handle=3))
    assert refused(wire.attach_receiver("q", handle=4))


async def test_a_transaction_that_is_declared_before_any_entity_link_finds_its_first_entity_later(
    two_queues: Wire,
) -> None:
    coordinate(two_queues)
    declare(two_queues)
    via = two_queues.broker.transactions.declared[ID][1]
    assert via() is None
    two_queues.attach_receiver("other", handle=0)
    two_queues.attach_sender("q", handle=1)
    assert via() is two_queues.broker.queues["other"]


async def test_subscriptions_of_one_topic_are_one_top_level_entity(two_queues: Wire) -> None:
    coordinate(two_queues)
    assert not refused(two_queues.attach_receiver("t/Subscriptions/s", handle=0))
    assert not refused(two_queues.attach_receiver("T/subscriptions/r", handle=1))
    assert refused(two_queues.attach_receiver("q", handle=2))


async def test_a_coordinator_behind_an_entity_link_or_on_a_session_of_its_own_binds_nothing(two_queues: Wire) -> None:
    wire = two_queues
    wire.attach_sender("q", handle=0)
    coordinate(wire)
    wire.begin(1)
    coordinate(wire, channel=1)
    assert not refused(wire.attach_receiver("q", handle=1))
    assert not refused(wire.attach_receiver("other", handle=2))
    declare(wire)
    assert wire.broker.transactions.declared[ID][1]() is None


async def test_a_new_amqp_session_on_the_same_channel_begins_anew(two_queues: Wire) -> None:
    wire = two_queues
    wire.begin(1)
    coordinate(wire, channel=1)
    wire.attach_receiver("q", handle=1, channel=1)
    wire.send(1, END, [])
    wire.read()
    wire.begin(1)
    coordinate(wire, channel=1)
    assert not refused(wire.attach_receiver("other", handle=1, channel=1))


async def test_a_first_entity_that_is_gone_makes_no_transactions(two_queues: Wire) -> None:
    coordinate(two_queues)
    two_queues.attach_sender("other", handle=0)
    del two_queues.broker.queues["other"]
    assert condition(declare(two_queues)) == "amqp:not-found"


# ---- sends through one entity to another


def attach_through(wire: Wire, destination: object = "other") -> list[Frame]:
    return wire.attach_sender("q", handle=0, properties={Symbol(DESTINATION): destination})


async def test_a_destination_is_echoed_and_messages_go_on_to_it(two_queues: Wire) -> None:
    wire = two_queues
    attach, _ = attach_through(wire)
    assert attach.fields[13][DESTINATION] == "other"
    coordinate(wire)
    declare(wire)
    wire.write(wire.transfer(b"alone") + wire.transfer(b"together", state=within(), format=BATCH))
    states = {each.get(1): each.get(4) for each in wire.read()}
    assert states == {1: accepted, 2: Described(TRANSACTIONAL, [ID, Described(0x24, [])])}
    assert wire.broker.transactions.work == [
        ("transfer", None, wire.broker.q, b"alone", "other", False),
        ("transfer", ID, wire.broker.q, b"together", "other", True),
    ]


async def test_a_transfer_that_is_refused_is_rejected(two_queues: Wire) -> None:
    attach_through(two_queues)
    two_queues.broker.transactions.error = REFUSAL
    two_queues.write(two_queues.transfer(b"m"))
    assert condition(two_queues.read()[0]) == "amqp:not-allowed"


async def test_a_transfer_that_is_too_large_is_rejected(two_queues: Wire) -> None:
    two_queues.broker.q.message_bytes_max = 10
    attach_through(two_queues)
    for sender in two_queues.broker.senders:
        sender.message_bytes_max = 3
    two_queues.write(two_queues.transfer(b"12345"))
    assert condition(two_queues.read()[0]) == "amqp:link:message-size-exceeded"


async def test_a_destination_that_there_is_not_is_refused(two_queues: Wire) -> None:
    _, detach = attach_through(two_queues, "nowhere")
    assert detach.get(2).value[0] == "amqp:not-found"


@pytest.mark.parametrize("scope", ["q", "other"])
async def test_it_takes_the_right_to_send_to_both(scope: str) -> None:
    wire = Wire(access=Access((SharedKey("k", "v", scope=scope),), verify=True))
    wire.broker.queues["other"] = FakeQueue()
    wire.open()
    wire.server.context.claims.show_key("k", "v")
    _, detach = attach_through(wire)
    assert detach.get(2).value[0] == "amqp:unauthorized-access"
    wire.lose()


# ---- hostile input

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.builds(Described, st.integers(0x20, 0x40).map(Ulong), inner),
    max_leaves=8,
)


@settings(max_examples=rounds(80, 1_500))
@given(st.lists(st.tuples(st.sampled_from([1, 8, 9]), VALUES, st.integers(0x20, 0x40), st.booleans()), max_size=6))
def test_any_states_and_any_commands_are_answered(steps: list[tuple[int, Any, int, bool]]) -> None:
    import asyncio

    async def converse() -> None:
        wire = Wire()
        wire.open()
        wire.attach_sender(handle=8)
        coordinate(wire)
        wire.attach_receiver(handle=1, credit=50)
        for number, (handle, value, code, settled) in enumerate(steps):
            fields = value if isinstance(value, list) else [value]
            state = Described(Ulong(code), fields)
            if handle == 1:
                wire.broker.q.put(b"m")
                await wire.turn()
                wire.dispose(state, number, settled=settled)
            elif handle == 8:
                wire.write(wire.transfer(b"m", handle=8, state=state, settled=settled))
            else:
                wire.write(wire.transfer(command(Ulong(code), fields), handle=9, settled=settled))
            await wire.turn()
        wire.lose()
        assert wire.broker.transactions.declared == {}

    asyncio.run(converse())
