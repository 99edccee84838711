"""Kills in the middle of what a start does with its folder: the n-th of some calls never happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """The process is no more."""


class Kill:
    """Counts calls; the one that `arm` names raises Killed in place of being made."""

    def __init__(self) -> None:
        self._left = 0

    def arm(self, count: int) -> None:
        """Kill at the call of this number from now on; 0: at none."""
        self._left = count

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` as one whose calls are counted."""

        def call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                raise Killed
            return function(*arguments, **options)

        return call
