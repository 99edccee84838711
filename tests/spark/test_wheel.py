"""The wheel as users bring it to Spark: installed in the oldest Spark that the connector works with, or as a file.

These start a Spark of their own each, in an environment that has nothing of what only the broker needs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..programs import PROGRAM_S_MAX
from .conftest import SPARK_CONF, MakeQueue, Send
from .home import make_spark_home
from .prepare import PYTHON_SPARK40, SITE_SPARK40, VENV_SPARK40, WHEELS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark40"), pytest.mark.timeout(1800)]

COPY = """
import json, sys
from pyspark.sql import SparkSession

conf, options, source, target, checkpoint = map(json.loads, sys.argv[1:])
builder = SparkSession.builder.master("local[2]")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
frame = spark.createDataFrame([(f"m{n}", f"id{n}") for n in range(4)], "body string, messageId string")
frame.write.format("servicebus").options(**options, queue=source).mode("append").save()
stream = spark.readStream.format("servicebus").options(**options, queue=source).load()
query = (
    stream.writeStream.format("servicebus").options(**options, queue=target)
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
read = spark.read.format("servicebus").options(**options, queue=target).load()
from emubus.spark_connector import register
register(spark)  # is not needed, and does no harm
rows = read.selectExpr("CAST(body AS STRING)", "messageId", "state").collect()
print("RESULT", json.dumps([spark.version[:4], sorted(map(tuple, rows))]))
spark.stop()
"""
SECONDS_MAX = 1200  # it takes 15 on a machine that does nothing else
COPIED = [[f"m{number}", f"id{number}", "active"] for number in range(4)]

READ = """
import json, sys
from pyspark.sql import SparkSession
from emubus.spark_connector import register

options, queue = map(json.loads, sys.argv[1:])
spark = SparkSession.builder.getOrCreate()
register(spark)
read = spark.read.format("servicebus").schema("body string").options(**options, queue=queue).load()
print("RESULT", json.dumps([row.body for row in read.collect()]))
spark.stop()
"""


def result_of(folder: Path, script: str, command: list[str], environment: dict[str, str], *arguments: Any) -> Any:
    """What a script prints as its result, run by another Python in a folder of its own; its errors if it has none."""
    (folder / "the_script.py").write_text(script)
    done = subprocess.run(
        [*command, "the_script.py", *map(json.dumps, arguments)],
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(results) == 1, done.stderr[-6000:]
    return json.loads(results[0].removeprefix("RESULT "))


def test_spark_4_0_finds_the_format_in_the_installed_wheel_by_itself(
    options: dict[str, str], make_queue: MakeQueue, tmp_path: Path
) -> None:
    command, home = [str(PYTHON_SPARK40), "-P"], make_spark_home(tmp_path / "home", SITE_SPARK40 / "pyspark")
    environment = {"PYSPARK_PYTHON": str(PYTHON_SPARK40), "SPARK_HOME": home}
    arguments = (SPARK_CONF, options, make_queue(), make_queue(), str(tmp_path / "checkpoint"))
    assert result_of(tmp_path, COPY, command, environment, *arguments) == ["4.0.", COPIED]


def test_the_wheel_travels_to_the_workers_as_a_zip_file(
    options: dict[str, str], queue: str, send: Send, tmp_path: Path
) -> None:
    send(queue, "one", "two")
    python = python_without_emubus(tmp_path / "venv")
    home = make_spark_home(tmp_path / "home", SITE_SPARK40 / "pyspark")
    shutil.copy(next(WHEELS.glob("*.whl")), tmp_path / "emubus.zip")  # Spark passes a file called .whl by
    command = [f"{home}/bin/spark-submit", "--master", "local[2]", "--py-files", "emubus.zip"]
    for key, value in SPARK_CONF.items():
        command += ["--conf", f"{key}={value}"]
    environment = {"PYSPARK_PYTHON": str(python), "SPARK_HOME": home}
    assert result_of(tmp_path, READ, command, environment, options, queue) == ["one", "two"]


def python_without_emubus(folder: Path) -> Path:
    """The Python of an environment like that with Spark 4.0, but without the wheel."""
    subprocess.run([str(PYTHON_SPARK40), "-m", "venv", "--without-pip", str(folder)], check=True, timeout=PROGRAM_S_MAX)
    packages = folder / SITE_SPARK40.relative_to(VENV_SPARK40)
    for path in SITE_SPARK40.iterdir():
        if not path.name.startswith(("emubus", "pyspark_servicebus")):
            (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"
