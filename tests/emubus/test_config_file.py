"""Config.json: its contents, and the errors for a wrong file."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.keys import Right, SharedKey
from emubus.broker.model.descriptions import (
    DEFAULT_RULES,
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    Topology,
    TrueFilter,
)
from emubus.broker.model.profiles import DAY_MS, HOUR_MS, LIMITS, Profile, limits_for
from emubus.config_file.cursor import ConfigFileError
from emubus.config_file.reading import FileConfig, parse_config, read_config_file

from .config_texts import ANY_JSON, complaint, config, queue_config, rule_config

ROOT = Path(__file__).parents[2]
STANDARD = LIMITS[Profile.STANDARD]

MICROSOFT_LIKE = """\
{
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Queues": [
          {
            "Name": "queue.1",
            "Properties": {
              "DeadLetteringOnMessageExpiration": false,
              "DefaultMessageTimeToLive": "PT1H",
              "DuplicateDetectionHistoryTimeWindow": "PT20S",
              "ForwardDeadLetteredMessagesTo": "",
              "ForwardTo": "",
              "LockDuration": "PT1M",
              "MaxDeliveryCount": 3,
              "RequiresDuplicateDetection": false,
              "RequiresSession": false
            }
          }
        ],
        "Topics": [
          {
            "Name": "topic.1",
            "Properties": {
              "DefaultMessageTimeToLive": "PT1H",
              "DuplicateDetectionHistoryTimeWindow": "PT20S",
              "RequiresDuplicateDetection": false
            },
            "Subscriptions": [
              {
                "Name": "subscription.1",
                "Properties": {
                  "LockDuration": "PT1M",
                  "MaxDeliveryCount": 3,
                  "DefaultMessageTimeToLive": "PT1H",
                  "ForwardTo": ""
                },
                "Rules": [
                  {
                    "Name": "by-content",
                    "Properties": {
                      "FilterType": "Correlation",
                      "CorrelationFilter": {
                        "ContentType": "application/json"
                        // and others, such as
                        // "Label": "subject1",
                      }
                    }
                  }
                ]
              },
              {
                "Name": "subscription.4",
                "Properties": { "LockDuration": "PT1M", "MaxDeliveryCount": 3, "DefaultMessageTimeToLive": "PT1H" },
                "Rules": [
                  {
                    "Name": "by-sql",
                    "Properties": {
                      "FilterType": "Sql",
                      "SqlFilter": { "SqlExpression": "sys.MessageId = '1' AND user.a = 2" },
                      "Action": { "SqlExpression": "SET sys.To = 'Entity'" }
                    }
                  }
                ]
              },
              { "Name": "subscription.3", "Rules": [] }
            ]
          }
        ]
      }
    ],
    "Logging": { "Type": "File" }
  }
}
"""


def the_queue(text: str, profile: Profile = Profile.STANDARD) -> QueueDescription:
    (queue,) = parse_config(text, LIMITS[profile]).topology.queues
    return queue


def the_rule(text: str) -> RuleDescription:
    (subscription,) = parse_config(text, STANDARD).topology.subscriptions
    (rule,) = subscription.rules
    return rule


# ---------------------------------------------------------------- Microsoft's format


@pytest.mark.parametrize("profile", list(Profile))
def test_a_file_of_microsofts_emulator_loads_under_every_profile(profile: Profile) -> None:
    limits = LIMITS[profile]
    size_mb, window_ms = limits.defaults.max_size_mb, limits.defaults.duplicate_window_ms
    assert window_ms >= 20_000
    topology = parse_config(MICROSOFT_LIKE, limits).topology
    assert topology.queues == (
        QueueDescription(
            "queue.1", max_delivery_count=3, default_ttl_ms=HOUR_MS, duplicate_window_ms=20_000, max_size_mb=size_mb
        ),
    )
    assert topology.topics == (
        TopicDescription("topic.1", default_ttl_ms=HOUR_MS, duplicate_window_ms=20_000, max_size_mb=size_mb),
    )
    assert topology.subscriptions[:2] == (
        SubscriptionDescription(
            "topic.1",
            "subscription.1",
            max_delivery_count=3,
            default_ttl_ms=HOUR_MS,
            rules=(RuleDescription("by-content", CorrelationFilter(content_type="application/json")),),
        ),
        SubscriptionDescription(
            "topic.1",
            "subscription.4",
            max_delivery_count=3,
            default_ttl_ms=HOUR_MS,
            rules=(
                RuleDescription("by-sql", SqlFilter("sys.MessageId = '1' AND user.a = 2"), "SET sys.To = 'Entity'"),
            ),
        ),
    )
    assert topology.subscriptions[2].rules == DEFAULT_RULES


def test_in_a_partitioned_premium_namespace_a_file_that_says_nothing_of_partitions_makes_partitioned_entities() -> None:
    topology = parse_config(MICROSOFT_LIKE, limits_for(Profile.PREMIUM, 2)).topology
    assert [queue.enable_partitioning for queue in topology.queues] == [True]
    assert [topic.enable_partitioning for topic in topology.topics] == [True]


@pytest.mark.parametrize(
    "limits", [STANDARD, LIMITS[Profile.RELAXED], LIMITS[Profile.MS_EMULATOR], limits_for(Profile.PREMIUM, 4)]
)
def test_the_sample_in_the_image_loads(limits: Any) -> None:
    assert len(read_config_file(ROOT / "docker" / "Config.json", limits).topology.subscriptions) == 3


def test_what_a_file_leaves_out_has_the_default_of_the_profile() -> None:
    assert the_queue(queue_config()) == QueueDescription("q")
    assert the_queue(queue_config(), Profile.MS_EMULATOR) == QueueDescription(
        "q", max_delivery_count=3, default_ttl_ms=HOUR_MS, duplicate_window_ms=20_000, max_size_mb=100
    )


def test_a_namespace_needs_a_name_and_nothing_else() -> None:
    assert parse_config(config({}), STANDARD) == FileConfig(Topology("ns"))
    assert parse_config(config({"Queues": None, "Topics": []}), STANDARD) == FileConfig(Topology("ns"))


def test_property_names_are_taken_in_any_case_and_a_schema_reference_is_passed_over() -> None:
    text = '{"$schema": "x", "userconfig": {"namespaces": [{"name": "ns", "queues": [{"NAME": "q"}]}]}}'
    assert the_queue(text) == QueueDescription("q")


def test_comments_trailing_commas_and_a_byte_order_mark_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    text = """// first
    { /* a
    block */ "UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [{"Name": "a//b",},],},],}, } // last"""
    path.write_text("\ufeff" + text.replace("a//b", "a/*b*/c".replace("/*b*/", "/b/")), encoding="utf-8")
    assert read_config_file(path, STANDARD).topology.queues == (QueueDescription("a/b/c"),)


def test_a_comment_sign_inside_a_text_is_text() -> None:
    metadata = "http://x /* y */ // z"
    assert the_queue(queue_config(UserMetadata=metadata)).user_metadata == metadata


# ---------------------------------------------------------------- what Microsoft's format lacks


def test_every_property_of_a_queue_can_be_set() -> None:
    text = config(
        {
            "Queues": [
                {
                    "Name": "q",
                    "Properties": {
                        "AutoDeleteOnIdle": "PT5M",
                        "DeadLetteringOnMessageExpiration": True,
                        "DefaultMessageTimeToLive": "P14D",
                        "DuplicateDetectionHistoryTimeWindow": "PT20S",
                        "EnableBatchedOperations": False,
                        "EnablePartitioning": True,
                        "ForwardDeadLetteredMessagesTo": "other",
                        "ForwardTo": "OTHER",
                        "LockDuration": "PT30S",
                        "MaxDeliveryCount": 7,
                        "MaxMessageSizeInKilobytes": 256,
                        "MaxSizeInMegabytes": 2048,
                        "RequiresDuplicateDetection": True,
                        "RequiresSession": False,
                        "Status": "SendDisabled",
                        "UserMetadata": "text",
                    },
                },
                {"Name": "other"},
            ]
        }
    )
    assert parse_config(text, STANDARD).topology.queues[0] == QueueDescription(
        name="q",
        enable_partitioning=True,
        lock_duration_ms=30_000,
        max_delivery_count=7,
        default_ttl_ms=14 * DAY_MS,
        dead_letter_on_expiration=True,
        max_size_mb=2048,
        max_message_bytes=256 * 1024,
        requires_session=False,
        requires_duplicate_detection=True,
        duplicate_window_ms=20_000,
        forward_to="OTHER",
        forward_dead_letters_to="other",
        auto_delete_on_idle_ms=300_000,
        status=EntityStatus.SEND_DISABLED,
        user_metadata="text",
        enable_batched_operations=False,
    )


def test_a_subscription_can_choose_what_happens_when_a_filter_fails() -> None:
    properties = {"DeadLetteringOnFilterEvaluationExceptions": False, "Status": "ReceiveDisabled"}
    text = config({"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s", "Properties": properties}]}]})
    assert parse_config(text, STANDARD).topology.subscriptions == (
        SubscriptionDescription("t", "s", dead_letter_on_filter_exceptions=False, status=EntityStatus.RECEIVE_DISABLED),
    )


