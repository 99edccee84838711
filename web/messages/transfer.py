"""Messages leave and enter as JSON Lines, a batch at a time, however many there are.

Knows what is kept of failures. Does not know what a line says (`json_lines`), and where the bytes come from or go to.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...broker.address import SubQueue
from ...broker.admin import figures
from ...broker.admin.overview import Overview, Seen
from ...broker.api import Entity
from ...broker.aside import Aside
from ...broker.broker import Broker
from ...broker.errors import BrokerError, Condition
from ...broker.model.descriptions import TopicDescription
from ...codec.errors import DecodeError
from ..json_reader import read_json
from ..json_writer import json_pieces
from ..limits import BATCH_JSON_FACTOR
from ..long_work import Pace
from ..single_send import send_each
from .annotations import STATES
from .jobs import Selection
from .json_lines import line_of, message_of
from .verbs import Plan, PlanRun, Verb

JSON_LINES: Final = "application/jsonl"
AT_ONCE: Final = 50
AT_ONCE_BYTES: Final = 2 << 20
FAILURES_MAX: Final = 100
LINE_VALUES_MAX: Final = 2_000_000
"""Most values of JSON in a line: a message of 256 KiB may hold 260 000 of AMQP, each an object of two."""
_DEFERRED: Final = STATES[1]


@dataclass(slots=True)
class Imported:
    """What became of the lines: `failures` has the first that were not sent, (number of the line, reason)."""

    sent_count: int = 0
    failed_count: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def failed(self, line: int, reason: str) -> None:
        """Note a line that was not sent, or not as it says."""
        self.failed_count += 1
        if len(self.failures) < FAILURES_MAX:
            self.failures.append((line, reason))

    def sent(self) -> None:
        """Note a line that was sent."""
        self.sent_count += 1


async def exported(
    broker: Broker, entity: Entity, sub_queue: SubQueue, selection: Selection, aside: Aside
) -> AsyncGenerator[bytes, None]:
    """The messages that are there now and match, as lines. BrokerError (server-busy) if one can't be reached."""
    overview, pace = Overview(broker.namespace), Pace()
    extents = await entity.extents(sub_queue)
    for index, extent in enumerate(extents):
        if selection.partition in (None, index):
            if extent is None:
                raise BrokerError(Condition.SERVER_BUSY, f"Partition {index} of '{entity.path}' can't be reached.")
            first: int | None = max(selection.first, figures.placement_in(entity, index).first_number)
            while first is not None and first < extent.next_sequence_number:
                page = await overview.messages(
                    entity,
                    sub_queue,
                    first=first,
                    count=AT_ONCE,
                    bytes_max=AT_ONCE_BYTES,
                    session_id=selection.session,
                    partition_id=index,
                )
                found = [each for each in page.messages if each.sequence_number < extent.next_sequence_number]
                for seen in await selection.filter.chosen(found, pace):
                    yield await aside.run(partial(_line_bytes, seen), len(seen.encoded))
                    await pace.step()
                first = page.next_sequence_number


def _line_bytes(seen: Seen) -> bytes:
    try:
        line: object = line_of(seen)
    except DecodeError as error:  # the broker checks what it reads only
        line = {"sequence_number": seen.sequence_number, "error": str(error)}
    return b"".join((*json_pieces(line, is_ascii=False), b"\n"))


async def imported(broker: Broker, entity: Entity, chunks: AsyncIterator[bytes], aside: Aside) -> Imported:
    """Send the messages of lines, in their order; each that fails leaves the others alone.

    BrokerError if the entity takes no messages; what came before stays sent.
    """
    result, pace = Imported(), Pace()
    batch: list[tuple[int, bytes, str]] = []
    size_bytes = number = 0
    async for line in _lines(chunks, broker.limits.message_bytes_max * BATCH_JSON_FACTOR):
        number += 1
        if not line.strip():
            continue
        await pace.step()
        try:
            encoded, state = await aside.run(partial(_message_in, line), len(line))
        except ValueError as error:
            result.failed(number, f"it is no message: {error}")
            continue
        batch.append((number, encoded, state))
        size_bytes += len(encoded)
        if len(batch) == AT_ONCE or size_bytes > AT_ONCE_BYTES:
            await _send(broker, entity, batch, result)
            batch, size_bytes = [], 0
    await _send(broker, entity, batch, result)
    return result


def _message_in(line: bytes) -> tuple[bytes, str]:
    """The encoded message of a line, and its state. ValueError."""
    return message_of(read_json(line, LINE_VALUES_MAX))


async def _lines(chunks: AsyncIterator[bytes], bytes_max: int) -> AsyncGenerator[bytes, None]:
    """The lines of a stream of bytes. BrokerError (message-size-exceeded) for one that is too long."""
    left = bytearray()
    async for chunk in chunks:
        left += chunk
        *whole, rest = left.split(b"\n") if b"\n" in chunk else [left]
        for line in whole:
            yield bytes(line)
        left = rest
        if len(left) > bytes_max:
            raise BrokerError(Condition.MESSAGE_SIZE_EXCEEDED, f"A line has more than {bytes_max} bytes.")
    yield bytes(left)


async def _send(broker: Broker, entity: Entity, batch: list[tuple[int, bytes, str]], result: Imported) -> None:
    if not batch:
        return
    sent = await send_each(broker, entity, [encoded for _, encoded, _ in batch])
    deferred: dict[int, int] = {}
    for (line, _, state), each in zip(batch, sent, strict=True):
        if isinstance(each, BrokerError):
            result.failed(line, each.description)
        elif each is None:
            result.failed(line, "it was dropped as a duplicate of an earlier message with its MessageId")
        else:
            result.sent()
            if state == _DEFERRED and not isinstance(entity.description, TopicDescription):
                deferred[each] = line
    if deferred:
        plan_run = PlanRun(broker, Plan(Verb.DEFER, entity.path, SubQueue.ACTIVE))
        failures = await plan_run.carry_out([Seen(0, number, b"", None) for number in deferred])
        for number, reason in failures.items():
            result.failed(deferred[number], f"it was sent, but is not deferred: {reason}")
