"""Closes the connections that a process keeps for its next task, so that no test uses those of another."""

from __future__ import annotations

from emubus.spark_connector.wire import pool


def close_idle() -> int:
    """Returns how many there were."""
    waiting = [connection for idle in pool._idle.values() for connection, _ in idle]
    pool._idle.clear()
    for connection in waiting:
        connection.close()
    return len(waiting)
