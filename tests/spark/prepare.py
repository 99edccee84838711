"""Builds the environment for tests on the oldest Spark that the connector works with, and gets the versions after it.

Knows that environment: exactly what the connector needs on a worker and nothing that only the broker needs, with the
project's wheel installed as a user would install it. The newest Spark is the one of the project's own environment; of
those between, only Spark itself is needed, by long tests. Does not know the tests. Uses the standard library only.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from ..building import ROOT, Build, build, pip_install

_HERE = Path(__file__).resolve().parent
VENV_SPARK40 = ROOT / ".venv-spark40"
PYTHON_SPARK40 = VENV_SPARK40 / "bin" / "python"
_REQUIREMENTS = "requirements-spark40.txt"
_IMPORTED_BY_WORKERS = (
    "import pyarrow, pandas, proton, pyspark.worker, pyspark.sql.streaming.python_streaming_source_runner, "
    "pyspark.sql.worker.plan_data_source_read, pyspark.sql.worker.write_into_data_source"
)
WHEELS = VENV_SPARK40 / "wheels"
OLDEST, BETWEEN, NEWEST = "4.0", ("4.1", "4.2"), "4.3"
SITE_SPARK40 = VENV_SPARK40 / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

_VENV = Build(
    folder=_HERE,
    sources=(_REQUIREMENTS,),
    output=VENV_SPARK40,
    commands=(
        (sys.executable, "-m", "venv", "--without-pip", str(VENV_SPARK40)),
        (*pip_install(PYTHON_SPARK40), "-r", _REQUIREMENTS),
        # Compiled here, in place: Spark gives a worker ten seconds to start.
        ("env", "PYTHONPYCACHEPREFIX=", "PYTHONDONTWRITEBYTECODE=", str(PYTHON_SPARK40), "-c", _IMPORTED_BY_WORKERS),
    ),
)
# In the environment's folder, so that a new environment gets the wheel, too. Needs setuptools in the project's own.
_WHEEL = Build(
    folder=ROOT,
    sources=(
        "pyproject.toml",
        "emubus/*.py",
        *(f"{name}/**/*.py" for name in ("amqp", "broker", "codec", "storage", "spark_connector")),
    ),
    output=WHEELS,
    commands=(
        (sys.executable, "-m", "tests.wheel", str(WHEELS)),
        (
            *pip_install(PYTHON_SPARK40),
            *("--no-deps", "--no-index", "--force-reinstall", "--find-links", str(WHEELS), "emubus"),
        ),
    ),
)


def prepare_environment() -> bool:
    """Build the environment with Spark 4.0 if need be, without the project; tells whether it was built now."""
    return build("the environment with Spark 4.0", _VENV)


def prepare_spark40() -> None:
    """Build the environment with Spark 4.0 and the project's wheel if need be."""
    prepare_environment()
    build("the wheel in the environment with Spark 4.0", _WHEEL)


def spark_of(version: str) -> Path:
    """The folder with the packages of a version of Spark; gets them if they are not here. PrepareError if it can't."""
    if version == OLDEST:
        prepare_spark40()
        return SITE_SPARK40
    if version == NEWEST:
        return Path(sysconfig.get_path("purelib"))
    site = ROOT / f".venv-spark{version}"
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(site))
    build(f"Spark {version}", Build(_HERE, (), site, ((*install, f"pyspark=={version}.*"),)))
    return site


def builders() -> dict[str, Callable[[], bool]]:
    """The things to build before tests are run, by name; the wheel is built by those that need it."""
    return {"spark-4.0": prepare_environment}
