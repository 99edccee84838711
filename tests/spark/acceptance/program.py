"""A Spark driver of its own, to be killed: `python program.py PLAN`, with the plan as JSON.

Runs streaming queries, and starts each again from its checkpoint when it fails, for ever. One JSON object per line on
stdout tells what happens. A line on stdin makes it finish: all queries run once more until nothing is left
(Trigger.AvailableNow), and the program ends. Knows nothing of what is tested.
"""

from __future__ import annotations

import json
import select
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.2


def tell(event: str, query: str, **more: object) -> None:
    """Write one line for the parent process."""
    sys.stdout.write(json.dumps({"event": event, "query": query, **more}) + "\n")
    sys.stdout.flush()


class Runner:
    """Keeps one query running."""

    def __init__(self, spark: SparkSession, name: str, plan: dict[str, Any]) -> None:
        self._spark = spark
        self._name = name
        self._plan = plan
        self._query: StreamingQuery | None = None
        self._is_last = False
        self._batch = -1
        self.is_ended = False

    @property
    def is_starting(self) -> bool:
        """Whether the query has started and has no batch yet."""
        return self._query is not None and self._batch < 0

    def look(self, seconds: float, *, finish: bool, may_start: bool) -> None:
        """Follow the query for a moment: start it if it doesn't run and may, tell what happened to it."""
        if self.is_ended:
            return
        if self._query is None:
            if not may_start:
                return
            self._is_last = finish
            self._query = self._start()
            self._batch = -1
            tell("started", self._name)
        if finish and not self._is_last:
            self._query.stop()
        try:
            has_ended = self._query.awaitTermination(seconds)  # type: ignore[arg-type]  # parts of a second will do
        except Exception as error:
            tell("failed", self._name, error=str(error))
            self._query = None
            return
        progress = self._query.lastProgress
        if progress is not None and progress.batchId > self._batch:
            self._batch = progress.batchId
            tell("batch", self._name, batch=self._batch, rows=progress.numInputRows)
        if has_ended:
            self._query = None
            self.is_ended = self._is_last

    def _start(self) -> StreamingQuery:
        read, write = self._plan["read"], self._plan["write"]
        reader = self._spark.readStream.format(read["format"]).options(**read["options"])
        if "schema" in read:
            reader = reader.schema(read["schema"])
        frame = reader.load().selectExpr(*self._plan["select"])
        if "copies" in self._plan:
            frame = frame.selectExpr("*", f"explode(sequence(1, {self._plan['copies']})) AS copy").drop("copy")
            frame = frame.repartition(self._plan["partitions"])
        writer = frame.writeStream.queryName(self._name).format(write["format"]).options(**write["options"])
        if self._is_last:
            writer = writer.trigger(availableNow=True)
        elif "every" in self._plan:
            writer = writer.trigger(processingTime=self._plan["every"])
        return writer.start()


def main() -> None:
    """Run the plan: {"conf": {…}, "queries": {name: {"read": …, "select": […], "write": …}}}.

    A plan may have a "master", and a query may have "every": the time between its batches, and "copies": how many
    equal rows are made of each, in so many "partitions".
    """
    from pyspark.sql import SparkSession

    from emubus.spark_connector import register

    plan = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(plan.get("master", "local[2]")).appName("emubus acceptance")
    for key, value in plan["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    runners = [Runner(spark, name, query) for name, query in plan["queries"].items()]
    finish = False
    while not all(runner.is_ended for runner in runners):
        finish = finish or bool(select.select([sys.stdin], [], [], 0)[0])
        for runner in runners:
            # Spark gives the processes of a query ten seconds to start, which many at a time may need.
            may_start = not any(each.is_starting for each in runners)
            runner.look(LOOK_S / len(runners), finish=finish, may_start=may_start)
    spark.stop()
    tell("ended", "")


if __name__ == "__main__":
    main()
