"""Atom entries and feeds around descriptions [http 3].

Knows their elements and how clients find names and further pages in them. Does not know what is in the content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..markup import ATOM, element, escaped, instant_in_seconds, quoted

ENTRY_TYPE: Final = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE: Final = "application/atom+xml;type=feed;charset=utf-8"


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entity in an answer: address, name, instants (Unix ms), and the XML of its description.

    `author` is the namespace, for queues, topics and the namespace itself; `published_at` is left out if None.
    """

    id: str
    title: str
    published_at: int | None
    updated_at: int | None
    content: str
    author: str | None = None


def entry_markup(entry: FeedEntry) -> str:
    return f'<entry xmlns="{ATOM}">{_entry_content(entry, entry.id)}</entry>'


def listed_entry_markup(address: str, entry: FeedEntry, relative: str) -> str:
    """An entry of the list at `address`, with its own address relative to that."""
    return f"<entry xml:base={quoted(address)}>{_entry_content(entry, relative)}</entry>"


def feed_markup(title: str, address: str, now: int, entries: Iterable[str], next_page: str | None) -> str:
    """An answer with a list of entries, each as `listed_entry_markup` has it.

    A page with a next page has exactly two links, the second to it: Python counts the links, JavaScript looks at `rel`.
    """
    links = _link("self", address) + ("" if next_page is None else _link("next", next_page))
    head = f"{_title(title)}{element('id', address)}{element('updated', instant_in_seconds(now))}"
    return f'<feed xmlns="{ATOM}">{head}{links}{"".join(entries)}</feed>'


def nothing_markup(address: str, now: int) -> str:
    """The service's answer for a missing queue or topic: an empty feed, which SDKs take as "not found"."""
    parts = (
        _title("Publicly Listed Services"),
        '<subtitle type="text">This is the list of publicly-listed services currently available.</subtitle>',
        element("id", address),
        element("updated", instant_in_seconds(now)),
        "<generator>Service Bus 1.1</generator>",
    )
    return f'<feed xmlns="{ATOM}">{"".join(parts)}</feed>'


def _entry_content(entry: FeedEntry, link: str) -> str:
    author = "" if entry.author is None else f"<author>{element('name', entry.author)}</author>"
    published = "" if entry.published_at is None else element("published", instant_in_seconds(entry.published_at))
    updated = element("updated", instant_in_seconds(entry.updated_at))
    head = f"{element('id', entry.id)}{_title(entry.title)}{published}{updated}"
    return f'{head}{author}{_link("self", link)}<content type="application/xml">{entry.content}</content>'


def _title(text: str) -> str:
    return f'<title type="text">{escaped(text)}</title>'


def _link(relation: str, address: str) -> str:
    return f'<link rel="{relation}" href={quoted(address)}/>'
