"""Shared keys and their rights, as values."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from .lazy_dataclass import dataclass


class Right(StrEnum):
    """A right of a key; Manage includes the other two."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


KNOWN_KEY: Final = "SAS_KEY_VALUE"
"""The text of the root key in Microsoft's connection string for its emulator."""
ALL_RIGHTS: Final = frozenset(Right)


@dataclass(frozen=True, slots=True)
class SharedKey:
    """An authorisation rule; `scope` is the path of its entity, None is the namespace."""

    name: str
    key: str
    rights: frozenset[Right] = ALL_RIGHTS
    scope: str | None = None
    secondary_key: str | None = None

    @property
    def is_known_root(self) -> bool:
        """Whether everybody can manage the namespace with it: its text is the documented one."""
        return self.scope is None and Right.MANAGE in self.rights and KNOWN_KEY in (self.key, self.secondary_key)
