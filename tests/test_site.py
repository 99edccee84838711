"""The documents as a site: each is in the menu or linked, and each link and anchor leads to something that is there.

`make site` builds it, with mkdocs, which tests do without: they ask the functions that mkdocs does.
"""

from __future__ import annotations

import re

import pytest

from docs.generate import site

from .building import ROOT
from .test_docs import anchors


def in_menu(menu: site.Menu) -> list[str]:
    return [
        path
        for entry in menu
        for below in entry.values()
        for path in ([below] if isinstance(below, str) else in_menu(below))
    ]


def test_the_menu_has_every_document_of_docs_once() -> None:
    found = in_menu(site.menu())
    assert len(found) == len(set(found))
    assert found[:2] == ["index.md", "contents.md"]
    pages = {site.place_of(each) for each in site.documents()}
    assert set(found) <= pages
    assert {each for each in pages if not each.startswith(f"{site.ELSEWHERE}/")} <= set(found)


def test_every_link_leads_to_a_page_or_a_file_of_the_site_and_to_an_anchor_that_is_there() -> None:
    places = {site.place_of(each) for each in (*site.documents(), *site.others(), *site.tracked())}
    kept = {site.place_of(each) for each in (*site.documents(), *site.others())}
    kept |= {each for each in places if not each.startswith(f"{site.ELSEWHERE}/")}
    lost: list[tuple[str, str]] = []
    for each in site.documents():
        for aim, anchor in site.links(each):
            is_there = site.place_of(aim) in kept
            if not is_there or (anchor and anchor[1:] not in site.anchors((ROOT / aim).read_text())):
                lost.append((each, aim + anchor))
    assert lost == []


def test_anchors_are_those_that_github_makes() -> None:
    for each in site.documents():
        text = (ROOT / each).read_text()
        assert anchors(text) <= site.anchors(text), each


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("README.md", "[t](docs/TESTING.md#pytest)", "[t](TESTING.md#pytest)"),
        ("README.md", "![t](docs/moving/failing-test.svg)", "![t](moving/failing-test.svg)"),
        ("docs/TESTING.md", "[a](../README.md) [b](README.md)", "[a](index.md) [b](contents.md)"),
        ("docs/clients/java.md", "[j](../../examples/junit)", "[j](../repository/examples/junit/index.md)"),
        ("docs/clients/java.md", "[j](../../examples/README.md)", "[j](../repository/examples/README.md)"),
        ("docs/README.md", "[C](../CHANGELOG.md#x)", "[C](repository/CHANGELOG.md#x)"),
        (
            "docs/README.md",
            "`[c](../x.md)` [h](https://a/b.md) [i](#here)",
            "`[c](../x.md)` [h](https://a/b.md) [i](#here)",
        ),
        ("docs/README.md", "```\n[c](../x.md)\n```\n", "```\n[c](../x.md)\n```\n"),
    ],
)
def test_a_link_leads_to_the_same_in_the_site(path: str, text: str, expected: str) -> None:
    assert site.rewritten(path, text) == expected


def test_a_folder_without_a_page_lists_its_files() -> None:
    assert "examples/junit" in site.others()
    assert "examples/junit/pom.xml" in site.others()
    assert "* [pom.xml](pom.xml)\n" in site.listing("examples/junit")


def test_mkdocs_is_told_of_them_and_fails_where_a_link_leads_nowhere() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "\nhooks: [docs/generate/site.py]\n" in settings
    (checks,) = re.findall(r"^  links: \{(.*)\}$", settings, re.MULTILINE)
    assert {each.split(":")[1].strip() for each in checks.split(",")} == {"warn"}
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text()