def test_the_longest_time_span_of_dotnet_means_no_limit() -> None:
    text = queue_config(
        DefaultMessageTimeToLive="P10675199DT2H48M5.4775807S", AutoDeleteOnIdle="P10675199DT2H48M5.477539S"
    )
    assert the_queue(text) == QueueDescription("q")


def test_a_size_of_80_gb_for_a_partitioned_queue_means_5_gb_per_partition() -> None:
    assert the_queue(queue_config(EnablePartitioning=True, MaxSizeInMegabytes=81920)).max_size_mb == 5120


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"FilterType": "True"}, TrueFilter()),
        ({"FilterType": "FalseFilter"}, FalseFilter()),
        # As one generator writes it: an empty object for the filter that was not chosen.
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}, "CorrelationFilter": {}}, SqlFilter("1=1")),
        (
            {"FilterType": "SqlFilter", "SqlFilter": {"SqlExpression": "a=1", "RequiresPreprocessing": False}},
            SqlFilter("a=1"),
        ),
        (
            {
                "FilterType": "Correlation",
                "CorrelationFilter": {
                    "ContentType": "1",
                    "CorrelationId": "2",
                    "Label": "3",
                    "MessageId": "4",
                    "ReplyTo": "5",
                    "ReplyToSessionId": "6",
                    "SessionId": "7",
                    "To": "8",
                    "Properties": {"a": "x", "A": 1, "b": True, "c": 1.5},
                },
            },
            CorrelationFilter("1", "2", "3", "4", "5", "6", "7", "8", {"a": "x", "A": 1, "b": True, "c": 1.5}),
        ),
    ],
)
def test_a_rule_has_any_of_four_filters(properties: dict[str, object], expected: object) -> None:
    assert the_rule(rule_config(**properties)).filter == expected


