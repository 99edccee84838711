"""What functions remember is bounded by number and by length: no account counts it, and clients choose its keys.

A LIKE whose pattern each message brings anew had the last 256 remembered, and 30 KB of pattern are 1.3 MB of pieces:
a server with 5 000 such messages stored grew by 300 MB.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper
from typing import Any

import pytest

from emubus.broker.address import parse_address
from emubus.broker.message.header import read_header
from emubus.broker.rules.errors import FilterError
from emubus.broker.rules.sql.grammar import parse_action, parse_filter
from emubus.broker.rules.sql.patterns import like_pattern
from emubus.broker.rules.sql.remembering import CHARS_MAX, TEXTS_MAX
from emubus.broker.rules.sql.selector_grammar import parse_selector
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Ubyte, Uint, Ulong

LONG = "x" * (CHARS_MAX + 1)
ROOMS = ("amqp", "broker", "codec", "conditions", "declared", "storage", "story", "telemetry", "templates", "web")
LONG_KEYS: dict[str, Callable[[], object]] = {
    "broker.address._parse": lambda: parse_address(LONG),
    "broker.message.header._read": lambda: read_header(
        encode_described(Ulong(0x70), encode([True, Ubyte(4), Uint(1), True, LONG]))
    ),
    "broker.rules.sql.grammar.parse_filter": lambda: parse_filter(f"a = '{LONG}'"),
    "broker.rules.sql.grammar.parse_action": lambda: parse_action(f"SET a = '{LONG}'"),
    "broker.rules.sql.selector_grammar.parse_selector": lambda: parse_selector(f"a = '{LONG}'"),
    "broker.rules.sql.patterns.like_pattern": lambda: like_pattern(LONG, None),
}
"""Functions that remember by what clients send; each call has a key that is too long to be remembered."""
OTHERS = {
    "amqp.wire.transaction_states._transactional_fields": "its caller compares the length: SHARED_BYTES_MAX",
    "amqp.wire.transaction_states.transactional_state": "our own ids of transactions",
    "broker.identity._folded_char": "one character",
    "broker.message.delivered._broker_sections": "numbers",
    "broker.message.delivered._shape": "numbers and flags",
    "broker.message.header.header_start": "four short fields",
    "broker.message.scan._form_start": "two sections whose size is one byte",
    "broker.message.scan._group_id": "a part of a section whose size is one byte",
    "web.control.schema._pattern": "patterns of our own",
}
"""Functions whose keys can't be long, and why."""


def caches() -> dict[str, Any]:
    """Each function that remembers, by its module and name; those that remember one result have no argument."""
    found: dict[str, Any] = {}
    for name in modules():
        for each in vars(importlib.import_module(name)).values():
            remembering = each if isinstance(each, _lru_cache_wrapper) else known_in(each)
            if remembering is not None and remembering.__module__.startswith("emubus."):
                found[f"{remembering.__module__.removeprefix('emubus.')}.{remembering.__qualname__}"] = remembering
    return found


def known_in(function: object) -> Any:
    """The cache that a decorated function keeps to itself."""
    cells = getattr(function, "__closure__", None) or ()
    return next((cell.cell_contents for cell in cells if isinstance(cell.cell_contents, _lru_cache_wrapper)), None)


def modules() -> Iterator[str]:
    for room in ROOMS:
        package = importlib.import_module(f"emubus.{room}")
        yield package.__name__
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield each.name


def test_each_function_that_remembers_is_known_here_and_bounded() -> None:
    found = {name: each for name, each in caches().items() if each.cache_parameters()["maxsize"] is not None}
    assert sorted(found) == sorted([*LONG_KEYS, *OTHERS])
    assert {name for name, each in found.items() if each.cache_parameters()["maxsize"] > 4_096} == set()


def test_what_remembers_without_a_limit_has_no_argument() -> None:
    unlimited = [each for each in caches().values() if each.cache_parameters()["maxsize"] is None]
    assert [each.__qualname__ for each in unlimited if each.__wrapped__.__code__.co_argcount > 1] == []


@pytest.mark.parametrize("name", LONG_KEYS)
def test_a_long_key_is_not_remembered(name: str) -> None:
    cache = caches()[name]
    cache.cache_clear()
    try:
        LONG_KEYS[name]()
    except FilterError:
        pass
    assert cache.cache_info().currsize == 0


def test_short_texts_are_remembered_up_to_a_number() -> None:
    cache = caches()["broker.rules.sql.grammar.parse_filter"]
    cache.cache_clear()
    assert parse_filter("a = 1") is parse_filter("a = 1")
    assert cache.cache_parameters()["maxsize"] == TEXTS_MAX
