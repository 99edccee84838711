"""Words of the kit: those of SDKs are known, a name is enough, a misspelt word is answered with the nearest one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from emubus.conditions.presets import PRESETS
from emubus.conditions.table import BEHAVIOURS
from emubus.kit.values import SUB_QUEUES, sub_queue_of, subscription_path
from emubus.testing import (
    BrokerError,
    ConditionName,
    Emubus,
    EmubusServer,
    MessageCounts,
    QueueDescription,
    RemoteEmubus,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
)

RED = RuleDescription("red", SqlFilter("color = 'red'"))


@pytest.fixture(scope="module")
def servers() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("q"), QueueDescription("s", requires_session=True)], story=True) as server:
        yield server


@pytest.fixture(params=["in the process", "over HTTP"])
def broker(request: pytest.FixtureRequest, servers: EmubusServer) -> Emubus:
    servers.reset()
    if request.param == "in the process":
        return servers
    return RemoteEmubus(f"http://localhost:{servers.http_port}")


@pytest.mark.parametrize(
    ("word", "sub_queue"),
    [
        *((each, each) for each in SUB_QUEUES),
        (None, "active"),
        (ServiceBusSubQueue.DEAD_LETTER, "dead-letter"),
        (ServiceBusSubQueue.TRANSFER_DEAD_LETTER, "transfer-dead-letter"),
        ("deadletter", "dead-letter"),
        ("dead_letter", "dead-letter"),
        ("$DeadLetterQueue", "dead-letter"),
        ("deadLetter", "dead-letter"),
        ("transferDeadLetter", "transfer-dead-letter"),
        ("$Transfer/$DeadLetterQueue", "transfer-dead-letter"),
    ],
)
def test_a_sub_queue_has_the_name_that_any_sdk_gives_it(word: object, sub_queue: str) -> None:
    assert sub_queue_of(word) == sub_queue


def test_counts_are_attributes_and_keys_in_any_spelling() -> None:
    counts = MessageCounts({"active": 1, "dead-letter": 2, "outbox": 3, "transfer-outbox": 4})
    for key in ("dead-letter", "dead_letter", "deadLetter", "dead_letter_message_count", "DeadLetterMessageCount"):
        assert counts[key] == 2
    assert (counts.active, counts.dead_letter, counts.transfer, counts.total) == (1, 2, 7, 10)
    assert dict(counts) == {"active": 1, "dead-letter": 2, "outbox": 3, "transfer-outbox": 4}
    with pytest.raises(KeyError, match="ded; there are: active, dead-letter"):
        counts["ded"]


def test_the_names_of_conditions_are_those_of_the_table() -> None:
    assert get_args(ConditionName) == (*PRESETS, *BEHAVIOURS)


def test_a_name_is_enough(broker: Emubus) -> None:
    broker.create_topic("prices")
    broker.create_subscription("prices/a")
    broker.create_subscription("prices/Subscriptions/b")
    assert [each for each in broker.entities() if "prices" in each] == [
        "prices",
        "prices/Subscriptions/a",
        "prices/Subscriptions/b",
    ]
    broker.begin_outage(3)
    broker.begin_outage([4, 5], "slow", delay_ms=1)
    broker.end_outage(3)
    assert broker.add_fault("server_busy", operations=["send"], count=1).kind == "server-busy"
    assert subscription_path("a/b/Subscriptions/c") == "a/b/Subscriptions/c"


@pytest.mark.parametrize(
    ("misspelt", "said"),
    [
        (
            lambda broker: broker.peek("q", "deadleter"),
            "sub_queue is 'deadleter'; did you mean dead-letter? allowed: act",
        ),
        (lambda broker: broker.conditions("throtled").__enter__(), "'throtled'; did you mean throttled? docs/COND"),
        (lambda broker: broker.exercise(presets=["throtled"]), "no preset 'throtled'; did you mean throttled?"),
        (lambda broker: broker.begin_outage(3, "dwon"), "kind is 'dwon'; did you mean down? allowed: down, slow"),
        (lambda broker: broker.add_fault("busy"), "allowed: server-busy"),
        (
            lambda broker: broker.add_fault("server-busy", operations=["sned"]),
            "operations is 'sned'; did you mean send?",
        ),
        (lambda broker: broker.create_subscription("all"), "subscription is 'all'; name it with its topic"),
        (lambda broker: broker.wait_for("q"), "Nothing to wait for on 'q': give a count, such as active=3"),
        (lambda broker: broker.story(7), "The message is 7; give its message id"),
    ],
)
def test_a_misspelt_word_names_what_is_allowed(broker: Emubus, misspelt: object, said: str) -> None:
    assert callable(misspelt)
    with pytest.raises(BrokerError) as refused:
        misspelt(broker)
    assert said in str(refused.value)


def test_send_waits_and_sessions_need_no_sdk(broker: Emubus) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    number = broker.send("q", {"n": 1}, message_id="m", subject="x", time_to_live=timedelta(minutes=1))
    broker.send("q", b"\xff", scheduled_enqueue_time=at)
    counts = broker.wait_for("q", active=1, scheduled=1)
    assert (counts.active, counts.scheduled, counts.total) == (1, 1, 2)
    found = {each.state: each for each in broker.peek("q")}
    assert (found["active"].sequence_number, found["active"].body["json"]) == (number, {"n": 1})
    assert found["active"].properties["content_type"] == "application/json"
    with pytest.raises(AssertionError, match=r"'q' has 1 active, 0 dead_letter after 0 s; awaited: 2 active, 1 dead_"):
        broker.wait_for("q", active=2, dead_letter=1, timeout_s=0)
    broker.send("s", "x", session_id="one")
    (session,) = broker.sessions("s")
    assert (session.session_id, session.message_count, session.holder) == ("one", 1, None)


def test_why_not_names_the_rule_the_place_or_the_refusal(broker: Emubus) -> None:
    broker.create_topic("prices")
    broker.create_subscription(SubscriptionDescription("prices", "red", rules=(RED,)))
    broker.create_subscription("prices/all")
    broker.send("prices", "x", message_id="m")
    assert broker.why_not("m", "prices/red") == (
        "'prices/Subscriptions/red' does not take the message: rule 'red': color = 'red' is unknown (color is not set)."
    )
    assert "Copied to the subscription" in broker.why_not(ServiceBusMessage("", message_id="m"), "prices/all")
    assert "was never in 'q'; it was in: prices, prices/Subscriptions/all" in broker.why_not("m", "q")
    assert [each.event for each in broker.story("m")] == ["sent", "routed", "copied"]
    (copy,) = broker.peek("prices/Subscriptions/all")
    assert broker.why_not(copy) == broker.why_not("m")
    assert broker.why_not("n") == "No such message has arrived since the last reset."
    broker.reset()
    assert broker.story("m") == []


def test_a_story_that_is_not_kept_is_said(broker: Emubus) -> None:
    broker.keep_story(is_on=False)
    try:
        with pytest.raises(
            BrokerError, match=r"not kept: call keep_story\(\) first, or start EmubusServer\(story=True"
        ):
            broker.story("m")
    finally:
        broker.keep_story()


def test_what_is_on_and_what_was_refused_is_asked_for_by_name(broker: Emubus) -> None:
    assert (broker.running_conditions(), broker.started_conditions, broker.refusals()) == ([], [], [])
    started = broker.start_condition("throttled", entity="q")
    assert [each.number for each in broker.running_conditions()] == [started.number]
    assert broker.started_conditions == [started.number]
    broker.end_condition(started.number)
    assert broker.running_conditions() == []
    with (
        ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0) as client,
        pytest.raises(ServiceBusError),
        client.get_queue_sender("missing") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    assert all("missing" in each.reason for each in broker.refusals())
    assert broker.refusals()
