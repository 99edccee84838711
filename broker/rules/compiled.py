"""What every kind of filter is compiled to: something to call with a message, and what an index may know about it.

Knows no kind of filter. Immutable; shared by all who compiled the same description.
"""

from __future__ import annotations

from collections.abc import Callable
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

    `rest` decides about a message in which the keys are equal; None if that alone makes the filter true.
    """

    space: Space
    name: str
    key: object
    rest: Test | None


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """A filter, ready: call it with a message.

    `always` is True or False for a filter that says the same to every message (UNKNOWN counts as False), else None.
    For any of `equalities`, a message in which that property is different or missing is not matched, and cannot make
    the filter fail, if all of `system_names` and (if `reads_user`) the application properties can be read.
    """

    test: Test
    always: bool | None = None
    equalities: tuple[Equality, ...] = ()
    system_names: frozenset[str] = frozenset()
    reads_user: bool = False

    def __call__(self, context: MessageContext) -> Truth:
        """The truth of the filter for one message. Raises FilterException."""
        return self.test(context)


ALWAYS = CompiledFilter(lambda _: True, True)
NEVER = CompiledFilter(lambda _: False, False)


def all_of(tests: list[Test]) -> Test:
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
