"""Safe parsing of untrusted XML: no document types, no entities, any namespace prefix.

Knows how to find the description inside an Atom entry, and the parts of an element by their local names: clients
declare the same namespaces under many prefixes [http 2]. Does not know what the parts mean. What is wrong is an
`HttpRefusal` with status 400 that names the element.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ..errors import HttpRefusal

EXCERPT_CHARS_MAX = 80


def bad(problem: str) -> HttpRefusal:
    """A request that cannot be understood."""
    return HttpRefusal(400, f"SubCode=40000. {problem}")


def description_in(body: bytes) -> Element:
    """The description (QueueDescription, …) in the content of the Atom entry that a request brings."""
    try:
        entry: Element = fromstring(body, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise bad(f"The body is not the XML of an Atom entry: {excerpt(str(error))}.") from None
    content = child(entry, "content") if local_name(entry) == "entry" else None
    if content is None or not len(content):
        raise bad(f"The body is not an Atom entry with a description: it begins with '{excerpt(local_name(entry))}'.")
    return content[0]


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


def excerpt(text: str) -> str:
    """Untrusted text, cut to a length that fits an error message."""
    return text if len(text) <= EXCERPT_CHARS_MAX else f"{text[:EXCERPT_CHARS_MAX]}…"


def _attribute(node: Element, name: str) -> str | None:
    return next((value for key, value in node.attrib.items() if key.rpartition("}")[2] == name), None)
