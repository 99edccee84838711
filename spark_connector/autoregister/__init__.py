"""Installed as the top-level package `pyspark_servicebus`: Spark imports every package `pyspark_*` at the first use of
a Python data source, and registers its `DefaultSource`.

Knows where the data source is. Must never fail to import, because Spark would then ignore all such packages. So without
the connector's dependencies there is no `DefaultSource`, and Spark reports an unknown format.
"""

from __future__ import annotations

import importlib
import logging

try:
    # Not a relative import: this package stands beside `emubus`, not in it, where it is installed.
    DefaultSource = importlib.import_module("emubus.spark_connector.datasource").ServiceBusDataSource
except Exception as error:
    logging.getLogger("emubus.spark").debug("format servicebus is not registered: %s", error)
