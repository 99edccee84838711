"""Estimates the bytes that a request writes; the worker needs them to reserve space and to limit a batch.

Knows which requests have messages, and that a topic copies a message for each subscription. Does not know how a
partition executes a request (`partition`).
"""

from __future__ import annotations

from typing import Final

from ..partition.requests import Commit, Request, Resubmit, Schedule, Send, StoreForwarded, Transfer
from ..partition.step import PartitionRef

REQUEST_BYTES: Final = 512  # allowance per request, and per copy, for rows besides the messages
RESUBMITTED_BYTES: Final = 4096  # assumed size of a message in a request that has only its number


def written_bytes_max(ref: PartitionRef, request: Request) -> tuple[int, int]:
    """The most bytes that `request` to partition `ref` writes: without copies, and with all copies."""
    kind = type(request)
    if kind is Send or kind is Schedule:
        message_count, size_bytes = len(request.messages), 0  # type: ignore[union-attr]
        for message in request.messages:  # type: ignore[union-attr]
            size_bytes += message.size_bytes
    elif isinstance(request, StoreForwarded):
        message_count = len(request.records)
        size_bytes = sum(len(record.stored) for _, record in request.records)
    elif isinstance(request, Commit):
        return _of_transaction(request)
    elif isinstance(request, Resubmit):
        ref = request.target
        message_count = len(request.numbers)
        size_bytes = RESUBMITTED_BYTES * message_count
    else:
        return REQUEST_BYTES, REQUEST_BYTES
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
