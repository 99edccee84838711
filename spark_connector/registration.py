"""Registers the format with Spark.

Needed where Spark does not find `pyspark_servicebus`: in an editable install, or if another `pyspark_*` package of the
environment can't be imported. Does not start or configure sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("servicebus")` known to the session; repeating it does no harm."""
    from pyspark.errors import AnalysisException

    from .datasource import ServiceBusDataSource

    try:
        spark.dataSource.register(ServiceBusDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
