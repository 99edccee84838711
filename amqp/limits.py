"""Every limit of the wire adapter, in one table (R6).

Knows numbers and why they are what they are; knows nothing of the code that obeys them. What an entity allows
(message size, batch size) is the broker's and comes with each link; how much memory a connection may hold is the
ledger's (`broker/ledger.py`).
"""

from __future__ import annotations

from ..broker.lazy_dataclass import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Limits:
    """Limits of one server. Each is per connection, unless its text names another scope."""

    frame_bytes_max: int = 64 * KIB
    """What we advertise and accept; the size most clients advertise themselves [wire 1.3]."""

    channel_max: int = 9_999
    """JavaScript, Go, Java and .NET open an AMQP session per link: at least 4 999 [wire 1.3]."""

    links_max: int = 10_000
    """Links of one connection; Proton's own handle limit can't be lowered. As many again may be closed by us only:
    with more of those the connection is closed, since its client doesn't answer."""

    lingering_links_max: int = 1_000
    """Links that are closed and wait for the client to settle their deliveries; beyond that the oldest wait no more."""

    links_per_session_max: int = 255
    """Links of one AMQP session, closed ones that the client has not detached included; with one more the service ends
    the session with all of them."""

    sasl_frame_bytes_max: int = 4 * KIB
    """The standard says 512; a little more for long PLAIN passwords."""

    open_wait_ms: int = 30_000
    """A connection that has not finished its `open` by then is closed."""

    close_wait_ms: int = 3_000
    """How long the peer may take to read our `close` before the socket goes, and what is unsent with it."""

    refusal_pause_ms: int = 30
    """Between a refusal's attach and its detach for clients that need it: a few turns of their loop."""

    deleted_pause_ms: int = 1_000
    """Between the deletion of an entity and the detach of its receivers, in which a drain is answered: .NET drains when
    it closes a receiver, and a detach that crosses the drain leaves it waiting for a minute. With 100 ms one of 120
    receivers waited so where two processors had twelve processes to run: the client read the answer to its deletion
    140 ms late. The service takes a while, too; how long is not known."""

    ignored_bytes_max: int = 256 * KIB
    """What is read and thrown away behind our own close; with more we stop reading from the socket."""

    stop_wait_ms: int = 1_000
    """How long connections have to end when the server stops."""

    slice_us: int = 2_000
    """How long a connection works before the others get their turn (microseconds)."""

    turn_us: int = 4_000
    """How long all known connections together work in one turn of the event loop: some slices, so that few turns are
    needed, and little beside the 300 ms that a client may be held up by others."""

    strangers_turn_us: int = 2_000
    """How long all strangers together work in one turn, besides. A stranger is a client that must show a token or a key
    and has not yet shown a valid one."""

    alone_us: int = 1_000
    """A client is alone if so long nobody else was heard: its requests are executed, and answered, before the loop
    turns (microseconds). Less, and two that take turns share no batch; more, and one that is alone waits for others
    that do not come. A batch takes about a tenth of it."""

    chunk_bytes_max: int = 256 * KIB
    """Input that is handled in one go; the end of a slice is checked after each. It is less for input that costs
    much (`long_go_us`)."""

    portion_frames: int = 16
    """How many frames a connection handles in its first go, with as many KiB; up to `FRAMES_MAX` later."""

    short_go_us: int = 2_000
    """A go that took less doubles the next one, so that a full run of small messages stays one go. Cut in halves, a run
    costs a sender to 16 stores 1.08 of what 1c8d436 took, and a receiver 1.08, against 1.05 and 0.95
    (`bench/compare.py`). With more, a go of costly frames grows to twice as much before it is cut."""

    long_go_us: int = 4_000
    """A go that took longer quarters the next one: a full run of small messages takes one to three milliseconds."""

    stranger_chunk_bytes_max: int = 512
    """As `chunk_bytes_max`: half a dozen attaches, or refusals with their log lines."""

    stranger_links_max: int = 50
    """Links of a stranger, those that only we have closed among them: a pair for `$cbs`, a coordinator, and what it
    attaches too early."""

    stranger_sessions_max: int = 50
    """AMQP sessions of a stranger."""

    stranger_attach_bytes_max: int = 4 * KIB
    """The attach of a stranger: names, addresses, filters, properties."""

    heartbeat_interval_ms_min: int = 50
    """The shortest interval of heartbeats, however short the peer's idle time-out."""

    link_credit: int = 1_000
    """Credit of a client that sends; comes back only with outcomes [wire 4.1]."""

    request_credit: int = 100
    """Credit of a `$cbs` or `$management` requester."""

    request_bytes_max: int = 2 * MIB
    """The largest `$cbs` or `$management` request; schedule-message carries whole messages."""

    reply_bytes_max: int = MIB
    """The largest reply when the client doesn't name a smaller one [wire 7.2]."""

    large_replies_max: int = 8
    """Large replies that a node of a connection makes at a time: more than one, since a store may be slow."""

    unread_replies_bytes_max: int = 512 * KIB
    """Bytes that an AMQP session has yet to send until a large reply is made for it. Most have 256 KiB: the next one
    is there before the client has read the last."""

    session_wait_ms_max: int = 65_000
    """How long a receiver may wait for a message session, and how long it does when it doesn't say [wire 6.3]."""

    transactions_max: int = 5_000
    """Open transactions of the broker; each of them ends after two minutes at the latest."""

    transactions_per_connection_max: int = 500
    """Open transactions of one connection: one client must not use up the broker's."""

    unclaimed_transactions_per_connection_max: int = 10
    """The same for a connection without a valid claim; SDKs declare their first transaction before they put a token."""

    unclaimed_transactions_max: int = 2_500
    """A connection without a valid claim declares nothing while so many are open: the rest is for those with one."""

    claims_max: int = 1_000
    """Tokens for different entities that a connection may put; the service's number."""

    replies_max: int = 1_000
    """Replies of one requester that wait for its credit; with more its link is closed."""

    write_buffer_bytes_max: int = MIB
    """Bytes that the socket hasn't taken; above it we stop asking Proton for more and the broker for messages."""

    outgoing_bytes_max: int = 4 * MIB
    """Bytes of one AMQP session that Proton keeps for want of window, and the size of a receiver's slice of credit."""

    outgoing_slice_max: int = 1_000
    """Deliveries that the broker may hand to one link before it is asked again."""

    own_operations: bool = True
    """Whether `$management` answers operations that the service does not have (`emubus:…`). Without them the Spark
    source reads emubus as it reads the service."""
