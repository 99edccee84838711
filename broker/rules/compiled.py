"""Compiled filters: a closure for messages, and facts for the index.

Does not know the kinds of filters. Immutable and shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto

from ..lazy_dataclass import dataclass
from .context import MessageContext
from .values import Truth

Test = Callable[[MessageContext], Truth]
"""Raises FilterException if the message can't be tested."""


class Space(Enum):
    """The ways to look up a property."""

    SYSTEM = auto()  # by canonical name
    FOLDED = auto()  # application property by lower-case name


@dataclass(frozen=True, slots=True)
class Equality:
    """A property that must have one value for the filter to be TRUE; `key` is the `equality_key` of that value.

    `decides` is the position in `conditions` of the condition that equal keys make TRUE; None if different values can
    have equal keys.
    """

    space: Space
    name: str
    key: object
    decides: int | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CompiledFilter:
    """A compiled filter, called with a message.

    `always` is True or False for a filter with a constant result (UNKNOWN counts as False), else None. A message in
    which a property of `equalities` differs or is missing does not match, and cannot make the filter fail if all of
    `system_names` and (if `reads_user`) the application properties are readable. `test` joins `conditions` by AND.
    """

    test: Test
    always: bool | None = None
    conditions: tuple[Test, ...] = ()
    equalities: tuple[Equality, ...] = ()
    system_names: frozenset[str] = frozenset()
    reads_user: bool = False

    def __call__(self, context: MessageContext) -> Truth:
        """Evaluate the filter for one message. Raises FilterException."""
        return self.test(context)

    def rest(self, equality: Equality) -> Test | None:
        """Return the remaining test of a message with the value of `equality`; None if the filter is TRUE."""
        rest = [test for position, test in enumerate(self.conditions) if position != equality.decides]
        return all_of(rest) if rest else None


ALWAYS = CompiledFilter(lambda _: True, True)
NEVER = CompiledFilter(lambda _: False, False)


def all_of(tests: Sequence[Test]) -> Test:
    """AND: stops at the first FALSE; otherwise one UNKNOWN makes the result UNKNOWN."""
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
