"""Competing with other consumers: `mode=claim`.

The driver defers messages, marked with the query's `claimId` (`claiming`). No other consumer gets them then, and no
lock can expire. The set of claimed messages is the offset, tasks peek at them, and the driver deletes them when Spark
has committed the batch. At its start the driver adopts marked messages that are in no offset: a crash came between
deferring them and storing the offset. Refuses entities with message sessions, because a message deferred under
the lock of a session can be received only under that lock.

    latest(start of batch 3)   batch 3 is logged, read and committed       latest(start of batch 4)
      claims batch 3             ahead: deletes batch 2, claims batch 4      takes batch 4; ahead: deletes 3, claims 5

A round (`claim_round.Round`) is a deletion and a claim together. If a batch was full, the next round begins at once, on
a thread beside the batch (`Ahead`). What it claims is in no offset yet: an orphan, like what a crash leaves, and the
next batch is made of orphans first. Until the round is over an offset names what it deletes, or a restart would take
those messages for orphans and read them twice.

For the next editor: a round changes all of a `Claimer` but what `report` reads, so every other call joins it first.

A `Claimer` lives in the driver process of a query, on one thread, besides that of a round.
"""

from __future__ import annotations

import logging
from functools import partial
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
from .claim_round import Ahead, Round
from .identity import is_other, other_generation, tell_loss
from .offsets import (
    VERSION,
    ClaimOffset,
    Run,
    base_of,
    first_of,
    numbers_in,
    parse_claim_offset,
    partition_of,
    runs_of,
    size_of,
    together,
    within,
    without,
)
from .outage import LOOK_S, OutageWatch, listed
from .pace import Pace
from .plan import ClaimTask, split_runs
from .positions import Extents, ExtentTracker
from .retries import management_node, with_retries
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
        self._orphans: tuple[Run, ...] = ()  # claimed, and in no offset
        self._ahead: Ahead | None = None
        self._finished: tuple[Run, ...] = ()  # of committed batches, and not deleted yet
        self._deleted: tuple[Run, ...] = ()  # those of them that the start still names
        self._delete_failures = 0
        self._delete_not_before_s = 0.0
        self._exact: bool | None = None
        self._generation: str | None = None
        self._offers_claims: bool | None = None  # None: not known yet
        self._start: ClaimOffset | None = None

    # ---- Spark's calls, in their order

    def stop_at_present_ends(self) -> None:
        """Claim no message that arrives later: the query will end."""
        self._join()
        extents = self._look()
        self._frozen, self._frozen_out = dict(extents.following), set(extents.unavailable)

    def initial(self) -> Json:
        """Where the query begins: nothing is claimed."""
        return ClaimOffset(self._options.entity, self._claim_id).to_json()

    def latest(self, start_json: Json | None, count_max: int | None, *, all_available: bool) -> Json:
        """Claim messages, and delete finished ones; `start_json` itself if none came within `pollInterval`."""
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
        """Take note of what is finished; what other consumers leave is not known."""
        self._join()
        self._start = start = parse_claim_offset(start_json, self._options.entity, self._claim_id)
        self._generation = self._generation or start.generation
        if start.generation is not None:
            self._extents.expect_reports()
        # Numbers of an earlier entity are those of other messages now.
        named = () if is_other(start.generation, self._generation) else together(start.deletable, start.claimed)
        self._deleted = within(self._deleted, named)
        self._finished = without(named, self._deleted)

    def take(self, count_max: int | None) -> tuple[Json, int] | None:
        """Claim up to so many messages: the next offset, and how many there are; None if there are none.

        If there were so many, the next ones are claimed while Spark works on these.
        """
        claimed = self._gather(count_max)
        if not claimed and self._must_scan:  # a claim that broke off may have deferred some
            claimed = self._gather(count_max)
        if not claimed:
            return None
        offset, count = self._offset(claimed), size_of(claimed)
        if count == count_max:
            round_ = Round(self._finished, max(0, count - size_of(self._orphans)))
            self._ahead = Ahead(partial(self._run_ahead, round_))
        return offset, count

    def unmoved(self) -> Json:
        """The offset without new claims: the batch of the last one is committed."""
        return self._offset(())

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

    def _offset(self, claimed: tuple[Run, ...]) -> Json:
        assert self._start is not None
        return ClaimOffset(self._start.entity, self._claim_id, claimed, self._finished, self._generation).to_json()

    # ---- the rest of Spark's calls

    def report(self) -> Json | None:
        """The partitions that can't be reached; None without any: what other consumers leave is not known."""
        out = sorted(self._outage.out)
        return {"v": VERSION, "e": self._options.entity, "p": {}, "out": out} if out else None

    def plan(self, start_json: Json, end_json: Json) -> list[InputPartition]:
        """The tasks of a batch, possibly one that an earlier run of the query has begun."""
        options = self._options
        end = parse_claim_offset(end_json, options.entity, self._claim_id)
        if self._exact is None or self._outage.out:
            self._join()
        if self._exact is None:
            self._look()
        self._outage.wait_for({partition_of(first) for first, _ in end.claimed}, self._look)
        groups = split_runs(end.claimed, options.min_partitions, options.max_messages_per_task)
        return [ClaimTask(options.entity, group, self._exact is True, end.generation) for group in groups]

    def committed(self, end_json: Json) -> None:
        """Nothing: the next `latest` gets it as its start."""

    def stop(self) -> None:
        """Wait shortly for a round, so that it leaves no messages locked."""
        if self._ahead is not None:
            self._ahead.stop()

    def _join(self) -> None:
        """Wait for the round beside the batch. Raises as it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.join()

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
            self._must_scan, self._orphans = True, ()
            self._lose_finished()
            self._frozen = None if self._frozen is None else dict(extents.following)
        self._generation = extents.generation or self._generation
        return changed

    # ---- rounds

    def _gather(self, wanted: int | None) -> tuple[Run, ...]:
        """Up to `wanted` messages for the next batch: of earlier claims that are in no offset, and newly claimed."""
        start = self._start
        assert start is not None
        if self._must_scan or self._unscanned - self._outage.out:
            found = without(runs_of(self._scan()), together(start.claimed, start.deletable, self._orphans))
            self._orphans = together(self._orphans, found)
            self._must_scan = False
            if found:
                log.info("%s: %d messages of earlier claims are adopted", start.entity, size_of(found))
        claimed = first_of(self._orphans, wanted, len(self._orphans))
        self._orphans = without(self._orphans, claimed)
        missing = None if wanted is None else wanted - size_of(claimed)
        if missing == 0:
            return claimed
        before = self._generation
        more = self._run(Round(self._finished, missing))
        return more if is_other(before, self._generation) else together(claimed, more)

    def _run_ahead(self, round_: Round) -> None:
        claimed = self._run(round_)
        self._orphans = together(self._orphans, claimed)

    def _run(self, round_: Round) -> tuple[Run, ...]:
        """Delete and claim; returns what is claimed. ConnectorError if nothing is, because of a failure."""
        options = self._options
        try:
            with_retries(options.connection, f"claiming messages of {options.entity}", partial(self._try, round_))
        except ConnectorError as error:
            if error.code is Code.SESSION_REQUIRED:
                raise ConnectorError(
                    Code.MODE_UNSUPPORTED,
                    f"{options.entity}: mode=claim can't be used on an entity with message sessions: use "
                    "mode=browse or mode=drain",
                ) from None
            if not round_.claimed or error.code is Code.DATA_LOSS:
                raise
            count = size_of(round_.claimed)
            log.warning("%s: claiming stopped after %d messages: %s", options.entity, count, error)
        finally:
            self._deleted, self._finished = together(self._deleted, round_.deleted), round_.finished
        self._tell_left(round_)
        return round_.claimed

    def _try(self, round_: Round, connection: Any) -> None:
        options = self._options
        try:
            if self._exact and self._by_request(connection, round_):
                return
            self._delete(connection, round_)
            if round_.is_full:
                return
            with LinkClaims(connection, options.entity, self._claim_id) as claims:
                # The link is attached: as long as it works, it is a link to the entity that answers here.
                if self._exact and self._notice(self._look_on(connection)):
                    round_.begin_again()
                claims.run(round_, options.poll_interval_s, self._frozen)
        except ConnectorError as error:
            self._must_scan = True  # it is not known which messages of the last part were deferred
            if error.condition == LOCK_LOST:  # the message comes again
                raise ConnectorError(error.code, error.text, condition=LOCK_LOST, retriable=True) from None
            raise

    def _by_request(self, connection: Any, round_: Round) -> bool:
        """Do a round without a link; False if the service has no request for that."""
        if self._offers_claims is False:
            return False
        extents = self._look_on(connection)
        if self._notice(extents):
            round_.begin_again()
        filled = [each for each, end in sorted(extents.following.items()) if extents.first.get(each, end) < end]
        node = management_node(connection, self._options.entity, extents.generation)
        self._offers_claims = claim_by_request(
            node, round_, self._claim_id, filled, sorted(extents.following), self._frozen
        )
        if self._offers_claims and (out := {partition_of(first) for first, _ in round_.finished} & extents.unavailable):
            what = f"{self._options.entity}: partitions {listed(out)} can't be reached"
            round_.failure = ConnectorError(Code.UNAVAILABLE, what, retriable=True)
        return self._offers_claims

    def _delete(self, connection: Any, round_: Round) -> None:
        """Delete finished messages by receiving them; after a failure not at once again."""
        if not round_.finished or monotonic_s() < self._delete_not_before_s:
            return
        entity, numbers = self._options.entity, [*numbers_in(round_.finished)]
        left, round_.failure = delete_all(connection, entity, numbers, self._generation)
        round_.delete(without(round_.finished, runs_of(left)))

    def _tell_left(self, round_: Round) -> None:
        """Log why finished messages are still there. Raises that with settleFailure=fail."""
        if not round_.finished:
            self._delete_failures = 0
        failure = round_.failure
        if failure is None:
            return
        if failure.code is Code.DATA_LOSS:
            self._lose_finished()
            return
        if self._options.settle_failure == "fail":
            raise failure
        count = size_of(round_.finished)
        log.warning("%s: %d finished messages are deleted later: %s", self._options.entity, count, failure)
        self._delete_not_before_s = monotonic_s() + backoff_s(self._delete_failures)
        self._delete_failures += 1

    def _lose_finished(self) -> None:
        if self._finished:
            count = size_of(self._finished)
            log.warning("%s: %d finished messages are gone with their entity", self._options.entity, count)
        self._deleted = self._finished = ()

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
