"""A job for a cluster: `spark-submit job.py PLAN`, with the plan as JSON.

Writes to a queue, streams it to another queue, and reads that. Prints what it found.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ONLY_THE_BROKER_S = ["aiohttp", "lark", "lmdb", "sortedcontainers", "structlog", "uvloop"]
QUERY_S_MAX = 900


def look_around(_: Iterable[Any]) -> Iterator[tuple[str, list[str]]]:
    """Which executor this is (each has a folder of its own), and which of the broker's packages it lacks."""
    yield Path.cwd().name, [name for name in ONLY_THE_BROKER_S if importlib.util.find_spec(name) is None]


def main() -> None:
    """Run on `{"options": …, "queues": [first, second], "count": rows, "checkpoint": path}`."""
    from pyspark.sql import SparkSession

    from emubus.spark_connector import register

    plan = json.loads(sys.argv[1])
    options, (first, second) = plan["options"], plan["queues"]
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    made = spark.range(plan["count"], numPartitions=2).selectExpr("CAST(id AS STRING) AS body")
    made.write.format("servicebus").mode("append").options(**options, queue=first).save()
    stream = spark.readStream.format("servicebus").options(**options, queue=first).load()
    writer = stream.writeStream.format("servicebus").options(**options, queue=second)
    query = writer.option("checkpointLocation", plan["checkpoint"]).trigger(availableNow=True).start()
    if not query.awaitTermination(QUERY_S_MAX):
        raise SystemExit("the query does not come to its end")
    copied = spark.read.format("servicebus").options(**options, queue=second).load()
    found = spark.sparkContext.parallelize(range(8), 8).mapPartitions(look_around).collect()
    result = {
        "version": spark.version,
        "numbers": sorted(int(row.body) for row in copied.selectExpr("CAST(body AS STRING) AS body").collect()),
        "executors": sorted({name for name, _ in found}),
        "unknown": sorted({name for _, names in found for name in names}),
    }
    sys.stdout.write(f"RESULT {json.dumps(result)}\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
