"""The clock of an emubus in the hands of a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a test of a remote emubus runs where a server can't
    from .in_process import EmubusNamespace, EmubusServer
    from .remote import RemoteEmubus


class ManualClock:
    """The clock of an emubus, frozen: only `advance` moves it."""

    def __init__(self, emubus: EmubusServer | EmubusNamespace | RemoteEmubus) -> None:
        self._emubus = emubus
        emubus.freeze()

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self._emubus.now_ms() / 1000, UTC)

    @property
    def now_ms(self) -> int:
        """The time, in Unix milliseconds."""
        return self._emubus.now_ms()

    def advance(self, by: int | timedelta) -> None:
        """Move it forward, by milliseconds or a timedelta; locks expire and messages expire or fall due at once."""
        self._emubus.advance(by)
