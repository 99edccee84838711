"""Spark's own folder for tests, by links: what it writes there stays with the test, and its Python starts fast.

Spark puts the archive of its Python modules before everything else on the path of each process that it starts. Modules
of an archive are compiled again at each start, which takes most of it, and Spark gives a process ten seconds to start.
Without the archive they come from the environment, compiled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyspark

SPARK: Final = Path(pyspark.__file__).parent
MODULES: Final = Path("python", "lib", "pyspark.zip")
WORK: Final = Path("work")  # where executors of a `local-cluster` leave their files


def make_spark_home(home: Path, spark: Path = SPARK) -> str:
    """Make the folder for the Spark of the package `spark`; what SPARK_HOME has to be."""
    link(spark, home, {MODULES, WORK})
    return str(home)


def link(source: Path, target: Path, left_out: set[Path]) -> None:
    """Make a folder of links to the contents of another one; paths in it are left out."""
    target.mkdir()
    for path in source.iterdir():
        below = {each.relative_to(path.name) for each in left_out if each.parts[0] == path.name}
        if not below:
            (target / path.name).symlink_to(path)
        elif Path() not in below:
            link(path, target / path.name, below)
