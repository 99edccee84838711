"""Amounts that people give to what they do on purpose: how often, how long, how likely, from which seed.

Values that can't be wrong: each is made by its constructor, which refuses with BrokerError (argument-out-of-range): the
name of the amount, its value and what is allowed. The operations make them of what a face hands in, so that no face can
leave the check out; faces that describe themselves take the bounds from here.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final, Self

from .errors import BrokerError, Condition

DAY_MS: Final = 86_400_000
DIGITS_BITS_MAX: Final = 128


class Amount(int):
    """A whole number from `LEAST` to `MOST`; `name` is what the caller calls it."""

    __slots__ = ()

    LEAST: ClassVar[int] = 0
    MOST: ClassVar[int]

    def __new__(cls, value: int, name: str) -> Self:
        if isinstance(value, bool) or not isinstance(value, int) or not cls.LEAST <= value <= cls.MOST:
            raise _refusal(name, value, f"a whole number from {cls.LEAST} to {cls.MOST}")
        return super().__new__(cls, value)


class Times(Amount):
    """How often something is done, until it ends by itself."""

    LEAST = 1
    MOST = 1_000_000


class Span(Amount):
    """How long something is delayed (ms)."""

    MOST = 366 * DAY_MS


class Period(Span):
    """How long something lasts (ms): not for no time at all."""

    LEAST = 1


class Seed(Amount):
    MOST = (1 << 63) - 1


class Probability(float):
    """How likely something is: more than 0, at most 1."""

    __slots__ = ()

    def __new__(cls, value: float, name: str) -> Self:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise _refusal(name, value, "a number greater than 0 and at most 1")
        return super().__new__(cls, value)


def _refusal(name: str, value: object, allowed: str) -> BrokerError:
    if isinstance(value, int) and value.bit_length() > DIGITS_BITS_MAX:  # Python refuses to write thousands of digits
        shown = f"a number of about {int(value.bit_length() * math.log10(2))} digits"
    else:
        shown = f"{value!r:.80}"
    return BrokerError(Condition.ARGUMENT_OUT_OF_RANGE, f"{name} is {shown}; it must be {allowed}.")