def test_authorisation_rules_belong_to_the_namespace_or_to_an_entity() -> None:
    rule = {"KeyName": "k", "Rights": ["Send", "listen"], "PrimaryKey": "1"}
    text = config(
        {
            "AuthorizationRules": [{**rule, "SecondaryKey": "2"}],
            "Queues": [{"Name": "q", "Properties": {"AuthorizationRules": [rule]}}],
        }
    )
    parsed = parse_config(text, STANDARD)
    assert parsed.keys == (SharedKey("k", "1", frozenset({Right.SEND, Right.LISTEN}), None, "2"),)
    assert parsed.topology.queues == (
        QueueDescription("q", authorization_rules=(AuthorizationRule("k", (Right.LISTEN, Right.SEND), "1"),)),
    )


def test_manage_brings_the_other_rights_with_it() -> None:
    rule = {"KeyName": "k", "Rights": ["Manage"], "PrimaryKey": "1"}
    text = config({"Topics": [{"Name": "t", "Properties": {"AuthorizationRules": [rule]}}]})
    (topic,) = parse_config(text, STANDARD).topology.topics
    assert topic.authorization_rules == (AuthorizationRule("k", (Right.SEND, Right.LISTEN, Right.MANAGE), "1"),)


# ---------------------------------------------------------------- what has no effect


