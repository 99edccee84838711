"""AMQP sessions and links of one connection: how they begin, how they end, and what must be freed then.

Knows which links are open, which of them only one side has closed, and to which AMQP session each belongs. Does not
know what happens on a link (`attach` makes its handler) and how bytes travel (`connection`). Owned by a connection;
ends all links in `lose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from ...broker import service_errors
from ...broker.access import Need
from ...broker.address import parse_address
from ...broker.clock import Timer
from ...broker.errors import BrokerError, Condition
from ..link_context import LinkContext
from ..wire import engine as proton
from ..wire.engine import AttachRequest, Engine, Pointer, lib
from ..wire.link import Handler, Link, drop
from ..wire.proton_repairs.flow_rewriter import FlowRewriter
from .attach import LinkFactory
from .hooks import LinkHooks

SESSION_BYTES: Final = 3_700
LINK_BYTES: Final = 4_600
ATTACH_FACTOR: Final = 4
"""What an AMQP session, a link and each byte of its attach cost Proton and us: resident memory after 9 000 sessions,
and after 10 000 links with names of 20 and of 200 characters."""


class Endpoints:
    """The AMQP sessions and links of one connection."""

    def __init__(self, context: LinkContext, engine: Engine, flows: FlowRewriter, hooks: LinkHooks) -> None:
        self._context = context
        self._engine = engine
        self._links = context.wire.links
        self._flows = flows
        self._hooks = hooks
        self._factory = LinkFactory(context)
        self.is_open = False
        """Whether the client has sent its `open`."""
        self._refusal_pause_ms = 0
        self._session_count = 0
        self._links_of: dict[Pointer, set[Pointer]] = {}  # of each AMQP session, those that are half closed, too
        self._needs: dict[Pointer, Sequence[Need]] = {}  # of each attached link
        self._bytes_of: dict[Pointer, int] = {}  # what the attach of each link had
        self._half_closed: dict[Pointer, BrokerError] = {}  # links that we have closed, and the client has not
        self._pauses: dict[Pointer, Timer] = {}  # of links that are refused, and not detached yet
        self._lingering: dict[Pointer, Link] = {}  # those that are closed, and deliveries of which are unsettled
        self._settled: list[Pointer] = []  # of these, those that have no unsettled delivery any more
        self.has_ended = False
        """Whether something is closed on both sides, or settled at last: `free_ended` has something to do."""
        self._to_free: list[tuple[Callable[[Pointer], object], Pointer]] = []
        self._attach_bytes = 0  # the size of the attach that comes next
        self._suspending = False
        self._expelling: BrokerError | None = None

    def handlers(self) -> dict[int, Handler]:
        """Proton's events of AMQP sessions and links, by their types."""
        return {
            int(lib.PN_SESSION_REMOTE_OPEN): self.begin,
            int(lib.PN_SESSION_REMOTE_CLOSE): self.end,
            int(lib.PN_LINK_REMOTE_OPEN): self.attach,
            int(lib.PN_LINK_REMOTE_CLOSE): self.closed,
        }

    def opened(self, *, refusal_pause_ms: int) -> None:
        """The client has sent its `open`; the detach of a refusal comes so long behind its attach, 0 is at once."""
        self.is_open = True
        self._refusal_pause_ms = refusal_pause_ms

    def _require_open(self) -> None:
        if not self.is_open:
            raise BrokerError(Condition.NOT_ALLOWED, "The first frame of a connection must be its open.")

    # ---- what Proton's next event means

    def attaching(self, size_bytes: int) -> None:
        """The next attach has that many bytes."""
        self._attach_bytes = size_bytes

    def suspending(self) -> None:
        """The next detach does not close the link: its `closed` was set for Proton."""
        self._suspending = True

    def expelling(self, error: BrokerError) -> None:
        """The next detach was made here: the link is closed because of `error`."""
        self._expelling = error

    # ---- AMQP sessions

    def begin(self, event: Pointer) -> None:
        """The client begins an AMQP session."""
        context = self._context
        self._require_open()
        self._free_ended_first()
        self._session_count += 1
        if not context.claims.were_shown and self._session_count > context.limits.stranger_sessions_max:
            raise _too_many("AMQP sessions", context.limits.stranger_sessions_max)
        context.endpoints_cost(SESSION_BYTES)
        proton.open_session(lib.pn_event_session(event))

    def end(self, event: Pointer) -> None:
        """The client ends an AMQP session, with all its links."""
        session = lib.pn_event_session(event)
        for pointer in self._links_of.pop(session, ()):
            self._half_closed.pop(pointer, None)
            self._forget(pointer)
            self._release(pointer)
        self._session_count -= 1
        self._context.endpoints_cost(-SESSION_BYTES)
        self._factory.session_ended(session)
        self._flows.session_ended(session)
        proton.close_session(session)
        self._to_free.append((proton.free_session, session))
        self.has_ended = True

    def refuse(self, session: Pointer | None, error: BrokerError) -> None:
        """End an AMQP session from our side; the client's end frees it. Raises `error`, to close the connection, if the
        client's window keeps messages back: Proton would keep our end until it has sent them, which it never may."""
        self._engine.process()
        if session is None or proton.unsent_bytes(session):
            raise error
        context = self._context
        context.broker.lines.write(context.log.info, "AMQP session ended by us", reason=str(error))
        for pointer in self._links_of.get(session, ()):
            self._forget(pointer)
        proton.close_session(session, self._context.tracker.closed(error))

    def _forget(self, pointer: Pointer) -> None:
        """A link went with its AMQP session."""
        pause = self._pauses.pop(pointer, None)
        if pause is not None:
            pause.cancel()
        self._needs.pop(pointer, None)
        link = self._links.pop(pointer, None) or self._lingering.pop(pointer, None)
        if link is not None:
            self._flows.link_detached(pointer)
            self._gone(link)
            self._hooks.detached(self._context, pointer)

    def _free_ended_first(self) -> None:
        """Let the ends of what has just ended come before what begins: a channel or a name may be used again."""
        if self._to_free:
            self._engine.process()

    # ---- links

    def attach(self, event: Pointer) -> None:
        """The client attaches a link: it becomes one of `links`, or is refused."""
        limits = self._context.limits
        self._require_open()
        if len(self._half_closed) >= limits.links_max:
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, "Too many links that only we have closed.")
        self._free_ended_first()
        pointer = lib.pn_event_link(event)
        session = proton.session_of(pointer)
        links = self._links_of.setdefault(session, set())
        links_max = self._hooks.links_per_session_max(limits.links_per_session_max)
        if len(links) >= links_max:
            self.refuse(session, service_errors.handles_exceeded(links_max))
            return
        self._count(pointer)
        request = proton.read_attach(pointer)
        links.add(pointer)
        try:
            self._accept(pointer, request)
        except BrokerError as error:
            error = self._context.tracker.attached(error, request.address)
            self._refuse(pointer, error)
            self._half_closed[pointer] = error
            self._log("link refused", request, reason=str(error))

    def _accept(self, pointer: Pointer, request: AttachRequest) -> None:
        """Make a link; BrokerError says why it is refused."""
        context = self._context
        if len(self._links) >= context.limits.links_max:
            text = f"At most {context.limits.links_max} links per connection."
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, text)
        if self._hooks.are_set:
            self._hooks.attaching(context, request)
        attached = self._factory.attach(pointer, request)
        self._links[pointer] = attached.link
        self._needs[pointer] = attached.needs
        if self._hooks.are_set:
            self._hooks.attached(context, pointer)
        self._flows.link_attached(pointer, proton.session_of(pointer), request.name, sends=request.sends)
        self._log("link attached", request, kind=attached.kind)

    def _count(self, pointer: Pointer) -> None:
        """Count a link and its bytes; BrokerError, which closes the connection, if a stranger's are too many."""
        context, limits = self._context, self._context.limits
        size, self._attach_bytes = self._attach_bytes, 0
        if not context.claims.were_shown:
            if len(self._bytes_of) >= limits.stranger_links_max:
                raise _too_many("links", limits.stranger_links_max)
            if size > limits.stranger_attach_bytes_max:
                raise _too_many("bytes of an attach", limits.stranger_attach_bytes_max)
        cost = LINK_BYTES + ATTACH_FACTOR * size
        self._bytes_of[pointer] = cost
        context.endpoints_cost(cost)

    def _release(self, pointer: Pointer) -> None:
        """A link is closed on both sides."""
        self._context.endpoints_cost(-self._bytes_of.pop(pointer, 0))

    def accepted_late(self, pointer: Pointer, request: AttachRequest) -> None:
        """An attach that was held has been answered; the answer is still to be written."""
        if self._hooks.are_set:
            self._hooks.attached(self._context, pointer)
        self._flows.link_attached(pointer, proton.session_of(pointer), request.name, sends=request.sends)
        self._log("message session granted", request)
        self._context.requests.schedule_flush()

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
        self._needs.pop(pointer, None)
        if link is not None:
            self._link_closed(pointer, link)
            self._hooks.detached(self._context, pointer)
            name, entity = proton.link_name(pointer), _entity_of(pointer)
            if error is None:
                self._context.log.debug("link detached", link=name, entity=entity)
            else:
                write, event = self._context.log.info, "link detached by us"
                self._context.broker.lines.write(write, event, link=name, entity=entity, reason=str(error))
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
        self._needs.pop(pointer, None)
        if link is not None:
            self._gone(link)
            self._flows.link_detached(pointer)
            self._hooks.detached(self._context, pointer)
            tracker, address = self._context.tracker, proton.read_attach(pointer).address
            is_held = proton.is_link_held(pointer)
            error = tracker.attached(error, address) if is_held else tracker.detached(error, address)
            self._half_closed[pointer] = error
            if is_held:
                self._refuse(pointer, error)
            elif proton.is_link_attached(pointer):  # else we have closed it before
                proton.close_link(pointer, error)
            name, entity = proton.link_name(pointer), _entity_of(pointer)
            self._context.log.debug("link detached by us", link=name, entity=entity, reason=str(error))
            self._context.requests.schedule_flush()

    def _refuse(self, pointer: Pointer, error: BrokerError) -> None:
        """Answer an attach with null termini and a detach right behind [wire 9.4], or after a pause."""
        proton.refuse_link(pointer)
        if self._refusal_pause_ms:
            close = partial(self._close_refused, pointer, error)
            self._pauses[pointer] = self._context.clock.call_after(self._refusal_pause_ms, close)
        else:
            proton.close_link(pointer, error)

    def _close_refused(self, pointer: Pointer, error: BrokerError) -> None:
        del self._pauses[pointer]
        proton.close_link(pointer, error)
        self._context.requests.schedule_flush()

    # ---- deliveries that are settled after their link

    def _link_closed(self, pointer: Pointer, link: Link) -> None:
        """A link is over; it lingers while deliveries of it are unsettled."""
        self._flows.link_detached(pointer)
        if link.has_unsettled() and self._linger(pointer, link):
            self._lingering[pointer] = link
            if len(self._lingering) > self._context.limits.lingering_links_max:
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

    def _all_settled(self, pointer: Pointer) -> None:
        self._settled.append(pointer)
        self.has_ended = True

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
        self.has_ended = True

    def check_claims(self) -> Iterator[None]:
        """Close the links that the claims that are left don't cover [wire 1.7], one look at each step."""
        for pointer in list(self._needs):
            yield
            try:
                needs = self._needs.get(pointer, ())
                for need in needs:
                    self._context.claims.require(need)
            except BrokerError as error:
                # Like the service: SDKs come back from a forced detach with a new token, and not from unauthorized.
                self.detach(pointer, service_errors.claim_expired(proton.link_name(pointer), error.description))

    def _log(self, event: str, request: AttachRequest, **more: object) -> None:
        entity = parse_address(request.address).entity
        self._context.log.debug(
            event, link=request.name, entity=entity, address=request.address, sends=request.sends, **more
        )

    # ---- the end

    def lose(self) -> Iterator[None]:
        """End all links, one at each step; no frame follows."""
        for links in (self._links, self._lingering):
            while links:
                self._gone(links.popitem()[1])
                yield
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        self._needs.clear()
        self._factory.close()

    def free_ended(self) -> bool:
        """Free what is closed on both sides, once the frames that say so are written; whether there was any."""
        if self._settled:
            self._free_settled()
        to_free, self._to_free, self.has_ended = self._to_free, [], False
        for free, pointer in to_free:
            free(pointer)
        return bool(to_free)

    def _linger(self, pointer: Pointer, link: Link) -> bool:
        try:
            return link.linger(partial(self._all_settled, pointer))
        except Exception as error:
            self._context.log.error("ending a link failed", exc_info=error)
            return False

    def _gone(self, link: Link) -> None:
        self._factory.left(link.pointer)
        try:
            link.gone()
        except Exception as error:
            self._context.log.error("ending a link failed", exc_info=error)


_CLOSED: Final = BrokerError(Condition.DETACH_FORCED, "The link is closed.")


def _too_many(what: str, count_max: int) -> BrokerError:
    text = f"A client that has not put a valid token may have at most {count_max} {what}."
    return BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, text)


def _entity_of(pointer: Pointer) -> str:
    return parse_address(proton.read_attach(pointer).address).entity
