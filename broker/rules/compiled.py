"""What every kind of filter is compiled to: something to call with a message, and what an index may know about it.

Knows no kind of filter. Immutable; shared by all who compiled the same description.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from .context import MessageContext
from .values import Truth

Test = Callable[[MessageContext], Truth]
"""Raises FilterException when the message does not let itself be tested."""


class Space(Enum):
    """How a property is looked up."""

    SYSTEM = auto()  # by canonical name
    NAMED = auto()  # application property by exact name
    FOLDED = auto()  # application property by lower-case name


@dataclass(frozen=True, slots=True)
class Equality:
    """A property that must have one value for the filter to be true; `key` is the `equality_key` of that value.

    `decides` is the position, among the `conditions` of the filter, of the condition that equal keys make true; None if
    the keys can be equal although the values differ.
    """

    space: Space
    name: str
    key: object
    decides: int | None


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """A filter, ready: call it with a message.

    `always` is True or False for a filter that says the same to every message (UNKNOWN counts as False), else None.
    For any of `equalities`, a message in which that property is different or missing is not matched, and cannot make
    the filter fail, if all of `system_names` and (if `reads_user`) the application properties can be read.
    `conditions` are what `test` joins by AND.
    """

    test: Test
    always: bool | None = None
    conditions: tuple[Test, ...] = ()
    equalities: tuple[Equality, ...] = ()
    system_names: frozenset[str] = frozenset()
    reads_user: bool = False

    def __call__(self, context: MessageContext) -> Truth:
        """The truth of the filter for one message. Raises FilterException."""
        return self.test(context)

    def rest(self, equality: Equality) -> Test | None:
        """What decides about a message that has the value of `equality`; None if that value makes the filter true."""
        rest = [test for position, test in enumerate(self.conditions) if position != equality.decides]
        return all_of(rest) if rest else None


ALWAYS = CompiledFilter(lambda _: True, True)
NEVER = CompiledFilter(lambda _: False, False)


def all_of(tests: Sequence[Test]) -> Test:
    """AND: stops at the first FALSE; one UNKNOWN makes the rest UNKNOWN or FALSE."""
    if len(tests) == 1:
        return tests[0]

    def evaluate(context: MessageContext) -> Truth:
        truth: Truth = True
        for test in tests:
            each = test(context)
            if each is False:
                return False
            if each is None:
                truth = None
        return truth

    return evaluate
