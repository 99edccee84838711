"""Which entities the options mean, without a service."""

from __future__ import annotations

import pytest

from emubus.spark_connector.choice import EntityChoice, EntityPattern
from emubus.spark_connector.errors import ConnectorError
from emubus.spark_connector.options import SourceOptions, source_options

SERVICE = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=n;SharedAccessKey=azE="
EMULATOR = "Endpoint=sb://localhost:5673;SharedAccessKeyName=n;SharedAccessKey=azE=;UseDevelopmentEmulator=true"


def read(connection_string: str = EMULATOR, **raw: str) -> SourceOptions:
    return source_options({"connectionString": connection_string, **raw}, streaming=False)


def refused(connection_string: str = EMULATOR, **raw: str) -> str:
    with pytest.raises(ConnectorError) as error:
        read(connection_string, **raw)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("pattern", "path", "does"),
    [
        ("orders-*", "orders-eu", True),
        ("orders-*", "Orders-EU", True),
        ("orders-*", "orders", False),
        ("orders-*", "old-orders-eu", False),
        ("orders-*", "orders-eu/Subscriptions/audit", False),
        ("order?", "orders", True),
        ("a.b", "axb", False),
        ("*", "orders", True),
        ("*", "a/b", False),
        ("a/*", "a/b", True),
        ("events/subscriptions/*", "events/Subscriptions/audit", True),
        ("*/Subscriptions/audit", "events/Subscriptions/audit", True),
        (r"^orders-\d+$", "orders-17", True),
        (r"^orders-\d+$", "orders-17b", False),
        ("^.*$", "events/Subscriptions/audit", True),
    ],
)
def test_a_pattern_matches_whole_paths(pattern: str, path: str, does: bool) -> None:
    assert EntityPattern(pattern).matches(path) is does


@pytest.mark.parametrize(
    ("pattern", "asks", "topics"),
    [
        ("orders-*", False, []),
        ("ev*/Subscriptions/audit", True, ["events"]),
        ("^ev.*$", True, ["events", "orders"]),
    ],
)
def test_topics_are_looked_at_only_where_a_subscription_could_match(
    pattern: str, asks: bool, topics: list[str]
) -> None:
    found = EntityPattern(pattern)
    assert found.asks_subscriptions is asks
    assert [topic for topic in ("events", "orders") if found.matches_topic(topic)] == topics


def test_names_and_a_pattern_are_a_choice_with_the_sub_queue_of_all() -> None:
    options = read(entities="orders, events/Subscriptions/audit", entityPattern="bills-*", subQueue="deadLetter")
    dead = "/$DeadLetterQueue"
    paths = (f"orders{dead}", f"events/Subscriptions/audit{dead}")
    assert options.several == EntityChoice(paths, EntityPattern("bills-*"), dead, 5673)
    assert options.entity == f"orders{dead}, events/Subscriptions/audit{dead}, bills-*{dead}"


@pytest.mark.parametrize(
    ("connection_string", "raw", "port"),
    [(SERVICE, {}, 443), (EMULATOR, {}, 5673), (EMULATOR, {"administrationPort": "5300"}, 5300)],
)
def test_the_service_lists_entities_where_it_answers_http(
    connection_string: str, raw: dict[str, str], port: int
) -> None:
    several = read(connection_string, entityPattern="*", **raw).several
    assert several is not None
    assert several.administration_port == port


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"entities": "orders,Orders"}, "option entities: 'orders,Orders' is not paths like"),
        ({"entities": "orders,"}, "option entities: 'orders,' is not paths like"),
        ({"entityPattern": "^orders-.*"}, "a regular expression begins with ^ and ends with $"),
        ({"entityPattern": "^orders-($"}, "option entityPattern: '^orders-($' is not a glob like"),
        ({"entityPattern": "*/$DeadLetterQueue"}, "the option subQueue chooses dead-letter queues"),
        ({"entities": "a,b", "queue": "c"}, "entities and queue are given: name all entities by entities"),
        (
            {"entities": "a/$DeadLetterQueue", "subQueue": "deadLetter"},
            "is a sub-queue already: remove option subQueue",
        ),
        ({"entities": "a,b", "startingPosition": "5"}, "option startingPosition is a sequence number"),
        ({"entities": "a,b", "endingOffsets": '{"0": 5}'}, "option endingOffsets is a sequence number"),
    ],
)
def test_what_can_not_be_meant_is_refused_with_the_remedy(raw: dict[str, str], text: str) -> None:
    assert text in refused(**raw)


def test_the_entity_of_a_connection_string_is_not_one_of_several() -> None:
    assert "remove EntityPath in the connection string" in refused(f"{EMULATOR};EntityPath=q", entities="a,b")
