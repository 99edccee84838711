"""The house's rules, held by walking the syntax trees of every module: who may import whom, timers, ownership.

Imports inside functions and under `TYPE_CHECKING` count like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    *("amqp", "broker", "codec", "conditions", "declared", "emubus"),
    *("spark_connector", "storage", "story", "telemetry", "templates", "web"),
)
GROUND = "broker"  # the files of broker/ itself, but for the two of its facade
FACADE = "broker/facade"
AMQP = "amqp"  # a connection's context: the files of amqp/ itself, but for those of its roof
AMQP_ROOF = "amqp/roof"
WEB = "web"  # the files of web/ itself, but for those that compose the application
WEB_SERVER = "web/server"
ENTRIES = "emubus/entries"  # what users start or import
SPARK = "spark_connector"  # the files that all its rooms may know: errors, clocks, positions
SPARK_OPTIONS = "spark_connector/options"
SPARK_PLANNERS = "spark_connector/source"
SPARK_READERS = "spark_connector/source/readers"
SPARK_FACADE = "spark_connector/facade"
ROOM_BY_FILE = {  # files that are another room than their folder's
    "broker/broker.py": FACADE,
    "broker/messages.py": FACADE,
    "broker/outages.py": FACADE,
    "broker/sessions.py": FACADE,
    "broker/strikes.py": FACADE,
    "broker/transactional.py": FACADE,
    "broker/api.py": FACADE,
    "web/server.py": WEB_SERVER,
    "web/lazy_server.py": WEB_SERVER,
    "web/metrics.py": WEB_SERVER,
    "emubus/__main__.py": ENTRIES,
    "emubus/container.py": ENTRIES,
    "emubus/testing.py": ENTRIES,
    "spark_connector/option_table.py": SPARK_OPTIONS,
    "spark_connector/options.py": SPARK_OPTIONS,
    "spark_connector/schema.py": SPARK_OPTIONS,
    "spark_connector/source/batch.py": SPARK_READERS,
    "spark_connector/source/stream.py": SPARK_READERS,
    "spark_connector/__init__.py": SPARK_FACADE,
    "spark_connector/datasource.py": SPARK_FACADE,
    "spark_connector/registration.py": SPARK_FACADE,
    "spark_connector/lag.py": SPARK_FACADE,
    "spark_connector/progress.py": SPARK_FACADE,
    **{f"amqp/{name}.py": AMQP_ROOF for name in ("__init__", "connection", "server", "server_state")},
}
ADAPTER_SEES = {
    *(GROUND, FACADE, "broker/admin", "broker/message", "broker/model", "broker/rules", "codec"),
    *("conditions", "conditions/behaviours", "declared", "story", "templates"),
}
MAY_IMPORT: dict[str, set[str]] = {  # room: what it may import besides itself
    "codec": set(),
    "storage": set(),
    GROUND: {"codec"},
    "broker/message": {GROUND, "codec"},
    "broker/model": {GROUND, "codec", "storage"},
    "broker/rules": {GROUND, "broker/message", "broker/model", "codec"},
    "broker/partition": {GROUND, "broker/message", "broker/model"},
    "broker/stores": {GROUND, "broker/model", "broker/partition", "storage"},
    "broker/entities": {
        *(GROUND, "broker/message", "broker/model", "broker/partition", "broker/rules", "broker/stores", "storage"),
    },
    "broker/admin": {
        *(GROUND, "broker/entities", "broker/message", "broker/model", "broker/partition", "broker/rules"),
        *("broker/stores", "storage"),
    },
    FACADE: {
        *(GROUND, "broker/admin", "broker/entities", "broker/message", "broker/model", "broker/partition"),
        *("broker/stores", "storage"),
    },
    "conditions": {GROUND, FACADE, "broker/message", "conditions/behaviours"},
    "conditions/behaviours": {GROUND, FACADE, "broker/model", "conditions"},
    "templates": {"broker/model", "declared"},
    "declared": {GROUND, "broker/model", "broker/rules", "codec"},
    "story": {GROUND, FACADE, "broker/message", "broker/model", "broker/rules", "codec"},
    "telemetry": {GROUND, FACADE, "broker/admin", "broker/message", "broker/model", "codec", "conditions"},
    "amqp/wire": {GROUND, FACADE, "codec"},
    AMQP: {"amqp/wire", *ADAPTER_SEES},
    "amqp/nodes": {AMQP, "amqp/wire", *ADAPTER_SEES},
    "amqp/jms": {AMQP, "amqp/wire", *ADAPTER_SEES},
    "amqp/links": {AMQP, "amqp/jms", "amqp/nodes", "amqp/wire", *ADAPTER_SEES},
    "amqp/injection": {AMQP, "amqp/links", "amqp/nodes", "amqp/wire", *ADAPTER_SEES},
    AMQP_ROOF: {AMQP, "amqp/injection", "amqp/links", "amqp/wire", *ADAPTER_SEES},
    WEB: {"telemetry", *ADAPTER_SEES},
    "web/transport": {WEB, GROUND},
    "web/messages": {WEB, *ADAPTER_SEES},
    "web/atom": {WEB, "web/transport", *ADAPTER_SEES},
    "web/arm": {WEB, "web/atom", "web/transport", *ADAPTER_SEES},
    "web/rest": {WEB, "web/transport", *ADAPTER_SEES},
    "web/identity": {WEB, "web/transport", GROUND},
    "web/control": {WEB, "web/messages", "web/transport", "telemetry", *ADAPTER_SEES},
    "web/page": {WEB, "web/control", "web/messages", "web/transport", "telemetry", *ADAPTER_SEES},
    WEB_SERVER: {
        *(
            WEB,
            "web/arm",
            "web/atom",
            "web/control",
            "web/identity",
            "web/messages",
            "web/page",
            "web/rest",
            "web/transport",
            "telemetry",
        ),
        *ADAPTER_SEES,
    },
    SPARK: set(),
    "spark_connector/autoregister": {SPARK_FACADE},
    "spark_connector/codec": {SPARK, "codec"},
    "spark_connector/dialing": {SPARK},
    "spark_connector/wire": {SPARK, "spark_connector/dialing", "codec"},
    SPARK_OPTIONS: {SPARK, "spark_connector/codec", "spark_connector/dialing", "codec"},
    "spark_connector/sink": {SPARK, SPARK_OPTIONS, "spark_connector/codec", "spark_connector/wire"},
    SPARK_PLANNERS: {SPARK, SPARK_OPTIONS, "spark_connector/codec", "spark_connector/wire", "codec"},
    "spark_connector/source/several": {SPARK, SPARK_OPTIONS, SPARK_PLANNERS, "spark_connector/dialing"},
    SPARK_READERS: {SPARK, SPARK_OPTIONS, SPARK_PLANNERS, "spark_connector/source/several"},
    SPARK_FACADE: {SPARK, SPARK_OPTIONS, SPARK_READERS, "spark_connector/sink", "spark_connector/source/several"},
    "emubus/config_file": {GROUND, "broker/admin", "broker/model", "broker/rules", "codec", "declared"},
    "emubus": {
        *(GROUND, FACADE, "broker/admin", "broker/model", "codec", "conditions", "declared", "story"),
        *(AMQP, AMQP_ROOF, "emubus/config_file", "storage", "telemetry", WEB, WEB_SERVER),
    },
    "emubus/kit": {
        *(GROUND, FACADE, "broker/admin", "broker/model", "conditions", "declared"),
        *("emubus", "story", WEB, "web/atom", "web/control"),
    },
    "emubus/importing": {
        *(GROUND, "broker/model", "broker/rules", "declared", "emubus", "emubus/config_file", "emubus/kit"),
        *("templates", WEB, "web/atom"),
        *(SPARK, "spark_connector/codec", "spark_connector/wire"),  # the import of messages is a client
    },
    "emubus/commands": {
        *(GROUND, FACADE, "broker/admin", "broker/model", "codec", "conditions", "declared"),
        *("emubus", "emubus/config_file", "emubus/importing", "emubus/kit", "templates", "spark_connector/wire"),
    },
    ENTRIES: {
        *(GROUND, FACADE, "broker/admin", "broker/model", "conditions"),
        *("emubus", "emubus/commands", "emubus/kit", "storage", WEB),
    },
}
ALLOWED: set[tuple[str, str]] = set()  # (module, room) that break the table: none
MUTUAL = {  # rooms that import each other, though no two files do
    ("conditions", "conditions/behaviours"),
}

PROTON = {"proton", "cproton", "cproton_ffi"}
PROTON_ALLOWED = ("amqp/wire/", "spark_connector/wire/")
CLOCK_CALLS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "monotonic_ns"),
    ("time", "sleep"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("date", "today"),
    ("asyncio", "timeout"),
    ("asyncio", "wait_for"),
    ("loop", "call_later"),
    ("loop", "call_at"),
    ("loop", "time"),
}
RANDOM_CALLS = {("uuid", "uuid4"), ("os", "urandom"), ("secrets", "token_bytes"), ("uuid", "uuid1")}
CLOCK_FILES = {"broker/clock.py", "broker/ids.py", "spark_connector/timing.py"}
STOP_FILES = {"emubus/server.py"}  # a stop that hangs must end in real time, whatever the clock says
WRITERS = {"emubus/terminal.py", "emubus/logging.py", "emubus/__main__.py"}  # the last only closes a pipe
ANY_ALLOWED = (  # where values have no static type
    *("amqp/wire/", "spark_connector/", "storage/lmdb_store.py", "storage/memory_store.py"),  # libraries without types
    *("broker/model/descriptions.py", "broker/model/profiles.py"),  # JSON of the catalog; values by field name
    *("broker/rules/numbers.py", "broker/rules/values.py", "broker/rules/sql/compiler.py"),  # tables by type
    *("codec/decode.py", "codec/encode.py", "story/unknown.py"),  # tables by type
    *("broker/rules/sql/grammar.py", "broker/rules/sql/selector"),  # the parser's tree
    *("emubus/container.py", "emubus/commands/declaring.py"),  # arguments of the Docker SDK; values of a line by name
    "emubus/kit/python_sdk.py",  # arguments and inner parts of Python's SDK
)
OF_AN_SDK = ("emubus/kit/python_sdk.py",)  # whose waits no setting shortens


def modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if own(path)]


def own(path: Path) -> bool:
    """Whether the file is reached by its real folder: `emubus/` links to the others."""
    return path.resolve() == path and "__pycache__" not in path.parts


@cache
def parsed() -> dict[str, ast.Module]:
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in modules()}


def trees() -> Iterator[tuple[str, ast.Module]]:
    yield from parsed().items()


def imported(name: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Absolute names of what a module imports; relative imports are resolved from `emubus.`."""
    parts = name.split("/")[:-1]
    package = parts if parts[0] == "emubus" else ["emubus", *parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node.lineno
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def dotted(name: str) -> str:
    """The module's name as others import it."""
    parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts if parts[0] == "emubus" else ["emubus", *parts])


