"""Copies a queue to another one as a stream, and ends when the present messages are copied.

    SERVICEBUS_CONNECTION_STRING=… spark-submit copy_job.py orders copies /shared/checkpoint

With duplicate detection on the target, each message is there once, however often the job is killed and started again.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from emubus.spark_connector import ProgressListener, observed, register


def main() -> None:
    """Copy; the arguments are the two queues and the folder of the checkpoint, which all nodes see."""
    source, target, checkpoint = sys.argv[1:]
    options = {"connectionString": os.environ["SERVICEBUS_CONNECTION_STRING"]}
    spark = SparkSession.builder.appName(f"copy of {source}").getOrCreate()
    register(spark)
    spark.streams.addListener(ProgressListener(print))
    frame = spark.readStream.format("servicebus").options(**options, queue=source).load()
    writer = observed(frame).writeStream.format("servicebus").options(**options, queue=target)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
