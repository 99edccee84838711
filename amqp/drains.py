"""Answers to drains that find no credit left, which Proton doesn't give.

A client that drains while its last message is on the way asks for credit that is used up when the question arrives.
Proton then has nothing to give back and says nothing; .NET waits a minute for the flow, JavaScript closes the link
[wire 5.6]. So that flow is written here: Proton is made to write one for the AMQP session, whose counters only it
knows, and the link's part is put into it.

Knows under which channel and handle Proton attached our links, learnt from its own frames. Refuses to know why a link
drains. Owned by a connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..broker.encoding import Described, Uint, decode, encode_list
from ..broker.errors import BrokerError
from .delivery_ids import DeliveryIds
from .engine import Pointer
from .frames import AMQP_HEADER, ATTACH, BEGIN, FLOW, write_frame

_SESSION_FIELDS = 4  # of a flow: next-incoming-id to outgoing-window [AMQP 2.7.4]


@dataclass(slots=True)
class _Attached:
    session: Pointer
    name: str
    receives: bool
    handle: int = -1


class Drains:
    """Feed it what is opened and what is written; `answer` a drain of a link when nothing of it is left to write."""

    def __init__(self) -> None:
        self._by_client_channel: dict[int, Pointer] = {}
        self._client_channels: dict[Pointer, int] = {}
        self._channels: dict[Pointer, int] = {}
        self._links: dict[Pointer, _Attached] = {}
        self._unnamed: list[_Attached] = []

    # ---- what is there

    def began(self, client_channel: int, session: Pointer) -> None:
        """The client began an AMQP session on its channel."""
        self._by_client_channel[client_channel] = session
        self._client_channels[session] = client_channel

    def session_on(self, client_channel: int) -> Pointer | None:
        """The session that the client has on a channel."""
        return self._by_client_channel.get(client_channel)

    def ended(self, session: Pointer) -> None:
        """The session is over; its links have been told of by themselves."""
        self._channels.pop(session, None)
        channel = self._client_channels.pop(session, None)
        if channel is not None:
            del self._by_client_channel[channel]

    def attached(self, link: Pointer, session: Pointer, name: str, *, sends: bool) -> None:
        """A link was opened; its attach is in the next output."""
        self._links[link] = entry = _Attached(session, name, receives=sends)
        self._unnamed.append(entry)

    def detached(self, link: Pointer) -> None:
        """A link is over."""
        self._links.pop(link, None)

    def is_curious(self) -> bool:
        """Whether something was opened whose numbers are still to be learnt."""
        return bool(self._unnamed) or len(self._channels) != len(self._by_client_channel)

    def look(self, output: bytes) -> None:
        """Learn the numbers in Proton's output."""
        if not self.is_curious():
            return
        for channel, code, start, stop in _frames(output):
            if code == BEGIN:
                client_channel = _fields(output[start:stop])[0]
                if isinstance(client_channel, int) and client_channel in self._by_client_channel:
                    self._channels[self._by_client_channel[client_channel]] = channel
            elif code == ATTACH:
                self._name(channel, _fields(output[start:stop]))
        self._unnamed.clear()

    def _name(self, channel: int, fields: list[object]) -> None:
        name, handle, receives = fields[:3]
        for entry in self._unnamed:
            if (
                self._channels.get(entry.session) == channel
                and (entry.name, entry.receives) == (name, receives)
                and isinstance(handle, int)
            ):
                entry.handle = handle

    # ---- answers

    def answer(self, output: bytes, drained: Sequence[tuple[Pointer, int]], ids: DeliveryIds | None = None) -> bytes:
        """`output` with the answers for links and their delivery-counts in the place of their sessions' flows.

        With `ids`, what it says of deliveries is said of the ids that the client knows them by.
        """
        if ids is not None and ids.is_renumbering:
            output = ids.outgoing(output, self._client_channel)
        if not drained:
            return output
        wanted: dict[int, list[tuple[int, int]]] = {}
        for link, count in drained:
            entry = self._links.get(link)
            if entry is not None and entry.handle >= 0:
                wanted.setdefault(self._channels[entry.session], []).append((entry.handle, count))
        pieces: list[bytes] = []
        done = 0
        for channel, code, start, stop in _frames(output):
            if code == FLOW and channel in wanted:
                fields = _fields(output[start:stop])
                if any(field is not None for field in fields[_SESSION_FIELDS:]):
                    continue  # it is a link's already
                pieces.append(output[done : start - 8])
                done = stop
                for handle, count in wanted.pop(channel):
                    of_link = [Uint(handle), Uint(count), Uint(0), Uint(0), True, False]
                    pieces.append(write_frame(channel, FLOW, encode_list([*fields[:_SESSION_FIELDS], *of_link])))
        return b"".join((*pieces, output[done:]))

    def _client_channel(self, channel: int) -> int | None:
        found = next((session for session, ours in self._channels.items() if ours == channel), None)
        return self._client_channels.get(found)


def _frames(output: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Channel, performative's code, start and end of each body; Proton's own output, so sizes are right."""
    pos = len(AMQP_HEADER) if output.startswith(AMQP_HEADER) else 0
    while len(output) - pos >= 8:
        stop = pos + int.from_bytes(output[pos : pos + 4], "big")
        if stop - pos > 10:
            yield int.from_bytes(output[pos + 6 : pos + 8], "big"), output[pos + 10], pos + 8, stop
        pos = stop


def _fields(body: bytes) -> list[object]:
    """The fields of a performative, with nulls for the first ones if they are missing."""
    try:
        value, _ = decode(body)
    except BrokerError:  # what a client's terminus held came back in ours and is malformed
        return [None] * _SESSION_FIELDS
    fields = value.value if isinstance(value, Described) and isinstance(value.value, list) else []
    return fields + [None] * (_SESSION_FIELDS - len(fields))
