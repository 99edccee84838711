"""The `$management` operations on partitions: what emubus adds to the service's, for clients that read by ranges.

Their names begin with `emubus:`; a client finds out by asking, for any other broker answers that it doesn't know them.
Knows what each one's body holds and the exact types of what comes back. Does not know how messages are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...broker.api import ReceiveMode
from ...codec.encode import encode, encode_array
from ...codec.types import Int
from .operations import Body, Context, Result, encoded_fields, encoded_list

CLAIM_COUNT_MAX: Final = 2_000
LIST_COUNT_MAX: Final = 2_000  # numbers of one answer; the broker reads as many rows for it in one go
SEQUENCE_NUMBER_MAX: Final = (1 << 63) - 1
_LONG: Final = 0x81


async def get_partitions(context: Context, body: Body) -> Result:
    """Where each partition of the entity or sub-queue begins and ends, and which can't be reached now.

    `generation` is another text if the entity was created again or restored: its sequence numbers began again. It is
    read first, so that with the numbers of a later entity it refuses what relies on them.
    """
    del body
    generation = context.broker.messages.generation(context.address)
    rows: list[bytes] = []
    unavailable: list[bytes] = []
    for index, extent in enumerate(await context.broker.messages.extents(context.address)):
        if extent is None:
            unavailable.append(encode(Int(index)))
            continue
        rows.append(
            encoded_fields(
                {
                    "partition-id": encode(Int(extent.partition_id)),
                    "first-sequence-number": encode(extent.first_sequence_number),
                    "next-sequence-number": encode(extent.next_sequence_number),
                    "message-count": encode(extent.message_count),
                }
            )
        )
    return Result(
        body=encoded_fields(
            {
                "generation": encode(generation),
                "partitions": encoded_list(rows),
                "unavailable-partitions": encoded_list(unavailable),
            }
        )
    )


async def list_sequence_numbers(context: Context, body: Body) -> Result:
    """The next sequence numbers that a partition has, in order, of messages in any state."""
    numbers = await context.broker.messages.list_numbers(
        context.address,
        body.integer("partition-id"),
        body.integer("from-sequence-number"),
        min(body.count("message-count"), LIST_COUNT_MAX),
    )
    return Result(body=encoded_fields({"sequence-numbers": encode_array(_LONG, numbers)}))


async def delete_messages_before(context: Context, body: Body) -> Result:
    """Delete available messages of one partition below a sequence number; how many, also when it were none."""
    deleted = await context.broker.messages.delete_before(
        context.address,
        body.integer("partition-id"),
        body.integer("sequence-number-before"),
        body.count("message-count"),
    )
    return Result(body=encoded_fields({"message-count": encode(Int(deleted))}))


async def delete_messages(context: Context, body: Body) -> Result:
    """Delete those of these messages that are available, in whichever partitions they are; how many."""
    deleted = await context.broker.messages.delete_by_number(context.address, body.integers("sequence-numbers"))
    return Result(body=encoded_fields({"message-count": encode(Int(deleted))}))


async def claim_messages(context: Context, body: Body) -> Result:
    """Defer available messages of one partition and give them properties, and delete deferred ones that are finished.

    Both in one commit, so that a reader's next batch costs one request for each partition. Numbers come and go as runs:
    first number, count, first number, count, …. `has-more` says that another request may find more. Of the finished
    messages those that are gone count as deleted, and those that are locked are named.

    A request without `finished-runs` is that of an earlier connector: it gets the numbers one by one, too, and deletes
    by `emubus:delete-deferred-messages`.
    """
    finished = body.runs_or_none("finished-runs", CLAIM_COUNT_MAX)
    claimed = await context.broker.messages.claim(
        context.address,
        body.integer("partition-id"),
        body.integer("sequence-number-before", SEQUENCE_NUMBER_MAX),
        min(body.count("message-count", at_least=0), CLAIM_COUNT_MAX),
        body.property_changes("properties-to-modify"),
        finished or (),
    )
    fields = {
        "claimed-runs": encode_array(_LONG, _runs_of(claimed.numbers)),
        "has-more": encode(claimed.more),
        "locked-runs": encode_array(_LONG, _runs_of(claimed.kept)),
    }
    if finished is None:
        fields["sequence-numbers"] = encode_array(_LONG, claimed.numbers)
    return Result(body=encoded_fields(fields))


async def delete_deferred_messages(context: Context, body: Body) -> Result:
    """Delete deferred messages by their numbers, all or none, without sending them; how many."""
    deleted = await context.broker.messages.receive_by_sequence_number(
        context.address, body.integers("sequence-numbers"), ReceiveMode.RECEIVE_AND_DELETE, body.session_id()
    )
    return Result(body=encoded_fields({"message-count": encode(Int(len(deleted)))}))


def _runs_of(numbers: Sequence[int]) -> list[int]:
    """Consecutive numbers as first number and count, in ascending order."""
    found: list[int] = []
    following = -1
    for number in sorted(numbers):
        if number == following:
            found[-1] += 1
        else:
            found += number, 1
        following = number + 1
    return found
