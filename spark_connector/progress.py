"""What each batch of a query did, for logs and metrics: rows, bytes, what is left to read.

    spark.streams.addListener(ProgressListener())
    observed(spark.readStream.format("servicebus")….load()).writeStream…

Knows Spark's progress reports. Spark names a Python source by a class and a hash; here it has the entity's path. Spark
counts rows but no bytes, and takes no figures from a Python source, so an observation of the frame counts bytes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from .lag import offsets_of, servicebus_lag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OBSERVATION: Final = "servicebus"
log = logging.getLogger("emubus.spark")


@dataclass(frozen=True)
class QueryProgress:
    """One batch of a query, or a look without a batch.

    `sources` are the paths of the entities that it reads, `lag` the sequence numbers that it has still to read of them,
    None if Spark does not report that (before 4.2, and with mode=claim). `body_bytes` is None unless the frame is
    `observed`. `rows_written` is None if Spark does not know it. `unavailable` are the partitions that could not be
    reached at the last look, by entity.
    """

    query: str
    batch: int
    sources: tuple[str, ...]
    rows: int
    rows_per_s: float
    rows_written: int | None
    body_bytes: int | None
    lag: int | None
    unavailable: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def __str__(self) -> str:
        parts = [
            f"{', '.join(self.sources)}: batch {self.batch} of query {self.query}",
            f"{self.rows} rows read ({self.rows_per_s:.0f} rows/s)",
            *([f"{self.body_bytes} bytes"] if self.body_bytes is not None else []),
            *([f"{self.rows_written} rows written"] if self.rows_written is not None else []),
            *([f"{self.lag} to read"] if self.lag is not None else []),
            *(f"partitions {', '.join(map(str, ids))} of {name} unavailable" for name, ids in self.unavailable.items()),
        ]
        return ", ".join(parts)


def observed(frame: DataFrame) -> DataFrame:
    """The frame, with the bytes of its column `body` counted for `QueryProgress`."""
    from pyspark.sql import functions as f

    return frame.observe(OBSERVATION, f.sum(f.octet_length("body")).alias("bytes"))


def servicebus_progress(progress: Any) -> QueryProgress | None:
    """What a `StreamingQueryProgress` (or its JSON, as text or dict) says; None if the query reads no Service Bus."""
    if progress is None:
        return None
    if isinstance(progress, str):
        progress = json.loads(progress)
    latest = [pair for each in _get(progress, "sources") or () for pair in _last_offsets(each).items()]
    if not latest:
        return None
    lags = servicebus_lag(progress)
    seen = (_get(progress, "observedMetrics") or {}).get(OBSERVATION)
    written = _get(_get(progress, "sink"), "numOutputRows")
    return QueryProgress(
        query=str(_get(progress, "name") or _get(progress, "id")),
        batch=int(_get(progress, "batchId")),
        sources=tuple(entity for entity, _ in latest),
        rows=int(_get(progress, "numInputRows") or 0),
        rows_per_s=float(_get(progress, "processedRowsPerSecond") or 0.0),
        rows_written=None if written is None or written < 0 else int(written),
        body_bytes=None if seen is None else int(seen["bytes"] or 0),
        lag=sum(sum(each.values()) for each in lags.values()) if lags else None,
        unavailable={entity: tuple(sorted(offset["out"])) for entity, offset in latest if offset.get("out")},
    )


class ProgressListener(StreamingQueryListener):
    """Passes the progress of all queries that read Service Bus to `report`, which logs it by default.

    It is called on a thread of Spark's and must not raise: Spark would drop the error.
    """

    def __init__(self, report: Callable[[QueryProgress], None] | None = None) -> None:
        self._report = report or _log_it

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's names, here and below
        """Not used."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        found = servicebus_progress(event.progress)
        if found is not None:
            self._report(found)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Not used."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Not used."""


def _log_it(progress: QueryProgress) -> None:
    log.info("%s", progress)


def _get(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def _last_offsets(source: Any) -> dict[str, Mapping[str, Any]]:
    """The newest offset of each entity that one source's report has; none for other formats."""
    newest = {**offsets_of(_get(source, "endOffset")), **offsets_of(_get(source, "latestOffset"))}
    return newest or offsets_of(_get(source, "startOffset"))
