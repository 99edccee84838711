"""A job for a cluster: `spark-submit job.py PLAN`, with the plan as JSON.

Writes to a queue, streams it to another queue, that to a third one without emubus's own operations, and reads that.
Prints what it found.
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
    """Run on `{"options": …, "queues": [first, second, third], "count": rows, "checkpoint": path}`."""
    from pyspark.sql import SparkSession

    from emubus.spark_connector import register

    plan = json.loads(sys.argv[1])
    options, queues = plan["options"], plan["queues"]
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    made = spark.range(plan["count"], numPartitions=2).selectExpr("CAST(id AS STRING) AS body")
    made.write.format("servicebus").mode("append").options(**options, queue=queues[0]).save()
    for operations, source, target in zip(("all", "standard"), queues[:-1], queues[1:], strict=True):
        reader = spark.readStream.format("servicebus").options(**options, queue=source, serviceOperations=operations)
        writer = reader.load().writeStream.format("servicebus").options(**options, queue=target)
        writer = writer.option("checkpointLocation", f"{plan['checkpoint']}-{operations}")
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(QUERY_S_MAX):
            raise SystemExit("the query does not come to its end")
    copied = spark.read.format("servicebus").options(**options, queue=queues[-1]).load()
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
