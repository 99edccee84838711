"""Random namespaces and random commands: all chance comes from one seed.

The generator looks at the model to say things that mean something (settle what is held, cancel what is scheduled), and
what it says names labels and paths, so that the list of commands can be replayed, and cut, without it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from . import commands as c
from .items import ACTIVE, DEFERRED, DEFERRED_HOMES, SCHEDULED
from .numbered import PLACES
from .shapes import ACTIONS, QUEUE, SUBSCRIPTION, TOPIC, Rule, Shape
from .steps import HOMES, OUTCOMES, Run
from .world import STORES

T = TypeVar("T")

COLOURS = ("red", "green", "blue")
NAMES = ("a", "b", "c", "d", "e", "f", "g")
COMMANDS_PER_SEED = 1_000
BACKLOG_MAX = 150
TTLS_MS = (5_000, 40_000, 300_000)


def namespace(chance: random.Random) -> tuple[Shape, ...]:
    """Queues, topics and subscriptions that forward to one another."""
    queues = [f"q{index}" for index in range(chance.randint(2, 5))]
    topics = [f"t{index}" for index in range(chance.randint(1, 2))]
    shapes: list[Shape] = []
    tops = [*queues, *topics]
    chance.shuffle(tops)
    small = {top for top in tops if chance.random() < 0.15}
    for place, top in enumerate(tops):
        targets = [each for each in tops[place + 1 :] if each not in small]
        shapes.append(_top(chance, top, targets, small=top in small))
        if top in topics:
            for index in range(chance.randint(0, 3)):
                shapes.append(_subscription(chance, f"{top}/Subscriptions/s{index}", targets))
    return tuple(shapes)


def _top(chance: random.Random, path: str, targets: Sequence[str], *, small: bool) -> Shape:
    kind = QUEUE if path.startswith("q") else TOPIC
    forwards = kind == QUEUE and bool(targets) and not small and chance.random() < 0.35
    is_queue = kind == QUEUE
    return Shape(
        path,
        kind,
        partitioned=chance.random() < 0.75,
        sessions=is_queue and not forwards and chance.random() < 0.3,
        duplicates=chance.random() < 0.2,
        small=small,
        ttl_ms=_sometimes(chance, 0.15, TTLS_MS),
        bury_expired=is_queue and chance.random() < 0.5,
        deliveries_max=chance.randint(1, 3),
        forward_to=chance.choice(targets) if forwards else None,
        forward_dead_letters_to=_sometimes(chance, 0.2, targets) if is_queue else None,
    )


def _subscription(chance: random.Random, path: str, targets: Sequence[str]) -> Shape:
    forwards = bool(targets) and chance.random() < 0.4
    return Shape(
        path,
        SUBSCRIPTION,
        sessions=not forwards and chance.random() < 0.35,
        ttl_ms=_sometimes(chance, 0.15, TTLS_MS),
        bury_expired=chance.random() < 0.5,
        deliveries_max=chance.randint(1, 3),
        forward_to=chance.choice(targets) if forwards else None,
        forward_dead_letters_to=_sometimes(chance, 0.2, targets),
        rules=tuple(_rule(chance, f"r{index}") for index in range(chance.choice((0, 1, 1, 1, 2, 3)))),
    )


def _rule(chance: random.Random, name: str) -> Rule:
    colour = _sometimes(chance, 0.4, COLOURS)
    kind = _sometimes(chance, 0.5, tuple(ACTIONS))
    value = chance.choice(COLOURS if kind == "set colour" else NAMES)
    return Rule(name, colour, kind, value, sql=chance.random() < 0.5)


def _sometimes(chance: random.Random, probability: float, values: Sequence[T]) -> T | None:
    return chance.choice(values) if values and chance.random() < probability else None


class Generator:
    """The next command, by chance and by what the model holds."""

    def __init__(self, chance: random.Random, run: Run) -> None:
        self._chance = chance
        self._run = run
        self._label = 0
        self._shapes = tuple(run.model.shapes.values())
        self._troubled = False
        self._since_rest = 0
        self._rest_every = chance.choice((10, 25, 60))
        self._pace: list[tuple[Callable[[], c.Command | None], float]] = [
            (self._send, 10),
            (self._flood, 1.5),
            (self._schedule, 3),
            (self._cancel, 2),
            (self._receive, 5),
            (self._settle, 8),
            (self._deferred, 1.5),
            (self._lock, 1),
            (self._deliver_now, 0.7),
            (self._claim, 0.7),
            (self._settle_together, 1.5),
            (self._renew, 1),
            (self._peek, 0.5),
            (self._purge, 0.5),
            (self._session, 6),
            (self._transact, 2),
            (self._change, chance.choice((0, 0.2, 0.6))),
            (self._kill, chance.choice((0, 0.1, 0.4))),
            (self._trouble, chance.choice((0, 2, 4))),
            (self._mend, 1),
            (self._restart, chance.choice((0, 0.1, 0.4))),
            (self._advance, 2),
        ]

    def next(self) -> c.Command:
        """A command; a rest comes now and then."""
        self._since_rest += 1
        if self._since_rest > self._rest_every:
            self._since_rest = 0
            return c.Rest()
        if len(self._run.model.items) > BACKLOG_MAX and self._chance.random() < 0.5:
            emptied = self._empty()
            if emptied is not None:
                return emptied
        makers, weights = zip(*self._pace, strict=True)
        while True:
            found: c.Command | None = self._chance.choices(makers, weights)[0]()
            if found is not None:
                return found

    # ---- kinds

    def _spec(self, to: Shape, *, key: bool | None = None, later: bool = False) -> c.Spec:
        chance = self._chance
        self._label += 1
        session = chance.choice(NAMES) if to.sessions and chance.random() < 0.95 else _sometimes(chance, 0.3, NAMES)
        own = session if session is not None and chance.random() < 0.2 else None
        if key is False and not to.sessions:
            session = None
        own = own or (_sometimes(chance, 0.3, NAMES) if session is None and key is not False else None)
        is_late = later or (key is None and chance.random() < 0.05)
        return c.Spec(
            self._label,
            session,
            None if key is False else own,
            f"id{chance.randint(0, 30)}" if chance.random() < 0.3 and key is not False else None,
            chance.choice(COLOURS),
            _sometimes(chance, 0.15, TTLS_MS),
            chance.choice((1_000, 20_000, 100_000)) if is_late else None,
            chance.choice((8_000, 12_000)) if to.small and chance.random() < 0.7 else 0,
        )

    def _tops(self) -> list[Shape]:
        return [shape for shape in self._run.model.shapes.values() if shape.kind != SUBSCRIPTION]

    def _send(self) -> c.Command:
        to = self._chance.choice(self._tops())
        if self._chance.random() < 0.75:
            return c.Send(to.path, (self._spec(to),))
        specs = [self._spec(to, key=self._chance.choice((None, False)))]
        first = specs[0]
        for _ in range(self._chance.randint(0, 4)):
            self._label += 1
            same = self._chance.random() < 0.97
            specs.append(
                c.Spec(
                    self._label, first.session, first.key if same else "other", first.id, self._chance.choice(COLOURS)
                )
            )
        return c.Send(to.path, tuple(specs), batch=True)

    def _flood(self) -> c.Command | None:
        to = self._chance.choice(self._tops())
        if to.small:
            return None
        count = self._chance.choice((4, 16, 40))
        return c.Together(tuple(c.Send(to.path, (self._spec(to, key=False),)) for _ in range(count)))

    def _schedule(self) -> c.Command:
        to = self._chance.choice(self._tops())
        keys = self._chance.choice((None, None, False))
        count = self._chance.choice((1, 1, 2, 3, 6))
        return c.Schedule(to.path, tuple(self._spec(to, key=keys, later=True) for _ in range(count)))

    def _cancel(self) -> c.Command | None:
        scheduled = [item for item in self._run.model.all() if item.home == SCHEDULED]
        if not scheduled:
            return None
        of = self._chance.choice(scheduled).path
        labels = [item.label for item in scheduled if item.path == of]
        chosen = self._chance.sample(labels, min(len(labels), self._chance.randint(1, 3)))
        return c.Cancel(of, tuple(chosen), self._chance.choice((None, None, self._chance.randrange(STORES))))

    def _receivable(self) -> list[Shape]:
        return [shape for shape in self._run.model.shapes.values() if shape.kind != TOPIC]

    def _receive(self) -> c.Command | None:
        shapes = self._receivable()
        if not shapes:
            return None
        home = c.ACTIVE if self._chance.random() < 0.75 else c.DEAD_LETTERS
        count = self._chance.choice((1, 2, 5, 20))
        return c.Receive(self._chance.choice(shapes).path, count, home, self._chance.random() < 0.25)

    def _empty(self) -> c.Command | None:
        there = {(item.path, item.home) for item in self._run.model.all()}
        names = {home: name for name, (_, home) in HOMES.items()}
        places = sorted((path, names[home]) for path, home in there if home in names)
        if not places:
            return None
        path, home = self._chance.choice(places)
        return c.Receive(path, 500, home, True)

    def _settle(self) -> c.Command | None:
        if not self._run.held:
            return None
        label, of = self._chance.choice(list(self._run.held))
        return c.Settle(label, of, self._chance.choice(list(OUTCOMES)))

    def _deferred(self) -> c.Command | None:
        deferred = [item for item in self._run.model.all() if item.home == DEFERRED]
        if not deferred:
            return None
        first = self._chance.choice(deferred)
        labels = [item.label for item in deferred if (item.path, item.session) == (first.path, first.session)]
        chosen = self._chance.sample(labels, min(len(labels), self._chance.randint(1, 4)))
        return c.ReceiveDeferred(first.path, tuple(chosen), self._chance.random() < 0.25)

    def _lock(self) -> c.Command | None:
        places = {place: home for home, (_, place) in PLACES.items()}
        there = [item for item in self._run.model.all() if item.home in places and item.number is not None]
        if not there:
            return None
        first = self._chance.choice(there)
        home = places[first.home]
        near = [item.label for item in there if (item.path, item.home) == (first.path, first.home)]
        deferred = [item.label for item in self._run.model.at(first.path, DEFERRED_HOMES[first.home])]
        labels = self._chance.sample([*near, *deferred], min(len(near) + len(deferred), self._chance.randint(1, 6)))
        return c.LockByNumber(first.path, tuple(labels), home)

    def _deliver_now(self) -> c.Command | None:
        scheduled = [item for item in self._run.model.all() if item.home == SCHEDULED]
        if not scheduled:
            return None
        item = self._chance.choice(scheduled)
        return c.DeliverNow(item.path, item.label)

    def _claim(self) -> c.Command | None:
        there = [item for item in self._run.model.all() if item.home == ACTIVE and item.number is not None]
        if not there:
            return None
        item = self._chance.choice(there)
        below = self._chance.choice((None, None, 1, 3))
        return c.Claim(item.path, self._chance.choice((1, 5, 50)), (item.number or 0) >> 48, below)

    def _settle_together(self) -> c.Command | None:
        if not self._run.held:
            return None
        _, of = self._chance.choice(list(self._run.held))
        labels = [label for label, path in self._run.held if path == of]
        chosen = self._chance.sample(labels, min(len(labels), self._chance.randint(1, 6)))
        home = c.ACTIVE if self._chance.random() < 0.8 else c.DEAD_LETTERS
        return c.SettleTogether(of, tuple(chosen), self._chance.choice(list(OUTCOMES)), home)

    def _renew(self) -> c.Command | None:
        return c.Renew(*self._chance.choice(list(self._run.held))) if self._run.held else None

    def _place(self) -> tuple[str, str] | None:
        shapes = self._receivable()
        home = self._chance.choice((c.ACTIVE, c.ACTIVE, c.ACTIVE, c.ACTIVE, c.DEAD_LETTERS, c.TRANSFER_DEAD_LETTERS))
        return (self._chance.choice(shapes).path, home) if shapes else None

    def _peek(self) -> c.Command | None:
        place = self._place()
        return c.Peek(place[0], self._chance.choice((1, 3, 20)), place[1]) if place else None

    def _purge(self) -> c.Command | None:
        place = self._place()
        count, partition = self._chance.choice((1, 3, 50)), self._chance.randrange(STORES)
        return c.Purge(place[0], count, partition, place[1]) if place else None

    def _session(self) -> c.Command | None:
        chance = self._chance
        shapes = [shape for shape in self._receivable() if shape.sessions and shape.forward_to is None]
        if not shapes:
            return None
        holders = list(self._run.sessions.holders)
        if not holders or chance.random() < 0.25:
            return c.AcceptSession(chance.choice(shapes).path, _sometimes(chance, 0.5, NAMES))
        of, name = chance.choice(holders)
        if chance.random() < 0.1:
            name = chance.choice(NAMES)
        kind = chance.choice(("receive", "receive", "receive", "set", "get", "renew", "close"))
        match kind:
            case "receive":
                return c.ReceiveInSession(of, name, chance.choice((1, 2, 10)))
            case "set":
                return c.SetState(of, name, _sometimes(chance, 0.7, COLOURS))
            case "get":
                return c.GetState(of, name)
            case "renew":
                return c.RenewSession(of, name)
            case _:
                return c.CloseSession(of, name)

    def _transact(self) -> c.Command | None:
        chance = self._chance
        queues = [shape for shape in self._tops() if shape.kind == QUEUE and not shape.duplicates and not shape.small]
        queues = [shape for shape in queues if shape.forward_to is None]
        if not queues:
            return None
        via = chance.choice(queues)
        name = chance.choice(NAMES)
        parts: list[c.Send | c.Settle] = []
        for _ in range(chance.randint(1, 4)):
            if self._run.held and chance.random() < 0.4:
                held = [key for key in self._run.held if key[1] == via.path] or list(self._run.held)
                label, of = chance.choice(held)
                parts.append(c.Settle(label, of, chance.choice(list(OUTCOMES))))
                continue
            to = via if chance.random() < 0.6 else chance.choice(queues)
            self._label += 1
            session = name if to.sessions or chance.random() < 0.5 else None
            spec = c.Spec(self._label, session, None if session else name, colour=chance.choice(COLOURS))
            parts.append(c.Send(to.path, (spec,)))
        return c.Transact(via.path, tuple(parts), chance.choice(("commit", "commit", "commit", "rollback", "timeout")))

    def _change(self) -> c.Command | None:
        chance, shapes = self._chance, self._run.model.shapes
        gone = [shape for shape in self._shapes if shape.path not in shapes and not shape.small]
        if gone and chance.random() < 0.7:
            return c.Create(replace(chance.choice(gone), partitioned=chance.random() < 0.75))
        if not shapes or chance.random() < 0.4:
            last = self._tops()[0].path if len(self._tops()) == 1 else None
            others = [path for path in shapes if path != last]
            return c.Delete(chance.choice(others)) if others else None
        tops = [shape for shape in self._tops() if not shape.small]
        if not tops:
            return None
        statuses = ("Active", "Active", "Disabled", "SendDisabled", "ReceiveDisabled")
        top = chance.choice(tops)
        return c.SetStatus(top.path, chance.choice(statuses if top.kind == QUEUE else statuses[:4]))

    def _kill(self) -> c.Command:
        found: list[c.Send | c.Schedule | c.Settle] = []
        for make in self._chance.choices((self._send, self._schedule, self._settle), (4, 1, 3), k=6):
            command = make()
            if isinstance(command, c.Settle):
                found.append(command)
            elif isinstance(command, c.Send | c.Schedule):
                # Whether a message id was remembered can't be seen if no subscription wanted the message.
                found.append(replace(command, specs=tuple(replace(spec, id=None) for spec in command.specs)))
        return c.Kill(tuple(found), self._chance.randint(0, 40))

    def _trouble(self) -> c.Command:
        store = self._chance.randrange(STORES)
        if self._chance.random() < 0.6:
            return c.Outage(store, self._chance.choice(("down", "failing", "full", "slow")))
        return c.Tear(store, self._chance.choice(("REFUSED", "UNCONFIRMED")))

    def _mend(self) -> c.Command | None:
        troubled = sorted(self._run.world.troubled())
        return c.Mend(self._chance.choice(troubled)) if troubled else None

    def _restart(self) -> c.Command:
        return c.Restart(self._chance.random() < 0.5)

    def _advance(self) -> c.Command:
        return c.Advance(self._chance.choice((300, 2_000, 15_000, 35_000, 120_000)))
