"""Service Bus in a few dictionaries and lists: what becomes of messages. Knows no partitions, stores or disks.

Readable as a specification: a message arrives at an entity; a topic gives copies to the subscriptions whose rules
match, each changed by its rule's action; an entity that forwards passes it on; an entity without sessions takes it, one
with sessions takes it if it names one; what can't be received, expires or can't be passed on becomes a dead letter,
which may be passed on, too.

Where a fault leaves open what happened the model keeps a doubt (`Item.doubts`), and a quiet point resolves it: one of
the possibilities must be what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, product

from .commands import Spec
from .shapes import LOCK_MS, QUEUE, SUBSCRIPTION, TOPIC, WINDOW_MS, Rule, Shape

ACTIVE, DEFERRED, SCHEDULED = "ACTIVE", "DEFERRED", "SCHEDULED"
DEAD_LETTER, DEAD_LETTER_DEFERRED = "DEAD_LETTER", "DEAD_LETTER_DEFERRED"
TRANSFER_DEAD_LETTER, TRANSFER_DEAD_LETTER_DEFERRED = "TRANSFER_DEAD_LETTER", "TRANSFER_DEAD_LETTER_DEFERRED"
DEFERRED_HOMES = {
    ACTIVE: DEFERRED,
    DEAD_LETTER: DEAD_LETTER_DEFERRED,
    TRANSFER_DEAD_LETTER: TRANSFER_DEAD_LETTER_DEFERRED,
}
HOPS_MAX = 4
TOO_MANY_HOPS = "MaxTransferHopCountExceeded"
NO_SESSION = "Session id is null."
TOO_MANY_DELIVERIES = "MaxDeliveryCountExceeded"
EXPIRED = "TTLExpiredException"
BY_CLIENT = "by the client"
NEVER = 1 << 62


@dataclass(eq=False)
class Holding:
    """A message session in the hands of a receiver."""

    until: int
    is_sure: bool  # False: the broker may have dropped it


@dataclass(eq=False)
class Item:
    """One message in one place; instants are Unix ms."""

    label: int
    path: str
    home: str
    session: str | None
    key: str | None
    id: str | None
    colour: str | None
    ttl_ms: int | None
    rule: str | None = None
    reason: str | None = None
    hops: int = 0
    count: tuple[int, int] = (0, 0)  # least and most
    expires: tuple[int, int] = (NEVER, NEVER)  # earliest and latest
    due_at: int = 0  # when it is scheduled for
    number: int | None = None  # once it was seen
    lock_until: int = 0
    lock_sure: bool = True  # False: the broker may have dropped the lock
    token: bytes = b""  # of the last lock
    is_in_session: bool = False  # its lock is that of a message session
    doubts: set[str] = field(default_factory=set)
    trail: tuple[tuple[str, str | None], ...] = ()  # the entities that it came through, and the key that it had there
    rank: int = 0  # the order in which messages were accepted; 0 if none is promised
    is_calm: bool = True  # it came while all stores worked, and counts for the spread over partitions

    @property
    def partition_key(self) -> str | None:
        """What chooses the partition."""
        return self.session if self.session is not None else self.key

    def __str__(self) -> str:
        return (
            f"message {self.label} in {self.path} ({self.home}): session {self.session}, key {self.key}, "
            f"count {self.count}, hops {self.hops}, {self.reason or 'no reason'}, doubts {sorted(self.doubts)}"
        )


class Model:
    """The namespace as it should be; `now` follows the clock."""

    def __init__(self, shapes: Iterable[Shape], now: int) -> None:
        self.shapes: dict[str, Shape] = {shape.path: shape for shape in shapes}
        self.items: dict[int, list[Item]] = {}  # by label
        self.now = now
        self.calm = True  # all stores have worked since the last rest
        self.rested_at = now
        self._many = False  # messages of several partitions are on their way at once
        self.holdings: dict[tuple[str, str], Holding] = {}  # by path and name of the message session
        self.left_until: dict[tuple[str, str], int] = {}  # how long holdings may go on that ended unheard
        self.states: dict[tuple[str, str], set[str | None]] = {}  # what it may be, as the last answers leave it
        self._remembered: dict[tuple[str, str, str | None], int] = {}
        # By label: copies that entities dropped as duplicates of another copy, and where they would have gone.
        self._twins: dict[int, list[tuple[Item, list[Item]]]] = {}
        self._late_takes: Counter[str] = Counter()  # by path: of receivers that went while a store kept them waiting
        self._rank = 0

    # ---- looking

    def all(self) -> list[Item]:
        return [item for items in self.items.values() for item in items]

    def at(self, path: str, home: str) -> list[Item]:
        return [item for item in self.all() if item.path == path and item.home == home]

    def subscriptions(self, topic: str) -> list[Shape]:
        return [each for each in self.shapes.values() if each.kind == SUBSCRIPTION and each.topic == topic]

    def is_partitioned(self, path: str) -> bool:
        shape = self.shapes[path]
        return self.shapes[shape.topic].partitioned if shape.kind == SUBSCRIPTION else shape.partitioned

    # ---- sending

    def refusal(self, path: str, specs: tuple[Spec, ...]) -> str | None:
        """Why an entity does not take these messages as one delivery: the condition's name, or None."""
        shape = self.shapes.get(path)
        if shape is None:
            return "NOT_FOUND"
        if shape.status in ("Disabled", "SendDisabled"):
            return "ENTITY_DISABLED"
        if shape.kind == QUEUE and shape.sessions and any(spec.session is None for spec in specs):
            return "NOT_ALLOWED"
        if any(None not in (spec.session, spec.key) and spec.session != spec.key for spec in specs):
            return "NOT_ALLOWED"
        if shape.partitioned and len({self.key_of(shape, spec) for spec in specs}) > 1:
            return "NOT_ALLOWED"
        return None

    def key_of(self, shape: Shape, spec: Spec) -> str | None:
        """What chooses the partition of a message that is sent (P8)."""
        if spec.session is not None:
            return spec.session
        if spec.key is not None:
            return spec.key
        return spec.id if shape.duplicates else None

    def accept(self, path: str, specs: tuple[Spec, ...], *, sent_at: int) -> None:
        """A delivery was stored, at `sent_at` or later."""
        for place, spec in enumerate(specs):
            self._rank += 1
            item = self._item(path, spec)
            item.is_calm &= place == 0  # a batch goes to one partition: only its first message counts there
            due_at = 0 if spec.after_ms is None else sent_at + spec.after_ms
            if self._is_duplicate(item):
                continue
            item.id = item.id or given_id(spec.label)
            if due_at > self.now:
                self._put([replace(item, home=SCHEDULED, due_at=due_at)])
            else:
                self._put(self._placed_at_entity(item))

    def schedule(self, path: str, spec: Spec, number: int | None, *, sent_at: int) -> None:
        """A message was stored until its time."""
        self._rank += 1
        item = self._item(path, spec)
        if not self._is_duplicate(item):
            item.id = item.id or given_id(spec.label)
            due_at = sent_at + (spec.after_ms or 0)
            item.is_calm = False  # a request's messages go to one partition
            if due_at > self.now:
                self._put([replace(item, home=SCHEDULED, due_at=due_at, number=number)])
            else:
                self._put(self._placed_at_entity(replace(item, rank=0)))

    def transfer(self, via: str, path: str, spec: Spec) -> None:
        """A message of a transaction leaves for another entity, or stays where it can't leave from."""
        self._rank += 1
        item = replace(self._item(path, spec), id=spec.id or given_id(spec.label), rank=0, is_calm=False)
        reason = self._obstacle(path)
        if reason is None:
            self._put(self._arrive(replace(item, hops=1)))
        else:
            self._put([replace(item, path=via, home=TRANSFER_DEAD_LETTER, reason=reason)])

    def drop(self, path: str) -> None:
        """An entity is deleted, a topic with its subscriptions, and with it all that is in it."""
        gone = {each for each, shape in self.shapes.items() if path in (each, shape.topic)}
        for item in self.all():
            if item.path in gone:
                self.remove(item)
        for known in (self.holdings, self.left_until, self.states, self._remembered):
            for key in [key for key in known if key[0] in gone]:
                del known[key]  # type: ignore[arg-type]
        for each in gone:
            del self.shapes[each]

    def is_receivable(self, path: str) -> bool:
        """Whether an entity lets receivers have its messages."""
        shape = self.shapes.get(path)
        return shape is not None and shape.kind != TOPIC and shape.status not in ("Disabled", "ReceiveDisabled")

    def _item(self, path: str, spec: Spec) -> Item:
        return Item(
            spec.label,
            path,
            ACTIVE,
            spec.session,
            spec.key,
            spec.id,
            spec.colour,
            spec.ttl_ms,
            rank=self._rank,
            is_calm=self.calm,
        )

    def _is_duplicate(self, item: Item) -> bool:
        shape = self.shapes[item.path]
        if not shape.duplicates or item.id is None:
            return False
        identity = (item.path, item.id, item.partition_key if shape.partitioned else None)
        if self._remembered.get(identity, 0) > self.now:
            return True
        self._remembered[identity] = self.now + WINDOW_MS
        return False

    # ---- arriving

    def _arrive(self, item: Item) -> list[Item]:
        """A message comes from another entity: where it and its copies are then."""
        if self._is_duplicate(item):
            if self._is_certain():
                remembered = dict(self._remembered)
                self._twins.setdefault(item.label, []).append((item, self._placed_at_entity(item)))
                self._remembered = remembered
                return []
            item = replace(item, doubts={"taken"})
        elif self.shapes[item.path].duplicates and not self._is_certain():
            item = replace(item, doubts={"taken"})  # another one may have come before it
        return self._placed_at_entity(item)

    def _is_certain(self) -> bool:
        """Whether messages arrive in the order in which the model thinks of them."""
        return self.calm and not self._many

    def _placed_at_entity(self, item: Item) -> list[Item]:
        shape = self.shapes[item.path]
        if shape.kind != TOPIC:
            return self._placed(item)
        found: list[Item] = []
        item = self._tracked(item)
        for subscription in self.subscriptions(item.path):
            for copy in copies(subscription.rules, item):
                there = replace(copy, path=subscription.path)
                found += self._placed(replace(there, ttl_ms=least(there.ttl_ms, shape.ttl_ms)))
        return found

    def _placed(self, item: Item) -> list[Item]:
        """A message becomes active in a queue or subscription."""
        shape = self.shapes[item.path]
        item = replace(self._tracked(item), home=ACTIVE, ttl_ms=least(item.ttl_ms, shape.ttl_ms), number=None)
        item = replace(item, count=(0, 0), doubts=set(item.doubts))
        if shape.forward_to is not None:
            if item.hops >= HOPS_MAX:
                return self.bury(item, TOO_MANY_HOPS)
            return self._forwarded(item, shape.forward_to) or []
        if shape.sessions and item.session is None:
            return self.bury(item, NO_SESSION)
        if item.ttl_ms is not None:
            earliest = (self.now if self.calm else self.rested_at) + item.ttl_ms
            item = replace(item, expires=(earliest, earliest if self.calm else NEVER))
        self._doubt_count(item, self._late_takes[item.path])
        return [item]

    def _forwarded(self, item: Item, target: str, *, buried: bool = False) -> list[Item]:
        """A message goes from its entity to `target`, or becomes a dead letter of its entity if it can't."""
        reason = self._obstacle(target)
        if reason is not None:
            return self.bury(item, item.reason if buried else reason, forward=False)
        there = replace(item, path=target, hops=item.hops + 1)
        return self._arrive(replace(there, expires=(NEVER, NEVER), lock_until=0))

    def _obstacle(self, target: str) -> str | None:
        shape = self.shapes.get(target)
        if shape is None:
            return "MessagingEntityNotFound"
        if shape.status in ("Disabled", "SendDisabled"):
            return "MessagingEntityDisabled"
        return None  # that a SessionId equals the PartitionKey is a rule for senders only

    def bury(self, item: Item, reason: str | None, *, forward: bool = True) -> list[Item]:
        """A message becomes a dead letter, where it is or where dead letters go."""
        shape = self.shapes[item.path]
        item = replace(
            item,
            home=DEAD_LETTER,
            reason=reason,
            expires=(NEVER, NEVER),
            lock_until=0,
            number=None,
            doubts=set(item.doubts),
            is_calm=False,
            rank=0,
        )
        target = shape.forward_dead_letters_to
        if not forward or target is None:
            return [item]
        if item.hops >= HOPS_MAX:
            return [item]
        return self._forwarded(item, target, buried=True)

    def _tracked(self, item: Item) -> Item:
        """The order of messages with the same key holds through entities; without a key there is none to hold."""
        is_ordered = item.partition_key is not None or not self.is_partitioned(item.path)
        trail = (*item.trail, (item.path, item.partition_key))
        return replace(item, trail=trail, rank=item.rank if is_ordered else 0)

    # ---- what happens to a message that is there

    def after(self, item: Item, what: str) -> list[Item]:
        """What becomes of a message: it is taken, expires, or is dead-lettered for one reason or the other."""
        gone = replace(item, lock_until=0, number=None, doubts=set())
        if what == "taken":
            return []
        if what == "expired":
            return self.bury(gone, EXPIRED) if self.shapes[item.path].bury_expired else []
        if what == "delivered too often":
            high = item.count[1]
            least_count = min(self.shapes[item.path].deliveries_max, high)
            return self.bury(replace(gone, count=(least_count, high)), TOO_MANY_DELIVERIES)
        if what == "dead-lettered":
            return self.bury(gone, BY_CLIENT)
        if what == "deferred":
            home = DEFERRED_HOMES.get(item.home, item.home)
            counted = home == DEFERRED  # the delivery counts, but a deferral alone never dead-letters
            count = (item.count[0] + counted, item.count[1] + counted)
            return [replace(gone, home=home, number=item.number, expires=(NEVER, NEVER), count=count)]
        assert what == "activated", what
        return self._placed_at_entity(replace(gone, due_at=0, is_calm=item.is_calm and self.calm, rank=0))

    def happen(self, item: Item, what: str) -> None:
        """`after`, for good."""
        self.remove(item)
        self._put(self.after(item, what))

    def suppose(self, item: Item, what: str) -> list[Item]:
        """`after`, without any consequence; what may have expired since is in doubt."""
        remembered = dict(self._remembered)
        found = self.after(item, what)
        self._remembered = remembered
        self._loosen(found)
        for each in found:
            if self._may_expire(each):
                each.doubts.add("expired")
        return found

    def _loosen(self, items: Iterable[Item]) -> None:
        """What is known to have happened only now may have happened at any time since the last quiet point."""
        for item in items:
            if item.home == ACTIVE and item.ttl_ms is not None:
                item.expires = (min(item.expires[0], self.rested_at + item.ttl_ms), item.expires[1])

    def follow(self, item: Item, is_it: Callable[[Item], bool], depth: int = 3) -> bool:
        """Whether doubts of a message, one after the other, lead to what `is_it` describes; if so, they were right."""
        for what in sorted(item.doubts - {"taken"}):
            found = self.suppose(item, what)
            if any(map(is_it, found)) or (depth and any(self._leads(each, is_it, depth - 1) for each in found)):
                self.happen(item, what)
                self._loosen(self.items.get(item.label, ()))
                for each in list(self.items.get(item.label, ())):
                    if self._may_expire(each):
                        each.doubts.add("expired")
                if not any(map(is_it, self.items.get(item.label, ()))):
                    for each in list(self.items.get(item.label, ())):
                        if self.follow(each, is_it, depth - 1):
                            break
                return True
        return False

    def _leads(self, item: Item, is_it: Callable[[Item], bool], depth: int) -> bool:
        return any(
            any(map(is_it, found)) or (depth and any(self._leads(each, is_it, depth - 1) for each in found))
            for found in (self.suppose(item, what) for what in sorted(item.doubts - {"taken"}))
        )

    def came_another_way(self, item: Item, is_it: Callable[[Item], bool]) -> Item | None:
        """What is there in the place of `item`, if an entity took another copy of the message, and dropped this one.

        Two copies of a message are under way at once if two subscriptions forward them; either may be the first. The
        other one shows where it came from until an entity behind that changes it.
        """
        for twin, placed in self._twins_of(item):
            mixes = product(
                (item.rule, twin.rule),
                (item.colour, twin.colour),
                (item.reason, twin.reason),
                ((item.session, item.key), (twin.session, twin.key)),
                range(HOPS_MAX + 1),
            )
            for rule, colour, reason, (session, key), hops in mixes:
                mixed = replace(item, rule=rule, colour=colour, reason=reason, session=session, key=key, hops=hops)
                if is_it(mixed):
                    return mixed
            buried = chain.from_iterable(self.suppose(each, "expired") for each in placed if self._may_expire(each))
            there = next(filter(is_it, chain(placed, buried)), None)
            if there is not None:
                return there
        return None

    def _twins_of(self, item: Item) -> list[tuple[Item, list[Item]]]:
        """The copies that an entity, which `item` came through, dropped as duplicates of it."""

        def came_through(twin: Item) -> bool:
            keys = {key for path, key in item.trail if path == twin.path}
            return bool(keys) and (not self.shapes[twin.path].partitioned or twin.partition_key in keys)

        return [each for each in self._twins.get(item.label, ()) if came_through(each[0])]

    def _may_expire(self, item: Item) -> bool:
        return item.home == ACTIVE and item.expires[0] <= self.now

    def resolved(self, item: Item, whats: Iterable[str], final: Iterable[Item]) -> None:
        """A quiet point has shown which doubts were right, and what became of a message."""
        for what in whats:
            self.after(item, what)  # what entities remember of it
        self.remove(item)
        self._put(final)

    def remove(self, item: Item) -> None:
        items = self.items[item.label]
        items[:] = [each for each in items if each is not item]
        if not items:
            del self.items[item.label]

    def _put(self, items: Iterable[Item]) -> None:
        for item in items:
            self.items.setdefault(item.label, []).append(item)

    def rested(self) -> None:
        """A quiet point: all stores work, nothing is under way, and what is where was seen."""
        self.calm = True
        self._twins.clear()
        self._late_takes.clear()
        self.rested_at = self.now

    # ---- locks

    def lock(self, item: Item, token: bytes, holding: Holding | None = None) -> None:
        """A receiver got a message, as the holder of its message session or without one."""
        item.token = token
        item.lock_until = self.now + LOCK_MS if holding is None else holding.until
        item.lock_sure = self.calm and (holding is None or holding.is_sure)
        item.is_in_session = holding is not None

    def hold(self, path: str, name: str) -> Holding:
        """A receiver got a message session."""
        self.states.setdefault((path, name), {None})
        holding = self.holdings[path, name] = Holding(self.now + LOCK_MS, self.calm)
        return holding

    def in_hand(self, path: str, name: str) -> list[Item]:
        """The messages that the holder of a message session has locked."""
        return [
            item
            for item in self.all()
            if item.is_in_session and item.lock_until and (item.path, item.session) == (path, name)
        ]

    def end_holding(self, path: str, name: str, *, sure: bool) -> None:
        """The holder has gone, or lost the session; nothing is counted. Not `sure`: its locks may go on."""
        self.holdings.pop((path, name), None)
        for item in self.in_hand(path, name):
            item.lock_sure = False
            if sure:
                item.lock_until = 0

    def take_late(self, path: str) -> None:
        """A receiver has gone before a slow store answered it.

        Until the next quiet point one lock of any message that is there then, or comes later, may end by time.
        """
        self._late_takes[path] += 1
        for item in self.all():
            if item.path == path and item.home == ACTIVE:
                self._doubt_count(item, 1)

    def _doubt_count(self, item: Item, attempts: int) -> None:
        """So many delivery attempts may have failed."""
        item.count = (item.count[0], item.count[1] + attempts)
        if attempts and item.count[1] >= self.shapes[item.path].deliveries_max:
            item.doubts.add("delivered too often")

    def attempt_failed(self, item: Item, *, sure: bool = True) -> None:
        """A delivery attempt ended without success; not `sure` if the broker may not have counted it."""
        counted = item.home in (ACTIVE, DEFERRED)
        low, high = item.count
        item.count = (low + (counted and sure), high + counted)
        item.lock_until = 0
        most = self.shapes[item.path].deliveries_max
        if counted and sure and item.count[0] >= most:
            self.happen(item, "delivered too often")
        elif counted and item.count[1] >= most:
            item.doubts.add("delivered too often")

    def forget_locks(self) -> None:
        """The process is gone, and its locks with it; nothing was counted."""
        self.holdings.clear()
        self.left_until.clear()
        for item in self.all():
            item.lock_until = 0

    def doubt_locks(self) -> None:
        """The broker may have dropped the memory of some partitions."""
        self.calm = False
        for holding in self.holdings.values():
            holding.is_sure = False
        for item in self.all():
            item.lock_sure = False

    # ---- time

    def tick(self, now: int) -> None:
        """The clock shows `now`: what is due happens, in the order of the instants."""
        self.now = now
        self._many = True
        for key in [key for key, holding in self.holdings.items() if holding.until <= now]:
            del self.holdings[key]
        for item in self.all():
            if item.home == SCHEDULED:
                continue
            if item.lock_until and item.lock_until <= now:
                self.attempt_failed(item, sure=item.lock_sure and self.calm)
        for item in self.all():
            earliest, latest = item.expires
            if item.home != ACTIVE or earliest > now or (item.lock_until and item.lock_sure):
                continue
            if latest <= now and not item.lock_until and not item.doubts and not self._twins_of(item):
                self.happen(item, "expired")
            else:
                item.doubts.add("expired")
        for item in self.all():
            if any(self._may_expire(each) for _, placed in self._twins_of(item) for each in placed):
                item.doubts.add("taken")  # the other copy may have come first, and may have expired
        for item in sorted(self.all(), key=lambda each: each.due_at):
            if item.home == SCHEDULED and item.due_at <= now:
                self.happen(item, "activated")
        self._many = False


def copies(rules: Iterable[Rule], item: Item) -> list[Item]:
    """What a subscription with these rules gets of a message: one for all rules without action, one for each with."""
    hits = [rule for rule in rules if rule.colour is None or rule.colour == item.colour]
    plain = [item] if any(rule.action is None for rule in hits) else []
    return plain + [changed(rule, item) for rule in hits if rule.action is not None]


def changed(rule: Rule, item: Item) -> Item:
    """A copy as the action of a rule leaves it."""
    copy = replace(item, rule=rule.name)
    match rule.action:
        case "set session":
            copy.session, copy.key = rule.value, None
        case "session from colour":
            copy.session, copy.key = item.colour, None
        case "session beside key":
            copy.session = rule.value
        case "drop session":
            copy.session = None
        case "set key":
            copy.session, copy.key = None, rule.value
        case "drop key":
            copy.key = None
        case "set colour":
            copy.colour = rule.value
        case _:
            raise AssertionError(rule)
    return copy


def given_id(label: int) -> str:
    """What stands for the message id that the service gives to a message without."""
    return f"given to {label}"


def least(first: int | None, second: int | None) -> int | None:
    """The shorter of two times to live."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
