"""Errors as they leave a connection: the broker's text with the tail by which the service's support finds them.

Knows which form of tail goes where (`broker/tracking.py` has the forms). Does not know why something is refused.
The refusals of clients are logged on their way (`broker/admin/refusal_log.py`). Owned by its connection, whose number
is that of the gateway.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from ..broker.address import parse_address
from ..broker.broker import Broker
from ..broker.clock import Clock
from ..broker.errors import BrokerError, Condition
from ..broker.service_errors import HOST_SUFFIX, SUBSCRIPTIONS
from ..broker.tracking import GATEWAYS, Form, Tail
from ..conditions.strikes import FormedError
from .wire.engine import Pointer, read_attach

BEFORE_THE_BROKER = frozenset({Condition.UNAUTHORIZED_ACCESS, Condition.ENTITY_DISABLED, Condition.NOT_IMPLEMENTED})
"""What the gateway refuses of an attach without asking the broker of the entity."""


class Tracker:
    """Gives the errors of one connection their tails."""

    def __init__(self, broker: Broker, clock: Clock, number: int, client: Mapping[str, str]) -> None:
        self._broker = broker
        self._clock = clock
        self.number = number
        self._client = client

    def name_of_link(self, name: str) -> str:
        """A link as the service's texts name it: with the gateway and a number in front of the client's name."""
        return f"G{self.number % GATEWAYS}:{zlib.crc32(name.encode())}:{name}"

    def closed(self, error: BrokerError) -> BrokerError:
        """The error of a connection or AMQP session that is closed."""
        return self._with_tail(error, Form.GATEWAY, "")

    def claimed(self, error: BrokerError, audience: str) -> BrokerError:
        self._log(audience, error)
        return self._with_tail(error, Form.GATEWAY, self._at_host(parse_address(audience).entity))

    def attached(self, error: BrokerError, address: str) -> BrokerError:
        """The refusal of an attach: by the gateway, or by the broker behind it."""
        self._log(address, error)
        if isinstance(error, FormedError):
            return self._with_tail(error, Form.BOTH, self._broker.namespace.name_of(address))
        path = parse_address(address).entity
        is_missing = error.condition is Condition.NOT_FOUND and SUBSCRIPTIONS not in path.lower()
        if is_missing or error.condition in BEFORE_THE_BROKER or _names_no_entity(path):
            return self._with_tail(error, Form.GATEWAY, self._at_host(path) if is_missing else "")
        return self._with_tail(error, Form.BOTH, self._broker.namespace.name_of(address))

    def detached(self, error: BrokerError, address: str) -> BrokerError:
        """The error of a link that the broker closes; one whose token is over, and a node's, the gateway closes."""
        if "Code: RenewToken" in error.description or _names_no_entity(parse_address(address).entity):
            return self._with_tail(error, Form.GATEWAY, "")
        return self._with_tail(error, Form.BROKER, self._broker.namespace.name_of(address))

    def refused(self, error: BrokerError, link: Pointer) -> BrokerError:
        """The refusal of what a client sends or settles over a link."""
        address = read_attach(link).address
        self._log(address, error)
        return self._with_tail(error, Form.OPERATION, self._broker.namespace.name_of(address))

    def answered(self, error: BrokerError, address: str) -> BrokerError:
        self._log(address, error)
        return self._with_tail(error, Form.REQUEST, self._broker.namespace.name_of(address))

    def _log(self, address: str, error: BrokerError) -> None:
        client = self._client
        name = " ".join(filter(None, (client.get("product") or client.get("container"), client.get("version"))))
        self._broker.refusals.refused(f"{name} at {client.get('peer', '')}", address, error)

    def _at_host(self, path: str) -> str:
        return f"{self._broker.name}{HOST_SUFFIX}:{path}"

    def _with_tail(self, error: BrokerError, form: Form, system: str) -> BrokerError:
        if isinstance(error, FormedError):
            if error.form is None:
                return error
            form, system = error.form, "" if error.form is Form.GATEWAY else system
        tail = Tail(form, system, self.number).text(self._clock.now_ms())
        return BrokerError(error.condition, f"{error.description} {tail}", error.info)


def _names_no_entity(path: str) -> bool:
    """Whether a link's address is empty (the coordinator) or a node of the connection such as `$cbs`."""
    return not path or path.startswith("$")
