"""What clients can ask for over AMQP, and what becomes of it: one row for each field, property, capability and filter.

The fields are those of the performatives, sources and targets of the standard [AMQP 2.7, 3.5.3, 3.5.4]; properties,
capabilities and filters are those that the SDKs back to 2017 write, read from what they send (`tests/sdk` over Python
7.14 and 7.15, JavaScript 7, Go and Java 7.17; the recordings in this folder for .NET) and from the sources of .NET 1 to
5, Java 1 to 3, JavaScript 1 and Python 0.50. `test_asked.py` asks for each of them. `python -m docs.generate.asked`
writes the page.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from emubus.codec.types import Array, Described, Int, Long, Symbol, Timestamp, Ubyte, Uint, Ulong, Ushort

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "open": (
        "container-id", "hostname", "max-frame-size", "channel-max", "idle-time-out", "outgoing-locales",
        "incoming-locales", "offered-capabilities", "desired-capabilities", "properties",
    ),
    "begin": (
        "remote-channel", "next-outgoing-id", "incoming-window", "outgoing-window", "handle-max",
        "offered-capabilities", "desired-capabilities", "properties",
    ),
    "attach": (
        "name", "handle", "role", "snd-settle-mode", "rcv-settle-mode", "source", "target", "unsettled",
        "incomplete-unsettled", "initial-delivery-count", "max-message-size", "offered-capabilities",
        "desired-capabilities", "properties",
    ),
    "source": (
        "address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties", "distribution-mode",
        "filter", "default-outcome", "outcomes", "capabilities",
    ),
    "target": (
        "address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties", "capabilities",
    ),
    "flow": (
        "next-incoming-id", "incoming-window", "next-outgoing-id", "outgoing-window", "handle", "delivery-count",
        "link-credit", "available", "drain", "echo", "properties",
    ),
    "transfer": (
        "handle", "delivery-id", "delivery-tag", "message-format", "settled", "more", "rcv-settle-mode", "state",
        "resume", "aborted", "batchable",
    ),
    "disposition": ("role", "first", "last", "settled", "state", "batchable"),
    "detach": ("handle", "closed", "error"),
    "end": ("error",),
    "close": ("error",),
}  # fmt: skip
CODES: Final = {
    "open": OPEN, "begin": BEGIN, "attach": ATTACH, "flow": FLOW, "transfer": TRANSFER, "disposition": DISPOSITION,
    "detach": DETACH, "end": END, "close": CLOSE,
}  # fmt: skip


class Treatment(StrEnum):
    """What becomes of what is asked for."""

    HONOURED = "honoured"
    """What the server says or does is another."""
    REFUSED = "refused"
    """With the condition in the row."""
    IGNORED = "ignored"
    """The server says and does the same as without it."""


HONOURED, REFUSED, IGNORED = Treatment


@dataclass(frozen=True, slots=True)
class Asked:
    """A row: `name` is asked for with `value` at `where` in the conversation `talk` (`test_asked.py`).

    `clients` are those that send it, "" if none is known to. `note` says what it does, or with which condition it is
    refused; `source` where that is known from, if not from [wire].
    """

    where: str
    name: str
    value: Any
    treatment: Treatment
    clients: str = ""
    note: str = ""
    talk: str = "plain"
    condition: str = ""

    @property
    def key(self) -> str:
        """Its place in a conversation."""
        return f"{self.where}.{self.name}"


ALL = "all"
CAPABILITIES: Final = Array(0xA3, (Symbol("x:nothing"),))
ERROR: Final = Described(Ulong(0x1D), [Symbol("amqp:internal-error"), "why", None])
TOKEN: Final = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
MAP: Final = {Symbol("x:nothing"): "value"}

PERFORMATIVES: Final = (
    # ---- open
    Asked("open", "container-id", "another", HONOURED, ALL, "names the client; for JMS the client id"),
    Asked("open", "hostname", "another.example", IGNORED, ALL, "one namespace answers to all names"),
    Asked("open", "max-frame-size", Uint(512), HONOURED, "Python, Java, Go, .NET", "messages are cut to it"),
    Asked("open", "channel-max", Ushort(3), HONOURED, "Python, Java", "the answer has the smaller one"),
    Asked("open", "idle-time-out", Uint(30_000), HONOURED, "JavaScript, Java, Go, .NET", "empty frames come"),
    Asked("open", "outgoing-locales", Array(0xA3, (Symbol("de-DE"),)), IGNORED),
    Asked("open", "incoming-locales", Array(0xA3, (Symbol("de-DE"),)), IGNORED, "", "texts are English"),
    Asked("open", "offered-capabilities", CAPABILITIES, IGNORED),
    Asked("open", "desired-capabilities", CAPABILITIES, IGNORED, "JMS", "the answer offers the own ones"),
    Asked("open", "properties.product", "other", HONOURED, ALL, "shown as the client's name"),
    Asked("open", "properties.version", "9", HONOURED, ALL, "shown as the client's name"),
    Asked("open", "properties.platform", "x", IGNORED, ALL),
    Asked("open", "properties.framework", "x", IGNORED, "Python, JavaScript, Java, Go, .NET"),
    Asked("open", "properties.user-agent", "x", IGNORED, "Python, JavaScript, Java, Go, .NET"),
    Asked(
        "open",
        "properties.com.microsoft:is-client-provider",
        True,
        REFUSED,
        "JMS 2.0",
        "on Standard",
        condition="amqp:not-implemented",
    ),
    # ---- begin
    Asked(
        "begin", "remote-channel", Ushort(7), REFUSED, "", "the server has begun none", condition="amqp:invalid-field"
    ),
    Asked("begin", "next-outgoing-id", Uint(5), HONOURED, ALL, "the server's count of transfers begins there"),
    Asked("begin", "incoming-window", Uint(1), IGNORED, ALL, "each flow states it again, and nothing comes before one"),
    Asked("begin", "outgoing-window", Uint(1), IGNORED, ALL, "Python counts deliveries there, not frames"),
    Asked("begin", "handle-max", Uint(7), IGNORED, "Python, Java, Go, .NET", "the server attaches no link of its own"),
    Asked("begin", "offered-capabilities", CAPABILITIES, IGNORED),
    Asked("begin", "desired-capabilities", CAPABILITIES, IGNORED),
    Asked("begin", "properties", MAP, IGNORED, ".NET"),
    # ---- attach of a receiver
    Asked("receiver", "name", "another", HONOURED, ALL, "the link's name"),
    Asked(
        "receiver",
        "handle",
        Uint(9),
        HONOURED,
        ALL,
        "the link's handle; the conversation goes on with another",
        condition="amqp:session:unattached-handle",
    ),
    Asked(
        "receiver", "role", False, HONOURED, ALL, "the client sends, to what is no entity", condition="amqp:not-found"
    ),
    Asked("receiver", "snd-settle-mode", Ubyte(1), HONOURED, ALL, "1 is receive-and-delete"),
    Asked("receiver", "rcv-settle-mode", Ubyte(0), HONOURED, ALL, "echoed"),
    Asked("receiver", "unsettled", {b"tag": None}, IGNORED, ".NET (null)", "links are not resumed: locks are"),
    Asked("receiver", "incomplete-unsettled", True, IGNORED, "Java (false)"),
    Asked(
        "receiver", "initial-delivery-count", Uint(7), IGNORED, "Python, JavaScript, Java, Go", "the server's counts"
    ),
    Asked("receiver", "max-message-size", Ulong(1_000), HONOURED, "Python", "echoed; responses of nodes keep to it"),
    Asked("receiver", "offered-capabilities", CAPABILITIES, IGNORED),
    Asked("receiver", "desired-capabilities", CAPABILITIES, IGNORED),
    Asked(
        "receiver",
        "properties.com.microsoft:receiver-name",
        "me",
        IGNORED,
        "Python, JavaScript, Java, Go",
        "the identifier of a receiver, for correlation",
    ),
    Asked("receiver", "properties.com.microsoft:entity-type", Int(0), IGNORED, "Java, .NET 1 to 5"),
    Asked("receiver", "properties.com.microsoft:timeout", Uint(1), IGNORED, ALL, "in a plain attach nothing waits"),
    Asked("receiver", "properties.com.microsoft:epoch", Long(1), IGNORED, "", "of Event Hubs"),
    Asked("receiver", "properties.com.microsoft:tracking-id", "t", IGNORED),
    Asked("receiver", "properties.com.microsoft:batch-flush-interval", Uint(20), IGNORED),
    Asked("receiver", "properties.x:unknown", "x", IGNORED),
    # ---- source of a receiver
    Asked("receiver.source", "address", "other", HONOURED, ALL, "the entity"),
    Asked("receiver.source", "durable", Uint(1), HONOURED, "Java (0), JMS", "echoed; on a topic a JMS subscription"),
    Asked("receiver.source", "expiry-policy", Symbol("never"), HONOURED, "Java, JMS", "echoed"),
    Asked("receiver.source", "timeout", Uint(60), HONOURED, "Java (0)", "echoed; a link has no life of its own"),
    Asked(
        "receiver.source",
        "dynamic",
        True,
        REFUSED,
        "Java (false), JMS",
        "on Standard",
        condition="amqp:not-implemented",
    ),
    Asked("receiver.source", "dynamic-node-properties", MAP, HONOURED, "JMS", "echoed"),
    Asked("receiver.source", "distribution-mode", Symbol("copy"), HONOURED, "JMS", "browses"),
    Asked("receiver.source", "filter.x:unknown", "x", REFUSED, "", "[wire 5.2]", condition="amqp:not-allowed"),
    Asked(
        "receiver.source",
        "filter.com.microsoft:message-receipts-filter",
        "x",
        REFUSED,
        "",
        "a constant of .NET that it does not send",
        condition="amqp:not-allowed",
    ),
    Asked(
        "receiver.source",
        "filter.com.microsoft:client-side-filter",
        "x",
        REFUSED,
        "",
        "a constant of .NET that it does not send",
        condition="amqp:not-allowed",
    ),
    Asked(
        "receiver.source",
        "filter.com.microsoft:session-filter",
        "a",
        REFUSED,
        ALL,
        "on an entity without sessions",
        condition="amqp:not-allowed",
    ),
    Asked(
        "receiver.source",
        "filter.com.microsoft:non-exclusive-session-filter",
        Described(Ulong(0x137000000E), ["a", None]),
        REFUSED,
        ".NET 7.21",
        "on Standard",
        condition="amqp:not-allowed",
    ),
    Asked(
        "receiver.source",
        "filter.jms-selector",
        Described(Ulong(0x468C00000004), "a = 1"),
        REFUSED,
        "JMS",
        "on Standard",
        condition="amqp:not-implemented",
    ),
    Asked(
        "receiver.source",
        "filter.no-local",
        Described(Ulong(0x468C00000003), []),
        IGNORED,
        "JMS",
        "not in force: left out of the answer",
    ),
    Asked(
        "receiver.source", "default-outcome", Described(Ulong(0x27), []), IGNORED, "JMS", "an outcome is always stated"
    ),
    Asked("receiver.source", "outcomes", Array(0xA3, (Symbol("amqp:accepted:list"),)), HONOURED, "JMS", "echoed"),
    Asked("receiver.source", "capabilities", Array(0xA3, (Symbol("queue"),)), HONOURED, "JMS", "echoed"),
    # ---- target of a receiver: the client's own
    Asked("receiver.target", "address", "mine", HONOURED, ALL, "echoed; of a node the reply-to"),
    Asked("receiver.target", "durable", Uint(1), HONOURED, "", "echoed"),
    Asked("receiver.target", "expiry-policy", Symbol("never"), HONOURED, "Java", "echoed"),
    Asked("receiver.target", "timeout", Uint(60), HONOURED, "", "echoed"),
    Asked("receiver.target", "dynamic", True, HONOURED, "", "echoed"),
    Asked("receiver.target", "dynamic-node-properties", MAP, HONOURED, "", "echoed"),
    Asked("receiver.target", "capabilities", CAPABILITIES, HONOURED, "", "echoed"),
    # ---- attach of a sender
    Asked("sender", "name", "another", HONOURED, ALL, "the link's name"),
    Asked(
        "sender",
        "handle",
        Uint(9),
        HONOURED,
        ALL,
        "the link's handle; the conversation goes on with another",
        condition="amqp:session:unattached-handle",
    ),
    Asked(
        "sender", "role", True, HONOURED, ALL, "the client receives, from what is no entity", condition="amqp:not-found"
    ),
    Asked("sender", "snd-settle-mode", Ubyte(1), HONOURED, ALL, "echoed; each transfer says it itself"),
    Asked("sender", "rcv-settle-mode", Ubyte(1), HONOURED, ALL, "echoed; outcomes are settled at once"),
    Asked("sender", "unsettled", {b"tag": None}, IGNORED, "", "links are not resumed"),
    Asked("sender", "incomplete-unsettled", True, IGNORED, "Java (false)"),
    Asked("sender", "initial-delivery-count", Uint(7), HONOURED, ALL, "credit counts from there"),
    Asked("sender", "max-message-size", Ulong(1_000), IGNORED, "Python", "the answer has the entity's"),
    Asked("sender", "offered-capabilities", CAPABILITIES, IGNORED),
    Asked("sender", "desired-capabilities", CAPABILITIES, IGNORED, "JMS"),
    Asked(
        "sender",
        "properties.com.microsoft:transfer-destination-address",
        "other",
        HONOURED,
        ".NET, Java",
        "messages go there through the entity",
    ),
    Asked("sender", "properties.com.microsoft:timeout", Uint(1), IGNORED, ".NET, Java", "nothing waits"),
    Asked("sender", "properties.com.microsoft:entity-type", Int(0), IGNORED, "Java, .NET 1 to 5"),
    Asked("sender", "properties.x:unknown", "x", IGNORED),
    Asked("sender.source", "address", "mine", HONOURED, ALL, "echoed"),
    Asked("sender.source", "durable", Uint(1), HONOURED, "", "echoed"),
    Asked("sender.source", "expiry-policy", Symbol("never"), HONOURED, "Java", "echoed"),
    Asked("sender.source", "timeout", Uint(60), HONOURED, "", "echoed"),
    Asked("sender.source", "dynamic", True, HONOURED, "", "echoed"),
    Asked("sender.source", "dynamic-node-properties", MAP, HONOURED, "", "echoed"),
    Asked("sender.source", "distribution-mode", Symbol("move"), HONOURED, "", "echoed"),
    Asked("sender.source", "filter.x:unknown", "x", IGNORED, "", "it is the client's own"),
    Asked("sender.source", "default-outcome", Described(Ulong(0x27), []), IGNORED),
    Asked("sender.source", "outcomes", Array(0xA3, (Symbol("amqp:accepted:list"),)), HONOURED, "JMS", "echoed"),
    Asked("sender.source", "capabilities", CAPABILITIES, HONOURED, "", "echoed"),
    Asked("sender.target", "address", "other", HONOURED, ALL, "the entity"),
    Asked("sender.target", "durable", Uint(1), HONOURED, "Java (0), JMS", "echoed"),
    Asked("sender.target", "expiry-policy", Symbol("never"), HONOURED, "Java, JMS", "echoed"),
    Asked("sender.target", "timeout", Uint(60), HONOURED, "Java (0)", "echoed"),
    Asked(
        "sender.target", "dynamic", True, REFUSED, "Java (false), JMS", "on Standard", condition="amqp:not-implemented"
    ),
    Asked("sender.target", "dynamic-node-properties", MAP, HONOURED, "JMS", "echoed"),
    Asked("sender.target", "capabilities", Array(0xA3, (Symbol("queue"),)), HONOURED, "JMS", "echoed"),
    # ---- flow
    Asked("flow", "next-incoming-id", Uint(2**32 - 5_000), HONOURED, ALL, "the session's window counts from there"),
    Asked("flow", "incoming-window", Uint(0), HONOURED, ALL, "no transfers come"),
    Asked("flow", "next-outgoing-id", Uint(9), IGNORED, ALL, "Python counts deliveries there, not frames"),
    Asked("flow", "outgoing-window", Uint(0), IGNORED, ALL),
    Asked("flow", "handle", Uint(7), REFUSED, ALL, "of no link", condition="amqp:session:unattached-handle"),
    Asked("flow", "delivery-count", Uint(2**32 - 1), HONOURED, ALL, "credit counts from there"),
    Asked("flow", "link-credit", Uint(1), HONOURED, ALL, "so many messages come"),
    Asked("flow", "available", Uint(9), IGNORED, ".NET"),
    Asked("flow", "drain", True, HONOURED, "Python, JavaScript, .NET", "answered"),
    Asked("flow", "echo", True, HONOURED, "", "answered"),
    Asked("flow", "properties", MAP, IGNORED),
    # ---- transfer
    Asked("transfer", "handle", Uint(7), REFUSED, ALL, "of no link", condition="amqp:session:unattached-handle"),
    Asked("transfer", "delivery-id", Uint(1), REFUSED, ALL, "not the next one", condition="amqp:invalid-field"),
    Asked("transfer", "delivery-tag", b"another", IGNORED, ALL, "tags of clients are opaque"),
    Asked(
        "transfer",
        "message-format",
        Uint(0x80013700),
        HONOURED,
        "Python, JavaScript, Java, Go, .NET",
        "a batch, which this is not",
        condition="amqp:not-allowed",
    ),
    Asked("transfer", "settled", True, HONOURED, "JMS", "stored without an answer"),
    Asked(
        "transfer",
        "more",
        True,
        HONOURED,
        ALL,
        "the rest is waited for, and is not what comes",
        condition="amqp:invalid-field",
    ),
    Asked("transfer", "rcv-settle-mode", Ubyte(1), IGNORED),
    Asked(
        "transfer",
        "state",
        Described(Ulong(0x34), [b"none", None]),
        HONOURED,
        ".NET, Java, JMS",
        "of a transaction, which is none here",
        condition="amqp:transaction:unknown-id",
    ),
    Asked("transfer", "resume", True, IGNORED, "", "deliveries are not resumed"),
    Asked("transfer", "aborted", True, HONOURED, "", "the message is none"),
    Asked("transfer", "batchable", True, IGNORED, ".NET", "outcomes that come together are merged always"),
    # ---- disposition
    Asked("disposition", "role", False, HONOURED, ALL, "of a sender: it means nothing here"),
    Asked("disposition", "first", Uint(1), HONOURED, ALL, "the delivery"),
    Asked("disposition", "last", Uint(1), HONOURED, "JavaScript, Java, Go, .NET", "a range"),
    Asked("disposition", "settled", True, HONOURED, ALL, "no answer"),
    Asked("disposition", "state", Described(Ulong(0x26), []), HONOURED, ALL, "the outcome"),
    Asked("disposition", "batchable", True, IGNORED, ".NET", "outcomes that come together are merged always"),
    # ---- the ends
    Asked("detach", "handle", Uint(7), REFUSED, ALL, "of no link", condition="amqp:session:unattached-handle"),
    Asked("detach", "closed", False, HONOURED, "JMS", "the answer does not close either"),
    Asked("detach", "error", ERROR, IGNORED, "Python, .NET"),
    Asked("end", "error", ERROR, IGNORED, "Go, .NET"),
    Asked("close", "error", ERROR, IGNORED, "JavaScript, Go, .NET"),
)

# A request's application properties are at "request", the map of its body at "body".
_ENDS: Final = 253_402_300_799_999
NODES: Final = (
    *(
        Asked("request", name, value, treatment, clients, note, talk="com.microsoft:peek-message", condition=condition)
        for name, value, treatment, clients, note, condition in (
            (
                "operation",
                "com.microsoft:nothing",
                REFUSED,
                ALL,
                "no operation",
                "amqp:not-implemented",
            ),
            ("associated-link-name", "r1", IGNORED, "Python, Java, Go, .NET", "see renew-session-lock", ""),
            ("com.microsoft:server-timeout", Uint(1), IGNORED, ALL, "nothing takes that long", ""),
            ("server-timeout", Uint(1), IGNORED, "Go", "nothing takes that long", ""),
            ("com.microsoft:tracking-id", "t", HONOURED, "Java, .NET", "comes back", ""),
            ("type", "entity-mgmt", IGNORED, "Python", "", ""),
            ("name", "q", IGNORED, "", "", ""),
            ("locales", "de-DE", IGNORED, "", "texts are English", ""),
            ("security_token", "t", IGNORED, "", "of Event Hubs", ""),
        )
    ),
    Asked("body", "from-sequence-number", Long(2), HONOURED, ALL, "", talk="com.microsoft:peek-message"),
    Asked("body", "message-count", Int(1), HONOURED, ALL, "", talk="com.microsoft:peek-message"),
    Asked("body", "session-id", "nobody", HONOURED, ALL, "messages of that session", talk="com.microsoft:peek-message"),
    Asked("body", "omit-message-body", True, IGNORED, "", "", talk="com.microsoft:peek-message"),
    Asked(
        "body",
        "lock-tokens",
        Array(0x98, (TOKEN,)),
        REFUSED,
        ALL,
        "of no message",
        talk="com.microsoft:renew-lock",
        condition="com.microsoft:message-lock-lost",
    ),
    Asked("body", "session-id", "a", IGNORED, "", "", talk="com.microsoft:renew-lock"),
    Asked(
        "body",
        "messages[].message",
        b"\x00",
        REFUSED,
        ALL,
        "the message, which this is none",
        talk="com.microsoft:schedule-message",
        condition="amqp:decode-error",
    ),
    Asked(
        "body",
        "messages[].message-id",
        "other",
        IGNORED,
        ALL,
        "the message has it",
        talk="com.microsoft:schedule-message",
    ),
    Asked(
        "body",
        "messages[].session-id",
        "other",
        IGNORED,
        ALL,
        "the message has it",
        talk="com.microsoft:schedule-message",
    ),
    Asked(
        "body",
        "messages[].partition-key",
        "other",
        IGNORED,
        ALL,
        "the message has it",
        talk="com.microsoft:schedule-message",
    ),
    Asked(
        "body",
        "messages[].via-partition-key",
        "other",
        IGNORED,
        ALL,
        "the message has it",
        talk="com.microsoft:schedule-message",
    ),
    Asked(
        "body",
        "sequence-numbers",
        Array(0x81, (Long(99),)),
        REFUSED,
        ALL,
        "of no message",
        talk="com.microsoft:cancel-scheduled-message",
        condition="com.microsoft:message-not-found",
    ),
    Asked(
        "body",
        "sequence-numbers",
        Array(0x81, (Long(99),)),
        REFUSED,
        ALL,
        "of no message",
        talk="com.microsoft:receive-by-sequence-number",
        condition="com.microsoft:message-not-found",
    ),
    Asked(
        "body",
        "receiver-settle-mode",
        Uint(0),
        HONOURED,
        ALL,
        "0 deletes",
        talk="com.microsoft:receive-by-sequence-number",
    ),
    Asked(
        "body",
        "session-id",
        "a",
        IGNORED,
        ALL,
        "of an entity without sessions",
        talk="com.microsoft:receive-by-sequence-number",
    ),
    Asked("body", "disposition-status", "suspended", HONOURED, ALL, "", talk="com.microsoft:update-disposition"),
    Asked(
        "body",
        "lock-tokens",
        Array(0x98, (TOKEN,)),
        REFUSED,
        ALL,
        "of no message",
        talk="com.microsoft:update-disposition",
        condition="com.microsoft:message-lock-lost",
    ),
    Asked(
        "body",
        "session-id",
        "a",
        IGNORED,
        ALL,
        "the token says it; see renew-session-lock",
        talk="com.microsoft:update-disposition",
    ),
    Asked(
        "body",
        "deadletter-reason",
        "why",
        IGNORED,
        ALL,
        "of a completed message",
        talk="com.microsoft:update-disposition",
    ),
    Asked("body", "deadletter-reason", "why", HONOURED, ALL, "of a dead letter", talk="a dead letter"),
    Asked("body", "deadletter-description", "how", HONOURED, ALL, "of a dead letter", talk="a dead letter"),
    Asked("body", "properties-to-modify", {"key": "value"}, HONOURED, ALL, "", talk="a dead letter"),
    Asked(
        "body",
        "message-count",
        Int(1),
        HONOURED,
        ".NET, JavaScript, Java, Python",
        "",
        talk="com.microsoft:batch-delete-messages",
    ),
    Asked(
        "body",
        "enqueued-time-utc",
        Timestamp(1),
        HONOURED,
        ".NET, JavaScript, Java, Python",
        "",
        talk="com.microsoft:batch-delete-messages",
        condition="com.microsoft:message-not-found",
    ),
    Asked(
        "body",
        "session-id",
        "nobody",
        HONOURED,
        ".NET, JavaScript",
        "messages of that session",
        talk="com.microsoft:batch-delete-messages",
        condition="com.microsoft:message-not-found",
    ),
    Asked(
        "request",
        "associated-link-name",
        "lost",
        REFUSED,
        "Python, Java, Go, .NET",
        "of a link that has lost its message session; so for all requests with session-id [wire 6.4]",
        talk="com.microsoft:renew-session-lock",
        condition="com.microsoft:session-lock-lost",
    ),
    Asked(
        "body",
        "session-id",
        "nobody",
        REFUSED,
        ALL,
        "not held",
        talk="com.microsoft:renew-session-lock",
        condition="com.microsoft:session-lock-lost",
    ),
    Asked(
        "body",
        "session-id",
        "nobody",
        REFUSED,
        ALL,
        "not held",
        talk="com.microsoft:set-session-state",
        condition="com.microsoft:session-lock-lost",
    ),
    Asked("body", "session-state", None, HONOURED, ALL, "null clears it", talk="com.microsoft:set-session-state"),
    Asked(
        "body",
        "session-id",
        "nobody",
        REFUSED,
        ALL,
        "not held",
        talk="com.microsoft:get-session-state",
        condition="com.microsoft:session-lock-lost",
    ),
    Asked(
        "body",
        "last-updated-time",
        Timestamp(1),
        HONOURED,
        ALL,
        "sessions whose state changed since",
        talk="com.microsoft:get-message-sessions",
    ),
    Asked("body", "skip", Int(1), HONOURED, ALL, "", talk="com.microsoft:get-message-sessions"),
    Asked("body", "top", Int(1), HONOURED, ALL, "", talk="com.microsoft:get-message-sessions"),
    Asked(
        "body",
        "last-session-id",
        "a",
        IGNORED,
        "Java 1 to 3",
        "it sends skip, too, which says the same",
        talk="com.microsoft:get-message-sessions",
    ),
    Asked("body", "rule-name", "other", HONOURED, ".NET, JavaScript, Java", "", talk="com.microsoft:add-rule"),
    Asked(
        "body",
        "rule-description.sql-filter",
        {"expression": "b = 2"},
        HONOURED,
        ".NET, JavaScript, Java",
        "",
        talk="com.microsoft:add-rule",
    ),
    Asked(
        "body",
        "rule-description.sql-rule-action",
        {"expression": "SET a = 1"},
        HONOURED,
        ".NET, JavaScript, Java",
        "",
        talk="com.microsoft:add-rule",
    ),
    Asked(
        "body", "rule-description.rule-name", "other", IGNORED, "", "the name is outside", talk="com.microsoft:add-rule"
    ),
    Asked(
        "body",
        "rule-description.rule-created-at",
        Timestamp(1),
        IGNORED,
        "",
        "the server's",
        talk="com.microsoft:add-rule",
    ),
    Asked(
        "body",
        "rule-name",
        "other",
        REFUSED,
        ".NET, JavaScript, Java",
        "there is none",
        talk="com.microsoft:remove-rule",
        condition="amqp:not-found",
    ),
    Asked("body", "top", Int(1), HONOURED, ".NET, JavaScript, Java", "", talk="com.microsoft:enumerate-rules"),
    Asked("body", "skip", Int(1), HONOURED, ".NET, JavaScript, Java", "", talk="com.microsoft:enumerate-rules"),
    # ---- claims
    Asked("request", "operation", "delete-token", REFUSED, "", "", talk="$cbs", condition="amqp:not-implemented"),
    Asked("request", "type", "jwt", IGNORED, ALL, "a token says itself what it is [wire 2.2]", talk="$cbs"),
    Asked(
        "request",
        "name",
        "sb://h/missing",
        REFUSED,
        ALL,
        "the audience, of no entity",
        talk="$cbs",
        condition="amqp:not-found",
    ),
    Asked("request", "expiration", Timestamp(1), IGNORED, ALL, "the token has its own", talk="$cbs"),
    Asked("request", "com.microsoft:server-timeout", Uint(1), IGNORED, "", "", talk="$cbs"),
    # ---- transactions
    Asked(
        "coordinator",
        "capabilities",
        Array(0xA3, (Symbol("amqp:local-transactions"),)),
        HONOURED,
        ".NET, Java, JMS",
        "echoed",
        talk="transaction",
    ),
    Asked(
        "declare",
        "global-id",
        b"g",
        REFUSED,
        "",
        "transactions are local",
        talk="transaction",
        condition="amqp:not-implemented",
    ),
    Asked(
        "discharge",
        "txn-id",
        b"none",
        REFUSED,
        ".NET, Java, JMS",
        "of no transaction",
        talk="transaction",
        condition="amqp:transaction:unknown-id",
    ),
    Asked("discharge", "fail", True, HONOURED, ".NET, Java, JMS", "rolls back", talk="transaction"),
    # ---- message sessions
    Asked("receiver.source", "filter.com.microsoft:session-filter", "b", HONOURED, ALL, "the session", talk="session"),
    Asked(
        "receiver.source",
        "filter.com.microsoft:session-filter",
        Described(Ulong(0x137000000C), "b"),
        HONOURED,
        "Go",
        "the session",
        talk="session",
    ),
    Asked(
        "receiver.source",
        "filter.com.microsoft:session-filter",
        5,
        REFUSED,
        "",
        "no text",
        talk="session",
        condition="amqp:invalid-field",
    ),
    Asked("receiver.source", "filter.x:unknown", "x", REFUSED, "", "", talk="session", condition="amqp:not-allowed"),
    Asked(
        "receiver",
        "properties.com.microsoft:timeout",
        Uint(10_000),
        HONOURED,
        ALL,
        "how long it waits",
        talk="next session",
    ),
    Asked(
        "receiver",
        "properties.com.microsoft:receiver-name",
        "me",
        IGNORED,
        "Python, JavaScript, Java, Go",
        "",
        talk="next session",
    ),
    Asked(
        "receiver.source",
        "filter.com.microsoft:non-exclusive-session-filter",
        Described(Ulong(0x137000000E), ["b", None]),
        HONOURED,
        ".NET 7.21",
        "the session",
        talk="shared session",
    ),
    Asked(
        "receiver.source",
        "filter.com.microsoft:non-exclusive-session-filter",
        Described(Ulong(0x137000000E), ["a", TOKEN]),
        HONOURED,
        ".NET 7.21",
        "the token of its lock",
        talk="shared session",
    ),
)
PREMIUM: Final = (
    Asked(
        "open",
        "properties.com.microsoft:is-client-provider",
        True,
        IGNORED,
        "JMS 2.0",
        "it may connect; its paths show what it wants",
        talk="Premium",
    ),
    Asked(
        "receiver.source",
        "filter.jms-selector",
        Described(Ulong(0x468C00000004), "k = 1"),
        HONOURED,
        "JMS",
        "messages that match come",
        talk="Premium",
    ),
    Asked(
        "receiver.source",
        "filter.jms-selector",
        Described(Ulong(0x468C00000004), "k = "),
        REFUSED,
        "JMS",
        "no selector",
        talk="Premium",
        condition="amqp:invalid-field",
    ),
    Asked(
        "receiver.source",
        "filter.no-local",
        Described(Ulong(0x468C00000003), []),
        IGNORED,
        "JMS",
        "not in force: left out of the answer",
        talk="Premium",
    ),
    Asked("receiver.source", "filter.x:unknown", "x", REFUSED, "", "", talk="Premium", condition="amqp:not-allowed"),
    Asked(
        "sender.target",
        "dynamic",
        True,
        REFUSED,
        "JMS",
        "without the capability temporary-queue or temporary-topic",
        talk="Premium",
        condition="amqp:not-implemented",
    ),
    Asked("receiver.source", "dynamic", True, REFUSED, "", "", talk="Premium", condition="amqp:not-implemented"),
    Asked(
        "receiver.source",
        "filter.com.microsoft:non-exclusive-session-filter",
        Described(Ulong(0x137000000E), ["a", None]),
        REFUSED,
        ".NET 7.21",
        "on an entity without sessions",
        talk="Premium",
        condition="amqp:not-allowed",
    ),
)
ROWS: Final = (*PERFORMATIVES, *PREMIUM, *NODES)
