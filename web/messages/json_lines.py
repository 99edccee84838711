"""A message as one line of JSON, and back: every section, body and type [AMQP 3.2].

    {"sequence_number": 7, "state": "active", …, "message": {"header": {…}, "properties": {…}, "body": {…}}}

What stands beside `message` says where it was; reading it back, only `state` is used. Within it, values keep their
types (`codec/json_values.py`). A map whose keys all have the section's usual type is an object. A body is `data` (its
sections as `text` or `base64`), a `value`, or a `sequence`; one that can't be decoded is `malformed`, its bytes in
base64. What the broker wrote into a message is left out. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from ...broker.admin.overview import Seen
from ...broker.message.annotations import BROKER_ANNOTATIONS
from ...broker.message.message import PROPERTY_NAMES
from ...codec.decode import decode_exactly
from ...codec.encode import encode
from ...codec.errors import DecodeError
from ...codec.json_values import from_json, to_json
from ...codec.sections import (
    APPLICATION_PROPERTIES,
    BODY,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    canonical,
    locate,
)
from ...codec.types import Described, MapItems, Symbol, Ubyte, Uint
from .annotations import enqueued_at, state_of

HEADER_FIELDS: Final[Mapping[str, type[int]]] = {
    "durable": bool,
    "priority": Ubyte,
    "ttl_ms": Uint,
    "first_acquirer": bool,
}
_PROPERTY_FIELDS: Final = tuple(name.replace("group-id", "session-id").replace("-", "_") for name in PROPERTY_NAMES)
_MAPS: Final[Mapping[str, tuple[int, int, type[str]]]] = {
    "delivery_annotations": (DELIVERY_ANNOTATIONS, 0x71, Symbol),
    "annotations": (MESSAGE_ANNOTATIONS, 0x72, Symbol),
    "application_properties": (APPLICATION_PROPERTIES, 0x74, str),
    "footer": (FOOTER, 0x78, Symbol),
}
"""Name in JSON: rank of the section, its code, usual type of a key."""

_HEADER_CODE, _PROPERTIES_CODE = 0x70, 0x73
_NAMES: Final = frozenset({"header", "properties", "body", *_MAPS})


def line_of(seen: Seen) -> dict[str, object]:
    """A peeked message. DecodeError for one whose sections before the body are malformed."""
    data = seen.encoded
    at = locate(data, mixed=True)
    if at is None:
        data = canonical(data)
        at = locate(data)
        assert at is not None, "canonical messages can be located"
    header = _items(data, at, HEADER)
    message: dict[str, object] = {}
    fields = {name: value for name, value in zip(HEADER_FIELDS, header, strict=False) if value is not None}
    if fields:
        message["header"] = {name: _header_json(name, value) for name, value in fields.items()}
    properties = zip(_PROPERTY_FIELDS, _items(data, at, PROPERTIES), strict=False)
    if found := {name: to_json(value) for name, value in properties if value is not None}:
        message["properties"] = found
    for name, (rank, _, key_type) in _MAPS.items():
        items = MapItems(item for item in _map_items(data, at, rank) if not _is_of_broker(item[0]))
        if items:
            message[name] = _map_json(items, key_type)
    message["body"] = _body_json(data[at[BODY] : at[BODY + 7]] if at[BODY + 7] else b"")
    return {
        "sequence_number": seen.sequence_number,
        "partition_id": seen.partition_id,
        "state": state_of(seen.encoded),
        "enqueued_at": enqueued_at(seen.encoded),
        "delivery_count": int(count) if isinstance(count := header[4] if len(header) > 4 else 0, int) else 0,
        "message": message,
    }


def _is_of_broker(key: object) -> bool:
    """Whether a key of a map is that of an annotation which the broker wrote; a key may be any value, lists too."""
    return isinstance(key, str) and key in BROKER_ANNOTATIONS


def _header_json(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) is not (HEADER_FIELDS[name] is bool):
        raise DecodeError(0, f"a header whose '{name}' is of another type")
    return value if isinstance(value, bool) else int(value)


def _items(data: bytes, at: list[int], rank: int) -> list[object]:
    if not at[rank + 7]:
        return []
    section, _ = decode_exactly(data, at[rank], at[rank + 7])
    return section.value if isinstance(section, Described) and isinstance(section.value, list) else []


def _map_items(data: bytes, at: list[int], rank: int) -> MapItems:
    if not at[rank + 7]:
        return MapItems()
    section, _ = decode_exactly(data, at[rank], at[rank + 7])
    return section.value if isinstance(section, Described) and isinstance(section.value, MapItems) else MapItems()


def _map_json(items: MapItems, key_type: type[str]) -> object:
    names = [str.__str__(key) if type(key) is key_type else "" for key, _ in items]
    if "" in names or len(set(names)) < len(names) or {"type", "value"} <= set(names):
        return to_json(items)
    return {name: to_json(value) for name, (_, value) in zip(names, items, strict=True)}


def _body_json(encoded: bytes) -> dict[str, object]:
    try:
        sections: list[Described] = []
        position = 0
        while position < len(encoded):
            section, position = decode_exactly(encoded, position)
            if not isinstance(section, Described):
                raise DecodeError(position, "a value that is no section")
            sections.append(section)
    except DecodeError:
        return {"kind": "malformed", "base64": base64.b64encode(encoded).decode("ascii")}
    codes = {each.descriptor for each in sections}
    if not sections:
        return {"kind": "none"}
    if codes == {DATA} and all(isinstance(each.value, bytes) for each in sections):
        parts = [_data_json(each.value) for each in sections if isinstance(each.value, bytes)]
        return {"kind": "data", **parts[0]} if len(parts) == 1 else {"kind": "data", "sections": parts}
    if codes == {VALUE} and len(sections) == 1:
        return {"kind": "value", "value": to_json(sections[0].value)}
    if codes == {SEQUENCE}:
        return {"kind": "sequence", "sections": [to_json(each.value) for each in sections]}
    return {"kind": "malformed", "base64": base64.b64encode(encoded).decode("ascii")}


def _data_json(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


# ---- and back


def message_of(line: object) -> tuple[bytes, str]:
    """The encoded message of a line, and its state. ValueError."""
    if not isinstance(line, dict) or not isinstance(line.get("message"), dict):
        raise ValueError("a line is an object with the field 'message', an object")
    try:
        return _encoded_message(line["message"]), str(line.get("state"))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _encoded_message(message: Mapping[str, object]) -> bytes:
    """The encoded message. ValueError, TypeError."""
    if unknown := message.keys() - _NAMES:
        raise ValueError(f"a message has no field '{sorted(unknown)[0][:60]}'; it has {', '.join(sorted(_NAMES))}")
    sections: dict[int, bytes] = {}
    if header := _object_member(message, "header"):
        sections[_HEADER_CODE] = encode(
            [_header_field(header, name) for name in _known_names(header, tuple(HEADER_FIELDS))]
        )
    if properties := _object_member(message, "properties"):
        fields = [from_json(properties.get(name)) for name in _known_names(properties, _PROPERTY_FIELDS)]
        sections[_PROPERTIES_CODE] = encode(fields)
    for name, (_, code, key_type) in _MAPS.items():
        if entries := _object_member(message, name):
            sections[code] = encode(_map_of(entries, key_type))
    body = _body_of(_object_member(message, "body"))
    footer = sections.pop(0x78, None)
    start = b"".join(bytes((0, 0x53, code)) + sections[code] for code in sorted(sections))
    return start + body + (b"" if footer is None else b"\x00\x53\x78" + footer)


def _object_member(message: Mapping[str, object], name: str) -> dict[str, object]:
    found = message.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"'{name}' is not an object")
    return found


def _known_names(given: Mapping[str, object], names: tuple[str, ...]) -> tuple[str, ...]:
    for name in given:
        if name not in names:
            raise ValueError(f"there is no field '{name[:60]}'; there are {', '.join(names)}")
    return names


def _header_field(header: Mapping[str, object], name: str) -> object:
    value, kind = header.get(name), HEADER_FIELDS[name]
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) is not (kind is bool)):
        raise ValueError(f"the header's '{name}' is not {'true or false' if kind is bool else 'a whole number'}")
    return None if value is None else kind(value)


def _map_of(entries: Mapping[str, object], key_type: type[str]) -> MapItems:
    if entries.keys() == {"type", "value"} and entries["type"] == "map":
        found = from_json(dict(entries))
        return found if isinstance(found, MapItems) else MapItems()
    return MapItems((key_type(name), from_json(value)) for name, value in entries.items())


def _body_of(body: Mapping[str, object]) -> bytes:
    match body.get("kind", "none"):
        case "none":
            return b""
        case "data":
            parts = body.get("sections", [body])
            return b"".join(_encoded_section(DATA, _data_of(each)) for each in _require_list(parts))
        case "value":
            return _encoded_section(VALUE, from_json(body.get("value")))
        case "sequence":
            return b"".join(
                _encoded_section(SEQUENCE, _require_list(from_json(each)))
                for each in _require_list(body.get("sections"))
            )
        case "malformed":
            return _data_of(body)
        case other:
            raise ValueError(f"a body is data, value, sequence, malformed or none, not {str(other)[:60]!r}")


def _require_list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("'sections' is not a list of sections")
    return value


def _data_of(part: object) -> bytes:
    given: Mapping[str, object] = part if isinstance(part, dict) else {}
    written = given.get("text", given.get("base64"))
    try:
        if isinstance(written, str):
            return written.encode() if "text" in given else base64.b64decode(written, validate=True)
    except ValueError:  # half a surrogate pair, no base64
        pass
    raise ValueError("a body of data has a 'text', or 'base64'")


def _encoded_section(code: int, value: object) -> bytes:
    return bytes((0, 0x53, code)) + encode(value)
