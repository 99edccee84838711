"""Subscriptions that JMS consumers make, as administration clients see and change them."""

from __future__ import annotations

from pathlib import Path

from emubus.broker.model.descriptions import (
    DEFAULT_RULE_NAME,
    JmsSubscription,
    RuleDescription,
    SelectorFilter,
    SubscriptionDescription,
    TopicDescription,
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
        entity = server.broker.entity("t/Subscriptions/s$c$D")
        assert entity is not None
        after = entity.description
        assert isinstance(after, SubscriptionDescription)
        assert (after.lock_duration_ms, after.jms, after.rules[0].filter) == (
            120_000,
            made.jms,
            SelectorFilter("k = 1"),
        )
        assert (await http("DELETE", PATH)).status == 200


async def test_a_subscription_that_is_created_as_one_of_a_client_is_a_plain_one(tmp_path: Path) -> None:
    sent = (
        "<SubscriptionDescription><IsClientAffine>true</IsClientAffine><ClientAffineProperties><ClientId>c</ClientId>"
        "<IsDurable>true</IsDurable><IsShared>false</IsShared></ClientAffineProperties></SubscriptionDescription>"
    )
    async with running(tmp_path, profile="premium") as server, raw(server) as http:
        server.broker.administration.create(TopicDescription("t"))
        answer = await http.put(PATH, sent)
        assert answer.status == 201, answer.text
        entity = server.broker.entity("t/Subscriptions/s$c$D")
        assert entity is not None
        assert isinstance(entity.description, SubscriptionDescription)
        assert entity.description.jms is None
