"""Service Bus in a few dictionaries and lists: what becomes of messages. Knows no partitions, stores or disks.

Readable as a specification: a message arrives at an entity; a topic gives copies to the subscriptions whose rules
match, each changed by its rule's action; an entity that forwards passes it on; an entity without sessions takes it, one
with sessions takes it if it names one; what can't be received, expires or can't be passed on becomes a dead letter,
which may be passed on, too.

Where a fault leaves open what happened the model keeps a doubt (`Item.doubts`), and a quiet point resolves it: one of
the possibilities must be what is there. Where copies of a message meet at an entity that takes one of them, the model
keeps all that may have become of it (`Event`), and what is seen decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

from .arrivals import Arrivals, Time
from .commands import Spec
from .items import (
    ACTIVE,
    BY_CLIENT,
    DEAD_LETTER,
    DEFERRED,
    DEFERRED_HOMES,
    EXPIRED,
    HOPS_MAX,
    NEVER,
    NO_SESSION,
    SCHEDULED,
    TOO_MANY_DELIVERIES,
    TOO_MANY_HOPS,
    TRANSFER_DEAD_LETTER,
    UNDER_WAY,
    Event,
    Holding,
    Item,
    Possibility,
    copies,
    given_id,
    least,
)
from .memory import DuplicateMemory, Identity
from .shapes import LOCK_MS, QUEUE, SUBSCRIPTION, TOPIC, Shape

FORWARDED = "forwarded"
"""The doubt of a dead letter that a receiver had when its target came: it goes there when the lock ends."""


def _may_meet(setting_out: Iterable[Item | Spec]) -> bool:
    """Whether messages have an id in common: of them an entity that drops duplicates takes whichever comes first."""
    ids = [item.id for item in setting_out if item.id is not None]
    return len(ids) > len(set(ids))


class Model:
    """The namespace as it should be; `now` follows the clock."""

    def __init__(self, shapes: Iterable[Shape], now: int) -> None:
        self.shapes: dict[str, Shape] = {shape.path: shape for shape in shapes}
        self.items: dict[int, list[Item]] = {}  # by label
        self._events: dict[int, list[Event]] = {}  # by label
        self.now = now
        self.calm = True  # all stores have worked since the last rest
        self.rested_at = now
        self._many = False  # messages of several partitions are on their way at once
        self.holdings: dict[tuple[str, str], Holding] = {}  # by path and name of the message session
        self.left_until: dict[tuple[str, str], int] = {}  # how long holdings may go on that ended unheard
        self.states: dict[tuple[str, str], set[str | None]] = {}  # what it may be, as the last answers leave it
        self._memory = DuplicateMemory()
        self._arrivals = Arrivals(self.shapes, self._memory, self._placed_at_entity)
        self._late_takes: Counter[str] = Counter()  # by path: of receivers that went while a store kept them waiting
        self._late_claims: set[str] = set()  # paths where a store did not confirm what it deferred
        self._rank = 0

    # ---- looking

    def all(self) -> list[Item]:
        return [item for items in self.items.values() for item in items]

    def at(self, path: str, home: str) -> list[Item]:
        return [item for items in self.items.values() for item in items if item.path == path and item.home == home]

    def available(self, path: str, home: str) -> list[Item]:
        """The messages that a receiver can get in a place, whichever copies came first."""
        there = (item for item in self.at(path, home) if not item.lock_until and not item.doubts)
        return [item for item in there if item.event is None or item.event.has_in_any_case(item)]

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
        keys = {self.key_of(shape, spec) for spec in specs} if shape.partitioned else set()
        if len(keys) > 1 or (shape.duplicates and None in keys):
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
        with self.together(specs):
            self._accept(path, specs, sent_at)

    def _accept(self, path: str, specs: tuple[Spec, ...], sent_at: int) -> None:
        for place, spec in enumerate(specs):
            self._rank += 1
            item = self._item(path, spec)
            item.is_calm &= place == 0  # a batch goes to one partition: only its first message counts there
            due_at = 0 if spec.after_ms is None else sent_at + spec.after_ms
            if self._is_duplicate(item, sent_at):
                continue
            item.id = item.id or given_id(spec.label)
            if due_at > self.now:
                self._put([Possibility([item.but(home=SCHEDULED, due_at=due_at)])])
            else:
                self._put(self._possibilities(self._placed_at_entity(item)))

    def schedule(self, path: str, spec: Spec, number: int | None, *, sent_at: int, is_under_way: bool) -> None:
        """A message was stored until its time; `is_under_way`: perhaps not yet in its own partition."""
        self._rank += 1
        item = self._item(path, spec)
        if is_under_way and self._arrivals.identity(item) is not None:
            is_duplicate = self._is_perhaps_duplicate(item, sent_at)
        else:
            is_duplicate = self._is_duplicate(item, sent_at)
        if not is_duplicate:
            item.id = item.id or given_id(spec.label)
            due_at = sent_at + (spec.after_ms or 0)
            item.is_calm = False  # a request's messages go to one partition
            if due_at > self.now:
                self._put([Possibility([item.but(home=SCHEDULED, due_at=due_at, number=number)])])
            else:
                self._put(self._possibilities(self._placed_at_entity(item)))

    def perhaps_accept(self, path: str, specs: Iterable[Spec], *, sent_at: int) -> None:
        """A delivery of which nothing is there may have been stored, and be remembered."""
        for spec in specs:
            identity = self._arrivals.identity(self._item(path, spec))
            if identity is not None:
                self._memory.add(identity, sent_at, self.now, is_sure=False)

    def transfer(self, via: str, path: str, spec: Spec) -> None:
        """A message of a transaction leaves for another entity, or stays where it can't leave from."""
        self._rank += 1
        item = self._item(path, spec).but(id=spec.id or given_id(spec.label), rank=0, is_calm=False)
        reason = self._obstacle(item, path, ("Disabled", "SendDisabled"))
        if reason is None:
            self._put(self._possibilities([item.but(path=path, home=UNDER_WAY, hops=1)]))
        else:
            self._put([Possibility([item.but(path=via, home=TRANSFER_DEAD_LETTER, reason=reason)])])

    def drop(self, path: str) -> None:
        """An entity is deleted, a topic with its subscriptions, and with it all that is in it."""
        gone = {each for each, shape in self.shapes.items() if path in (each, shape.topic)}
        for possibility in (each for event in chain(*self._events.values()) for each in event.possibilities):
            possibility.items = [item for item in possibility.items if item.path not in gone]
        for item in self.all():
            if item.path in gone:
                self.remove(item)
        self._memory.drop(gone)
        for known in (self.holdings, self.left_until, self.states):
            for key in [key for key in known if key[0] in gone]:
                del known[key]
        for each in gone:
            del self.shapes[each]

    def may_remember(self, identity: Identity) -> bool:
        """Whether an entity that drops duplicates may have remembered this identity since the last quiet point."""
        return self._memory.has(identity, self.rested_at, self.now) is not False

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
            rank=self._rank if spec.after_ms is None else 0,  # it may have waited for its time
            is_calm=self.calm,
        )

    def _is_duplicate(self, item: Item, sent_at: int) -> bool:
        """Whether a message that was sent is dropped; if that is open it is in doubt."""
        identity = self._arrivals.identity(item)
        if identity is None:
            return False
        had = self._memory.has(identity, sent_at, self.now)
        if had is not True and any(each.doubts and each.id == item.id for each in self.possible()):
            had = None  # it may have come from elsewhere before
            self._memory.expect(identity, self.rested_at)
        if had is None:
            item.doubts.add("taken")
        self._memory.add(identity, sent_at, self.now)
        return had is True

    def _is_perhaps_duplicate(self, item: Item, sent_at: int) -> bool:
        """`_is_duplicate` for a message that another one with its id may overtake."""
        identity = self._arrivals.identity(item)
        if identity is None or self._memory.has(identity, sent_at, self.now):
            return identity is not None
        item.doubts.add("taken")
        self._memory.expect(identity, self.rested_at)
        return False

    # ---- arriving

    def _possibilities(
        self, items: Iterable[Item], *, source: Item | None = None, since: int | None = None
    ) -> list[Possibility]:
        """Where messages and those under way are in the end, which come from `source`; now, or at any time `since`."""
        items = list(items)
        others = [each for item in items[:1] for each in self.items.get(item.label, ()) if each is not source]
        is_certain = self._is_certain()
        time = Time(since or (self.now if is_certain else self.rested_at), self.now, is_certain)
        is_single = not others and not any(item.label in self._events for item in items)
        return self._arrivals.possibilities(items, time, is_single=is_single)

    @contextmanager
    def together(self, setting_out: Iterable[Item | Spec]) -> Iterator[None]:
        """These messages set out together: which of those that may meet comes first depends on their ways."""
        before = self._many
        self._many = before or _may_meet(setting_out)
        try:
            yield
        finally:
            self._many = before

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
                there = copy.but(path=subscription.path)
                found += self._placed(there.but(ttl_ms=least(there.ttl_ms, shape.ttl_ms)))
        return found

    def _placed(self, item: Item) -> list[Item]:
        """A message becomes active in a queue or subscription."""
        shape = self.shapes[item.path]
        item = self._tracked(item).but(home=ACTIVE, ttl_ms=least(item.ttl_ms, shape.ttl_ms), number=None)
        item = item.but(count=(0, 0), doubts=set(item.doubts))
        if shape.forward_to is not None:
            if item.hops >= HOPS_MAX:
                return self.bury(item, TOO_MANY_HOPS)
            return self._forwarded(item, shape.forward_to)
        if shape.sessions and item.session is None:  # a copy of a topic
            return self.bury(item, NO_SESSION)
        if item.ttl_ms is not None:
            earliest = (self.now if self.calm else self.rested_at) + item.ttl_ms
            item = item.but(expires=(earliest, earliest if self.calm else NEVER))
        self._doubt_count(item, self._late_takes[item.path])
        if item.path in self._late_claims:
            item.doubts.add("claimed")
        return [item]

    def _forwarded(self, item: Item, target: str, *, buried: bool = False) -> list[Item]:
        """A message goes from its entity to `target`; if it can't, it becomes a dead letter there, or stays one."""
        reason = self._obstacle(item, target, () if buried else ("Disabled",))
        if reason is not None:
            return [item] if buried else self.bury(item, reason)
        there = item.but(path=target, home=UNDER_WAY, hops=item.hops + 1)
        return [there.but(expires=(NEVER, NEVER), lock_until=0)]

    def _obstacle(self, item: Item, target: str, closed: tuple[str, ...]) -> str | None:
        """Why `target` does not take a message (docs/reference/waiting.md); `closed`: with which status."""
        shape = self.shapes.get(target)
        if shape is None:
            return "MessagingEntityNotFound"
        if shape.status in closed:
            return "MessagingEntityDisabled"
        if shape.kind == QUEUE and shape.sessions and item.session is None:
            return NO_SESSION
        return None  # that a SessionId equals the PartitionKey is a rule for senders only

    def create(self, shape: Shape) -> None:
        """An entity is there; dead letters that waited for it go there."""
        self.shapes[shape.path] = shape
        waiting = [
            item
            for item in self.all()
            if item.home == DEAD_LETTER and self.shapes[item.path].forward_dead_letters_to == shape.path
        ]
        with self.together(waiting):
            for item in waiting:
                if not self._goes_on(item):
                    continue
                if item.lock_until:
                    item.doubts.add(FORWARDED)
                    continue
                moved = self._possibilities(self._forwarded(item, shape.path, buried=True), source=item)
                self.remove(item)
                self._put(moved)

    def _goes_on(self, item: Item) -> bool:
        """Whether a dead letter is forwarded from where it is, once no receiver has it."""
        target = self.shapes[item.path].forward_dead_letters_to if item.home == DEAD_LETTER else None
        return target is not None and item.hops < HOPS_MAX and self._obstacle(item, target, ()) is None

    def forward_freed(self) -> None:
        """Dead letters whose locks have ended have gone where dead letters of their entity go."""
        freed = [item for item in self.all() if item.doubts == {FORWARDED} and not item.lock_until]
        with self.together(freed):
            for item in freed:
                moved = self.suppose(item, FORWARDED)
                self.remove(item)
                self._put(moved, since=self.rested_at)

    def bury(self, item: Item, reason: str | None) -> list[Item]:
        """A message becomes a dead letter, where it is or where dead letters go."""
        shape = self.shapes[item.path]
        item = item.but(
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
        if target is None:
            return [item]
        if item.hops >= HOPS_MAX:
            return [item]
        return self._forwarded(item, target, buried=True)

    def _tracked(self, item: Item) -> Item:
        """The order of messages with the same key holds through entities; without a key there is none to hold."""
        is_ordered = item.partition_key is not None or not self.is_partitioned(item.path)
        trail = (*item.trail, (item.path, item.partition_key))
        return item.but(trail=trail, rank=item.rank if is_ordered else 0)

    # ---- what happens to a message that is there

    def after(self, item: Item, what: str, *, since: int | None = None) -> list[Possibility]:
        """What may become of a message: it is taken, expires, or is dead-lettered for one reason or the other."""
        return self._possibilities(self._after(item, what), source=item, since=since)

    def _after(self, item: Item, what: str) -> list[Item]:
        gone = item.but(lock_until=0, number=None, doubts=item.doubts & {"taken"})
        if what == "taken":
            return []
        if what == "expired":
            return self.bury(gone, EXPIRED) if self.shapes[item.path].bury_expired else []
        if what == "delivered too often":
            high = item.count[1]
            least_count = min(self.shapes[item.path].deliveries_max, high)
            return self.bury(gone.but(count=(least_count, high)), TOO_MANY_DELIVERIES)
        if what == "dead-lettered":
            return self.bury(gone, BY_CLIENT)
        if what == FORWARDED:
            target = self.shapes[item.path].forward_dead_letters_to
            assert target is not None, "where dead letters go never changes"
            return self._forwarded(gone, target, buried=True)
        if what in ("deferred", "claimed"):
            home = DEFERRED_HOMES.get(item.home, item.home)
            counted = home == DEFERRED
            count, most = (item.count[0] + counted, item.count[1] + counted), self.shapes[item.path].deliveries_max
            if counted and what == "deferred" and count[0] >= most:
                return self.bury(gone.but(count=count), TOO_MANY_DELIVERIES)
            deferred = gone.but(home=home, number=item.number, expires=(NEVER, NEVER), count=count)
            if counted and what == "deferred" and count[1] >= most:
                deferred.doubts.add("delivered too often")
            return [deferred]
        assert what == "activated", what
        return self._placed_at_entity(gone.but(due_at=0, is_calm=item.is_calm and self.calm, rank=0))

    def happen(self, item: Item, what: str) -> None:
        """`after`, for good."""
        possibilities = self.after(item, what)
        self.remove(item)
        self._put(possibilities)

    def suppose(self, item: Item, what: str) -> list[Possibility]:
        """`after`, without any consequence; what may have expired since is in doubt."""
        possibilities = self.after(item, what, since=self.rested_at)
        for possibility in possibilities:
            # What is known to have happened only now may have happened at any time since the last quiet point.
            for each in possibility.items:
                if each.home == ACTIVE and each.ttl_ms is not None:
                    each.expires = (min(each.expires[0], self.rested_at + each.ttl_ms), each.expires[1])
                if self._may_expire(each):
                    each.doubts.add("expired")
        return possibilities

    def follow(self, item: Item, is_it: Callable[[Item], bool], depth: int) -> bool:
        """Whether doubts of a message, one after the other, lead to what `is_it` describes; if so, one was right."""
        supposed = [self.suppose(item, what) for what in sorted(item.doubts - {"taken"})]
        leading = [next((each for each in found if self._leads(each, is_it, depth)), None) for found in supposed]
        first = next(filter(None, leading), None)
        if first is None:
            return False
        self.confirm(item)
        self.remove(item)
        possibilities = [each for found, leads in zip(supposed, leading, strict=True) if leads for each in found]
        possibilities.sort(key=lambda each: each is not first)
        self._put(possibilities, since=self.rested_at)
        if not any(map(is_it, first.items)):
            any(self.follow(each, is_it, depth - 1) for each in list(first.items))
        return True

    def may_become(self, item: Item, is_it: Callable[[Item], bool], depth: int = 3) -> bool:
        """Whether doubts of a message, one after the other, lead to what `is_it` describes."""
        return any(
            self._leads(supposed, is_it, depth - 1)
            for what in sorted(item.doubts - {"taken"})
            for supposed in self.suppose(item, what)
        )

    def _leads(self, possibility: Possibility, is_it: Callable[[Item], bool], depth: int) -> bool:
        """Whether what `is_it` describes is there, or is if doubts are right, one after the other."""
        if any(map(is_it, possibility.items)):
            return True
        return depth > 0 and any(self.may_become(each, is_it, depth) for each in possibility.items)

    # ---- where copies of a message met

    def came_another_way(self, label: int, is_it: Callable[[Item], bool]) -> bool:
        """Whether what `is_it` describes is there if copies met in another order; if so, they did."""
        for event in self.events(label):
            for possibility in event.possibilities[1:]:
                if self._leads(possibility, is_it, 2):
                    self.switch(event, possibility)
                    if not any(map(is_it, possibility.items)):
                        any(self.follow(each, is_it, 1) for each in list(possibility.items))
                    return True
        return False

    def events(self, label: int) -> list[Event]:
        """What happened to a message in ways of which it is open which it was."""
        return self._events.get(label, [])

    def switch(self, event: Event, possibility: Possibility) -> None:
        """One of the possibilities takes the place of that in the model."""
        for item in event.possibilities[0].items:
            self.remove(item)
        event.possibilities.sort(key=lambda each: each is not possibility)
        for item in possibility.items:
            self.items.setdefault(item.label, []).append(item)

    def confirm(self, item: Item) -> None:
        """A message was seen where it is."""
        if item.event is not None:
            item.event.confirm(item)

    def possible(self) -> list[Item]:
        """All messages, and those that are there if copies met in another order."""
        if not self._events:
            return self.all()
        possibilities = (each for event in chain(*self._events.values()) for each in event.possibilities)
        return list(dict.fromkeys(chain(self.all(), *(each.items for each in possibilities))))

    def _may_expire(self, item: Item) -> bool:
        return item.home == ACTIVE and item.expires[0] <= self.now

    def resolved(self, item: Item, possibilities: list[Possibility], final: Iterable[Item]) -> None:
        """A quiet point has shown what became of a message: one of `possibilities`, and at last `final`."""
        identities = dict.fromkeys(sorted(self._later_identities(possibilities), key=repr), False)
        identities |= self._identities(possibilities)
        self.remove(item)
        for identity, is_sure in identities.items():
            self._memory.add(identity, self.rested_at, self.now, is_sure=is_sure)
        self._put([Possibility(list(final))])

    def remove(self, item: Item) -> None:
        items = self.items[item.label]
        items[:] = [each for each in items if each is not item]
        if not items:
            del self.items[item.label]

    def _put(self, possibilities: list[Possibility], *, since: int | None = None) -> None:
        """Something has happened, now or at some time `since` then."""
        for identity, is_sure in self._identities(possibilities):
            if since is None and not self._is_certain():
                self._memory.expect(identity, self.rested_at, is_sure=is_sure)
            else:
                self._memory.add(identity, self.now if since is None else since, self.now, is_sure=is_sure)
        event = Event(possibilities) if len(possibilities) > 1 else None
        for item in chain.from_iterable(possibility.items for possibility in possibilities):
            item.event = event
            events = self._events.setdefault(item.label, []) if event is not None else []
            if event is not None and event not in events:
                events.append(event)
        for item in possibilities[0].items:
            items = self.items.setdefault(item.label, [])
            for other in items:
                if (item.path, item.rule) == (other.path, other.rule):
                    item.rank = other.rank = 0  # it is open which of them came which way
            items.append(item)

    def _identities(self, possibilities: list[Possibility]) -> Iterable[tuple[Identity, bool]]:
        """As what entities may remember a message, and whether they do in any case."""
        for identity in sorted(set().union(*(possibility.identities for possibility in possibilities)), key=repr):
            yield identity, all(possibility.identities.get(identity) for possibility in possibilities)

    def _later_identities(self, possibilities: Iterable[Possibility], depth: int = 4) -> set[Identity]:
        """As what entities may remember a message to which more may have happened, doubt after doubt."""
        found: set[Identity] = set()
        for item in chain.from_iterable(possibility.items for possibility in possibilities):
            for what in sorted(item.doubts - {"taken"}) if depth else ():
                later = self.suppose(item, what)
                found = found.union(*(each.identities for each in later), self._later_identities(later, depth - 1))
        return found

    def rested(self) -> None:
        """A quiet point: all stores work, nothing is under way, and what is where was seen."""
        self.calm = True
        self._late_takes.clear()
        self._late_claims.clear()
        self._events.clear()
        self._memory.rested(self.now)
        self.rested_at = self.now
        for item in self.all():
            if item.lock_until and self._goes_on(item):
                item.doubts.add(FORWARDED)

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
        for item in self.possible():
            if item.path == path and item.home == ACTIVE:
                self._doubt_count(item, 1)

    def claim_late(self, path: str) -> None:
        """Nobody knows what a claim has deferred: until the next quiet point that may be any message."""
        self._late_claims.add(path)
        for item in self.possible():
            if item.path == path and item.home == ACTIVE:
                item.doubts.add("claimed")

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
            if item.lock_until and item.lock_until <= now and item.home != SCHEDULED:
                self.attempt_failed(item, sure=item.lock_sure and self.calm)
        for item in self.possible():
            earliest, latest = item.expires
            if earliest > now or item.home != ACTIVE or (item.lock_until and item.lock_sure):
                continue
            if latest <= now and not item.lock_until and not item.doubts and item.event is None:
                self.happen(item, "expired")
            else:
                item.doubts.add("expired")
        due = [item for item in self.all() if item.home == SCHEDULED and item.due_at <= now]
        for item in sorted(due, key=lambda each: each.due_at):
            self.happen(item, "activated")
        self._many = False
