"""Values as readable text: instants, durations, sizes, bodies; and the small charts of counts.

Any thread may call it: a large message is made readable beside the event loop (`long_work`).

Knows how much of a body is displayed. Does not know HTML: it returns text and numbers, and the templates escape them.
Pure.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final
from xml.parsers.expat import ExpatError, ParserCreate

from ...broker.admin.overview import PartitionReport, Seen
from ...broker.api import HEALTHY
from ...codec.durations import format_duration
from ...codec.types import Described
from ..control.message_json import BodyJson, MessageJson, message_json
from ..messages.annotations import map_section

BODY_CHARS_MAX: Final = 64 << 10
HEX_BYTES_MAX: Final = 4 << 10
HEX_ROW: Final = 16
VALUE_CHARS_MAX: Final = 4 << 10
PAIRS_MAX: Final = 200
"""Most properties and annotations of a message that are displayed; a message may have 13 000."""
PREVIEW_CHARS_MAX: Final = 120
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s{}\[\],:"]+')
_MARKUP: Final = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>|[^<]+", re.DOTALL
)
_APPLICATION: Final = 0x74
_TYPE_NAMES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "binary",
    type(None): "null",
    list: "list",
    dict: "map",
}
_OPENERS, _CLOSERS = frozenset("{["), frozenset("}]")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def instant(at_ms: int | None) -> str:
    """An instant (Unix ms) in UTC, "" without one."""
    if at_ms is None:
        return ""
    try:
        at = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03} UTC"


def span(ms: int | None) -> str:
    """A duration: `1 min 30 s`, `never` for none."""
    if ms is None:
        return "never"
    parts: list[str] = []
    for unit_ms, unit in _UNITS:
        count, ms = divmod(ms, unit_ms)
        if count:
            parts.append(f"{count} {unit}")
    if ms or not parts:
        parts.append(f"{ms} ms")
    return " ".join(parts)


def span_input(ms: int | None) -> str:
    """A duration as a form field has it."""
    return "never" if ms is None else format_duration(ms)


def instant_input(at_ms: int) -> str:
    """An instant (Unix ms) as a form field has it."""
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat()
    except OverflowError:
        return str(at_ms)


def size(count: int | None) -> str:
    if count is None:
        return "-"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}" if count < 1000 * factor else f"{count / factor:.0f} {unit}"
    return f"{count} B"


def removed(count: int) -> str:
    """How many messages a purge removed."""
    return f"{count:,} message{' was' if count == 1 else 's were'} removed"


def rate(per_second: float | None) -> str:
    """A rate, a dash if it is not known."""
    if per_second is None:
        return "-"
    return f"{per_second:.0f}" if per_second >= 10 or per_second == int(per_second) else f"{per_second:.1f}"


def spark(values: Sequence[float], width: int, height: int) -> str:
    """The points of a line through values, oldest left, for an SVG polyline; "" for fewer than two."""
    if len(values) < 2:
        return ""
    top = max(*values, 1e-9)
    step = width / (len(values) - 1)
    return " ".join(
        f"{number * step:.1f},{height - 1 - value / top * (height - 2):.1f}" for number, value in enumerate(values)
    )


# ---- partitions


@dataclass(frozen=True, slots=True)
class Bar:
    """One partition in the chart: heights from the bottom, in pixels; `dead_height` is the dead letters' own bar."""

    report: PartitionReport
    total: int
    segments: Sequence[tuple[str, int, int]]  # (kind, bottom, height)
    dead_height: int

    @property
    def is_healthy(self) -> bool:
        """Whether its messaging store works."""
        return self.report.health == HEALTHY


def bars(reports: Sequence[PartitionReport], height: int) -> tuple[list[Bar], int]:
    """The chart of partitions, `height` pixels high, and how many messages the full height stands for."""
    tops = [max(_total(each), _dead(each)) for each in reports]
    scale_max = max([1, *tops])
    return [_bar(each, height, scale_max) for each in reports], scale_max


