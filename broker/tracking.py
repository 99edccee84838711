"""The tail that the service appends to the texts of its errors, in the forms in which it is found in reports.

Knows who names himself in which form: a gateway, a broker, both; with a reference for an operation that was refused.
Support tools parse the parts; no SDK needs them [wire 9.2]. Does not know texts (`sentences.py`) and where they go.
The numbers of gateways and brokers name machines: here they follow from the connection and from the entity.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto

from .ids import new_tracking_id

GATEWAYS = 64
BROKERS = 32


class Form(Enum):
    """Who answers."""

    GATEWAY = auto()  # closed connections, claims, attaches that are refused early
    BROKER = auto()  # links that are detached
    BOTH = auto()  # attaches that a broker refuses behind the gateway
    OPERATION = auto()  # refused work on a link: a reference and the broker
    REQUEST = auto()  # refused requests to `$management`: a reference and the broker without gateway


@dataclass(frozen=True, slots=True)
class Tail:
    """The parts of a tail. `system` is what the one who answers names: the entity, or the host with a path."""

    form: Form
    system: str
    gateway: int = 0

    def text(self, now_ms: int) -> str:
        """The tail, with new ids."""
        stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        gateway = f"_G{self.gateway % GATEWAYS}"
        broker = f"_B{zlib.crc32(self.system.lower().encode()) % BROKERS}"
        entity = f"SystemTracker:{self.system}, Timestamp:{stamp}"
        front = f"SystemTracker:gateway{self.gateway % GATEWAYS}, Timestamp:{stamp}"
        match self.form:
            case Form.GATEWAY:
                return f"TrackingId:{_hex()}{gateway}, {entity if self.system else front}"
            case Form.BROKER:
                return f"TrackingId:{_hex()}{gateway}{broker}, {entity}"
            case Form.BOTH:
                return f"TrackingId:{new_tracking_id()}{broker}, {entity} TrackingId:{_hex()}{gateway}, {front}"
            case Form.OPERATION:
                return f"Reference:{new_tracking_id()}, TrackingId:{_hex()}{gateway}{broker}, {entity}"
            case Form.REQUEST:
                return f"Reference:{new_tracking_id()}, TrackingId:{new_tracking_id()}{broker}, {entity}"


def http_tail(system: str, now_ms: int) -> str:
    """The tail of an error over HTTP, behind the text."""
    stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    gateway = zlib.crc32(system.lower().encode()) % GATEWAYS
    return f"TrackingId:{new_tracking_id()}_G{gateway}, SystemTracker:{system}, Timestamp:{stamp}"


def _hex() -> str:
    return new_tracking_id().replace("-", "")
