"""Send the messages of an archive to a queue or topic.

Messages with the same session id or partition key are sent in the order of their sequence numbers; others travel
in parallel (--total-order sends all of them one after the other). Message ids are kept, and messages without one get an
id from their sequence number, so with duplicate detection a repeated replay leaves one of each. Times to live start
again.

    replay --connection-string-file secret.txt --input /archive/orders --queue orders --where "subject = 'created'"
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import job

from emubus.spark_connector.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TASKS: Final = 16
TASKS_MAX: Final = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    parser = job.make_parser("replay", __doc__)
    job.add_connection(parser, what="the sink; applicationPropertiesFormat=text for an archive written so")
    job.add_target(parser)
    parser.add_argument("--input", metavar="FOLDER", required=True, help="folder or URL of the archive")
    parser.add_argument("--where", metavar="SQL", help="only rows for which this holds")
    parser.add_argument("--total-order", action="store_true", help="send all messages in order, by one task")
    parser.add_argument(
        "--tasks", type=tasks, default=TASKS, help="into how many the rows are cut; default %(default)s"
    )
    return job.run(parser, replay, argv)


def tasks(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= TASKS_MAX:
        raise ArgumentTypeError(f"{text!r} is no number from 1 to {TASKS_MAX}")
    return int(text)


def replay(run: job.Job) -> str:
    arguments = run.arguments
    options = job.connector_options(arguments, applicationPropertiesFormat="json")
    if arguments.total_order:
        options["ordered"] = "true"
    entity = sink_options(options, streaming=False).entity
    frame = run.spark.read.parquet(arguments.input)
    if arguments.where:
        frame = frame.where(arguments.where)
    rows = run.watch(frame.count)
    ordered = in_order(job.as_frame_to_send(frame, "replay"), 1 if arguments.total_order else arguments.tasks)
    writer = ordered.write.format("servicebus").options(**options).mode("append")
    run.say(f"{rows:,} rows to send")
    run.watch(writer.save)
    return run.summary(rows, f"of {arguments.input} sent" + (f" to {entity}" if entity else ""))


def in_order(frame: DataFrame, count: int) -> DataFrame:
    """The frame in `count` partitions, each sorted, with all messages of a key in one of them."""
    if count == 1:
        return frame.coalesce(1).sortWithinPartitions("sequenceNumber")
    return frame.repartition(count, _key(frame)).sortWithinPartitions("sequenceNumber")


def _key(frame: DataFrame) -> Column:
    """What keeps messages together; those without a key are spread."""
    from pyspark.sql import functions as f

    known = {column.lower() for column in frame.columns}
    keys = [f.col(name) for name in ("sessionId", "partitionKey") if name.lower() in known]
    return f.coalesce(*keys, f.col("sequenceNumber").cast("string"))


if __name__ == "__main__":
    sys.exit(main())
