"""The invariants of every partition, checked where a test stops its broker or its server.

Knows how to read the partitions of a running `Broker`. `broker.namespace` and the fixture `servers_are_checked` of
`tests/conftest.py` call it; a test never needs to.
"""

from __future__ import annotations

from emubus.broker.broker import Broker


async def check_partitions(broker: Broker) -> None:
    """Assert the invariants of every partition in memory, each store at rest, against its committed rows."""
    if broker.namespace.away is not None:
        return
    for worker in broker.namespace.workers:
        if worker.failure is not None:  # its store can't be read
            continue
        async with worker.idle_lock:
            with worker.view() as view:
                for queue_id in list(worker._open.by_queue_id):
                    worker._open.by_queue_id[queue_id].check_invariants(view)
