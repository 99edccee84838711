"""The two ways in which a rule fails: when it is written, and when it meets a message.

Knows only the two exceptions; who raises them is the other modules' business, what becomes of the message the caller's.
Nothing here has an owner.
"""

from __future__ import annotations

from ..errors import BrokerError, Condition


class FilterError(BrokerError):
    """A rule that cannot be used: `line` and `column` count from 1, both 0 where the fault has no place in a text.

    `token` is the text at fault, "" at the end of the input. The condition is that of a bad argument [wire 7.4].
    """

    def __init__(self, problem: str, *, line: int = 0, column: int = 0, token: str = "") -> None:
        position = f" (line {line}, column {column})" if line else ""
        super().__init__(Condition.ARGUMENT_ERROR, f"{problem}{position}")
        self.problem = problem
        self.line = line
        self.column = column
        self.token = token


class FilterException(Exception):  # noqa: N818  (the name that Service Bus writes into DeadLetterReason)
    """A rule that could not be evaluated for one message; the text is fit for DeadLetterErrorDescription."""