QUEUE_AT = "$.UserConfig.Namespaces[0].Queues[0]"
RULE_AT = "$.UserConfig.Namespaces[0].Topics[0].Subscriptions[0].Rules[0].Properties"
UNKNOWN = "is not a known property: it is passed over"
CASES_OF_WARNINGS = {
    "misspelt": (
        queue_config(MaxDeliveryCnt=1),
        f"{QUEUE_AT}.Properties.MaxDeliveryCnt {UNKNOWN}; did you mean MaxDeliveryCount?",
    ),
    "unlike any": (queue_config(Colour=1), f"{QUEUE_AT}.Properties.Colour {UNKNOWN}"),
    "beside Properties": (
        config({"Queues": [{"Name": "q", "LockDuration": "PT30S"}]}),
        f"{QUEUE_AT}.LockDuration {UNKNOWN}; did you mean Properties.LockDuration?",
    ),
    "the SDKs' name": (
        rule_config(FilterType="Correlation", CorrelationFilter={"Subject": "a", "To": "b"}),
        f"{RULE_AT}.CorrelationFilter.Subject {UNKNOWN}; did you mean Label?",
    ),
    "azurerm's name": (
        queue_config(EnableDeadLetteringOnMessageExpiration=True),
        f"{QUEUE_AT}.Properties.EnableDeadLetteringOnMessageExpiration {UNKNOWN}; "
        "did you mean DeadLetteringOnMessageExpiration?",
    ),
    "the other emulator's name": (
        '{"UserConfig": {"Namespaces": [{"Name": "ns"}], "LoggingConfig": {"Type": "File"}}}',
        f"$.UserConfig.LoggingConfig {UNKNOWN}; did you mean Logging?",
    ),
    "another tier's value": (
        queue_config(MaxMessageSizeInKilobytes=1024),
        f"{QUEUE_AT}.Properties.MaxMessageSizeInKilobytes is 1024; allowed is 256 (fixed) (profile standard): "
        "it is passed over",
    ),
    "a filter without a property": (
        rule_config(FilterType="Correlation", CorrelationFilter={"Properties": {}}),
        f"{RULE_AT}.CorrelationFilter has no property to compare: the rule matches every message",
    ),
    "an empty filter": (
        rule_config(FilterType="Sql", SqlFilter={}),
        f"{RULE_AT} has no SqlFilter, though FilterType is Sql: the rule matches every message",
    ),
    "a namespace that no host has": (
        config({"Name": "shop.eu"}),
        '$.UserConfig.Namespaces[0].Name is "shop.eu"; Service Bus allows 1 to 50 letters, digits and -, beginning '
        "with a letter: it is taken, though no host has that name",
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES_OF_WARNINGS.values(), ids=CASES_OF_WARNINGS)
def test_what_has_no_effect_is_a_warning_with_its_place(text: str, expected: str) -> None:
    assert expected in [each.text for each in parse_config(text, STANDARD).warnings]


def test_a_value_of_another_tier_leaves_the_default_and_one_of_no_tier_is_refused() -> None:
    assert the_queue(queue_config(MaxMessageSizeInKilobytes=1024)).max_message_bytes is None
    assert the_queue(queue_config(EnablePartitioning=True), Profile.PREMIUM).enable_partitioning is False
    assert "MaxSizeInMegabytes is -1" in complaint(queue_config(MaxSizeInMegabytes=-1))


def test_microsofts_emulator_passes_over_what_only_emubus_has() -> None:
    text = queue_config(Status="Actve", MaxSizeInMegabytes=-1, LockDuration="PT30S")
    queue = the_queue(text, Profile.MS_EMULATOR)
    assert (queue.status, queue.max_size_mb, queue.lock_duration_ms) == (EntityStatus.ACTIVE, 100, 30_000)
    said = [each.text for each in parse_config(text, LIMITS[Profile.MS_EMULATOR]).warnings]
    assert len(said) == 2
    assert all(each.endswith("it is passed over") for each in said)


@pytest.mark.parametrize("ttl", ["PT10S", "PT8H"])
def test_microsofts_emulator_takes_a_time_to_live_beyond_its_documentation_with_a_warning(ttl: str) -> None:
    (warning,) = parse_config(queue_config(DefaultMessageTimeToLive=ttl), LIMITS[Profile.MS_EMULATOR]).warnings
    assert warning.text.endswith(f"is {ttl}; Microsoft's schema names PT5M to PT1H: it is taken")


@pytest.mark.parametrize("nothing", [None, {}])
def test_null_and_an_empty_object_are_as_if_left_out(nothing: object) -> None:
    assert the_queue(queue_config(LockDuration=nothing, Status=nothing)) == QueueDescription("q")
    rule = the_rule(rule_config(FilterType="Sql", SqlFilter={"SqlExpression": "a=1"}, Action=nothing))
    assert rule == RuleDescription("r", SqlFilter("a=1"))
    assert parse_config(config({"Queues": nothing, "Topics": nothing}), STANDARD) == FileConfig(Topology("ns"))


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
        (b"\xff\xfe\0\0", "utf-32-le"),
        (b"\0\0\xfe\xff", "utf-32-be"),
        (b"", "utf-16-le"),
        (b"", "utf-16-be"),
        (b"", "cp1252"),
    ],
)
def test_a_file_is_read_in_any_encoding_that_editors_write(tmp_path: Path, mark: bytes, encoding: str) -> None:
    path = tmp_path / "Config.json"
    path.write_bytes(
        mark + queue_config(UserMetadata="größe").replace("\\u00f6", "ö").replace("\\u00df", "ß").encode(encoding)
    )
    found = read_config_file(path, STANDARD)
    assert found.topology.queues[0].user_metadata == "größe"
    at = path.read_bytes().find(0xF6)
    doubt = f"{path}: is not UTF-8 (line 1, byte {at}): it is read as Windows-1252; save it as UTF-8"
    assert [str(each) for each in found.warnings] == ([doubt] if encoding == "cp1252" else [])


