"""A quiet point: what is in the stores, compared with the model, message by message.

Doubts end here: a message that is not where it was is where one of its doubts would have brought it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, pairwise, permutations, product

from emubus.broker.api import partition_for_key
from emubus.broker.partition.records import HOMES, OUTBOXES

from .items import ACTIVE, NO_SESSION, Item, Possibility
from .model import Model
from .searching import search
from .world import STORES, Mark, Row, World

Report = Callable[[str, str], None]
Explanation = tuple[list[Possibility], list[tuple[Item, Row]]]
NOT_FORWARDED = ("MessagingEntityNotFound", "MessagingEntityDisabled")
TALLY_MIN, TALLY_SLACK = 32, 6
TURNS_MAX = 5  # items whose orders are tried


class Tally:
    """How many messages without a key each partition of an entity got while all stores worked.

    Counted over the whole run, and from one quiet point to the next: forwarded heaps even out over many floods.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[int]] = {}
        self._lately: dict[tuple[str, str], Counter[int]] = {}
        self._seen: set[tuple[str, int, int]] = set()

    def add(self, item: Item, number: int) -> None:
        """A message was seen for the first time.

        The copies that several rules of a subscription make of one lie beside each other, and count once; those that
        come from another entity have each a turn of their own.
        """
        index = number >> 48
        if (item.path, item.label, index) in self._seen:
            return
        self._seen.add((item.path, item.label, index))
        came = (item.path, "forwarded" if item.hops else "sent")
        self._counts.setdefault(came, Counter())[index] += 1
        if item.hops:
            self._lately.setdefault(came, Counter())[index] += 1

    def clear(self) -> None:
        """The broker was started anew, and its turns with it."""
        self._counts.clear()
        self._lately.clear()

    def check(self, report: Report) -> None:
        """P11, with some slack for few messages."""
        lately, self._lately = self._lately, {}
        for (path, came), counts in chain(lately.items(), self._counts.items()):
            mean = counts.total() / STORES
            if counts.total() >= TALLY_MIN and max(counts.values()) > 1.5 * mean + TALLY_SLACK:
                spread = [counts[index] for index in range(STORES)]
                report("spread", f"{counts.total()} messages that were {came} to '{path}' without a key lie {spread}")
                counts.clear()


def compare(model: Model, world: World, tally: Tally, report: Report) -> None:
    """Everything is where it belongs; `report(rule, seen)` hears what is not, and the model then follows the broker."""
    rows = world.rows()
    by_label: dict[int, list[Row]] = {}
    for row in rows:
        if row.home in OUTBOXES:
            report("rest", f"it is still under way: {row}")
        by_label.setdefault(row.label, []).append(row)
    labels = sorted(by_label.keys() | model.items.keys())
    # What became of one message may depend on what became of another with its id: what is not explained comes last.
    for label in [label for label in labels if not _match(label, by_label.get(label, []), model, tally)]:
        if not _match(label, by_label.get(label, []), model, tally):
            _adopt_rows(label, by_label.get(label, []), model, tally, report)
    _check_places(model, rows, report)
    _check_order(model, report)
    _check_counts(world, rows, report)
    tally.check(report)


def _match(label: int, rows: list[Row], model: Model, tally: Tally) -> bool:
    """Whether a message and its copies are where they were, or what became of them is explained."""
    _choose_possibilities(label, rows, model)
    items = list(model.items.get(label, ()))
    if len(items) == len(rows) == 1 and fits(items[0], rows[0]):
        see(items[0], rows[0], model, tally)  # nearly always, and much quicker than what follows
        return True
    pairs = _pairs(items, rows)
    _give_way(items, rows, pairs, model)
    left = [row for place, row in enumerate(rows) if place not in pairs.values()]
    missing = [item for index, item in enumerate(items) if index not in pairs]
    if len(missing) > 1 or _unexplained(missing, left, model):
        return _is_explained_together(label, rows, model, tally)
    for index, place in pairs.items():
        see(items[index], rows[place], model, tally)
    for item in missing:
        _resolve(item, left, model, tally)
    return True


