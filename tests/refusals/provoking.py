"""How each refusal of the table is provoked over each of its faces."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Final
from urllib.parse import quote

from emubus.amqp.limits import Limits
from emubus.broker.access import sign
from emubus.broker.ids import token_to_uuid
from emubus.broker.keys import Right
from emubus.broker.model.descriptions import AuthorizationRule
from emubus.broker.tokens import Identity, Issuer
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Array, Described, Long, Symbol, Uint, Ulong
from emubus.testing import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription

from ..amqp.transacting import command, coordinate
from ..amqp.wire import BATCH, DISPOSITION, TRANSFER, accepted
from ..http.administering import entry
from ..tracking import untracked
from .world import KEY, LOCK_MS, START, Face, Told, World, message, of_close, session_filter, within

Provoke = Callable[[World], Awaitable[Told]]
L, B, N, C = Face.LINK, Face.BATCH, Face.NODE, Face.CLAIMS
T, R, A = Face.COORDINATOR, Face.REST, Face.ATOM
LONG, UUID_CODE = 0x81, 0x98
JSON_BATCH: Final = "application/vnd.microsoft.servicebus.json"

PROVOKE: dict[tuple[str, Face], Provoke] = {}
PROFILES: dict[str, str] = {}
"""The profile of the rows that need another one than standard."""
OPTIONS: dict[str, dict[str, str]] = {}
"""Options of the server of the rows that need them."""


def on(name: str, face: Face) -> Callable[[Provoke], Provoke]:
    """What provokes a row over a face."""

    def register(provoke: Provoke) -> Provoke:
        assert (name, face) not in PROVOKE, name
        PROVOKE[name, face] = provoke
        return provoke

    return register


def scheduled(*messages: bytes) -> dict[str, object]:
    """The body of a request that schedules messages."""
    return {"messages": [{"message": each} for each in messages]}


async def rest_batch(world: World, entity: str, *properties: Mapping[str, object]) -> Told:
    """A batch of REST messaging, one message for each of these broker properties."""
    body = json.dumps([{"Body": "m", "BrokerProperties": dict(each)} for each in properties]).encode()
    return await world.rest("POST", f"/{entity}/messages", body, Content_Type=JSON_BATCH)


def rest_send(entity: str, **properties: object) -> Provoke:
    """A message of REST messaging."""

    async def provoke(world: World) -> Told:
        headers = {"BrokerProperties": json.dumps(properties)} if properties else {}
        return await world.rest("POST", f"/{entity}/messages", b"m", **headers)

    return provoke


def attach_sender(entity: str) -> Provoke:
    """An attach for sending."""
    return lambda world: world.sender_refused(entity)


def rest_receive(entity: str) -> Provoke:
    """A receive of REST messaging."""
    return lambda world: world.rest("DELETE", f"/{entity}/messages/head?timeout=0")


def send(entity: str, *messages: bytes, batch: bool = False) -> Provoke:
    """A delivery that is rejected."""
    return lambda world: world.send_refused(entity, *messages, batch=batch)


def schedule(entity: str, *messages: bytes) -> Provoke:
    """A request that schedules messages."""
    return lambda world: world.asked(entity, "schedule-message", scheduled(*messages))


def in_transaction(entity: str, *messages: bytes) -> Provoke:
    """A send in a transaction that is rejected."""

    async def provoke(world: World) -> Told:
        return await world.send_refused(entity, *messages, state=within(await world.declared()))

    return provoke


# ---- sending

LARGE = message("x" * 300_000)
NAME = "a message above the size of the entity"


@on(NAME, L)
async def too_large(world: World) -> Told:
    world.wire.attach_sender("q", 60)
    parts = [LARGE[at : at + 60_000] for at in range(0, len(LARGE), 60_000)]
    for part in parts:
        world.wire.write(world.wire.transfer(part, handle=60, more=part is not parts[-1]))
    return await world.detached()


NAME = "a property above 32 KB"
WIDE = message(properties={"wide": "x" * 40_000})
PROVOKE[NAME, L] = send("q", WIDE)
PROVOKE[NAME, B] = send("q", message(), WIDE, batch=True)
PROVOKE[NAME, N] = schedule("q", WIDE)
PROVOKE[NAME, T] = in_transaction("q", WIDE)


def full(provoke: Provoke, entity: str = "q") -> Provoke:
    """The same, with an entity that has no room."""

    async def filled(world: World) -> Told:
        found = world.broker.namespace.entity(entity)
        assert found is not None
        for handle in found.partitions:
            handle.size_bytes_max = 1
        return await provoke(world)

    return filled


NAME = "a queue that is full"
PROVOKE[NAME, L] = full(send("q", message()))
PROVOKE[NAME, B] = full(send("q", message(), message(), batch=True))
PROVOKE[NAME, N] = full(schedule("q", message(at=START + 60_000)))
PROVOKE[NAME, R] = full(rest_send("q"))
NAME = "a topic that is full"
PROVOKE[NAME, L] = full(send("t", message()), "t")
PROVOKE[NAME, R] = full(rest_send("t"), "t")

NAME = "no SessionId where sessions are required"
PROVOKE[NAME, L] = send("s", message())
PROVOKE[NAME, B] = send("s", message(session="a"), message(), batch=True)
PROVOKE[NAME, N] = schedule("s", message())
PROVOKE[NAME, R] = rest_send("s")
PROVOKE[NAME, T] = in_transaction("s", message())

NAME = "no MessageId and no key on a partitioned entity that detects duplicates"
PROVOKE[NAME, L] = send("once", message())
PROVOKE[NAME, B] = send("once", message(), message(), batch=True)
PROVOKE[NAME, R] = rest_send("once")

NAME = "several ids in one batch, or none in a scheduled message, on such an entity"
PROVOKE[NAME, B] = send("once", message(id="a"), message(id="b"), batch=True)
PROVOKE[NAME, N] = schedule("once", message())
PROVOKE[NAME, R] = lambda world: rest_batch(world, "once", {"MessageId": "a"}, {"MessageId": "b"})

NAME = "several keys in one batch on a partitioned entity"
PROVOKE[NAME, B] = send("parts", message(key="a"), message(session="b"), batch=True)
PROVOKE[NAME, R] = lambda world: rest_batch(world, "parts", {"PartitionKey": "a"}, {"PartitionKey": "b"})


SCATTERED = TopicDescription("scattered", enable_partitioning=True)
ONCE = TopicDescription("only-once", enable_partitioning=True, requires_duplicate_detection=True)


def with_topic(topic: TopicDescription, provoke: Provoke) -> Provoke:
    """The same, with a topic that is made before."""

    async def made(world: World) -> Told:
        world.broker.administration.create(topic)
        return await provoke(world)

    return made


NAME = "several keys in one batch on a partitioned topic"
PROVOKE[NAME, B] = with_topic(SCATTERED, send("scattered", message(key="a"), message(session="b"), batch=True))
PROVOKE[NAME, R] = with_topic(
    SCATTERED, lambda world: rest_batch(world, "scattered", {"PartitionKey": "a"}, {"PartitionKey": "b"})
)
PROVOKE["a message without MessageId scheduled on a partitioned topic that detects duplicates", N] = with_topic(
    ONCE, schedule("only-once", message())
)


@on("a batch without messages", B)
async def batch_empty(world: World) -> Told:
    await world.send("q", encode_described(Ulong(0x73), encode(["id"])), batch=True)
    return await world.detached()


NAME = "a batch above 1 MB on Premium"
PROFILES[NAME] = "premium"


@on(NAME, B)
async def batch_too_large(world: World) -> Told:
    world.broker.administration.create(QueueDescription("large", max_message_bytes=4 << 20))
    world.wire.attach_sender("large", 60)
    part, wire = bytes(60_000), world.wire
    for number in range(20):
        wire.write(wire.transfer(part, handle=60, more=number < 19, format=BATCH))
    return await world.detached()


def with_status(status: EntityStatus, provoke: Provoke, topic: bool = False) -> Provoke:
    """The same, with an entity of that status, whose links were opened before."""

    async def changed(world: World) -> Told:
        entity = world.broker.namespace.entity("t" if topic else "q")
        assert entity is not None
        kind = TopicDescription if topic else QueueDescription
        world.broker.administration.update(kind(entity.path, status=status))
        return await provoke(world)

    return changed


for NAME, STATUS, IS_TOPIC in (
    ("a queue with status SendDisabled", EntityStatus.SEND_DISABLED, False),
    ("a topic with status SendDisabled", EntityStatus.SEND_DISABLED, True),
    ("a queue with status Disabled, for senders", EntityStatus.DISABLED, False),
    ("a topic with status Disabled, for senders", EntityStatus.DISABLED, True),
):
    PATH = "t" if IS_TOPIC else "q"
    PROVOKE[NAME, L] = with_status(STATUS, attach_sender(PATH), IS_TOPIC)
    PROVOKE[NAME, R] = with_status(STATUS, rest_send(PATH), IS_TOPIC)
    if not IS_TOPIC:
        PROVOKE[NAME, N] = with_status(STATUS, schedule("q", message()))

NAME = "a queue that there is not, for senders"
PROVOKE[NAME, L] = lambda world: world.sender_refused("nothing")
PROVOKE[NAME, R] = rest_send("nothing")
NAME = "a topic that there is not, for senders"
PROVOKE[NAME, L] = lambda world: world.sender_refused("one")  # the name of a subscription
PROVOKE[NAME, R] = rest_send("one")

# ---- receiving

NAME = "a queue that there is not, for receivers"
PROVOKE[NAME, L] = lambda world: world.receiver_refused("nothing")
PROVOKE[NAME, N] = lambda world: world.receiver_refused("nothing/$management")
PROVOKE[NAME, R] = rest_receive("nothing")

NAME = "a subscription that there is not"
PROVOKE[NAME, L] = lambda world: world.receiver_refused("t/Subscriptions/none")
PROVOKE[NAME, R] = rest_receive("t/subscriptions/none")

PROVOKE["a subscription of a topic that there is not, for receivers", L] = lambda world: world.receiver_refused(
    "nothing/Subscriptions/s"
)

NAME = "a queue with status ReceiveDisabled"
PROVOKE[NAME, L] = with_status(EntityStatus.RECEIVE_DISABLED, lambda world: world.receiver_refused("q"))
PROVOKE[NAME, R] = with_status(EntityStatus.RECEIVE_DISABLED, rest_receive("q"))

NAME = "a queue with status Disabled, for receivers"
PROVOKE[NAME, L] = with_status(EntityStatus.DISABLED, lambda world: world.receiver_refused("q"))
PROVOKE[NAME, R] = with_status(EntityStatus.DISABLED, rest_receive("q"))
PROVOKE["a request that there is not", N] = lambda world: world.asked("q", "com.microsoft:renew-everything", {})

NAME = "a receiver of an entity that forwards"
PROVOKE[NAME, L] = lambda world: world.receiver_refused("forwarding")
PROVOKE[NAME, R] = rest_receive("forwarding")
PROVOKE["a receiver of a dead-letter queue that forwards", L] = lambda world: world.receiver_refused(
    "dead/$DeadLetterQueue"
)

PROVOKE["a peek of an entity that forwards", N] = lambda world: world.asked(
    "forwarding", "peek-message", {"from-sequence-number": Long(0), "message-count": 1}
)
PROVOKE["a message scheduled by a request to an entity that forwards", N] = schedule(
    "forwarding", message(at=START + 60_000)
)


def with_subscription(description: SubscriptionDescription, provoke: Provoke) -> Provoke:
    """The same, with a subscription that is made before."""

    async def made(world: World) -> Told:
        world.broker.administration.create(description)
        return await provoke(world)

    return made


FORWARDING = SubscriptionDescription("t", "forwarding", forward_to="other")
PROVOKE["rules of a subscription that forwards, over AMQP", N] = with_subscription(
    FORWARDING, lambda world: world.asked("t/Subscriptions/forwarding", "enumerate-rules", {"top": 10, "skip": 0})
)
NAME = "a receiver of a subscription that forwards"
PROVOKE[NAME, L] = with_subscription(FORWARDING, lambda world: world.receiver_refused("t/Subscriptions/forwarding"))
PROVOKE[NAME, R] = with_subscription(FORWARDING, rest_receive("t/subscriptions/forwarding"))
WITH_SESSIONS = SubscriptionDescription("t", "sessions", requires_session=True)
NAME = "a receiver without session of a subscription that requires sessions"
PROVOKE[NAME, L] = with_subscription(WITH_SESSIONS, lambda world: world.receiver_refused("t/Subscriptions/sessions"))
PROVOKE[NAME, R] = with_subscription(WITH_SESSIONS, rest_receive("t/subscriptions/sessions"))


NAME = "a receiver without session where sessions are required"
PROVOKE[NAME, L] = lambda world: world.receiver_refused("s")
PROVOKE[NAME, R] = rest_receive("s")

NAME = "a session receiver where there are no sessions"
PROVOKE[NAME, L] = lambda world: world.receiver_refused("q", filter=session_filter("a"))
PROVOKE[NAME, N] = lambda world: world.asked("q", "get-session-state", {"session-id": "a"})

PROVOKE["a filter that the service does not know", L] = lambda world: world.receiver_refused(
    "q", filter={Symbol("com.example:filter"): Described(Symbol("com.example:filter"), "x")}
)


@on("a session that another receiver holds", L)
async def session_held(world: World) -> Told:
    other = world.connect()
    other.attach_receiver("s", 0, filter=session_filter("a"), credit=1)
    await other.turn(20)
    return await world.receiver_refused("s", filter=session_filter("a"))


async def token_of(world: World) -> bytes:
    """The lock of a message whose lock is over."""
    await world.put("q", message())
    frame = await world.receive("q")
    world.clock.advance(LOCK_MS)
    await world.wire.turn()
    tag: bytes = frame.get(2)
    return tag


NAME = "the lock of a message that is over"


@on(NAME, L)
async def lock_over(world: World) -> Told:
    await token_of(world)
    world.wire.dispose(accepted, 0)
    return await world.rejected()


def tokens(token: bytes) -> Array:
    """What requests name locks by."""
    return Array(UUID_CODE, (token_to_uuid(token),))


@on(NAME, N)
async def lock_over_asked(world: World) -> Told:
    body = {"disposition-status": "completed", "lock-tokens": tokens(await token_of(world))}
    return await world.asked("q", "update-disposition", body)


@on(NAME, T)
async def lock_over_in_transaction(world: World) -> Told:
    await token_of(world)
    world.wire.dispose(within(await world.declared(), accepted), 0)
    return await world.rejected()


async def locked_by_rest(world: World) -> str:
    """The path of a lock that is over."""
    await world.put("q", message())
    answer = await world.http("POST", "/q/messages/head?timeout=0", version=None)
    world.clock.advance(LOCK_MS)
    return "/" + answer.headers["Location"].split("/", 3)[3]


@on(NAME, R)
async def lock_over_by_rest(world: World) -> Told:
    return await world.rest("DELETE", await locked_by_rest(world))


NAME = "a lock that is renewed too late"


@on(NAME, N)
async def renewed_late(world: World) -> Told:
    return await world.asked("q", "renew-lock", {"lock-tokens": tokens(await token_of(world))})


@on(NAME, R)
async def renewed_late_by_rest(world: World) -> Told:
    return await world.rest("POST", await locked_by_rest(world))


async def locks_of_two_partitions(world: World) -> Array:
    """What a request names the locks of two messages by."""
    await world.put("parts", message(), message())
    frames = [
        await world.receive("parts"),
        await world.frame_of(TRANSFER, got=world.wire.attach_receiver("parts", 41, credit=1)),
    ]
    return Array(UUID_CODE, tuple(token_to_uuid(each.get(2)) for each in frames))


@on("locks of several partitions settled by one request", N)
async def settled_together(world: World) -> Told:
    body = {"disposition-status": "completed", "lock-tokens": await locks_of_two_partitions(world)}
    return await world.asked("parts", "update-disposition", body)


@on("locks of several partitions renewed by one request", N)
async def renewed_together(world: World) -> Told:
    return await world.asked("parts", "renew-lock", {"lock-tokens": await locks_of_two_partitions(world)})


NAME = "the lock of a session that is over"


@on(NAME, L)
async def session_over(world: World) -> Told:
    world.wire.attach_receiver("s", 0, filter=session_filter("a"))
    await world.wire.turn(20)
    for _ in range(10):  # a receiver that has nothing locked learns of it a while later
        world.clock.advance(LOCK_MS)
    return await world.detached()


PROVOKE[NAME, N] = lambda world: world.asked("s", "renew-session-lock", {"session-id": "a"})
PROVOKE["the state of a session that is not held", N] = lambda world: world.asked(
    "s", "set-session-state", {"session-id": "a", "session-state": b"x"}
)

CANCEL = {"sequence-numbers": Array(LONG, (Long(7), Long(8)))}
NAME = "scheduled messages that there are not"
PROVOKE[NAME, N] = lambda world: world.asked("q", "cancel-scheduled-message", CANCEL)


@on(NAME, T)
async def cancelled_in_transaction(world: World) -> Told:
    return await world.asked("q", "cancel-scheduled-message", CANCEL, within(await world.declared()))


def deferred(entity: str, *numbers: int, delete: bool = False) -> Provoke:
    """A receive of deferred messages by their numbers."""
    mode = Uint(0 if delete else 1)
    body = {"sequence-numbers": Array(LONG, tuple(map(Long, numbers))), "receiver-settle-mode": mode}
    return lambda world: world.asked(entity, "receive-by-sequence-number", body)


PROVOKE["deferred messages that there are not", N] = deferred("q", 7)
PROVOKE["deferred messages of several partitions in one request", N] = deferred("parts", 1, (1 << 48) + 1)
PROVOKE["more than 250 deferred messages received and deleted at once", N] = deferred("q", *range(1, 252), delete=True)

RULE = {"rule-name": "$Default", "rule-description": {"sql-filter": {"expression": "1=1"}}}
PROVOKE["a rule that there is", N] = lambda world: world.asked("t/Subscriptions/one", "add-rule", RULE)
NAME = "a rule that there is not"
PROVOKE[NAME, N] = lambda world: world.asked("t/Subscriptions/one", "remove-rule", {"rule-name": "none"})
PROVOKE["a rule that there is not, over HTTP", A] = lambda world: world.atom("GET", "/t/Subscriptions/one/Rules/none")
PROVOKE["a subscription that there is not, over HTTP", A] = lambda world: world.atom("GET", "/t/Subscriptions/none")

# ---- filters and actions: over HTTP the description is that of a rule


def add_rule(filter_text: str, action: str | None = None) -> tuple[Provoke, Provoke]:
    """A rule over `$management`, and over HTTP."""
    actions = (
        "" if action is None else f'<Action i:type="SqlRuleAction"><SqlExpression>{action}</SqlExpression></Action>'
    )
    rule: dict[str, object] = {"sql-filter": {"expression": filter_text}}
    if action is not None:
        rule["sql-rule-action"] = {"expression": action}
    description = (
        f'<RuleDescription><Filter i:type="SqlFilter"><SqlExpression>{filter_text}</SqlExpression></Filter>{actions}'
        "<Name>r</Name></RuleDescription>"
    )
    return (
        lambda world: world.asked("t/Subscriptions/one", "add-rule", {"rule-name": "r", "rule-description": rule}),
        lambda world: world.create("/t/Subscriptions/one/Rules/r", description),
    )


NAME = "SQL that can't be parsed"
PROVOKE[NAME, N], PROVOKE[NAME, A] = add_rule("EventType EventType")
PROVOKE["SQL of the first rule of a subscription that can't be parsed", A] = lambda world: world.create(
    "/t/Subscriptions/new",
    '<SubscriptionDescription><DefaultRuleDescription><Filter i:type="SqlFilter"><SqlExpression>EventType EventType'
    "</SqlExpression></Filter><Name>r</Name></DefaultRuleDescription></SubscriptionDescription>",
)
NAME = "an action that can't be parsed"
PROVOKE[NAME, N], PROVOKE[NAME, A] = add_rule("1=1", "EventType = 1")

# ---- transactions

ODD = b"no transaction"


async def sent_in(world: World, transaction: bytes, entity: str = "q") -> None:
    await world.send(entity, message(), state=within(transaction))


@on("a send in a transaction that is not declared", L)
async def send_undeclared(world: World) -> Told:
    await sent_in(world, ODD)
    return await world.detached()


@on("a settlement in a transaction that is not declared", L)
async def settle_undeclared(world: World) -> Told:
    await world.put("q", message())
    await world.receive("q")
    world.wire.dispose(within(ODD, accepted), 0)
    return await world.detached()


PROVOKE["a request in a transaction that is not declared", N] = lambda world: world.asked(
    "q", "schedule-message", scheduled(message()), within(ODD)
)


@on("the transaction of another connection", L)
async def foreign_transaction(world: World) -> Told:
    await sent_in(world, await world.declared(world.connect()))
    return await world.detached()


@on("a discharge of what is not declared", T)
async def discharge_undeclared(world: World) -> Told:
    coordinate(world.wire)
    return await world.discharged(ODD)


@on("a second discharge", T)
async def discharged_twice(world: World) -> Told:
    transaction = await world.declared()
    wire = world.wire
    wire.write(wire.transfer(command(Ulong(0x32), [transaction, False]), handle=9))
    assert (await world.frame_of(DISPOSITION)).get(4) == accepted
    return await world.discharged(transaction)


async def timed_out(world: World) -> bytes:
    """A transaction whose time is over."""
    transaction = await world.declared()
    world.clock.advance(120_000)
    return transaction


NAME = "work in a transaction after two minutes"


@on(NAME, L)
async def work_late(world: World) -> Told:
    await sent_in(world, await timed_out(world))
    return await world.rejected()


@on(NAME, N)
async def request_late(world: World) -> Told:
    return await world.asked("q", "schedule-message", scheduled(message()), within(await timed_out(world)))


@on("a discharge after two minutes", T)
async def discharge_late(world: World) -> Told:
    return await world.discharged(await timed_out(world))


NAME = "more than 100 messages in a transaction"
MANY = [message(str(number)) for number in range(101)]


@on(NAME, L)
async def one_too_many(world: World) -> Told:
    transaction, wire = await world.declared(), world.wire
    wire.attach_sender("q", 60)
    for each in MANY:
        wire.write(wire.transfer(each, handle=60, state=within(transaction)))
    for frame in await wire.turn(20):
        if frame.code == DISPOSITION and frame.get(4).descriptor == 0x25:
            condition, text, *_ = frame.get(4).value[0].value
            return Told(str(condition), None, untracked(text))
    raise AssertionError


@on(NAME, B)
async def a_batch_too_many(world: World) -> Told:
    return await world.send_refused("q", *MANY, batch=True, state=within(await world.declared()))


@on(NAME, N)
async def a_request_too_many(world: World) -> Told:
    return await world.asked("q", "schedule-message", scheduled(*MANY), within(await world.declared()))


NAME = "sends to two entities in a transaction"


async def bound(world: World) -> bytes:
    """A transaction that has sent to `q`; its AMQP session has a link from before, so that it crosses no entities."""
    world.wire.attach_sender("q", 60)
    transaction = await world.declared()
    world.wire.write(world.wire.transfer(message(), handle=60, state=within(transaction)))
    assert (await world.frame_of(DISPOSITION)).get(4).descriptor == 0x34
    return transaction


@on(NAME, L)
async def two_entities(world: World) -> Told:
    transaction = await bound(world)
    world.wire.attach_sender("other", 61)
    world.wire.write(world.wire.transfer(message(), handle=61, state=within(transaction)))
    return await world.rejected()


@on(NAME, N)
async def two_entities_asked(world: World) -> Told:
    return await world.asked("other", "schedule-message", scheduled(message()), within(await bound(world)))


@on("a second receiver where transactions cross entities", L)
async def second_receiver(world: World) -> Told:
    coordinate(world.wire)
    world.wire.attach_receiver("q", 40)
    return await world.receiver_refused("other")


@on("settlements in two partitions in a transaction", N)
async def two_partitions(world: World) -> Told:
    for key in ("a", "b"):
        await world.put("parts", message(key=key))
    frames = [each for each in world.wire.attach_receiver("parts", 40, credit=2) if each.code == TRANSFER]
    while len(frames) < 2:
        frames += [each for each in await world.wire.turn() if each.code == TRANSFER]
    transaction = await world.declared()
    first, second = (each.get(2) for each in frames)
    world.wire.dispose(within(transaction, accepted), 0)
    await world.frame_of(DISPOSITION)
    body = {"disposition-status": "completed", "lock-tokens": tokens(second)}
    assert first != second
    return await world.asked("parts", "update-disposition", body, within(transaction))


# ---- rights


def sas(ends_in_s: int = 600, key: str = KEY.key, path: str = "", name: str = KEY.name) -> str:
    """A token that is valid for a while."""
    resource, expiry = quote(f"sb://host/{path}", safe=""), str(START // 1000 + ends_in_s)
    signature = quote(sign(resource, expiry, key), safe="")
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}"


PROVOKE["a token for a queue that there is not", C] = lambda world: world.claimed(
    world.connect(verify=True), sas(), "nothing"
)
PROVOKE["a token for a subscription of a topic that there is not", C] = lambda world: world.claimed(
    world.connect(verify=True), sas(), "nothing/Subscriptions/s"
)
PROVOKE["no right to send", L] = lambda world: world.sender_refused("q", world.connect(verify=True))
PROVOKE["no right to listen", L] = lambda world: world.receiver_refused("q", world.connect(verify=True))


@on("a token that is over on an open link", L)
async def token_over(world: World) -> Told:
    wire = world.connect(verify=True)
    assert (await world.claimed(wire, sas(60))).status == 202
    wire.attach_sender("q", 0)
    world.clock.advance(60_000)
    return await world.detached(wire=wire)


def with_token(token: str) -> tuple[Provoke, Provoke, Provoke]:
    """A token that is put, and one that goes with a request of administration and of REST messaging."""
    return (
        lambda world: world.claimed(world.connect(verify=True), token),
        lambda world: world.atom("GET", "/q", Authorization=token),
        lambda world: world.rest("POST", "/q/messages", b"m", Authorization=token),
    )


for NAME, TOKEN in (("a token with a wrong signature", sas(key="wrong")), ("a token that is over", sas(-60))):
    PROVOKE[NAME, C], PROVOKE[NAME, A], PROVOKE[NAME, R] = with_token(TOKEN)
    OPTIONS[NAME] = {"auth": "sas"}


@cache
def issuer() -> Issuer:
    """An issuer that the server does not know."""
    made = Issuer()
    made.prepare()
    return made


def identity(resource: str) -> str:
    """A token of that issuer."""
    return issuer().issue(Identity.of_client("11111111-2222-3333-4444-555555555555"), resource, START // 1000, 600)


VAULT = "https://vault.azure.net"
BUS = "https://servicebus.azure.net"
NAME = "a token of another issuer"
OPTIONS[NAME] = {"auth": "sas"}
PROVOKE[NAME, C] = lambda world: world.claimed(world.connect(verify=True), identity(BUS))
PROVOKE[NAME, A] = lambda world: world.atom("GET", "/q", Authorization=f"Bearer {identity(BUS)}")
PROVOKE[NAME, R] = lambda world: world.rest("POST", "/q/messages", b"m", Authorization=f"Bearer {identity(BUS)}")

NAME = "a token of an identity for another resource"
OPTIONS[NAME] = {"auth": "sas"}
PROVOKE[NAME, C] = lambda world: world.claimed(world.connect(verify=True, issuer=issuer()), identity(VAULT))


async def token_for_vault(world: World) -> str:
    """A token of the server itself."""
    answer = await world.http("GET", f"/msi/token?resource={VAULT}&api-version=2019-08-01", version=None, secret="any")
    return f"Bearer {json.loads(answer.text)['access_token']}"


@on(NAME, A)
async def another_resource(world: World) -> Told:
    return await world.atom("GET", "/q", Authorization=await token_for_vault(world))


@on(NAME, R)
async def another_resource_by_rest(world: World) -> Told:
    return await world.rest("POST", "/q/messages", b"m", Authorization=await token_for_vault(world))


NAME = "a request without token"
PROVOKE[NAME, A] = lambda world: world.atom("GET", "/q")
PROVOKE[NAME, R] = lambda world: world.rest("POST", "/q/messages", b"m")
OPTIONS[NAME] = {"auth": "sas"}

# ---- administration without Manage: the key of a topic that may only listen

NO_MANAGE = (
    ("an entity read without Manage", "GET", "/t"),
    ("an entity written without Manage", "PUT", "/t"),
    ("an entity deleted without Manage", "DELETE", "/t"),
    ("EnumerateSubscriptions without Manage", "GET", "/t/Subscriptions"),
    ("GetSubscription without Manage", "GET", "/t/Subscriptions/one"),
    ("CreateOrUpdateSubscription without Manage", "PUT", "/t/Subscriptions/one"),
    ("DeleteSubscription without Manage", "DELETE", "/t/Subscriptions/one"),
    ("EnumerateRules without Manage", "GET", "/t/Subscriptions/one/Rules"),
    ("GetRule without Manage", "GET", "/t/Subscriptions/one/Rules/r"),
    ("CreateOrUpdateRule without Manage", "PUT", "/t/Subscriptions/one/Rules/r"),
    ("DeleteRule without Manage", "DELETE", "/t/Subscriptions/one/Rules/r"),
)


def without_manage(method: str, path: str) -> Provoke:
    """A request with the token of a key that may only listen."""

    async def provoke(world: World) -> Told:
        body = entry("<TopicDescription/>") if method == "PUT" else None
        return await world.atom(method, path, body, Authorization=sas(key="p", path="t", name="l"))

    return provoke


for NAME, METHOD, PATH in NO_MANAGE:
    PROVOKE[NAME, A] = without_manage(METHOD, PATH)
    OPTIONS[NAME] = {"auth": "sas"}

# ---- connections


@on("too many links in an AMQP session", L)
async def too_many_links(world: World) -> Told:
    wire = world.connect(limits=Limits(links_per_session_max=2))
    for handle in range(2):
        wire.attach_sender("q", handle)
    return await world.ended(wire, wire.attach_sender("q", 2))


@on("too many tokens on a connection", C)
async def too_many_tokens(world: World) -> Told:
    wire = world.connect(verify=True, limits=Limits(claims_max=1))
    assert (await world.claimed(wire, sas(), "q")).status == 202
    return await world.claimed(wire, sas(), "other")


NAME = "too many connections"
PROFILES[NAME] = "ms-emulator"


@on(NAME, L)
async def too_many_connections(world: World) -> Told:
    for _ in range(world.broker.limits.connections_max or 0):
        await world.dial()
    return of_close(await world.dial())


@on("a client of JMS 2.0 outside of Premium", L)
async def jms(world: World) -> Told:
    return of_close(await world.dial({Symbol("com.microsoft:is-client-provider"): True}))


# ---- descriptions


def create(path: str, kind: str, *, update: bool = False, **elements: object) -> Provoke:
    """A description with these elements, in their order."""
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in elements.items())
    return lambda world: world.create(path, f"<{kind}Description>{inner}</{kind}Description>", update=update)


PROVOKE["an update of a queue that there is not", A] = create("/nothing", "Queue", update=True)
PROVOKE["a deletion of a queue that there is not", A] = lambda world: world.atom("DELETE", "/nothing")
PROVOKE["subscriptions of a topic that there is not", A] = lambda world: world.atom("GET", "/nothing/Subscriptions")
FILTER = "/$Resources/queues?$filter="
PROVOKE["a sub-queue asked for as an entity of administration", A] = lambda world: world.atom(
    "GET", "/q/$DeadLetterQueue"
)
PROVOKE["a verb that a resource of administration does not have", A] = lambda world: world.atom("POST", "/q")
PROVOKE["a filter of a list that can't be parsed", A] = lambda world: world.atom("GET", f"{FILTER}path%20=%20'x'")
PROVOKE["a filter of a list with another property", A] = lambda world: world.atom("GET", f"{FILTER}name%20eq%20'x'")
PROVOKE["a ForwardTo of a queue that requires sessions", A] = create(
    "/new", "Queue", RequiresSession="true", ForwardTo="other"
)
NAME = "a ForwardTo without the right to send to its target"
OPTIONS[NAME] = {"auth": "sas"}


@on(NAME, A)
async def forward_without_right(world: World) -> Told:
    body = entry("<QueueDescription><ForwardTo>other</ForwardTo></QueueDescription>")
    only_new = sas(path="new", key="own", name="own")
    rules = (AuthorizationRule("own", (Right.MANAGE, Right.SEND, Right.LISTEN), "own"),)
    world.broker.administration.create(QueueDescription("new", authorization_rules=rules))
    return await world.atom("PUT", "/new", body, Authorization=only_new, If_Match="*")


PROVOKE["a ForwardTo in another namespace", A] = create(
    "/new", "Queue", ForwardTo="sb://other.servicebus.windows.net/q"
)
PROVOKE["a ForwardTo that leads nowhere", A] = create("/new", "Queue", ForwardTo="nowhere")
PROVOKE["a ForwardDeadLetteredMessagesTo that leads nowhere", A] = create(
    "/new", "Queue", ForwardDeadLetteredMessagesTo="nowhere"
)
PROVOKE["an update to a ForwardTo that leads nowhere", A] = create("/q", "Queue", update=True, ForwardTo="nowhere")
for KIND, PATH, PROPERTIES in (
    ("Queue", "/q", ("RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning")),
    ("Topic", "/t", ("RequiresDuplicateDetection", "EnablePartitioning")),
    ("Subscription", "/t/Subscriptions/one", ("RequiresSession",)),
):
    for PROPERTY in PROPERTIES:
        PROVOKE[f"{PROPERTY} of a {KIND} that there is", A] = create(PATH, KIND, update=True, **{PROPERTY: "true"})

PROVOKE["a queue with a character that no name has", A] = create("/a%7Cb", "Queue")
PROVOKE["a topic with a character that no name has", A] = create("/a%7Cb", "Topic")
PROVOKE["a subscription with a character that no name has", A] = create("/t/Subscriptions/a%20b", "Subscription")
PROVOKE["a rule with a character that no name has", A] = create("/t/Subscriptions/one/Rules/a%20b", "Rule")
PROVOKE["a value of a description that can't be read", A] = create("/new", "Queue", LockDuration=300)
PROVOKE["a LockDuration above 5 minutes", A] = create("/new", "Queue", LockDuration="PT6M")
PROVOKE["a MaxSizeInMegabytes that there is not", A] = create("/new", "Queue", MaxSizeInMegabytes=16384)
PROVOKE["a MaxMessageSizeInKilobytes on Standard", A] = create("/new", "Queue", MaxMessageSizeInKilobytes=2048)
NAME = "a MaxMessageSizeInKilobytes above 100 MB on Premium"
PROFILES[NAME] = "premium"
PROVOKE[NAME, A] = create("/new", "Queue", MaxMessageSizeInKilobytes=102401)
PROVOKE["EnableExpress with duplicate detection", A] = create(
    "/new", "Queue", RequiresDuplicateDetection="true", EnableExpress="true"
)
for KIND, PATH in (
    ("queue", "/q"),
    ("topic", "/t"),
    ("subscription", "/t/Subscriptions/one"),
    ("rule", "/t/Subscriptions/one/Rules/$Default"),
):
    PROVOKE[f"a {KIND} that there is, made again", A] = create(PATH, KIND.title())


PROVOKE["a queue of the name of a topic", A] = create("/t", "Queue")


@on("more partitioned entities than a namespace has", A)
async def too_many_partitioned(world: World) -> Told:
    for number in range(98):  # two are there
        world.broker.administration.create(QueueDescription(f"p{number}", enable_partitioning=True))
    return await create("/new", "Queue", EnablePartitioning="true")(world)
