"""The management API, request by request: what is answered, in which words and order."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from emubus.broker.api import Outage, OutageKind
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription
from emubus.server import Server

from .administering import ATOM, CONNECT, NOW, Raw, entry, raw, running

MAX_SPAN = "P10675199DT2H48M5.4775807S"
MADE_AT = "2027-01-15T08:00:00.123Z"
NEVER = "0001-01-01T00:00:00Z"
COUNTS = "{http://schemas.microsoft.com/netservices/2011/06/servicebus}"

QUEUE = {
    "LockDuration": "PT1M",
    "MaxSizeInMegabytes": "1024",
    "RequiresDuplicateDetection": "false",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": MAX_SPAN,
    "DeadLetteringOnMessageExpiration": "false",
    "DuplicateDetectionHistoryTimeWindow": "PT10M",
    "MaxDeliveryCount": "10",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "MessageCount": "0",
    "IsAnonymousAccessible": "false",
    "AuthorizationRules": None,
    "Status": "Active",
    "CreatedAt": MADE_AT,
    "UpdatedAt": MADE_AT,
    "AccessedAt": NEVER,
    "SupportOrdering": "true",
    "CountDetails": None,
    "AutoDeleteOnIdle": MAX_SPAN,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
TOPIC = {
    "DefaultMessageTimeToLive": MAX_SPAN,
    "MaxSizeInMegabytes": "1024",
    "RequiresDuplicateDetection": "false",
    "DuplicateDetectionHistoryTimeWindow": "PT10M",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "FilteringMessagesBeforePublishing": "false",
    "IsAnonymousAccessible": "false",
    "AuthorizationRules": None,
    "Status": "Active",
    "CreatedAt": MADE_AT,
    "UpdatedAt": MADE_AT,
    "AccessedAt": MADE_AT,
    "SupportOrdering": "true",
    "CountDetails": None,
    "SubscriptionCount": "1",
    "SqlFilterCount": "1",
    "CorrelationFilterCount": "0",
    "AutoDeleteOnIdle": MAX_SPAN,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableSubscriptionPartitioning": "false",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
SUBSCRIPTION = {
    "LockDuration": "PT1M",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": MAX_SPAN,
    "DeadLetteringOnMessageExpiration": "false",
    "DeadLetteringOnFilterEvaluationExceptions": "true",
    "MessageCount": "0",
    "MaxDeliveryCount": "10",
    "EnableBatchedOperations": "true",
    "Status": "Active",
    "CreatedAt": MADE_AT,
    "UpdatedAt": MADE_AT,
    "AccessedAt": MADE_AT,
    "CountDetails": None,
    "AutoDeleteOnIdle": MAX_SPAN,
    "EntityAvailabilityStatus": "Available",
    "IsClientAffine": "false",
}
TOPIC_COUNTS = ("SubscriptionCount", "SqlFilterCount", "CorrelationFilterCount")
TRACKING = re.compile(r" TrackingId:[0-9a-f-]{36}_G\d+, SystemTracker:\S+, Timestamp:2027-01-15T08:00:00$")
DETAILS = ("AccessedAt", "CountDetails", *TOPIC_COUNTS)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path, Clock(start_at=NOW, frozen=True)) as server:
        server.broker.administration.delete("queue.1")  # of the default configuration
        yield server


@pytest.fixture
async def http(server: Server) -> AsyncIterator[Raw]:
    async with raw(server) as client:
        yield client


def without(elements: dict[str, str | None], *names: str) -> list[tuple[str, str | None]]:
    return [(name, text) for name, text in elements.items() if name not in names]


# ---------------------------------------------------------------- what is answered


async def test_a_queue_has_the_elements_of_the_service_in_its_order(http: Raw) -> None:
    made = await http.put("/Orders", "<QueueDescription/>")
    assert (made.status, list(made.elements.items())) == (201, without(QUEUE, *DETAILS))
    assert made.headers["Content-Type"] == "application/atom+xml;type=entry;charset=utf-8"
    shown = await http.get("/orders")
    assert (shown.status, list(shown.elements.items())) == (200, list(QUEUE.items()))
    assert shown.description.tag == f"{{{CONNECT}}}QueueDescription"
    assert shown.headers["ETag"] == "639355968001230000"


async def test_a_topic_has_the_elements_of_the_service_in_its_order(http: Raw) -> None:
    made = await http.put("/t", "<TopicDescription/>", version="2024-05")
    assert (made.status, list(made.elements.items())) == (201, without(TOPIC, *DETAILS))
    await http.put("/t/subscriptions/s", "<SubscriptionDescription/>")
    shown = await http.get("/t", version="2024-05")
    assert list(shown.elements.items()) == list(TOPIC.items())


async def test_a_subscription_has_the_elements_of_the_service_in_its_order(http: Raw) -> None:
    await http.put("/t", "<TopicDescription/>")
    made = await http.put("/t/subscriptions/s", "<SubscriptionDescription/>")
    never = {**SUBSCRIPTION, "AccessedAt": NEVER}
    assert (made.status, list(made.elements.items())) == (201, without(never, "CountDetails"))
    shown = await http.get("/t/subscriptions/s")
    assert list(shown.elements.items()) == list(SUBSCRIPTION.items())


async def test_the_entry_around_a_description_is_that_of_the_service(http: Raw) -> None:
    made = await http.put("/Orders", "<QueueDescription/>")
    address = f"http://{http.authority}/Orders?api-version=2021-05"
    assert made.text.startswith(
        f'<entry xmlns="{ATOM}"><id>{address}</id><title type="text">Orders</title>'
        "<published>2027-01-15T08:00:00Z</published><updated>2027-01-15T08:00:00Z</updated>"
        f'<author><name>sbemulatorns</name></author><link rel="self" href="{address}"/>'
        f'<content type="application/xml"><QueueDescription xmlns="{CONNECT}" '
        'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>'
    )


async def test_the_counts_have_a_namespace_and_a_prefix_of_their_own(http: Raw) -> None:
    await http.put("/q", "<QueueDescription/>")
    shown = await http.get("/q")
    counts = shown.description.find(f"{{{CONNECT}}}CountDetails")
    assert counts is not None
    assert [(each.tag, each.text) for each in counts] == [
        (f"{COUNTS}{name}MessageCount", "0")
        for name in ("Active", "DeadLetter", "Scheduled", "Transfer", "TransferDeadLetter")
    ]
    assert "<d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>" in shown.text


@pytest.mark.parametrize(
    ("version", "kilobytes", "client_affine", "filter_counts"),
    [
        ("2017-04", False, False, False),
        ("2021-05", True, True, False),
        ("2024-05", True, True, True),
        (None, True, True, True),
        ("2099-01", True, True, True),
    ],
)
async def test_an_older_api_version_does_not_show_what_came_later(
    http: Raw, version: str | None, kilobytes: bool, client_affine: bool, filter_counts: bool
) -> None:
    await http.put("/t", "<TopicDescription/>")
    await http.put("/t/subscriptions/s", "<SubscriptionDescription/>")
    topic = (await http.get("/t", version)).elements
    subscription = (await http.get("/t/subscriptions/s", version)).elements
    assert ("MaxMessageSizeInKilobytes" in topic) is kilobytes
    assert ("IsClientAffine" in subscription) is client_affine
    assert ("SqlFilterCount" in topic, "CorrelationFilterCount" in topic) == (filter_counts, filter_counts)


async def test_the_namespace_tells_what_it_is(http: Raw) -> None:
    shown = await http.get("/$NamespaceInfo")
    assert shown.elements == {
        "CreatedTime": MADE_AT,
        "MessagingSKU": "Standard",
        "ModifiedTime": MADE_AT,
        "Name": "sbemulatorns",
        "NamespaceType": "Messaging",
    }


async def test_a_premium_namespace_tells_its_units(tmp_path: Path) -> None:
    async with running(tmp_path, profile="premium", premium_partitions="2") as server, raw(server) as http:
        shown = await http.get("/$namespaceinfo")
        assert (shown.elements["MessagingSKU"], shown.elements["MessagingUnits"]) == ("Premium", "2")


async def test_what_was_never_made_is_a_feed_that_clients_know(http: Raw) -> None:
    missing = await http.get("/nowhere")
    assert missing.status == 200
    assert missing.root.tag == f"{{{ATOM}}}feed"
    assert missing.root.findtext(f"{{{ATOM}}}title") == "Publicly Listed Services"
    assert missing.titles == []


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/txt%2F.-_123", "txt/.-_123"),
        ("/txt/.-_123", "txt/.-_123"),
        ("/Mixed", "Mixed"),
        ("/a/rules/b", "a/rules/b"),
    ],
)
async def test_a_name_may_have_slashes_in_any_encoding_and_keeps_its_case(http: Raw, path: str, name: str) -> None:
    made = await http.put(path, "<QueueDescription/>")
    assert (made.status, made.root.findtext(f"{{{ATOM}}}title")) == (201, name)
    assert made.id == f"http://{http.authority}/{name}?api-version=2021-05"
    again = await http.get(path.upper())
    assert again.root.findtext(f"{{{ATOM}}}title") == name
    assert again.id == f"http://{http.authority}/{name.upper()}?api-version=2021-05"
    assert (await http.put(path.lower(), "<QueueDescription/>")).status == 409
    assert (await http("DELETE", path)).status == 200


async def test_ids_have_the_case_of_the_request_because_clients_take_names_from_them(http: Raw) -> None:
    await http.put("/a/t", "<TopicDescription/>")
    made = await http.put("/a/t/Subscriptions/S", "<SubscriptionDescription/>")
    assert made.id == f"http://{http.authority}/a/t/Subscriptions/S?api-version=2021-05"
    read = await http.get("/a%2Ft/Subscriptions/S")
    assert read.id == f"sb://{http.authority}/a/t/Subscriptions/S?api-version=2021-05"
    rule = await http.get("/a/t/Subscriptions/S/Rules/$Default")
    assert rule.id == f"sb://{http.authority}/a/t/Subscriptions/S/Rules/$Default?api-version=2021-05"
    listed = await http.get("/a/t/Subscriptions/?%24top=5")
    assert listed.id == f"http://{http.authority}/a/t/Subscriptions/?%24top=5&api-version=2021-05"
    assert listed.ids == [f"http://{http.authority}/a/t/Subscriptions/S?api-version=2021-05"]
    rules = await http.get("/a/t/Subscriptions/S/Rules/")
    assert rules.ids == [f"http://{http.authority}/a/t/Subscriptions/S/Rules/$Default?api-version=2021-05"]


async def test_subscriptions_and_rules_may_be_named_like_the_segments_around_them(http: Raw) -> None:
    await http.put("/t", "<TopicDescription/>")
    for name in ("rules", "subscriptions"):
        assert (await http.put(f"/t/subscriptions/{name}", "<SubscriptionDescription/>")).status == 201
        assert (await http.get(f"/t/subscriptions/{name}/rules")).titles == ["$Default"]
        made = await http.put(f"/t/subscriptions/{name}/rules/rules", "<RuleDescription/>")
        assert (made.status, made.elements["Name"]) == (201, "rules")
    assert (await http.get("/t/subscriptions")).titles == ["rules", "subscriptions"]


@pytest.mark.parametrize("path", ["/a//b", "/a/subscriptions/b/c", "/" + "x" * 261])
async def test_a_name_that_cannot_be_is_refused(http: Raw, path: str) -> None:
    refused = await http.put(path, "<QueueDescription/>")
    assert refused.status == 400
    assert refused.detail.startswith("SubCode=40000. Name is ")


@pytest.mark.parametrize("sign", ["@", "%3F", "%23", "*", "+", "|", ",", "(", "%20", "%C3%BC", "%5C"])
async def test_a_sign_that_no_name_holds_is_refused_with_the_address_of_the_request(http: Raw, sign: str) -> None:
    words = (
        "contains character(s) that is not allowed by Service Bus. Entity segments can contain only letters, numbers"
    )
    shown = sign if sign in ("%20", "%C3%BC") else unquote(sign)
    await http.put("/t", "<TopicDescription/>")
    for path, kind in (("a", "Queue"), ("a", "Topic"), ("t/subscriptions/a", "Subscription")):
        refused = await http.put(f"/{path}{sign}b", f"<{kind}Description/>")
        start, scheme = ("", "sb") if kind == "Subscription" else ("SubCode=40000. ", "http")
        expected = f"{start}'{scheme}://{http.authority}/{path}{shown}b?api-version=2021-05' {words}"
        assert (refused.status, refused.detail[: len(expected)]) == (400, expected)
    await http.put("/t/subscriptions/s", "<SubscriptionDescription/>")
    refused = await http.put(f"/t/subscriptions/s/rules/a{sign}b", "<RuleDescription/>")
    expected = f"'sb://{http.authority}/t/subscriptions/s/rules/a{shown}b?api-version=2021-05' {words}"
    assert (refused.status, refused.detail[: len(expected)]) == (400, expected)
    assert (await http.get("/t/subscriptions/s/rules")).titles == ["$Default"]


@pytest.mark.parametrize("name", ["a-", "-a", "a.b.", "_", "MassTransit/Fault--Shop/Bad--", "a~b", "A1"])
async def test_a_name_of_letters_digits_and_the_signs_of_names_is_taken(http: Raw, name: str) -> None:
    assert (await http.put(f"/{name}", "<TopicDescription/>")).status == 201
    below = name.replace("/", ".")
    assert (await http.put(f"/{name}/subscriptions/{below}", "<SubscriptionDescription/>")).status == 201
    assert (await http.put(f"/{name}/subscriptions/{below}/rules/{below}", "<RuleDescription/>")).status == 201
    assert (await http.get(f"/{name}/subscriptions/{below}/rules")).titles == ["$Default", below]


@pytest.mark.parametrize("path", ["/", "/q/", "/$unknown", "/$Resources/relays", "/emubus/x"])
async def test_paths_that_are_no_entity_are_not_found(http: Raw, path: str) -> None:
    for method in ("PUT", "DELETE"):
        answer = await http(method, path, entry("<QueueDescription/>") if method == "PUT" else None)
        assert answer.status in (400, 404)
    assert (await http.get("/$Resources/queues")).titles == []


MORE = "To know more visit https://aka.ms/sbResourceMgrExceptions. "
VERBS = ("GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "MERGE")
VERBS_OF = {
    "/": ("GET", "HEAD"),
    "/$NamespaceInfo": ("GET",),
    "/$Resources/queues": ("GET",),
    "/$Resources/topics": ("GET",),
    "/q": ("GET", "PUT", "DELETE"),
    "/q/$DeadLetterQueue": (),
    "/q/$Transfer/$deadletterqueue": (),
    "/t": ("GET", "PUT", "DELETE"),
    "/t/subscriptions": ("GET",),
    "/t/subscriptions/s": ("GET", "PUT", "DELETE"),
    "/t/subscriptions/s/$DeadLetterQueue": (),
    "/t/subscriptions/s/rules": ("GET",),
    "/t/subscriptions/s/rules/r": ("GET", "PUT", "DELETE"),
}
"""Resources of administration, and the verbs that each has."""


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("path", VERBS_OF)
async def test_a_verb_that_a_resource_does_not_have_is_refused_in_the_service_s_words(
    http: Raw, path: str, verb: str
) -> None:
    for each, kind in (("/q", "Queue"), ("/t", "Topic"), ("/t/subscriptions/s", "Subscription")):
        assert (await http.put(each, f"<{kind}Description/>")).status == 201
    answer = await http(verb, path)
    if verb in VERBS_OF[path]:
        assert "HTTP verb" not in answer.text
        return
    assert answer.status == 400
    if verb != "HEAD":
        expected = f"The specified HTTP verb ({verb}) is not valid. {MORE}. TrackingId:"
        assert answer.detail[: len(expected)] == expected


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/Q/$DeadLetterQueue", "Queue:Q"),
        ("/Q/$Transfer/$DeadLetterQueue", "Queue:Q"),
        ("/T/Subscriptions/s/$DeadLetterQueue", "Topic:T"),
    ],
)
async def test_the_refusal_of_a_sub_queue_names_its_entity(http: Raw, path: str, named: str) -> None:
    assert f", SystemTracker:sbemulatorns:{named}, Timestamp:" in (await http.get(path)).detail


# ---------------------------------------------------------------- lists


async def test_lists_are_sorted_and_paged_with_a_link_to_the_next_page(http: Raw) -> None:
    for name in ("c", "B", "a"):
        await http.put(f"/{name}", "<QueueDescription/>")
    await http.put("/topic", "<TopicDescription/>")
    first = await http.get("/$Resources/Queues?%24skip=0&$top=2")
    assert (first.titles, first.headers["Content-Type"]) == (
        ["a", "b"],
        "application/atom+xml;type=feed;charset=utf-8",
    )
    address = f"http://{http.authority}/$Resources/Queues"
    assert first.links == [
        ("self", f"{address}?%24skip=0&$top=2&api-version=2021-05"),
        ("next", f"{address}?$skip=2&$top=2&api-version=2021-05"),
    ]
    second = await http.get("/$resources/queues?$skip=2&$top=2")
    assert (second.titles, len(second.links)) == (["c"], 1)
    assert (await http.get("/$Resources/queues?$top=0")).titles == []
    assert (await http.get("/$Resources/queues?$skip=9")).titles == []
    assert (await http.get("/$Resources/topics/")).titles == ["topic"]


async def test_lists_show_queues_and_topics_in_lower_case_and_subscriptions_and_rules_as_they_are(http: Raw) -> None:
    await http.put("/Sales/Orders", "<QueueDescription/>")
    await http.put("/Prices", "<TopicDescription/>")
    await http.put("/Prices/subscriptions/Mine", "<SubscriptionDescription/>")
    assert (await http.get("/$Resources/queues")).titles == ["sales/orders"]
    listed = await http.get("/$Resources/topics")
    assert listed.titles == ["prices"]
    assert listed.ids == [f"http://{http.authority}/prices?api-version=2021-05"]
    assert (await http.get("/Prices/subscriptions")).titles == ["Mine"]
    assert (await http.get("/Prices/subscriptions/Mine/rules")).titles == ["$Default"]
    shown = await http.get("/SALES/orders")
    assert shown.root.findtext(f"{{{ATOM}}}title") == "Sales/Orders"


FILTERED = ("a-1", "a-2", "b")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("startswith(path, 'a-') eq true", ["a-1", "a-2"]),
        ("startsWith(path,'A-')", ["a-1", "a-2"]),
        ("startswith(path, 'a-') eq false", ["b"]),
        ("path eq 'B'", ["b"]),
        ("Path ne 'b' and startswith(path, 'a-2') ne false", ["a-2"]),
        ("path eq 'b' or path eq 'a-1'", ["a-1", "b"]),
        ("not (path eq 'b' or path eq 'a-1')", ["a-2"]),
        ("path eq 'it''s'", []),
        ("messageCount Gt 0", []),
        ("MessageCount le 0", ["a-1", "a-2", "b"]),
        ("CreatedAt lt '2027-01-15T08:00:01Z'", ["a-1", "a-2"]),
        ("createdat ge 2027-01-15T08:00:01.5551234Z", ["b"]),
        ("ModifiedAt gt datetime'2027-01-15T08:00:02'", ["b"]),
        ("UpdatedAt gt '01/15/2027 08:00:02'", ["b"]),
        ("AccessedAt Lt '1970-01-01'", ["a-1", "a-2", "b"]),
    ],
)
async def test_a_list_has_the_entities_that_its_filter_means(
    http: Raw, server: Server, text: str, names: list[str]
) -> None:
    for name in FILTERED:
        if name == "b":
            server.clock.advance(5_000)
        await http.put(f"/{name}", "<QueueDescription/>")
    assert (await http.get(f"/$Resources/queues?$filter={quote(text)}")).titles == names


async def test_a_page_of_a_filtered_list_goes_on_with_the_filter(http: Raw) -> None:
    for name in FILTERED:
        await http.put(f"/{name}", "<TopicDescription/>")
    query = quote("startswith(path, 'a-') eq true")
    first = await http.get(f"/$Resources/topics?$filter={query}&$skip=0&$top=1")
    (_, following) = first.links
    assert following[1] is not None
    second = await http.get(following[1].removeprefix(f"http://{http.authority}").removesuffix("&api-version=2021-05"))
    assert (first.titles, second.titles, len(second.links)) == (["a-1"], ["a-2"], 1)
    await http.put("/b/subscriptions/s", "<SubscriptionDescription/>")
    for text, found in (("CreatedAt gt '2027-01-01'", ["s"]), ("messageCount gt 0", [])):
        assert (await http.get(f"/b/subscriptions?$filter={quote(text)}")).titles == found


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        (
            "$Resources/topics",
            "endswith(path, 'x')",
            "The specified property 'endswith' does not exist or is not allowed.",
        ),
        (
            "$Resources/queues",
            "subscriptionName like 'x'",
            "The specified property 'subscriptionName' does not exist or",
        ),
        ("$Resources/queues", "startswith(name, 'x') eq true", "The specified property 'name' does not exist or"),
        ("t/subscriptions", "startswith(path, 'x') eq true", "StartsWith is not allowed in the filter expression."),
        (
            "$Resources/queues",
            "=",
            "There was an error parsing the filter expression. [Token line=1, column=1, Token in error= =, Additional "
            "details= Unrecognized character. '=']",
        ),
        ("$Resources/queues", "path eq", "There was an error parsing the filter expression. [Token line=1, column=8,"),
        (
            "$Resources/queues",
            "path like 'x'",
            "There was an error parsing the filter expression. [Token line=1, column=6,",
        ),
        ("$Resources/queues", "messageCount gt 'x'", "There was an error parsing the filter expression."),
        ("$Resources/queues", "CreatedAt gt '1.1.2027'", "There was an error parsing the filter expression."),
        ("$Resources/queues", "path eq 'a' path", "There was an error parsing the filter expression."),
        ("$Resources/queues", "(path eq 'a'", "There was an error parsing the filter expression."),
        ("$Resources/queues", "startswith(path, 'a') eq 1", "There was an error parsing the filter expression."),
        ("$Resources/queues", "not " * 200 + "path eq 'a'", "It is nested more than 50 times"),
        ("$Resources/queues", "path eq 'a' or " * 100 + "path eq 'a'", "It is 1511 characters long; at most 1024 are"),
    ],
)
async def test_a_filter_that_can_t_be_used_is_refused_in_the_words_of_the_service(
    http: Raw, path: str, text: str, problem: str
) -> None:
    await http.put("/t", "<TopicDescription/>")
    refused = await http.get(f"/{path}?$filter={quote(text)}")
    expected = f"SubCode=40000. Invalid Filter. {problem}"
    assert (refused.status, refused.detail[: len(expected)]) == (400, expected)


async def test_rules_are_filtered_by_the_time_of_their_creation(http: Raw) -> None:
    await http.put("/t", "<TopicDescription/>")
    await http.put("/t/subscriptions/s", "<SubscriptionDescription/>")
    for text, titles in (("CreatedAt gt '2027-01-01'", ["$Default"]), ("CreatedAt lt '2027-01-01'", [])):
        assert (await http.get(f"/t/subscriptions/s/rules?$filter={quote(text)}")).titles == titles
    named = "startswith(name, 'r') eq true"
    refused = await http.get(f"/t/subscriptions/s/rules?$filter={quote(named)}")
    assert (refused.status, "Invalid Filter. StartsWith is not allowed" in refused.detail) == (400, True)


async def test_the_root_is_the_feed_of_public_services(http: Raw) -> None:
    answer = await http.get("/")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/atom+xml;type=feed;charset=utf-8")
    assert answer.root.findtext(f"{{{ATOM}}}title") == "Publicly Listed Services"


async def test_a_list_without_numbers_has_100_entities(http: Raw) -> None:
    for number in range(101):
        await http.put(f"/q{number:03}", "<QueueDescription/>")
    first = await http.get("/$Resources/queues")
    assert (len(first.titles), first.links[1][0]) == (100, "next")
    assert (await http.get("/$Resources/queues?$skip=100&$top=100")).titles == ["q100"]


@pytest.mark.parametrize(
    ("query", "name"),
    [("$skip=-1&$top=-1", "skip"), ("$top=-1", "top"), ("$skip=x", "skip"), ("$top=1e9", "top")],
)
async def test_numbers_of_a_page_must_not_be_negative(http: Raw, query: str, name: str) -> None:
    refused = await http.get(f"/$Resources/queues?{query}")
    assert refused.status == 400
    assert f"Parameter '{name}' should be non-negative integer." in refused.detail


async def test_the_lists_of_what_is_not_there_are_not_found(http: Raw) -> None:
    await http.put("/t", "<TopicDescription/>")
    await http.put("/q", "<QueueDescription/>")
    for path in ("/nowhere/subscriptions", "/q/subscriptions", "/t/subscriptions/s/rules"):
        assert (await http.get(path)).status == 404


# ---------------------------------------------------------------- changes


async def test_an_update_replaces_everything_but_what_is_chosen_at_creation(http: Raw) -> None:
    await http.put("/target", "<QueueDescription/>")
    await http.put(
        "/q",
        "<QueueDescription><LockDuration>PT30S</LockDuration><RequiresDuplicateDetection>true"
        "</RequiresDuplicateDetection><ForwardTo>target</ForwardTo><UserMetadata>old</UserMetadata>"
        "<EnablePartitioning>true</EnablePartitioning></QueueDescription>",
    )
    changed = await http.put(
        "/Q", "<QueueDescription><MaxDeliveryCount>3</MaxDeliveryCount></QueueDescription>", update=True
    )
    assert changed.status == 200
    expected = {
        **QUEUE,
        "MaxDeliveryCount": "3",
        "RequiresDuplicateDetection": "true",
        "EnablePartitioning": "true",
        "MaxSizeInMegabytes": "16384",
        "SupportOrdering": "false",
    }
    assert list((await http.get("/q")).elements.items()) == list(expected.items())


async def test_what_a_client_was_shown_it_may_send_back(http: Raw) -> None:
    await http.put("/q", "<QueueDescription><EnablePartitioning>true</EnablePartitioning></QueueDescription>")
    shown = await http.get("/q")
    content = re.search(r"<QueueDescription.*</QueueDescription>", shown.text)
    assert content is not None
    body = f'<entry xmlns="{ATOM}"><content type="application/xml">{content[0]}</content></entry>'
    answer = await http("PUT", "/q", body, If_Match="*")
    assert answer.status == 200
    assert (await http.get("/q")).text == shown.text


async def test_elements_may_come_in_any_order_with_any_prefix_among_unknown_ones(http: Raw) -> None:
    await http.put("/target", "<QueueDescription/>")
    body = (
        f"<?xml version='1.0' encoding='utf-8'?><ns0:entry xmlns:ns0='{ATOM}' xmlns='{CONNECT}' "
        "xmlns:p4='http://www.w3.org/2001/XMLSchema-instance'>"
        "<ns0:updated>2020-01-01T00:00:00Z</ns0:updated><ns0:content type='application/xml'><QueueDescription>"
        "<EnableExpress>true</EnableExpress><Odd><Deep/></Odd><ForwardTo>sb://h:1/target</ForwardTo>"
        "<UserMetadata>&lt;&amp;\u2028\u00e9</UserMetadata><LockDuration>PT45S</LockDuration>"
        "<Status p4:nil='true'/><AccessedAt>0001-01-01T00:00:00Z</AccessedAt>"
        "</QueueDescription></ns0:content></ns0:entry>"
    )
    assert (await http("PUT", "/q", body.encode())).status == 201
    shown = (await http.get("/q")).elements
    names = ("EnableExpress", "ForwardTo", "UserMetadata", "LockDuration", "Status")
    assert [shown[name] for name in names] == ["true", "sb://h:1/target", "<&\u2028\u00e9", "PT45S", "Active"]
    order = list(shown)
    assert order.index("Status") < order.index("ForwardTo") < order.index("UserMetadata") < order.index("CreatedAt")


async def test_the_scheme_and_host_of_a_forward_are_shown_in_small_letters(http: Raw) -> None:
    await http.put("/Target", "<QueueDescription/>")
    forward = "<ForwardTo>SB://LocalHost:1/TARGET</ForwardTo>"
    dead = "<ForwardDeadLetteredMessagesTo>TARGET</ForwardDeadLetteredMessagesTo>"
    created = await http.put("/q", f"<QueueDescription>{forward}{dead}</QueueDescription>")
    names = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
    assert [created.elements[name] for name in names] == ["sb://localhost:1/TARGET", "TARGET"]


async def test_an_update_moves_the_instant_of_change_alone(http: Raw, server: Server) -> None:
    await http.put("/q", "<QueueDescription/>")
    server.clock.advance(1_877)
    changed = await http.put(
        "/q", "<QueueDescription><LockDuration>PT5S</LockDuration></QueueDescription>", update=True
    )
    assert (changed.elements["CreatedAt"], changed.elements["UpdatedAt"]) == (MADE_AT, "2027-01-15T08:00:02Z")


async def test_a_forward_on_a_message_session_queue_that_comes_too_late_is_shown_and_not_obeyed(
    http: Raw, server: Server
) -> None:
    sessions = "<RequiresSession>true</RequiresSession>"
    forward = "<ForwardTo>sb://LOCALHOST/other</ForwardTo>"
    await http.put("/other", "<QueueDescription/>")
    refused = await http.put("/q", f"<QueueDescription>{sessions}{forward}</QueueDescription>")
    assert (refused.status, "allowed is none, as RequiresSession is true" in refused.detail) == (400, True)
    late = f"{sessions}<EnableExpress>false</EnableExpress>{forward}"
    made = await http.put("/q", f"<QueueDescription>{late}</QueueDescription>")
    assert (made.status, made.elements["ForwardTo"]) == (201, "sb://localhost/other")
    assert (await http.get("/q")).elements["ForwardTo"] == "sb://localhost/other"
    entity = server.broker.namespace.entity("q")
    assert entity is not None
    assert isinstance(entity.description, QueueDescription)
    assert entity.description.forward_to is None
    assert (await http.put("/q", f"<QueueDescription>{late}</QueueDescription>", update=True)).status == 200
    await http.put("/q", f"<QueueDescription>{sessions}</QueueDescription>", update=True)
    assert "ForwardTo" not in (await http.get("/q")).elements


@pytest.mark.parametrize("kind", ["Queue", "Subscription"])
async def test_what_forwards_is_never_idle_unless_its_forward_comes_too_late(http: Raw, kind: str) -> None:
    await http.put("/other", "<QueueDescription/>")
    await http.put("/t", "<TopicDescription/>")
    idle, forward = "<AutoDeleteOnIdle>PT10M</AutoDeleteOnIdle>", "<ForwardTo>other</ForwardTo>"
    for number, (inside, shown) in enumerate(
        (
            (f"{forward}{idle}", "P10675199DT2H48M5.4775807S"),
            (f"{idle}{forward}", "PT10M"),
            (idle, "PT10M"),
            (f"<ForwardDeadLetteredMessagesTo>other</ForwardDeadLetteredMessagesTo>{idle}", "PT10M"),
        )
    ):
        path = f"/q{number}" if kind == "Queue" else f"/t/subscriptions/s{number}"
        made = await http.put(path, f"<{kind}Description>{inside}</{kind}Description>")
        assert (made.status, made.elements["AutoDeleteOnIdle"]) == (201, shown)


# ---------------------------------------------------------------- refusals


async def test_the_refusals_that_clients_map_to_their_exceptions(http: Raw) -> None:
    await http.put("/q", "<QueueDescription/>")
    await http.put("/t", "<TopicDescription/>")
    subscription, rule = "/t/subscriptions/s", "/t/subscriptions/s/rules/$Default"
    queue, made = "<QueueDescription/>", "<SubscriptionDescription/>"
    assert (await http.put("/none/subscriptions/s", made)).status == 404
    await http.put(subscription, made)
    name, other = "sbemulatorns:Topic:t|s", "/t/subscriptions/n"
    no_rule = f"Entity '{name}|$Defaultx' was not found."
    expected = [
        (
            await http.put("/q", queue),
            409,
            "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current "
            "state. To know more visit https://aka.ms/sbResourceMgrExceptions. . TrackingId:",
        ),
        (await http.put("/q", "<TopicDescription/>"), 409, "SubCode=40900. Conflict. "),
        (await http.put(subscription, made), 409, f"The messaging entity '{name}' already exists."),
        (await http.put(rule, "<RuleDescription/>"), 409, f"The messaging entity '{name}|$Default' already exists."),
        (await http.put("/none", queue, update=True), 404, "SubCode=40400. Not Found. The Operation doesn't exist."),
        (
            await http.put(other, made, update=True),
            404,
            "Entity 'sbemulatorns:Topic:t|n' was not found.",
        ),
        (
            await http.put(other, _lock("SubscriptionDescription", "PT9M"), update=True),
            400,
            "SubCode=40000. The supplied lock time exceeds the allowed maximum of '5' minutes. To know more visit http",
        ),
        (
            await http.put(f"{rule}x", "<RuleDescription/>", update=True),
            404,
            f"Entity '{name}|$Defaultx' was not found.",
        ),
        (await http.get(other), 404, "Entity 'sbemulatorns:Topic:t|n' was not found."),
        (await http.get(f"{rule}x"), 404, no_rule),
        (await http("DELETE", "/none"), 404, "No service is hosted at the specified address."),
        (await http("DELETE", other), 404, "Entity 'sbemulatorns:Topic:t|n' was not found."),
        (await http("DELETE", f"{rule}x"), 404, no_rule),
        (await http.put("/bad", _lock("QueueDescription", "PT9M")), 400, "SubCode=40000. The supplied lock t"),
        (await http.put("/bad", _lock("QueueDescription", "PT1S")), 400, "SubCode=40000. LockDuration is PT1S; al"),
        (await http.put("/t", queue, update=True), 400, "SubCode=40000. 't' is a topic, not a queue."),
        (await http.put("/x", made), 400, "SubCode=40000. The description is a SubscriptionDescription; 'x' is no"),
        (await http.put("/t/subscriptions/x", queue), 400, "SubCode=40000. The description is a QueueDescription and"),
        (await http.put("/x", "<Relay/>"), 400, "SubCode=40000. The description is a 'Relay'; allowed is QueueD"),
        (
            await http.put("/x", _lock("QueueDescription", "1 minute")),
            400,
            "SubCode=40000. Bad Request. The value of 'LockDuration'",
        ),
        (await http.put("/x", _lock("QueueDescription", "")), 400, "SubCode=40000. Bad Request. The value of"),
    ]
    for reply, status, detail in expected:
        assert (reply.status, reply.detail[: len(detail)]) == (status, detail)
        assert re.fullmatch(
            r"(?s).*\. TrackingId:[0-9a-f-]{36}_G\d+, SystemTracker:\S+, Timestamp:2027-01-15T08:00:00", reply.detail
        )
        assert reply.headers["Content-Type"] == "application/xml; charset=utf-8"
        assert reply.root.findtext("Code") == str(status)


def _lock(kind: str, duration: str) -> str:
    return f"<{kind}><LockDuration>{duration}</LockDuration></{kind}>"


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        ("<MaxDeliveryCount>many</MaxDeliveryCount>", "'many' is not a whole number"),
        ("<MaxDeliveryCount>9999999999999999999999</MaxDeliveryCount>", "'99999999999999999999' is not a whole"),
        ("<MaxDeliveryCount><A/></MaxDeliveryCount>", "The element 'MaxDeliveryCount' holds elements"),
        ("<EnableExpress>maybe</EnableExpress>", "'maybe' is neither true nor false"),
        ("<Status>Renaming</Status>", "'Renaming' is none of Active, Disabled, SendDisabled, ReceiveDisabled"),
        ("<AutoDeleteOnIdle/>", "it is empty"),
        (
            "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Root</AccessRights></Rights>"
            "</AuthorizationRule></AuthorizationRules>",
            "The right 'Root' is none of Send, Listen, Manage.",
        ),
        ("<AuthorizationRules><Rule/></AuthorizationRules>", "The authorization rule is of type 'Rule'"),
    ],
)
async def test_a_value_that_cannot_be_read_is_named(http: Raw, element: str, problem: str) -> None:
    refused = await http.put("/q", f"<QueueDescription>{element}</QueueDescription>")
    assert refused.status == 400
    assert problem in refused.detail
    assert (await http.get("/$Resources/queues")).titles == []


async def test_an_old_api_version_cannot_set_what_came_later(http: Raw) -> None:
    sized = "<QueueDescription><MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes></QueueDescription>"
    refused = await http.put("/q", sized, version="2017-04")
    assert (refused.status, "api-version 2017-04; it came with 2021-05" in refused.detail) == (400, True)
    assert (await http.put("/q", sized)).status == 201  # what is shown may be echoed
    larger = sized.replace("256", "1024")
    assert (await http.put("/r", larger)).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no XML",
        b"<entry",
        b"<entry/>",
        b"<feed><content><QueueDescription/></content></feed>",
        b"<entry><content/></entry>",
        b"\xff\xfe\x00",
        b"<?xml version='1.0' encoding='utf-99'?><entry/>",
        b"<!DOCTYPE entry><entry><content><QueueDescription/></content></entry>",
        b"<!DOCTYPE e [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><entry><content>&b;</content></entry>",
        b"<!DOCTYPE e [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><entry><content>&x;</content></entry>",
        b"<a>" * 60_000,
    ],
)
async def test_a_body_that_is_no_entry_is_refused_and_changes_nothing(http: Raw, body: bytes) -> None:
    for path in ("/q", "/t/subscriptions/s", "/t/subscriptions/s/rules/r"):
        refused = await http("PUT", path, body)
        assert (refused.status, refused.detail[:15]) == (400, "SubCode=40000. ")
    assert (await http.get("/$Resources/queues")).titles == []


async def test_a_body_that_is_too_large_is_refused(http: Raw) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 10_000

    large = entry(f"<QueueDescription><UserMetadata>{'x' * 300_000}</UserMetadata></QueueDescription>")
    assert (await http("PUT", "/q", large)).status == 413
    assert (await http("PUT", "/q", chunks())).status == 413  # type: ignore[arg-type]
    assert (await http.get("/$Resources/queues")).titles == []


async def test_a_store_that_is_out_is_a_status_that_every_client_tries_again(http: Raw, server: Server) -> None:
    server.broker.outages.begin(3, Outage(OutageKind.DOWN))
    refused = await http.put("/q", "<QueueDescription/>")
    assert (refused.status, refused.detail[:38]) == (503, "SubCode=50300. Messaging store 3 could")
    server.broker.outages.end(3)
    assert (await http.put("/q", "<QueueDescription/>")).status == 201


async def test_characters_that_xml_cannot_carry_do_not_spoil_an_answer(http: Raw, server: Server) -> None:
    server.broker.administration.create(QueueDescription("q", user_metadata='a\x01"\r\n\t<\ud800'))
    assert (await http.get("/q")).elements["UserMetadata"] == 'a\ufffd"\r\n\t<\ufffd'
