"""Turns a delivery into an HTTP answer: its body, and its properties as headers [http 5].

Knows which bytes of an AMQP message are its HTTP body, and which properties can be headers: not binary values, lists
and maps, nor names that no header can have; the service leaves those out, too. Does not know locks. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Final

from aiohttp import hdrs, web
from multidict import CIMultiDict

from ...broker.api import Delivery
from ...broker.message.builder import LIFETIME_PROPERTIES
from ...broker.message.message import PROPERTY_NAMES, effective_ttl
from ...codec.decode import decode
from ...codec.errors import DecodeError
from ...codec.json_values import shown
from ...codec.types import Described, Symbol
from .broker_properties import HEADER, ReceivedProperties, header_of
from .headers import is_http_header
from .texts import property_text

_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA, _SEQUENCE, _VALUE = 0x70, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77
_TTL, _DELIVERY_COUNT = 2, 4  # positions in the header section
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]+")

Sections = dict[int, list[object]]


def answer(request: web.Request, delivery: Delivery, *, locked: bool, location: str | None = None) -> web.Response:
    """The message: 201 if it is locked, at `location`, and 200 if it is deleted. Any thread may call it."""
    sections = _decoded_sections(delivery.payload)
    headers: CIMultiDict[str] = CIMultiDict()
    properties = dict(zip(PROPERTY_NAMES, _fields(sections, _PROPERTIES), strict=False))
    content_type = properties.get("content-type")
    if isinstance(content_type, Symbol) and _PRINTABLE.fullmatch(content_type):
        headers[hdrs.CONTENT_TYPE] = str.__str__(content_type)
    if location is not None:
        headers[hdrs.LOCATION] = location
    head = _fields(sections, _HEADER)
    found = ReceivedProperties(
        delivery.sequence_number,
        properties,
        _entries(sections, _ANNOTATIONS),
        _integer_at(head, _DELIVERY_COUNT) or 0,
        effective_ttl(_integer_at(head, _TTL), *(properties.get(name) for name in LIFETIME_PROPERTIES)),
    )
    headers[HEADER] = header_of(found, delivery.token if locked else None)
    for name, value in _entries(sections, _APPLICATION).items():
        text = property_text(value)
        if text is not None and isinstance(name, str) and _TOKEN.fullmatch(name) and not is_http_header(name.lower()):
            headers.add(str.__str__(name), text)
    response = web.Response(status=201 if locked else 200, body=_body(sections), headers=headers)
    if request.version >= (1, 1):
        # As the service does: old clients take a Content-Length for a property of the message.
        response.enable_chunked_encoding()
    return response


def _decoded_sections(payload: bytes) -> Sections:
    sections: Sections = {}
    position = 0
    try:
        while position < len(payload):
            section, position = decode(payload, position)
            if isinstance(section, Described) and isinstance(section.descriptor, int):
                sections.setdefault(int(section.descriptor), []).append(section.value)
    except DecodeError:  # the broker does not check bodies; the sections before it are usable
        pass
    return sections


def _fields(sections: Sections, code: int) -> list[object]:
    """The fields of the first section with that code, a list."""
    values = sections.get(code)
    return values[0] if values and isinstance(values[0], list) else []


def _entries(sections: Sections, code: int) -> dict[object, object]:
    """The entries of the first section with that code, a map."""
    values = sections.get(code)
    return values[0] if values and isinstance(values[0], dict) else {}


def _integer_at(fields: list[object], position: int) -> int | None:
    value = fields[position] if position < len(fields) else None
    return int(value) if isinstance(value, int) else None


def _body(sections: Sections) -> bytes:
    """Data as it is; a string as UTF-8; any other value or sequence as JSON."""
    if _DATA in sections:
        return b"".join(each for each in sections[_DATA] if isinstance(each, bytes))
    if _SEQUENCE in sections:
        items = [item for each in sections[_SEQUENCE] for item in (each if isinstance(each, list) else [each])]
        return json.dumps(shown(items)).encode()
    if _VALUE not in sections or sections[_VALUE][0] is None:
        return b""
    value = sections[_VALUE][0]
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        return str.__str__(value).encode()
    return json.dumps(shown(value)).encode()
