"""Every test of this folder stops the brokers that it started; their invariants are checked then."""

from __future__ import annotations

from ..broker.namespace import _brokers_stop, brokers_stop

__all__ = ["_brokers_stop", "brokers_stop"]
