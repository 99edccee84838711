"""The documents as a site with search: the hooks of mkdocs (mkdocs.yml names this file), and where links lead there.

The pages stay as they are for readers of the repository. The start page is README.md; documents elsewhere that are
linked come along, other files are copied, and a folder becomes a page that lists its files. `make site` builds it.
Does not import mkdocs before mkdocs calls: tests check pages, links and anchors by the same functions.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the extra `site` has it
    from mkdocs.config.defaults import MkDocsConfig  # pyright: ignore[reportMissingImports]
    from mkdocs.structure.files import Files  # pyright: ignore[reportMissingImports]
    from mkdocs.structure.pages import Page  # pyright: ignore[reportMissingImports]

ROOT: Final = Path(__file__).resolve().parents[2]
START: Final = {"README.md": "index.md", "docs/README.md": "contents.md"}
"""Documents whose place in the site is not that in the repository."""
ELSEWHERE: Final = "repository"
"""The site's folder for what is outside of docs/."""
FOR_MAINTAINERS: Final = ("decisions/", "reference/", "architecture/", f"{ELSEWHERE}/")
"""Pages that a search finds after the others."""
_FENCE: Final = re.compile(r"^(?P<mark>```+|~~~+).*?^(?P=mark)[ ]*$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]+`")
_LINK: Final = re.compile(r"(?P<before>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\()(?P<target>[^)\s]+)(?=\))")
_HEADING: Final = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
_SECTION: Final = re.compile(r"^\*\*(.+)\*\*$")
_ROW: Final = re.compile(r"^\| \[([^\]]+)\]\(([^)#]+)\)")
_ALSO: Final = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")


@cache
def tracked() -> tuple[str, ...]:
    """The files of the repository, as paths in it."""
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return tuple(sorted(each for each in listed.split("\0") if each))


def place_of(path: str) -> str:
    """Where a file of the repository is in the sources of the site; of a folder its page."""
    if path in START:
        return START[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return (
            place_of(f"{path}/README.md") if (ROOT / path / "README.md").is_file() else f"{ELSEWHERE}/{path}/index.md"
        )
    return f"{ELSEWHERE}/{path}"


def slug(title: str, separator: str = "-") -> str:
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]+>", "", title).strip().lower())
    return text.replace(" ", separator)


def anchors(text: str) -> set[str]:
    """The anchors of a document; the second of a name has a number."""
    found: Counter[str] = Counter()
    names: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        name = slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        names.add(f"{name}_{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def _outside_code(text: str) -> Iterator[tuple[bool, str]]:
    """The parts of a document: whether it is text, and what it is."""
    at = 0
    for found in re.finditer(rf"{_FENCE.pattern}|{_CODE.pattern}", text, re.DOTALL | re.MULTILINE):
        yield True, text[at : found.start()]
        yield False, found[0]
        at = found.end()
    yield True, text[at:]


def _is_local(target: str) -> bool:
    return not target.startswith("#") and ":" not in target.split("/")[0]


def _aimed(path: str, target: str) -> tuple[str, str]:
    """The path in the repository that a link of a document leads to, and its anchor with `#`."""
    name, mark, anchor = target.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name)), mark + anchor


def links(path: str) -> list[tuple[str, str]]:
    """Where the links of a document lead: a path in the repository, and an anchor with `#`."""
    text = (ROOT / path).read_text()
    found = [each["target"] for is_text, part in _outside_code(text) if is_text for each in _LINK.finditer(part)]
    return [(path, each) if each.startswith("#") else _aimed(path, each) for each in found if ":" not in each[:8]]


def rewritten(path: str, text: str) -> str:
    """A document with links that lead to the same in the site."""

    def link(found: re.Match[str]) -> str:
        target = found["target"]
        if not _is_local(target):
            return found[0]
        aim, anchor = _aimed(path, target)
        base = posixpath.dirname(place_of(path)) or "."
        return found["before"] + posixpath.relpath(place_of(aim), base) + anchor

    return "".join(_LINK.sub(link, part) if is_text else part for is_text, part in _outside_code(text))


