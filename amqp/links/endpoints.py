"""AMQP sessions and links of one connection: how they begin, how they end, and what must be freed then.

Knows which links are open, which of them only one side has closed, and to which AMQP session each belongs. Refuses to
know what happens on a link (`attach` makes its handler) and how bytes travel (`connection`). Owned by a connection;
ends all links in `lose`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from ...broker import service_errors
from ...broker.address import parse_address
from ...broker.errors import BrokerError, Condition
from ..fault_injection import Faulty
from ..faults import Faults
from ..quotas import Kept
from ..wire import engine as proton
from ..wire.deliveries import Link, drop
from ..wire.engine import AttachRequest, Engine, Pointer, lib
from ..wire.flow_rewriter import FlowRewriter
from .attach import AttachHost, attach


class EndpointHost(AttachHost, Faulty, Protocol):
    """What the endpoints need of their connection."""

    @property
    def log(self) -> Any:
        """The connection's logger."""
        ...

    @property
    def faults(self) -> Faults | None:
        """What is done to the connection on purpose."""
        ...

    @property
    def is_stranger(self) -> bool:
        """Whether the client has yet to show a valid token or key."""
        ...

    def require_open(self) -> None:
        """Raise BrokerError unless the client has sent its `open`."""
        ...


class Endpoints:
    """The AMQP sessions and links of one connection."""

    def __init__(self, host: EndpointHost, engine: Engine, links: dict[Pointer, Link], flows: FlowRewriter) -> None:
        self._host = host
        self._engine = engine
        self._links = links
        self._flows = flows
        self._half_closed: dict[Pointer, BrokerError] = {}  # links that we have closed, and the client has not
        self._links_of: dict[Pointer, set[Pointer]] = {}  # of each AMQP session, those that are half closed, too
        self.attach_bytes = 0
        """The size of the attach that comes next."""
        self._bytes_of: dict[Pointer, int] = {}  # what the attach of each link had
        self._session_count = 0
        self._to_free: list[tuple[Callable[[Pointer], object], Pointer]] = []
        self._lingering: dict[Pointer, Link] = {}  # those that are closed, and deliveries of which are unsettled
        self._settled: list[Pointer] = []  # of these, those that have no unsettled delivery any more
        self.pause_s = 0.0
        """How long the detach of a refusal waits behind its attach: 0 is not at all."""
        self._pauses: dict[Pointer, asyncio.TimerHandle] = {}  # of links that are refused, and not detached yet
        self._suspending = False
        self._expelling: BrokerError | None = None

    # ---- what the frame that comes next means to Proton's event

    def suspending(self) -> None:
        """The next detach does not close the link, though it says so."""
        self._suspending = True

    def expelling(self, error: BrokerError) -> None:
        """The next detach is ours: the link is to be closed because of `error`."""
        self._expelling = error

    # ---- AMQP sessions

    def begin(self, event: Pointer) -> None:
        """The client begins an AMQP session."""
        host = self._host
        host.require_open()
        self._end_first()
        self._session_count += 1
        if host.is_stranger and self._session_count > host.limits.stranger_sessions_max:
            raise _too_many("AMQP sessions", host.limits.stranger_sessions_max)
        proton.open_session(lib.pn_event_session(event))

    def end(self, event: Pointer) -> None:
        """The client ends an AMQP session, with all its links."""
        session = lib.pn_event_session(event)
        for pointer in self._links_of.pop(session, ()):
            self._half_closed.pop(pointer, None)
            self._forget(pointer)
            self._release(pointer)
        self._session_count -= 1
        self._host.scopes.pop(session, None)
        self._flows.session_ended(session)
        proton.close_session(session)
        self._to_free.append((proton.free_session, session))

    def refuse(self, session: Pointer | None, error: BrokerError) -> None:
        """End an AMQP session from our side; the client's end frees it. Raises `error`, to close the connection, if the
        client's window keeps messages back: Proton would keep our end until it has sent them, which it never may."""
        self._engine.process()
        if session is None or proton.has_unsent(session):
            raise error
        self._host.log.info("AMQP session ended by us", reason=str(error))
        for pointer in self._links_of.get(session, ()):
            self._forget(pointer)
        proton.close_session(session, self._host.tracker.closed(error))

    def _forget(self, pointer: Pointer) -> None:
        """A link went with its AMQP session."""
        pause = self._pauses.pop(pointer, None)
        if pause is not None:
            pause.cancel()
        link = self._links.pop(pointer, None) or self._lingering.pop(pointer, None)
        if link is not None:
            self._flows.link_detached(pointer)
            self._gone(link)

    def _end_first(self) -> None:
        """Let the ends of what has just ended come before what begins: a channel or a name may be used again."""
        if self._to_free:
            self._engine.process()

    # ---- links

    def attach(self, event: Pointer) -> None:
        """The client attaches a link: it becomes one of `links`, or is refused."""
        host = self._host
        host.require_open()
        if len(self._half_closed) >= host.limits.links_max:
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, "Too many links that only we have closed.")
        self._end_first()
        pointer = lib.pn_event_link(event)
        session = proton.session_of(pointer)
        links = self._links_of.setdefault(session, set())
        if len(links) >= host.limits.links_per_session_max:
            self.refuse(session, service_errors.handles_exceeded(host.limits.links_per_session_max))
            return
        self._count(pointer)
        request = proton.read_attach(pointer)
        links.add(pointer)
        faults = host.faults
        try:
            if len(self._links) >= host.limits.links_max:
                raise BrokerError(
                    Condition.RESOURCE_LIMIT_EXCEEDED, f"At most {host.limits.links_max} links per connection."
                )
            if faults is not None and faults.are_set:
                faults.attaching(host, request)
            kind, link = attach(host, pointer, request)
        except BrokerError as error:
            error = host.tracker.attached(error, request.address)
            self._refuse(pointer, error)
            self._half_closed[pointer] = error
            self._note("link refused", request, reason=str(error))
            return
        self._links[pointer] = link
        if faults is not None and faults.are_set:
            faults.attached(host)
        self._flows.link_attached(pointer, proton.session_of(pointer), request.name, sends=request.sends)
        self._note("link attached", request, kind=kind)

    def _count(self, pointer: Pointer) -> None:
        """Count a link and its bytes; BrokerError, which closes the connection, if there are too many."""
        host, limits = self._host, self._host.limits
        size, self.attach_bytes = self.attach_bytes, 0
        if host.is_stranger:
            if len(self._bytes_of) >= limits.stranger_links_max:
                raise _too_many("links", limits.stranger_links_max)
            if size > limits.stranger_attach_bytes_max:
                raise _too_many("bytes of an attach", limits.stranger_attach_bytes_max)
        self._bytes_of[pointer] = size
        host.kept.change(Kept.ATTACHES, size)

    def _release(self, pointer: Pointer) -> None:
        """A link is closed on both sides."""
        self._host.kept.change(Kept.ATTACHES, -self._bytes_of.pop(pointer, 0))

    def accepted_late(self, pointer: Pointer, request: AttachRequest) -> None:
        """An attach that was held has been answered; the answer is still to be written."""
        host = self._host
        if host.faults is not None and host.faults.are_set:
            host.faults.attached(host)
        self._flows.link_attached(pointer, proton.session_of(pointer), request.name, sends=request.sends)
        self._note("message session granted", request)
        host.schedule_flush()

    def closed(self, event: Pointer) -> None:
        """A link's detach has come, the client's or one in its name: the answer is of the same kind, none if we were
        first. Deliveries that are unsettled can still be settled [AMQP 2.7.6]."""
        pointer = lib.pn_event_link(event)
        suspending, self._suspending = self._suspending, False
        error, self._expelling = self._expelling, None
        refusal = self._half_closed.pop(pointer, None)
        pause = self._pauses.pop(pointer, None)
        if pause is not None:
            pause.cancel()
            error = refusal
        link = self._links.pop(pointer, None)
        if link is not None:
            self._leave(pointer, link)
            name, entity = proton.link_name(pointer), _entity_of(pointer)
            if error is None:
                self._host.log.debug("link detached", link=name, entity=entity)
            else:
                self._host.log.info("link detached by us", link=name, entity=entity, reason=str(error))
        if error is not None and proton.is_link_held(pointer):
            proton.refuse_link(pointer)
            proton.close_link(pointer, error)
        elif proton.is_link_attached(pointer):
            if suspending:
                proton.detach_link(pointer)
                self._engine.process()
            proton.close_link(pointer, error)
        if pointer in self._lingering:
            self._engine.process()  # whatever begins under its name or handle comes behind it
        else:
            self._free(pointer)

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close a link from our side; the client's answer frees it."""
        link = self._links.pop(pointer, None)
        if link is not None:
            self._gone(link)
            self._flows.link_detached(pointer)
            tracker, address = self._host.tracker, proton.read_attach(pointer).address
            is_held = proton.is_link_held(pointer)
            error = tracker.attached(error, address) if is_held else tracker.detached(error, address)
            self._half_closed[pointer] = error
            if is_held:
                self._refuse(pointer, error)
            elif proton.is_link_attached(pointer):  # else we have closed it before
                proton.close_link(pointer, error)
            name, entity = proton.link_name(pointer), _entity_of(pointer)
            self._host.log.debug("link detached by us", link=name, entity=entity, reason=str(error))
            self._host.schedule_flush()

    def _refuse(self, pointer: Pointer, error: BrokerError) -> None:
        """Answer an attach with null termini and a detach right behind [wire 9.4], or after a pause."""
        proton.refuse_link(pointer)
        if self.pause_s:
            self._pauses[pointer] = asyncio.get_running_loop().call_later(self.pause_s, self._paused, pointer, error)
        else:
            proton.close_link(pointer, error)

    def _paused(self, pointer: Pointer, error: BrokerError) -> None:
        del self._pauses[pointer]
        proton.close_link(pointer, error)
        self._host.schedule_flush()

    # ---- what is settled after its link has gone

    def _leave(self, pointer: Pointer, link: Link) -> None:
        """A link is over; it lingers while deliveries of it are unsettled."""
        self._flows.link_detached(pointer)
        if link.has_unsettled() and self._linger(link):
            self._lingering[pointer] = link
            link.when_settled = partial(self._settled.append, pointer)
            if len(self._lingering) > self._host.limits.lingering_links_max:
                oldest = next(iter(self._lingering))
                self._gone(self._lingering.pop(oldest))
                self._free(oldest)
        else:
            self._gone(link)

    def settled_late(self, delivery: Pointer) -> None:
        """A disposition, or a transfer, came for a link that has gone."""
        pointer = lib.pn_delivery_link(delivery)
        link = self._lingering.get(pointer)
        if link is None:
            drop(delivery, self._half_closed.get(pointer, _CLOSED))
        else:
            link.on_delivery(delivery)

    def _free_settled(self) -> None:
        """Free the links that linger for no delivery any more."""
        settled, self._settled = self._settled, []
        for pointer in settled:
            link = self._lingering.pop(pointer, None)
            if link is not None:
                self._gone(link)
                self._free(pointer)

    def _free(self, pointer: Pointer) -> None:
        self._links_of.get(proton.session_of(pointer), set()).discard(pointer)
        self._release(pointer)
        self._to_free.append((proton.free_link, pointer))

    def check_claims(self) -> None:
        """Close every link that the claims that are left don't cover [wire 1.7]."""
        for pointer, link in list(self._links.items()):
            try:
                for need in link.needs:
                    self._host.claims.require(need)
            except BrokerError as error:
                # Like the service: SDKs come back from a forced detach with a new token, and not from unauthorized.
                self.detach(pointer, service_errors.claim_expired(proton.link_name(pointer), error.description))

    def _note(self, event: str, request: AttachRequest, **more: Any) -> None:
        entity = parse_address(request.address).entity
        self._host.log.debug(
            event, link=request.name, entity=entity, address=request.address, sends=request.sends, **more
        )

    # ---- the end

    def lose(self) -> None:
        """End all links; no frame follows."""
        for link in (*self._links.values(), *self._lingering.values()):
            self._gone(link)
        for pause in self._pauses.values():
            pause.cancel()
        self._links.clear()
        self._lingering.clear()
        self._pauses.clear()

    def free_ended(self) -> bool:
        """Free what is closed on both sides, once the frames that say so are written; whether there was any."""
        if self._settled:
            self._free_settled()
        to_free, self._to_free = self._to_free, []
        for free, pointer in to_free:
            free(pointer)
        return bool(to_free)

    def _linger(self, link: Link) -> bool:
        try:
            return link.linger()
        except Exception as error:
            self._host.log.error("ending a link failed", exc_info=error)
            return False

    def _gone(self, link: Link) -> None:
        try:
            link.gone()
        except Exception as error:
            self._host.log.error("ending a link failed", exc_info=error)


_CLOSED: Final = BrokerError(Condition.DETACH_FORCED, "The link is closed.")


def _too_many(what: str, count_max: int) -> BrokerError:
    text = f"A client that has not put a valid token may have at most {count_max} {what}."
    return BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, text)


def _entity_of(pointer: Pointer) -> str:
    return parse_address(proton.read_attach(pointer).address).entity


ENDPOINT_EVENTS: Final[dict[int, Callable[[Endpoints, Pointer], None]]] = {
    int(lib.PN_SESSION_REMOTE_OPEN): Endpoints.begin,
    int(lib.PN_SESSION_REMOTE_CLOSE): Endpoints.end,
    int(lib.PN_LINK_REMOTE_OPEN): Endpoints.attach,
    int(lib.PN_LINK_REMOTE_CLOSE): Endpoints.closed,
}