def _adopt_rows(label: int, rows: list[Row], model: Model, tally: Tally, report: Report) -> None:
    """Report what is not explained; the model goes on with what is there."""
    items = list(model.items.get(label, ()))
    pairs = _pairs(items, rows)
    for index, place in pairs.items():
        see(items[index], rows[place], model, tally)
    left = [row for place, row in enumerate(rows) if place not in pairs.values()]
    for item in (item for index, item in enumerate(items) if index not in pairs):
        others = "; ".join(map(str, left)) or "nowhere"
        report("lost", f"{item} is not there, but {others}")
        model.remove(item)
    for row in left:
        report("stray", str(row))
        adopt(row, model)


def _is_explained_together(label: int, rows: list[Row], model: Model, tally: Tally) -> bool:
    """Whether all rows are what may have become of all copies together; if so, they are. What is remembered is open."""
    events = list(model.events(label))
    settled = [item for item in model.items.get(label, ()) if item.event is None]
    for possibilities in product(*(list(event.possibilities) for event in events)):
        items = [*settled, *chain.from_iterable(each.items for each in possibilities)]
        found = search(items, rows, model, fits)
        if found is None:
            continue
        for event, possibility in zip(events, possibilities, strict=True):
            model.switch(event, possibility)
        for item, pairs in zip(items, found, strict=True):
            if [each for each, _ in pairs] != [item]:
                supposed = [model.suppose(item, what) for what in sorted(item.doubts)]
                model.resolved(item, [*chain(*supposed), Possibility([])], [each for each, _ in pairs])
            for each, row in pairs:
                see(each, row, model, tally)
        return True
    return False


def _choose_possibilities(label: int, rows: list[Row], model: Model) -> None:
    """Where it is open what became of copies that met: that which explains most of what is there."""
    events = model.events(label)
    if not events:
        return

    def misses(possibilities: tuple[Possibility, ...]) -> int:
        chosen = [item for possibility in possibilities for item in possibility.items]
        items = [item for item in model.items.get(label, ()) if item.event is None] + chosen
        pairs = _pairs(items, rows)
        left = [row for place, row in enumerate(rows) if place not in pairs.values()]
        missing = [item for index, item in enumerate(items) if index not in pairs]
        return _unexplained(_in_turn(missing, left, model), left, model)

    best = min(product(*(event.possibilities for event in events)), key=misses)
    for event, possibility in zip(events, best, strict=True):
        model.switch(event, possibility)


def _pairs(items: list[Item], rows: list[Row]) -> dict[int, int]:
    """Items and rows that fit each other, as many as possible, as indices; items without doubts come first.

    Two copies of a message may fit the same row, while only one of them fits another row, too.
    """
    owners: dict[int, int] = {}  # the item of each row

    def finds_row(index: int, tried: set[int]) -> bool:
        for place, row in enumerate(rows):
            if place not in tried and fits(items[index], row):
                tried.add(place)
                if place not in owners or finds_row(owners[place], tried):
                    owners[place] = index
                    return True
        return False

    for index in sorted(range(len(items)), key=lambda each: bool(items[each].doubts)):
        finds_row(index, set())
    pairs = {index: place for place, index in owners.items()}
    _uncross(pairs, items, rows)
    return pairs


def _uncross(pairs: dict[int, int], items: list[Item], rows: list[Row]) -> None:
    """Of two copies that fit the rows of each other, that with the shorter time to live expires first."""
    for one, other in permutations(pairs, 2):
        shorter, longer = items[one].ttl_ms, items[other].ttl_ms
        if shorter is None or longer is None or shorter >= longer:
            continue
        late, early = rows[pairs[one]], rows[pairs[other]]
        if late.expires_at > early.expires_at and fits(items[one], early) and fits(items[other], late):
            pairs[one], pairs[other] = pairs[other], pairs[one]


def _give_way(items: list[Item], rows: list[Row], pairs: dict[int, int], model: Model) -> None:
    """Take items in doubt out of `pairs` whose rows are what became of others: their doubts explain that they go."""
    for index in [index for index in pairs if items[index].doubts]:
        missing = [item for place, item in enumerate(items) if place not in pairs]
        left = [row for place, row in enumerate(rows) if place not in pairs.values()]
        unexplained = _unexplained(missing, left, model)
        if not unexplained:
            return
        place = pairs.pop(index)
        if _unexplained([*missing, items[index]], [*left, rows[place]], model) >= unexplained:
            pairs[index] = place


