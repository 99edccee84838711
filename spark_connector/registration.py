"""Tells Spark of the format.

Knows the one call. Refuses to start or configure sessions. Needed where `pyspark_servicebus` isn't found by Spark: in
an editable install, or when another `pyspark_*` package of the environment can't be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("servicebus")` known to the session; again, or where Spark has found it itself, does no harm."""
    from pyspark.errors import AnalysisException

    from .datasource import ServiceBusDataSource

    try:
        spark.dataSource.register(ServiceBusDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
