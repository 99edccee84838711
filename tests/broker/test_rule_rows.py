"""Rules in the catalog: each has a row of its own, in order, however it comes and goes; older catalogs are upgraded."""

from __future__ import annotations

import json
import random
from typing import Final

import pytest

from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.model import catalog as catalogs
from emubus.broker.model.catalog import (
    CATALOG_TABLES,
    CATALOG_UPGRADES,
    ENTITIES,
    NAMESPACE,
    RULES,
    Catalog,
    UnreadableRowError,
)
from emubus.broker.model.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.broker.rules import compile_filter
from emubus.storage import StoreFailed
from emubus.storage.contract import upgrade_rows
from emubus.storage.memory_store import MemoryStore

from .counting import calls_of
from .namespace import open_broker

NOW: Final = 1_800_000_000_000
PATH: Final = "t/Subscriptions/s"
EVERYTHING: Final = b"\xff" * 512


def rule(name: str, value: str = "v") -> RuleDescription:
    return RuleDescription(name, CorrelationFilter(properties={"p": value}))


def subscription(*rules: RuleDescription) -> SubscriptionDescription:
    return SubscriptionDescription("t", "s", rules=rules)


class Kept:
    """A catalog in memory, and what the next start reads of it; a commit fails while `step` is set."""

    def __init__(self) -> None:
        self.step = ""
        self.store = MemoryStore(CATALOG_TABLES, self._failpoint)
        self.catalog = Catalog(self.store)
        self.catalog.create(TopicDescription("t"), NOW)

    def _failpoint(self, name: str) -> None:
        if name == self.step:
            raise StoreFailed(None, "commit failed: I/O error")

    def rules(self) -> list[tuple[str, object]]:
        """Names and filters of the rules; AssertionError unless the next start finds the same."""
        kept, read = self.catalog.entry(PATH), Catalog(self.store).entry(PATH)
        assert kept == read
        if kept is None:
            return []
        assert isinstance(kept.description, SubscriptionDescription)
        return [(each.name, each.filter) for each in kept.description.rules]

    def row_count(self) -> int:
        with self.store.view() as view:
            return len(view.scan(RULES, b"", EVERYTHING, 1 << 20))


def test_any_order_of_changes_is_found_by_the_next_start() -> None:
    r = random.Random(7)
    for _ in range(30):
        kept = Kept()
        wanted: list[RuleDescription] = []
        for number in range(20):
            match r.randrange(5):
                case 0 | 1:
                    wanted.append(rule(f"r{number}"))
                case 2 if wanted:
                    at = r.randrange(len(wanted))
                    wanted[at] = rule(wanted[at].name, f"v{number}")
                case 3 if wanted:
                    del wanted[r.randrange(len(wanted))]
                case 4:
                    r.shuffle(wanted)
            kept.catalog.update(subscription(*wanted), NOW)
            assert kept.rules() == [(each.name, each.filter) for each in wanted]
            assert kept.row_count() == len(wanted)


def test_a_purge_keeps_the_rules_and_a_deletion_takes_them_along() -> None:
    kept = Kept()
    kept.catalog.update(subscription(rule("a"), rule("b")), NOW)
    entry = kept.catalog.entry(PATH)
    assert entry is not None
    kept.catalog.replace_entities([PATH], {entry.queue_id: [0]}, [entry.description], NOW, {})
    assert [name for name, _ in kept.rules()] == ["a", "b"]
    assert kept.row_count() == 2
    kept.catalog.update(subscription(rule("a"), rule("c")), NOW)
    assert [name for name, _ in kept.rules()] == ["a", "c"]
    kept.catalog.delete([PATH], {})
    assert kept.rules() == []
    assert kept.row_count() == 0


@pytest.mark.parametrize("step", ["commit-started", "committed"])
def test_a_change_of_rules_that_failed_is_found_by_no_start(step: str) -> None:
    kept = Kept()
    kept.catalog.update(subscription(rule("a"), rule("b"), rule("c")), NOW)
    before = kept.rules()
    for changed in ((rule("a"), rule("b", "other"), rule("d")), (rule("c"), rule("a"))):
        kept.step = step
        with pytest.raises(BrokerError, match="could not keep the change"):
            kept.catalog.update(subscription(*changed), NOW)
        kept.step = ""
        kept.catalog.create(QueueDescription(changed[0].name), NOW)
        assert kept.rules() == before
        assert kept.row_count() == 3


async def test_a_rule_costs_the_same_however_many_there_are() -> None:
    broker = open_broker(clock=Clock(start_at=NOW, frozen=True))
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(subscription())
    for number in range(50):
        added = RuleDescription(f"r{number}", CorrelationFilter(properties={f"p{number}": "v" * 1_000}))

        def add(added: RuleDescription = added) -> None:
            broker.administration.add_rule(PATH, added)

        if number % 2:
            assert calls_of(catalogs._rule_value, add) == 1  # written
        else:
            assert calls_of(compile_filter, add) == 2  # to check it, and for the index


# ---- catalogs of older releases: the rules are in the row of their subscription


def old_store(*rules: RuleDescription) -> MemoryStore:
    """The catalog of a release that had no table of rules."""
    store = MemoryStore(CATALOG_TABLES)
    with store.begin(1 << 20) as batch:
        rows = (b"tt", TopicDescription("t").to_json()), (b"u" + PATH.lower().encode(), subscription(*rules).to_json())
        for number, (key, description) in enumerate(rows, 1):
            batch.put(ENTITIES, key, json.dumps({"id": number, "description": description}).encode())
        batch.put(NAMESPACE, b"next_queue_id", b"3")
        batch.commit()
    return store


@pytest.mark.parametrize("rules", [(), (rule("a"),), (rule("b"), rule("a"), rule("c"))])
def test_the_rules_of_an_older_release_get_rows_of_their_own(rules: tuple[RuleDescription, ...]) -> None:
    store = old_store(*rules)
    for _ in range(2):  # a start that was killed behind the commit does it again
        with store.begin(1 << 20) as batch:
            upgrade_rows(batch, 3, CATALOG_UPGRADES)
            batch.commit()
    entry = Catalog(store).entry(PATH)
    assert entry is not None
    assert entry.description == subscription(*rules)
    with store.view() as view:
        assert len(view.scan(RULES, b"", EVERYTHING, 10)) == len(rules)
        assert not any('"rules"' in row.decode() for _, row in view.scan(ENTITIES, b"u", b"v", 10))


def test_a_row_of_a_rule_that_can_t_be_read_is_named() -> None:
    store = old_store()
    with store.begin(1 << 20) as batch:
        batch.put(RULES, b"\0\0\0\2\0\0\0\0", b"{}")
        batch.commit()
    with pytest.raises(UnreadableRowError, match="table 'rules'"):
        Catalog(store)
