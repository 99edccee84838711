"""Service Bus as a source and sink of Spark: `format("servicebus")`, on Spark 4.0 and newer.

    spark.read.format("servicebus").option("connectionString", …).option("queue", "orders").load()

How it works:

* Messages have sequence numbers, and peeking by number takes no locks. So a source is a range of numbers per partition,
  as in a log: the driver plans it, tasks share it, and after a failure it is read again with the same result. The
  checkpoint holds the position of a query. By default nothing is removed: `mode=drain` deletes what is below the
  checkpoint, `mode=claim` takes messages away from other consumers first (`source`).
* A sink sends batches and waits for their outcomes. A repeated task makes the same message ids, so an entity with
  duplicate detection keeps one copy of each message (`sink`).
* Spark creates data sources, readers and writers in several processes and pickles them. They hold options only;
  connections are opened where they are used and shared by the tasks of a worker (`wire.pool`).
* `wire` is a Service Bus AMQP client written for this purpose: a blocking client spends more time on one message than
  Spark spends on a thousand. `codec` converts encoded messages to Arrow columns and back, without objects in between.

Floors, from the ground up: `errors`, `timing`, `position`, `choice`, `conditions`; `dialing` (streams and credentials)
and `wire` (connections); `codec` (bytes and columns); `option_table`, `options` and `schema`; `source` and `sink`; on
top `datasource` (Spark's entry point), `registration`, `lag` and `progress` (reports).
`autoregister` is installed as `pyspark_servicebus`. tests/test_architecture.py holds who may import whom.

The connector imports nothing of the broker and works with any Service Bus. Names are imported at their first use, so
this package can be imported where Spark is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .datasource import ServiceBusDataSource
    from .errors import Code, ConnectorError
    from .lag import LagListener, servicebus_lag, servicebus_unavailable
    from .progress import ProgressListener, QueryProgress, observed, servicebus_progress
    from .registration import register

__all__ = [
    "Code",
    "ConnectorError",
    "LagListener",
    "ProgressListener",
    "QueryProgress",
    "ServiceBusDataSource",
    "observed",
    "register",
    "servicebus_lag",
    "servicebus_progress",
    "servicebus_unavailable",
]

_HOMES = {
    "Code": ".errors",
    "ConnectorError": ".errors",
    "LagListener": ".lag",
    "ProgressListener": ".progress",
    "QueryProgress": ".progress",
    "ServiceBusDataSource": ".datasource",
    "observed": ".progress",
    "register": ".registration",
    "servicebus_lag": ".lag",
    "servicebus_progress": ".progress",
    "servicebus_unavailable": ".lag",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