# ---------------------------------------------------------------- complaints


QUEUE_PATH = "$.UserConfig.Namespaces[0].Queues[0]"
QUEUE_SET = f"{QUEUE_PATH}.Properties"
RULE_SET = "$.UserConfig.Namespaces[0].Topics[0].Subscriptions[0].Rules[0].Properties"
STANDARD_ONLY = "(profile standard)"


def test_a_complaint_names_file_line_path_value_and_what_is_allowed() -> None:
    text = MICROSOFT_LIKE.replace(
        '"LockDuration": "PT1M",\n              "MaxDeliv', '"LockDuration": "PT10M",\n              "MaxDeliv'
    )
    assert complaint(text) == (
        f"Config.json:15: {QUEUE_SET}.LockDuration is PT10M; allowed is PT5S to PT5M (profile standard)"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (queue_config(MaxDeliveryCount="3"), f'{QUEUE_SET}.MaxDeliveryCount is "3"; it must be a whole number'),
        (queue_config(MaxDeliveryCount=True), f"{QUEUE_SET}.MaxDeliveryCount is true; it must be a whole number"),
        (queue_config(MaxDeliveryCount=1.5), f"{QUEUE_SET}.MaxDeliveryCount is 1.5; it must be a whole number"),
        (queue_config(RequiresSession="no"), f'{QUEUE_SET}.RequiresSession is "no"; it must be true or false'),
        (queue_config(UserMetadata=[]), f"{QUEUE_SET}.UserMetadata is an array; it must be a text"),
        (
            queue_config(LockDuration=60),
            f'{QUEUE_SET}.LockDuration is 60; it must be an ISO 8601 duration such as "PT1M"',
        ),
        (
            queue_config(LockDuration="00:01:00"),
            f"{QUEUE_SET}.LockDuration '00:01:00' is not an ISO 8601 duration such as 'PT1M' or 'P14D'",
        ),
        (
            queue_config(Status="Actve"),
            f'{QUEUE_SET}.Status is "Actve"; allowed is Active, Disabled, SendDisabled, ReceiveDisabled'
            "; did you mean Active?",
        ),
        (
            queue_config(ForwardTo="elsewhere"),
            f'{QUEUE_SET}.ForwardTo is "elsewhere"; there is no queue or topic of that name',
        ),
        (
            queue_config(ForwardTo="Q"),
            f"{QUEUE_SET}.ForwardTo is 'Q'; allowed is another entity than this one {STANDARD_ONLY}",
        ),
        (config({"Queues": [{}]}), f"{QUEUE_PATH} has no Name; it is required"),
        (config({"Queues": ["q"]}), f'{QUEUE_PATH} is "q"; it must be an object'),
        (config({"Queues": {"a": 1}}), "$.UserConfig.Namespaces[0].Queues is an object; it must be an array"),
        (
            config({"Queues": [{"Name": "a"}, {"Name": "A"}]}),
            '$.UserConfig.Namespaces[0].Queues[1] is named "A"; line 1 has another queue or topic of that name '
            "(upper and lower case are the same)",
        ),
        (
            config({"Queues": [{"Name": "a"}], "Topics": [{"Name": "a"}]}),
            '$.UserConfig.Namespaces[0].Topics[0] is named "a"; line 1 has another queue or topic of that name '
            "(upper and lower case are the same)",
        ),
        (config({"Queues": [{"Name": "a", "name": "b"}]}), f"{QUEUE_PATH}.name is given twice"),
        (
            config({"Name": "a\nb"}),
            '$.UserConfig.Namespaces[0].Name is "a\\nb"; allowed is any text without control characters',
        ),
        ('{"UserConfig": {"Logging": {}}}', "$.UserConfig has no Namespaces; it is required"),
        ('{"UserConfig": {}}', "$ has no UserConfig; it is required"),
        ("{}", "$ has no UserConfig; it is required"),
        (
            '{"UserConfig": {"Namespaces": [{"Name": "a"}], "Logging": {"Type": "Disk"}}}',
            '$.UserConfig.Logging.Type is "Disk"; allowed is File, Console, File,Console, Console,File',
        ),
        (rule_config(), f"{RULE_SET.removesuffix('.Properties')} has no Properties; it is required"),
        (rule_config(Action={}), f"{RULE_SET} has no FilterType; it is required"),
        (config({"Queues": [{"Nane": "q"}]}), f"{QUEUE_PATH}.Nane is not a known property; did you mean Name?"),
        (
            rule_config(FilterType="Sql", SqlFilter={"SqlExpression": "x" * 1025}),
            f"{RULE_SET}.SqlFilter.SqlExpression is 1025 characters long; "
            f"allowed is 1 to 1024 characters {STANDARD_ONLY}",
        ),
        (
            rule_config(FilterType="True", Action={"SqlExpression": "x" * 1025}),
            f"{RULE_SET}.Action.SqlExpression is 1025 characters long; allowed is 1 to 1024 characters {STANDARD_ONLY}",
        ),
        (
            rule_config(FilterType="Correlation", CorrelationFilter={"Properties": {"a": []}}),
            f"{RULE_SET}.CorrelationFilter.Properties.a is an array; it must be a text, a number, true or false",
        ),
        (
            config({"AuthorizationRules": [{"KeyName": "k", "Rights": [], "PrimaryKey": "1"}]}),
            "$.UserConfig.Namespaces[0].AuthorizationRules[0].Rights is empty; allowed is any of Send, Listen, Manage",
        ),
    ],
)
def test_a_file_that_is_wrong_is_reported_where_and_why(text: str, expected: str) -> None:
    assert complaint(text) == f"Config.json:1: {expected}"


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "amount >> 3"}}, "SqlFilter.SqlExpression"),
        ({"FilterType": "True", "Action": {"SqlExpression": "SET = 1"}}, "Action.SqlExpression"),
    ],
)
def test_sql_that_does_not_parse_is_reported_with_its_place(properties: dict[str, object], place: str) -> None:
    text = complaint(rule_config(**properties))
    assert f"{place} can't be used: " in text
    assert "(line 1, column " in text


