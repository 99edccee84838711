"""The properties of an entity on the page: form fields, the description that a form makes, and readable text.

The properties are those of `broker/model/properties.py`. Knows how people write their values. Does not know what is
allowed; `Administration` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...broker.model.catalog import Description
from ...broker.model.descriptions import EntityStatus, with_fields
from ...broker.model.profiles import KIB, Limits
from ...broker.model.properties import PROPERTIES_OF, Property, Value
from . import rendering
from .forms import Form, FormError

PARTITIONING: Final = "enable_partitioning"
"""The profile may decide it: its box has a place of its own."""
SIZE: Final = "max_size_mb"
"""An entity's page shows the size of the whole, and a form that of a partition."""


def form_name(row: Property) -> str:
    """The name of its form field: durations are written with their units."""
    return row.field.removesuffix("_ms")


def field_values(description: Description) -> Mapping[str, str | bool]:
    """What the fields contain for an entity, by their names; boxes are True or False."""
    return {form_name(row): _input(row, getattr(description, row.field)) for row in PROPERTIES_OF[type(description)]}


def _input(row: Property, value: object) -> str | bool:
    match row.value, value:
        case Value.BOOLEAN, bool():
            return value
        case ((Value.DURATION | Value.LIMIT), (int() | None)):
            return rendering.span_input(value)
        case Value.BYTES, int():
            return f"{value / KIB:g}"
        case _:
            return "" if value is None else str(value)


def facts(description: Description) -> Mapping[str, tuple[str, str]]:
    """Label and readable value of each property, by its field."""
    return {
        row.field: (row.label, _fact(row, getattr(description, row.field))) for row in PROPERTIES_OF[type(description)]
    }


def _fact(row: Property, value: object) -> str:
    match row.value, value:
        case Value.BOOLEAN, _:
            return "yes" if value else "no"
        case ((Value.DURATION | Value.LIMIT), (int() | None)):
            return rendering.span(value)
        case Value.BYTES, int():
            return f"{value / KIB:g}"
        case Value.BYTES, None:
            return "the profile's"
        case _:
            return "none" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form: a box, or a text, which may be long."""

    name: str
    label: str
    help: str
    is_box: bool
    is_long: bool


@dataclass(frozen=True, slots=True)
class FieldSets:
    """The form fields of a kind of entity by where they stand; those of status and partitioning stand apart."""

    fixed: Sequence[FormField]
    usual: Sequence[FormField]
    more: Sequence[FormField]


def field_sets(kind: type[Description], limits: Limits) -> FieldSets:
    """The form fields of a kind of entity; what a size means depends on the profile."""
    rows = [row for row in PROPERTIES_OF[kind] if row.value is not Value.STATUS and row.field != PARTITIONING]
    return FieldSets(
        [_form_field(row, limits) for row in rows if row.is_fixed],
        [_form_field(row, limits) for row in rows if row.is_usual and not row.is_fixed],
        [_form_field(row, limits) for row in rows if not row.is_usual and not row.is_fixed],
    )


def _form_field(row: Property, limits: Limits) -> FormField:
    is_each = row.field == SIZE and limits.size_is_per_partition
    about = "in each partition" if is_each else row.help
    return FormField(form_name(row), row.label, about, row.value is Value.BOOLEAN, row.value is Value.TEXT)


def changed(before: Description, form: Form, *, is_new: bool = False) -> Description:
    """The description with the values of a form, those that are fixed only if it is new. FormError.

    A field that is empty or says what it said leaves a duration or number as it is; a missing box is not checked.
    """
    found: dict[str, object] = {
        row.field: _value(row, form, getattr(before, row.field))
        for row in PROPERTIES_OF[type(before)]
        if is_new or not row.is_fixed
    }
    return with_fields(before, found)


def _value(row: Property, form: Form, before: object) -> object:
    name = form_name(row)
    if row.value is Value.BOOLEAN:
        return form.checked(name)
    if row.value in (Value.TEXT, Value.TARGET):
        return form.optional(name)
    text = form.text(name)
    if not text:
        return None if row.value is Value.BYTES else before
    if text == _input(row, before):  # it may say less than the value, which must not change then
        return before
    match row.value:
        case Value.STATUS:
            return EntityStatus(form.choice(name, row.label, [each.value for each in EntityStatus]))
        case Value.COUNT:
            return form.number(name, row.label, 1, row.most)
        case Value.BYTES:
            return form.number(name, row.label, 1, row.most // KIB) * KIB
        case _:
            ms = form.span(name, row.label)
            if ms is None and row.value is Value.DURATION:
                raise FormError(f"{row.label}: '{text}' is not a finite duration.", name)
            return ms
