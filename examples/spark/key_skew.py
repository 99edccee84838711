"""Show how messages and their keys spread over the partitions of an entity, or of an archive of one.

Prints a table by partition and the largest keys, and draws both into an SVG file. The key of a message is its session
id, else its partition key, as in the service; --key chooses another column. Bodies are not read into rows.

    key_skew --connection-string-file secret.txt --queue orders --plot orders.svg
    key_skew --input /archive/orders --key messageId
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import job
from chart import KeyCount, draw, shortened

from emubus.spark_connector.options import source_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PARTITIONS: Final = 16
TOP, TOP_MAX = 10, 1_000
BAR_CHARS: Final = 30
KEYS: Final = ("auto", "sessionId", "partitionKey", "messageId", "subject", "correlationId")


@dataclass(frozen=True)
class Partition:
    """What one partition holds: messages, those of them without a key, and different keys."""

    messages: int = 0
    keyless: int = 0
    keys: int = 0


@dataclass(frozen=True)
class Skew:
    """The spread of messages: by partition id, and the largest keys, largest first."""

    partitions: dict[int, Partition]
    top_keys: list[KeyCount]

    @property
    def total(self) -> int:
        return sum(each.messages for each in self.partitions.values())


def main(argv: Sequence[str] | None = None) -> int:
    parser = job.make_parser("key_skew", __doc__)
    job.add_connection(parser, what="the source")
    job.add_source(parser)
    parser.add_argument("--input", metavar="FOLDER", help="an archive to look at instead of an entity")
    parser.add_argument("--key", choices=KEYS, default=KEYS[0], help="what to take for the key; default %(default)s")
    parser.add_argument(
        "--top", type=_top, default=TOP, help="how many of the largest keys to show; default %(default)s"
    )
    parser.add_argument("--plot", metavar="FILE", default="key-skew.svg", help="what to draw to; default %(default)s")
    return job.run(parser, key_skew, argv)


def _top(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= TOP_MAX:
        raise ArgumentTypeError(f"{text!r} is no number from 1 to {TOP_MAX}")
    return int(text)


def key_skew(run: job.Job) -> str:
    arguments = run.arguments
    plot = Path(arguments.plot)
    if plot.suffix.lower() != ".svg" or not plot.parent.is_dir():
        raise job.WrongArgumentsError(
            f"--plot {arguments.plot!r} must be a file ending in .svg in a folder that exists"
        )
    what, frame = _frame(run)
    skew = measure(run, frame, arguments.key, arguments.top)
    title = f"{what}: {skew.total:,} messages"
    plot.write_text(draw(title, {each: found.messages for each, found in skew.partitions.items()}, skew.top_keys))
    return "\n".join([title, *table(skew), f"drawn to {plot}"])


def _frame(run: job.Job) -> tuple[str, DataFrame]:
    """What is looked at, in words and as a frame."""
    arguments = run.arguments
    options = job.connector_options(arguments)
    if arguments.input is not None:
        if options:
            raise job.WrongArgumentsError("give either --input or an entity with its connection, not both")
        return arguments.input, run.spark.read.parquet(arguments.input)
    entity = source_options(options, streaming=False).entity
    columns = ["sessionId", "partitionKey"] if arguments.key == "auto" else [arguments.key]
    schema = ", ".join(["partitionId INT", *(f"{name} STRING" for name in columns)])
    return entity, run.spark.read.format("servicebus").schema(schema).options(**options).load()


def measure(run: job.Job, frame: DataFrame, key: str, top: int) -> Skew:
    """Count messages and keys; `top` of the largest keys are named."""
    from pyspark.sql import functions as f

    counts = frame.groupBy("partitionId", _key(key).alias("key")).count().coalesce(PARTITIONS).persist()
    try:
        by_partition = counts.groupBy("partitionId").agg(
            f.sum("count").alias("messages"),
            f.sum(f.when(f.col("key").isNull(), f.col("count")).otherwise(0)).alias("keyless"),
            f.count("key").alias("keys"),
        )
        rows = run.watch(by_partition.collect)
        largest = counts.where("key IS NOT NULL").orderBy(f.desc("count"), "key", "partitionId").limit(top)
        found = {row.partitionId: Partition(row.messages, row.keyless, row["keys"]) for row in rows}
        top_keys = [KeyCount(row.key, row.partitionId, row["count"]) for row in run.watch(largest.collect)]
    finally:
        counts.unpersist()
    # An entity that isn't partitioned has the partition 0 only.
    known = range(PARTITIONS) if max(found, default=0) > 0 else range(1)
    return Skew({each: found.get(each, Partition()) for each in sorted({*known, *found})}, top_keys)


def _key(key: str) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce("sessionId", "partitionKey") if key == "auto" else f.col(key)


def table(skew: Skew) -> Iterator[str]:
    total, most = skew.total, max(each.messages for each in skew.partitions.values())
    yield f"{'partition':>9}  {'messages':>12}  {'share':>6}  {'keys':>9}  {'keyless':>9}"
    for partition, each in skew.partitions.items():
        bar = "█" * round(BAR_CHARS * each.messages / most) if most else ""
        share = f"{each.messages / total:6.1%}" if total else f"{'-':>6}"
        yield (f"{partition:>9}  {each.messages:>12,}  {share}  {each.keys:>9,}  {each.keyless:>9,}  {bar}".rstrip())
    mean = total / len(skew.partitions)
    if total:
        yield f"the fullest has {most / mean:.2f} times the mean of {mean:,.1f}"
    if skew.top_keys:
        yield f"{'partition':>9}  {'messages':>12}  {'share':>6}  key"
    for key, partition, messages in skew.top_keys:
        yield f"{partition:>9}  {messages:>12,}  {messages / total:6.1%}  {shortened(key)}"


if __name__ == "__main__":
    sys.exit(main())
