"""Competing with other consumers: `mode=claim`.

The driver defers messages, marked with the query's `claimId` (`claiming`). No other consumer gets them then, and no
lock can expire. The set of claimed messages is the offset, tasks peek at them, and the driver deletes them when Spark
has committed the batch. At its start the driver adopts marked messages that are in no offset: a crash came between
deferring them and storing the offset. Refuses entities with message sessions, because a message deferred under
the lock of a session can be received only under that lock.

A `Claimer` lives in the driver process of a query, on one thread.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from ..codec import ArrowRows, Column
from ..errors import Code, ConnectorError
from ..options import SourceOptions
from ..timing import backoff_s, monotonic_s, sleep
from .browse import pages
from .claim_by_link import LinkClaims
from .claim_by_request import claim_by_request
from .claim_deletion import delete_all
from .identity import is_other, other_generation, tell_loss
from .offsets import VERSION, ClaimOffset, base_of, numbers_in, parse_claim_offset, partition_of, runs_of
from .outage import LOOK_S, OutageWatch
from .pace import Pace
from .plan import ClaimTask, split_runs
from .positions import Extents, ExtentTracker
from .retries import connected, management_node, with_retries
from .rows import CLAIM_PROPERTY, DEFERRED

log = logging.getLogger("emubus.spark")
COUNT_MAX_DEFAULT: Final = 10_000
"""Messages of a claimed batch: each run of them is an entry of the offset, and others miss them until it ends."""

ROUND_REQUESTS: Final = 4  # what a round that finds nothing asks: attach, extents, credit and its return
LOCK_LOST: Final = "com.microsoft:message-lock-lost"

Json = dict[str, Any]


class Claimer:
    """Answers Spark's questions about one entity. Errors are ConnectorError."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._claim_id = options.claim_id or ""
        self._extents = ExtentTracker(options)
        self._outage = OutageWatch(options.entity, options.on_outage, options.outage_timeout_s)
        self._pace = Pace(options.poll_interval_s, options.requests_per_s)
        self._frozen: dict[int, int] | None = None
        self._frozen_out: set[int] = set()  # partitions without a frozen end: they were out
        self._must_scan = True
        self._unscanned: frozenset[int] = frozenset()  # partitions that were out at the scan
        self._orphans: list[int] = []
        self._deleted_for: ClaimOffset | None = None
        self._delete_failures = 0
        self._delete_not_before_s = 0.0
        self._exact: bool | None = None
        self._generation: str | None = None
        self._offers_claims: bool | None = None  # None: not known yet
        self._start: ClaimOffset | None = None
        self._left: list[int] = []  # finished messages that could not be deleted

    # ---- Spark's calls, in their order

    def freeze(self) -> None:
        """Claim no message that arrives later: the query will end."""
        extents = self._look()
        self._frozen, self._frozen_out = dict(extents.following), set(extents.unavailable)

    def initial(self) -> Json:
        """Where the query begins: nothing is claimed."""
        return ClaimOffset(self._options.entity, self._claim_id).to_json()

    def latest(self, start_json: Json | None, count_max: int | None, *, all_available: bool) -> Json:
        """Delete finished messages, claim available ones; `start_json` itself if none came within `pollInterval`."""
        if start_json is None:
            raise ConnectorError(
                Code.MODE_UNSUPPORTED,
                f"{self._options.entity}: mode=claim needs Spark 4.2 or later, which passes the source its start: use "
                "mode=browse or mode=drain",
            )
        self.look(start_json)
        if self._frozen is None:
            sleep(self._pace.wait_s(monotonic_s()))
        wanted = None if all_available else (count_max or COUNT_MAX_DEFAULT)
        taken = self.take(wanted)
        while taken is None and self._frozen is not None and self._outage.waits:
            sleep(LOOK_S)
            self._look()
            taken = self.take(wanted)
        if taken is None:
            self._pace.nothing(ROUND_REQUESTS, monotonic_s())
            self.rest()
            return start_json
        self._pace.found()
        return taken[0]

    # ---- the parts of `latest`, for a planner of several entities

    def look(self, start_json: Json) -> None:
        """Delete what is finished; what other consumers leave is not known."""
        self._start = start = parse_claim_offset(start_json, self._options.entity, self._claim_id)
        self._generation = self._generation or start.generation
        if start.generation is not None:
            self._extents.expect_reports()
        self._left = self._delete_finished(start)

    def take(self, count_max: int | None) -> tuple[Json, int] | None:
        """Claim up to so many messages: the next offset, and how many there are; None if there are none."""
        start = self._start
        assert start is not None
        claimed = self._gather(start, count_max)
        if not claimed and self._must_scan:  # a claim that broke off may have deferred some
            claimed = self._gather(start, count_max)
        return (self._offset(start, claimed), len(claimed)) if claimed else None

    def unmoved(self) -> Json:
        """The offset without new claims: the batch of the last one is committed."""
        assert self._start is not None
        return self._offset(self._start, [])

    def rest(self) -> None:
        if self._frozen is not None:
            self._outage.tell_left()

    @property
    def waits(self) -> bool:
        """Whether a query that is to end waits for partitions that are out."""
        return self._outage.waits

    @property
    def request_count(self) -> int:
        return ROUND_REQUESTS

    def _offset(self, start: ClaimOffset, claimed: list[int]) -> Json:
        left = [] if is_other(start.generation, self._generation) else self._left  # else gone with their entity
        return ClaimOffset(start.entity, self._claim_id, runs_of(claimed), runs_of(left), self._generation).to_json()

    # ---- the rest of Spark's calls

    def report(self) -> Json | None:
        """The partitions that can't be reached; None without any: what other consumers leave is not known."""
        out = sorted(self._outage.out)
        return {"v": VERSION, "e": self._options.entity, "p": {}, "out": out} if out else None

    def plan(self, start_json: Json, end_json: Json) -> list[InputPartition]:
        """The tasks of a batch, possibly one that an earlier run of the query has begun."""
        options = self._options
        end = parse_claim_offset(end_json, options.entity, self._claim_id)
        if self._exact is None:
            self._look()
        self._outage.wait_for({partition_of(first) for first, _ in end.claimed}, self._look)
        groups = split_runs(end.claimed, options.min_partitions, options.max_messages_per_task)
        return [ClaimTask(options.entity, group, self._exact is True, end.generation) for group in groups]

    def committed(self, end_json: Json) -> None:
        """Nothing: the next `latest` gets it as its start."""

    def stop(self) -> None:
        """Nothing to stop."""

    def _look(self) -> Extents:
        options = self._options
        return with_retries(options.connection, f"looking for the ends of {options.entity}", self._look_on)

    def _look_on(self, connection: Any) -> Extents:
        """The extents now. ConnectorError as `OutageWatch.note`."""
        extents = self._extents.look(connection, {})
        self._exact = extents.exact
        self._outage.note(extents.unavailable)
        if self._frozen is not None:
            for partition in self._frozen_out & extents.following.keys():
                self._frozen[partition] = extents.following[partition]
            self._frozen_out -= extents.following.keys()
        return extents

    def _notice(self, extents: Extents) -> bool:
        """Take note of the entity's generation; whether it has changed: then all that was claimed is gone.

        ConnectorError(DATA_LOSS) if it has changed and `failOnDataLoss`.
        """
        changed = is_other(self._generation, extents.generation)
        if changed:
            text = other_generation(self._options.entity, self._generation, extents.generation)
            tell_loss(text, fails=self._options.fail_on_data_loss)
            self._must_scan, self._orphans = True, []
            self._frozen = None if self._frozen is None else dict(extents.following)
        self._generation = extents.generation or self._generation
        return changed

    # ---- deletion

    def _delete_finished(self, start: ClaimOffset) -> list[int]:
        """Delete the messages of committed batches; returns the numbers that could not be deleted."""
        if start == self._deleted_for:
            return []
        left = sorted(numbers_in((*start.deletable, *start.claimed)))
        if monotonic_s() < self._delete_not_before_s:
            return left
        options = self._options
        failure: ConnectorError | None = None
        try:
            with connected(options.connection) as connection:
                left, failure = delete_all(connection, options.entity, left, start.generation)
        except ConnectorError as error:
            failure = error
        if failure is not None and failure.code is Code.DATA_LOSS:
            log.warning("%s: %d finished messages are gone with their entity: %s", options.entity, len(left), failure)
            left, failure = [], None
        if failure is not None:
            if options.settle_failure == "fail":
                raise failure
            log.warning("%s: %d finished messages are deleted later: %s", options.entity, len(left), failure)
        if left:
            self._delete_not_before_s = monotonic_s() + backoff_s(self._delete_failures)
            self._delete_failures += 1
        else:
            self._delete_failures = 0
            self._deleted_for = start
        return left

    # ---- claiming

    def _gather(self, start: ClaimOffset, wanted: int | None) -> list[int]:
        """Up to `wanted` numbers for the next batch: of earlier claims that are in no offset, and newly claimed."""
        if self._must_scan or self._unscanned - self._outage.out:
            named = {*numbers_in(start.claimed), *numbers_in(start.deletable), *self._orphans}
            found = [number for number in self._scan() if number not in named]
            self._orphans += found
            self._must_scan = False
            if found:
                log.info("%s: %d messages of earlier claims are adopted", start.entity, len(found))
        claimed, self._orphans = self._orphans[:wanted], self._orphans[wanted:] if wanted is not None else []
        if wanted is None or len(claimed) < wanted:
            before = self._generation
            more = self._claim(None if wanted is None else wanted - len(claimed))
            claimed = more if is_other(before, self._generation) else claimed + more
        return claimed

    def _claim(self, count_max: int | None) -> list[int]:
        """Receive and defer; returns the claimed sequence numbers."""
        options = self._options
        claimed: list[int] = []

        def work(connection: Any) -> None:
            try:
                if self._exact and self._claim_by_request(connection, claimed, count_max):
                    return
                with LinkClaims(connection, options.entity, self._claim_id) as claims:
                    # The link is attached: as long as it works, it is a link to the entity that answers here.
                    if self._exact and self._notice(self._look_on(connection)):
                        claimed.clear()
                    claims.run(claimed, count_max, options.poll_interval_s, self._frozen)
            except ConnectorError as error:
                self._must_scan = True  # it is not known which messages of the last part were deferred
                if error.condition == LOCK_LOST:  # the message comes again
                    raise ConnectorError(error.code, error.text, condition=LOCK_LOST, retriable=True) from None
                raise

        try:
            with_retries(options.connection, f"claiming messages of {options.entity}", work)
        except ConnectorError as error:
            if error.code is Code.SESSION_REQUIRED:
                raise ConnectorError(
                    Code.MODE_UNSUPPORTED,
                    f"{options.entity}: mode=claim can't be used on an entity with message sessions: use "
                    "mode=browse or mode=drain",
                ) from None
            if not claimed or error.code is Code.DATA_LOSS:
                raise
            log.warning("%s: claiming stopped after %d messages: %s", options.entity, len(claimed), error)
        return claimed

    def _claim_by_request(self, connection: Any, claimed: list[int], count_max: int | None) -> bool:
        """Claim without a link; False if the service has no request for that."""
        if self._offers_claims is False:
            return False
        extents = self._look_on(connection)
        if self._notice(extents):
            claimed.clear()
        filled = [each for each, end in sorted(extents.following.items()) if extents.first.get(each, end) < end]
        node = management_node(connection, self._options.entity, extents.generation)
        self._offers_claims = claim_by_request(node, filled, self._claim_id, claimed, count_max, self._frozen)
        return self._offers_claims

    def _scan(self) -> list[int]:
        """The deferred messages that carry this query's mark, of all partitions or of those not scanned yet.

        Partitions that are out now are looked at later.
        """
        options = self._options

        def look(connection: Any) -> list[int]:
            extents = self._look_on(connection)
            self._notice(extents)
            found: list[int] = []
            for partition, high in sorted(extents.following.items()):
                if not self._must_scan and partition not in self._unscanned:
                    continue
                low = extents.first.get(partition, base_of(partition))
                found += self._marked(connection.management(options.entity), low, high, partition, extents.exact)
            self._unscanned = extents.unavailable
            return found

        return with_retries(options.connection, f"looking for claimed messages of {options.entity}", look)

    def _marked(self, management: Any, low: int, high: int, partition: int, exact: bool) -> list[int]:
        rows = ArrowRows([Column("sequenceNumber", "bigint"), Column("applicationProperties", "map<string,string>")])
        found: list[int] = []
        size = self._options.peek_batch_size
        for page in pages(management, low, high, size, partition if exact else None, deferred_only=True):
            rows.extend(page.messages, before=high, states=(DEFERRED,))
            numbers, properties = rows.take().columns
            found += [
                number
                for number, each in zip(numbers.to_pylist(), properties.to_pylist(), strict=True)
                if dict(each or ()).get(CLAIM_PROPERTY) == self._claim_id
            ]
        return found
