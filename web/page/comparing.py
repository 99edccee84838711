"""Two messages side by side: the properties that differ, and the lines of their bodies.

Does not know how messages are found (`messages`) and made readable (`rendering`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import ndiff
from functools import partial
from typing import Final

from aiohttp import web

from .forms import Form, FormError, query_form
from .messages import browsed_entity, message_at
from .overview import row_of
from .rendering import MessageView, instant, message_view, size
from .site import Site, address

LINES_MAX: Final = 400
"""Lines of each body that are compared: the time that it takes grows with their product."""
LINE_CHARS_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Pair:
    """A property of two messages, "" where one has none."""

    section: str
    name: str
    left: str
    right: str

    @property
    def is_equal(self) -> bool:
        return self.left == self.right


async def show(site: Site, request: web.Request) -> web.Response:
    asked = query_form(request)
    entity = browsed_entity(site, asked.text("path"))
    numbers = asked.all("number")
    if len(numbers) != 2:
        raise FormError(f"Two messages can be compared; the address names {len(numbers)} (number).", "number")
    views: list[MessageView] = []
    for number in numbers:
        seen = await message_at(site, Form({**asked.values, "number": [number]}))
        views.append(await site.aside.run(partial(message_view, seen), len(seen.encoded)))
    left, right = views
    return site.render(
        request,
        "compare.html",
        row=row_of(site, entity),
        sub_queue=asked.text("queue") or "active",
        numbers=numbers,
        back=address("messages", path=entity.path, queue=asked.text("queue")),
        pairs=pairs_of(left, right),
        lines=await site.aside.run(lambda: lines_of(left.body.text, right.body.text), 0),
        kinds=(left.body.kind, right.body.kind),
    )


def pairs_of(left: MessageView, right: MessageView) -> list[Pair]:
    """The properties of two messages, in the order of the first one."""
    sections = (
        ("", _broker_pairs(left), _broker_pairs(right)),
        ("property", left.properties, right.properties),
        ("application property", _typed_properties(left), _typed_properties(right)),
        ("annotation", left.annotations, right.annotations),
    )
    found: list[Pair] = []
    for section, here, there in sections:
        mine, yours = dict(here), dict(there)
        found += (Pair(section, name, mine.get(name, ""), yours.get(name, "")) for name in {**mine, **yours})
    return found


def _broker_pairs(view: MessageView) -> Sequence[tuple[str, str]]:
    values = view.json
    return (
        ("Enqueued", instant(values["enqueued_at"])),
        ("Partition", str(values["partition_id"])),
        ("State", values["state"]),
        ("Delivery count", str(values["delivery_count"])),
        ("Size", size(values["size_bytes"])),
    )


def _typed_properties(view: MessageView) -> list[tuple[str, str]]:
    """The application properties with their types: 5 of an int is not 5 of a long."""
    return [(name, f"{text} ({view.types.get(name, '?')})") for name, text in view.application_properties]


def lines_of(left: str, right: str) -> list[tuple[str, str]]:
    """The lines of two texts in one list, each with "-" (only the first has it), "+" (only the second) or ""."""
    mine, yours = (
        [line[:LINE_CHARS_MAX] for line in text.splitlines()[: LINES_MAX + 1]] or [""] for text in (left, right)
    )
    compared = ndiff(mine[:LINES_MAX], yours[:LINES_MAX], linejunk=None, charjunk=None)
    found = [(line[0].strip(), line[2:]) for line in compared if line[0] != "?"]
    if max(len(mine), len(yours)) > LINES_MAX:
        found.append(("", f"… only the first {LINES_MAX} lines are compared"))
    return found
