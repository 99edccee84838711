"""Names that people give to what the server keeps: values that can't be wrong.

A value is made of a text by its one parser, its constructor, which refuses with BrokerError (argument-error): the
value, the rule, and a remedy. A function that builds a path from such a name asks for the type, never for `str`, so
that no caller can hand in a text that was not checked. Does not know which names are taken.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final
from unicodedata import category

from .errors import BrokerError, Condition

SHOWN_CHARS_MAX: Final = 80
_NO_TEXT: Final = frozenset({"Cc", "Cs"})  # controls and lone surrogates


class KeptFile(StrEnum):
    """The small files beside the messaging stores, all of them."""

    TEMPLATES = "templates.json"
    ARM = "arm.json"
    KEYS = "keys.json"
    ROLES = "roles.json"
    TOKEN_KEY = "token-key.pem"
    NAMESPACES = "namespaces.json"
    """The other namespaces of the process; in the folder of the first one."""


class NamespaceName(str):
    """The name of a namespace: a label of a host name, and the name of a folder.

    The service's rule, as Azure's page on rules for names of resources has it, but that names of fewer than 6
    characters are taken, too: files for Microsoft's emulator have them.
    """

    __slots__ = ()

    PATTERN: Final = "[A-Za-z](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?"

    def __new__(cls, text: str) -> NamespaceName:
        if re.fullmatch(cls.PATTERN, text) is None or text.lower() == "localhost":
            raise BrokerError(
                Condition.ARGUMENT_ERROR,
                f"{excerpt(text)} can't be the name of a namespace: a name has 1 to 50 letters, digits and hyphens, "
                "begins with a letter, does not end with a hyphen, and is not 'localhost'. Choose another, such as "
                "'orders'.",
            )
        return super().__new__(cls, text)

    @property
    def key(self) -> str:
        """The form that is compared: names are host names, which have no case."""
        return self.lower()


class SnapshotName(str):
    """The name of a snapshot, and of its folder: one part of a path, never hidden, never `.` or `..`."""

    __slots__ = ()

    PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

    def __new__(cls, text: str) -> SnapshotName:
        if re.fullmatch(cls.PATTERN, text) is None:
            raise BrokerError(
                Condition.ARGUMENT_ERROR,
                f"{excerpt(text)} can't be the name of a snapshot: a name begins with a letter or a digit; it "
                "has 1 to 64 letters and digits of ASCII, '.', '_' and '-'. Choose another, such as 'before-release'.",
            )
        return super().__new__(cls, text)


class TemplateName(str):
    """The name of a template: a line of text."""

    __slots__ = ()

    CHARS_MAX: Final = 100

    def __new__(cls, text: str) -> TemplateName:
        if not 1 <= len(text) <= cls.CHARS_MAX or any(category(each) in _NO_TEXT for each in text):
            raise BrokerError(
                Condition.ARGUMENT_ERROR,
                f"{excerpt(text)} can't be the name of a template: a name has 1 to {cls.CHARS_MAX} characters, none of "
                "them a control character. Choose another, such as 'order'.",
            )
        return super().__new__(cls, text)


def excerpt(text: str) -> str:
    """A text for an error: quoted, cut, and with escapes for what is no printable ASCII."""
    shown = ascii(text)
    return shown if len(shown) <= SHOWN_CHARS_MAX else f"{shown[: SHOWN_CHARS_MAX - 1]}…"
