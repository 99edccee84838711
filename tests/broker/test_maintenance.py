"""Namespaces that are emptied, begun anew, copied and exchanged while the broker works."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from emubus.broker.admin.folder_view import CATALOG_FOLDER, STORE_FOLDER
from emubus.broker.api import TABLES, Complete, Home, Outage, OutageKind, ReceiveMode, SessionReceiver, alone
from emubus.broker.broker import Broker
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.catalog import CATALOG_TABLES, CATALOG_UPGRADES, Catalog
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.storage import read_into_memory

from .driving import encoded
from .namespace import WAIT_S, Receiver, loop_turns, open_broker, send
from .test_broker import keyed

PLAIN = QueueDescription("plain")
PARTS = QueueDescription("parts", enable_partitioning=True)


def active(broker: Broker, path: str) -> int:
    entity = broker.namespace.entity(path)
    assert entity is not None
    return entity.message_counts()[Home.ACTIVE]


async def exchange(broker: Broker, folder: Path) -> None:
    """Let the broker go on with the copy in a folder."""
    detached = BrokerError(Condition.DETACH_FORCED, "later")
    await broker.give_up_stores(detached, BrokerError(Condition.SERVER_BUSY, "soon"))
    catalog = Catalog(read_into_memory(folder / CATALOG_FOLDER, CATALOG_TABLES, CATALOG_UPGRADES))
    broker.go_on_with(
        catalog, [read_into_memory(folder / STORE_FOLDER.format(index), TABLES, {}) for index in range(16)]
    )


async def test_what_was_under_way_to_an_emptied_entity_is_refused_and_its_numbers_go_on() -> None:
    broker = open_broker(PLAIN)
    for _ in range(5):
        await send(broker, "plain", encoded("before"))
    detached: list[BrokerError] = []
    sender = broker.open_sender("plain", detached=detached.append)
    done: list[BrokerError | None] = []
    for _ in range(5):
        sender.send([encoded("x")], alone(done.append))
    assert broker.maintenance.purge("plain") == 5  # the others are in the inbox still
    assert [error.condition for error in detached] == [Condition.DETACH_FORCED]
    await send(broker, "plain", encoded("y"))
    assert [error and error.condition for error in done] == [Condition.DETACH_FORCED] * 5
    receiver = Receiver(broker, "plain", ReceiveMode.RECEIVE_AND_DELETE)
    (delivery,) = await receiver.drain()
    assert delivery.sequence_number == 6


async def test_an_emptied_entity_forgets_locks_schedules_duplicates_and_outboxes() -> None:
    broker = open_broker(
        QueueDescription("unique", requires_duplicate_detection=True),
        QueueDescription("target"),
        QueueDescription("via", forward_to="target"),
    )
    await send(broker, "unique", encoded("x", id="m"))
    receiver = Receiver(broker, "unique")
    (locked,) = await receiver.receive(1)
    assert broker.maintenance.purge("unique") == 1
    with pytest.raises(BrokerError) as lost:
        await broker.messages.settle("unique", [locked.token], Complete())
    assert lost.value.condition is Condition.MESSAGE_LOCK_LOST
    await send(broker, "unique", encoded("x", id="m"))
    assert active(broker, "unique") == 1
    await send(broker, "via", encoded("x"))
    broker.maintenance.purge(None)
    await loop_turns(50)
    assert {entity.path: sum(entity.message_counts()) for entity in broker.namespace.entities()} == {
        "unique": 0,
        "target": 0,
        "via": 0,
    }
    await send(broker, "via", encoded("again"))
    for _ in range(50):
        await loop_turns(2)
    assert active(broker, "target") == 1


async def test_rows_of_what_was_emptied_leave_the_stores(tmp_path: Path) -> None:
    broker = open_broker(PARTS, folder=tmp_path)
    for number in range(40):
        await send(broker, "parts", keyed(f"{number}", "x"))
    broker.maintenance.purge("parts")
    while broker.namespace.catalog.deleted:
        await loop_turns()
        await asyncio.get_running_loop().run_in_executor(None, int)
    rows: Counter[str] = Counter()
    for worker in broker.namespace.workers:
        with worker.view() as view:
            rows.update({table: len(view.scan(table, b"", b"\xff" * 30, 1_000)) for table in TABLES})
    assert rows["messages"] == 0
    assert rows["state"] == 0
    await broker.stop()
    again = open_broker(folder=tmp_path)
    assert active(again, "parts") == 0
    await send(again, "parts", encoded("x"))


async def test_a_reset_deletes_what_came_later_and_describes_the_rest_anew() -> None:
    broker = open_broker(PLAIN, PARTS)
    broker.administration.delete("plain")
    broker.administration.create(QueueDescription("Plain", enable_partitioning=True))  # of another kind now
    broker.administration.create(TopicDescription("topic"))
    broker.administration.create(SubscriptionDescription("topic", "s"))
    await send(broker, "topic", encoded("x"))
    assert broker.maintenance.reset() == 1
    assert {entity.path: entity.description for entity in broker.namespace.entities()} == {
        "plain": PLAIN,
        "parts": PARTS,
    }
    await send(broker, "plain", encoded("x"))
    assert active(broker, "plain") == 1


@pytest.mark.parametrize("kind", list(OutageKind))
async def test_nothing_is_emptied_or_copied_while_a_store_is_out(tmp_path: Path, kind: OutageKind) -> None:
    broker = open_broker(PLAIN)
    await send(broker, "plain", encoded("x"))
    broker.outages.begin(3, Outage(kind))
    verbs: tuple[Callable[[], int], ...] = (lambda: broker.maintenance.purge("plain"), broker.maintenance.reset)
    for verb in verbs:
        with pytest.raises(BrokerError) as refused:
            verb()
        assert refused.value.condition is Condition.SERVER_BUSY
    with pytest.raises(BrokerError) as refused:
        await broker.maintenance.copy_to(tmp_path / "copy")
    assert refused.value.condition is Condition.SERVER_BUSY
    broker.outages.end(3)
    assert active(broker, "plain") == 1


async def test_commands_that_come_while_a_copy_is_made_wait_and_are_not_in_it(tmp_path: Path) -> None:
    broker = open_broker(PARTS, folder=tmp_path / "data")
    for number in range(20):
        await send(broker, "parts", keyed(f"{number}", "x"))
    copying = asyncio.create_task(broker.maintenance.copy_to(tmp_path / "copy"))
    await loop_turns(3)
    sending = [asyncio.create_task(send(broker, "parts", keyed(f"{number}", "y"))) for number in range(20)]
    copied = await copying
    assert (copied.entity_count, copied.message_count) == (1, 20)
    await asyncio.gather(*sending)
    assert active(broker, "parts") == 40
    await exchange(broker, tmp_path / "copy")
    assert active(broker, "parts") == 20
    await send(broker, "parts", encoded("z"))
    assert active(broker, "parts") == 21


async def test_a_topics_copies_are_in_a_copy_of_the_namespace_all_or_none(tmp_path: Path) -> None:
    broker = open_broker()
    broker.administration.create(TopicDescription("topic", enable_partitioning=True))
    for name in "abc":
        broker.administration.create(SubscriptionDescription("topic", name))
    sending = [asyncio.create_task(send(broker, "topic", keyed(f"{number}", "x"))) for number in range(200)]
    await loop_turns(2)
    await broker.maintenance.copy_to(tmp_path / "copy")
    await asyncio.gather(*sending)
    await exchange(broker, tmp_path / "copy")
    counts = [active(broker, f"topic/Subscriptions/{name}") for name in "abc"]
    assert len(set(counts)) == 1


async def test_while_stores_are_exchanged_clients_are_asked_to_come_again(tmp_path: Path) -> None:
    broker = open_broker(PLAIN)
    await send(broker, "plain", encoded("x"))
    await broker.maintenance.copy_to(tmp_path / "copy")
    detached: list[BrokerError] = []
    sender = broker.open_sender("plain", detached=detached.append)
    soon = BrokerError(Condition.SERVER_BUSY, "soon")
    await broker.give_up_stores(BrokerError(Condition.DETACH_FORCED, "later"), soon)
    assert [error.description for error in detached] == ["later"]
    answers: list[BrokerError | None] = []
    sender.send([encoded("y")], alone(answers.append))
    await loop_turns(2)
    assert [error and error.condition for error in answers] == [Condition.SERVER_BUSY]
    for verb in (
        lambda: broker.open_sender("plain", detached=print),
        lambda: broker.administration.create(QueueDescription("new")),
        lambda: broker.maintenance.purge(None),
    ):
        with pytest.raises(BrokerError) as refused:
            verb()
        assert refused.value is soon
    catalog = Catalog(read_into_memory(tmp_path / "copy" / CATALOG_FOLDER, CATALOG_TABLES, CATALOG_UPGRADES))
    stores = [read_into_memory(tmp_path / "copy" / STORE_FOLDER.format(index), TABLES, {}) for index in range(16)]
    broker.go_on_with(catalog, stores)
    assert active(broker, "plain") == 1


async def restore(broker: Broker, folder: Path) -> None:
    await broker.maintenance.copy_to(folder)
    await exchange(broker, folder)


async def call(work: Callable[[], object]) -> None:
    work()


DEEDS: dict[str, tuple[Callable[[Broker, Path], Coroutine[Any, Any, None]], Condition]] = {
    "delete": (lambda broker, _: call(lambda: broker.administration.delete("t")), Condition.NOT_FOUND),
    "purge": (lambda broker, _: call(lambda: broker.maintenance.purge("t")), Condition.DETACH_FORCED),
    "purge all": (lambda broker, _: call(lambda: broker.maintenance.purge(None)), Condition.DETACH_FORCED),
    "reset": (lambda broker, _: call(broker.maintenance.reset), Condition.DETACH_FORCED),
    "restore": (restore, Condition.DETACH_FORCED),
}


@pytest.mark.parametrize("deed", DEEDS)
async def test_links_hear_of_a_deletion_that_there_is_nothing_and_else_that_they_may_come_back(
    tmp_path: Path, deed: str
) -> None:
    broker = open_broker()
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(SubscriptionDescription("t", "plain"))
    broker.administration.create(SubscriptionDescription("t", "sessions", requires_session=True))
    heard: dict[str, list[Condition]] = {}

    def hear(who: str) -> Callable[[BrokerError], None]:
        return lambda error: heard.setdefault(who, []).append(error.condition)

    sender = broker.open_sender("t", detached=hear("sender"))
    broker.open_receiver(
        "t/Subscriptions/plain", mode=ReceiveMode.PEEK_LOCK, deliver=print, detached=hear("consumer")
    ).set_credit(1)
    broker.open_receiver(
        "t/Subscriptions/plain/$DeadLetterQueue", mode=ReceiveMode.PEEK_LOCK, deliver=print, detached=hear("dead")
    )
    await send(broker, "t", encoded("x", group_id="held"))
    granted: asyncio.Future[SessionReceiver] = asyncio.get_running_loop().create_future()
    for name, grant in (("held", granted.set_result), (None, print)):
        broker.accept_session(
            "t/Subscriptions/sessions",
            name,
            mode=ReceiveMode.PEEK_LOCK,
            timeout_ms=60_000,
            granted=grant,
            refused=hear("waiting"),
            detached=hear("holder"),
        )
    await asyncio.wait_for(granted, WAIT_S)
    work, condition = DEEDS[deed]
    await work(broker, tmp_path / "copy")
    assert heard == {who: [condition] for who in ("sender", "consumer", "dead", "waiting", "holder")}
    late: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    sender.send([encoded("late")], alone(late.set_result))
    error = await asyncio.wait_for(late, WAIT_S)
    assert error is not None
    assert error.condition is (Condition.SERVER_BUSY if deed == "restore" else condition)
