"""Decimals that .NET writes stand for the numbers that it means, and all others for what they are."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.codec.decimals import from_text, meant, to_text

NET = {
    "12.34": "0c3c00000000000000000000000004d2",
    "1": "0c400000000000000000000000000001",
    "-1": "8c400000000000000000000000000001",
    "0.01": "0c3c0000000000000000000000000001",
    "0": "0c400000000000000000000000000000",
    "1E-28": "0c080000000000000000000000000001",
    "79228162514264337593543950335": "0c400000ffffffffffffffffffffffff",
}
"""The octets that Microsoft.Azure.Amqp 2.7.3 writes for a decimal."""


@pytest.mark.parametrize(("text", "octets"), NET.items(), ids=NET)
def test_the_octets_of_net_stand_for_the_number_that_it_means(text: str, octets: str) -> None:
    assert meant(bytes.fromhex(octets)) == text
    assert meant(from_text(text, 16)) == text


@pytest.mark.parametrize("text", ["1E-4607", "1E-4637", "Infinity", "-NaN", "0x0c41ffffffffffffffffffffffffffff"])
def test_what_is_beside_them_is_what_it_is(text: str) -> None:
    assert (to_text(from_text(text, 16)), meant(from_text(text, 16))) == (text, text)


@given(st.integers(-(10**34) + 1, 10**34 - 1), st.integers(-4_000, 6_000))
def test_a_number_of_others_is_the_number_that_it_is(significand: int, exponent: int) -> None:
    text = f"{significand}E{exponent}"
    assert Decimal(meant(from_text(text, 16))) == Decimal(text)
