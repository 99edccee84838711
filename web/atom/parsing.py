"""Safe parsing of untrusted XML: no document types, no entities, any namespace prefix.

Knows how to find the description inside an Atom entry, and the parts of an element by their local names: clients
declare the same namespaces under many prefixes [http 2]. Does not know what the parts mean. What is wrong is an
`HttpRefusal` with status 400 that names the element.
"""

from __future__ import annotations

from collections.abc import Iterator
from traceback import clear_frames
from typing import Final
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from ..errors import HttpRefusal, excerpt

DEPTH_MAX: Final = 32
"""Descriptions of the service are eight deep. One of 30 000 elements in each other held others up for 380 ms."""
ELEMENTS_MAX: Final = 20_000
"""A rule of 5 000 properties has 15 000; so many take 15 ms."""


def bad(problem: str) -> HttpRefusal:
    """A request that cannot be understood."""
    return HttpRefusal(400, f"SubCode=40000. {problem}")


def description_in(body: bytes) -> Element:
    """The description (QueueDescription, …) in the content of the Atom entry that a request brings."""
    parser = DefusedXMLParser(target=_LimitedBuilder(), forbid_dtd=True)
    try:
        parser.feed(body)
        entry: Element = parser.close()
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        clear_frames(error.__traceback__)  # ElementTree's frame and its error keep each other, and the body with them
        raise bad(f"The body is not the XML of an Atom entry: {excerpt(str(error))}.") from None
    finally:
        vars(parser).clear()  # it and Expat's parser keep each other; only `close` of a whole document ends that
    content = child(entry, "content") if local_name(entry) == "entry" else None
    if content is None or not len(content):
        raise bad(f"The body is not an Atom entry with a description: it begins with '{excerpt(local_name(entry))}'.")
    return content[0]


class _LimitedBuilder(TreeBuilder):
    """Builds elements up to `DEPTH_MAX` and `ELEMENTS_MAX`; raises HttpRefusal, which ends the parser."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = self._count = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > DEPTH_MAX:
            raise bad(f"The XML of the body has elements more than {DEPTH_MAX} deep in each other; make it flatter.")
        if self._count > ELEMENTS_MAX:
            raise bad(f"The XML of the body has more than {ELEMENTS_MAX} elements; send it in parts.")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def local_name(node: Element) -> str:
    """The name of an element without its namespace."""
    return str(node.tag).rpartition("}")[2]


def child(node: Element, name: str) -> Element | None:
    """The first child of that local name, if there is one that is not nil."""
    return next((each for each in children(node) if local_name(each) == name), None)


def children(node: Element) -> Iterator[Element]:
    """The children of an element but for those that say that they are not there (`i:nil`)."""
    return (each for each in node if _attribute(each, "nil") not in ("true", "1"))


def type_of(node: Element) -> str | None:
    """The `i:type` of an element without its prefix."""
    declared = _attribute(node, "type")
    return None if declared is None else declared.rpartition(":")[2]


def text_of(node: Element) -> str:
    """The text of an element that has no elements in it."""
    if len(node):
        raise bad(f"The element '{excerpt(local_name(node))}' holds elements where it should hold a text.")
    return node.text or ""


def _attribute(node: Element, name: str) -> str | None:
    return next((value for key, value in node.attrib.items() if key.rpartition("}")[2] == name), None)
