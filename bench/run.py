"""All benchmarks one after the other, each in a process of its own: `python bench/run.py [--quick]`.

Knows their list and common options; to use options of one benchmark, run its file. The exit status is the worst of all.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

BENCHMARKS: Final = ("brokers.py", "footprint.py", "connections.py", "rules.py", "dataplane.py", "spark.py")


def main(argv: list[str]) -> int:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small numbers: a test, not a measurement")
    parser.add_argument("--data", help="folder for the brokers' data; default: the system's temporary folder")
    arguments = parser.parse_args(argv)
    words = ["--quick"] if arguments.quick else []
    words += ["--data", arguments.data] if arguments.data else []
    print(
        f"machine     {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, "
        f"Linux {platform.release()}, Python {platform.python_version()}",
        flush=True,
    )
    folder = Path(__file__).resolve().parent
    return max(subprocess.call([sys.executable, str(folder / name), *words]) for name in BENCHMARKS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
