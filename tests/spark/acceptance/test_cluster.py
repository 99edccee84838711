"""Spark as a cluster: a master, two workers and their executors, each a process, whose Python knows nothing of emubus.

What executors need travels with the job: the wheel, as a file, by the recipe that users have. Their Python has
what the connector needs and nothing that only the broker needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ...building import ROOT
from ...programs import PROGRAM_S_MAX
from ...rounds import rounds
from ...toolchains import BRIEF_JAVA
from ..conftest import SPARK_CONF, MakeQueue
from ..home import make_spark_home
from ..prepare import BETWEEN, NEWEST, OLDEST, SITE_SPARK40, WHEELS, spark_of
from .processes import HERE, Children

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark40"), pytest.mark.timeout(1800)]

SPARK = ("pyspark", "py4j")
NEEDED = (  # besides Spark: the project's dependencies for workers and what these need
    *("pandas", "numpy", "numpy.libs", "dateutil", "six.py", "tzdata", "pytz", "pyarrow"),
    *("proton", "cproton.py", "cproton_ffi.abi3.so", "cffi", "_cffi_backend*", "pycparser", "wsproto", "h11"),
)
RECIPE = ROOT / "examples" / "spark" / "py_files.sh"
WORKERS = 2  # with an executor each
COUNT = 400
JOB_S_MAX = 1200.0


def make_python(folder: Path, version: str) -> Path:
    """The Python of an environment with links to a version of Spark and to what is needed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=PROGRAM_S_MAX)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    site = spark_of(version)
    for path in (*found(site, SPARK), *found(site if version == NEWEST else SITE_SPARK40, NEEDED)):
        (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"


def found(site: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """What matches in a folder."""
    for pattern in patterns:
        yield from site.glob(pattern)


# The newest Spark runs all other tests, in one process with its workers.
@pytest.mark.parametrize("version", rounds((OLDEST,), (OLDEST, *BETWEEN, NEWEST)))
def test_a_cluster_reads_and_writes_with_nothing_but_the_wheel(
    version: str, options: dict[str, str], make_queue: MakeQueue, tmp_path: Path
) -> None:
    queues = [make_queue(enable_partitioning=True, requires_duplicate_detection=True) for _ in range(3)]
    python = make_python(tmp_path / "venv", version)
    home = make_spark_home(tmp_path / "home", spark_of(version) / "pyspark")
    environment = {
        "SPARK_HOME": home,
        "PYSPARK_PYTHON": str(python),
        "SPARK_LAUNCHER_OPTS": " ".join(BRIEF_JAVA),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(BRIEF_JAVA),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "PYTHONPATH": "",
        "PYTHONPYCACHEPREFIX": "",  # by paths, which are new each time here: all packages would be compiled again
    }
    with Children(tmp_path) as children:
        daemon = [f"{home}/bin/spark-class"]
        at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = children.start([*daemon, "org.apache.spark.deploy.master.Master", *at], environment)
        url = master.log_with(r"(spark://127\.0\.0\.1:\d+)")
        for _ in range(WORKERS):
            more = ["--cores", "1", "--memory", "512m", url]
            children.start([*daemon, "org.apache.spark.deploy.worker.Worker", *at, *more], environment)
        conf = {**SPARK_CONF, "spark.executor.memory": "512m", "spark.local.dir": str(tmp_path / "local")}
        conf |= {"spark.executor.extraJavaOptions": " ".join(BRIEF_JAVA)}
        conf |= {"spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.cores.max": str(WORKERS)}
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "spark-defaults.conf").write_text("".join(f"{key} {conf[key]}\n" for key in conf))
        plan = json.dumps(
            {"options": options, "queues": queues, "count": COUNT, "checkpoint": str(tmp_path / "checkpoint")}
        )
        submit = ["sh", str(RECIPE), str(next(WHEELS.glob("*.whl"))), str(HERE / "job.py"), plan]
        job = children.start(submit, environment | {"MASTER": url})
        result = json.loads(job.line_with("RESULT (.*)", JOB_S_MAX))
    assert result["version"].startswith(version)
    assert result["numbers"] == list(range(COUNT))
    assert result["executors"] == [str(number) for number in range(WORKERS)]
    assert result["unknown"] == ["aiohttp", "lark", "lmdb", "sortedcontainers", "structlog", "uvloop"]
