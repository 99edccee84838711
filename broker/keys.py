"""Shared keys and their rights, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Right(StrEnum):
    """A right of a key; Manage includes the other two."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL_RIGHTS: Final = frozenset(Right)


@dataclass(frozen=True, slots=True)
class SharedKey:
    """An authorisation rule; `scope` is the path of its entity, None is the namespace."""

    name: str
    key: str
    rights: frozenset[Right] = ALL_RIGHTS
    scope: str | None = None
    secondary_key: str | None = None
