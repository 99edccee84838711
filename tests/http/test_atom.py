"""Atom XML as such: any text survives, any bytes are an answer and no fault."""

from __future__ import annotations

from dataclasses import replace
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.api import Totals
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import Right
from emubus.broker.model.catalog import Entry
from emubus.broker.model.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    FalseFilter,
    PropertyValue,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    TypedText,
)
from emubus.broker.model.profiles import LIMITS, Profile, limits_for
from emubus.broker.partition.records import HOMES
from emubus.web.atom.descriptions import ReadContext, subscription_in, top_level_in
from emubus.web.atom.fields import FIELDS, EntityView, description_markup
from emubus.web.atom.parsing import description_in
from emubus.web.atom.rules import rule_in, rule_markup
from emubus.web.errors import ANSWERS, HttpRefusal, refusal_of
from emubus.web.markup import escaped, instant, quoted, ticks
from emubus.web.resources import Resource, ResourceKind, resource_of

STANDARD = LIMITS[Profile.STANDARD]
READING = ReadContext(STANDARD, "2024-05")

# What XML can carry; a carriage return is written as a character reference.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from("\t\n\r")
)
NAMES = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=10)
VALUES: st.SearchStrategy[PropertyValue] = (
    TEXTS
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.none()
    | st.integers(-(2**31), 2**31 - 1).map(lambda number: TypedText("long", str(number)))
    | TEXTS.map(lambda text: TypedText("dateTime", text))
    | TEXTS.map(lambda text: TypedText("duration", text))
    | TEXTS.map(lambda text: TypedText("decimal", text))
)
PROPERTIES = st.dictionaries(TEXTS, VALUES, max_size=4)
FILTERS = (
    st.builds(SqlFilter, TEXTS, PROPERTIES)
    | st.builds(CorrelationFilter, label=st.none() | TEXTS, to=st.none() | TEXTS, properties=PROPERTIES)
    | st.just(TrueFilter())
    | st.just(FalseFilter())
)
RULES = st.builds(RuleDescription, NAMES, FILTERS, st.just("SET a = 1"), action_parameters=PROPERTIES)
KEYS = st.builds(
    AuthorizationRule,
    TEXTS,
    st.lists(st.sampled_from(Right), unique=True).map(tuple),
    TEXTS.filter(bool),
    TEXTS.filter(bool),
)
SPANS = st.integers(1, 10**12) | st.none()
FORWARDS = st.none() | NAMES
METADATA = st.none() | TEXTS.map(str.strip).filter(bool)
QUEUES = st.builds(
    QueueDescription,
    st.just("q"),
    enable_partitioning=st.booleans(),
    lock_duration_ms=st.integers(1, 10**9),
    max_delivery_count=st.integers(0, 2**31),
    default_ttl_ms=SPANS,
    max_size_mb=st.sampled_from([1024, 5120]),
    max_message_bytes=st.just(256 * 1024),
    requires_session=st.just(False),
    forward_to=FORWARDS,
    forward_dead_letters_to=FORWARDS,
    auto_delete_on_idle_ms=SPANS,
    user_metadata=METADATA,
    enable_express=st.booleans(),
    authorization_rules=st.lists(KEYS, max_size=2, unique_by=lambda rule: rule.key_name).map(tuple),
)


def shown(description: QueueDescription | TopicDescription | SubscriptionDescription) -> EntityView:
    totals = Totals([0] * len(HOMES), 0, is_limited=False)
    return EntityView(Entry(1, description), totals, None, STANDARD, "2024-05", details=True)


@given(RULES)
def test_a_rule_that_was_written_is_read_as_it_was(rule: RuleDescription) -> None:
    again = rule_in(fromstring(rule_markup(rule)))
    assert again == rule
    if isinstance(rule.filter, SqlFilter):
        assert isinstance(again.filter, SqlFilter)
        kinds = {name: type(value) for name, value in rule.filter.parameters.items()}
        assert {name: type(value) for name, value in again.filter.parameters.items()} == kinds


