"""What a server costs that has nothing to do: with many connections, with many waiting messages, with many sessions.

Each question starts the server with an empty data folder, so that nothing before it counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from connections import Crowd
from starting import Broker, BrokerError, load, running

CONNECTIONS: Final = 1_000
SESSIONS: Final = 10_000
HOLD_S: Final = 20.0
HOLD_QUICK_S: Final = 3.0
MESSAGES: Final = 1_000_000
MESSAGES_QUICK: Final = 20_000
MESSAGE_BYTES: Final = 1024
QUIET_S: Final = 2.0
"""Wait before a measurement: the server may still clean up."""


def connections(server: Broker, *, quick: bool) -> dict[str, float]:
    """Milliseconds of processor time in a second with idle connections. Raises BrokerError."""
    with running(server):
        crowd = Crowd()
        try:
            crowd.open(server, server.address("plain", MESSAGE_BYTES), CONNECTIONS)
            crowd.run(QUIET_S)
            before, started_s = server.used(), time.perf_counter()
            crowd.run(HOLD_QUICK_S if quick else HOLD_S)
            spent, seconds = server.used().since(before), time.perf_counter() - started_s
            if crowd.errors:
                raise BrokerError(f"{server.name}: idle connections were lost: {dict(crowd.errors)}")
        finally:
            crowd.close()
    return {"main_ms_per_s": spent.main_ns / 1e6 / seconds, "process_ms_per_s": spent.process_ns / 1e6 / seconds}


def messages(server: Broker, *, quick: bool) -> dict[str, float]:
    """MiB of memory with waiting messages, in all and above that of the empty server. Raises BrokerError."""
    with running(server):
        before = server.memory()
        load(server, "send", "plain", MESSAGES_QUICK if quick else MESSAGES, MESSAGE_BYTES, "--shape", "properties")
        return _more(server, before.resident, before.anonymous)


def sessions(server: Broker, *, quick: bool) -> dict[str, float]:  # noqa: ARG001
    """MiB of memory with sessions that have a message each, in all and above that of the empty server."""
    with running(server):
        before = server.memory()
        load(server, "send", "plain-sessions", SESSIONS, MESSAGE_BYTES, "--shape", "many-sessions")
        return _more(server, before.resident, before.anonymous)


def _more(server: Broker, resident: float, anonymous: float) -> dict[str, float]:
    time.sleep(QUIET_S)
    now = server.memory()
    return {
        "own_more_mib": now.anonymous - anonymous,
        "resident_more_mib": now.resident - resident,
        "own_mib": now.anonymous,
        "resident_mib": now.resident,
    }


CELLS: Final[Mapping[str, Callable[..., dict[str, float]]]] = {
    "idle-connections": connections,
    "memory-messages": messages,
    "memory-sessions": sessions,
}
