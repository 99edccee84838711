"""SQL filters a second time, as plainly as can be: a tree, its text, and its meaning for a dict of properties.

Shares no code with the broker. Values are None, bool, int, float and str; numbers stay within 64 bits.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

Tree = tuple[Any, ...]
Properties = dict[str, Any]
UNKNOWN = None


class FailureError(Exception):
    """The evaluation fails."""


# ---------------------------------------------------------------- meaning


def value_of(tree: Tree, properties: Properties) -> Any:
    match tree:
        case ("constant", value):
            return value
        case ("property", name) | ("call", name):
            return properties.get(name)
        case ("sign", sign, operand):
            value = value_of(operand, properties)
            if not is_number(value):
                return UNKNOWN
            return wrap(-value if sign == "-" else value)
        case ("arithmetic", sign, left, right):
            return calculated(sign, value_of(left, properties), value_of(right, properties))
    raise AssertionError(tree)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def wrap(value: Any) -> Any:
    if isinstance(value, int):
        value &= 2**64 - 1
        return value - 2**64 if value >= 2**63 else value
    return value


def calculated(sign: str, left: Any, right: Any) -> Any:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if sign == "+" and (isinstance(left, str) or isinstance(right, str)):
        return text_of(left) + text_of(right)
    if not is_number(left) or not is_number(right):
        return UNKNOWN
    if isinstance(left, int) and isinstance(right, int):
        if sign in "/%":
            if right == 0 or (left == -(2**63) and right == -1):
                raise FailureError
            # Python rounds down, C# cuts off.
            quotient = left // right + (1 if left % right and (left < 0) != (right < 0) else 0)
            return quotient if sign == "/" else left - quotient * right
        return wrap({"+": left + right, "-": left - right, "*": left * right}[sign])
    left, right = float(left), float(right)
    if sign == "/":
        if right == 0:
            infinite = math.copysign(1, left) * math.copysign(1, right) * math.inf
            return math.nan if left == 0 or math.isnan(left) else infinite
        return left / right
    if sign == "%":
        return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def text_of(value: Any) -> str:
    if isinstance(value, float):
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        if math.isnan(value):
            return "NaN"
        if value == 0 or 1e-4 <= abs(value) < 1e17:
            text = f"{Decimal(str(value)):f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
        mantissa, exponent = str(value).split("e")
        return f"{mantissa.removesuffix('.0')}E{exponent}"
    return str(value)


def kind_of(value: Any) -> str | None:
    if is_number(value):
        return "number"
    return type(value).__name__ if isinstance(value, str | bool) else None


def compared(sign: str, left: Any, right: Any) -> bool | None:
    kind = kind_of(left)
    if kind is None or kind != kind_of(right):
        return UNKNOWN
    if kind == "number" and float in (type(left), type(right)):
        left, right = float(left), float(right)
    if kind == "bool" and sign not in ("=", "<>", "!="):
        return UNKNOWN
    outcomes: dict[str, bool] = {
        "=": left == right,
        "<>": left != right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return outcomes[sign]


def truth_of(tree: Tree, properties: Properties) -> bool | None:
    match tree:
        case ("compare", sign, left, right):
            return compared(sign, value_of(left, properties), value_of(right, properties))
        case ("null", name):
            return properties.get(name) is None
        case ("exists", name):
            return name in properties
        case ("in", left, items):
            value = value_of(left, properties)
            return (
                UNKNOWN if value is None else disjunction([("compare", "=", left, item) for item in items], properties)
            )
        case ("like", left, pattern, escape):
            return like(value_of(left, properties), value_of(pattern, properties), escape)
        case ("not", operand):
            truth = truth_of(operand, properties)
            return UNKNOWN if truth is UNKNOWN else not truth
        case ("and", items):
            return negated(disjunction([("not", item) for item in items], properties))
        case ("or", items):
            return disjunction(items, properties)
    raise AssertionError(tree)


def negated(truth: bool | None) -> bool | None:
    return UNKNOWN if truth is UNKNOWN else not truth


def disjunction(items: list[Tree], properties: Properties) -> bool | None:
    seen = []
    for item in items:
        truth = truth_of(item, properties)
        if truth is True:
            return True
        seen.append(truth)
    return UNKNOWN if UNKNOWN in seen else False


def like(value: Any, pattern: Any, escape: str | None) -> bool | None:
    if not isinstance(value, str) or not isinstance(pattern, str):
        return UNKNOWN
    source, place = "", 0
    while place < len(pattern):
        if pattern[place] == escape:
            if place + 1 == len(pattern):
                raise FailureError
            source += re.escape(pattern[place + 1])
            place += 1
        else:
            source += {"%": ".*", "_": "."}.get(pattern[place], re.escape(pattern[place]))
        place += 1
    return re.fullmatch(source, value, re.DOTALL) is not None


# ---------------------------------------------------------------- text


def text(tree: Tree) -> str:  # noqa: C901  (one case for each production)
    match tree:
        case ("constant", value):
            if isinstance(value, str):
                return "'" + value.replace("'", "''") + "'"
            if value is None or isinstance(value, bool):
                return {None: "NULL", True: "TRUE", False: "False"}[value]
            return repr(value) if value >= 0 and not math.copysign(1, value) < 0 else f"({value!r})"
        case ("property", name):
            return str(name)
        case ("call", name):
            return f"property('{name}')"
        case ("sign", sign, operand):
            return f"{sign} {text(operand)}" if operand[0] != "arithmetic" else f"{sign}({text(operand)})"
        case ("arithmetic", sign, left, right):
            return f"({text(left)}) {sign} ({text(right)})"
        case ("compare", sign, left, right):
            return f"{text(left)} {sign} {text(right)}"
        case ("null", name):
            return f"user.{name} is null"
        case ("exists", name):
            return f"EXISTS({name})"
        case ("in", left, items):
            return f"{text(left)} IN ({', '.join(map(text, items))})"
        case ("like", left, pattern, escape):
            return f"{text(left)} LIKE {text(pattern)}" + (f" ESCAPE '{escape}'" if escape else "")
        case ("not", ("in", left, items)):
            return f"{text(left)} NOT IN ({', '.join(map(text, items))})"
        case ("not", ("null", name)):
            return f"{name} IS NOT NULL"
        case ("not", operand):
            return f"NOT ({text(operand)})"
        case ("and", items):
            return " AND ".join(text(item) if item[0] not in ("and", "or") else f"({text(item)})" for item in items)
        case ("or", items):
            return " or ".join(text(item) if item[0] != "or" else f"({text(item)})" for item in items)
    raise AssertionError(tree)


# ---------------------------------------------------------------- random trees

NAMES = ("a", "b", "c", "missing")
TEXTS = st.text("xyX%_'!", max_size=4)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]),
    st.sampled_from([0.0, 0.5, -1.5, 2.0, 1e300, float(2**53)]),
)
VALUES = st.one_of(st.none(), st.booleans(), NUMBERS, NUMBERS, TEXTS)
PROPERTIES = st.dictionaries(st.sampled_from(NAMES[:3]), VALUES)
NAME = st.sampled_from(NAMES)
COMPARE = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])

LEAVES: st.SearchStrategy[Tree] = st.one_of(
    st.tuples(st.just("constant"), VALUES),
    st.tuples(st.just("property"), NAME),
    st.tuples(st.just("property"), NAME),
    st.tuples(st.just("call"), NAME),
)
EXPRESSIONS: st.SearchStrategy[Tree] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("sign"), st.sampled_from("+-"), inner),
        st.tuples(st.just("arithmetic"), st.sampled_from("+-*/%"), inner, inner),
    ),
    max_leaves=4,
)
PATTERNS = st.one_of(st.tuples(st.just("constant"), TEXTS), st.tuples(st.just("property"), NAME))
CONDITIONS: st.SearchStrategy[Tree] = st.one_of(
    st.tuples(st.just("compare"), COMPARE, EXPRESSIONS, EXPRESSIONS),
    st.tuples(st.just("compare"), st.just("="), st.tuples(st.just("property"), NAME), LEAVES),
    st.tuples(st.just("null"), NAME),
    st.tuples(st.just("exists"), NAME),
    st.tuples(st.just("in"), EXPRESSIONS, st.lists(EXPRESSIONS, min_size=1, max_size=3)),
    st.tuples(st.just("like"), EXPRESSIONS, PATTERNS, st.sampled_from([None, "!"])),
)
PREDICATES: st.SearchStrategy[Tree] = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=6,
)
