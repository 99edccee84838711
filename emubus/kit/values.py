"""Values of the test kit's verbs, and how they are read from answers of the control API.

ValueError, KeyError: an answer breaks its schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from ..broker.admin.overview import Route
from ..broker.names import SnapshotName
from ..conditions.condition import Planned, Struck
from ..conditions.faults import Fault, FaultKind, FaultOperation
from ..web.services import Snapshot
from .answers import Answer
from .conditions import ConditionReport


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message in an entity, decoded. Instants are Unix ms; `state` is active, deferred or scheduled.

    `properties` has the AMQP properties that are set (`message_id`, `session_id`, `subject`, …), `body` has `kind`,
    `text`, `base64` and `json`, each None if it does not apply.
    """

    partition_id: int
    sequence_number: int
    state: str
    locked_until_at: int | None
    enqueued_at: int | None
    delivery_count: int
    size_bytes: int
    header: Mapping[str, object]
    properties: Mapping[str, object]
    application_properties: Mapping[str, object]
    annotations: Mapping[str, object]
    body: Mapping[str, object]

    @property
    def text(self) -> str | None:
        """The body as text; None if it is not text."""
        text = self.body["text"]
        return text if isinstance(text, str) else None

    @property
    def message_id(self) -> object:
        """The MessageId, None if it has none."""
        return self.properties.get("message_id")


def in_ms(by: int | timedelta) -> int:
    """A duration in milliseconds, fractions rounded up."""
    return -(-by // timedelta(milliseconds=1)) if isinstance(by, timedelta) else by


def message_in(found: Answer) -> PeekedMessage:
    return PeekedMessage(
        found.number("partition_id"),
        found.number("sequence_number"),
        found.text("state"),
        found.number_or_none("locked_until_at"),
        found.number_or_none("enqueued_at"),
        found.number("delivery_count"),
        found.number("size_bytes"),
        found.members("header"),
        found.members("properties"),
        found.members("application_properties"),
        found.members("annotations"),
        found.members("body"),
    )


def route_in(found: Answer) -> Route:
    return Route(
        found.text_or_none("key"),
        found.text_or_none("key_source"),
        found.number("partition_count"),
        found.number_or_none("partition_id"),
        found.number_or_none("store"),
        found.flag("is_available"),
    )


def snapshot_in(found: Answer) -> Snapshot:
    return Snapshot(
        SnapshotName(found.text("name")),
        found.number("taken_at"),
        found.number("store_count"),
        found.number("entity_count"),
        found.number("message_count"),
        found.number("size_bytes"),
    )


def fault_in(found: Answer) -> Fault:
    return Fault(
        found.number("id"),
        FaultKind(found.text("kind")),
        found.text_or_none("entity"),
        tuple(FaultOperation(each) for each in found.texts("operations")),
        found.number_or_none("count"),
        found.fraction("probability"),
        found.number("delay_ms"),
        found.number("hit_count"),
    )


def report_in(found: Answer) -> ConditionReport:
    return ConditionReport(
        found.number("id"),
        found.text("name"),
        found.number("seed"),
        found.text_or_none("entity"),
        found.flag("is_on"),
        found.number_or_none("ends_at"),
        [Planned(each.number("at"), each.text("behaviour"), each.text("what")) for each in found.parts("plan")],
        found.number("struck_count"),
        [_struck(each) for each in found.parts("struck")],
    )


def _struck(found: Answer) -> Struck:
    return Struck(
        found.number("number"),
        found.number("at"),
        found.text("behaviour"),
        found.text("scope"),
        found.text("what"),
        found.number("decision"),
        found.text("tracking_id"),
    )
