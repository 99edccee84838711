"""The error for bytes that are no AMQP, or not the AMQP that belongs there."""

from __future__ import annotations


class DecodeError(ValueError):
    """Bytes that cannot be decoded: `offset` is where in the data, `problem` what is wrong there."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(offset, problem)
        self.offset = offset
        self.problem = problem

    def __str__(self) -> str:
        return f"malformed AMQP data at offset {self.offset}: {self.problem}"