def test_duplicate_names_of_subscriptions_and_rules_are_refused() -> None:
    subscriptions = [{"Name": "s"}, {"Name": "S"}]
    assert "another subscription of this topic" in complaint(
        config({"Topics": [{"Name": "t", "Subscriptions": subscriptions}]})
    )
    rules = [{"Name": "r", "Properties": {"FilterType": "True"}}] * 2
    one = [{"Name": "s", "Rules": rules}]
    assert "another rule of this subscription" in complaint(config({"Topics": [{"Name": "t", "Subscriptions": one}]}))


def forwarding(target: str) -> dict[str, object]:
    """A queue that forwards."""
    return {"Name": "from", "Properties": {"ForwardTo": target}}


def test_each_namespace_of_a_file_has_its_profile_port_and_entities() -> None:
    premium = {"Name": "b", "Profile": "premium", "Port": 5673, "Queues": [{"Name": "q"}]}
    text = json.dumps({"UserConfig": {"Namespaces": [{"Name": "a", "Profile": "relaxed"}, premium]}})
    found = parse_config(text, LIMITS[Profile.STANDARD])
    (more,) = found.more
    assert (more.topology.namespace, more.port, [each.name for each in more.topology.queues]) == ("b", 5673, ["q"])
    assert more.limits == LIMITS[Profile.PREMIUM]
    assert found.limits == LIMITS[Profile.STANDARD], "the profile of the first is the server's"
    assert parse_config(text, LIMITS[Profile.STANDARD], takes_profile=True).limits == LIMITS[Profile.RELAXED]


