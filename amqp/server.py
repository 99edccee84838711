"""The AMQP server: makes the protocol of each connection, and ends them all.

Knows which connections are open. Does not know what they say, and where they come from: the listener asks for a
`protocol()` for each. Owned by the composition root, on whose event loop everything runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ..broker import service_errors
from ..broker.access import Access
from ..broker.address import parse_address
from ..broker.broker import Broker
from ..broker.clock import Clock
from ..broker.errors import BrokerError
from ..broker.ledger import MemoryAccount
from ..conditions.engine import Conditions
from .connection import Connection
from .injection.faults import Faults
from .limits import Limits
from .link_context import LinkContext
from .links.outgoing import address_of
from .server_state import Choose, ServerState, no_choice
from .wire.engine import Pointer, link_load, read_attach

Find = Callable[[str], "AmqpServer | Awaitable[AmqpServer]"]
"""Finds the AMQP server of the host that a client names; BrokerError: there is none, or it can't be opened."""


class AmqpServer:
    """The AMQP connections of one namespace.

    Beyond `connections_max` open connections (None is any number) a client gets the reason and is closed. Clients of
    JMS 2.0 are refused with `jms_refusal`, if there is one. `choice()` gives, if there are several namespaces, what
    finds the server of the host that a client names; such servers are `beside` the first, with which they share the
    turns of the loop.
    """

    def __init__(
        self,
        broker: Broker,
        access: Access,
        clock: Clock,
        *,
        limits: Limits | None = None,
        container: str = "emubus",
        connections_max: int | None = None,
        jms_refusal: BrokerError | None = None,
        beside: AmqpServer | None = None,
        choice: Callable[[], Find | None] = no_choice,
    ) -> None:
        self._state: ServerState = ServerState(
            broker,
            access,
            clock,
            limits or Limits(),
            container,
            connections_max=connections_max,
            jms_refusal=jms_refusal,
            beside=None if beside is None else beside._state,
            chooser=lambda: _choose_by(choice()),
        )

    @property
    def faults(self) -> Faults:
        return self._state.faults

    @property
    def conditions(self) -> Conditions:
        return self._state.conditions

    @property
    def connection_count(self) -> int:
        return len(self._state.connections)

    @property
    def link_count(self) -> int:
        """How many links there are on all of them."""
        return sum(len(connection.wire.links) for connection in self._state.connections)

    def report(self) -> list[dict[str, object]]:
        """Every open connection as its client introduces itself, with its links; the oldest first."""
        found: list[dict[str, object]] = []
        for each in sorted(self._state.connections, key=lambda connection: connection.number):
            if each.client:
                links = [_link_report(each, pointer) for pointer in each.wire.links]
                found.append({"number": each.number, "since": each.opened_at, **each.client, "links": links})
        return found

    def protocol(self, account: MemoryAccount, find: Find | None = None) -> Connection:
        """What a new connection is given to, with the account of what is held for its client.

        With `find`, the client has reached another namespace, which is found by that once the client says its open.
        """
        return Connection(self._state, self._state.next_number(), account, _choose_by(find))

    async def stop(self, reason: BrokerError | None = None) -> None:
        """Close every connection in good order, because of the stop or another `reason`; late ones are cut."""
        state = self._state
        for connection in list(state.connections):
            connection.requests.close(reason or service_errors.connection_closed(state.container))
        with contextlib.suppress(TimeoutError):
            async with state.clock.time_limit(state.limits.stop_wait_ms):
                await state.wait_until_empty()
        for connection in list(state.connections):
            connection.requests.abort()
        await state.wait_until_empty()
        state.aside.stop()


def _choose_by(find: Find | None) -> Choose | None:
    if find is None:
        return None

    async def state_of(server: Awaitable[AmqpServer]) -> ServerState:
        return (await server)._state

    def choose(host: str) -> ServerState | asyncio.Future[ServerState]:
        found = find(host)
        return found._state if isinstance(found, AmqpServer) else asyncio.ensure_future(state_of(found))

    return choose


def _link_report(connection: LinkContext, pointer: Pointer) -> dict[str, object]:
    """A link: what the client does over it, and how much of it is under way."""
    link = read_attach(pointer)
    credit, in_flight = link_load(pointer)
    return {
        "address": parse_address(address_of(connection, pointer)).path,
        "role": "sender" if link.sends else "receiver",
        "name": link.name,
        "credit": credit,
        "in_flight": in_flight,
    }
