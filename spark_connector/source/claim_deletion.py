"""Deleting claimed messages whose batch is committed, as every service offers it: by receiving them.

Knows what a service answers if some of them are gone: deleted before a restart, expired, taken by another consumer.
Does not know which messages are finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from ..codec import head
from ..errors import Code, ConnectorError
from .browse import pages
from .offsets import partition_of, runs_of
from .plan import stretches
from .retries import management_node
from .rows import DEFERRED

DELETE_COUNT: Final = 200
"""Messages of one request, which is answered with them: so many of the usual size fit into an answer."""

PEEK_COUNT: Final = 500
NOT_FOUND: Final = "com.microsoft:message-not-found"


def delete_all(
    connection: Any, entity: str, numbers: Sequence[int], generation: str | None
) -> tuple[list[int], ConnectorError | None]:
    """Delete deferred messages, partition by partition; returns those that were not deleted, and a failure."""
    left: list[int] = []
    failure: ConnectorError | None = None
    for _, group in groupby(numbers, partition_of):
        rest = list(group)
        try:
            while rest:
                _delete(management_node(connection, entity, generation), rest[:DELETE_COUNT])
                del rest[:DELETE_COUNT]
        except ConnectorError as error:
            if not connection.usable:
                raise
            left += rest
            failure = error
    return left, failure


def _delete(management: Any, numbers: Sequence[int]) -> None:
    """Delete deferred messages; those that are gone already are left out, and too large an answer is halved."""
    try:
        management.receive_by_sequence_number(numbers, delete=True)
        return
    except ConnectorError as error:
        too_large = error.code is Code.MESSAGE_TOO_LARGE and len(numbers) > 1
        if error.condition != NOT_FOUND and not too_large:
            raise
        present = numbers if too_large else _deferred_among(management, numbers)
    if 0 < len(present) < len(numbers):
        _delete(management, present)
    elif len(present) > 1:  # one of them is locked, or the answer is too large
        middle = len(present) // 2
        _delete(management, present[:middle])
        _delete(management, present[middle:])


def _deferred_among(management: Any, numbers: Sequence[int]) -> list[int]:
    """Those of the messages that are there and deferred."""
    wanted, found = set(numbers), list[int]()
    for span in stretches(runs_of(numbers)):
        for page in pages(management, span.low, span.high, PEEK_COUNT):
            heads = [head(each) for each in page.messages]
            found += [
                each.sequence_number for each in heads if each.state == DEFERRED and each.sequence_number in wanted
            ]
    return found
