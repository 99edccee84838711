"""Each field, property, capability and filter that clients ask with is honoured, refused or ignored as its row says.

A conversation is held twice, without and with what a row asks for. What is honoured changes what the server says or
does; what is ignored changes neither; what is refused is answered with the row's condition.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import pytest

from docs.generate.asked import PAGE, page
from emubus.amqp.nodes import operations_messages
from emubus.amqp.nodes.management import OPERATIONS
from emubus.broker.access import Access, sign
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.keys import SharedKey
from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.broker.model.profiles import Profile
from emubus.broker.service_errors import jms_not_supported
from emubus.codec.encode import encode, encode_described
from emubus.codec.frames import AMQP_HEADER
from emubus.codec.types import Array, Described, Int, Long, Symbol, Timestamp, Ubyte, Uint, Ulong

from ..broker.namespace import _brokers_stop, brokers_stop, open_broker
from .asked import CODES, FIELDS, ROWS, TOKEN, Asked, Treatment
from .asking import sections
from .fakes import FakeBroker
from .wire import Frame, Wire, accepted, modified

__all__ = ["_brokers_stop", "brokers_stop"]

START: Final = 1_767_225_600_000
SOURCE, TARGET, COORDINATOR = Ulong(0x28), Ulong(0x29), Ulong(0x30)
TOKEN_BYTES = 16
DECLARED: Final = 0x33
NO_CLAIM: Final = "amqp:unauthorized-access"  # what follows a refused token
STEP_MS, STEPS = 10_000, 8
ENTITIES = (
    QueueDescription("q"),
    QueueDescription("other"),
    QueueDescription("s", requires_session=True),
)


def message(text: str, *, size: int = 0, session: str | None = None) -> bytes:
    return encode_described(Ulong(0x73), encode([text, *([None] * 9), session])) + encode_described(
        Ulong(0x77), encode(text + "." * size)
    )


class Talk:
    """A client that asks for one thing more, or another, than its conversation does, and writes down what it gets."""

    def __init__(self, broker: Broker, clock: Clock, row: Asked | None, access: Access | None = None) -> None:
        self.broker = broker
        self.clock = clock
        self.row = row
        self.heard: list[object] = []
        self._tokens: list[bytes] = []
        self.wire = Wire(
            broker=cast("FakeBroker", broker),
            access=access or Access(verify=False),
            clock=clock,
            jms_refusal=None if broker.limits.jms else jms_not_supported(partitioned=False),
        )
        self.wire.write(AMQP_HEADER)

    # ---- asking

    def fields(self, where: str, given: Mapping[str, object]) -> dict[str, Any]:
        """What is said at a place, with what the row has there."""
        row = self.row
        found = dict(given)
        if row is not None and row.where == where:
            outer, _, name = row.name.partition(".")
            if name and outer in ("properties", "filter"):
                kept = cast("dict[Symbol, object]", found.get(outer) or {})
                found[outer] = {**kept, Symbol(name): row.value}
            else:
                found[row.name] = row.value
        return found

    def performative(self, kind: str, where: str, payload: bytes = b"", **given: object) -> dict[str, Any]:
        """Write one; returns its fields."""
        named = {name.replace("_", "-"): value for name, value in given.items()}
        fields = self.fields(where, named)
        values = [fields.get(name) for name in FIELDS[kind]]
        while values and values[-1] is None:
            values.pop()
        self.wire.send(0, CODES[kind], values, payload)
        return fields

    def terminus(self, descriptor: Ulong, where: str, **given: object) -> Described:
        """A source or target."""
        fields = self.fields(where, given)
        names = FIELDS["source" if descriptor == SOURCE else "target"]
        return Described(descriptor, [fields.get(name) for name in names])

    def open(self) -> None:
        """An open; the begin of `Wire` may follow, which is not part of the conversation."""
        properties = {Symbol("product"): "p", Symbol("version"): "1"}
        size = Uint(65_536)
        self.performative("open", "open", container_id="me", hostname="h", max_frame_size=size, properties=properties)

    def sender(self, address: str = "q", where: str = "sender", handle: int = 0) -> dict[str, Any]:
        source = self.terminus(SOURCE, f"{where}.source", address="client")
        target = self.terminus(TARGET, f"{where}.target", address=address)
        return self.performative(
            "attach", where, name=f"s{handle}", handle=Uint(handle), role=False, snd_settle_mode=Ubyte(0),
            source=source, target=target, initial_delivery_count=Uint(0),
        )  # fmt: skip

    def receiver(self, address: str = "q", handle: int = 1, wanted: object = None) -> dict[str, Any]:
        source = self.terminus(SOURCE, "receiver.source", address=address, filter=wanted)
        target = self.terminus(TARGET, "receiver.target", address="client")
        return self.performative(
            "attach", "receiver", name=f"r{handle}", handle=Uint(handle), role=True, snd_settle_mode=Ubyte(0),
            rcv_settle_mode=Ubyte(1), source=source, target=target,
        )  # fmt: skip

    def flow(self, handle: object, credit: int, where: str = "flow") -> None:
        window = Uint(5_000)
        self.performative(
            "flow", where, next_incoming_id=Uint(0), incoming_window=window, next_outgoing_id=Uint(2),
            outgoing_window=window, handle=handle, delivery_count=Uint(0), link_credit=Uint(credit),
        )  # fmt: skip

    async def put(self, queue: str, payload: bytes) -> None:
        """Send a message over a link of its own; not part of the conversation."""
        self.wire.attach_sender(queue, 30)
        self.wire.write(self.wire.transfer(payload, handle=30))
        await self.wire.turn(12)
        self.wire.send(0, CODES["detach"], [Uint(30), True])
        await self.wire.turn(2)

    async def ask(self, address: str, properties: dict[str, object], body: object) -> None:
        """A request to a node, and its answer."""
        self.wire.attach_receiver(address, 21, target="mine", credit=10, name="replies")
        self.wire.attach_sender(address, 20, name="requests")
        if isinstance(body, dict):
            body = self._body(body)
        data = (
            encode_described(Ulong(0x73), encode(["id"]))
            + encode_described(Ulong(0x74), encode(self.fields("request", properties)))
            + encode_described(Ulong(0x77), encode(body))
        )
        self.wire.write(self.wire.transfer(data, handle=20))
        for frame in await self.wire.turn(12):
            if frame.code == CODES["transfer"]:
                found = sections(frame.payload)
                answered = found[0x74]
                condition = answered.get("errorCondition")
                status = answered.get("statusCode", answered.get("status-code"))
                body = self._plain(found[0x77])
                self.heard.append(("answer", None if condition is None else str(condition), int(status)))
                self.heard.append((sorted(map(str, answered)), body))

    def _body(self, given: dict[str, Any]) -> dict[str, Any]:
        """The map of a request with what the row has in it: outside, or in a map or list of maps inside."""
        row = self.row
        if row is None or row.where != "body":
            return given
        outer, inner = re.fullmatch(r"([^.\[]+)(?:\[\])?(?:\.(.+))?", row.name).groups()  # type: ignore[union-attr]
        if inner is None:
            return {**given, outer: row.value}
        within = given[outer]
        if isinstance(within, list):
            return {**given, outer: [{**within[0], inner: row.value}]}
        return {**given, outer: {**within, inner: row.value}}

    # ---- what comes

    async def hear(self) -> list[Frame]:
        """Write down what the server says until it has no more to say."""
        return self.note(await self.wire.turn(12))

    def note(self, frames: list[Frame]) -> list[Frame]:
        """Write frames of the server down."""
        for frame in frames:
            if frame.code == CODES["transfer"] and isinstance(frame.get(2), bytes) and len(frame.get(2)) == TOKEN_BYTES:
                self._tokens.append(frame.get(2))
            payload = frame.payload
            for token in self._tokens:
                payload = payload.replace(token, b"T" * TOKEN_BYTES).replace(uuid.UUID(bytes_le=token).bytes, b"T" * 16)
            self.heard.append((frame.code, self._plain(frame.fields), _untracked(payload)))
        return frames

    async def step(self) -> None:
        """Let ten seconds pass."""
        self.clock.advance(STEP_MS)
        self.heard.append("ten seconds")
        await self.hear()

    def _plain(self, value: object) -> object:
        if isinstance(value, Described):
            return value.descriptor, self._plain(value.value)
        if isinstance(value, Array):
            return self._plain(list(value.values))
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        if isinstance(value, dict):
            inner = value.get("message")
            read = {"message": sections(inner)} if isinstance(inner, bytes) else {}
            return {key: self._plain(each) for key, each in {**value, **read}.items()}
        if isinstance(value, uuid.UUID) and value != TOKEN:
            return "uuid"
        if type(value) is bytes and len(value) == TOKEN_BYTES:
            return "token"
        return _untracked(value.encode()) if isinstance(value, str) else value

    async def end(self) -> list[object]:
        """What was heard, and what is left."""
        for queue in ("q", "q/$DeadLetterQueue", "other", "s"):
            for payload in await self.broker.messages.peek(queue, 0, 100, 1 << 20):
                self.heard.append((queue, payload))
        for session in ("a", "b"):
            with suppress(BrokerError):  # it is not held
                self.heard.append((session, await self.broker.sessions.state("s", session)))
        client = self.wire.server.context.client
        self.heard.append([client.get(name) for name in ("container", "product", "version")])
        self.heard.append(self.wire.socket.closed)
        self.wire.lose()
        return self.heard


def _untracked(text: bytes) -> bytes:
    return re.sub(rb"(TrackingId:)[^\xa0-\xff]*?(Timestamp:\S*)", rb"\1", text)


@asynccontextmanager
async def opened(
    row: Asked | None, access: Access | None = None, profile: Profile = Profile.STANDARD
) -> AsyncIterator[Talk]:
    clock = Clock(start_at=START, manual=True)
    broker = open_broker(*ENTITIES, clock=clock, profile=profile)
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(SubscriptionDescription("t", "sub"))
    for number in (1, 2):
        broker.administration.add_rule("t/Subscriptions/sub", RuleDescription(f"r{number}", SqlFilter("a = 1")))
    yield Talk(broker, clock, row, access)
    await broker.stop()
    clock.close()


# ---- the conversations


async def plain(row: Asked | None, profile: Profile = Profile.STANDARD) -> list[object]:
    """Two messages are sent, received, and one is completed; twenty seconds pass; link, session and connection end."""
    async with opened(row, profile=profile) as talk:
        talk.open()
        window = Uint(5_000)
        talk.performative("begin", "begin", next_outgoing_id=Uint(0), incoming_window=window, outgoing_window=window)
        await talk.hear()
        talk.sender()
        await talk.hear()
        for number, where in ((0, "transfer"), (1, "second transfer")):
            talk.performative(
                "transfer", where, message(f"m{number}", size=1_500), handle=Uint(0),
                delivery_id=Uint(number), delivery_tag=b"%d" % number, message_format=Uint(0), settled=False,
            )  # fmt: skip
            await talk.hear()
        talk.receiver()
        await talk.hear()
        talk.flow(Uint(1), 2)
        await talk.hear()
        talk.performative("disposition", "disposition", role=True, first=Uint(0), settled=False, state=accepted)
        await talk.hear()
        await talk.step()
        await talk.step()
        talk.performative("detach", "detach", handle=Uint(1), closed=True)
        await talk.hear()
        talk.performative("end", "end")
        await talk.hear()
        talk.performative("close", "close")
        await talk.hear()
        return await talk.end()


async def in_session(
    row: Asked | None, wanted: Mapping[Symbol, object], profile: Profile = Profile.STANDARD
) -> list[object]:
    """A session is accepted, and what it has received; then eighty seconds pass."""
    async with opened(row, profile=profile) as talk:
        talk.open()
        talk.wire.begin(0)
        await talk.hear()
        for number, session in enumerate(("a", "b")):
            await talk.put("s", message(f"m{number}", session=session))
        talk.receiver("s", wanted=dict(wanted))
        talk.flow(Uint(1), 2)
        await talk.hear()
        for _ in range(STEPS):
            await talk.step()
        return await talk.end()


async def next_session(row: Asked | None) -> list[object]:
    """A session is waited for, and none comes."""
    async with opened(row) as talk:
        talk.open()
        talk.wire.begin(0)
        talk.receiver("s", wanted={SESSION: None})
        for _ in range(STEPS):
            await talk.step()
        return await talk.end()


async def transaction(row: Asked | None) -> list[object]:
    """A transaction is declared, a message sent in it, and it is discharged."""
    async with opened(row) as talk:
        talk.open()
        talk.wire.begin(0)
        talk.wire.attach_sender("q", 0)
        coordinator = talk.fields("coordinator", {})
        target = Described(COORDINATOR, [coordinator.get("capabilities")])
        talk.note(talk.wire.attach_sender(handle=1, target=target))
        await talk.hear()
        declared = talk.fields("declare", {})
        command = Described(Ulong(0x31), [declared.get("global-id")])
        talk.wire.write(talk.wire.transfer(encode_described(Ulong(0x77), encode(command)), handle=1))
        (outcome,) = [each for each in await talk.hear() if each.code == CODES["disposition"]]
        if outcome.get(4).descriptor != DECLARED:
            return await talk.end()
        (number,) = outcome.get(4).value
        state = Described(Ulong(0x34), [number, None])
        talk.wire.write(talk.wire.transfer(message("m"), handle=0, state=state))
        await talk.hear()
        ended = talk.fields("discharge", {"txn-id": number, "fail": False})
        command = Described(Ulong(0x32), [ended["txn-id"], ended["fail"]])
        talk.wire.write(talk.wire.transfer(encode_described(Ulong(0x77), encode(command)), handle=1))
        await talk.hear()
        return await talk.end()


async def claims(row: Asked | None) -> list[object]:
    """A token is put, and a link needs it."""
    access = Access([SharedKey("name", "key")], verify=True)
    async with opened(row, access) as talk:
        talk.open()
        talk.wire.begin(0)
        asked: dict[str, object] = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": "sb://h/q",
        }
        await talk.ask("$cbs", asked, signed("sb://h/"))
        talk.receiver("q")
        await talk.hear()
        return await talk.end()


def signed(resource: str) -> str:
    text, expiry = quote(resource, safe=""), str(START // 1_000 + 3_600)
    return f"SharedAccessSignature sr={text}&sig={quote(sign(text, expiry, 'key'), safe='')}&se={expiry}&skn=name"


async def request(operation: str, given: Mapping[str, object], row: Asked | None) -> list[object]:
    """An operation of `$management`: on a queue with a locked, a deferred, a scheduled and a plain message, one with a
    session that the client holds and one that it has lost, or a subscription."""
    async with opened(row) as talk:
        talk.open()
        talk.wire.begin(0)
        for number in range(4):
            await talk.put("q", message(f"m{number}"))
        talk.wire.attach_receiver("q", 1, credit=2, name="r1")
        locked, deferred = [each for each in await talk.hear() if each.code == CODES["transfer"]]
        talk.wire.dispose(modified(undeliverable=True), deferred.get(1))
        scheduled = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(START + 600_000)}
        later = encode_described(Ulong(0x72), encode(scheduled)) + message("later")
        (number,) = await talk.broker.messages.schedule("q", [later])
        for session in ("a", "b", "c"):
            await talk.put("s", message(f"in {session}", session=session))
        talk.wire.attach_receiver("s", 2, filter={SESSION: "b"}, name="lost")
        await talk.hear()
        talk.clock.advance(59_000)
        talk.wire.attach_receiver("s", 3, filter={SESSION: "a"}, name="held")
        await talk.hear()
        talk.clock.advance(5_000)
        talk.wire.attach_receiver("q", 4, credit=1, name="r4")
        (locked,) = [each for each in await talk.hear() if each.code == CODES["transfer"]]
        await talk.broker.sessions.set_state("s", "a", b"state")
        known: dict[object, object] = {
            "LOCKED": Array(0x98, (uuid.UUID(bytes_le=locked.get(2)),)),
            "DEFERRED": Array(0x81, (Long(2),)),
            "SCHEDULED": Array(0x81, (Long(number),)),
            "LATER": [{"message": later}],
        }
        body = {name: known.get(value, value) if isinstance(value, str) else value for name, value in given.items()}
        entity = "s" if "session" in operation else "t/Subscriptions/sub" if "rule" in operation else "q"
        talk.heard.clear()  # what comes now depends on the operation
        await talk.ask(f"{entity}/$management", {"operation": operation}, body)
        found = await talk.end()
        rules = talk.broker.administration.rules("t/Subscriptions/sub")
        return [*found, [(each.name, repr(each.filter), each.action) for each in rules]]


SESSION: Final = Symbol("com.microsoft:session-filter")
SHARED: Final = Symbol("com.microsoft:non-exclusive-session-filter")
REQUESTS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "com.microsoft:peek-message": ("", {"from-sequence-number": Long(0), "message-count": Int(9)}),
    "com.microsoft:renew-lock": ("", {"lock-tokens": "LOCKED"}),
    "com.microsoft:schedule-message": ("", {"messages": "LATER"}),
    "com.microsoft:cancel-scheduled-message": ("", {"sequence-numbers": "SCHEDULED"}),
    "com.microsoft:receive-by-sequence-number": ("", {"sequence-numbers": "DEFERRED", "receiver-settle-mode": Uint(1)}),
    "com.microsoft:update-disposition": ("", {"disposition-status": "completed", "lock-tokens": "LOCKED"}),
    "a dead letter": (
        "com.microsoft:update-disposition",
        {"disposition-status": "suspended", "lock-tokens": "LOCKED"},
    ),
    "com.microsoft:batch-delete-messages": (
        "",
        {"message-count": Int(9), "enqueued-time-utc": Timestamp(START + 100_000)},
    ),
    "com.microsoft:renew-session-lock": ("", {"session-id": "a"}),
    "com.microsoft:set-session-state": ("", {"session-id": "a", "session-state": b"new"}),
    "com.microsoft:get-session-state": ("", {"session-id": "a"}),
    "com.microsoft:get-message-sessions": (
        "",
        {"last-updated-time": Timestamp(253_402_300_799_999), "skip": Int(0), "top": Int(10)},
    ),
    "com.microsoft:add-rule": (
        "",
        {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "a = 1"}}},
    ),
    "com.microsoft:remove-rule": ("", {"rule-name": "r1"}),
    "com.microsoft:enumerate-rules": ("", {"top": Int(10), "skip": Int(0)}),
}
TALKS: Final[dict[str, Callable[[Asked | None], Awaitable[list[object]]]]] = {
    "plain": plain,
    "Premium": partial(plain, profile=Profile.PREMIUM),
    "session": partial(in_session, wanted={SESSION: "a"}),
    "shared session": partial(
        in_session, wanted={SHARED: Described(Ulong(0x137000000E), ["a", None])}, profile=Profile.PREMIUM
    ),
    "next session": next_session,
    "transaction": transaction,
    "$cbs": claims,
    **{name: partial(request, operation or name, body) for name, (operation, body) in REQUESTS.items()},
}
_usual: dict[str, list[object]] = {}


async def usual(talk: str) -> list[object]:
    """What is heard when nothing special is asked for; it is the same each time."""
    if talk not in _usual:
        _usual[talk] = await TALKS[talk](None)
        assert await TALKS[talk](None) == _usual[talk]
    return _usual[talk]


def conditions(heard: object) -> set[str]:
    """The conditions of all errors in it."""
    if isinstance(heard, tuple) and heard[:1] == ("answer",):
        return {heard[1]} - {None}
    if isinstance(heard, tuple) and heard[:1] == (0x1D,):
        return {bytes(heard[1][0]).decode()}
    if isinstance(heard, list | tuple):
        return set[str]().union(*map(conditions, heard))
    return set()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.talk}: {row.key}")
async def test_what_is_asked_for_is_honoured_refused_or_ignored(row: Asked) -> None:
    heard, without = await TALKS[row.talk](row), await usual(row.talk)
    found = conditions(heard) - conditions(without)
    if row.treatment is Treatment.IGNORED:
        assert heard == without
    elif row.treatment is Treatment.REFUSED:
        assert found - {NO_CLAIM} == {row.condition}
    else:
        assert heard != without
        assert found <= {row.condition}


def test_each_field_of_the_standard_has_a_row() -> None:
    """Those of a performative, a source and a target; a field that holds others has rows for those."""
    asked = {(row.where, row.name.partition(".")[0]) for row in ROWS if row.talk == "plain"}
    wheres = {
        "open": ["open"], "begin": ["begin"], "attach": ["sender", "receiver"],
        "source": ["sender.source", "receiver.source"], "target": ["sender.target", "receiver.target"],
        "flow": ["flow"], "transfer": ["transfer"], "disposition": ["disposition"], "detach": ["detach"],
        "end": ["end"], "close": ["close"],
    }  # fmt: skip
    outer = {"source", "target"}
    missing = {
        (where, name)
        for kind, places in wheres.items()
        for where in places
        for name in FIELDS[kind]
        if name not in outer and (where, name) not in asked
    }
    assert missing == set()


def test_each_operation_and_each_field_that_it_reads_has_a_row() -> None:
    talks = {REQUESTS[row.talk][0] or row.talk for row in ROWS if row.talk in REQUESTS}
    assert talks == {name for name in OPERATIONS if name.startswith("com.microsoft:")}
    asked = {re.split(r"[.\[]", row.name)[0] for row in ROWS if row.where == "body"}
    folder = Path(operations_messages.__file__).parent
    for topic in ("messages", "sessions", "rules"):
        text = (folder / f"operations_{topic}.py").read_text()
        assert set(re.findall(r"""body\.\w+\(\s*"([a-z-]+)\"""", text)) <= asked


def test_no_two_rows_ask_for_the_same() -> None:
    keys = [(row.talk, row.key, repr(row.value)) for row in ROWS]
    assert len(keys) == len(set(keys))


def test_the_page_is_made_of_the_table() -> None:
    assert PAGE.read_text() == page()
