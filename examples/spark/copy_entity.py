"""Copy the messages of an entity, or its dead letters, to a queue or topic, also of another namespace.

Runs until it is stopped, or until the present messages are copied (--available-now); both continue from their
checkpoint. --once needs no checkpoint and copies all present messages at each run. Messages with the same session id or
partition key keep their order. A batch that is sent again after a crash has the same message ids, so duplicate
detection keeps one of each. The messages stay in the source unless --drain is given.

    copy_entity --from-connection-string-file a.txt --from-queue orders --from-dead-letters \\
        --to-connection-string-file b.txt --to-queue repaired --once
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import job

from emubus.spark_connector.options import sink_options, source_options


def main(argv: Sequence[str] | None = None) -> int:
    parser = job.make_parser("copy_entity", __doc__)
    job.add_connection(parser, "from-", "the source")
    job.add_source(parser, "from-")
    job.add_connection(parser, "to-", "the sink")
    job.add_target(parser, "to-")
    parser.add_argument("--checkpoint", metavar="FOLDER", help="where progress is kept; needed unless --once is given")
    parser.add_argument("--once", action="store_true", help="copy the present messages and keep no progress")
    parser.add_argument("--drain", action="store_true", help="delete messages when they are copied")
    job.add_trigger(parser)
    return job.run(parser, copy_entity, argv)


def copy_entity(run: job.Job) -> str:
    arguments = run.arguments
    if arguments.once == (arguments.checkpoint is not None):
        raise job.WrongArgumentsError("give one of --once and --checkpoint")
    mode = {"mode": "drain"} if arguments.drain else {}
    source = job.connector_options(arguments, "from-", applicationPropertiesFormat="json", **mode)
    target = job.connector_options(arguments, "to-", applicationPropertiesFormat="json")
    from_entity = source_options(source, streaming=not arguments.once).entity
    to_entity = sink_options(target, streaming=not arguments.once).entity
    if to_entity is None:
        raise job.WrongArgumentsError("give one of --to-queue and --to-topic")
    what = f"of {from_entity} copied to {to_entity}"
    trigger = job.trigger_of(arguments)
    if arguments.once:
        return run.summary(_copy_once(run, source, target), what)
    frame = run.spark.readStream.format("servicebus").options(**source).load()
    query = (
        job.as_frame_to_send(frame, "copy")
        .writeStream.format("servicebus")
        .options(**target)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(**trigger)
        .start()
    )
    batches = run.follow(query)
    return run.summary(batches.rows, f"{what} ({batches.count} batches)")


def _copy_once(run: job.Job, source: dict[str, str], target: dict[str, str]) -> int:
    """Copy the present messages; returns the number of rows."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    frame = run.spark.read.format("servicebus").options(**source).load()
    counted = job.as_frame_to_send(frame, "copy").observe(seen, f.count(f.lit(1)).alias("rows"))
    run.watch(counted.write.format("servicebus").options(**target).mode("append").save)
    return int(seen.get["rows"])


if __name__ == "__main__":
    sys.exit(main())
