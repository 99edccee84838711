"""The limits of the profiles, and the violations that a description is refused with."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from emubus.broker.keys import Right
from emubus.broker.model.descriptions import (
    DEFAULT_RULES,
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    PropertyValue,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    TypedText,
)
from emubus.broker.model.profiles import (
    DAY_MS,
    HOUR_MS,
    LIMITS,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    Limits,
    Partitioning,
    Profile,
    Range,
    aggregate_size_mb,
    defaults_of,
    limits_for,
    message_bytes_max,
    partitions_of,
    size_mb_from_client,
)
from emubus.broker.model.validation import (
    Violation,
    forwards_to_itself,
    is_rule_name,
    queue_violations,
    rule_violations,
    subscription_violations,
    topic_violations,
)
from emubus.codec.durations import UNLIMITED_TEXT

STANDARD = LIMITS[Profile.STANDARD]
PREMIUM = LIMITS[Profile.PREMIUM]
MS_EMULATOR = LIMITS[Profile.MS_EMULATOR]
RELAXED = LIMITS[Profile.RELAXED]
QUEUE = QueueDescription("q")
LISTENER = AuthorizationRule("k", (Right.LISTEN,), "1")


def _default_queue(profile: Profile) -> QueueDescription:
    return QueueDescription("q", **defaults_of(QueueDescription, LIMITS[profile]))


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("profile", list(Profile))
def test_the_defaults_of_a_profile_keep_its_own_limits(profile: Profile) -> None:
    assert queue_violations(_default_queue(profile), LIMITS[profile]) == []
    assert LIMITS[profile].profile is profile


@pytest.mark.parametrize("profile", list(Profile))
def test_the_values_of_microsofts_sample_are_allowed_in_every_profile(profile: Profile) -> None:
    queue = replace(
        _default_queue(profile),
        lock_duration_ms=MINUTE_MS,
        max_delivery_count=3,
        default_ttl_ms=HOUR_MS,
        duplicate_window_ms=20 * SECOND_MS,
    )
    assert queue_violations(queue, LIMITS[profile]) == []


def test_the_standard_defaults_are_those_of_a_bare_description() -> None:
    assert _default_queue(Profile.STANDARD) == QUEUE


@pytest.mark.parametrize("profile", [Profile.PREMIUM, Profile.RELAXED])
def test_relaxed_and_premium_quotas_are_not_below_those_of_microsofts_emulator(profile: Profile) -> None:
    limits = LIMITS[profile]
    assert limits.entities_max > MS_EMULATOR.entities_max
    assert limits.connections_max > MS_EMULATOR.connections_max
    assert limits.message_bytes_max > MS_EMULATOR.message_bytes_max


# ---------------------------------------------------------------- single properties


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"lock_duration_ms": 4_999}, Violation("LockDuration", "PT4.999S", "PT5S to PT5M")),
        ({"lock_duration_ms": 300_001}, Violation("LockDuration", "PT5M0.001S", "PT5S to PT5M")),
        ({"max_delivery_count": 0}, Violation("MaxDeliveryCount", "0", "1 to 2147483647")),
        ({"default_ttl_ms": 999}, Violation("DefaultMessageTimeToLive", "PT0.999S", "PT1S or more")),
        (
            {"duplicate_window_ms": 19_999},
            Violation("DuplicateDetectionHistoryTimeWindow", "PT19.999S", "PT20S to P7D"),
        ),
        (
            {"duplicate_window_ms": 7 * DAY_MS + 1},
            Violation("DuplicateDetectionHistoryTimeWindow", "P7DT0.001S", "PT20S to P7D"),
        ),
        ({"auto_delete_on_idle_ms": 299_999}, Violation("AutoDeleteOnIdle", "PT4M59.999S", "PT5M or more")),
        (
            {"max_size_mb": 1500},
            Violation("MaxSizeInMegabytes", "1500", "one of 1024, 2048, 3072, 4096, 5120"),
        ),
        ({"max_message_bytes": 1024 * 1024}, Violation("MaxMessageSizeInKilobytes", "1024", "256 (fixed)")),
        ({"user_metadata": "x" * 1025}, Violation("UserMetadata", "1025 characters long", "0 to 1024 characters")),
        ({"authorization_rules": (LISTENER,) * 2}, Violation("KeyName", "'k'", "names that differ")),
        (
            {"authorization_rules": tuple(replace(LISTENER, key_name=str(each)) for each in range(13))},
            Violation("AuthorizationRules", "13 rules long", "at most 12"),
        ),
        (
            {"authorization_rules": (replace(LISTENER, rights=(Right.MANAGE,)),)},
            Violation("Rights", "Manage", "Send and Listen together with Manage"),
        ),
        (
            {"authorization_rules": (replace(LISTENER, rights=()),)},
            Violation("Rights", "empty", "any of Send, Listen, Manage"),
        ),
        (
            {"authorization_rules": (replace(LISTENER, primary_key=""),)},
            Violation("PrimaryKey", "0 characters long", "1 to 256 characters"),
        ),
    ],
)
def test_a_queue_beyond_a_limit_is_reported_the_property_the_value_and_what_is_allowed(
    change: dict[str, object], expected: Violation
) -> None:
    assert queue_violations(replace(QUEUE, **change), STANDARD) == [expected]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"lock_duration_ms": 5_000},
        {"lock_duration_ms": 300_000},
        {"max_delivery_count": 2**31 - 1},
        {"default_ttl_ms": 1_000},
        {"duplicate_window_ms": 20_000},
        {"duplicate_window_ms": 7 * DAY_MS},
        {"auto_delete_on_idle_ms": 300_000},
        {"max_size_mb": 5120},
        {"max_message_bytes": 256 * 1024},
        {"user_metadata": "x" * 1024},
        {"forward_to": "other"},
    ],
)
def test_a_value_at_the_edge_of_a_limit_is_allowed(change: dict[str, object]) -> None:
    assert queue_violations(replace(QUEUE, **change), STANDARD) == []  # type: ignore[arg-type]


def test_every_violation_is_reported_not_only_the_first() -> None:
    queue = replace(QUEUE, name="q?", lock_duration_ms=1, max_delivery_count=0)
    found = [violation.property for violation in queue_violations(queue, STANDARD)]
    assert found == ["Name", "LockDuration", "MaxDeliveryCount"]


def test_microsofts_emulator_allows_no_unlimited_time_to_live() -> None:
    queue = replace(_default_queue(Profile.MS_EMULATOR), default_ttl_ms=None)
    assert queue_violations(queue, MS_EMULATOR) == [
        Violation("DefaultMessageTimeToLive", UNLIMITED_TEXT, "PT1S to P3650D")
    ]


def test_relaxed_allows_a_lock_of_one_second_and_no_less() -> None:
    assert queue_violations(replace(QUEUE, lock_duration_ms=1_000), RELAXED) == []
    assert queue_violations(replace(QUEUE, lock_duration_ms=999), RELAXED) == [
        Violation("LockDuration", "PT0.999S", "PT1S to P1D")
    ]


def test_an_entity_with_message_sessions_cannot_forward() -> None:
    queue = replace(QUEUE, requires_session=True, forward_to="other")
    assert [violation.property for violation in queue_violations(queue, STANDARD)] == ["ForwardTo"]
    assert queue_violations(replace(queue, forward_to=None, forward_dead_letters_to="other"), STANDARD) == []


def test_a_topic_cannot_be_receive_disabled_nor_a_subscription_send_disabled() -> None:
    topic = TopicDescription("t", status=EntityStatus.RECEIVE_DISABLED)
    subscription = SubscriptionDescription("t", "s", status=EntityStatus.SEND_DISABLED)
    assert [violation.property for violation in topic_violations(topic, STANDARD)] == ["Status"]
    assert [violation.property for violation in subscription_violations(subscription, STANDARD)] == ["Status"]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name", ["q", "Q-1", "a/b/c", "under_score", "a.b", "masstransit~temp", "_skipped", "a-", "-a.", "x" * 260]
)
def test_a_name_that_the_cloud_takes_is_allowed(name: str) -> None:
    assert queue_violations(replace(QUEUE, name=name), STANDARD) == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "a b",
        "a?b",
        "a@b",
        "a+b",
        "ü",
        "x" * 261,
        "$management",
        "a/$x/b",
        "t/Subscriptions/s",
        "a\n",
    ],
)
def test_a_name_that_cannot_be_addressed_is_refused(name: str) -> None:
    assert [violation.property for violation in queue_violations(replace(QUEUE, name=name), STANDARD)] == ["Name"]


def test_relaxed_takes_names_with_spaces_and_letters_of_any_script_but_none_that_an_address_cannot_carry() -> None:
    for name in ("two words", "wörter", "日本", "-a-"):
        assert queue_violations(replace(QUEUE, name=name), RELAXED) == []
    for name in ("a//b", "/a", "a?b", "a/$x", " a", "a\x00b"):
        assert [violation.property for violation in queue_violations(replace(QUEUE, name=name), RELAXED)] == ["Name"]


def test_a_subscription_has_the_characters_of_the_service_and_one_that_exists_keeps_its_name() -> None:
    for name in ("a b", "a+b", "a|b", "ümlaut", "a,b", "a(b)", "a\n"):
        subscription = SubscriptionDescription("t", name)
        (violation,) = subscription_violations(subscription, STANDARD)
        assert (violation.property, violation.is_character) == ("Name", True)
        assert subscription_violations(subscription, STANDARD, is_new=False) == []
        assert not is_rule_name(name, STANDARD)
    for name in ("a b", "a+b", "a|b", "ümlaut"):
        assert subscription_violations(SubscriptionDescription("t", name), RELAXED) == []
        assert is_rule_name(name, RELAXED)
    for name in ("a.b", "a-", "-_", "A~1", "$Default"):
        assert subscription_violations(SubscriptionDescription("t", name), STANDARD) == []
        assert is_rule_name(name, STANDARD)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lock_duration_ms": 300_001}, "Actual value was 00:05:00.0010000"),
        ({"lock_duration_ms": 3 * DAY_MS}, "Actual value was 3.00:00:00"),
        ({"max_size_mb": 1500}, "must be one of the following values: 1024;2048;3072;4096;5120"),
        ({"max_message_bytes": 1024 * 1024}, "Bad Request. MaxMessageSizeInKilobytes is 1024; allowed is 256"),
        ({"enable_express": True, "requires_duplicate_detection": True}, "Both DelayedPersistence property and"),
    ],
)
def test_what_the_service_has_words_for_is_refused_in_them(change: dict[str, object], words: str) -> None:
    (violation,) = queue_violations(replace(QUEUE, **change), STANDARD)  # type: ignore[arg-type]
    assert violation.refusal is not None
    assert words in violation.refusal.description


def test_a_premium_message_size_is_refused_in_the_words_of_the_service() -> None:
    (violation,) = queue_violations(replace(QUEUE, max_message_bytes=1024), LIMITS[Profile.PREMIUM])
    assert violation.refusal is not None
    assert "'MaxMessageSizeInKilobytes' must be between 1024 and 102400" in violation.refusal.description


def test_premium_has_no_express_entities() -> None:
    """As the pages of the tiers and of the exceptions say; azurerm checks it, too."""
    queue, topic = replace(QUEUE, enable_express=True), TopicDescription("t", enable_express=True)
    for limits, found in ((LIMITS[Profile.PREMIUM], ["EnableExpress"]), (STANDARD, [])):
        assert [each.property for each in queue_violations(queue, limits)] == found
        assert [each.property for each in topic_violations(topic, limits)] == found


def test_relaxed_takes_express_entities_with_duplicate_detection() -> None:
    assert queue_violations(replace(QUEUE, enable_express=True, requires_duplicate_detection=True), RELAXED) == []


def test_a_subscription_or_rule_name_holds_50_characters_and_no_slash() -> None:
    for name, is_allowed in (("s" * 50, True), ("s" * 51, False), ("a/b", False), ("$Default", True), ("", False)):
        subscription = SubscriptionDescription("t", name)
        assert (subscription_violations(subscription, STANDARD) == []) is is_allowed
        assert (rule_violations(RuleDescription(name), STANDARD) == []) is is_allowed


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (RuleDescription("r", SqlFilter("x" * 1025)), ["SqlExpression"]),
        (RuleDescription("r", SqlFilter("")), ["SqlExpression"]),
        (RuleDescription("r", CorrelationFilter()), ["CorrelationFilter"]),
        (RuleDescription("r", action="x" * 1025), ["Action"]),
        (RuleDescription("r", CorrelationFilter(label="a"), "SET a = 1"), []),
        (RuleDescription("r", CorrelationFilter(properties={"a": 0})), []),
        (RuleDescription("r", FalseFilter()), []),
    ],
)
def test_a_rule_is_checked_for_length_and_emptiness(rule: RuleDescription, expected: list[str]) -> None:
    assert [violation.property for violation in rule_violations(rule, STANDARD)] == expected


def _properties(count: int, text: str = "x") -> dict[str, PropertyValue]:
    return {f"{number:05}": text for number in range(count)}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_a_rule_has_so_many_properties_words_and_bytes_in_every_profile(limits: Limits) -> None:
    count, tokens, size = limits.rule_properties_max, limits.rule_tokens_max, limits.rule_bytes_max
    for small in (
        CorrelationFilter(properties=_properties(count)),
        CorrelationFilter(properties=_properties(1, "x" * (size - 6))),
        SqlFilter("a = 1", _properties(count)),
    ):
        assert rule_violations(RuleDescription("r", small), limits) == []
    too_many = f"{count + 1} entries long"
    words = " " * 5 + "1," * (tokens // 2) + "1" * (1 + tokens % 2)
    for large, violation in (
        (CorrelationFilter(properties=_properties(count + 1)), ("Properties", too_many)),
        (SqlFilter("a = 1", _properties(count + 1)), ("Parameters", too_many)),
        (CorrelationFilter(properties=_properties(1, "ä" * (size // 2))), ("The rule", f"{size + 6} bytes in all")),
        (
            CorrelationFilter(properties={"a": TypedText("duration", "x" * size)}),
            ("The rule", f"{size + 2} bytes in all"),
        ),
        (SqlFilter(words), ("SqlExpression", f"{tokens + 1} words, signs and literals long")),
    ):
        found = [(each.property, each.value) for each in rule_violations(RuleDescription("r", large), limits)]
        assert violation in found


def test_a_literal_counts_once_however_long() -> None:
    text = "a = 'x'" + " OR a = '" + "it''s long, isn''t it? " * 2_000 + "'"
    assert rule_violations(RuleDescription("r", SqlFilter(text), "SET a = 1"), RELAXED) == []


# ---------------------------------------------------------------- partitions and sizes


def test_p02_a_standard_namespace_holds_partitioned_and_unpartitioned_entities() -> None:
    partitioned = replace(QUEUE, enable_partitioning=True)
    assert queue_violations(QUEUE, STANDARD) == queue_violations(partitioned, STANDARD) == []
    assert (partitions_of(QUEUE, STANDARD), partitions_of(partitioned, STANDARD)) == (1, 16)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_p03_a_partitioned_premium_namespace_takes_partitioned_entities_only(count: int) -> None:
    limits = limits_for(Profile.PREMIUM, count)
    partitioned = replace(QUEUE, enable_partitioning=True)
    assert limits.partitioning is Partitioning.ALWAYS
    assert queue_violations(partitioned, limits) == []
    assert partitions_of(partitioned, limits) == count
    assert [violation.property for violation in queue_violations(QUEUE, limits)] == ["EnablePartitioning"]


def test_p03_an_unpartitioned_premium_namespace_takes_unpartitioned_entities_only() -> None:
    assert queue_violations(QUEUE, PREMIUM) == []
    partitioned = replace(QUEUE, enable_partitioning=True)
    assert [violation.property for violation in queue_violations(partitioned, PREMIUM)] == ["EnablePartitioning"]


@pytest.mark.parametrize(("profile", "count"), [(Profile.PREMIUM, 3), (Profile.STANDARD, 2), (Profile.PREMIUM, 0)])
def test_p03_a_number_of_partitions_that_is_not_offered_is_refused(profile: Profile, count: int) -> None:
    with pytest.raises(ValueError, match="partitions"):
        limits_for(profile, count)


def test_p04_a_partitioned_queue_of_5_gb_per_partition_is_shown_with_80_gb() -> None:
    queue = replace(QUEUE, enable_partitioning=True, max_size_mb=5120)
    assert aggregate_size_mb(queue, STANDARD) == 80 * 1024
    assert aggregate_size_mb(replace(queue, enable_partitioning=False), STANDARD) == 5120
    assert aggregate_size_mb(queue, limits_for(Profile.PREMIUM, 4)) == 5120


def test_p04_premium_offers_sizes_up_to_80_gb() -> None:
    sizes = [1, 2, 3, 4, 5, 10, 20, 40, 80]
    assert [
        violation for size in sizes for violation in queue_violations(replace(QUEUE, max_size_mb=size * 1024), PREMIUM)
    ] == []
    assert len(queue_violations(replace(QUEUE, max_size_mb=6 * 1024), PREMIUM)) == 1


@pytest.mark.parametrize(
    ("size_mb", "partitioned", "expected"),
    [
        (1024, True, 1024),
        (5120, True, 5120),
        (81920, True, 5120),
        (49152, True, 3072),
        (81920, False, 81920),
        (999, True, 999),
    ],
)
def test_p04_a_client_that_echoes_the_aggregate_size_means_the_size_per_partition(
    size_mb: int, partitioned: bool, expected: int
) -> None:
    assert size_mb_from_client(size_mb, partitioned, STANDARD) == expected


@pytest.mark.parametrize("limits", [STANDARD, RELAXED], ids=["standard", "relaxed"])
def test_p04_an_update_that_echoes_the_size_that_it_was_shown_changes_nothing(limits: Limits) -> None:
    queue = replace(QUEUE, enable_partitioning=True, max_size_mb=2048)
    for _ in range(3):
        shown_mb = aggregate_size_mb(queue, limits)
        assert shown_mb == 16 * 2048
        known_mb = queue.max_size_mb
        queue = replace(queue, max_size_mb=size_mb_from_client(shown_mb, True, limits, known_mb))


def test_p05_a_message_in_a_partitioned_premium_namespace_is_at_most_1_mb() -> None:
    limits = limits_for(Profile.PREMIUM, 2)
    large = replace(QUEUE, max_message_bytes=2 * MIB)
    assert queue_violations(large, PREMIUM) == []
    assert message_bytes_max(large, PREMIUM) == 2 * MIB
    partitioned = replace(large, enable_partitioning=True)
    assert [violation.property for violation in queue_violations(partitioned, limits)] == ["MaxMessageSizeInKilobytes"]
    assert message_bytes_max(partitioned, limits) == MIB
    assert message_bytes_max(QUEUE, STANDARD) == 256 * 1024


# ---------------------------------------------------------------- descriptions as JSON


QUEUES = [
    QUEUE,
    QueueDescription(
        "Q.1", True, 5_000, 3, 3_600_000, True, 2048, 1024, True, True, 20_000, "a", "b", 300_000,
        EntityStatus.SEND_DISABLED, "meta", False,
    ),
]  # fmt: skip


@pytest.mark.parametrize("queue", QUEUES)
def test_a_queue_survives_the_catalog(queue: QueueDescription) -> None:
    assert QueueDescription.from_json(json.loads(json.dumps(queue.to_json()))) == queue


def test_a_topic_survives_the_catalog() -> None:
    topic = TopicDescription("t", True, 1_000, 2048, None, True, 20_000, False, None, EntityStatus.DISABLED, "m", False)
    assert TopicDescription.from_json(json.loads(json.dumps(topic.to_json()))) == topic


def test_a_subscription_survives_the_catalog_with_rules_of_every_kind() -> None:
    rules = (
        RuleDescription("sql", SqlFilter("a = @b", {"@b": 2}), "SET x = 1"),
        RuleDescription(
            "correlation", CorrelationFilter(to="x", properties={"a": 1, "d": TypedText("dateTime", "2026-01-01")})
        ),
        RuleDescription("true", TrueFilter()),
        RuleDescription("false", FalseFilter()),
    )
    subscription = SubscriptionDescription("t", "s", requires_session=True, rules=rules)
    assert SubscriptionDescription.from_json(json.loads(json.dumps(subscription.to_json()))) == subscription


def test_what_older_data_does_not_have_gets_its_default_and_what_newer_data_has_is_passed_over() -> None:
    assert QueueDescription.from_json({"name": "q", "invented_later": 1}) == QUEUE
    assert SubscriptionDescription.from_json({"topic_name": "t", "name": "s"}).rules == DEFAULT_RULES
    assert RuleDescription.from_json({"name": "r"}) == RuleDescription("r", TrueFilter())


# ---------------------------------------------------------------- ranges, names


def test_a_range_without_an_upper_bound_holds_no_limit_and_one_with_it_does_not() -> None:
    assert None in Range(1)
    assert None not in Range(1, 2)
    assert [value in Range(1, 2) for value in (0, 1, 2, 3)] == [False, True, True, False]


def test_what_names_itself_is_found_in_any_spelling() -> None:
    queue = QueueDescription("a/Q", forward_to="sb://host:5671/A%2Fq", forward_dead_letters_to="b")
    assert forwards_to_itself(queue, "a/Q") == [
        Violation("ForwardTo", "'sb://host:5671/A%2Fq'", "another entity than this one")
    ]
    assert queue_violations(queue, STANDARD) == []


@pytest.mark.parametrize("profile", Profile)
def test_no_segment_of_a_name_is_taken_out_of_an_address_by_http_clients(profile: Profile) -> None:
    limits = LIMITS[profile]
    for name in ("a/../b", "a/./b", "..", "."):
        assert "Name" in [each.property for each in queue_violations(replace(QUEUE, name=name), limits)]
    for name in ("a/..b", "a/b..c/d", "a..b"):
        assert "Name" not in [each.property for each in queue_violations(replace(QUEUE, name=name), limits)]
    for name, is_allowed in ((".", False), ("..", False), ("...", True), ("..a", True)):
        subscription = SubscriptionDescription("t", name)
        assert ("Name" not in [each.property for each in subscription_violations(subscription, limits)]) is is_allowed
        assert ("Name" not in [each.property for each in rule_violations(RuleDescription(name), limits)]) is is_allowed
