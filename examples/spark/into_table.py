"""Stream the messages of an entity into a Delta or an Iceberg table, each message once.

Both formats keep the query and the number of its micro-batch with what a commit adds to the table. A batch that Spark
repeats after a crash, because its own note of the commit was lost, changes nothing then. Nothing else is needed: the
connector reads a repeated batch with the same rows. The messages stay in the entity unless --mode says otherwise.

    spark-submit --packages io.delta:delta-spark_4.0_2.13:4.1.0 into_table.py --format delta --table /tables/orders \\
        --connection-string-file secret.txt --queue orders --checkpoint /checkpoints/orders --available-now
    spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0 into_table.py --format iceberg \\
        --table lake.shop.orders …    # lake is a catalog of spark-defaults.conf
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import job

from emubus.spark_connector.options import source_options

FORMATS: Final = ("delta", "iceberg")


def main(argv: Sequence[str] | None = None) -> int:
    parser = job.make_parser("into_table", __doc__)
    job.add_connection(parser, what="the source, like maxMessagesPerTrigger=100000")
    job.add_source(parser)
    parser.add_argument("--format", choices=FORMATS, required=True)
    parser.add_argument("--table", required=True, help="delta: a folder or URL; iceberg: catalog.namespace.name")
    parser.add_argument("--checkpoint", metavar="FOLDER", required=True, help="where progress is kept")
    parser.add_argument("--mode", default="browse", help="browse (default), drain, or claim with --option claimId=NAME")
    job.add_trigger(parser)
    return job.run(parser, into_table, argv)


def into_table(run: job.Job) -> str:
    """Read from the checkpoint and add to the table, until stopped or finished."""
    arguments = run.arguments
    options = job.connector_options(arguments, mode=arguments.mode)
    entity = source_options(options, streaming=True).entity
    trigger = job.trigger_of(arguments)
    frame = run.spark.readStream.format("servicebus").options(**options).load()
    if arguments.format == "iceberg":  # a Delta table is made by its first rows
        columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in frame.schema)
        run.spark.sql(f"CREATE TABLE IF NOT EXISTS {arguments.table} ({columns}) USING iceberg")
    writer = frame.writeStream.format(arguments.format).option("checkpointLocation", arguments.checkpoint)
    writer = writer.outputMode("append").trigger(**trigger)
    query = writer.start(arguments.table) if arguments.format == "delta" else writer.toTable(arguments.table)
    batches = run.follow(query)
    return run.summary(batches.rows, f"of {entity} added to {arguments.table} ({batches.count} batches)")


if __name__ == "__main__":
    sys.exit(main())
