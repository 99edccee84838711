"""Which texts name the same message session or partition key: those that differ in case only.

The service's team says that session ids are not case-sensitive (Azure/azure-sdk-for-java#48759), and may come back in
another case after an upgrade of the service (Azure/durabletask#1334). Partition keys are put into upper case before
they are hashed (`EventHubPartitionKeyResolver` of Azure/iotedge, for the broker that Event Hubs and Service Bus share),
so a session is in one partition however it is written. For other letters than those of ASCII the rule is a guess: that
of .NET's `StringComparison.OrdinalIgnoreCase`, one character for one, without regard to language, width or
normalisation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_CHARS_KNOWN_MAX: Final = 4_096
_OWN_CASE: Final = frozenset("\u0131\u017f")  # dotless i and long s: .NET does not take them for letters of ASCII


def folded(text: str) -> str:
    """The same text for all texts that differ in case only; what is in lower case stays so, but for a few letters."""
    if text.isascii():
        return text.lower()
    return "".join(map(_folded_char, text))


@lru_cache(_CHARS_KNOWN_MAX)
def _folded_char(char: str) -> str:
    """One character for all with the same upper case, where that is one character."""
    if char in _OWN_CASE:
        return char
    upper = char.upper()
    if len(upper) != 1:  # the full mapping, of some letters; their simple mapping, if any, is that for titles
        upper = char.title()
    if len(upper) != 1:
        return char
    lower = upper.lower()
    return lower if len(lower) == 1 and lower.upper() == upper else upper
