"""Message ids for rows that bring none: the same id for the same row, whenever its batch is written again.

An id names a row by its content: what is sent, and the columns that say which message the row was read from. It does
not name the row's position, because a source that has lost rows, or gives them in another order, would then give the id
of one row to another, and duplicate detection would drop a row that was never sent. Equal rows of one task are counted;
it does not matter which of them is the first.

Equal rows may lie in several tasks: explode, union and join make several rows of one message, and a repartition deals
them out. No task sees the rows of another, so two promises exclude each other:

    rows of one batch never share an id        the id has to name the Spark partition
    a row that moves to another one keeps it   the id must not name it

The first one is kept, because a row that is lost is worse than one that is there twice: an id names the write (query
and batch, or job), its Spark partition, and the row. Spark deals the same rows to the same partitions when it repeats a
batch of the same plan, so rows move only if the source has changed meanwhile and a repartition deals them anew.

`of_origin` keeps the second one: the id of a row with an origin names neither partition nor batch, so it is the same
however rows are dealt, also to other batches, as by an older copy of a checkpoint. What it gives up is found after the
write: tasks report their keys, and `equal_across` counts the rows that shared an id.

Knows Arrow batches under the sink's names. Does not know which ids are wanted (`writer`). A `RowIds` belongs to one
task and keeps eight bytes of each row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..schema import ENTITY_COLUMN
from .task import Task

DIGEST_BYTES: Final = 12
KEY_BYTES: Final = 8  # of a digest, for counting
assert KEY_BYTES <= DIGEST_BYTES
_MERGE_RATIO: Final = 2  # a run of keys that is not longer than this many times the next one is merged with it


class RowIds:
    """Makes the ids of a task's rows; `origins` are the columns that name the message a row was read from."""

    def __init__(self, task: Task, columns: Sequence[str], origins: Sequence[str], *, of_origin: bool = False) -> None:
        self._task = task
        self._columns = [name for name in columns if name not in ("messageId", "body")]
        self._has_ids = "messageId" in columns
        self._origins = origins
        self._of_origin = of_origin
        self._seen = Occurrences()
        self._shared: list[npt.NDArray[np.uint64]] = []

    def of(self, batch: pa.RecordBatch) -> Callable[[int], str | None] | None:
        """What gives the id of a row without one, by its index in the batch; None if each row brings its own."""
        indexes: Sequence[int] = range(batch.num_rows)
        if self._has_ids:
            missing = batch.column("messageId").is_null().to_pylist()
            indexes = [index for index in indexes if missing[index]]
        if not indexes:
            return None
        digests, have_origin = self._digests(batch, indexes), self._have_origin(batch)
        keys = [digest[:KEY_BYTES] for digest in digests]
        counts = self._seen.add(keys)
        if self._of_origin:
            shared = [key for key, index in zip(keys, indexes, strict=True) if have_origin[index]]
            self._shared.append(np.frombuffer(b"".join(shared), dtype=np.uint64))
        made = {
            index: self._id(digest.hex(), count, has_origin=have_origin[index])
            for index, digest, count in zip(indexes, digests, counts, strict=True)
        }
        return made.get

    @property
    def shared_keys(self) -> bytes:
        """KEY_BYTES of each row so far whose id does not name its task, for `equal_across`."""
        return b"".join(each.tobytes() for each in self._shared)

    def _id(self, digest: str, count: int, *, has_origin: bool) -> str:
        scope = self._task.query if self._of_origin and has_origin else self._task.name
        return f"{scope}/{digest}/{count}" if count else f"{scope}/{digest}"

    def _digests(self, batch: pa.RecordBatch, indexes: Sequence[int]) -> list[bytes]:
        bodies = _python_values(batch.column("body"))
        others = [_python_values(batch.column(name)) for name in (*self._columns, *self._origins)]
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


def equal_across(tasks: Iterable[bytes]) -> int:
    """How many rows have the id of a row of another task, by what each task's `RowIds.shared_keys` was.

    Of a key that tasks have 3, 1 and 1 times, the ids of two rows are those of others: equal rows of one task are
    numbered from 0 in each.
    """
    found = [np.unique(np.frombuffer(keys, dtype=np.uint64), return_counts=True) for keys in tasks]
    if len(found) < 2:
        return 0
    keys = np.concatenate([each for each, _ in found])
    counts = np.concatenate([each for _, each in found])
    _, index = np.unique(keys, return_inverse=True)
    most = np.zeros(len(keys), dtype=np.int64)
    np.maximum.at(most, index, counts)
    return int(counts.sum() - most.sum())


def _before_each(keys: Sequence[bytes]) -> Iterator[int]:
    counted: Counter[bytes] = Counter()
    for key in keys:
        yield counted[key]
        counted[key] += 1


def _python_values(array: Any) -> list[Any]:
    """The values; texts as UTF-8 and instants as numbers, which do not depend on a time zone."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    values: list[Any] = array.to_pylist()
    return values
