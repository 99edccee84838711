"""Where faults and conditions hook in: at the life of links, and by the attribute `tap` of a link or a node.

Without faults every `tap` is None and a message passes one look at it. `injection` implements all of this and sets the
taps (`injection.faults`); it imports this room, and nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...broker.api import Delivery, Outcome, Receiver, RunDone, SessionReceiver, TransactionRef
from ..link_context import LinkContext
from ..wire.engine import AttachRequest, Pointer
from ..wire.link import Done
from .credit import Step

ReceiverHandle = Receiver | SessionReceiver
"""The broker's, of a receiver link."""


class ReceivingTap(Protocol):
    """What stands between a receiver link and the broker. Each moment does what the link would have done, or else."""

    def before_credit(self, count: int) -> None:
        """The link wants its receiver to have `count` credit (absolute)."""
        ...

    def before_deliver(self, deliveries: Sequence[Delivery]) -> Step:
        """The broker hands messages over, for the link's `hand_out`, whose step is returned."""
        ...

    def before_settle(
        self, receiver: ReceiverHandle, run: Sequence[bytes], outcome: Outcome, done: RunDone | None
    ) -> None:
        """The client settles deliveries; `receiver` may be closed."""
        ...

    def before_close(self) -> None:
        """The link gives its receiver up."""
        ...


SendingTap = Callable[[bytes, Callable[[Done], None], Done, bool], None]
"""Stands between a sender link and the broker: the client sends data, which is a batch if the last argument says so and
which the second one stores; then the third gets its outcome."""

DischargeTap = Callable[[TransactionRef, bool, Done], None]
"""Stands between a coordinator's link and the broker: the client commits a transaction, or rolls it back if the second
argument is true."""


class LinkHooks(Protocol):
    """What `Endpoints` asks, and reports, of links. Without faults and conditions `are_set` is False."""

    @property
    def are_set(self) -> bool:
        """Whether `attaching` and `attached` must be called for new links."""
        ...

    def links_per_session_max(self, usual: int) -> int:
        """How many links an AMQP session may have."""
        ...

    def attaching(self, connection: LinkContext, request: AttachRequest) -> None:
        """A client attaches; BrokerError if that is to fail."""
        ...

    def attached(self, connection: LinkContext, pointer: Pointer) -> None:
        """A link is among the connection's from now on."""
        ...

    def detached(self, connection: LinkContext, pointer: Pointer) -> None: ...
