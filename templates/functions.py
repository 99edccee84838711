"""The functions of templates whose result depends on nothing but their arguments, one row each.

Source: "ARM template functions" (learn.microsoft.com/azure/azure-resource-manager/templates/template-functions) and the
pages behind it. What they say of a function is said here only where a reader could doubt it. Functions that read the
template, the deployment or the cloud, choose which argument they evaluate, or take a lambda are in `evaluating`.

A row has the types of the arguments; a call with others is refused before the function runs, and one with an unknown
argument is unknown unless the row says that it can work with that.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from .formats import formatted
from .moments import add_duration, epoch_of, moment_of_epoch
from .values import (
    NUMBER_MAX,
    Mixed,
    Partly,
    Unknown,
    Unresolved,
    few,
    kind_of,
    member,
    piecewise,
    quoted,
    short,
    text_from,
    unknown_in,
    weight,
)

JsonObject = dict[str, object]
_GUIDS: Final = uuid.UUID("11fb06fb-712d-4ddd-98c7-e71bbd588830")
"""The name space of `guid`, which makes UUIDs of version 5 of its arguments with hyphens between them (Bicep's page of
string functions)."""


class Takes(Enum):
    """What is unknown that a function can work with; of a call with more, the result is unknown."""

    KNOWN = auto()
    INSIDE = auto()
    """Unknown items and members within an argument."""
    TEXTS = auto()
    """Also texts that are partly known."""
    ALL = auto()
    """Also unknown arguments."""


@dataclass(frozen=True, slots=True)
class Function:
    """`types` has a letter or more for each argument: s text, i whole number, n number, b boolean, a array, o object,
    v any value; `?` makes it and those behind it optional, `*` repeats it."""

    types: tuple[str, ...]
    work: Callable[..., object]
    takes: Takes = Takes.KNOWN

    def least(self) -> int:
        return sum(not each.endswith(("?", "*")) for each in self.types)

    def most(self) -> int | None:
        """None if there is no limit."""
        return None if self.types and self.types[-1].endswith("*") else len(self.types)


_LETTERS: Final[Mapping[str, str]] = {
    "s": "string",
    "i": "whole number",
    "n": "number",
    "b": "bool",
    "a": "array",
    "o": "object",
    "v": "value",
}


def call(name: str, function: Function, given: Sequence[object]) -> object:
    """The result of a function. Unresolved if its arguments are not for it."""
    least, most = function.least(), function.most()
    if len(given) < least or (most is not None and len(given) > most):
        wanted = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise Unresolved(f"{name}() has {len(given)} arguments; it takes {wanted}")
    for at, value in enumerate(given):
        letters = function.types[min(at, len(function.types) - 1)].rstrip("?*")
        if not isinstance(value, Unknown) and not any(_is(letter, value) for letter in letters):
            words = " or ".join(_LETTERS[each] for each in letters)
            raise Unresolved(f"{name}() takes a {words} as argument {at + 1}, not {quoted(value)}")
    missing = next((each for value in given if (each := _hinders(value, function.takes)) is not None), None)
    if missing is not None:
        return missing
    try:
        return function.work(*given)
    except (TypeError, ValueError, LookupError, ArithmeticError, OverflowError) as error:
        raise Unresolved(f"{name}() can't be evaluated: {error}") from None


def _hinders(value: object, takes: Takes) -> Unknown | None:
    """What is unknown in an argument that the function can't work with."""
    match value:
        case Unknown():
            return None if takes is Takes.ALL else value
        case Mixed():
            return None if takes in (Takes.TEXTS, Takes.ALL) else value.first_unknown
        case _:
            return unknown_in(value) if takes is Takes.KNOWN else None


