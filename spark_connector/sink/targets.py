"""From messages to parcels: the messages of one delivery, grouped so that the service accepts it and order is kept.

Knows what a service requires of a delivery: its size, and one key for all its messages (partitioned entities and
entities with message sessions refuse others). Does not know connections and outcomes. Where a parcel ends depends on
rows and limits only, never on time: a repeated write makes the same parcels, and duplicate detection finds them in the
same partition. A `Grouper` and its messages belong to one task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ..codec.encode import EncodedRow
from ..codec.envelope import data_overhead, envelope, envelope_overhead
from ..errors import Code

ENVELOPE_MESSAGES_MAX: Final = 4500  # the service took no more in one delivery for years, and takes any number now
OPEN_BYTES_MAX: Final = 32 * 1024 * 1024  # gathered in one task, over all keys

Key = tuple[str, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one delivery to a target may hold, in bytes: a single message, and an envelope of several."""

    message_bytes_max: int
    envelope_bytes_max: int


@dataclass(slots=True)
class Parcel:
    """The messages of one delivery, all of one `key` (target, SessionId, PartitionKey); `numbers` are their rows'."""

    key: Key
    numbers: list[int] = field(default_factory=list)
    rows: list[EncodedRow] = field(default_factory=list)
    size_bytes: int = 0
    attempts: int = 0  # that brought no outcome, or one that may be better next time
    failed_at_s: float | None = None  # when the first of them did so, on the clock of `timing.monotonic_s`
    cause: Code | None = None  # why this was taken out of an envelope
    alone: bool = False  # whether nothing else may be in flight with it
    refusals: int = 0  # for its size, while it was in flight alone

    @property
    def target(self) -> str:
        return self.key[0]

    @property
    def has_key(self) -> bool:
        """Whether a message session or partition key binds the messages together."""
        return self.key[1] is not None or self.key[2] is not None

    def forbid_company(self) -> None:
        """Nothing else may be in flight with it from now on."""
        self.alone = True

    def refused_for_size(self) -> None:
        """The service found it too large while it was in flight alone."""
        self.refusals += 1

    def failed(self, now_s: float) -> float:
        """An attempt failed at `now_s`; for how many seconds it has been failing."""
        self.failed_at_s = now_s if self.failed_at_s is None else self.failed_at_s
        return now_s - self.failed_at_s

    def send_again(self) -> None:
        self.attempts += 1

    def add(self, number: int, row: EncodedRow, size_bytes: int) -> None:
        """One more message, which takes `size_bytes` of the delivery."""
        self.numbers.append(number)
        self.rows.append(row)
        self.size_bytes += size_bytes

    def encode(self) -> tuple[bytes, bool]:
        """The delivery, and whether it is an envelope; one message travels without."""
        if len(self.rows) == 1:
            return self.rows[0].data, False
        return envelope([row.data for row in self.rows], self.rows[0]), True

    def split(self, cause: Code) -> list[Parcel]:
        return [
            Parcel(self.key, [number], [row], len(row.data), cause=cause)
            for number, row in zip(self.numbers, self.rows, strict=True)
        ]

    def describe(self) -> str:
        """The rows, for error texts."""
        first, last = self.numbers[0], self.numbers[-1]
        return f"row {first}" if first == last else f"{len(self.numbers)} of the rows {first} to {last}"


class Grouper:
    """Gathers rows in parcels, one open per key; `limits(target)` says how large they may get."""

    def __init__(self, limits: Callable[[str], Limits]) -> None:
        self._limits_of = limits
        self._limits: dict[str, Limits] = {}
        self._open: dict[Key, Parcel] = {}
        self._open_bytes = 0

    def add(self, number: int, row: EncodedRow, target: str) -> list[Parcel]:
        """Take row `number`; the parcels that are complete by it, in the order in which they are to be sent."""
        limits = self.limits(target)
        key = (target, row.session_id, row.partition_key)
        size_bytes = len(row.data)
        section = size_bytes + data_overhead(size_bytes)
        done: list[Parcel] = []
        parcel = self._open.get(key)
        if parcel is not None and (
            parcel.size_bytes + section > limits.envelope_bytes_max or len(parcel.rows) >= ENVELOPE_MESSAGES_MAX
        ):
            done.append(self._take(key))
            parcel = None
        if parcel is None:
            if self._open_bytes + section > OPEN_BYTES_MAX:
                done += self.close()
            parcel = self._open[key] = Parcel(key)
            section += envelope_overhead(row)
        parcel.add(number, row, section)
        self._open_bytes += section
        return done

    def limits(self, target: str) -> Limits:
        known = self._limits.get(target)
        if known is None:
            known = self._limits[target] = self._limits_of(target)
        return known

    def close(self) -> list[Parcel]:
        """What is gathered now, in the order of the first rows."""
        parcels = list(self._open.values())
        self._open.clear()
        self._open_bytes = 0
        return parcels

    def _take(self, key: Key) -> Parcel:
        parcel = self._open.pop(key)
        self._open_bytes -= parcel.size_bytes
        return parcel
