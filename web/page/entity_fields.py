"""The form fields of an entity's properties: what they contain at first, and the description that they make.

Knows names and spelling of the fields that can be changed later, too. Does not know what is allowed; `Administration`
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...broker.model.catalog import Description
from ...broker.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    with_fields,
)
from .forms import Form, FormError
from .rendering import span_input

COUNT_MAX: Final = (1 << 31) - 1


def field_values(description: Description) -> Mapping[str, str | bool]:
    """What the fields contain for an entity, by their names; boxes are True or False."""
    values: dict[str, str | bool] = {
        "status": description.status.value,
        "default_ttl": span_input(description.default_ttl_ms),
        "auto_delete_on_idle": span_input(description.auto_delete_on_idle_ms),
        "user_metadata": description.user_metadata or "",
        "forward_to": "",
        "forward_dead_letters_to": "",
    }
    if isinstance(description, QueueDescription | TopicDescription):
        values["max_size_mb"] = str(description.max_size_mb)
        values["duplicate_window"] = span_input(description.duplicate_window_ms)
    if isinstance(description, QueueDescription | SubscriptionDescription):
        values["lock_duration"] = span_input(description.lock_duration_ms)
        values["max_delivery_count"] = str(description.max_delivery_count)
        values["dead_letter_on_expiration"] = description.dead_letter_on_expiration
        values["forward_to"] = description.forward_to or ""
        values["forward_dead_letters_to"] = description.forward_dead_letters_to or ""
    if isinstance(description, SubscriptionDescription):
        values["dead_letter_on_filter_exceptions"] = description.dead_letter_on_filter_exceptions
    return values


def changed(before: Description, form: Form) -> Description:
    """The description with the values of a form; an empty field leaves a duration or number as it is. FormError."""
    fields: dict[str, object] = {
        "default_ttl_ms": form.span("default_ttl", "Default time to live", before.default_ttl_ms),
        "auto_delete_on_idle_ms": form.span("auto_delete_on_idle", "Delete when idle for"),
        "user_metadata": form.optional("user_metadata"),
    }
    if form.text("status"):
        fields["status"] = EntityStatus(form.choice("status", "Status", [each.value for each in EntityStatus]))
    if isinstance(before, QueueDescription | TopicDescription):
        fields["max_size_mb"] = form.number("max_size_mb", "Max size (MB)", 1, COUNT_MAX, before.max_size_mb)
        fields["duplicate_window_ms"] = _finite(
            form, "duplicate_window", "Duplicate window", before.duplicate_window_ms
        )
    if isinstance(before, QueueDescription | SubscriptionDescription):
        fields["lock_duration_ms"] = _finite(form, "lock_duration", "Lock duration", before.lock_duration_ms)
        fields["max_delivery_count"] = form.number(
            "max_delivery_count", "Max delivery count", 1, COUNT_MAX, before.max_delivery_count
        )
        fields["dead_letter_on_expiration"] = form.checked("dead_letter_on_expiration")
        fields["forward_to"] = form.optional("forward_to")
        fields["forward_dead_letters_to"] = form.optional("forward_dead_letters_to")
    if isinstance(before, SubscriptionDescription):
        fields["dead_letter_on_filter_exceptions"] = form.checked("dead_letter_on_filter_exceptions")
    return with_fields(before, fields)


def _finite(form: Form, name: str, label: str, default_ms: int) -> int:
    ms = form.span(name, label, default_ms)
    if ms is None:
        raise FormError(f"{label}: '{form.text(name)}' is not a finite duration.", name)
    return ms
