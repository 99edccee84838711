"""The layer rules, held by walking the syntax trees of every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("amqp", "broker", "codec", "storage", "spark_connector", "web")
MAY_IMPORT = {
    "codec": set(),
    "storage": set(),
    "broker": {"codec", "storage"},
    "amqp": {"broker", "codec"},
    "web": {"broker", "codec", "storage"},
    "spark_connector": {"codec"},
}
PROTON = {"proton", "cproton", "cproton_ffi"}
PROTON_ALLOWED = {"amqp", "spark_connector"}
CLOCK_CALLS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "monotonic_ns"),
    ("time", "sleep"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("date", "today"),
}
RANDOM_CALLS = {("uuid", "uuid4"), ("os", "urandom"), ("secrets", "token_bytes"), ("uuid", "uuid1")}
CLOCK_FILES = {"broker/clock.py", "broker/ids.py", "spark_connector/timing.py"}


def modules() -> list[Path]:
    return [path for folder in (*LAYERS, "emubus") for path in sorted((ROOT / folder).rglob("*.py")) if own(path)]


def own(path: Path) -> bool:
    """Whether the file is reached by its real folder: `emubus/` links to the other four."""
    return path.resolve() == path and "__pycache__" not in path.parts


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in modules():
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def imported(name: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Absolute names of what a module imports; relative imports are resolved from `emubus.`."""
    package = ["emubus", *name.split("/")[:-1]] if not name.startswith("emubus/") else ["emubus"]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node.lineno
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def test_there_are_modules_to_check() -> None:
    assert len(modules()) > 20


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_the_layers_below_it(layer: str) -> None:
    wrong = [
        f"{name}:{line} imports {target}"
        for name, tree in trees()
        if name.startswith(f"{layer}/")
        for target, line in imported(name, tree)
        if target.startswith("emubus.") and target.split(".")[1] not in {layer, *MAY_IMPORT[layer]}
    ]
    assert wrong == []


def test_layers_import_each_other_relatively() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if not name.startswith("emubus/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "emubus"
    ]
    assert wrong == []


def test_nobody_but_the_command_line_and_the_test_kit_imports_the_server() -> None:
    allowed = {"emubus/__main__.py", "emubus/testing.py"}
    wrong = [
        name
        for name, tree in trees()
        if name not in allowed and any(target.startswith("emubus.server") for target, _ in imported(name, tree))
    ]
    assert wrong == []


def test_proton_is_imported_only_by_the_wire_folders() -> None:
    wrong = [
        f"{name}:{line}"
        for name, tree in trees()
        if name.split("/")[0] not in PROTON_ALLOWED
        for target, line in imported(name, tree)
        if target.split(".")[0] in PROTON
    ]
    assert wrong == []


def test_lmdb_is_imported_by_the_file_that_writes_and_the_file_that_reads() -> None:
    files = {name for name, tree in trees() for target, _ in imported(name, tree) if target.split(".")[0] == "lmdb"}
    assert files == {"storage/lmdb_store.py", "storage/lmdb_reading.py"}


def test_clocks_and_random_numbers_have_one_source() -> None:
    wrong = []
    for name, tree in trees():
        if name in CLOCK_FILES:
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=module), attr=attribute):
                    if (module, attribute) in CLOCK_CALLS | RANDOM_CALLS:
                        wrong.append(f"{name}:{node.lineno} {module}.{attribute}")
        wrong += [f"{name}:{line} random" for target, line in imported(name, tree) if target.split(".")[0] == "random"]
    assert wrong == []


def test_the_environment_is_read_by_the_configuration_only() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if name != "emubus/config.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    ]
    assert wrong == []
