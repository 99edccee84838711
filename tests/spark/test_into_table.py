"""The recipe `into_table.py`: each message once in a Delta and in an Iceberg table, also when a batch is repeated.

Maven's repository has both formats for the oldest Spark that the connector works with, so it runs in that one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from emubus.testing import EmubusServer

from ..building import ROOT
from ..programs import PROGRAM_S_MAX
from ..rounds import IS_LONG
from .conftest import MakeQueue
from .prepare import PYTHON_SPARK40, SITE_SPARK40
from .source.kit import send_texts

PROGRAM = ROOT / "examples" / "spark" / "into_table.py"
PACKAGES = {
    "delta": "io.delta:delta-spark_4.0_2.13:4.1.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
}
LOOK = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
table = spark.read.format("delta").load(sys.argv[2]) if sys.argv[1] == "delta" else spark.table(sys.argv[2])
print("ROWS", json.dumps(sorted(int(bytes(row.body)) for row in table.collect())))
"""


def test_the_recipe_names_the_packages_that_it_is_tried_with() -> None:
    text = PROGRAM.read_text()
    assert [each for each in PACKAGES.values() if each not in text] == []


if IS_LONG:  # four starts of Spark for each format, and its package from Maven

    @pytest.mark.usefixtures("spark40")
    @pytest.mark.timeout(1800)
    @pytest.mark.parametrize("table_format", PACKAGES)
    def test_a_repeated_batch_adds_nothing_to_the_table(
        table_format: str, server: EmubusServer, make_queue: MakeQueue, tmp_path: Path
    ) -> None:
        queue = make_queue(enable_partitioning=True)
        (tmp_path / "secret.txt").write_text(server.connection_string)
        table = str(tmp_path / "table") if table_format == "delta" else "lake.shop.orders"
        checkpoint = tmp_path / "checkpoint"
        words = ["--connection-string-file", str(tmp_path / "secret.txt"), "--queue", queue, "--available-now"]
        command = [str(PROGRAM), "--format", table_format, "--table", table, "--checkpoint", str(checkpoint), *words]
        send_texts(server, queue, 300)
        submit(table_format, tmp_path, command)
        (checkpoint / "commits" / "0").unlink()  # Spark died between the table's commit and its own
        (checkpoint / "commits" / ".0.crc").unlink()
        send_texts(server, queue, 100, first=300)
        submit(table_format, tmp_path, command)  # Spark 4.0 ends with the repeated batch
        submit(table_format, tmp_path, command)
        (tmp_path / "look.py").write_text(LOOK)
        told = submit(table_format, tmp_path, [str(tmp_path / "look.py"), table_format, table])
        assert json.loads(told.partition("ROWS ")[2].splitlines()[0]) == list(range(400))


def submit(table_format: str, folder: Path, command: list[str]) -> str:
    """Run a program with a format's package; what it has written to stdout."""
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "300s",  # a busy machine starts Python in more than ten
    }
    if table_format == "delta":
        conf |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    else:
        conf |= {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
        }
    flat = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    words = [str(SITE_SPARK40 / "pyspark" / "bin" / "spark-submit"), "--packages", PACKAGES[table_format], *flat]
    home = {"SPARK_HOME": str(SITE_SPARK40 / "pyspark"), "PYTHONPATH": str(SITE_SPARK40)}
    environment = {**os.environ, **home, "PYSPARK_PYTHON": str(PYTHON_SPARK40)}
    done = subprocess.run(
        [*words, "--master", "local[2]", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
