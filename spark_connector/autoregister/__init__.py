"""Installed as the top-level package `pyspark_servicebus`: Spark imports every package called `pyspark_*` when a Python
data source is first asked for, and registers its `DefaultSource`.

Knows where the data source is. May never fail to import: Spark would give up on all such packages, ours and others'. So
without the connector's dependencies there is no `DefaultSource`, and Spark says that it does not know the format.
"""

from __future__ import annotations

import importlib
import logging

try:
    # Not a relative import: this package stands beside `emubus`, not in it, where it is installed.
    DefaultSource = importlib.import_module("emubus.spark_connector.datasource").ServiceBusDataSource
except Exception as error:
    logging.getLogger("emubus.spark").debug("format servicebus is not registered: %s", error)
