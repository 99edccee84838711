"""The columns of the table of messages: their labels and the text of a cell.

Knows which columns a reader can choose. Does not know HTML. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...broker.message.message import INSTANT_MS_MAX
from .forms import Form
from .rendering import MessageView, instant, size

_Cell = Callable[[MessageView], str]


def _property_cell(name: str) -> _Cell:
    return lambda view: dict(view.properties).get(name, "")


def _expires(view: MessageView) -> str:
    """The enqueued time and the time to live; a scheduled message has no enqueued time yet."""
    ttl_ms, enqueued_at = view.json["header"].get("ttl_ms"), view.json["enqueued_at"]
    if not isinstance(ttl_ms, int) or enqueued_at is None:
        return ""
    return instant(min(enqueued_at + ttl_ms, INSTANT_MS_MAX))


def _scheduled_text(view: MessageView) -> str:
    value = view.json["annotations"].get("x-opt-scheduled-enqueue-time")
    return value["value"].replace("T", " ").replace("Z", " UTC") if isinstance(value, dict) else ""


def _state(view: MessageView) -> str:
    state = view.json["state"]
    return f"{state}, locked" if view.json["locked_until_at"] is not None else state


COLUMNS: Final[Mapping[str, tuple[str, _Cell]]] = {
    "id": ("MessageId", _property_cell("message_id")),
    "subject": ("Subject", _property_cell("subject")),
    "session": ("SessionId", _property_cell("session_id")),
    "correlation": ("CorrelationId", _property_cell("correlation_id")),
    "partition": ("Partition", lambda view: str(view.json["partition_id"])),
    "enqueued": ("Enqueued", lambda view: instant(view.json["enqueued_at"])),
    "expires": ("Expires", _expires),
    "scheduled": ("Scheduled", _scheduled_text),
    "count": ("Deliveries", lambda view: str(view.json["delivery_count"])),
    "size": ("Size", lambda view: size(view.json["size_bytes"])),
    "state": ("State", _state),
}
"""Name in the address: label, text of a cell. The sequence number is always shown."""

PROPERTIES_MAX: Final = 8
"""Most columns of application properties."""
COLUMNS_SHOWN: Final = ("id", "subject", "partition", "enqueued", "count", "size", "state")


def chosen_columns(form: Form) -> dict[str, tuple[str, _Cell]]:
    """The columns that an address names (`column`), in the order of `COLUMNS`; without any, `COLUMNS_SHOWN`. Behind
    them those of the application properties that it names (`properties`, separated by commas)."""
    asked = form.all("column")
    shown = [name for name in COLUMNS if name in asked] or COLUMNS_SHOWN
    names = [each.strip() for each in form.text("properties").split(",") if each.strip()][:PROPERTIES_MAX]
    return {
        **{name: COLUMNS[name] for name in shown},
        **{f"property {name}": (name, _application_property(name)) for name in names},
    }


def _application_property(name: str) -> _Cell:
    return lambda view: view.application_property(name)