def _is(letter: str, value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match letter:
        case "v":
            return True
        case "i":
            return is_number and isinstance(value, int)
        case "n":
            return is_number
        case "b":
            return isinstance(value, bool)
        case "s":
            return isinstance(value, str | Mixed)
        case "a":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def whole_number(value: object) -> int:
    """A number as the service has them: of 64 bits. Unresolved."""
    if isinstance(value, str) and len(value) > len(str(NUMBER_MAX)) + 1:
        raise Unresolved(f"{quoted(value)} is no whole number of 64 bits")
    try:
        found = int(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise Unresolved(f"{quoted(value)} is no whole number")
    if not -NUMBER_MAX <= found < NUMBER_MAX:
        raise Unresolved(f"{found} is no whole number of 64 bits")
    return found


def equal(a: object, b: object) -> bool:
    """Texts by case; a boolean is no number, whatever Python says."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(each, b[name]) for name, each in a.items())
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def string(value: object) -> str | Mixed:
    """A value as text. A boolean is `True`, as .NET writes it, in which the service runs; what has parts is JSON."""
    match value:
        case str() | Mixed():
            return value
        case Unknown():
            return Mixed((value,))
        case None:
            return ""
        case bool():
            return "True" if value else "False"
        case list() | dict():
            if (missing := unknown_in(value)) is not None:
                return Mixed((missing,))
            short(weight(value))
            text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
            short(len(text))
            return text
        case _:
            return str(value)


def item(value: object, key: object) -> object:
    """A member of an object, in any case, or an item of a list. LookupError if there is none, Unresolved."""
    match value:
        case dict() if isinstance(key, str):
            return member(value, key)
        case list() if isinstance(key, int) and not isinstance(key, bool):
            if key < 0:
                raise LookupError
            return value[key]
        case _:
            raise Unresolved(f"{quoted(key)} can't be taken of a {kind_of(value)}")


def order_of(value: object) -> tuple[object, ...]:
    """Texts compare without case first and then small letters before large ones: `greater('A', 'a')` is true in the
    documentation."""
    if isinstance(value, str):
        return (value.casefold(), value.swapcase())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value,)
    raise TypeError(f"{quoted(value)} can't be compared")


def _comparison(work: Callable[[object, object], bool]) -> Callable[[object, object], bool]:
    def compare(a: object, b: object) -> bool:
        if isinstance(a, str) != isinstance(b, str):
            raise TypeError("a text and a number can't be compared")
        return work(order_of(a), order_of(b))

    return compare


def _calculation(work: Callable[[int, int], int]) -> Function:
    def calculate(a: int, b: int) -> int:
        return whole_number(work(a, b))

    return Function(("i", "i"), calculate)


def _divide_towards_zero(a: int, b: int) -> int:
    """Towards zero, as .NET divides."""
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def _concat(*given: object) -> object:
    if isinstance(given[0], list):
        found: list[object] = []
        for each in given:
            if isinstance(each, Unknown):
                return each
            if not isinstance(each, list):
                raise TypeError("arrays and texts can't be joined")
            few(len(found) + len(each))
            found += each
        return found
    return text_from(map(string, given))


def _contains(where: object, what: object) -> object:
    if isinstance(where, Unknown | Mixed):
        return unknown_in(where)
    if isinstance(where, dict):
        if isinstance(what, Unknown | Mixed):
            return unknown_in(what)
        text = string(what)
        is_in = any(each.lower() == str(text).lower() for each in where)
        return where.missing if isinstance(where, Partly) and not is_in else is_in
    if isinstance(where, list):
        known = any(equal(each, what) for each in where if not isinstance(each, Unknown))
        return known or next((found for each in [*where, what] if (found := unknown_in(each)) is not None), False)
    return unknown_in(what) or str(string(what)) in str(where)


def _empty(value: object) -> object:
    if isinstance(value, Mixed):
        return next((False for each in value.pieces if isinstance(each, str) and each), value.first_unknown)
    return value if isinstance(value, Unknown) else not value


def _first(value: Sequence[object]) -> object:
    return value[0] if value else "" if isinstance(value, str) else None


def _last(value: Sequence[object]) -> object:
    return value[-1] if value else "" if isinstance(value, str) else None


def _length(value: object) -> object:
    return len(value) if isinstance(value, str | list | dict) else unknown_in(value)


def _index_of(where: str | Sequence[object], what: object) -> int:
    """Of a text without case."""
    if isinstance(where, str):
        return where.lower().find(str(string(what)).lower())
    return next((at for at, each in enumerate(where) if equal(each, what)), -1)


def _last_index_of(where: str | Sequence[object], what: object) -> int:
    if isinstance(where, str):
        return where.lower().rfind(str(string(what)).lower())
    return next((at for at in range(len(where) - 1, -1, -1) if equal(where[at], what)), -1)


def _numbers(given: Sequence[object]) -> Sequence[int]:
    found = given[0] if len(given) == 1 and isinstance(given[0], list) else [*given]
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in found):
        raise TypeError("it is for whole numbers")
    return [whole_number(each) for each in found]


def _range(start: int, count: int) -> list[int]:
    if count < 0:
        raise ValueError(f"the count is {count}")
    few(count)
    return list(range(start, start + count))


def _unique(values: Iterable[object]) -> list[object]:
    """The values without repetition; those that hash are compared by their hash."""
    found: list[object] = []
    seen: set[object] = set()
    for each in values:
        key = (type(each).__name__, each) if isinstance(each, str | int | float | bool | None) else None
        if key is None:
            if any(equal(each, other) for other in found):
                continue
        elif key in seen:
            continue
        else:
            seen.add(key)
        found.append(each)
    return found


def _intersection(*given: object) -> object:
    first, *others = given
    if isinstance(first, dict):
        objects = [each for each in others if isinstance(each, dict)]
        return {k: v for k, v in first.items() if all(k in each and equal(each[k], v) for each in objects)}
    lists: list[list[object]] = [each for each in others if isinstance(each, list)]
    own = first if isinstance(first, list) else []
    return _unique(each for each in own if all(any(equal(each, other) for other in listed) for listed in lists))


def _union(*given: object) -> object:
    """Of objects also those within each other; arrays in them are not joined, the last one stays."""
    missing = next((each for each in given if isinstance(each, Unknown)), None)
    objects = [each for each in given if isinstance(each, dict)]
    if objects and len(objects) + sum(isinstance(each, Unknown) for each in given) == len(given):
        found: JsonObject = {}
        for each in objects:
            found = _merge_objects(found, each)
        partly = next((each for each in objects if isinstance(each, Partly)), None)
        missing = missing or (None if partly is None else partly.missing)
        return found if missing is None else Partly(found, missing.why, missing.parameter)
    if missing is not None:
        return missing
    if all(isinstance(each, list) for each in given):
        items = [inner for each in given if isinstance(each, list) for inner in each]
        few(len(items))
        return _unique(items)
    raise TypeError("arrays and objects can't be united")


def _merge_objects(a: Mapping[str, object], b: Mapping[str, object]) -> JsonObject:
    found = dict(a)
    proper = {name.lower(): name for name in a}
    for name, value in b.items():
        known = proper.get(name.lower(), name)
        old = found.get(known)
        found[known] = _merge_objects(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found


def _shallow_merge(values: Sequence[object]) -> object:
    found: JsonObject = {}
    missing: Unknown | None = None
    for each in values:
        if isinstance(each, Unknown):
            missing = each
            continue
        if not isinstance(each, dict):
            raise TypeError("it is for objects")
        missing = each.missing if isinstance(each, Partly) else missing
        found |= each
    return found if missing is None else Partly(found, missing.why, missing.parameter)


def _object(*given: object) -> JsonObject:
    if len(given) % 2:
        raise ValueError("it takes pairs of a name and a value")
    if missing := unknown_in([*given[::2]]):
        raise missing.needed()
    return {str(string(name)): value for name, value in zip(given[::2], given[1::2], strict=True)}


def _flatten(values: Sequence[object]) -> list[object]:
    found: list[object] = []
    for each in values:
        if isinstance(each, Unknown):
            raise each.needed()
        if not isinstance(each, list):
            raise TypeError("it is for arrays of arrays")
        few(len(found) + len(each))
        found += each
    return found


def _items(value: Mapping[str, object]) -> list[object]:
    """Sorted by key."""
    return [{"key": name, "value": value[name]} for name in sorted(value)]


def _skip(value: Sequence[object], count: int) -> object:
    return value[max(0, count) :]


def _take(value: Sequence[object], count: int) -> object:
    return value[: max(0, count)]


def _from_end(value: Sequence[object], index: int) -> object:
    if not 1 <= index <= len(value):
        raise IndexError(f"there is no item {index} from the end")
    return value[-index]


def _substring(value: str, start: int, length: int | None = None) -> str:
    end = len(value) if length is None else start + length
    if start < 0 or end < start or end > len(value):
        raise ValueError(f"the text has {len(value)} characters, and {start} to {end} were asked for")
    return value[start:end]


def _split(value: str | Mixed, between: str | Sequence[object]) -> list[object]:
    signs = [between] if isinstance(between, str) else [str(string(each)) for each in between]
    if not all(signs):
        raise ValueError("the delimiter is empty")
    pattern = re.compile("|".join(re.escape(each) for each in sorted(signs, key=len, reverse=True)))
    found: list[list[str | Unknown]] = [[]]
    for piece in value.pieces if isinstance(value, Mixed) else (value,):
        if isinstance(piece, Unknown):
            found[-1].append(piece)
            continue
        first, *more = pattern.split(piece)
        found[-1].append(first)
        found += [[each] for each in more]
        few(len(found))
    return [text_from(each) for each in found]


def _join(values: Sequence[object], between: str) -> object:
    pieces = [string(each) for each in values]
    short(len(between) * len(pieces))
    return text_from(each for at, piece in enumerate(pieces) for each in ((between, piece) if at else (piece,)))


def _replace(value: str | Mixed, old: str, new: str) -> object:
    def work(text: str) -> str:
        if not old:
            raise ValueError("the text to replace is empty")
        short(len(text) + text.count(old) * max(0, len(new) - len(old)))
        return text.replace(old, new)

    return piecewise(value, work)


def _pad_left(value: object, width: int, sign: str = " ") -> str:
    if len(sign) != 1:
        raise ValueError(f"{quoted(sign)} is not one character")
    short(width)
    return str(string(value)).rjust(width, sign)


def _format(pattern: str, *given: object) -> object:
    return formatted(pattern, given, string)


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(string(value)).lower()
    if text in ("true", "false"):
        return text == "true"
    return whole_number(value) != 0


def _json(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def _of_base64(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(f"{quoted(text)} is no base64 of a text") from None


def _of_data_uri(text: str) -> str:
    head, comma, body = text.partition(",")
    if not head.startswith("data:") or not comma:
        raise ValueError(f"{quoted(text)} is no data URI")
    return _of_base64(body) if head.endswith(";base64") else unquote(body)


def _data_uri(value: object) -> str:
    kind = "text/plain;charset=utf8" if isinstance(value, str) else "application/json"
    return f"data:{kind};base64,{base64.b64encode(str(string(value)).encode()).decode()}"


def _parse_uri(text: str) -> JsonObject:
    parts = urlsplit(text)
    found: JsonObject = {"scheme": parts.scheme, "host": parts.hostname or ""}
    if parts.port is not None:
        found["port"] = parts.port
    return {**found, "path": parts.path, **({"query": f"?{parts.query}"} if parts.query else {})}


def _build_uri(parts: Mapping[str, object]) -> str:
    port = f":{parts['port']}" if parts.get("port") is not None else ""
    path, query = str(parts.get("path") or ""), str(parts.get("query") or "")
    slash = "/" if path and not path.startswith("/") else ""
    mark = "?" if query and not query.startswith("?") else ""
    return f"{member(parts, 'scheme')}://{member(parts, 'host')}{port}{slash}{path}{mark}{query}"


def _parse_cidr(text: str) -> JsonObject:
    net = ipaddress.ip_network(text, strict=False)
    if isinstance(net, ipaddress.IPv6Network):
        first, last = net.network_address, net.broadcast_address
        return {
            "network": str(first),
            "netmask": str(net.netmask),
            "firstUsable": str(first),
            "lastUsable": str(last),
            "cidr": net.prefixlen,
        }
    inner = 0 if net.prefixlen >= 31 else 1
    return {
        "network": str(net.network_address),
        "netmask": str(net.netmask),
        "broadcast": str(net.broadcast_address),
        "firstUsable": str(net.network_address + inner),
        "lastUsable": str(net.broadcast_address - inner),
        "cidr": net.prefixlen,
    }


def _cidr_subnet(text: str, prefix: int, index: int) -> str:
    net = ipaddress.ip_network(text, strict=False)
    if not net.prefixlen <= prefix <= net.max_prefixlen:
        raise ValueError(f"/{prefix} does not divide {net}")
    if not 0 <= index < 1 << (prefix - net.prefixlen):
        raise ValueError(f"{net} has no subnet {index} of /{prefix}")
    return f"{net.network_address + (index << (net.max_prefixlen - prefix))}/{prefix}"


def _cidr_host(text: str, index: int) -> str:
    net = ipaddress.ip_network(text, strict=False)
    usable = net.num_addresses - (2 if net.version == 4 and net.prefixlen < 31 else 1)
    if not 0 <= index < usable:
        raise ValueError(f"{net} has no host {index}")
    return str(net.network_address + index + 1)


def _guid(*given: str) -> str:
    return str(uuid.uuid5(_GUIDS, "-".join(given)))


FUNCTIONS: Final[Mapping[str, Function]] = {
    "add": _calculation(lambda a, b: a + b),
    "array": Function(("v",), lambda value: value if isinstance(value, list) else [value], Takes.ALL),
    "base64": Function(("s",), lambda text: base64.b64encode(text.encode()).decode()),
    "base64tojson": Function(("s",), lambda text: _json(_of_base64(text))),
    "base64tostring": Function(("s",), _of_base64),
    "bool": Function(("sibn",), _bool),
    "builduri": Function(("o",), _build_uri),
    "cidrhost": Function(("s", "i"), _cidr_host),
    "cidrsubnet": Function(("s", "i", "i"), _cidr_subnet),
    "concat": Function(("v", "v*"), _concat, Takes.ALL),
    "contains": Function(("sao", "v"), _contains, Takes.ALL),
    "createarray": Function(("v*",), lambda *each: [*each], Takes.ALL),
    "createobject": Function(("v*",), _object, Takes.ALL),
    "datauri": Function(("v",), _data_uri),
    "datauritostring": Function(("s",), _of_data_uri),
    "datetimeadd": Function(("s", "s", "s?"), add_duration),
    "datetimefromepoch": Function(("i",), moment_of_epoch),
    "datetimetoepoch": Function(("s",), epoch_of),
    "div": _calculation(_divide_towards_zero),
    "empty": Function(("v",), _empty, Takes.ALL),
    "endswith": Function(("s", "s"), lambda text, end: text.lower().endswith(end.lower())),
    "equals": Function(("v", "v"), equal),
    "false": Function((), lambda: False),
    "first": Function(("sa",), _first, Takes.INSIDE),
    "flatten": Function(("a",), _flatten, Takes.INSIDE),
    "float": Function(("sn",), float),
    "format": Function(("s", "v*"), _format, Takes.ALL),
    "greater": Function(("sn", "sn"), _comparison(lambda a, b: bool(a > b))),  # type: ignore[operator]
    "greaterorequals": Function(("sn", "sn"), _comparison(lambda a, b: bool(a >= b))),  # type: ignore[operator]
    "guid": Function(("s", "s*"), _guid),
    "indexfromend": Function(("a", "i"), _from_end, Takes.INSIDE),
    "indexof": Function(("sa", "v"), _index_of),
    "int": Function(("sn",), whole_number),
    "intersection": Function(("ao", "ao*"), _intersection),
    "items": Function(("o",), _items, Takes.INSIDE),
    "join": Function(("a", "s"), _join, Takes.INSIDE),
    "json": Function(("s",), _json),
    "last": Function(("sa",), _last, Takes.INSIDE),
    "lastindexof": Function(("sa", "v"), _last_index_of),
    "length": Function(("sao",), _length, Takes.INSIDE),
    "less": Function(("sn", "sn"), _comparison(lambda a, b: bool(a < b))),  # type: ignore[operator]
    "lessorequals": Function(("sn", "sn"), _comparison(lambda a, b: bool(a <= b))),  # type: ignore[operator]
    "max": Function(("ia", "i*"), lambda *each: max(_numbers(each))),
    "min": Function(("ia", "i*"), lambda *each: min(_numbers(each))),
    "mod": _calculation(lambda a, b: a - b * _divide_towards_zero(a, b)),
    "mul": _calculation(lambda a, b: a * b),
    "not": Function(("b",), lambda value: not value),
    "null": Function((), lambda: None),
    "objectkeys": Function(("o",), lambda value: sorted(value), Takes.INSIDE),
    "padleft": Function(("si", "i", "s?"), _pad_left),
    "parsecidr": Function(("s",), _parse_cidr),
    "parseuri": Function(("s",), _parse_uri),
    "range": Function(("i", "i"), _range),
    "replace": Function(("s", "s", "s"), _replace, Takes.TEXTS),
    "shallowmerge": Function(("a",), _shallow_merge, Takes.INSIDE),
    "skip": Function(("sa", "i"), _skip, Takes.INSIDE),
    "split": Function(("s", "sa"), _split, Takes.TEXTS),
    "startswith": Function(("s", "s"), lambda text, start: text.lower().startswith(start.lower())),
    "string": Function(("v",), string, Takes.ALL),
    "sub": _calculation(lambda a, b: a - b),
    "substring": Function(("s", "i", "i?"), _substring),
    "take": Function(("sa", "i"), _take, Takes.INSIDE),
    "tolower": Function(("s",), lambda text: piecewise(text, str.lower), Takes.TEXTS),
    "toupper": Function(("s",), lambda text: piecewise(text, str.upper), Takes.TEXTS),
    "trim": Function(("s",), lambda text: text.strip()),
    "true": Function((), lambda: True),
    "union": Function(("ao", "ao*"), _union, Takes.ALL),
    "uri": Function(("s", "s"), lambda base, relative: urljoin(base, relative)),
    "uricomponent": Function(("s",), lambda text: quote(text, safe="")),
    "uricomponenttostring": Function(("s",), unquote),
}
"""Names are lower-case, because they have no case in a template."""
