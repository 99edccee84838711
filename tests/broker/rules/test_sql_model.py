"""Random SQL filters say what a second, naive implementation says."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from emubus.broker.model.descriptions import SqlFilter
from emubus.broker.rules import CompiledFilter, FilterError, FilterException, MessageContext, compile_filter

from ...rounds import rounds
from . import naive
from .messages import context

FAILED = "failed"


def outcome(compiled: CompiledFilter, seen: MessageContext) -> object:
    try:
        return compiled(seen)
    except FilterException:
        return FAILED


def naive_outcome(tree: naive.Tree, properties: naive.Properties) -> object:
    try:
        return naive.truth_of(tree, properties)
    except naive.FailureError:
        return FAILED


def is_refused(tree: Any) -> bool:
    """A constant pattern that ends with its escape is found out before any message comes."""
    match tree:
        case ("like", _, ("constant", str() as pattern), str()):
            return pattern.replace("!!", "").endswith("!") or any(map(is_refused, tree[1:]))
        case tuple() | list():
            return any(map(is_refused, tree))
    return False


@given(naive.PREDICATES, naive.PROPERTIES)
@settings(max_examples=rounds(200, 6_000))
def test_a_filter_says_what_a_naive_reading_of_it_says(tree: naive.Tree, properties: naive.Properties) -> None:
    text = naive.text(tree)
    try:
        compiled = compile_filter(SqlFilter(text))
    except FilterError:
        assert is_refused(tree)
        return
    assert outcome(compiled, context(properties)) == naive_outcome(tree, properties)
