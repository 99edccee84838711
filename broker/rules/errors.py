"""The two errors of rules: an invalid rule, and a rule that fails on a message."""

from __future__ import annotations

from .. import service_errors
from ..errors import BrokerError, Condition


class FilterError(BrokerError):
    """An invalid rule: `line` and `column` count from 1, both 0 if the error has no position in a text.

    `token` is the text at fault, "" at the end of the input. The condition is that of a bad argument [wire 7.4].
    """

    def __init__(self, problem: str, *, line: int = 0, column: int = 0, token: str = "") -> None:
        position = f" (line {line}, column {column})" if line else ""
        super().__init__(Condition.ARGUMENT_ERROR, f"{problem}{position}")
        self.problem = problem
        self.line = line
        self.column = column
        self.token = token

    @property
    def in_service_words(self) -> BrokerError:
        """The frame of the service, which counts columns from 0; between its brackets our own words."""
        if not self.line:
            return self
        return service_errors.sql_not_parsed(self.line, self.column - 1, self.token, self.problem)


class FilterException(Exception):  # noqa: N818  (the name that Service Bus writes into DeadLetterReason)
    """A rule failed on a message; the text becomes the DeadLetterErrorDescription."""
