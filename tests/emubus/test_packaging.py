"""The wheel and the editable install both hold every package, and nothing at top level that isn't ours."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("amqp", "broker", "broker/http", "storage", "spark_connector")


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in a wheel built from a clean copy, so that no stale build folder leaks into it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().splitlines():
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and not name.startswith("tests/"):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(folder)]
    subprocess.run([*command, str(source)], check=True, capture_output=True, timeout=100)
    (wheel,) = folder.glob("emubus-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_holds_every_module_of(package: str, wheel_names: set[str]) -> None:
    here = {f"emubus/{package}/{path.name}" for path in (ROOT / package).glob("*.py")}
    assert here <= wheel_names


def test_the_wheel_has_no_other_top_level_than_emubus(wheel_names: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"emubus"}


def test_the_wheel_is_typed_and_licensed(wheel_names: set[str]) -> None:
    assert "emubus/py.typed" in wheel_names
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)


def test_the_editable_install_finds_every_package_from_anywhere(tmp_path: Path) -> None:
    modules = ", ".join(f"emubus.{package.replace('/', '.')}" for package in PACKAGES)
    code = f"import {modules}; print(emubus.storage.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert Path(done.stdout.strip()).resolve() == ROOT / "storage" / "__init__.py"