def _bar(report: PartitionReport, height: int, scale_max: int) -> Bar:
    """Segments from the bottom up. Sums are rounded, so that all fill the height; a few messages have two pixels."""
    messages = report.messages or {}
    locked = report.locked_count or 0
    counts = {
        "locked": locked,
        "available": max(0, messages.get("active", 0) - locked),
        "deferred": messages.get("deferred", 0),
        "scheduled": messages.get("scheduled", 0),
    }
    segments: list[tuple[str, int, int]] = []
    below = bottom = 0
    for kind, count in counts.items():
        below += count
        top = round(below / scale_max * height)
        if count:
            top = max(top, bottom + 2)
            segments.append((kind, bottom, top - bottom))
            bottom = top
    dead = _dead(report)
    return Bar(report, _total(report), segments, max(2, round(dead / scale_max * height)) if dead else 0)


def _total(report: PartitionReport) -> int:
    messages = report.messages or {}
    return sum(messages.get(name, 0) for name in ("active", "deferred", "scheduled"))


def _dead(report: PartitionReport) -> int:
    messages = report.messages or {}
    return messages.get("dead-letter", 0) + messages.get("transfer-dead-letter", 0)


# ---- messages


@dataclass(frozen=True, slots=True)
class BodyView:
    """A body for display: `kind` is its form, `text` all of it or its beginning, `cut` how much is left out."""

    kind: str
    text: str
    cut: str = ""


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message for display; `json` is its form in the control API."""

    json: MessageJson
    body: BodyView
    properties: Sequence[tuple[str, str]]
    application_properties: Sequence[tuple[str, str]]
    annotations: Sequence[tuple[str, str]]
    types: Mapping[str, str]  # of the application properties, as AMQP names them

    @property
    def preview(self) -> str:
        """The beginning of the body, on one line."""
        text = " ".join(self.body.text[: 4 * PREVIEW_CHARS_MAX].split()) if self.body.kind != "binary" else "(binary)"
        return text if len(text) <= PREVIEW_CHARS_MAX else f"{text[:PREVIEW_CHARS_MAX]}…"

    def application_property(self, name: str) -> str:
        """An application property, "" without it."""
        return dict(self.application_properties).get(name, "")


def message_view(seen: Seen) -> MessageView:
    values = message_json(seen)
    return MessageView(
        values,
        body_of(values["body"]),
        _pairs({**values["header"], **values["properties"]}),
        _pairs(values["application_properties"]),
        _pairs(values["annotations"]),
        property_types(seen.encoded),
    )


def property_types(encoded: bytes) -> dict[str, str]:
    """The AMQP types of the application properties of an encoded message, by name."""
    return {str(name): type_name(value) for name, value in map_section(encoded, _APPLICATION).items()}


def type_name(value: object) -> str:
    """The name of an AMQP type: `long`, `string`, `com.microsoft:timespan`."""
    if isinstance(value, Described):
        return str(value.descriptor)
    return _TYPE_NAMES.get(type(value), type(value).__name__.lower())


def body_of(values: BodyJson) -> BodyView:
    """A body for display: JSON and XML indented, other text unchanged, other bytes as a hex table."""
    if values["base64"] is not None:
        data = base64.b64decode(values["base64"])
        cut = f"{len(data) - HEX_BYTES_MAX} more bytes" if len(data) > HEX_BYTES_MAX else ""
        kind = "binary" if values["kind"] != "malformed" else "malformed"
        return BodyView(kind, hex_table(data[:HEX_BYTES_MAX]), cut)
    if values["kind"] == "none":
        return BodyView("none", "")
    if values["text"] is None:
        return _cut(values["kind"], json.dumps(values["json"], indent=2, ensure_ascii=False))
    text = values["text"]
    if any(not (each.isprintable() or each in "\r\n\t") for each in text[:BODY_CHARS_MAX]):
        data = text.encode()
        cut = f"{len(data) - HEX_BYTES_MAX} more bytes" if len(data) > HEX_BYTES_MAX else ""
        return BodyView("binary", hex_table(data[:HEX_BYTES_MAX]), cut)
    if isinstance(values["json"], dict | list):
        return _cut("JSON", indented(text[:BODY_CHARS_MAX]), len(text) - BODY_CHARS_MAX)
    if text.lstrip("\ufeff \r\n\t").startswith("<"):
        markup = indented_xml(text)
        if markup is not None:
            return _cut("XML", markup)
    return _cut("text", text)


def _cut(kind: str, text: str, left_out: int = 0) -> BodyView:
    over = max(0, len(text) - BODY_CHARS_MAX) + max(0, left_out)
    return BodyView(kind, text[:BODY_CHARS_MAX], f"{over} more characters" if over else "")


def indented(text: str) -> str:
    """A JSON text, indented; numbers, strings and repeated keys stay as written."""
    out: list[str] = []
    depth = length = 0
    before = ""
    for match in _TOKENS.finditer(text):
        token = match.group()
        if token in _CLOSERS:
            depth -= 1
        if (before in _OPENERS or before == ",") != (token in _CLOSERS):
            token = f"\n{'  ' * depth}{token}"
        out.append(": " if token == ":" else token)
        length += len(token)
        before = match.group()
        depth += before in _OPENERS
        if length > BODY_CHARS_MAX:
            return "".join(out) + text[match.end() :]
    return "".join(out)


def indented_xml(text: str) -> str | None:
    """An XML text, indented; None for one that is not XML, declares a document type, or is longer than what is shown.

    Expat, which needs no recursion, says whether it is XML; no tree of it is made. Elements with text only stay on
    their line, text beside elements stays as it is.
    """
    text = text.lstrip("\ufeff \r\n\t")
    if len(text) > BODY_CHARS_MAX or not _is_xml(text):
        return None
    out: list[str] = []
    depth = length = 0
    before = ""
    for match in _MARKUP.finditer(text):
        token = match.group()
        if token.isspace():
            continue
        is_end = token.startswith("</")
        if is_end:
            depth -= 1
        is_text = token[0] != "<" or token.startswith("<![CDATA[")
        is_inline = is_text or before == "text" or (is_end and before == "start")
        if is_inline or not out:
            out.append(token)
        else:
            out.append(f"\n{'  ' * depth}{token}")
        length += len(out[-1])
        if is_text:
            before = "text"
        elif is_end or token[:2] in ("<?", "<!") or token.endswith("/>"):
            before = "end"
        else:
            before = "start"
            depth += 1
        if length > BODY_CHARS_MAX:
            return "".join(out) + text[match.end() :]
    return "".join(out)


def _is_xml(text: str) -> bool:
    """Whether a text is XML; one with a document type, which could declare entities, is not taken for it."""
    if "<!DOCTYPE" in text:
        return False
    try:
        ParserCreate("utf-8").Parse(text.encode(), True)  # whatever encoding the text names: it has been decoded
    except (ExpatError, ValueError):
        return False
    return True


def body_bytes(view: MessageView) -> tuple[bytes, str]:
    """The whole body for a download, and the ending of its file's name: the data as sent, other bodies as JSON."""
    body = view.json["body"]
    if body["base64"] is not None:
        return base64.b64decode(body["base64"]), "bin"
    if body["kind"] == "data":
        return (body["text"] or "").encode(), {"JSON": "json", "XML": "xml"}.get(view.body.kind, "txt")
    if body["kind"] == "none":
        return b"", "txt"
    return json.dumps(body["json"], indent=2, ensure_ascii=False).encode(), "json"


def hex_table(data: bytes) -> str:
    """Bytes, sixteen on a line: offset, hexadecimal, text."""
    rows: list[str] = []
    for start in range(0, len(data), HEX_ROW):
        row = data[start : start + HEX_ROW]
        text = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in row)
        rows.append(f"{start:06x}  {row.hex(' '):<{HEX_ROW * 3}} {text}")
    return "\n".join(rows)


def _pairs(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """The first of some values, and how many are left out."""
    shown = [(name, value_text(value)) for name, value in islice(values.items(), PAIRS_MAX)]
    return [*shown, ("…", f"{len(values) - PAIRS_MAX:,} more; an export has all")] if len(values) > PAIRS_MAX else shown


def value_text(value: object) -> str:
    """A value of the control API's JSON on one line."""
    if isinstance(value, dict) and set(value) == {"type", "value"}:
        text = f"{value['value']} ({value['type']})"
    elif isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
