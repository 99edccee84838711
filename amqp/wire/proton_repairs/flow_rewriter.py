"""Flows that answer a drain or an echo, which Proton does not write: the state of a link.

A client that drains while its last message is under way asks for credit that is used up when its flow arrives. Proton
then has no credit to give back and writes nothing; .NET waits a minute for the flow, JavaScript closes the link [wire
5.6]. Proton does not answer `echo`, either. So Proton is made to write a flow for the AMQP session, whose counters
only Proton knows, and the link's fields are put into that flow here.

Needed by Proton 0.40.0 (`tests/amqp/test_flows.py`). Knows under which channel and handle Proton attached each link,
read from Proton's own frames. Does not know why a link drains. Owned by a connection.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....broker.lazy_dataclass import dataclass
from ....codec.decode import decode
from ....codec.encode import encode_list
from ....codec.errors import DecodeError
from ....codec.frames import ATTACH, BEGIN, FLOW, performatives, write_frame
from ....codec.types import Described, Uint
from ..engine import Pointer
from ..flow import LinkState
from .delivery_ids import DeliveryIds

_SESSION_FIELDS = 4  # of a flow: next-incoming-id to outgoing-window [AMQP 2.7.4]


@dataclass(slots=True, eq=False, repr=False)
class _Attached:
    session: Pointer
    name: str
    receives: bool
    handle: int = -1


class FlowRewriter:
    """Numbers of the AMQP sessions and links of one connection; `rewrite` puts link states into Proton's output."""

    def __init__(self) -> None:
        self._by_client_channel: dict[int, Pointer] = {}
        self._client_channels: dict[Pointer, int] = {}
        self._channels: dict[Pointer, int] = {}
        self._links: dict[Pointer, _Attached] = {}
        self._sessions: dict[int, Pointer] = {}  # by Proton's channel
        self._unnamed: dict[tuple[Pointer, str, bool], _Attached] = {}
        self.awaits_numbers = False
        """Whether the channel of a new session or the handle of a new link is not known yet."""

    # ---- sessions and links

    def session_began(self, client_channel: int, session: Pointer) -> None:
        """The client began an AMQP session on its channel."""
        self._by_client_channel[client_channel] = session
        self._client_channels[session] = client_channel
        self.awaits_numbers = True

    def session_on(self, client_channel: int) -> Pointer | None:
        return self._by_client_channel.get(client_channel)

    def session_ended(self, session: Pointer) -> None:
        """The session is over; `link_detached` was called for each of its links."""
        ours = self._channels.pop(session, None)
        if ours is not None and self._sessions.get(ours) == session:
            del self._sessions[ours]
        channel = self._client_channels.pop(session, None)
        if channel is not None:
            del self._by_client_channel[channel]

    def link_attached(self, link: Pointer, session: Pointer, name: str, *, sends: bool) -> None:
        """A link was opened; its attach is in the next output."""
        self._links[link] = entry = _Attached(session, name, receives=sends)
        self._unnamed[session, name, sends] = entry
        self.awaits_numbers = True

    def link_detached(self, link: Pointer) -> None:
        self._links.pop(link, None)

    def observe(self, output: bytes) -> None:
        """Read channels and handles from Proton's output."""
        if not self.awaits_numbers:
            return
        for channel, code, start, stop in performatives(output):
            if code == BEGIN:
                client_channel = _fields(output[start + 8 : stop])[0]
                if isinstance(client_channel, int) and client_channel in self._by_client_channel:
                    session = self._by_client_channel[client_channel]
                    self._channels[session] = channel
                    self._sessions[channel] = session
            elif code == ATTACH:
                self._name(channel, _fields(output[start + 8 : stop]))
        self._unnamed.clear()
        self.awaits_numbers = len(self._channels) != len(self._by_client_channel)

    def _name(self, channel: int, fields: list[object]) -> None:
        name, handle, receives = fields[:3]
        session = self._sessions.get(channel)
        if session is not None and isinstance(name, str) and isinstance(handle, int):
            entry = self._unnamed.get((session, name, receives is True))
            if entry is not None:
                entry.handle = handle

    # ---- rewriting

    def rewrite(
        self, output: bytes, states: Sequence[tuple[Pointer, LinkState]], ids: DeliveryIds | None = None
    ) -> bytes:
        """`output` with a flow for each link state in the place of its session's flow.

        With `ids`, dispositions name deliveries by the client's ids.
        """
        if ids is not None and ids.is_renumbering:
            output = ids.outgoing(output, self._client_channel)
        if not states:
            return output
        wanted: dict[int, list[tuple[int, LinkState]]] = {}
        for link, state in states:
            entry = self._links.get(link)
            if entry is not None and entry.handle >= 0:
                wanted.setdefault(self._channels[entry.session], []).append((entry.handle, state))
        pieces: list[bytes] = []
        done = 0
        for channel, code, start, stop in performatives(output):
            if code == FLOW and channel in wanted:
                fields = _fields(output[start + 8 : stop])
                if any(field is not None for field in fields[_SESSION_FIELDS:]):
                    continue  # it is a link's already
                pieces.append(output[done:start])
                done = stop
                for handle, state in wanted.pop(channel):
                    count, credit, available, drain = state
                    known = None if available is None else Uint(available)
                    of_link = [Uint(handle), Uint(count), Uint(credit), known, drain, False]
                    pieces.append(write_frame(channel, FLOW, encode_list([*fields[:_SESSION_FIELDS], *of_link])))
        return b"".join((*pieces, output[done:]))

    def _client_channel(self, channel: int) -> int | None:
        return self._client_channels.get(self._sessions.get(channel))


def _fields(body: bytes) -> list[object]:
    """The fields of a performative, with nulls for the first ones if they are missing."""
    try:
        value, _ = decode(body)
    except DecodeError:  # what a client's terminus held came back in ours and is malformed
        return [None] * _SESSION_FIELDS
    fields = value.value if isinstance(value, Described) and isinstance(value.value, list) else []
    return fields + [None] * (_SESSION_FIELDS - len(fields))
