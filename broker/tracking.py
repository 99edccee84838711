"""The tracking part that the service appends to its error texts, in the forms that users report.

Knows which form names the gateway, the broker or both, and when it has a reference to the refused operation. Support
tools parse the parts; no SDK needs them [wire 9.2]. Does not know error texts (`service_errors.py`). The service's
gateway and broker numbers name machines; here they are derived from the connection and the entity.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from enum import Enum, auto

from .ids import new_tracking_id
from .lazy_dataclass import dataclass

GATEWAYS = 64
BROKERS = 32


class Form(Enum):
    """The component that answers."""

    GATEWAY = auto()  # closed connections, claims, early refusals of an attach
    BROKER = auto()  # detached links
    BOTH = auto()  # an attach that the broker refuses
    OPERATION = auto()  # refused work on a link: a reference and the broker
    REQUEST = auto()  # refused requests to `$management`: a reference and the broker without gateway


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tail:
    """The parts of a tail. `system` names the subject: the entity, or the host with a path."""

    form: Form
    system: str
    gateway: int = 0

    def text(self, now_ms: int) -> str:
        """Return the tail with new ids."""
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
    """Return the tail that follows an error text over HTTP."""
    stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    gateway = zlib.crc32(system.lower().encode()) % GATEWAYS
    return f"TrackingId:{new_tracking_id()}_G{gateway}, SystemTracker:{system}, Timestamp:{stamp}"


def _hex() -> str:
    return new_tracking_id().replace("-", "")