def _in_turn(missing: list[Item], left: list[Row], model: Model) -> list[Item]:
    """The order in which the items explain the most: the first takes rows that may be what became of others.

    What takes more rows goes first: an entity remembers the copy that it has taken, and drops the others.
    """
    if len(missing) < 2:
        return missing
    in_turn = sorted(missing, key=lambda item: -_rows_taken(item, left, model))
    if len(missing) > TURNS_MAX or not _unexplained(in_turn, left, model):
        return in_turn
    return list(min(permutations(in_turn), key=lambda order: _unexplained(order, left, model)))


def _rows_taken(item: Item, left: list[Row], model: Model) -> int:
    return max((len(found) for _, found in _explanations(item, left, model)), default=0)


def _resolve(item: Item, left: list[Row], model: Model, tally: Tally) -> None:
    """The item's doubts explain what is there instead.

    An explanation with rows goes before one without: that a message is gone would fit whatever is there. Of several
    that are as good it is open which is right, and so what entities remember.
    """
    explanations = _explanations(item, left, model)
    pairs = max((found for _, found in explanations), key=len)
    possible = [possibilities for possibilities, found in explanations if len(found) == len(pairs)]
    model.resolved(item, [*chain(*possible)], [each for each, _ in pairs])
    for each, row in pairs:
        see(each, row, model, tally)


def _explanations(item: Item, left: list[Row], model: Model) -> list[Explanation]:
    """For each doubt of a message that may be right: what may have become of it, and the rows that are its."""
    explanations: list[Explanation] = []
    for what in sorted(item.doubts):
        possibilities = model.suppose(item, what)
        explained = (_explained(possibility.items, left, model) for possibility in possibilities)
        found = max((each for each in explained if each is not None), key=len, default=None)
        if found is not None:
            explanations.append((possibilities, found))
    return explanations


def _unexplained(items: Iterable[Item], rows: list[Row], model: Model) -> int:
    """How many items and rows are left when each item takes the most rows that it explains."""
    missed = 0
    for item in items:
        explanations = _explanations(item, rows, model)
        missed += not explanations
        rows = _without(rows, max((found for _, found in explanations), key=len, default=[]))
    return missed + len(rows)


def _without(rows: list[Row], pairs: list[tuple[Item, Row]]) -> list[Row]:
    left = list(rows)
    for _, row in pairs:
        left.remove(row)
    return left


def _explained(items: Iterable[Item], rows: list[Row], model: Model, depth: int = 4) -> list[tuple[Item, Row]] | None:
    """The rows of items, or of what became of them by their doubts; None if they can't be explained so."""
    left = list(rows)
    found: list[tuple[Item, Row]] = []
    for item in items:
        row = next((row for row in left if fits(item, row)), None)
        more = [(item, row)] if row is not None else _explained_by_doubts(item, left, model, depth)
        if more is None:
            return None
        found += more
        for _, seen in more:
            left.remove(seen)
    return found


def _explained_by_doubts(item: Item, rows: list[Row], model: Model, depth: int = 4) -> list[tuple[Item, Row]] | None:
    supposed = (possibility for what in sorted(item.doubts) if depth for possibility in model.suppose(item, what))
    explained = (_explained(possibility.items, rows, model, depth - 1) for possibility in supposed)
    return max((each for each in explained if each is not None), key=len, default=None)


def is_row(row: Row, item: Item) -> bool:
    """`fits`, with the row first."""
    return fits(item, row)


def fits(item: Item, row: Row) -> bool:
    """Whether a stored message is that of the model."""
    return (
        item.path == row.path
        and item.home == row.home.name
        and item.session == row.session
        and item.key == row.key
        and item.colour == row.colour
        and item.rule == row.rule
        and item.reason == row.reason
        and item.count[0] <= row.deliveries <= item.count[1]
        and (item.number is None or item.number == row.number)
        and (item.home != ACTIVE or item.ttl_ms == row.ttl_ms)  # it tells copies apart that expired late
        and bears(item, (row.hops, row.expires_at, row.deliveries))
    )


def bears(item: Item, mark: Mark) -> bool:
    """Whether a message of the model was forwarded so often, and expires then."""
    hops, expires_at, _ = mark
    return item.hops == hops and (item.home != ACTIVE or _expires(item, expires_at))