@cache
def arrows() -> dict[str, set[str]]:
    """Which of our files each file imports."""
    files = {dotted(name): name for name in parsed()}
    found: dict[str, set[str]] = {}
    for name, tree in trees():
        targets = {each for each, _ in imported(name, tree) if each in files}
        submodules = {each for each in targets if each.rpartition(".")[0] in targets}  # `from . import module`
        found[name] = {files[each] for each in targets - {each.rpartition(".")[0] for each in submodules}}
    return found


def room(name: str) -> str:
    """The room of a file: its own, or the longest entry of the table that its path begins with."""
    return ROOM_BY_FILE.get(name) or max((each for each in MAY_IMPORT if name.startswith(f"{each}/")), key=len)


def test_there_are_modules_to_check() -> None:
    assert len(modules()) > 20
    assert {room(name) for name in parsed()} == set(MAY_IMPORT)


def test_each_room_imports_what_the_table_allows() -> None:
    wrong = {
        (name, room(other))
        for name, others in arrows().items()
        for other in others
        if room(other) not in {room(name), *MAY_IMPORT[room(name)]} and not other.endswith("/__init__.py")
    }
    assert wrong == ALLOWED


def test_no_two_rooms_import_each_other() -> None:
    pairs = {
        (room(name), room(other))
        for name, others in arrows().items()
        for other in others
        if room(name) != room(other) and not other.endswith("/__init__.py")
    }
    assert {(one, other) for one, other in pairs if one < other and (other, one) in pairs} == MUTUAL


