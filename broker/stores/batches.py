"""Forms batches of requests: puts receives first, estimates written bytes, limits a batch, splits one that fails.

Knows which requests have messages, and that a topic copies a message for each subscription. Does not know how a
partition executes a request (`partition`), nor how a batch is executed and committed (`batch_runner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from ..outcomes import Complete
from ..partition.contract import PartitionRef, ReceiveMode
from ..partition.requests import (
    ClaimMessages,
    Commit,
    Operation,
    ProcessDue,
    Receive,
    ReceiveFromSession,
    Request,
    Resubmit,
    Schedule,
    Send,
    SetSessionState,
    Settle,
    StoreForwarded,
    Transfer,
    size_bytes_of,
)

Submitted = tuple[PartitionRef, Request]
"""A request and its partition."""

BATCH_BYTES_MAX: Final = 1 << 20  # a store never frees the memory of its largest batch
LARGE_BYTES: Final = 16 << 10  # a batch that writes more is large
LARGE_COUNT: Final = 32  # so is one with a request that receives more messages
REQUEST_BYTES: Final = 512  # allowance per request, and per copy, for rows besides the messages
FIRST_COUNT_MAX: Final = 64  # receives of more messages take their turn behind completed ones
RESUBMITTED_BYTES: Final = 4096  # assumed size of a message in a request that has only its number

_ADDING: Final = frozenset({Send, Schedule, StoreForwarded, Resubmit, Transfer, SetSessionState})
_MAY_ADD: Final = frozenset({Commit, ProcessDue})
_WRITING: Final = frozenset({Send, Schedule, Settle, StoreForwarded, Commit, Resubmit, ClaimMessages})
_RECEIVING: Final = frozenset({Receive, ReceiveFromSession})

assert LARGE_BYTES < BATCH_BYTES_MAX, "a batch would be full before it is large"
assert REQUEST_BYTES < LARGE_BYTES, "a request that writes nothing but rows beside messages would be large"


def split_receives(requests: list[Submitted]) -> Sequence[list[Submitted]]:
    """Return the requests in one part, or receives first: they need not wait until completed messages are deleted.

    For a store that waits for its disk: elsewhere a second batch costs more than a delivery waits for the first.

    Only if there is nothing else: completing makes no message available, so the order of the two does not show. And
    only receives of few messages: a receiver that asks for many does not wait for them.
    """
    receives: list[Submitted] = []
    completed: list[Submitted] = []
    wanted_count = 0
    for submitted in requests:
        request = submitted[1]
        if isinstance(request, Receive | ReceiveFromSession) and request.mode is ReceiveMode.PEEK_LOCK:
            receives.append(submitted)
            wanted_count += request.count
        elif isinstance(request, Settle) and isinstance(request.outcome, Complete):
            completed.append(submitted)
        else:
            return (requests,)
    if receives and completed and wanted_count <= FIRST_COUNT_MAX:
        return receives, completed
    return (requests,)


class Plan(NamedTuple):
    """The next batch: how many requests, at most how many bytes they write, whether one of them `adds`.

    `large` if it may take long, by its bytes or by the messages that it receives.
    """

    request_count: int
    expected_bytes: int
    adds: bool
    large: bool


def next_batch(requests: Sequence[Submitted]) -> Plan:
    """Return which of `requests` form the next batch."""
    sent_bytes = expected_bytes = largest_bytes = 0
    count = 0
    some_add = receives_many = False
    for ref, request in requests:
        if sent_bytes > BATCH_BYTES_MAX:
            break
        own_bytes, with_copies_bytes = written_bytes_max(ref, request)
        sent_bytes += own_bytes
        expected_bytes += with_copies_bytes
        if with_copies_bytes > largest_bytes:
            largest_bytes = with_copies_bytes
        count += 1
        kind = type(request)
        some_add = some_add or kind in _ADDING or (kind in _MAY_ADD and adds(ref, request))
        if kind in _RECEIVING and cast("Receive | ReceiveFromSession", request).count > LARGE_COUNT:
            receives_many = True
    # The worker stops after the request that passes the limit.
    expected_bytes = min(expected_bytes, BATCH_BYTES_MAX + largest_bytes)
    return Plan(count, expected_bytes, some_add, receives_many or expected_bytes > LARGE_BYTES)


def adds(ref: PartitionRef, request: Request | Operation) -> bool:
    """Whether a request stores what was not there. A full disk refuses it before what settles, expires and deletes."""
    if type(request) in _ADDING:  # a tenth of `isinstance`, for each request
        return True
    if isinstance(request, Commit):
        return any(adds(of, operation) for of, operation in request.operations)
    return isinstance(request, ProcessDue) and ref.routing is not None  # a scheduled message of a topic is copied


def can_split(requests: Sequence[Submitted]) -> bool:
    """Whether `halves` makes two smaller batches of a batch; an empty one has only due rows of deleted queues."""
    return len(requests) > 1 or (len(requests) == 1 and _run_length(requests[0][1]) > 1)


def halves(requests: Sequence[Submitted]) -> tuple[list[Submitted], list[Submitted]]:
    """Return a batch as two in the same order; a single run of messages, tokens or due rows is divided."""
    if len(requests) > 1:
        middle = len(requests) // 2
        return list(requests[:middle]), list(requests[middle:])
    ref, run = requests[0]
    assert isinstance(run, Send | Settle | ProcessDue)
    count = _run_length(run)
    return [(ref, run.slice(0, count // 2))], [(ref, run.slice(count // 2, count))]


def _run_length(request: Request) -> int:
    if isinstance(request, Send) and request.whole:
        return 1
    if isinstance(request, ProcessDue):
        return len(request.rows)
    if isinstance(request, Settle):
        return len(request.tokens)
    return len(request.messages) if isinstance(request, Send) else 1


def written_bytes_max(ref: PartitionRef, request: Request | Operation) -> tuple[int, int]:
    """The most bytes that `request` to partition `ref` writes: without copies, and with all copies."""
    kind = type(request)
    if kind not in _WRITING:  # first: each message that is received asks
        return REQUEST_BYTES, REQUEST_BYTES
    if isinstance(request, Settle):
        size_bytes = REQUEST_BYTES * len(request.tokens)
        return size_bytes, size_bytes
    if isinstance(request, ClaimMessages):
        size_bytes = REQUEST_BYTES * max(1, request.count)
        return size_bytes, size_bytes
    if isinstance(request, Commit):
        return _of_transaction(request)
    if isinstance(request, StoreForwarded):
        message_count = len(request.records)
        size_bytes = sum(len(record.stored) for _, record in request.records)
    elif isinstance(request, Resubmit):
        ref = request.target
        message_count = len(request.numbers)
        size_bytes = RESUBMITTED_BYTES * message_count
    else:
        assert isinstance(request, Send | Schedule)
        message_count = len(request.messages)
        # Small messages cost time, too: the allowance for each limits how long a batch blocks the event loop.
        own_bytes = request.total_bytes() if isinstance(request, Send) else sum(map(size_bytes_of, request.messages))
        size_bytes = REQUEST_BYTES * message_count + own_bytes
    own_bytes = REQUEST_BYTES + size_bytes
    routing = ref.routing
    if routing is None:
        return own_bytes, own_bytes
    return own_bytes, own_bytes + routing.copies_max * (size_bytes + REQUEST_BYTES * message_count)


def _of_transaction(request: Commit) -> tuple[int, int]:
    own_bytes = with_copies_bytes = REQUEST_BYTES
    for ref, operation in request.operations:
        if isinstance(operation, Transfer):
            size_bytes = with_copies = operation.message.size_bytes + REQUEST_BYTES
        else:
            size_bytes, with_copies = written_bytes_max(ref, operation)
        own_bytes += size_bytes
        with_copies_bytes += with_copies
    return own_bytes, with_copies_bytes
