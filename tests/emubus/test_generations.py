"""The generation of an entity: another one whenever its sequence numbers begin again, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from emubus.broker.model.catalog import Catalog
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.testing import EmubusServer

from ..broker.driving import encoded
from ..broker.namespace import send
from .folders import small


def generation(server: EmubusServer, address: str = "q") -> str:
    return server.call(lambda: server.server.broker.messages.generation(address))


def test_a_generation_survives_a_restart_and_an_update(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmubusServer([QueueDescription("q")], data_dir=data) as server:
        first = generation(server)
        assert generation(server, "q/$DeadLetterQueue") == first
        server.update(QueueDescription("q", max_delivery_count=3))
        assert generation(server) == first
    with EmubusServer([QueueDescription("q")], data_dir=data) as server:
        assert generation(server) == first


def test_an_entity_that_is_created_again_has_another_one() -> None:
    with EmubusServer([QueueDescription("q"), QueueDescription("other")]) as server:
        first, other = generation(server), generation(server, "other")
        assert first != other
        server.delete("q")
        server.create(QueueDescription("q"))
        assert generation(server) != first
        assert generation(server, "other") == other
        server.reset()
        assert generation(server, "other") != other


def test_a_topic_that_is_created_again_gives_its_subscriptions_another_one() -> None:
    topic, subscription = TopicDescription("t"), SubscriptionDescription("t", "s")
    with EmubusServer([topic, subscription]) as server:
        first = generation(server, "t/Subscriptions/s")
        server.delete("t")
        server.create(topic)
        server.create(subscription)
        assert generation(server, "T/subscriptions/S") != first


def test_a_purge_keeps_the_generation_because_it_keeps_the_numbers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmubusServer([QueueDescription("q")], data_dir=data) as server:
        first = generation(server)
        server.purge("q")
        server.purge("q")
        assert generation(server) == first
    with EmubusServer([QueueDescription("q")], data_dir=data) as server:
        assert generation(server) == first
        server.reset()
        assert generation(server) != first


@pytest.mark.parametrize("purges", [1, 2])
def test_a_kill_behind_a_purge_keeps_the_numbers(tmp_path: Path, purges: int) -> None:
    entities = (
        *(QueueDescription("q"), QueueDescription("p", enable_partitioning=True), QueueDescription("unused")),
        *(TopicDescription("t"), SubscriptionDescription("t", "s")),
    )
    data, killed = tmp_path / "data", tmp_path / "killed"
    with EmubusServer(entities, data_dir=data) as server:
        for address in ("q", "p", "t"):
            for number in range(20):
                server.run(send(server.server.broker, address, encoded(f"{number}")))
        before = {path: next_numbers(server, path) for path in ("q", "p", "unused", "t", "t/Subscriptions/s")}
        for _ in range(purges):
            server.purge()
        small.copy(data, killed)
        assert {path: next_numbers(server, path) for path in before} == before
    with EmubusServer(entities, data_dir=killed) as server:
        assert {path: next_numbers(server, path) for path in before} == before
        for address in ("q", "p", "t"):
            server.run(send(server.server.broker, address, encoded("after")))
        for path in ("q", "t/Subscriptions/s"):
            assert [each.sequence_number for each in server.peek(path)] == before[path]
        server.purge("q")
    with EmubusServer(entities, data_dir=killed) as server:
        assert next_numbers(server, "q") == [before["q"][0] + 1]


def next_numbers(server: EmubusServer, path: str) -> list[int]:
    """The counter of each partition of an entity that its next message gets."""

    def look() -> list[int]:
        entity = server.server.broker.namespace.entity(path)
        assert entity is not None
        return entity.next_counters()

    return server.call(look)


@pytest.mark.parametrize("on_disk", [True, False])
def test_each_restore_gives_another_generation(tmp_path: Path, on_disk: bool) -> None:
    data = tmp_path / "data" if on_disk else None
    with EmubusServer([QueueDescription("q")], data_dir=data) as server:
        found = [generation(server)]
        server.snapshot("s")
        for _ in range(2):
            server.restore("s")
            found.append(generation(server))
        assert len(set(found)) == 3
    if data is not None:
        with EmubusServer([QueueDescription("q")], data_dir=data) as server:
            assert generation(server) == found[-1]


def test_a_data_folder_of_an_older_release_gets_a_generation_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "begin_generation", lambda _: None)
        EmubusServer([QueueDescription("q")], data_dir=data).close()
    found: list[str] = []
    for _ in range(2):
        with EmubusServer([QueueDescription("q")], data_dir=data) as server:
            found.append(generation(server))
    assert found[0] == found[1]
    assert not found[0].startswith("None")


def test_two_servers_in_memory_have_different_generations() -> None:
    with EmubusServer([QueueDescription("q")]) as one, EmubusServer([QueueDescription("q")]) as two:
        assert generation(one) != generation(two)
