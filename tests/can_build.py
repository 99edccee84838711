"""Says in one line what is missing to install emubus from source, before pip's pages: `python tests/can_build.py`.

Python 3.11, its venv module, and for python-qpid-proton, which comes as source only, a C compiler and Python's headers.
Runs on any Python 3 and uses the standard library only, so it must import nothing of this repository.
"""

import importlib.util
import shutil
import sys
import sysconfig
from pathlib import Path

PYTHON_MIN = (3, 11)
COMPILERS = ("cc", "gcc", "clang")
DEBIAN_PACKAGES = "gcc python3-dev python3-venv"


def missing(include: Path) -> "list[str]":
    """What is not there, in words; `include` is where Python's headers lie."""
    problems = []
    if sys.version_info[:2] < PYTHON_MIN:
        problems.append("Python {}.{} or newer (this is {}.{})".format(*PYTHON_MIN, *sys.version_info[:2]))
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        problems.append("Python's venv module")
    if not any(map(shutil.which, COMPILERS)):
        problems.append("a C compiler")
    if not (include / "Python.h").is_file():
        problems.append(f"Python's headers ({include}/Python.h)")
    return problems


def main() -> int:
    """Print the line if anything is missing; the exit status."""
    problems = missing(Path(sysconfig.get_path("include")))
    if problems:
        remedy = f"On Debian and Ubuntu: apt-get install {DEBIAN_PACKAGES}"
        sys.stderr.write(f"emubus can't be installed; missing: {', '.join(problems)}. {remedy}\n")
    return 2 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