@cache
def documents() -> tuple[str, ...]:
    """All documents of the site: those of docs/, and those elsewhere that one of them leads to."""
    found = ["README.md", *(each for each in tracked() if each.startswith("docs/") and each.endswith(".md"))]
    for each in found:  # it grows
        for aim, _ in links(each):
            page = f"{aim}/README.md" if (ROOT / aim).is_dir() else aim
            if page.endswith(".md") and page not in found and (ROOT / page).is_file():
                found.append(page)
    return tuple(found)


@cache
def others() -> tuple[str, ...]:
    """Files and folders outside of docs/ that a document leads to, and that are no documents."""
    aims = {aim for each in documents() for aim, _ in links(each)}
    pages = {place_of(each) for each in documents()}
    found = {each for each in aims if not each.startswith("docs/") and place_of(each) not in pages}
    inside = {file for each in found if (ROOT / each).is_dir() for file in _files_in(each)}
    return tuple(sorted(found | {each for each in inside if not each.endswith(".md")}))


def _files_in(folder: str) -> list[str]:
    return [each for each in tracked() if each.startswith(f"{folder}/")]


def listing(folder: str) -> str:
    """The page of a folder."""
    names = [each.removeprefix(f"{folder}/") for each in _files_in(folder)]
    return "\n".join([f"# {folder}", "", *(f"* [{name}]({name})" for name in names), ""])


Menu = list[dict[str, "str | Menu"]]


def menu() -> Menu:
    """The menu: the tables of docs/README.md, and below a folder's page all documents of the folder."""
    found: Menu = [{"Start": START["README.md"]}, {"All pages": START["docs/README.md"]}]
    section: Menu = found
    for line in (ROOT / "docs" / "README.md").read_text().splitlines():
        if title := _SECTION.match(line):
            section = []
            found.append({title[1]: section})
        elif row := _ROW.match(line):
            for name, target in [(row[1], row[2]), *_ALSO.findall(line[row.end() :])]:
                _add(section, name, _aimed("docs/README.md", target)[0])
    return found


def _add(section: Menu, name: str, path: str) -> None:
    if path in START:
        return
    inside = [each for each in documents() if each != path and posixpath.dirname(each) == posixpath.dirname(path)]
    title = name.replace("_", " ").capitalize() if name.isupper() else name
    if path.endswith("/README.md") and path.startswith("docs/"):
        below: Menu = [{title: place_of(path)}]
        for each in sorted(inside):
            below.append({_title(each): place_of(each)})
        section.append({title: below})
    elif not any(place_of(path) in each.values() for each in section):
        section.append({_title(path) if path.endswith(".md") else name: place_of(path)})


def _title(path: str) -> str:
    heading = _HEADING.search(_FENCE.sub("", (ROOT / path).read_text()))
    return re.sub(r"[`*]", "", heading[1]) if heading else posixpath.basename(path)


# ---------------------------------------------------------------- what mkdocs calls


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = menu()
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]

    def add(file: File) -> None:
        found = files.get_file_from_path(file.src_uri)
        if found is not None:
            files.remove(found)
        files.append(file)

    for each in START:
        found = files.get_file_from_path(each.removeprefix("docs/"))
        if found is not None:
            files.remove(found)
    for each in documents():
        add(File.generated(config, place_of(each), content=rewritten(each, (ROOT / each).read_text())))
    for each in others():
        if (ROOT / each).is_dir():
            add(File.generated(config, place_of(each), content=listing(each)))
        else:
            add(File.generated(config, place_of(each), abs_src_path=str(ROOT / each)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    where = page.file.src_uri
    if where == START["README.md"]:
        page.meta["hide"] = ["toc"]  # its headings are few
    if where.startswith(FOR_MAINTAINERS):
        page.meta["search"] = {"boost": 0.3}
    return markdown
