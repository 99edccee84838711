"""Shared keys and the rights that they give: values without behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Right(StrEnum):
    """What a key allows; Manage includes the other two."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL_RIGHTS: Final = frozenset(Right)


@dataclass(frozen=True, slots=True)
class SharedKey:
    """An authorisation rule; `scope` is the path of the entity that it belongs to, None is the namespace."""

    name: str
    key: str
    rights: frozenset[Right] = ALL_RIGHTS
    scope: str | None = None
    secondary_key: str | None = None
