"""The wheel and the editable install both hold every package, and nothing at top level that isn't ours."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from ..building import ROOT
from ..programs import PROGRAM_S_MAX
from ..wheel import build_wheel

FOLDERS = ("amqp", "broker", "codec", "spark_connector", "storage", "web")
PACKAGES = [
    found.parent.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for found in sorted((ROOT / folder).rglob("__init__.py"))
    if found.parent.name != "autoregister"  # a top-level package of its own
]
# What the connector needs on a Spark worker; everything else that the project depends on is the broker's.
BROKERS_OWN = (
    "aiohttp",
    "defusedxml",
    "jinja2",
    "lark",
    "lmdb",
    "prometheus_client",
    "sortedcontainers",
    "structlog",
    "trustme",
    "uvloop",
    "zlib_ng",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_module(wheel_names: set[str]) -> None:
    for package in PACKAGES:
        here = {f"emubus/{package}/{path.name}" for path in (ROOT / package).glob("*.py")}
        assert here
        assert here - wheel_names == set()


def functions_in_c(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names if name.endswith(".so")}


def test_the_wheel_holds_the_functions_in_c(wheel_names: set[str]) -> None:
    of_messages = {"emubus/broker/message/_delivered", "emubus/broker/message/_scan"}
    of_storage = {"emubus/storage/journal/_writing"}
    of_the_wire = {"emubus/amqp/wire/_delivery_loops", "emubus/codec/_walk"}
    assert functions_in_c(wheel_names) == of_the_wire | of_messages | of_storage


def test_without_a_compiler_the_wheel_holds_python_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(tmp_path, {"CC": "false"})) as archive:
        names = set(archive.namelist())
    assert functions_in_c(names) == set()
    assert {"emubus/amqp/wire/loops.py", "emubus/broker/message/scan.py"} <= names


def test_the_wheel_has_no_other_top_level_than_emubus_and_what_spark_looks_for(wheel_names: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"emubus", "pyspark_servicebus"}
    assert {name for name in wheel_names if name.startswith("pyspark_")} == {"pyspark_servicebus/__init__.py"}


def test_the_wheel_holds_what_the_page_is_made_of(wheel_names: set[str]) -> None:
    page = ROOT / "web" / "page"
    made_of = [*page.glob("assets/*"), *page.glob("templates/*.html")]
    assert made_of
    assert {f"emubus/{path.relative_to(ROOT)}" for path in made_of} <= wheel_names


def test_the_wheel_is_typed_and_licensed(wheel_names: set[str]) -> None:
    assert "emubus/py.typed" in wheel_names
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)


def test_pytest_finds_the_plugin_in_the_wheel(wheel: Path, wheel_names: set[str]) -> None:
    (name,) = (each for each in wheel_names if each.endswith(".dist-info/entry_points.txt"))
    with zipfile.ZipFile(wheel) as archive:
        groups = ConfigParser()
        groups.read_string(archive.read(name).decode())
        (metadata,) = (each for each in wheel_names if each.endswith(".dist-info/METADATA"))
        extras = re.findall(r"^Provides-Extra: (.+)$", archive.read(metadata).decode(), re.MULTILINE)
    assert {group: dict(groups[group]) for group in groups.sections()} == {
        "console_scripts": {"emubus": "emubus.__main__:main"},
        "pytest11": {"emubus": "emubus.kit.pytest_plugin"},
    }
    assert {
        f"emubus/{name}.py" for name in ("testing", "container", "kit/pytest_plugin", "kit/remote", "kit/values")
    } <= wheel_names
    assert {"spark", "testcontainers"} <= set(extras)


def test_the_connector_is_imported_from_the_wheel_without_anything_of_the_broker(wheel: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        f"for name in {BROKERS_OWN!r}: sys.modules[name] = None\n"
        "import emubus.spark_connector, pyspark_servicebus\n"
        "from emubus.spark_connector.source import batch, stream\n"
        "from emubus.spark_connector.sink import writer\n"
        "folders = sorted({name.split('.')[1] for name in sys.modules if name.startswith('emubus.')})\n"
        "print(emubus.spark_connector.__file__, pyspark_servicebus.DefaultSource.name(), folders)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=PROGRAM_S_MAX
    )
    assert (done.stdout, done.stderr) == (
        f"{wheel}/emubus/spark_connector/__init__.py servicebus ['codec', 'spark_connector']\n",
        "",
    )


def test_the_package_that_spark_looks_for_is_imported_without_spark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import emubus.spark_connector, emubus.spark_connector.autoregister as package\n"
        "print(hasattr(package, 'DefaultSource'))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=PROGRAM_S_MAX
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_the_editable_install_finds_every_package_from_anywhere(tmp_path: Path) -> None:
    modules = ", ".join(f"emubus.{package.replace('/', '.')}" for package in PACKAGES)
    code = f"import {modules}; print(emubus.storage.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PROGRAM_S_MAX,
    )
    assert Path(done.stdout.strip()).resolve() == ROOT / "storage" / "__init__.py"
