"""AMQP decimals as text and back: IEEE 754-2008 decimal32, 64 and 128 with binary integer significands [AMQP 1.6.14].

Knows the three layouts. The text is that of Python's `Decimal`, exponent kept ("1.10", "1E+3", "Infinity", "NaN"), so
`from_text` gives the very bits back; bits that are no canonical number come as "0x" and their hexadecimal digits.
`meant` is for those who calculate.
Pure functions.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple


class _Layout(NamedTuple):
    exponent_bits: int
    bias: int
    digits_max: int

    def significand_bits(self, width: int) -> int:
        return 8 * width - 1 - self.exponent_bits


_NET_HIGH: Final = 0x0C
"""The first byte, but for the sign, of each decimal of .NET's AMQP library."""
_NET_SHIFT: Final = 4_608
_NET_SCALE_MAX: Final = 28
_LAYOUTS: Final = {4: _Layout(8, 101, 7), 8: _Layout(10, 398, 16), 16: _Layout(14, 6176, 34)}


def to_text(octets: bytes) -> str:
    """Return the text of a decimal of 4, 8 or 16 bytes."""
    width = len(octets)
    layout = _LAYOUTS[width]
    bits = int.from_bytes(octets, "big")
    top = 8 * width - 1
    sign = bits >> top
    head = bits >> (top - 5) & 0b11111
    if head == 0b11110:
        text = "-Infinity" if sign else "Infinity"
    elif head == 0b11111:
        text = "-NaN" if sign else "NaN"
    else:
        low = layout.significand_bits(width)
        if head >> 3 == 0b11:  # the exponent stands two bits lower, three bits of the significand are understood
            exponent = bits >> (low - 2) & ((1 << layout.exponent_bits) - 1)
            significand = bits & ((1 << (low - 2)) - 1) | 0b100 << (low - 2)
        else:
            exponent = bits >> low & ((1 << layout.exponent_bits) - 1)
            significand = bits & ((1 << low) - 1)
        digits = tuple(map(int, str(significand)))
        text = str(Decimal((sign, digits, exponent - layout.bias)))
    try:
        canonical = from_text(text, width) == octets
    except ValueError:
        canonical = False
    return text if canonical else "0x" + octets.hex()


def meant(octets: bytes) -> str:
    """Return the text of the number that a client meant by a decimal: that of `to_text`, except for .NET's.

    Microsoft's AMQP library shifts the exponent of a decimal128 by 9 bits where 7 are meant (EncodeValue of its
    DecimalEncoding), and takes the scale from the last 8 bits of what it reads. So .NET clients, and the service, which
    is built on it, do not notice; for all others its 12.34 is 1.234E-4607.
    """
    text = to_text(octets)
    if len(octets) == 16 and octets[0] & 0x7F == _NET_HIGH:
        sign, digits, exponent = Decimal(text).as_tuple() if not text.startswith("0x") else (0, (), 0)
        if isinstance(exponent, int) and -_NET_SCALE_MAX <= exponent + _NET_SHIFT <= 0:
            return str(Decimal((sign, digits, exponent + _NET_SHIFT)))
    return text


def from_text(text: str, width: int) -> bytes:
    """Return the decimal of `width` bytes with this text. Raises ValueError: no number, or too many digits for it."""
    if text.startswith("0x"):
        octets = bytes.fromhex(text[2:])
        if len(octets) != width:
            raise ValueError(f"{text:.60} has {len(octets)} bytes, a decimal{8 * width} has {width}")
        return octets
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        raise ValueError(f"{text!r:.60} is no decimal number") from None
    layout = _LAYOUTS[width]
    top = 8 * width - 1
    if isinstance(exponent, str):  # F: infinite; n, N: no number
        head = 0b11110 if exponent == "F" else 0b11111
        return (sign << top | head << (top - 5)).to_bytes(width, "big")
    significand = int("".join(map(str, digits)) or "0")
    biased = exponent + layout.bias
    # The two highest bits of an exponent are never both set: those are the marks of the other forms.
    if significand >= 10**layout.digits_max or not 0 <= biased < 3 << (layout.exponent_bits - 2):
        raise ValueError(f"{text:.60} does not fit a decimal{8 * width}: {layout.digits_max} digits at most")
    low = layout.significand_bits(width)
    if significand < 1 << low:
        bits = biased << low | significand
    else:
        bits = 0b11 << (top - 2) | biased << (low - 2) | significand & ((1 << (low - 2)) - 1)
    return (sign << top | bits).to_bytes(width, "big")