def test_no_imports_go_in_a_circle() -> None:
    assert circles({name: {each for each in others if each != name} for name, others in arrows().items()}) == []


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one node: what is left when leaves are taken away."""
    graph = {name: set(others) for name, others in graph.items()}
    while True:
        leaves = {name for name, others in graph.items() if not others & graph.keys()}
        roots = graph.keys() - set().union(*graph.values(), set()) if graph else set()
        if not leaves | roots:
            return [sorted(graph)] if graph else []
        graph = {name: others - leaves for name, others in graph.items() if name not in leaves | roots}


def test_a_circle_is_noticed() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert circles({"a": {"b"}, "b": set()}) == []


def test_folders_import_each_other_relatively() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if not name.startswith("emubus/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "emubus"
    ]
    assert wrong == []


def test_only_the_command_line_and_the_test_kit_import_the_server() -> None:
    found = {name for name, others in arrows().items() if "emubus/server.py" in others}
    assert {name for name in found if not name.startswith("emubus/commands/")} == {"emubus/kit/in_process.py"}


def test_proton_is_imported_only_by_the_wire_folders() -> None:
    wrong = [
        f"{name}:{line}"
        for name, tree in trees()
        if not name.startswith(PROTON_ALLOWED)
        for target, line in imported(name, tree)
        if target.split(".")[0] in PROTON
    ]
    assert wrong == []


def test_lmdb_is_imported_by_the_file_that_writes_and_the_file_that_reads() -> None:
    files = {name for name, tree in trees() for target, _ in imported(name, tree) if target.split(".")[0] == "lmdb"}
    assert files == {"storage/lmdb_store.py", "storage/lmdb_reading.py"}


def test_clocks_timers_and_random_numbers_have_one_source() -> None:
    wrong = []
    for name, tree in trees():
        if name in CLOCK_FILES | STOP_FILES:
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=module), attr=attribute):
                    if (module, attribute) in CLOCK_CALLS | RANDOM_CALLS:
                        wrong.append(f"{name}:{node.lineno} {module}.{attribute}")
                case ast.Attribute(value=ast.Call(), attr="call_later" | "time" as attribute):
                    wrong.append(f"{name}:{node.lineno} {attribute} of the loop")
        wrong += [f"{name}:{line} random" for target, line in imported(name, tree) if target.split(".")[0] == "random"]
    assert wrong == []


def test_one_module_writes_to_the_terminal() -> None:
    """The others would forget what messages and servers may bring; `logging.py` sends its lines through the same."""
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if name.startswith("emubus/") and name not in WRITERS
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr"})
        or (isinstance(node, ast.Name) and node.id == "print")
    ]
    assert wrong == []


def test_any_is_used_where_values_have_no_static_type() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if not name.startswith(ANY_ALLOWED)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "Any"
    ]
    assert wrong == []


def test_no_private_attribute_of_another_object_is_set_from_outside_its_module() -> None:
    """A public attribute may be set: a method for that hides the coupling and does not end it."""
    wrong = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, tree in trees()
        if name not in OF_AN_SDK
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and not isinstance(node.ctx, ast.Load)
        and node.attr.startswith("_")
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
        and node.attr not in declared(tree)
    ]
    assert wrong == []


@cache
def declared(tree: ast.Module) -> set[str]:
    """The attributes that the classes of a module declare or set on themselves."""
    found: set[str] = set()
    for each in ast.walk(tree):
        match each:
            case ast.ClassDef(body=body):
                for statement in body:
                    match statement:
                        case ast.AnnAssign(target=ast.Name(id=name)):
                            found.add(name)
                        case ast.Assign(targets=targets, value=value):
                            found |= {target.id for target in targets if isinstance(target, ast.Name)}
                            if any(isinstance(target, ast.Name) and target.id == "__slots__" for target in targets):
                                constants = (node for node in ast.walk(value) if isinstance(node, ast.Constant))
                                found |= {node.value for node in constants if isinstance(node.value, str)}
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def test_the_environment_is_read_by_the_configuration_only() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if name not in {"emubus/options.py", "codec/native.py"}  # the latter is read at import
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    ]
    assert wrong == []
