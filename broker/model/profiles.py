"""The limits of every profile, in one table.

Knows the limits of the Standard tier, the Premium tier, Microsoft's emulator, and the `relaxed` profile, which lifts
the quotas and keeps the program's own limits. `validation.py` compares descriptions with them.

Sources: [SB: service-bus-quotas], [P2]-[P5], [wire 10.13]; for Microsoft's emulator its published schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any, Final

from ..lazy_dataclass import dataclass
from .descriptions import EntityDescription, QueueDescription, TopicDescription

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
KIB: Final = 1024
MIB: Final = 1024 * 1024


class Profile(StrEnum):
    STANDARD = "standard"
    PREMIUM = "premium"
    MS_EMULATOR = "ms-emulator"
    RELAXED = "relaxed"


class Partitioning(StrEnum):
    """Whether each entity chooses its partitioning, or the namespace for all."""

    PER_ENTITY = "per-entity"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Range:
    """An inclusive range of whole numbers; `stop` None is no upper bound."""

    start: int
    stop: int | None = None

    def __contains__(self, value: int | None) -> bool:
        """Whether a value is in the range; None is "no limit"."""
        if value is None:
            return self.stop is None
        return self.start <= value and (self.stop is None or value <= self.stop)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Defaults:
    """The defaults of omitted properties."""

    lock_duration_ms: int = MINUTE_MS
    max_delivery_count: int = 10
    ttl_ms: int | None = None
    duplicate_window_ms: int = 10 * MINUTE_MS
    max_size_mb: int = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one profile; as written here, those of the Standard tier."""

    profile: Profile = Profile.STANDARD
    defaults: Defaults = Defaults()
    jms: bool = False
    """Whether clients of JMS 2.0 (azure-servicebus-jms) may connect: only on unpartitioned Premium."""
    shared_sessions: bool = False
    """Whether a message session can be locked non-exclusively: on Premium."""

    # Partitions. `max_size_mb` counts per partition where `size_is_per_partition`.
    partitioning: Partitioning = Partitioning.PER_ENTITY
    partition_count: int = 16
    max_size_mb: Range = Range(1024, 5120)
    max_size_mb_choices: tuple[int, ...] | None = (1024, 2048, 3072, 4096, 5120)
    size_is_per_partition: bool = True

    # Messages. Where `message_bytes_settable` is None an entity cannot choose its own maximum.
    message_bytes_max: int = 256 * KIB
    message_bytes_settable: Range | None = None
    partitioned_message_bytes_max: int | None = None
    batch_bytes_max: int = 256 * KIB
    properties_bytes_max: int = 64 * KIB
    property_bytes_max: int = 32 * KIB
    key_length_max: int = 128  # message id, session id, partition key: characters

    # Properties of entities.
    lock_duration_ms: Range = Range(5 * SECOND_MS, 5 * MINUTE_MS)
    # Frameworks ask for int.MaxValue to switch dead-lettering off, and the service lets them.
    max_delivery_count: Range = Range(1, 2**31 - 1)
    ttl_ms: Range = Range(SECOND_MS)
    duplicate_window_ms: Range = Range(20 * SECOND_MS, 7 * DAY_MS)
    # Of a Config.json, whose schema begins below the tier.
    file_duplicate_window_ms: Range = Range(5 * SECOND_MS, 7 * DAY_MS)
    auto_delete_on_idle_ms: Range = Range(5 * MINUTE_MS)
    user_metadata_length_max: int = 1024

    # Quotas.
    entities_max: int = 10_000  # queues and topics
    partitioned_entities_max: int | None = 100
    subscriptions_per_topic_max: int = 2_000
    sql_filters_per_topic_max: int = 2_000
    correlation_filters_per_topic_max: int = 100_000
    rule_bytes_per_topic_max: int = 32 * 1024 * KIB  # ours: they are kept in memory, and a client may add them
    connections_max: int = 5_000
    receives_per_entity_max: int = 5_000
    messages_per_transaction_max: int = 100
    messages_per_delete_max: int = 500
    messages_per_range_delete_max: int = 4_000
    forward_hops_max: int = 4

    authorization_rules_max: int = 12  # of one entity

    # Texts.
    key_name_length_max: int = 256
    shared_key_length_max: int = 256
    entity_path_length_max: int = 260
    sub_entity_name_length_max: int = 50
    rule_text_length_max: int = 1024
    action_statements_max: int = 32
    # Further limits of one rule; the service publishes none, and rules in use are far below.
    rule_tokens_max: int = 1024  # words, signs and literals of one SQL text
    rule_properties_max: int = 1_000  # application properties of a correlation filter; parameters of a SQL text
    rule_bytes_max: int = 64 * KIB  # all texts, names and values of a rule in UTF-8