def latitude(item: Item, mark: Mark | None) -> tuple[bool, bool, int, int]:
    """Of several items that fit a message the least is it: that which fits the fewest others."""
    earliest, latest = item.expires
    is_counted = mark is not None and item.count[0] <= mark[2] <= item.count[1]
    return item.number is None, not is_counted, latest, -earliest


def _expires(item: Item, at: int) -> bool:
    return item.expires[0] <= at <= item.expires[1] if at else item.ttl_ms is None


def see(item: Item, row: Row, model: Model, tally: Tally) -> None:
    """A message is where it should be: what was open about it is known now."""
    if item.number is None:
        item.number = row.number
        if item.is_calm and item.home == ACTIVE and model.is_partitioned(item.path) and not _came_with_key(item, model):
            tally.add(item, row.number)
    item.count = (row.deliveries, row.deliveries)
    if item.home == ACTIVE and row.expires_at:
        item.expires = (row.expires_at, row.expires_at)
    item.doubts.clear()
    item.event = None


def _came_with_key(item: Item, model: Model) -> bool:
    """Whether a key may have chosen the partition.

    A copy that an action leaves without a key stays where its message came to. Of two copies of a message that look
    alike, one of which came with a key, nobody knows which is which.
    """
    top = model.shapes[model.shapes[item.path].topic]
    alike = (each for each in model.items.get(item.label, ()) if each.is_like(item))
    keys = {key for each in alike for path, key in each.trail if path in (item.path, top.path)}
    return bool(keys - {None}) or (item.id is not None and top.duplicates)


def adopt(row: Row, model: Model) -> None:
    """The model goes on with what is there."""
    if row.path in model.shapes:
        never = (row.expires_at, row.expires_at) if row.expires_at else (1 << 62, 1 << 62)
        item = Item(
            row.label, row.path, row.home.name, row.session, row.key, None, row.colour, None, row.rule, row.reason
        )
        item.hops, item.count, item.expires, item.number = row.hops, (row.deliveries, row.deliveries), never, row.number
        item.ttl_ms = row.ttl_ms
        item.is_calm = False
        model.items.setdefault(row.label, []).append(item)


def _check_places(model: Model, rows: list[Row], report: Report) -> None:
    for row in rows:
        if row.path not in model.shapes or not model.is_partitioned(row.path) or row.home in OUTBOXES:
            continue
        forwards = model.shapes[row.path].forward_to is not None
        if row.reason in NOT_FORWARDED or (forwards and row.reason == NO_SESSION):
            continue  # it lies where it could not leave from
        key = row.session if row.session is not None else row.key
        if key is not None and row.number >> 48 != partition_for_key(key, STORES):
            report("one place per key", f"not in the partition {partition_for_key(key, STORES)} of its key: {row}")


def _check_order(model: Model, report: Report) -> None:
    groups: dict[object, list[Item]] = {}
    looks = Counter((item.label, item.path, item.rule) for item in model.all())
    for item in model.all():
        is_one = looks[item.label, item.path, item.rule] == 1  # else it is open which copy came which way
        if item.home == ACTIVE and item.rank and item.number is not None and is_one:
            groups.setdefault((item.path, item.trail), []).append(item)
    for group in groups.values():
        group.sort(key=lambda item: item.number or 0)
        for first, second in pairwise(group):
            if first.rank > second.rank:
                report("order", f"{second} was sent before {first} and lies behind it")


def _check_counts(world: World, rows: list[Row], report: Report) -> None:
    there: dict[str, Counter[object]] = {}
    for row in rows:
        there.setdefault(row.path, Counter())[row.home] += 1
        there[row.path]["bytes"] += row.size_bytes
    for (path, _), state in world.states().items():
        if path:  # else of a deleted entity
            there.setdefault(path, Counter())["bytes"] += len(state)
    for entity in world.broker.namespace.entities():
        totals = entity.totals_now()
        found = there.pop(entity.path, Counter())
        counted = ([found[home] for home in HOMES], found["bytes"])
        if (totals.messages, totals.bytes_used) != counted or totals.is_limited:
            report("counts", f"'{entity.path}' counts {totals}, and there are {counted}")
    for path, found in there.items():
        report("counts", f"{found} of '{path}', an entity that is not there")
