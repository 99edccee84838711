"""What becomes of declared resources: a table of each verdict, and that a second run finds nothing to change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import Right
from emubus.broker.model.catalog import Description
from emubus.broker.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    JmsSubscription,
    QueueDescription,
    RuleDescription,
    SelectorFilter,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from emubus.broker.model.profiles import LIMITS, Profile
from emubus.declared.applying import Result, Status, apply
from emubus.declared.describing import declared_of
from emubus.declared.future import FutureNamespace
from emubus.declared.resources import Declared, Kind, LeftOut, Origin, Resources

Properties = Mapping[str, object]


def namespace(*entities: Description, profile: Profile = Profile.STANDARD) -> FutureNamespace:
    found = FutureNamespace(LIMITS[profile])
    for each in entities:
        found.create(each)
    return found


def run(
    there: FutureNamespace, *declared: Declared, whole_rules: bool = False, sets_targets: bool = True
) -> list[Result]:
    resources = Resources(declared)
    return asyncio.run(apply(resources, there, whole_rules=whole_rules, sets_targets=sets_targets))


def lines(there: FutureNamespace, *declared: Declared) -> list[str]:
    return [str(each) for each in run(there, *declared)]


def queue(name: str, **properties: object) -> Declared:
    return Declared(Kind.QUEUE, (name,), properties)


def topic(name: str, **properties: object) -> Declared:
    return Declared(Kind.TOPIC, (name,), properties)


def subscription(of: str, name: str, **properties: object) -> Declared:
    return Declared(Kind.SUBSCRIPTION, (of, name), properties)


def rule(of: str, subscription: str, name: str, **properties: object) -> Declared:
    return Declared(Kind.RULE, (of, subscription, name), properties)


def key(*path: str, **properties: object) -> Declared:
    return Declared(Kind.AUTHORIZATION_RULE, path, {"rights": ["Listen"], **properties})


SQL: Properties = {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "a = 1"}}


def test_what_is_missing_is_created_whatever_the_order() -> None:
    there = namespace()
    declared = (
        rule("t", "s", "r", **SQL),
        subscription("t", "s", forwardTo="q"),
        key("q", "listen"),
        queue("q", forwardDeadLetteredMessagesTo="Dead"),
        topic("t"),
        queue("dead"),
    )
    assert lines(there, *declared) == [
        "created rule t/Subscriptions/s/Rules/r",
        "created subscription t/Subscriptions/s",
        "created authorization rule q/listen",
        "created queue q",
        "created topic t",
        "created queue dead",
    ]
    made = there.find("q")
    assert isinstance(made, QueueDescription)
    assert (made.forward_dead_letters_to, made.authorization_rules[0].rights) == ("Dead", (Right.LISTEN,))
    of_topic = there.find("t/Subscriptions/s")
    assert isinstance(of_topic, SubscriptionDescription)
    assert (of_topic.forward_to, [each.name for each in of_topic.rules]) == ("q", ["$Default", "r"])
    before = there.entities
    assert {each.status for each in run(there, *declared)} == {Status.UNCHANGED}
    assert there.entities == before


def test_a_circle_of_targets_is_set_at_the_end() -> None:
    there = namespace()
    assert lines(there, queue("a", forwardTo="b"), queue("b", forwardDeadLetteredMessagesTo="a")) == [
        "created queue a",
        "created queue b",
    ]
    assert {getattr(each, "forward_to", None) for each in there.entities} == {"b", None}


@pytest.mark.parametrize(
    ("known", "declared", "line"),
    [
        (QueueDescription("q"), queue("Q"), "unchanged queue Q"),
        (QueueDescription("q"), queue("q", maxDeliveryCount=7), "changed queue q: maxDeliveryCount 10 → 7"),
        (
            QueueDescription("q", lock_duration_ms=30_000, user_metadata="m"),
            queue("q", defaultMessageTimeToLive="P1D", status="Disabled"),
            "changed queue q: status Active → Disabled; lockDuration PT30S → PT1M; "
            "defaultMessageTimeToLive never → P1D; userMetadata m → none",
        ),
        (QueueDescription("q", requires_session=True), queue("q"), "unchanged queue q"),
        (QueueDescription("q", forward_to="x"), queue("q"), "changed queue q: forwardTo x → none"),
        (
            QueueDescription("q", requires_session=True),
            queue("q", requiresSession=False),
            "refused queue q: The value for the RequiresSession property of an existing Queue cannot be changed. "
            "Declare the value that it has, or delete it first; its messages go with it",
        ),
        (
            TopicDescription("t"),
            topic("t", enablePartitioning=True),
            "refused topic t: Partitioning cannot be changed for Topic. Declare the value that it has, or delete it "
            "first; its messages go with it",
        ),
        (TopicDescription("q"), queue("q"), "refused queue q: 'q' is a topic, not a queue."),
        (
            QueueDescription("q"),
            queue("new", lockDuration="PT6M"),
            "refused queue new: LockDuration is PT6M; allowed is PT5S to PT5M",
        ),
        (
            QueueDescription("q"),
            queue("new", lockDuration="soon", maxDeliveryCount="many", requiresSession=1),
            'refused queue new: requiresSession is 1; it must be true or false; lockDuration is "soon"; it must be an '
            'ISO 8601 duration such as "PT1M" or "P14D"; maxDeliveryCount is "many"; it must be a whole number',
        ),
        (
            QueueDescription("q"),
            queue("new", forwardTo="nowhere"),
            "refused queue new: The auto forwarding destination entity 'nowhere' does not exist.",
        ),
        (
            QueueDescription("q"),
            subscription("t", "s"),
            "left out subscription t/Subscriptions/s: its topic 't' is neither declared nor in the namespace; "
            "declare it, or create it first",
        ),
        (
            TopicDescription("t"),
            rule("t", "s", "r", **SQL),
            "left out rule t/Subscriptions/s/Rules/r: its subscription 't/Subscriptions/s' is neither declared nor in "
            "the namespace; declare it, or create it first",
        ),
        (
            QueueDescription("q"),
            key("x", "k"),
            "left out authorization rule x/k: the namespace has no queue or topic 'x', and none is declared; "
            "declare it, or create it first",
        ),
        (
            QueueDescription("q"),
            key("q", "k", rights=["Manage"]),
            "refused authorization rule q/k: Rights is Manage; allowed is Send and Listen together with Manage",
        ),
        (
            QueueDescription("q"),
            key("q", "k", rights=["Read"]),
            'refused authorization rule q/k: rights is ["Read"]; it must be a list of Send, Listen, Manage',
        ),
        (
            SubscriptionDescription("t", "s"),
            rule("t", "s", "r", filterType="CorrelationFilter", correlationFilter={}),
            "refused rule t/Subscriptions/s/Rules/r: CorrelationFilter is empty; allowed is at least one "
            "property to compare",
        ),
        (
            SubscriptionDescription("t", "s"),
            rule("t", "s", "$default", sqlFilter={"sqlExpression": "a = 1"}),
            "changed rule t/Subscriptions/s/Rules/$default: filter",
        ),
        (
            SubscriptionDescription("t", "s"),
            rule("t", "s", "$default", sqlFilter={"sqlExpression": "1=0"}),
            "removed rule t/Subscriptions/s/Rules/$default: it is declared to match nothing",
        ),
        (
            SubscriptionDescription("t", "s", rules=(RuleDescription("r", SqlFilter("a = 1")),)),
            rule("t", "s", "r", **SQL, action={"sqlExpression": "SET b = 1"}),
            "changed rule t/Subscriptions/s/Rules/r: action",
        ),
        (
            QueueDescription("q"),
            Declared(Kind.NAMESPACE, (), {"sku": {"name": "Premium"}}),
            "unchanged namespace: it is declared as Premium, and the server has the limits of the profile standard; "
            "`emubus serve --profile premium` has those of Premium",
        ),
        (
            QueueDescription("q"),
            Declared(Kind.NETWORK_RULES, (), {"defaultAction": "Deny"}),
            "passed over network rules: emubus has no firewall: every address may connect",
        ),
    ],
)
def test_a_verdict_is_one_line(known: Description, declared: Declared, line: str) -> None:
    assert lines(namespace(known), declared) == [line]


def test_one_that_is_refused_leaves_the_others_and_what_is_in_it_is_left_out() -> None:
    there = namespace()
    found = run(
        there,
        queue("before"),
        topic("t", maxSizeInMegabytes=7),
        subscription("t", "s"),
        rule("t", "s", "r", **SQL),
        key("t", "k"),
        queue("into", forwardTo="t"),
        queue("after"),
    )
    assert [each.status for each in found] == [
        *(Status.CREATED, Status.REFUSED, Status.LEFT_OUT, Status.LEFT_OUT, Status.LEFT_OUT),
        *(Status.REFUSED, Status.CREATED),
    ]
    assert str(found[2]) == "left out subscription t/Subscriptions/s: its topic 't' was not applied"
    assert found[5].why == (
        "it is there, without what it forwards to: The auto forwarding destination entity 't' does not exist."
    )
    assert [each.name for each in there.entities] == ["before", "into", "after"]


def test_a_namespace_that_fails_in_the_middle_is_described() -> None:
    class Failing(FutureNamespace):
        def create(self, description: Description) -> None:
            if description.name == "b":
                raise BrokerError(Condition.SERVER_BUSY, "The disk is full.")
            super().create(description)

    there = Failing(LIMITS[Profile.STANDARD])
    assert lines(there, queue("a"), queue("b"), queue("c")) == [
        "created queue a",
        "refused queue b: The disk is full.",
        "created queue c",
    ]


def test_rules_that_nobody_declares_stay_but_in_a_copy() -> None:
    known = SubscriptionDescription("t", "s", rules=(RuleDescription("old"), RuleDescription("r", FalseFilter())))
    declared = subscription("t", "s"), rule("t", "s", "r", **SQL)
    there = namespace(TopicDescription("t"), known)
    assert [str(each) for each in run(there, *declared)] == [
        "unchanged subscription t/Subscriptions/s",
        "changed rule t/Subscriptions/s/Rules/r: filter",
    ]
    found = [str(each) for each in run(there, *declared, whole_rules=True)]
    assert "removed rule t/Subscriptions/s/Rules/old" in found
    found_there = there.find("t/Subscriptions/s")
    assert isinstance(found_there, SubscriptionDescription)
    assert found_there.rules == (RuleDescription("r", SqlFilter("a = 1")),)


def test_targets_wait_for_the_second_round() -> None:
    there = namespace()
    declared = queue("a", forwardTo="b"), queue("b")
    run(there, *declared, sets_targets=False)
    assert getattr(there.find("a"), "forward_to", "") is None
    assert next(str(each) for each in run(there, *declared)) == "changed queue a: forwardTo none → b"


def test_keys_of_the_namespace_and_of_an_entity_are_made_once() -> None:
    there = namespace(QueueDescription("q"))
    declared = key("app", rights=["Send", "Listen"]), key("q", "own", primaryKey="p" * 44)
    assert [each.status for each in run(there, *declared)] == [Status.CREATED, Status.CREATED]
    keys = there.keys
    assert [each.name for each in keys] == ["RootManageSharedAccessKey", "app"]
    assert len(keys[1].key) == 44
    entity = there.find("q")
    assert isinstance(entity, QueueDescription)
    assert [each.primary_key for each in entity.authorization_rules] == ["p" * 44]
    assert {each.status for each in run(there, *declared)} == {Status.UNCHANGED}
    assert there.keys == keys
    assert lines(there, key("app", rights=["Listen"]), key("q", "own", primaryKey="x" * 44)) == [
        "changed authorization rule app: rights Send, Listen → Listen",
        "changed authorization rule q/own: keys (not shown)",
    ]


def test_an_entity_of_a_second_namespace_does_not_replace_the_first() -> None:
    there = namespace()
    first, second = replace(queue("q"), namespace="one"), replace(queue("Q", maxDeliveryCount=3), namespace="two")
    assert lines(there, first, second) == [
        "created queue q",
        "left out queue Q: the namespace 'two' declares it, and so does 'one'; apply each of them to a namespace of "
        "its own",
    ]


def test_what_readers_leave_out_is_said() -> None:
    left = LeftOut("queue", "its name is not known", "give it", Origin("f", 3)), LeftOut("q", "x", is_entity=False)
    found = asyncio.run(apply(Resources((), left), namespace()))
    assert [str(each) for each in found] == [
        "left out queue: its name is not known; give it (f:3)",
        "passed over q: x",
    ]


def test_parts_that_are_not_read_are_named() -> None:
    (found,) = run(namespace(), queue("q", isNew=1, accessedAt="2020-01-01", maxDeliveryCount=None))
    assert (found.status, found.notes) == (Status.CREATED, ("queue q: the property isNew",))


@pytest.mark.parametrize("profile", Profile)
def test_each_profile_takes_what_tools_write_unasked(profile: Profile) -> None:
    written: Properties = {
        "maxSizeInMegabytes": 1024,
        "defaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
        "autoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
        "maxDeliveryCount": "10",
        "requiresSession": "False",
        "lockDuration": "00:01:00",
    }
    (found,) = run(namespace(profile=profile), queue("q", **written))
    assert found.status is Status.CREATED, found.why


def test_a_subscription_of_jms_has_its_selector_in_the_default_rule() -> None:
    there = namespace(TopicDescription("t"), profile=Profile.PREMIUM)
    declared = (
        subscription("t", "s$c$D", isClientAffine=True, clientAffineProperties={"clientId": "c"}),
        rule("t", "s$c$D", "$Default", **SQL),
    )
    assert {each.status for each in run(there, *declared)} == {Status.CREATED, Status.CHANGED}
    found = there.find("t/Subscriptions/s$c$D")
    assert isinstance(found, SubscriptionDescription)
    assert (found.jms, found.rules[0].filter) == (JmsSubscription("c", True, True), SelectorFilter("a = 1"))


@pytest.mark.parametrize(
    "own",
    [
        TrueFilter(),
        FalseFilter(),
        SqlFilter("a = @a", {"@a": 1}),
        CorrelationFilter(label="l", properties={"n": 1, "x": "1", "ok": True}),
    ],
)
def test_a_described_entity_is_applied_as_it_was(own: TrueFilter | FalseFilter | SqlFilter | CorrelationFilter) -> None:
    rules = (RuleDescription("r", own, "SET a = @b", action_parameters={"@b": 1.5}),)
    entities: tuple[Description, ...] = (
        QueueDescription("q", forward_to="t", max_delivery_count=3, auto_delete_on_idle_ms=None),
        TopicDescription("t", support_ordering=False),
        SubscriptionDescription("t", "s", rules=rules),
    )
    there = namespace()
    run(there, *(found for each in entities for found in declared_of(each, Origin())), whole_rules=True)
    assert there.entities == list(entities)
