"""Peeking by sequence number: single messages to find positions, pages to read.

Knows what a peek returns, on emubus and on the service: messages in ascending order from a number on, fewer than asked
for, possibly already of the next partition; only an empty answer means that there are no more. Does not know Spark and
retries. All functions use a management link that belongs to the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ..codec import Head, head, split_peek_reply
from ..errors import Code, ConnectorError
from ..position import PARTITION_ID_MAX
from ..wire.management import Management
from .offsets import base_of, limit_of, partition_of
from .peeks import PatientPeeks

PeekClient = Management | PatientPeeks
"""Peeks at an entity over its `$management` node; the second one is patient with a service that is busy."""


IN_FLIGHT_MAX: Final = 2
"""Requests for pages at a time: the second one hides the way there and back, a third has nothing left to hide."""

_PROBES_MAX: Final = 16  # peeks at single messages that are sent together: one for each partition on Standard
_FIRST_STEP: Final = 64  # of the search for an end: an idle queue costs one peek, a million new messages some thirty


class _Flight(NamedTuple):
    at: int
    pending: Any


class Page(NamedTuple):
    """The new encoded messages of one answer, in ascending order; `following` is the next number to read."""

    messages: Sequence[bytes]
    following: int


def pages(
    management: PeekClient,
    low: int,
    high: int,
    count_max: int,
    partition_id: int | None = None,
    *,
    deferred_only: bool = False,
) -> Iterator[Page]:
    """Every message from `low` on, at least up to below `high`, with two requests in flight; the first is sent here.

    The last page may reach beyond `high`. The second request is sent before the first is answered, so it has to guess
    the end of that answer: as far as the last answer reached. If the guess is too high, the gap is requested before
    reading continues; if it is too low, repeated messages are dropped. After an interruption, answers may still arrive
    on the link, so it must not be used again. With `deferred_only`, a service that can leaves out other messages of the
    partition.
    """

    def ask(at: int, below: int) -> _Flight:
        count = max(1, min(count_max, below - at))
        if partition_id is not None and deferred_only:
            return _Flight(at, management.begin_peek(at, count, partition_id=partition_id, deferred_only=True))
        return _Flight(at, management.begin_peek(at, count, partition_id=partition_id))

    return _pages_answered(management, ask, deque([ask(low, high)] if low < high else []), low, high, count_max)


def _pages_answered(
    management: PeekClient,
    ask: Callable[[int, int], _Flight],
    flights: deque[_Flight],
    low: int,
    high: int,
    reach: int,
) -> Iterator[Page]:
    """The pages from the answers to `flights`, and to what is asked after them.

    `reach` is how many numbers one answer covers.
    """
    known = low  # all messages below it were read
    while known < high:
        if not flights:
            flights.append(ask(known, high))
        elif flights[0].at > known:
            flights.appendleft(ask(known, flights[0].at))
        ahead = max(known, flights[-1].at) + reach
        if len(flights) < IN_FLIGHT_MAX and ahead < high:
            flights.append(ask(ahead, high))
        at, pending = flights.popleft()
        reply = management.end(pending)
        messages = [] if reply is None else split_peek_reply(reply)
        if not messages:
            break
        last = _last_number(messages, at)
        reach = max(1, last + 1 - at)
        fresh = messages if at == known else [each for each in messages if head(each).sequence_number >= known]
        known = max(known, last + 1)
        if fresh:
            yield Page(fresh, known)
    for flight in flights:
        management.end(flight.pending)


def first_from(management: PeekClient, number: int, partition_id: int | None = None) -> Head | None:
    """The first message from `number` on, of this partition or a later one; None if there is none."""
    reply = management.peek(number, 1, partition_id=partition_id)
    return _first_head(reply, number)


Found = Head | ConnectorError | None
"""The first message, None if there is none, or a retriable error."""


def firsts_from(management: PeekClient, numbers: Sequence[int], *, alone: bool) -> list[Found]:
    """`first_from` for many numbers, requested together; `alone` peeks only at the number's own partition.

    A partition that can't be reached does not affect the results of the others.
    """
    found: list[Found] = []
    for index in range(0, len(numbers), _PROBES_MAX):
        some = numbers[index : index + _PROBES_MAX]
        asked = [
            management.begin_peek(number, 1, partition_id=partition_of(number) if alone else None) for number in some
        ]
        found += [_first_or_error(management, pending, number) for number, pending in zip(some, asked, strict=True)]
    return found


def _first_or_error(management: PeekClient, pending: Any, number: int) -> Found:
    try:
        return _first_head(management.end(pending), number)
    except ConnectorError as error:
        if not error.retriable:
            raise
        return error


def discover_partitions(
    management: PeekClient, ids: Sequence[int]
) -> tuple[dict[int, Head], dict[int, ConnectorError]]:
    """Those partitions of `ids` that hold messages, with the first message of each, and those that can't be reached.

    At the end of a partition some services answer with a message of the next one that has any, others with nothing.
    Partitions beyond `ids` are found where they do the former.
    """
    found: dict[int, Head] = {}
    out: dict[int, ConnectorError] = {}
    answers = firsts_from(management, [base_of(each) for each in ids], alone=False)
    for partition, each in zip(ids, answers, strict=True):
        if isinstance(each, ConnectorError):
            out[partition] = each
        elif each is not None:
            found[partition_of(each.sequence_number)] = each
    last = max((*found, *ids))
    while last < PARTITION_ID_MAX:
        beyond = first_from(management, base_of(last + 1))
        if beyond is None:
            break
        last = partition_of(beyond.sequence_number)
        found[last] = beyond
    return found, out


def end_of(management: PeekClient, partition: int, known: int) -> tuple[int, int | None]:
    """The number after the last message of a partition, not below `known`, and when that message was enqueued.

    The time (Unix ms) is None if there is no message from `known` on. Takes O(log n) peeks: growing steps find a number
    above all messages, then bisection finds the last message below it.
    """
    last = _next_present(management, partition, known, limit_of(partition))
    if last is None:
        return known, None
    low, high = last.sequence_number + 1, limit_of(partition)  # `last` is the message before `low`; none from `high` on
    step = _FIRST_STEP
    while low + step < high:
        found = _next_present(management, partition, low + step, high)
        if found is None:
            high = low + step
        else:
            last, low = found, found.sequence_number + 1
            step *= 4
    while low < high:
        middle = (low + high) // 2
        found = _next_present(management, partition, middle, high)
        if found is None:
            high = middle
        else:
            last, low = found, found.sequence_number + 1
    return low, last.enqueued_at_ms


def number_at(management: PeekClient, partition: int, low: int, high: int, at_ms: int, *, alone: bool) -> int:
    """The lowest number in `low`..`high` whose message was enqueued at `at_ms` (Unix ms) or later; `high` if none was.

    Enqueued times must ascend with the numbers, as in queues and subscriptions; in dead-letter queues they do not.
    """
    while low < high:
        middle = (low + high) // 2
        each = first_from(management, middle, partition if alone else None)
        if each is None or each.sequence_number >= high or each.enqueued_at_ms >= at_ms:
            high = middle
        else:
            low = each.sequence_number + 1
    return high


def _next_present(management: PeekClient, partition: int, number: int, below: int) -> Head | None:
    each = first_from(management, number)
    if each is None or each.sequence_number >= min(below, limit_of(partition)):
        return None
    return each


def _first_head(reply: bytes | None, number: int) -> Head | None:
    messages = [] if reply is None else split_peek_reply(reply)
    if not messages:
        return None
    found = head(messages[0])
    if found.sequence_number < number:
        raise _unordered_error(found.sequence_number, number)
    return found


def _last_number(messages: Sequence[bytes], at: int) -> int:
    last = head(messages[-1]).sequence_number
    if last < at:
        raise _unordered_error(last, at)
    return last


def _unordered_error(number: int, asked: int) -> ConnectorError:
    return ConnectorError(
        Code.REFUSED,
        f"the service answered a peek from sequence number {asked} with {number}: it can't be read by ranges",
    )
