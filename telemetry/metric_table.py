"""The metrics: one table of names, kinds, labels and units.

Knows nothing of where values come from. A counter's name is without its suffix `_total`, which the text format adds.
`docs/METRICS.md` is made from the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..broker.api import Counted


class MetricKind(StrEnum):
    """What a value means over time."""

    COUNTER = "counter"  # only grows, until the next start
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; `about` is a sentence without its full stop, `labels` are the names of its labels."""

    name: str
    kind: MetricKind
    about: str
    labels: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """The unit, as the name has it at its end; "" without one."""
        return next((each for each in ("seconds", "bytes") if self.name.endswith(f"_{each}")), "")

    @property
    def full_name(self) -> str:
        """The name as Prometheus has it."""
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values there were up to each of `bounds` and above the bound before, the last count without a bound."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values, each with those of its labels."""

    metric: Metric
    points: Sequence[tuple[tuple[str, ...], float | Histogram]]


PLACE: Final = ("entity", "partition", "store")
WITH_SUB_QUEUE: Final = ("entity", "sub_queue")

COUNTED: Final[Mapping[Counted, tuple[str, tuple[str, ...]]]] = {
    Counted.SENT: ("Messages that clients sent and the broker stored, those for later included", ("entity",)),
    Counted.DUPLICATES_DROPPED: ("Messages dropped by duplicate detection", ("entity",)),
    Counted.FORWARDED: ("Messages that arrived from another entity: by ForwardTo, or in a transaction", ("entity",)),
    Counted.COPIED: ("Messages that a subscription took from its topic", ("entity",)),
    Counted.RESUBMITTED: ("Messages that came back from the dead-letter queue", ("entity",)),
    Counted.DELIVERED: ("Messages handed to receivers, each time", WITH_SUB_QUEUE),
    Counted.RECEIVED_AND_DELETED: ("Messages removed by their delivery; these are delivered, too", WITH_SUB_QUEUE),
    Counted.COMPLETED: ("Messages completed", WITH_SUB_QUEUE),
    Counted.ABANDONED: ("Messages abandoned", WITH_SUB_QUEUE),
    Counted.DEFERRED: ("Messages deferred", WITH_SUB_QUEUE),
    Counted.RELEASED: ("Messages given back without a delivery attempt, as by a receiver that closes", WITH_SUB_QUEUE),
    Counted.LOCKS_EXPIRED: ("Messages whose lock expired", WITH_SUB_QUEUE),
    Counted.EXPIRED: ("Messages whose time to live was over, those dead-lettered for it included", ("entity",)),
    Counted.DEAD_LETTERED: ("Messages dead-lettered, by DeadLetterReason", ("entity", "reason")),
    Counted.CANCELED: ("Scheduled messages canceled", ("entity",)),
    Counted.DELETED: ("Messages deleted by a request for some of them", WITH_SUB_QUEUE),
    Counted.PURGED: ("Messages removed with all others of the entity", ("entity",)),
}


def counted_metric(what: Counted) -> Metric:
    about, labels = COUNTED[what]
    name = "emubus_message_locks_expired" if what is Counted.LOCKS_EXPIRED else f"emubus_messages_{what.value}"
    return Metric(name, MetricKind.COUNTER, about, labels)


_GAUGES: Final = (
    ("emubus_build_info", "1; the labels say which emubus this is", ("version", "python", "profile")),
    ("emubus_messages", "Messages by state", (*PLACE, "state")),
    ("emubus_messages_locked", "Messages locked by receivers", PLACE),
    ("emubus_oldest_message_age_seconds", "Time since the first active message of an entity was enqueued", ("entity",)),
    ("emubus_partition_size_bytes", "Size of a partition's messages", PLACE),
    ("emubus_partition_next_sequence_number", "The next sequence number, without the partition id", PLACE),
    ("emubus_partition_last_activity_timestamp_seconds", "Time of the last use of a partition", PLACE),
    ("emubus_entities", "Queues, topics and subscriptions", ("kind",)),
    ("emubus_store_available", "1 while a messaging store is available, else 0", ("store",)),
    ("emubus_amqp_connections", "AMQP connections", ()),
    ("emubus_amqp_links", "AMQP links", ()),
    ("emubus_held_bytes", "Memory held for peers, by what it is for", ("use",)),
    ("emubus_held_limit_bytes", "How much may be held for a connection, a key, all strangers, everybody", ("scope",)),
    ("emubus_sockets", "Connections of any protocol", ()),
    ("emubus_sockets_limit", "How many connections there may be, as far as descriptors go", ()),
    ("emubus_strangers", "Those of clients that have shown no valid token or key", ()),
    ("emubus_faults", "Injected faults that are set", ()),
    ("emubus_conditions", "Conditions that are on", ()),
)
_COUNTERS: Final = (
    ("emubus_refusals", "Refusals of clients; names without an entity are counted together", ("entity",)),
    ("emubus_throttled", "Those refusals that were throttling", ("entity",)),
    ("emubus_errors", "Refusals by AMQP condition, or by HTTP status", ("condition",)),
    ("emubus_store_commits", "Commits", ("store",)),
    ("emubus_store_commit_failures", "Commits that failed", ("store",)),
    ("emubus_connections_expelled", "Connections closed for the memory that was held for them", ()),
    ("emubus_connections_cut", "Connections of strangers closed for newer connections", ()),
    ("emubus_condition_strikes", "What conditions and faults did to clients", ("behaviour",)),
)
_HISTOGRAMS: Final = (
    ("emubus_store_commit_duration_seconds", "Duration of commits", ("store",)),
    ("emubus_store_batch_commands", "Commands per commit", ("store",)),
)
METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        *(counted_metric(what) for what in COUNTED),
        *(Metric(name, MetricKind.COUNTER, about, labels) for name, about, labels in _COUNTERS),
        *(Metric(name, MetricKind.GAUGE, about, labels) for name, about, labels in _GAUGES),
        *(Metric(name, MetricKind.HISTOGRAM, about, labels) for name, about, labels in _HISTOGRAMS),
    )
}
"""All metrics by name; besides, there are those of the process."""
