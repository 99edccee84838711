"""The public names of the broker: the types that the verbs of `Broker` take and return.

Adapters (`amqp/`, `web/`, the test kit) import from here, from the broker's ground floor and from its rooms `admin`,
`model`, `message` and `rules`. `partition/`, `stores/` and `entities/` are private to the broker.
"""

from __future__ import annotations

from .entities.entity import Entity, Totals
from .entities.links import Matches, Receiver, Sender, SessionAccept, SessionReceiver
from .entities.router import partition_for_key
from .entities.transaction import TransactionRef
from .outcomes import Abandon, Complete, DeadLetter, Defer, Outcome, Release
from .partition.contract import (
    NO_CUT,
    Claimed,
    Counted,
    Delivery,
    Event,
    EventKind,
    Extent,
    LockCut,
    Observer,
    PartitionRef,
    ReceiveMode,
    Run,
    SharedLock,
)
from .partition.records import PARTITION_SHIFT, SEQUENCE_NUMBER_MAX, TABLES, Home
from .partition.requests import RunDone, alone
from .stores.outage import HEALTHY, Outage, OutageKind

__all__ = [
    "HEALTHY",
    "NO_CUT",
    "PARTITION_SHIFT",
    "SEQUENCE_NUMBER_MAX",
    "TABLES",
    "Abandon",
    "Claimed",
    "Complete",
    "Counted",
    "DeadLetter",
    "Defer",
    "Delivery",
    "Entity",
    "Event",
    "EventKind",
    "Extent",
    "Home",
    "LockCut",
    "Matches",
    "Observer",
    "Outage",
    "OutageKind",
    "Outcome",
    "PartitionRef",
    "ReceiveMode",
    "Receiver",
    "Release",
    "Run",
    "RunDone",
    "Sender",
    "SessionAccept",
    "SessionReceiver",
    "SharedLock",
    "Totals",
    "TransactionRef",
    "alone",
    "partition_for_key",
]