@pytest.mark.parametrize(
    ("namespaces", "expected"),
    [
        ([], "$.UserConfig.Namespaces has no namespace"),
        ([{"Name": "a"}, {"Name": "A"}], 'is named "A"; line 1 has another namespace of that name'),
        ([{"Name": "a"}, {"Name": "localhost"}], "'localhost' can't be the name of a namespace"),
        ([{"Name": "a"}, {"Name": "b", "Port": 70000}], "Port is 70000; allowed is 0 (a free one) to 65535"),
        ([{"Name": "a", "Port": 1}, {"Name": "b"}], "Port is for namespaces besides the first"),
        ([{"Name": "a"}, {"Name": "b", "Profile": "gold"}], "Profile is"),
        (
            [{"Name": "a", "Queues": [forwarding("sb://b.localhost/q"), {"Name": "q"}]}, {"Name": "b"}],
            'is "sb://b.localhost/q", an address of another namespace than "a"',
        ),
        ([{"Name": "a", "Queues": [{"Name": "q"}]}, {"Name": "b", "Queues": [forwarding("q")]}], 'is "q"; there is no'),
    ],
)
def test_what_several_namespaces_must_not_have_is_named(namespaces: list[object], expected: str) -> None:
    assert expected in complaint(json.dumps({"UserConfig": {"Namespaces": namespaces}}))


def test_p05_the_101st_partitioned_entity_is_refused_on_standard_and_allowed_when_relaxed() -> None:
    queues = [{"Name": f"q{n}", "Properties": {"EnablePartitioning": True}} for n in range(101)]
    text = config({"Queues": queues})
    assert complaint(text).endswith("has 101 partitioned entities; allowed is at most 100 (profile standard)")
    assert len(parse_config(text, LIMITS[Profile.RELAXED]).topology.queues) == 101


def test_microsofts_emulator_holds_50_queues_and_topics() -> None:
    text = config({"Queues": [{"Name": f"q{n}"} for n in range(51)]})
    assert complaint(text, Profile.MS_EMULATOR).endswith(
        "$.UserConfig.Namespaces[0] has 51 queues and topics; allowed is at most 50 (profile ms-emulator)"
    )


def test_a_file_that_cannot_be_read_is_reported_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="cannot be read: No such file"):
        read_config_file(tmp_path / "none.json", STANDARD)
    with pytest.raises(ConfigFileError, match="cannot be read: Is a directory"):
        read_config_file(tmp_path, STANDARD)
    link = tmp_path / "link.json"
    link.symlink_to("nowhere.json")
    with pytest.raises(ConfigFileError, match=r"cannot be read: it is a link to nowhere.json, which is not there"):
        read_config_file(link, STANDARD)
    for data in (b"\x7fELF\xff\x00\x01", b"\xff\xfe{", b"{\x81"):
        (tmp_path / "binary.json").write_bytes(data)
        with pytest.raises(ConfigFileError, match=r"save it as UTF-8$"):
            read_config_file(tmp_path / "binary.json", STANDARD)


@given(st.text() | st.text(alphabet='{}[]",:/*\\ \n1e.-tn', max_size=30))
def test_any_text_is_a_configuration_or_a_complaint_and_never_another_failure(text: str) -> None:
    with pytest.raises(ConfigFileError):
        parse_config(text, STANDARD)


@given(st.integers(0, 60), ANY_JSON)
def test_any_value_in_any_place_is_taken_or_complained_about(place: int, value: object) -> None:
    lines = [str(line) for line in MICROSOFT_LIKE.splitlines()]
    places = [index for index, line in enumerate(lines) if re.search(r'": (?!.*[{[]).*', line) and "//" not in line]
    index = places[place % len(places)]
    name, _, rest = lines[index].partition(": ")
    lines[index] = f"{name}: {json.dumps(value)}{',' * rest.endswith(',')}"
    with contextlib.suppress(ConfigFileError):
        parse_config("\n".join(lines), STANDARD)
