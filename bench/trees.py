"""The trees of emubus that are measured: this checkout, and other commits unpacked beside it.

Knows git, and how a tree is made ready to be started from its own files with this interpreter's packages: extension
modules that its `pyproject.toml` lists are compiled in place, because a server without them runs the functions in
Python that do the same. With `EMUBUS_PURE_PYTHON` set, servers leave them out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from starting import BENCH, BrokerError

THIS: Final = BENCH.parent
BUILD_TIMEOUT_S: Final = 300


def unpack(ref: str, folder: Path) -> Path:
    """The tree of a commit in a new folder. Raises BrokerError if there is no such commit, or it can't be imported."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    made = subprocess.run(["git", "archive", "--output", str(archive), ref], cwd=THIS, capture_output=True, text=True)
    if made.returncode != 0:
        raise BrokerError(f"git has no commit {ref!r} here: {made.stderr.strip()}")
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    archive.unlink()
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import emubus, emubus.amqp; print(emubus.__file__, emubus.amqp.__file__)"],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    if where.returncode != 0 or any(not path.startswith(str(folder)) for path in where.stdout.split()):
        raise BrokerError(f"{ref} can't be started from its tree: {where.stdout}{where.stderr}")
    return folder


def build(tree: Path) -> str:
    """Compile a tree's extension modules in place, if they are not newer than their sources; returns what is in C.

    A module that can't be compiled is left out: the server works without. Raises BrokerError if a module can be neither
    compiled nor left out.
    """
    setuptools = tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["setuptools"]
    modules = setuptools.get("ext-modules", [])
    if not modules:
        return "has no modules in C"
    if os.environ.get("EMUBUS_PURE_PYTHON"):
        return "runs without its modules in C, because EMUBUS_PURE_PYTHON is set"
    done = subprocess.run(
        [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "build_ext", "--inplace"],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise BrokerError(f"the extension modules of {tree} can't be compiled: {done.stderr.strip()[-500:]}")
    sources = [tree / source for module in modules for source in module["sources"]]
    missing = [source.stem for source in sources if not list(source.parent.glob(f"{source.stem}.*.so"))]
    return f"runs without its modules {', '.join(missing)} in C" if missing else "runs with its modules in C"
