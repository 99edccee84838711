"""Reads the filter of a search form. Knows its fields and labels; `web.messages.filter` evaluates it."""

from __future__ import annotations

from ..messages.filter import STATES_ASKED, Criteria, FilterRefusal, MessageFilter, filter_of
from .forms import Form, FormError, parse_instant, quoted


def read_criteria(form: Form) -> Criteria:
    """What a search form asks: `text`, `where`, `state`, `after`, `before`. FormError with the field."""
    return Criteria(
        form.text("text"),
        form.text("where"),
        form.choice("state", "State", STATES_ASKED) if form.text("state") else "",
        _instant(form, "after", "After"),
        _instant(form, "before", "Before"),
    )


def read_filter(form: Form) -> MessageFilter:
    """The filter of a search form. FormError with the field."""
    try:
        return filter_of(read_criteria(form))
    except FilterRefusal as refusal:
        raise FormError(refusal.text, refusal.field) from None


def _instant(form: Form, name: str, label: str) -> int | None:
    text = form.text(name)
    try:
        return parse_instant(text) if text else None
    except (ValueError, OverflowError):
        raise FormError(f"{label}: {quoted(text)} is not an instant such as 2030-01-01T12:00.", name) from None
