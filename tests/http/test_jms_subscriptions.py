"""Subscriptions that JMS consumers make, as administration clients see and change them."""

from __future__ import annotations

from pathlib import Path

import pytest

from emubus.broker.model.descriptions import (
    DEFAULT_RULE_NAME,
    JmsSubscription,
    RuleDescription,
    SelectorFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)

from .administering import CONNECT, raw, running

PATH = "/t/subscriptions/s$c$D"


async def test_a_subscription_of_jms_shows_its_client_and_its_selector_and_an_update_keeps_both(tmp_path: Path) -> None:
    made = SubscriptionDescription(
        "t",
        "s$c$D",
        jms=JmsSubscription("c", True, False),
        rules=(RuleDescription(DEFAULT_RULE_NAME, SelectorFilter("k = 1")),),
    )
    assert SubscriptionDescription.from_json(made.to_json()) == made
    async with running(tmp_path, profile="premium") as server, raw(server) as http:
        server.broker.administration.create(TopicDescription("t"))
        server.broker.administration.create(made)
        shown = (await http.get(PATH)).description
        names = [each.tag.rpartition("}")[2] for each in shown]
        assert names[-3:] == ["EntityAvailabilityStatus", "IsClientAffine", "ClientAffineProperties"]
        assert [each.text for each in shown[-1]] == ["c", "true", "false"]
        assert [each.tag for each in shown[-1]] == [
            f"{{{CONNECT}}}{name}" for name in ("ClientId", "IsDurable", "IsShared")
        ]
        rule = (await http.get(f"{PATH}/rules/$Default")).text
        assert '<Filter i:type="SqlFilter"><SqlExpression>k = 1</SqlExpression>' in rule
        sent = "<SubscriptionDescription><LockDuration>PT2M</LockDuration></SubscriptionDescription>"
        assert (await http.put(PATH, sent, update=True)).status == 200
        entity = server.broker.namespace.entity("t/Subscriptions/s$c$D")
        assert entity is not None
        after = entity.description
        assert isinstance(after, SubscriptionDescription)
        assert (after.lock_duration_ms, after.jms, after.rules[0].filter) == (
            120_000,
            made.jms,
            SelectorFilter("k = 1"),
        )
        assert (await http("DELETE", PATH)).status == 200


OF_CLIENT = (
    "<SubscriptionDescription><IsClientAffine>true</IsClientAffine><ClientAffineProperties><ClientId>c</ClientId>"
    "<IsShared>{}</IsShared></ClientAffineProperties></SubscriptionDescription>"
)
RULE = '<RuleDescription><Filter i:type="SqlFilter"><SqlExpression>{}</SqlExpression></Filter></RuleDescription>'


async def test_a_subscription_of_jms_is_created_with_its_client_and_its_default_rule_is_its_selector(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, profile="premium") as server, raw(server) as http:
        server.broker.administration.create(TopicDescription("t"))
        answer = await http.put(PATH, OF_CLIENT.format("false"))
        assert answer.status == 201, answer.text
        entity = server.broker.namespace.entity("t/Subscriptions/s$c$D")
        assert entity is not None
        assert isinstance(entity.description, SubscriptionDescription)
        assert entity.description.jms == JmsSubscription("c", is_durable=True, is_shared=False)
        for expression, expected in (("k BETWEEN 1 AND 2", SelectorFilter("k BETWEEN 1 AND 2")), ("1=1", TrueFilter())):
            changed = await http.put(f"{PATH}/rules/$Default", RULE.format(expression), update=True)
            assert changed.status == 200, changed.text
            assert [rule.filter for rule in server.broker.administration.rules(entity.path)] == [expected]


@pytest.mark.parametrize(
    ("profile", "path", "is_shared", "problem"),
    [
        ("standard", PATH, "false", "ClientAffineProperties is set; allowed is none: JMS needs the profile premium"),
        ("premium", "/t/subscriptions/s$c$ND", "false", "a name that ends with the client id, as in '$c$D'"),
        ("premium", "/t/subscriptions/s$d$D", "false", "a name that ends with the client id, as in '$c$D'"),
        ("premium", PATH, "perhaps", "Bad Request. The value of 'IsShared' can't be used: "),
    ],
)
async def test_a_subscription_of_jms_that_can_not_be_is_refused(
    profile: str, path: str, is_shared: str, problem: str, tmp_path: Path
) -> None:
    async with running(tmp_path, profile=profile) as server, raw(server) as http:
        server.broker.administration.create(TopicDescription("t"))
        answer = await http.put(path, OF_CLIENT.format(is_shared))
        assert (answer.status, problem in answer.text.replace("&apos;", "'")) == (400, True), answer.text
