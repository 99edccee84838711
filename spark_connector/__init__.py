"""Service Bus as a source and sink of Spark: `format("servicebus")`, on Spark 4.0 and newer.

    spark.read.format("servicebus").option("connectionString", …).option("queue", "orders").load()

How it is made:

* Messages have sequence numbers, and reading by them (peeking) takes no locks. So a source is a range of numbers per
  partition, as with a log: it can be planned on the driver, split over tasks and read again after a failure with
  the same result. What a query has seen is in its checkpoint, as everywhere in Spark. Nothing is removed by default:
  `mode=drain` deletes behind the checkpoint, `mode=claim` takes messages away from other consumers first (`source`).
* A sink sends batches and waits for their outcomes. A repeated task makes the same message ids, so an entity with
  duplicate detection keeps one of each (`sink`).
* Spark makes data sources, readers and writers in several processes and pickles them between these. They hold options
  only; connections are made where they are used and shared by the tasks of a worker (`wire.pool`).
* `wire` is a client for Service Bus's AMQP of its own, since blocking clients spend more on each message than Spark
  spends on a thousand. `codec` makes Arrow columns of encoded messages and back, without objects between.

Folders: `wire` (connections), `codec` (bytes and columns), `source`, `sink`, `pipelines` (ready-made uses),
`autoregister` (installed as `pyspark_servicebus`). Files: `datasource` (what Spark asks), `option_table` and `options`,
`schema`, `position`, `durations`, `errors`, `timing`, `worker`, `registration`.

The connector imports nothing of the broker, and works with any Service Bus. Names are imported when first used, so that
this package can be imported where Spark is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .datasource import ServiceBusDataSource
    from .errors import Code, ConnectorError
    from .lag import LagListener, servicebus_lag
    from .registration import register

__all__ = ["Code", "ConnectorError", "LagListener", "ServiceBusDataSource", "register", "servicebus_lag"]

_HOMES = {
    "Code": ".errors",
    "ConnectorError": ".errors",
    "LagListener": ".source.lag",
    "ServiceBusDataSource": ".datasource",
    "register": ".registration",
    "servicebus_lag": ".source.lag",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
