"""Message ids for rows that bring none: the same id for the same row, whenever its batch is written again.

An id names the write (query and batch, or job) and the row by its content: what is sent, and the columns that say which
message the row was read from. It does not name the row's position, because a source that has lost rows, or gives them
in another order, would then give the id of one row to another, and duplicate detection would drop a row that was never
sent. A row that does not say where it comes from is also named by its Spark partition, so equal rows of two tasks stay
two. Equal rows of one task are counted; it does not matter which of them is the first.

An id that `spans_batches` does not name the batch either, if the row has an origin: an older copy of a checkpoint deals
the same messages to other batches.

Knows Arrow batches under the sink's names. Does not know which ids are wanted (`writer`). A `RowIds` belongs to one
task and keeps eight bytes of each row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..schema import ENTITY_COLUMN
from .task import Task

DIGEST_BYTES: Final = 12
KEY_BYTES: Final = 8  # of a digest, for counting
_MERGE_RATIO: Final = 2  # a run of keys that is not longer than this many times the next one is merged with it


class RowIds:
    """Makes the ids of a task's rows; `origins` are the columns that name the message a row was read from."""

    def __init__(
        self, task: Task, columns: Sequence[str], origins: Sequence[str], *, spans_batches: bool = False
    ) -> None:
        self._task = task
        self._columns = [name for name in columns if name not in ("messageId", "body")]
        self._has_ids = "messageId" in columns
        self._origins = origins
        self._scope = task.query if spans_batches else task.write
        self._seen = Occurrences()

    def of(self, batch: pa.RecordBatch) -> Callable[[int], str | None] | None:
        """What gives the id of a row without one, by its index in the batch; None if each row brings its own."""
        indexes: Sequence[int] = range(batch.num_rows)
        if self._has_ids:
            missing = batch.column("messageId").is_null().to_pylist()
            indexes = [index for index in indexes if missing[index]]
        if not indexes:
            return None
        digests, have_origin = self._digests(batch, indexes), self._have_origin(batch)
        counts = self._seen.add([digest[:KEY_BYTES] for digest in digests])
        made = {
            index: self._id(digest.hex(), count, has_origin=have_origin[index])
            for index, digest, count in zip(indexes, digests, counts, strict=True)
        }
        return made.get

    def _id(self, digest: str, count: int, *, has_origin: bool) -> str:
        scope = self._scope if has_origin else self._task.name
        return f"{scope}/{digest}/{count}" if count else f"{scope}/{digest}"

    def _digests(self, batch: pa.RecordBatch, indexes: Sequence[int]) -> list[bytes]:
        bodies = _plain(batch.column("body"))
        others = [_plain(batch.column(name)) for name in (*self._columns, *self._origins)]
        found: list[bytes] = []
        for index in indexes:
            body = bodies[index] or b""
            # The length comes first, so that no body can end like the beginning of another row.
            digest = blake2b(
                repr((len(body), *[values[index] for values in others])).encode(), digest_size=DIGEST_BYTES
            )
            digest.update(body)
            found.append(digest.digest())
        return found

    def _have_origin(self, batch: pa.RecordBatch) -> list[bool]:
        """For each row, whether one of the origin's columns names a message; an entity alone names none."""
        names = [name for name in self._origins if name != ENTITY_COLUMN]
        if not names:
            return [False] * batch.num_rows
        valid = [batch.column(name).is_valid().to_pylist() for name in names]
        return [any(row) for row in zip(*valid, strict=True)]


class Occurrences:
    """Counts keys of KEY_BYTES bytes: how often each was there before. Holds them in a few sorted arrays."""

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def add(self, keys: Sequence[bytes]) -> list[int]:
        """Take keys in; for each, how many equal ones came before it, in this call or an earlier one."""
        array = np.frombuffer(b"".join(keys), dtype=np.uint64)
        before = np.zeros(len(array), dtype=np.int64)
        for run in self._runs:
            before += np.searchsorted(run, array, "right") - np.searchsorted(run, array, "left")
        ordered = np.sort(array)
        counts: list[int] = before.tolist()
        if (ordered[1:] == ordered[:-1]).any():
            counts = [count + here for count, here in zip(counts, _before_each(keys), strict=True)]
        self._keep(ordered)
        return counts

    def _keep(self, run: npt.NDArray[np.uint64]) -> None:
        """Keep one more sorted array; neighbours of similar length are merged, so that there are few."""
        while self._runs and len(self._runs[-1]) <= _MERGE_RATIO * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)


def _before_each(keys: Sequence[bytes]) -> Iterator[int]:
    """How many equal keys come before each."""
    counted: Counter[bytes] = Counter()
    for key in keys:
        yield counted[key]
        counted[key] += 1


def _plain(array: Any) -> list[Any]:
    """The values; texts as UTF-8 and instants as numbers, which do not depend on a time zone."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    values: list[Any] = array.to_pylist()
    return values
