"""Keep the messages of an entity, or its dead letters, in Parquet files.

Each message is in the archive once, however often the program is stopped and started: files and progress are committed
together. The messages stay in the entity unless --drain is given. Application properties keep their AMQP types (as
JSON), so that replay restores them.

    archive --connection-string-file secret.txt --queue orders --output /archive/orders --available-now
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import job

from emubus.spark_connector.options import source_options


def main(argv: Sequence[str] | None = None) -> int:
    parser = job.make_parser("archive", __doc__)
    job.add_connection(parser, what="the source, like maxMessagesPerTrigger=100000")
    job.add_source(parser)
    parser.add_argument("--output", metavar="FOLDER", required=True, help="folder or URL of the archive")
    parser.add_argument(
        "--checkpoint", metavar="FOLDER", help="where progress is kept; default: _checkpoint in the archive"
    )
    parser.add_argument("--drain", action="store_true", help="delete messages when they are safe in the archive")
    job.add_trigger(parser)
    return job.run(parser, archive, argv)


def archive(run: job.Job) -> str:
    """Read from the checkpoint and write files, until stopped or finished."""
    arguments = run.arguments
    mode = {"mode": "drain"} if arguments.drain else {}
    options = job.connector_options(arguments, applicationPropertiesFormat="json", **mode)
    entity = source_options(options, streaming=True).entity
    trigger = job.trigger_of(arguments)
    output = arguments.output.rstrip("/")
    frame = run.spark.readStream.format("servicebus").options(**options).load()
    query = (
        frame.writeStream.format("parquet")
        .option("path", output)
        .option("checkpointLocation", arguments.checkpoint or f"{output}/_checkpoint")
        .trigger(**trigger)
        .start()
    )
    batches = run.follow(query)
    return run.summary(batches.rows, f"of {entity} archived in {output} ({batches.count} batches)")


if __name__ == "__main__":
    sys.exit(main())
