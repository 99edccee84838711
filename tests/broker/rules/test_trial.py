"""What rules would make of a message, rule by rule."""

from __future__ import annotations

from emubus.broker.admin.rule_trial import try_rules
from emubus.broker.model.descriptions import CorrelationFilter, FalseFilter, RuleDescription, SqlFilter, TrueFilter
from emubus.broker.rules import MessageContext, RuleIndex

from .messages import message

RULES = (
    RuleDescription("all", TrueFilter()),
    RuleDescription("none", FalseFilter()),
    RuleDescription("red", SqlFilter("color = 'red'"), "SET size = 2; REMOVE color"),
    RuleDescription("unknown", SqlFilter("absent = 1")),
    RuleDescription("label", CorrelationFilter(label="hot")),
    RuleDescription("broken", SqlFilter("color = 'red'"), "SET sys.MessageId = size"),
)


def test_each_rule_is_judged_for_itself() -> None:
    verdicts = try_rules(RULES, message({"color": "red", "size": 1}), 0)
    assert [(each.rule.name, each.matches) for each in verdicts[:5]] == [
        ("all", True),
        ("none", False),
        ("red", True),
        ("unknown", False),
        ("label", False),
    ]
    copies = [None if each.copy is None else each.copy.application_properties() for each in verdicts[:3]]
    assert copies == [{"color": "red", "size": 1}, None, {"size": 2, "RuleName": "red"}]


def test_the_verdicts_agree_with_the_index_that_topics_use() -> None:
    for user in ({"color": "red"}, {"color": "blue"}, {}):
        sent = message(user, label="hot")
        index = RuleIndex()
        index.put_subscription("s", RULES[:5])
        matched = [copy for match in index.matches(MessageContext(sent)) for copy in match.copies]
        verdicts = [each for each in try_rules(RULES[:5], sent, 0) if each.matches]
        with_action = [each for each in verdicts if each.rule.action is not None]
        assert len(matched) == len(with_action) + (len(verdicts) > len(with_action))


def test_a_rule_that_fails_on_the_message_says_why() -> None:
    (verdict,) = try_rules([RuleDescription("r", SqlFilter("size / 0 = 1"))], message({"size": 1}), 0)
    assert (verdict.matches, verdict.copy) == (None, None)
    assert verdict.error