@given(QUEUES)
def test_a_queue_that_was_written_is_read_as_it_was(queue: QueueDescription) -> None:
    assert top_level_in(fromstring(description_markup(shown(queue))), "q", None, READING) == never_idle(queue)


@given(st.builds(SubscriptionDescription, st.just("t"), st.just("s"), user_metadata=METADATA, forward_to=FORWARDS))
def test_a_subscription_that_was_written_is_read_as_it_was(subscription: SubscriptionDescription) -> None:
    node = fromstring(description_markup(shown(subscription)))
    assert subscription_in(node, "t", "s", subscription, READING) == subscription


@given(QUEUES, st.data())
def test_the_elements_of_a_queue_mean_the_same_in_every_order(queue: QueueDescription, data: st.DataObject) -> None:
    # The idle time depends on the order: a forward in its place takes it away.
    assert never_idle(top_level_in(shuffled(queue, data), "q", None, READING)) == never_idle(queue)


@given(
    st.builds(
        SubscriptionDescription,
        st.just("t"),
        st.just("s"),
        user_metadata=METADATA,
        forward_to=FORWARDS,
        forward_dead_letters_to=FORWARDS,
        auto_delete_on_idle_ms=SPANS,
        requires_session=st.just(False),
    ),
    st.data(),
)
def test_the_elements_of_a_subscription_mean_the_same_in_every_order(
    subscription: SubscriptionDescription, data: st.DataObject
) -> None:
    found = subscription_in(shuffled(subscription, data), "t", "s", subscription, READING)
    assert never_idle(found) == never_idle(subscription)


def never_idle(
    description: QueueDescription | TopicDescription | SubscriptionDescription,
) -> QueueDescription | TopicDescription | SubscriptionDescription:
    """The description as the service keeps it: what forwards is never idle."""
    if isinstance(description, TopicDescription) or description.forward_to is None:
        return description
    return replace(description, auto_delete_on_idle_ms=None)


def shuffled(description: QueueDescription | SubscriptionDescription, data: st.DataObject) -> Element:
    """The XML of a description with its elements in any order."""
    node = fromstring(description_markup(shown(description)))
    node[:] = data.draw(st.permutations(list(node)))
    return node


@given(TEXTS)
def test_any_text_comes_back_from_elements_and_attributes(text: str) -> None:
    node = fromstring(f"<a b={quoted(text)}>{escaped(text)}</a>")
    assert (node.get("b"), node.text or "") == (text, text)


def status_of(body: bytes) -> int | None:
    try:
        description_in(body)
    except HttpRefusal as refusal:
        return refusal.status
    return None


def in_entry(inside: str) -> bytes:
    return f"<entry><content><a>{inside}</a></content></entry>".encode(errors="replace")


@given(st.binary() | st.text().map(in_entry))
def test_any_body_is_a_description_or_a_refusal(body: bytes) -> None:
    assert status_of(body) in (400, None)


