"""Operators do what C# does: `csharp/results.txt` is what `csharp/Program.cs` wrote on .NET 10."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from emubus.broker.model.descriptions import CorrelationFilter, RuleDescription, SqlFilter, TypedText
from emubus.broker.rules import FilterException, MessageContext, RuleIndex, compile_filter, rule_from_amqp
from emubus.codec import decimals
from emubus.codec.types import Char, Decimal128, Described, Float, Int, Long, Symbol, Uint, Ulong

from .messages import message
from .operators import ARITHMETIC, KINDS, TICKS_AT_1970, UNARY, Cell, arithmetic, comparisons, decimal_128
from .test_operators import made, typed

LINES = (Path(__file__).parent / "csharp" / "results.txt").read_text().splitlines()

# What .NET has and emubus leaves UNKNOWN, beside null, which C# compares (docs/reference/operators.md).
LEFT_OUT = {
    ("+", "string", "byte[]"): "string",
    ("+", "byte[]", "string"): "string",
    ("=", "byte[]", "byte[]"): "bool",
    ("<", "Guid", "Guid"): "bool",
}


def tables() -> Iterator[tuple[str, str, str, str]]:
    """Sign, left kind, right kind, kind of the result."""
    sign, head = "", list[str]()
    for line in LINES[: LINES.index("signs")]:
        first, *rest = line.split(" ")
        if first == "table":
            sign, *head = rest
        elif first != "#":
            yield from ((sign, first, right, result) for right, result in zip(head, rest, strict=True))


def has(cell: Cell, sign: str) -> str:
    """What the table of comparisons says, as C# says it."""
    return "bool" if cell.result == "all" or (cell.result is not None and sign == "=") else "."


@pytest.mark.parametrize("sign", [*ARITHMETIC, "=", "<"])
def test_the_tables_are_those_of_csharp_but_for_guesses(sign: str) -> None:
    table = arithmetic(sign) if sign in ARITHMETIC else comparisons()
    seen = 0
    for _, left, right, result in (each for each in tables() if each[0] == sign):
        seen += 1
        cell = table[left, right]
        mine = cell.result or "." if sign in ARITHMETIC else has(cell, sign)
        if "null" in (left, right):
            assert mine == "."
        elif result == ".":
            assert mine == "." or cell.is_guess, (left, right)
        elif (sign, left, right) in LEFT_OUT:
            assert (result, mine) == (LEFT_OUT[sign, left, right], ".")
        else:
            assert (mine, cell.is_guess and sign != "=" and mine != "bool") == (result, False), (left, right)
    assert seen == 21 * 21


def test_signs_are_those_of_csharp_but_for_a_guess() -> None:
    lines = LINES[LINES.index("signs") + 1 : LINES.index("values") - 1]
    assert len(lines) == 21
    for line in lines:
        name, minus, plus = line.split(" ")
        if name != "null":
            mine = UNARY.get(name, (".", "."))
            assert ("." if "?" in mine[0] else mine[0], mine[1]) == (minus, plus), name


def described(name: str) -> Callable[[str], Described]:
    return lambda text: Described(Symbol(f"com.microsoft:{name}"), Long(int(text)))


MAKE: dict[str, Callable[[str], Any]] = {
    "int": lambda text: Int(int(text)),
    "uint": lambda text: Uint(int(text)),
    "long": lambda text: Long(int(text)),
    "ulong": lambda text: Ulong(int(text)),
    "float": lambda text: Float(struct.unpack("f", struct.pack("f", float(text)))[0]),
    "double": float,
    "decimal": decimal_128,
    "bool": lambda text: text == "True",
    "char": Char,
    "string": str,
    "Guid": uuid.UUID,
    "TimeSpan": described("timespan"),
    "DateTimeOffset": described("datetime-offset"),
}
TOO_LONG = "TimeSpan overflowed because the duration is too long."
VALUES = LINES[LINES.index("values") + 1 :]


@pytest.mark.parametrize("line", VALUES)
def test_a_result_is_that_of_csharp(line: str) -> None:
    left, sign, right, result = (part.split(" ", 1) for part in line.split(" | "))
    user = {"a": MAKE[left[0]](left[1]), "b": MAKE[right[0]](right[1])}
    text = f"SET r = a {sign[0]} b"
    if result[0].startswith("!"):
        with pytest.raises(FilterException) as caught:
            made(text, user)
        problem = " ".join(result)[1:]
        assert str(caught.value) == (TOO_LONG if "Not-a-Number" in problem else problem)
        return
    found, wanted = made(text, user)["r"], MAKE[result[0]](result[1])
    if result[0] == "decimal":  # equal numbers; trailing zeros may differ
        assert type(found) is type(wanted)
        difference = made("SET d = r - w", {"r": found, "w": wanted})["d"]
        assert isinstance(difference, bytes)
        assert not Decimal(decimals.to_text(difference))
    else:
        assert typed(found) == typed(wanted) or found != found  # NaN


@pytest.mark.parametrize(
    ("octets", "number"),
    [
        ("0c3c00000000000000000000000007c6", "19.90"),
        ("8c3e0000000000000000000000000005", "-0.5"),
        ("0c400000000000000000000000000000", "0"),
        ("0c080000000000000000000000000001", "0.0000000000000000000000000001"),
        ("0c400000ffffffffffffffffffffffff", "79228162514264337593543950335"),
        ("303c00000000000000000000000007c6", "19.90"),  # by the standard, as all others write it
    ],
)
def test_a_decimal_is_read_as_the_library_of_net_writes_it(octets: str, number: str) -> None:
    """`DecimalEncoding.cs` of azure-amqp loses two bits of the exponent, and .NET's readers do not notice."""
    raw = Decimal128(bytes.fromhex(octets))
    assert format(Decimal(decimals.meant(raw)), "f") == number
    seen = MessageContext(message({"p": raw}))
    assert compile_filter(SqlFilter("p = p AND p + 0 = p AND p < @above", {"@above": 1e30}))(seen) is True
    equal = CorrelationFilter(properties={"P": TypedText("decimal", number)})
    assert compile_filter(equal)(seen) is True
    index = RuleIndex()
    index.put_subscription("s", [RuleDescription("r", equal)])
    assert len(index.matches(seen)) == 1
    assert typed(made("SET q = p + 0", {"p": raw})["q"]) == typed(decimal_128(number))


def test_a_correlation_filter_of_net_has_its_decimal() -> None:
    raw = Decimal128(bytes.fromhex("0c3c00000000000000000000000007c6"))
    rule = rule_from_amqp("r", {"correlation-filter": {"properties": {"price": raw}}})
    assert rule.filter == CorrelationFilter(properties={"price": TypedText("decimal", "19.90")})


def test_every_kind_of_the_program_is_one_of_the_tables() -> None:
    assert {left for _, left, _, _ in tables()} == KINDS.keys() - {"symbol", "list"}
    assert TICKS_AT_1970 == 621_355_968_000_000_000
