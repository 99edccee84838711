"""Address of a service and time limits.

Knows the numbers and names that a connection needs, not how it is opened (`stream`) and with which credential
(`credentials`). An `Endpoint` is a frozen value: it pickles, and with a credential it is the key of the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671
HTTPS_PORT: Final = 443
HTTP_PORT: Final = 80

Transport = Literal["amqp", "amqpws"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service's address. `ca_file`: PEM file of certificates to trust in place of the machine's own.

    `address_host` is the host in audiences and in the connection's hostname; empty means `host`. Times are seconds.
    With `standard_only`, no operation is asked for that only emubus has.
    """

    host: str
    port: int = AMQPS_PORT
    tls: bool = True
    transport: Transport = "amqp"
    ca_file: str | None = None
    connect_timeout_s: float = 30.0
    operation_timeout_s: float = 60.0
    idle_timeout_s: float = 60.0
    retry_timeout_s: float = 120.0
    address_host: str = ""
    standard_only: bool = False

    def __post_init__(self) -> None:
        if not self.address_host:
            object.__setattr__(self, "address_host", self.host)

    @property
    def where(self) -> str:
        """Host and port, for texts."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def default_port(*, tls: bool, transport: Transport) -> int:
    """The port if none is given [wire 1.1, 1.5]."""
    if transport == "amqpws":
        return HTTPS_PORT if tls else HTTP_PORT
    return AMQPS_PORT if tls else AMQP_PORT