_STANDARD: Final = Limits()

LIMITS: Final[Mapping[Profile, Limits]] = {
    Profile.STANDARD: _STANDARD,
    # Unpartitioned; `limits_for` makes the partitioned namespace. Quotas of one messaging unit.
    Profile.PREMIUM: replace(
        _STANDARD,
        profile=Profile.PREMIUM,
        partitioning=Partitioning.NEVER,
        partition_count=1,
        max_size_mb=Range(1024, 81920),
        max_size_mb_choices=(1024, 2048, 3072, 4096, 5120, 10240, 20480, 40960, 81920),
        size_is_per_partition=False,
        message_bytes_max=MIB,
        message_bytes_settable=Range(MIB, 100 * MIB),
        batch_bytes_max=MIB,
        jms=True,
        shared_sessions=True,
        entities_max=1_000,
        partitioned_entities_max=None,
        messages_per_delete_max=4_000,
    ),
    # The original has no partitions. EnablePartitioning is allowed nevertheless; its default is off.
    Profile.MS_EMULATOR: replace(
        _STANDARD,
        profile=Profile.MS_EMULATOR,
        defaults=Defaults(max_delivery_count=3, ttl_ms=HOUR_MS, duplicate_window_ms=20 * SECOND_MS, max_size_mb=100),
        # Of the size its schema says nothing, so that its users write any; clients send the tier's default, 1024.
        max_size_mb=Range(100, 5120),
        max_size_mb_choices=(100, 1024, 2048, 3072, 4096, 5120),
        size_is_per_partition=False,
        max_delivery_count=Range(1, 10),
        # Its schema names PT5M to PT1H, and PT5S to PT5M, in words only; projects run it with others. A decade stands
        # for "any": none of them asks for no limit, which would contradict the hour of its documentation.
        ttl_ms=Range(SECOND_MS, 3_650 * DAY_MS),
        duplicate_window_ms=Range(5 * SECOND_MS, 7 * DAY_MS),
        entities_max=50,
        partitioned_entities_max=50,
        subscriptions_per_topic_max=50,
        sql_filters_per_topic_max=70,
        correlation_filters_per_topic_max=1_000,
        connections_max=10,
        receives_per_entity_max=200,
    ),
    Profile.RELAXED: replace(
        _STANDARD,
        profile=Profile.RELAXED,
        jms=True,
        shared_sessions=True,
        max_size_mb=Range(1, 1024 * 1024),
        max_size_mb_choices=None,
        message_bytes_max=100 * MIB,
        message_bytes_settable=Range(KIB, 100 * MIB),
        batch_bytes_max=100 * MIB,
        properties_bytes_max=100 * MIB,
        property_bytes_max=100 * MIB,
        key_length_max=64 * KIB,
        lock_duration_ms=Range(SECOND_MS, DAY_MS),
        ttl_ms=Range(1),
        duplicate_window_ms=Range(SECOND_MS, 365 * DAY_MS),
        file_duplicate_window_ms=Range(SECOND_MS, 365 * DAY_MS),
        auto_delete_on_idle_ms=Range(SECOND_MS),
        user_metadata_length_max=64 * KIB,
        entities_max=100_000,
        partitioned_entities_max=None,
        subscriptions_per_topic_max=100_000,
        sql_filters_per_topic_max=100_000,
        connections_max=100_000,
        receives_per_entity_max=100_000,
        messages_per_transaction_max=10_000,
        messages_per_delete_max=4_000,
        sub_entity_name_length_max=260,
        rule_text_length_max=64 * KIB,
        action_statements_max=1_000,
        rule_tokens_max=4_000,
        rule_properties_max=4_000,
        rule_bytes_max=192 * KIB,
    ),
}


