"""The operations of `$management`, row by row: what goes in, and the exact AMQP types of what comes out."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from emubus.amqp.nodes import operations_messages
from emubus.amqp.nodes.management import OPERATIONS, STATUS
from emubus.amqp.nodes.operations import Within
from emubus.broker.access import Access
from emubus.broker.api import Abandon, Complete, ReceiveMode
from emubus.broker.errors import Condition
from emubus.broker.ids import token_to_uuid
from emubus.broker.keys import Right, SharedKey
from emubus.broker.model.descriptions import CorrelationFilter, FalseFilter, RuleDescription, SqlFilter, TrueFilter
from emubus.codec.encode import encode
from emubus.codec.types import Array, Described, Int, Long, Symbol, Timestamp, Ubyte, Uint, Ulong

from ..rounds import rounds
from .asking import Asker
from .fakes import FakeQueue, token
from .wire import ACCEPTED, Wire

LONG, TIMESTAMP, STRING, UUID_CODE = 0x81, 0x83, 0xB1, 0x98
NUMBERS = Array(LONG, (Long(1), Long(2)))
TRANSACTIONAL = 0x34


@pytest.fixture
async def ask(wire: Wire) -> Asker:
    return Asker(wire)


@pytest.fixture
async def ask_subscription(wire: Wire) -> Asker:
    wire.broker.queues["t/subscriptions/s"] = FakeQueue()
    return Asker(wire, "t/Subscriptions/s")


# ---- messages


@pytest.mark.parametrize("session_id", ["s-1", ""])
async def test_a_peek_may_be_of_one_session_and_may_leave_bodies_out(ask: Asker, session_id: str) -> None:
    ask.wire.broker.q.put(b"m")
    body = {"from-sequence-number": Long(1), "message-count": Int(5), "session-id": session_id}
    answer = await ask("peek-message", body | {"omit-message-body": True})
    assert (answer.status, answer.body) == (200, {"messages": [{"message": b"m"}]})
    assert ask.wire.broker.calls == [("peek", "q", 1, 5, session_id)]


async def test_scheduled_messages_get_an_array_of_longs(ask: Asker) -> None:
    messages = [
        {"message": b"one", "message-id": "a", "session-id": "s", "partition-key": "p"},
        {"message": b"two", "message-id": uuid.UUID(int=5)},
    ]
    answer = await ask("schedule-message", {"messages": messages})
    assert (answer.status, answer.body) == (200, {"sequence-numbers": NUMBERS})
    assert ask.wire.broker.calls == [("schedule", "q", [b"one", b"two"])]


@pytest.mark.parametrize(
    "messages", [None, [], [{"message-id": "a"}], [{"message": "text"}], ["m"], [{"message": b"m"}, None], 5]
)
async def test_messages_to_schedule_must_be_binary(ask: Asker, messages: object) -> None:
    answer = await ask("schedule-message", {"messages": messages})
    assert (answer.status, answer.condition) == (400, "com.microsoft:argument-error")
    assert "'messages'" in answer.description
    assert ask.wire.broker.calls == []


async def test_scheduled_messages_are_cancelled_by_number(ask: Asker) -> None:
    ask.wire.broker.scheduled = {1: b"one", 2: b"two"}
    answer = await ask("cancel-scheduled-message", {"sequence-numbers": NUMBERS})
    assert (answer.status, answer.condition, answer.body) == (200, None, {})
    assert ask.wire.broker.calls == [("cancel", "q", [1, 2])]


async def test_a_cancel_of_what_is_not_there_is_404(ask: Asker) -> None:
    answer = await ask("cancel-scheduled-message", {"sequence-numbers": Array(LONG, (Long((5 << 48) + 7),))})
    assert (answer.status, answer.condition) == (404, "com.microsoft:message-not-found")
    assert answer.description.startswith("Messages not found. Missing sequence numbers: 7")


@pytest.mark.parametrize(
    ("mode", "meant"), [(Uint(0), ReceiveMode.RECEIVE_AND_DELETE), (Ubyte(1), ReceiveMode.PEEK_LOCK)]
)
async def test_deferred_messages_of_a_session(ask: Asker, mode: object, meant: ReceiveMode) -> None:
    ask.wire.broker.q.deferred = {1: b"one", 2: b"two"}
    body = {"sequence-numbers": NUMBERS, "receiver-settle-mode": mode, "session-id": "s-1"}
    answer = await ask("receive-by-sequence-number", body)
    assert answer.status == 200
    assert type(answer.body["messages"]) is list
    assert [each["message"] for each in answer.body["messages"]] == [b"one", b"two"]
    tokens = [each.get("lock-token") for each in answer.body["messages"]]
    locked = meant is ReceiveMode.PEEK_LOCK
    assert tokens == ([token_to_uuid(token(1)), token_to_uuid(token(2))] if locked else [None, None])
    assert ask.wire.broker.calls == [("deferred", "q", [1, 2], meant, "s-1")]


async def test_a_settlement_may_name_its_session(ask: Asker) -> None:
    ask.wire.broker.q.locked = {token(1): b"m"}
    tokens = Array(UUID_CODE, (token_to_uuid(token(1)),))
    answer = await ask(
        "update-disposition", {"disposition-status": "completed", "lock-tokens": tokens, "session-id": "s-1"}
    )
    assert (answer.status, answer.body) == (200, {})
    assert ask.wire.broker.q.settled == [(token(1), Complete())]


async def test_deleted_messages_are_counted_as_an_int(ask: Asker) -> None:
    ask.wire.broker.deletable = 3
    body = {"message-count": Int(5), "enqueued-time-utc": Timestamp(1000), "session-id": "s-1"}
    answer = await ask("batch-delete-messages", body)
    assert (answer.status, answer.condition, answer.body) == (200, None, {"message-count": 3})
    assert type(answer.body["message-count"]) is Int
    assert ask.wire.broker.calls == [("delete", "q", 5, 1000, "s-1")]


async def test_nothing_deleted_is_204_with_a_count_of_zero(ask: Asker) -> None:
    answer = await ask("batch-delete-messages", {"message-count": Int(5), "enqueued-time-utc": Timestamp(1000)})
    assert (answer.status, answer.body) == (204, {"message-count": 0})
    assert answer.condition == "com.microsoft:message-not-found"  # JavaScript takes it for an error otherwise


@pytest.mark.parametrize("operation", ["peek-message", "batch-delete-messages"])
async def test_a_count_below_one_is_out_of_range(ask: Asker, operation: str) -> None:
    answer = await ask(operation, {"message-count": Int(0), "from-sequence-number": Long(0)})
    assert (answer.status, answer.condition) == (400, "com.microsoft:argument-out-of-range")


# ---- message sessions


async def test_a_renewed_session_lock_ends_at_a_timestamp(ask: Asker) -> None:
    ask.wire.broker.sessions.states = {"s-1": None}
    answer = await ask("renew-session-lock", {"session-id": "s-1"})
    assert (answer.status, answer.body) == (200, {"expiration": 1_767_225_600_000})
    assert type(answer.body["expiration"]) is Timestamp


@pytest.mark.parametrize("state", [b"state", b"", None])
@pytest.mark.parametrize("session_id", ["s-1", ""])
async def test_a_sessions_state_is_binary_or_null_and_its_key_is_always_there(
    ask: Asker, session_id: str, state: bytes | None
) -> None:
    ask.wire.broker.sessions.states = {session_id: b"before"}
    answer = await ask("set-session-state", {"session-id": session_id, "session-state": state})
    assert (answer.status, answer.body) == (200, {})
    answer = await ask("get-session-state", {"session-id": session_id})
    assert (answer.status, answer.body) == (200, {"session-state": state})


async def test_a_state_that_is_absent_is_cleared(ask: Asker) -> None:
    ask.wire.broker.sessions.states = {"s-1": b"before"}
    assert (await ask("set-session-state", {"session-id": "s-1"})).status == 200
    assert ask.wire.broker.sessions.states == {"s-1": None}


@pytest.mark.parametrize("operation", ["renew-session-lock", "set-session-state", "get-session-state"])
async def test_a_session_that_is_not_held_is_410(ask: Asker, operation: str) -> None:
    answer = await ask(operation, {"session-id": "s-1", "session-state": b""})
    assert (answer.status, answer.condition) == (410, "com.microsoft:session-lock-lost")


@pytest.mark.parametrize(
    ("operation", "field"),
    [("renew-session-lock", "session-id"), ("set-session-state", "session-state"), ("get-session-state", "session-id")],
)
async def test_what_names_no_session_or_no_state_is_400(ask: Asker, operation: str, field: str) -> None:
    answer = await ask(operation, {"session-id": "s-1", "session-state": "text"} | {field: Int(5)})
    assert (answer.status, answer.condition) == (400, "com.microsoft:argument-error")
    assert f"'{field}'" in answer.description


@pytest.mark.parametrize(
    ("asked", "meant"),
    [(253_402_300_800_000, None), (253_402_300_799_999, None), (253_402_300_799_998, 253_402_300_799_998), (5, 5)],
)
async def test_the_end_of_time_means_all_sessions(ask: Asker, asked: int, meant: int | None) -> None:
    await ask("get-message-sessions", {"last-updated-time": Timestamp(asked), "skip": Int(0), "top": Int(100)})
    assert ask.wire.broker.calls == [("sessions", "q", meant)]


async def test_sessions_are_listed_by_pages_as_an_array_of_strings(ask: Asker) -> None:
    ask.wire.broker.sessions.states = {"": None, "a": None, "ä" * 200: None, "b": None}
    body = {"last-updated-time": Timestamp(253_402_300_800_000), "top": Int(2)}
    first, second, third = [await ask("get-message-sessions", body | {"skip": Int(skip)}) for skip in (0, 2, 4)]
    assert [each.status for each in (first, second, third)] == [200, 200, 204]
    assert first.body == {"skip": 0, "sessions-ids": Array(STRING, ("", "a"))}
    assert second.body == {"skip": 2, "sessions-ids": Array(STRING, ("b", "ä" * 200))}
    assert type(second.body["skip"]) is Int
    assert third.condition == "com.microsoft:session-not-found"


# ---- rules

RULES = (
    RuleDescription("all"),
    RuleDescription("none", FalseFilter()),
    RuleDescription("sql", SqlFilter("color = 'red'"), "SET x = 1"),
    RuleDescription("correlation", CorrelationFilter(label="l", properties={"a": 5})),
)
RULE, NO_ACTION, ACTION = Ulong(0x13700000004), Ulong(0x13700000005), Ulong(0x13700000006)
SQL, TRUE, FALSE, CORRELATION = Ulong(0x1370000006), Ulong(0x1370000007), Ulong(0x1370000008), Ulong(0x1370000009)


def test_the_descriptors_are_those_of_the_contract() -> None:
    assert (RULE, NO_ACTION, ACTION) == (1335734829060, 1335734829061, 1335734829062)
    assert (SQL, TRUE, FALSE, CORRELATION) == (83483426822, 83483426823, 83483426824, 83483426825)


async def test_rules_are_listed_as_described_lists(ask_subscription: Asker) -> None:
    ask_subscription.wire.broker.administration.all_rules = RULES
    answer = await ask_subscription("enumerate-rules", {"top": Int(2147483647), "skip": Int(0)})
    assert answer.status == 200
    assert type(answer.body["rules"]) is list
    listed = [each["rule-description"] for each in answer.body["rules"]]
    assert {each.descriptor for each in listed} == {RULE}
    assert all(type(each.descriptor) is Ulong and type(each.value) is list for each in listed)
    assert [each.value[2] for each in listed] == ["all", "none", "sql", "correlation"]
    filters = [each.value[0] for each in listed]
    assert [each.descriptor for each in filters] == [TRUE, FALSE, SQL, CORRELATION]
    assert filters[2].value[0] == "color = 'red'"
    assert filters[3].value == [None, None, None, None, "l", None, None, None, {"a": 5}]
    actions = [each.value[1] for each in listed]
    assert [each.descriptor for each in actions] == [NO_ACTION, NO_ACTION, ACTION, NO_ACTION]
    assert actions[2].value[0] == "SET x = 1"


async def test_rules_tell_when_they_were_created_if_that_is_known(ask_subscription: Asker) -> None:
    rules = (RuleDescription("new", created_at=1_767_225_600_000), RuleDescription("of an older version"))
    ask_subscription.wire.broker.administration.all_rules = rules
    answer = await ask_subscription("enumerate-rules", {"top": Int(10), "skip": Int(0)})
    listed = [each["rule-description"].value[2:] for each in answer.body["rules"]]
    assert listed == [["new", Timestamp(1_767_225_600_000)], ["of an older version"]]


async def test_rules_are_listed_by_pages(ask_subscription: Asker) -> None:
    ask_subscription.wire.broker.administration.all_rules = RULES
    answer = await ask_subscription("enumerate-rules", {"top": Int(3), "skip": Int(3)})
    assert [each["rule-description"].value[2] for each in answer.body["rules"]] == ["correlation"]
    answer = await ask_subscription("enumerate-rules", {"top": Int(3), "skip": Int(6)})
    assert (answer.status, answer.condition) == (204, None)


@pytest.mark.parametrize(
    ("description", "rule"),
    [
        ({}, RuleDescription("r", TrueFilter())),
        ({"sql-filter": {"expression": "a = 1"}, "rule-name": "r"}, RuleDescription("r", SqlFilter("a = 1"))),
        (
            {"sql-filter": {"expression": "1=1"}, "sql-rule-action": {"expression": "SET a = 1"}},
            RuleDescription("r", SqlFilter("1=1"), "SET a = 1"),
        ),
        (
            {"correlation-filter": {"label": "l", "to": None, "properties": {"a": True}}, "sql-rule-action": None},
            RuleDescription("r", CorrelationFilter(label="l", properties={"a": True})),
        ),
    ],
)
async def test_a_rule_is_added(ask_subscription: Asker, description: object, rule: RuleDescription) -> None:
    answer = await ask_subscription("add-rule", {"rule-name": "r", "rule-description": description})
    assert (answer.status, answer.body) == (200, {})
    assert ask_subscription.wire.broker.administration.all_rules == (rule,)


async def test_a_rule_that_is_there_is_409(ask_subscription: Asker) -> None:
    ask_subscription.wire.broker.administration.all_rules = RULES
    answer = await ask_subscription("add-rule", {"rule-name": "all", "rule-description": {}})
    assert (answer.status, answer.condition) == (409, "com.microsoft:entity-already-exists")


@pytest.mark.parametrize(
    "description", [{"sql-filter": {}}, {"sql-filter": "a = 1"}, "text", {"sql-filter": {"expression": 5}}]
)
async def test_a_rule_that_can_t_be_read_is_400(ask_subscription: Asker, description: object) -> None:
    answer = await ask_subscription("add-rule", {"rule-name": "r", "rule-description": description})
    assert (answer.status, answer.condition) == (400, "com.microsoft:argument-error")


async def test_a_rule_is_removed_once(ask_subscription: Asker) -> None:
    administration = ask_subscription.wire.broker.administration
    administration.all_rules = RULES
    assert (await ask_subscription("remove-rule", {"rule-name": "all"})).status == 200
    assert administration.rules(administration.path) == RULES[1:]
    answer = await ask_subscription("remove-rule", {"rule-name": "all"})
    assert (answer.status, answer.condition) == (404, "amqp:not-found")


async def test_a_queue_has_no_rules(ask: Asker) -> None:
    answer = await ask("enumerate-rules", {"top": Int(1), "skip": Int(0)})
    assert (answer.status, answer.condition) == (400, "amqp:not-allowed")


# ---- transactions


def within(transaction: bytes) -> Described:
    return Described(Ulong(TRANSACTIONAL), [transaction])


async def test_messages_are_scheduled_within_a_transaction(ask: Asker) -> None:
    transaction = ask.wire.broker.transactions.declare(0, connection=ask.wire.server.context).id
    answer = await ask("schedule-message", {"messages": [{"message": b"m"}]}, within(transaction))
    assert (answer.status, answer.body) == (200, {"sequence-numbers": Array(LONG, (Long(100),))})
    assert ask.wire.broker.transactions.work == [("schedule", transaction, "q", [b"m"])]
    (confirmation,) = answer.dispositions
    assert confirmation.get(4) == Described(TRANSACTIONAL, [transaction, Described(ACCEPTED, [])])


async def test_messages_are_settled_within_a_transaction(ask: Asker) -> None:
    transaction = ask.wire.broker.transactions.declare(0, connection=ask.wire.server.context).id
    tokens = Array(UUID_CODE, (token_to_uuid(token(1)), token_to_uuid(token(2))))
    body = {"disposition-status": "abandoned", "lock-tokens": tokens}
    assert (await ask("update-disposition", body, within(transaction))).status == 200
    assert ask.wire.broker.transactions.work == [
        ("settle", transaction, "q", token(1), Abandon()),
        ("settle", transaction, "q", token(2), Abandon()),
    ]


async def test_an_unknown_transaction_is_refused_in_the_answer(ask: Asker) -> None:
    answer = await ask("schedule-message", {"messages": [{"message": b"m"}]}, within(b"other"))
    assert (answer.status, answer.condition) == (400, "amqp:transaction:unknown-id")


async def test_scheduled_messages_are_cancelled_within_a_transaction(ask: Asker) -> None:
    transaction = ask.wire.broker.transactions.declare(0, connection=ask.wire.server.context).id
    body = {"sequence-numbers": Array(LONG, (Long(7), Long(8)))}
    assert (await ask("cancel-scheduled-message", body, within(transaction))).status == 200
    assert ask.wire.broker.transactions.work == [("cancel", transaction, "q", [7, 8])]
    assert ask.wire.broker.calls == []


@pytest.mark.parametrize("state", [b"state", None])
async def test_the_state_of_a_session_is_set_within_a_transaction(ask: Asker, state: bytes | None) -> None:
    ask.wire.broker.sessions.states["a"] = b"old"
    transaction = ask.wire.broker.transactions.declare(0, connection=ask.wire.server.context).id
    body = {"session-id": "a", "session-state": state}
    assert (await ask("set-session-state", body, within(transaction))).status == 200
    assert ask.wire.broker.transactions.work == [("set state", transaction, "q", "a", state)]
    assert ask.wire.broker.sessions.states == {"a": b"old"}


@pytest.mark.parametrize("transaction", [b"txn\xff1", b"one that has ended"])
async def test_renewals_and_looks_are_done_at_once_as_without_the_transaction(ask: Asker, transaction: bytes) -> None:
    ask.wire.broker.transactions.declare(0, connection=ask.wire.server.context)
    ask.wire.broker.sessions.states["a"] = b"old"
    state = await ask("get-session-state", {"session-id": "a"}, within(transaction))
    assert (state.status, state.body) == (200, {"session-state": b"old"})
    renewed = await ask("renew-session-lock", {"session-id": "a"}, within(transaction))
    assert (renewed.status, renewed.body) == (200, {"expiration": Timestamp(1_767_225_600_000)})
    assert (await ask("peek-message", {"message-count": Int(1)}, within(transaction))).status == 204
    assert (await ask("get-message-sessions", {}, within(transaction))).status == 200
    assert ask.wire.broker.transactions.work == []


@pytest.mark.parametrize("name", sorted(name for name, row in OPERATIONS.items() if row.within is Within.REFUSED))
async def test_p25_other_changes_can_t_be_part_of_a_transaction(ask: Asker, name: str) -> None:
    transaction = ask.wire.broker.transactions.declare(0, connection=ask.wire.server.context).id
    answer = await ask(name.removeprefix("com.microsoft:"), {}, within(transaction))
    assert (answer.status, answer.condition) == (400, "amqp:not-allowed")
    assert ask.wire.broker.calls == []


def test_p25_rules_and_deletions_are_what_no_transaction_can_change() -> None:
    assert {name.partition(":")[2] for name, row in OPERATIONS.items() if row.within is Within.REFUSED} == {
        "add-rule",
        "remove-rule",
        "batch-delete-messages",
        "delete-messages-before",
        "claim-messages",
        "delete-deferred-messages",
        "delete-messages",
    }


# ---- the tables


def test_every_condition_has_a_status() -> None:
    assert set(STATUS) == set(Condition)
    assert all(400 <= status <= 503 for status in STATUS.values())


@pytest.mark.parametrize("name", sorted(OPERATIONS))
@pytest.mark.parametrize("right", [Right.SEND, Right.LISTEN, Right.MANAGE])
async def test_each_operation_takes_its_right(name: str, right: Right) -> None:
    wire = Wire(access=Access((SharedKey("k", "v", frozenset({right})),), verify=True))
    wire.open()
    wire.server.context.claims.show_key("k", "v")
    answer = await Asker(wire)(name.removeprefix("com.microsoft:"), None)
    allowed = right in (OPERATIONS[name].right, Right.MANAGE)
    assert answer.status == (400 if allowed else 401)
    wire.lose()


# ---- hostile input

KEYS = st.sampled_from(
    [
        "message-count", "from-sequence-number", "session-id", "messages", "sequence-numbers", "receiver-settle-mode",
        "disposition-status", "lock-tokens", "properties-to-modify", "enqueued-time-utc", "session-state", "skip",
        "top", "last-updated-time", "rule-name", "rule-description", "deadletter-reason",
    ]
)  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(0, 200).map(Int)
    | st.sampled_from(
        ["completed", "defered", "suspended", "s-1", "", Symbol("x"), b"", b"\xff", 1.5, uuid.UUID(int=1)]
    )
    | st.lists(st.integers(-5, 5).map(Long), max_size=3).map(lambda values: Array(LONG, tuple(values)))
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["message", "sql-filter", "correlation-filter", "expression", "x"]), inner, max_size=3
        )
        | st.builds(Described, st.just(Ulong(5)), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=rounds(150, 3_000))
@given(st.sampled_from(sorted(OPERATIONS)), st.dictionaries(KEYS, VALUES, max_size=5) | VALUES)
def test_any_body_is_answered_with_a_status(name: str, body: Any) -> None:
    async def converse() -> None:
        wire = Wire()
        wire.open()
        wire.broker.queues["t/subscriptions/s"] = FakeQueue()
        wire.broker.sessions.states = {"s-1": b""}
        answer = await Asker(wire, "t/Subscriptions/s")(name.removeprefix("com.microsoft:"), body)
        assert answer.status in {200, 204, *STATUS.values()}
        wire.lose()

    with capture_logs() as logs:
        asyncio.run(converse())
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


@pytest.mark.parametrize("size", [0, 1, 100, 242, 243, 244, 245, 255, 256, 257, 70_000])
async def test_a_peeked_message_is_in_a_map_as_the_codec_writes_it(ask: Asker, size: int) -> None:
    payload = bytes(size)
    ask.wire.broker.q.put(payload)
    answer = await ask("com.microsoft:peek-message", {"from-sequence-number": Long(1), "message-count": Int(1)})
    assert answer.body == {"messages": [{"message": payload}]}
    assert operations_messages._encoded_peeked(payload) == encode({"message": payload})
