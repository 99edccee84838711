"""Deleting messages of committed batches: `mode=drain`.

Knows three ways and uses the best that the service offers: a range delete (emubus), a batch delete by time (the
service, entities that are not partitioned), and receiving with locks, completing messages below the mark and releasing
the others. Dead letters are deleted by their numbers: what was read of them is no range. Does not decide which messages
are finished: the planner does. Reading never depends on deletion, so a failure only costs space: it is logged and
retried later, and ends the query only with settleFailure=fail.

A `Settler` belongs to the driver's reader. It has one thread with its own connections; a condition guards the state
that both threads use.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from ..codec import head
from ..errors import Code, ConnectorError
from ..options import SourceOptions
from ..timing import backoff_s, monotonic_s
from .browse import first_from
from .offsets import Run, base_of, limit_of, numbers_in, partition_of
from .retries import connected, management_node

log = logging.getLogger("emubus.spark")
RANGE_COUNT: Final = 2_000
DELETE_COUNT: Final = 1_000
"""Messages of one request that deletes a range, or by numbers: more save answers, but a partition does nothing else
meanwhile. `python bench/spark.py` shows what a drain costs."""

BATCH_DELETE_COUNT: Final = 500
"""Messages per request that every tier of the service takes."""

BATCH_DELETE_MARGIN_MS: Final = 5_000
"""How far enqueued times may be out of the order of the numbers before a delete by time would hit an unread message."""

RECEIVE_COUNT: Final = 500
"""Credit of one round of deletion by receiving; as many are locked while the round is settled."""

RECEIVE_WAIT_S: Final = 0.2  # longer waits find no more: what is finished is there already
HELD_MAX: Final = 5_000
"""Unfinished messages that one deletion may hold locked before it gives up the rest: other consumers miss them."""

STOP_WAIT_S: Final = 5.0  # a round of deletion by receiving ends within it; locks that are left end by themselves
_WAKE_S: Final = 0.5  # a missed wake-up delays a deletion by so much, and costs two looks a second

Work = tuple[Callable[[Any], None], Callable[[], None]]
"""Deletes with a connection; notes that there is nothing left to delete."""


class Settler:
    """Deletes the messages below given numbers per partition. `settle` does not wait, `wait` does."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._changed = threading.Condition()
        self._wanted: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._generation: str | None = None
        self._times: Mapping[int, int] = {}
        self._deleted_count = 0
        self._failure: ConnectorError | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._offers_ranges = False
        self._offers_times = True

    def settle(
        self,
        following: Mapping[int, int],
        *,
        by_range: bool,
        generation: str | None = None,
        times: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Everything below these whole sequence numbers is finished; `by_range` if the service has a range delete.

        With `generation`, nothing is deleted of an entity of another one; with `times` (Unix ms, by partition), nothing
        that was enqueued later. ConnectorError if settleFailure=fail and it failed.
        """
        with self._changed:
            self._raise_failure()
            self._offers_ranges = by_range
            if generation != self._generation:  # the numbers belong to another entity than the earlier ones
                self._wanted, self._done, self._generation = {}, {}, generation
            self._times = dict(times)
            for partition, number in following.items():
                if number < self._wanted.get(partition, number):
                    self._done.pop(partition, None)  # the entity was created again and is read from its start
                self._wanted[partition] = number
            self._begin()

    def forget(self) -> None:
        """The entity was replaced: what was finished is gone."""
        with self._changed:
            self._wanted, self._done, self._times = {}, {}, {}

    def _begin(self) -> None:
        """Have the thread look, if there is something to delete."""
        if self._is_open and not self._stopped:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="emubus-spark-drain", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, *, insist: bool) -> None:
        """Wait until all finished messages are deleted, or none was deleted for `operationTimeout`.

        After a failure it waits for another attempt only with `insist`.
        """
        with self._changed:
            # An attempt that is running may still fail; the one after it counts.
            failures_max = self._failures + 2 if insist else 1
            deadline_s = monotonic_s() + self._options.connection.endpoint.operation_timeout_s
            count = self._deleted_count
            while self._is_open and self._failures < failures_max and not self._stopped and monotonic_s() < deadline_s:
                self._changed.wait(_WAKE_S)
                if self._deleted_count != count:
                    count = self._deleted_count
                    deadline_s = monotonic_s() + self._options.connection.endpoint.operation_timeout_s
            self._raise_failure()

    def stop(self) -> None:
        """Begin nothing new; wait shortly for the running deletion, so that it leaves no messages locked."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(STOP_WAIT_S)

    # ---- the thread

    @property
    def _is_open(self) -> bool:
        return bool(self._open())

    def _open(self) -> dict[int, int]:
        return {each: number for each, number in self._wanted.items() if number > self._done.get(each, base_of(each))}

    def _raise_failure(self) -> None:
        if self._failure is not None and self._options.settle_failure == "fail":
            raise self._failure

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and (not self._is_open or monotonic_s() < self._not_before_s):
                    self._changed.wait(_WAKE_S)
                if self._stopped:
                    return
                work = self._next_work()
            failure = self._try(work)
            with self._changed:
                self._failure = failure
                if failure is None:
                    self._failures = 0
                else:
                    self._not_before_s = monotonic_s() + backoff_s(self._failures)
                    self._failures += 1
                self._changed.notify_all()

    def _next_work(self) -> Work:
        """What to delete now, and what to note if its entity is gone."""
        wanted, generation, times = self._open(), self._generation, self._times
        return (
            partial(self._delete, wanted=wanted, generation=generation, times=times),
            partial(self._note_finished, wanted, generation),
        )

    def _try(self, work: Work) -> ConnectorError | None:
        entity = self._options.entity
        delete, finish = work
        try:
            with connected(self._options.connection) as connection:
                delete(connection)
        except ConnectorError as error:
            if error.code is Code.DATA_LOSS:
                log.warning("%s: finished messages are gone with their entity: %s", entity, error)
                finish()
                return None
            log.warning("%s: deleting finished messages failed and will be retried: %s", entity, error)
            return error
        except Exception as error:  # nothing may end the thread silently
            log.exception("%s: deleting finished messages failed", entity)
            return ConnectorError(Code.REFUSED, f"{entity}: deleting finished messages failed: {error!r}")
        return None

    # ---- the ways

    def _delete(
        self, connection: Any, wanted: Mapping[int, int], generation: str | None, times: Mapping[int, int]
    ) -> None:
        if self._offers_ranges and self._delete_ranges(connection, wanted, generation):
            return
        if self._offers_times and set(wanted) == {0}:
            self._offers_times = self._delete_by_time(connection, wanted[0], times)
        DeletionByReceiving(connection, self._options.entity, wanted, self._add_deleted, times).run()
        self._note_finished(wanted, generation)

    def _delete_ranges(self, connection: Any, wanted: Mapping[int, int], generation: str | None) -> bool:
        """False if the service has no range delete. A partition that can't be reached does not delay the others."""
        failure: ConnectorError | None = None
        for partition, number in sorted(wanted.items()):
            try:
                count: int | None = RANGE_COUNT
                while count == RANGE_COUNT:
                    management = management_node(connection, self._options.entity, generation)
                    count = management.delete_before(partition, number, RANGE_COUNT)
                    if count is None:
                        return False
                    self._add_deleted(count)
                self._note_finished({partition: number}, generation)
            except ConnectorError as error:
                if not connection.usable or error.code is Code.DATA_LOSS:
                    raise
                failure = error
        if failure is not None:
            raise failure
        return True

    def _delete_by_time(self, connection: Any, number: int, times: Mapping[int, int]) -> bool:
        """False if the service has no delete by time.

        The newest messages are left, because enqueued times may differ slightly from the order of the numbers.
        """
        management = connection.management(self._options.entity)
        mark = first_from(management, number) or first_from(management, number - 1)
        if mark is None:
            return True
        before_ms = mark.enqueued_at_ms - BATCH_DELETE_MARGIN_MS
        before_ms = min(before_ms, times.get(0, before_ms) + 1)
        count = 1
        while count:
            try:
                deleted = management.batch_delete(BATCH_DELETE_COUNT, before_ms)
            except ConnectorError as error:
                if not connection.usable:
                    raise
                log.info("%s: a delete by time was refused: %s", self._options.entity, error)
                return error.retriable
            if deleted is None:
                return False
            count = deleted
            self._add_deleted(count)
        return True

    def _add_deleted(self, count: int) -> None:
        with self._changed:
            self._deleted_count += count
            self._changed.notify_all()

    def _note_finished(self, wanted: Mapping[int, int], generation: str | None) -> None:
        with self._changed:
            for partition, number in wanted.items() if generation == self._generation else ():
                self._done[partition] = max(number, self._done.get(partition, number))
            self._changed.notify_all()


class ExactSettler(Settler):
    """Deletes messages of a sub-queue by their numbers."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._numbers: frozenset[int] = frozenset()
        self._offers_numbers = False

    def settle_runs(
        self, runs: Iterable[Run], *, by_number: bool, generation: str | None, times: Mapping[int, int]
    ) -> None:
        """The messages of these runs, which were there a moment ago, are finished; nothing else is deleted.

        `by_number` if the service may have a delete by number; `generation` and `times` as in `Settler.settle`.
        ConnectorError if settleFailure=fail and it failed.
        """
        with self._changed:
            self._raise_failure()
            self._offers_numbers = by_number
            self._numbers, self._generation, self._times = frozenset(numbers_in(runs)), generation, dict(times)
            self._begin()

    def forget(self) -> None:
        """The entity was replaced: what was finished is gone."""
        with self._changed:
            self._numbers = frozenset()

    @property
    def _is_open(self) -> bool:
        return bool(self._numbers)

    def _next_work(self) -> Work:
        numbers, generation, times = self._numbers, self._generation, self._times
        return partial(self._delete_all, numbers=numbers, generation=generation, times=times), self.forget

    def _delete_all(
        self, connection: Any, numbers: frozenset[int], generation: str | None, times: Mapping[int, int]
    ) -> None:
        entity = self._options.entity
        if self._offers_numbers:
            ordered = sorted(numbers)
            while ordered:
                some, ordered = ordered[:DELETE_COUNT], ordered[DELETE_COUNT:]
                count = management_node(connection, entity, generation).delete_by_number(some)
                if count is None:
                    break
                self._note_deleted(some, count)
            else:
                return
        wanted = {partition_of(number): limit_of(partition_of(number)) for number in numbers}
        DeletionByReceiving(connection, entity, wanted, self._add_deleted, times, numbers).run()
        self._note_deleted(numbers, 0)

    def _note_deleted(self, numbers: Iterable[int], count: int) -> None:
        """Asked to delete these, the service deleted `count`: the others are locked, or another consumer took them."""
        with self._changed:
            self._numbers -= frozenset(numbers)
        self._add_deleted(count)


class DeletionByReceiving:
    """Deletes the messages below the marks by receiving them with locks; releases all others without counting.

    Messages that were enqueued later than `times` (Unix ms, by partition) are of an entity that was created again. With
    `numbers`, only these messages are deleted.
    """

    def __init__(
        self,
        connection: Any,
        entity: str,
        wanted: Mapping[int, int],
        add_deleted: Callable[[int], None],
        times: Mapping[int, int],
        numbers: frozenset[int] | None = None,
    ) -> None:
        self._connection = connection
        self._entity = entity
        self._wanted = wanted
        self._add_deleted = add_deleted
        self._times = times
        self._numbers = numbers

    def run(self) -> None:
        """Delete the finished messages by receiving them. ConnectorError if the service refuses."""
        try:
            receiver = self._connection.receiver(self._entity)
        except ConnectorError as error:
            if error.code is not Code.SESSION_REQUIRED:
                raise
            self._run_sessions()
            return
        # An entity without partitions gives the oldest first: after the first unfinished message, none is finished.
        self._empty(receiver, in_order=set(self._wanted) == {0} and self._numbers is None)

    def _run_sessions(self) -> None:
        for session_id in self._connection.management(self._entity).message_sessions():
            try:
                receiver = self._connection.receiver(self._entity, session_id=session_id)
            except ConnectorError as error:
                if not self._connection.usable:
                    raise
                log.info("%s: message session %r is left for later: %s", self._entity, session_id, error)
                continue
            self._empty(receiver, in_order=True)

    def _empty(self, receiver: Any, *, in_order: bool) -> None:
        held: list[Any] = []
        try:
            while len(held) < HELD_MAX:
                received = receiver.receive(RECEIVE_COUNT, RECEIVE_WAIT_S)
                if len(received) < RECEIVE_COUNT:
                    received += receiver.drain()
                finished = [each for each in received if self._is_finished(each)]
                held += [each for each in received if not self._is_finished(each)]
                if finished:
                    receiver.settle(finished, "accepted")
                    self._add_deleted(len(finished))
                if not received or (in_order and held):
                    break
        finally:
            if self._connection.usable:
                held += receiver.drain()
                if held:
                    receiver.settle(held, "released")
                receiver.close()

    def _is_finished(self, received: Any) -> bool:
        number, _, at_ms = head(received.data)
        partition = partition_of(number)
        if self._numbers is not None and number not in self._numbers:
            return False
        return number < self._wanted.get(partition, number) and at_ms <= self._times.get(partition, at_ms)
