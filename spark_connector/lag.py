"""How far a query is behind, from the offsets in Spark's progress reports.

Knows the JSON of the offsets. Does not ask the service: the numbers are as old as the report. Numbers may have gaps
(messages that were removed or expired), so a lag is an upper bound; that of a sub-queue is counted. Claims have no lag,
because it is not known what other consumers take.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from .source.several.offsets import KEY

FIRST: Final = 1  # the first message of a partition has this number

log = logging.getLogger("emubus.spark")


def servicebus_lag(progress: Any) -> dict[str, dict[int, int]]:
    """Sequence numbers still to read, by entity and partition id, from a query's progress.

    `progress` is a `StreamingQueryProgress`, or its JSON as text or dict (as `query.lastProgress` is in some versions).
    Sources of other formats are ignored; None and a query without progress give {}. A partition that could not be
    reached has a lag of at least 1, because its end is not known (see `servicebus_unavailable`).
    """
    found: dict[str, dict[int, int]] = {}
    for source in _sources(progress):
        ends = offsets_of(_get(source, "endOffset"))
        for entity, latest in offsets_of(_get(source, "latestOffset")).items():
            if "unread" in latest:  # of a sub-queue
                lags = {int(each): int(count) for each, count in latest["unread"].items()}
            elif "p" in latest:
                read = ends.get(entity, {}).get("p", {})
                lags = {
                    int(each): max(0, number - max(read.get(each, 0), FIRST)) for each, number in latest["p"].items()
                }
            else:
                continue  # a claim
            lags |= {each: max(1, lags.get(each, 0)) for each in latest.get("out", ())}
            sums = found.setdefault(entity, {})
            for partition, count in lags.items():
                sums[partition] = max(count, sums.get(partition, 0))
    return found


def servicebus_unavailable(progress: Any) -> dict[str, set[int]]:
    """Ids of the partitions that could not be reached, by entity; `progress` as in `servicebus_lag`."""
    found: dict[str, set[int]] = {}
    for source in _sources(progress):
        for entity, latest in offsets_of(_get(source, "latestOffset")).items():
            if latest.get("out"):
                found.setdefault(entity, set()).update(latest["out"])
    return found


def offsets_of(raw: Any) -> dict[str, Mapping[str, Any]]:
    """The offsets of one source's report, by entity; nothing for other formats and missing offsets."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            return {}
    if not isinstance(raw, Mapping) or "v" not in raw:
        return {}
    several = raw.get(KEY)
    offsets = several.values() if isinstance(several, Mapping) else [raw]
    return {str(each["e"]): each for each in offsets if isinstance(each, Mapping) and "e" in each}


class LagListener(StreamingQueryListener):
    """Logs the lag after each progress report: `spark.streams.addListener(LagListener())`."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's names, here and below
        """Not used."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Log one line per entity, and one for partitions that can't be reached."""
        for entity, partitions in servicebus_unavailable(event.progress).items():
            log.warning("%s: partitions %s can't be reached", entity, sorted(partitions))
        for entity, lags in servicebus_lag(event.progress).items():
            behind = {each: count for each, count in sorted(lags.items()) if count}
            log.info("%s: %d sequence numbers to read, by partition %s", entity, sum(behind.values()), behind)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Not used."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Not used."""


def _sources(progress: Any) -> list[Any]:
    if progress is None:
        return []
    if isinstance(progress, str):
        progress = json.loads(progress)
    if isinstance(progress, Mapping):
        return list(progress.get("sources", ()))
    return list(progress.sources)


def _get(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name)