def largest_message(limits: Limits) -> int:
    """Return the size of the largest message that any entity of a namespace can take."""
    settable = limits.message_bytes_settable
    if limits.partitioning is Partitioning.ALWAYS and limits.partitioned_message_bytes_max is not None:
        return limits.partitioned_message_bytes_max
    return limits.message_bytes_max if settable is None else settable.stop or limits.message_bytes_max


PREMIUM_PARTITION_COUNTS: Final = (1, 2, 4)


def limits_for(profile: Profile, premium_partitions: int | None = None) -> Limits:
    """Return the limits of a namespace; `premium_partitions` (1, 2 or 4) makes a Premium namespace partitioned [P3].

    Raises ValueError for partitions on another profile, or a number that Premium does not offer.
    """
    limits = LIMITS[profile]
    if premium_partitions is None:
        return limits
    if profile is not Profile.PREMIUM or premium_partitions not in PREMIUM_PARTITION_COUNTS:
        raise ValueError(f"a namespace of profile {profile} cannot have {premium_partitions} partitions")
    return replace(
        limits,
        partitioning=Partitioning.ALWAYS,
        partition_count=premium_partitions,
        partitioned_message_bytes_max=MIB,
        jms=False,
        # A partitioned namespace has at least one messaging unit per partition.
        entities_max=limits.entities_max * premium_partitions,
    )


def limits_of_file(limits: Limits) -> Limits:
    """Return the limits of entities that a Config.json has: its schema allows values below the tier's."""
    return replace(limits, duplicate_window_ms=limits.file_duplicate_window_ms)


def limits_over(limits: Limits, store_count: int) -> Limits:
    """Return the limits of a namespace over the messaging stores of its data folder.

    An unpartitioned namespace may contain migrated partitioned entities. They keep their partitions and the size of
    each; new entities are unpartitioned.
    """
    if limits.partitioning is not Partitioning.NEVER or store_count == limits.partition_count:
        return limits
    return replace(limits, partition_count=store_count, size_is_per_partition=True)


# ---------------------------------------------------------------- sizes and partitions of one entity


def partitions_of(description: QueueDescription | TopicDescription, limits: Limits) -> int:
    """Return the number of partitions of an entity, 1 if unpartitioned."""
    return limits.partition_count if description.enable_partitioning else 1


def aggregate_size_mb(description: QueueDescription | TopicDescription, limits: Limits) -> int:
    """Return the size in management: per partition times partitions on Standard (5 GB x 16 = 80 GB) [P4]."""
    partitions = partitions_of(description, limits) if limits.size_is_per_partition else 1
    return description.max_size_mb * partitions


def size_mb_from_client(size_mb: int, enable_partitioning: bool, limits: Limits, known_mb: int | None = None) -> int:
    """Return the size per partition for a client's value: clients echo the aggregate that management reported.

    `known_mb` is the current size per partition. Its aggregate means no change, even where the profile allows such a
    large partition.
    """
    if not (enable_partitioning and limits.size_is_per_partition):
        return size_mb
    per_partition_mb, rest = divmod(size_mb, limits.partition_count)
    if per_partition_mb == known_mb and not rest:
        return per_partition_mb
    is_aggregate = size_mb not in limits.max_size_mb and not rest and per_partition_mb in limits.max_size_mb
    return per_partition_mb if is_aggregate else size_mb


def message_bytes_max(description: QueueDescription | TopicDescription, limits: Limits) -> int:
    """Return the maximum message size of an entity in bytes."""
    bytes_max = description.max_message_bytes or limits.message_bytes_max
    if description.enable_partitioning and limits.partitioned_message_bytes_max is not None:
        return min(bytes_max, limits.partitioned_message_bytes_max)
    return bytes_max


def defaults_of(kind: type[EntityDescription], limits: Limits) -> dict[str, Any]:
    """The values of a profile's defaults for a kind of entity, by the names of its fields."""
    defaults = limits.defaults
    values = {
        "default_ttl_ms": defaults.ttl_ms,
        "duplicate_window_ms": defaults.duplicate_window_ms,
        "enable_partitioning": limits.partitioning is Partitioning.ALWAYS,
        "lock_duration_ms": defaults.lock_duration_ms,
        "max_delivery_count": defaults.max_delivery_count,
        "max_size_mb": defaults.max_size_mb,
    }
    return {each.name: values[each.name] for each in fields(kind) if each.name in values}
