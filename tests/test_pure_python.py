"""The tests of what has functions in C, with Python alone: an installation without a compiler does the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from emubus.amqp.wire import loops
from emubus.broker.message import delivered, scan
from emubus.codec import skip
from emubus.codec.native import PURE_PYTHON_VARIABLE
from emubus.data_folder import JOURNAL_WRITER
from emubus.storage import PythonWriter

from .building import ROOT

SECONDS_MAX = 900
FILES = (
    "tests/amqp/test_frames.py",
    "tests/amqp/test_over_the_broker.py",
    "tests/amqp/test_receiving.py",
    "tests/amqp/test_recordings.py",
    "tests/amqp/test_runs.py",
    "tests/amqp/test_sending.py",
    "tests/amqp/test_settling.py",
    "tests/amqp/test_transactions.py",
    "tests/broker/test_delivered.py",
    "tests/broker/test_scan.py",
    "tests/codec/test_values.py",
)
CHOSEN = """
from emubus.amqp.wire import loops
from emubus.broker.message import delivered, scan
from emubus.codec import skip
from emubus.data_folder import JOURNAL_WRITER
from emubus.storage import PythonWriter
print(loops.IS_NATIVE, delivered.IS_NATIVE, scan.IS_NATIVE, skip.IS_NATIVE, JOURNAL_WRITER is not PythonWriter)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**environment, PURE_PYTHON_VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


def test_the_functions_in_c_are_built_where_there_is_a_compiler() -> None:
    chosen = loops.IS_NATIVE, delivered.IS_NATIVE, scan.IS_NATIVE, skip.IS_NATIVE, JOURNAL_WRITER is not PythonWriter
    assert all(chosen) or shutil.which("cc") is None


def test_the_variable_leaves_the_functions_in_c_out() -> None:
    assert run("-c", CHOSEN).stdout.split() == ["False"] * 5


def test_the_same_tests_pass_in_python_alone() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *FILES)
    assert done.returncode == 0, done.stdout
