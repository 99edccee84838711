"""The documentation names files that exist, links to pages and headings that exist, and draws what the code does."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from .test_architecture import imported, trees
from .test_tidy import ROOT, tracked

FOLDERS = (
    "amqp",
    "bench",
    "broker",
    "codec",
    "conditions",
    "declared",
    "docker",
    "docs",
    "emubus",
    "spark_connector",
    "storage",
    "story",
    "telemetry",
    "templates",
    "tests",
    "web",
)
PATH = re.compile(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*)(::\w+)?(?![\w*{{…<-])")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NODE = re.compile(r"(?:^|[\s&])(\w+)(?=[\[({]|\s*(?:--|==|-\.)|\s*$|\s*&)|(?:>|\||&)\s*(\w+)", re.MULTILINE)
NODES_MAX = 25
HOUSE = ROOT / "docs" / "architecture" / "house.md"
FACADE = {
    "broker.py",
    "api.py",
    "__init__.py",
    "messages.py",
    "outages.py",
    "sessions.py",
    "strikes.py",
    "transactional.py",
}
ARROW = re.compile(r'^\s*(\w[\w &]*?)(?:\["[^"]*"\])? --> (\w[\w &]*?)(?:\["[^"]*"\])?$', re.MULTILINE)


def pages() -> list[Path]:
    """The documents for people who read or change the project; recorded decisions speak of their own time."""
    found = [path for path in tracked() if path.suffix == ".md"]
    return [path for path in found if path.parent.name != "decisions" and path.name != "CHANGELOG.md"]


def paths_in(text: str) -> Iterator[tuple[str, str]]:
    """Files and folders in backquotes, each with the `::name` behind it."""
    for code in CODE.findall(FENCE.sub("", text)):
        yield from ((found[0], found[1]) for found in PATH.findall(code))


def exists(path: str, name: str) -> bool:
    file = ROOT / path
    return file.exists() and (not name or f"def {name.removeprefix('::')}(" in file.read_text())


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of the headings."""
    titles = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(FENCE.sub("", text)))
    return {title.replace(" ", "-") for title in titles}


def test_every_path_in_the_documentation_exists() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {path}{name}"
        for page in pages()
        for path, name in paths_in(page.read_text())
        if not exists(path, name)
    ]
    assert missing == []


def test_a_path_that_does_not_exist_is_found() -> None:
    assert [each for each in paths_in("`broker/no_such_file.py` and `docs/`") if not exists(*each)] == [
        ("broker/no_such_file.py", "")
    ]


def test_every_link_leads_to_a_page_and_a_heading() -> None:
    broken = []
    for page in [path for path in tracked() if path.suffix == ".md"]:
        for link in LINK.findall(FENCE.sub("", page.read_text())):
            if "://" in link:
                continue
            target, _, anchor = link.partition("#")
            file = page if not target else (page.parent / target).resolve()
            if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_every_diagram_is_small_enough_to_be_read() -> None:
    sizes = {}
    for page in (ROOT / "docs" / "architecture").glob("*.md"):
        for drawn in MERMAID.findall(page.read_text()):
            text = re.sub(r'"[^"]*"', '""', drawn)
            names = {first or second for first, second in NODE.findall(text)}
            participants = set(re.findall(r"participant (\w+)", text))
            sizes[page.name] = len(participants or names - {"subgraph", "end", "flowchart", "TB", "LR"})
    assert sizes
    assert {page: size for page, size in sizes.items() if size >= NODES_MAX} == {}


# ---- the picture of the house against the imports


def room_of(path: str) -> str:
    """The node of the picture for a module, such as `broker/admin/verify.py`."""
    parts = path.split("/")
    if parts[0] != "broker":
        return {"spark_connector": "spark"}.get(parts[0], parts[0])
    if len(parts) > 2:
        return parts[1]
    return "facade" if parts[-1] in FACADE else "ground"


def target_of(module: str) -> str | None:
    """The node for an imported name such as `emubus.broker.errors.BrokerError`; None for what is not in the picture."""
    parts = module.split(".")[1:]
    if not parts or not (ROOT / parts[0]).is_dir():
        return None
    if parts[0] == "broker" and len(parts) > 1 and not (ROOT / "broker" / parts[1]).is_dir():
        return room_of(f"broker/{parts[1]}.py")
    return room_of("/".join([*parts, "x.py"]) if parts[0] == "broker" else parts[0])


def drawn_arrows() -> dict[str, set[str]]:
    (drawn,) = MERMAID.findall(HOUSE.read_text())
    arrows: dict[str, set[str]] = defaultdict(set)
    for sources, targets in ARROW.findall(drawn):
        for source in sources.split(" & "):
            arrows[source.strip()] |= {target.strip() for target in targets.split(" & ")}
    return arrows


def below(room: str, arrows: dict[str, set[str]]) -> set[str]:
    found, left = {room}, [room]
    while left:
        for each in arrows.get(left.pop(), set()) - found:
            found.add(each)
            left.append(each)
    return found


def imports_between_rooms() -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for name, tree in trees():
        for module, line in imported(name, tree):
            target = target_of(module) if module.startswith("emubus.") else None
            if target is not None and module != "emubus.broker" and target != room_of(name):
                found[room_of(name), target] = f"{name}:{line} imports {module}"
    return found


def test_the_picture_of_the_house_allows_every_import() -> None:
    arrows = drawn_arrows()
    wrong = [text for (source, target), text in imports_between_rooms().items() if target not in below(source, arrows)]
    assert wrong == []


def test_every_arrow_in_the_picture_of_the_house_is_an_import() -> None:
    drawn = {(source, target) for source, targets in drawn_arrows().items() for target in targets}
    assert drawn - set(imports_between_rooms()) == set()


def test_one_page_alone_says_that_nothing_is_published() -> None:
    """A release changes one sentence; the pages that need it lead there."""
    said = re.compile(r"\b(?:not|nothing is|isn't|unpublished)\b[^.\n|]{0,20}\bpublished\b", re.IGNORECASE)
    assert [page.relative_to(ROOT).as_posix() for page in pages() if said.search(page.read_text())] == ["README.md"]
    for name in ("SPARK.md", "TESTING.md", "RELEASING.md", "FROM_MICROSOFT.md"):
        assert "](../README.md#start)" in (ROOT / "docs" / name).read_text(), name
