"""How long tests wait for a program that they run to its end."""

from __future__ import annotations

from typing import Final

PROGRAM_S_MAX: Final = 300
"""Seconds. Most programs take one; a machine that runs other things meanwhile can make a minute of it."""