@pytest.mark.parametrize("inside", ["<b>" * 40 + "</b>" * 40, "<b/>" * 30_000])
def test_a_description_has_limits_of_depth_and_size(inside: str) -> None:
    assert status_of(in_entry(inside)) == 400
    assert status_of(in_entry(inside[: len(inside) // 10] if "/>" in inside else "<b>" * 20 + "</b>" * 20)) is None


@given(st.text(st.sampled_from("aB/$%25.é"), max_size=30))
def test_any_path_is_a_target(path: str) -> None:
    target = resource_of(f"/{path}")
    assert isinstance(target.kind, ResourceKind)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", Resource(ResourceKind.ROOT, "")),
        ("//", Resource(ResourceKind.NOTHING, "")),
        ("/a", Resource(ResourceKind.ENTITY, "a", "a")),
        ("/a%2Fb/", Resource(ResourceKind.ENTITY, "a/b", "a/b", is_open=True)),
        ("/$NamespaceInfo", Resource(ResourceKind.NAMESPACE, "$NamespaceInfo")),
        ("/$resources/Queues", Resource(ResourceKind.QUEUES, "$resources/Queues")),
        ("/$cbs", Resource(ResourceKind.NOTHING, "$cbs")),
        ("/a/b/Subscriptions", Resource(ResourceKind.SUBSCRIPTIONS, "a/b/Subscriptions", "a/b")),
        ("/t/subscriptions/s/", Resource(ResourceKind.SUBSCRIPTION, "t/subscriptions/s", "t", "s", is_open=True)),
        ("/t/SUBSCRIPTIONS/s/rules", Resource(ResourceKind.RULES, "t/SUBSCRIPTIONS/s/rules", "t", "s")),
        ("/t/subscriptions/s/rules/r", Resource(ResourceKind.RULE, "t/subscriptions/s/rules/r", "t", "s", "r")),
        ("/q/$deadletterqueue", Resource(ResourceKind.SUB_QUEUE, "q/$deadletterqueue", "q")),
        (
            "/t/subscriptions/s/$Transfer/$DeadLetterQueue",
            Resource(ResourceKind.SUB_QUEUE, "t/subscriptions/s/$Transfer/$DeadLetterQueue", "t", "s"),
        ),
        ("/$DeadLetterQueue", Resource(ResourceKind.NOTHING, "$DeadLetterQueue")),
        ("/subscriptions", Resource(ResourceKind.ENTITY, "subscriptions", "subscriptions")),
    ],
)
def test_a_path_is_read_from_the_right(path: str, expected: Resource) -> None:
    assert resource_of(path) == expected


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "0001-01-01T00:00:00Z"),
        (0, "1970-01-01T00:00:00Z"),
        (1_800_000_000_120, "2027-01-15T08:00:00.12Z"),
        (1_800_000_000_001, "2027-01-15T08:00:00.001Z"),
        (1_800_000_010_000, "2027-01-15T08:00:10Z"),
    ],
)
def test_an_instant_has_no_zeros_at_its_end(ms: int | None, text: str) -> None:
    assert instant(ms) == text


def test_an_entity_tag_counts_from_the_year_one() -> None:
    assert (ticks(0), ticks(None)) == ("621355968000000000", "0")


def test_every_condition_has_a_status_that_goes_with_its_sub_code() -> None:
    assert ANSWERS.keys() == set(Condition)
    for condition, answer in ANSWERS.items():
        assert answer.sub_code // 100 == answer.status
        refusal = refusal_of(BrokerError(condition, "text"))
        assert refusal.status == answer.status
        assert refusal.detail.endswith("text") or condition is Condition.ENTITY_ALREADY_EXISTS


def test_every_kind_of_entity_has_what_javascript_cannot_do_without() -> None:
    names = {kind: {field.name for field in fields} for kind, fields in FIELDS.items()}
    common = {"Status", "CreatedAt", "UpdatedAt", "AccessedAt", "CountDetails", "AutoDeleteOnIdle"}
    assert all(common <= each for each in names.values())
    assert {"SupportOrdering", "EnablePartitioning", "EnableExpress"} <= names[TopicDescription]
    assert "DeadLetteringOnFilterEvaluationExceptions" in names[SubscriptionDescription]


def test_what_a_profile_gives_by_default_is_what_an_empty_description_means() -> None:
    node = fromstring("<QueueDescription/>")
    premium = ReadContext(limits_for(Profile.PREMIUM, 2), "2024-05")
    assert top_level_in(node, "q", None, premium) == QueueDescription("q", enable_partitioning=True)
    emulator = ReadContext(LIMITS[Profile.MS_EMULATOR], "2024-05")
    assert top_level_in(node, "q", None, emulator) == QueueDescription(
        "q", default_ttl_ms=3_600_000, duplicate_window_ms=20_000, max_delivery_count=3, max_size_mb=100
    )
