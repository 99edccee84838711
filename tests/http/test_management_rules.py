"""Rules and authorisation rules over the management API: types of values, keys, and what they open."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from emubus.broker.access import Access
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import Right
from emubus.broker.model.descriptions import CorrelationFilter, RuleDescription, SqlFilter, TypedText
from emubus.server import Server

from ..broker.driving import encoded, read
from ..broker.namespace import send
from .administering import CONNECT, NOW, Raw, Reply, raw, running

SUBSCRIPTION = "/t/subscriptions/s"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path, Clock(start_at=NOW, frozen=True)) as server:
        yield server


@pytest.fixture
async def http(server: Server) -> AsyncIterator[Raw]:
    async with raw(server) as client:
        await client.put("/t", "<TopicDescription/>")
        await client.put(SUBSCRIPTION, "<SubscriptionDescription/>")
        yield client


def value(name: str, kind: str, text: str, prefix: str = "x") -> str:
    typed = f'i:type="{prefix}:{kind}" xmlns:{prefix}="{SCHEMA}"'
    return f"<KeyValueOfstringanyType><Key>{name}</Key><Value {typed}>{text}</Value></KeyValueOfstringanyType>"


def comparing(properties: str) -> str:
    return f'<Filter i:type="CorrelationFilter"><Properties>{properties}</Properties></Filter>'


def rule(server: Server, name: str) -> RuleDescription:
    (found,) = [each for each in server.broker.administration.rules("t/Subscriptions/s") if each.name == name]
    return found


async def received(server: Server) -> list[object]:
    """The application properties of what the subscription holds."""
    payloads = await server.broker.messages.peek("t/Subscriptions/s", 0, 100, 1 << 20)
    return [dict(read(payload).properties) for payload in payloads]


# ---------------------------------------------------------------- rules


async def test_a_subscription_has_one_rule_that_everything_matches(http: Raw) -> None:
    shown = await http.get(f"{SUBSCRIPTION}/rules/$default")
    assert shown.text[shown.text.index("<Filter") : shown.text.index("</RuleDescription>")] == (
        '<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>'
        '</Filter><Action i:type="EmptyRuleAction"/><CreatedAt>2027-01-15T08:00:00.123Z</CreatedAt>'
        "<Name>$Default</Name>"
    )


async def test_values_come_back_with_the_type_and_the_text_with_which_they_came(http: Raw, server: Server) -> None:
    values = {
        "s": ("string", "str1"),
        "empty": ("string", ""),
        "i": ("int", "2"),
        "l": ("long", "3"),
        "big": ("long", "2147483650"),
        "d": ("double", "2.5"),
        "whole": ("double", "3"),
        "inf": ("double", "-INF"),
        "b": ("boolean", "false"),
        "at": ("dateTime", "2020-07-05T11:12:13"),
        "span": ("duration", "P1DT2H3M"),
        "back": ("duration", "-PT0.0000001S"),
        "price": ("decimal", "19.90"),
        "ulong": ("unsignedLong", "18446744073709551615"),
        "guid": ("guid", "12345678-1234-1234-1234-123456789abc"),
    }
    properties = "".join(value(name, *typed) for name, typed in values.items())
    made = await http.put(
        f"{SUBSCRIPTION}/rules/Typed",
        '<RuleDescription><Filter i:type="CorrelationFilter"><Properties>'
        f"{properties}</Properties><Label>l</Label><CorrelationId>c</CorrelationId></Filter></RuleDescription>",
    )
    assert made.status == 201
    shown = await http.get(f"{SUBSCRIPTION}/rules/typed")
    assert "<CorrelationId>c</CorrelationId><Label>l</Label><Properties>" in shown.text
    for name, (kind, text) in values.items():
        namespace = SERIALIZATION if kind in ("duration", "guid") else SCHEMA
        assert f'<Key>{name}</Key><Value i:type="d6p1:{kind}" xmlns:d6p1="{namespace}">{text}</Value>' in shown.text
    kept = rule(server, "Typed").filter
    assert isinstance(kept, CorrelationFilter)
    assert kept.properties == {
        "s": "str1",
        "empty": "",
        "i": 2,
        "l": TypedText("long", "3"),
        "big": 2147483650,
        "d": 2.5,
        "whole": 3.0,
        "inf": float("-inf"),
        "b": False,
        "at": TypedText("dateTime", "2020-07-05T11:12:13"),
        "span": TypedText("duration", "P1DT2H3M"),
        "back": TypedText("duration", "-PT0.0000001S"),
        "price": TypedText("decimal", "19.90"),
        "ulong": 2**64 - 1,
        "guid": TypedText("guid", "12345678-1234-1234-1234-123456789abc"),
    }


@pytest.mark.parametrize("kind", ["int", "long", "double"])
async def test_a_number_matches_whatever_its_width(http: Raw, server: Server, kind: str) -> None:
    properties = value("n", kind, "3", "d6p1")
    filter_ = f'<Filter i:type="CorrelationFilter"><Properties>{properties}</Properties></Filter>'
    await http.put(f"{SUBSCRIPTION}/rules/r", f"<RuleDescription>{filter_}</RuleDescription>")
    await http("DELETE", f"{SUBSCRIPTION}/rules/$Default")
    for number in (3, 4):
        await send(server.broker, "t", encoded(properties={"n": number}))
    assert await received(server) == [{"n": 3}]


async def test_filters_and_actions_use_their_parameters(http: Raw, server: Server) -> None:
    made = await http.put(
        f"{SUBSCRIPTION}/rules/r",
        '<RuleDescription><Filter i:type="SqlFilter"><SqlExpression>level = @level</SqlExpression>'
        f"<CompatibilityLevel>20</CompatibilityLevel><Parameters>{value('@level', 'int', '2')}</Parameters></Filter>"
        '<Action i:type="SqlRuleAction"><SqlExpression>SET seen = @by</SqlExpression>'
        f"<Parameters>{value('@by', 'string', 'me')}</Parameters></Action></RuleDescription>",
    )
    assert made.status == 201
    assert rule(server, "r") == RuleDescription(
        "r", SqlFilter("level = @level", {"@level": 2}), "SET seen = @by", action_parameters={"@by": "me"}
    )
    await http("DELETE", f"{SUBSCRIPTION}/rules/$Default")
    for level in (1, 2):
        await send(server.broker, "t", encoded(properties={"level": level}))
    assert await received(server) == [{"level": 2, "seen": "me", "RuleName": "r"}]
    shown = await http.get(f"{SUBSCRIPTION}/rules/r")
    parameters = f"<Parameters>{value('@by', 'string', 'me', 'd6p1')}</Parameters></Action>"
    assert parameters in shown.text


async def test_the_rule_of_a_new_subscription_may_be_given(http: Raw) -> None:
    made = await http.put(
        "/t/subscriptions/given",
        '<SubscriptionDescription><DefaultRuleDescription><Filter i:type="FalseFilter"/>'
        '<Action i:type="EmptyRuleAction"/><Name>None</Name></DefaultRuleDescription></SubscriptionDescription>',
    )
    assert made.status == 201
    assert (await http.get("/t/subscriptions/given/rules")).titles == ["None"]
    await http.put("/t/subscriptions/given", "<SubscriptionDescription/>", update=True)
    assert (await http.get("/t/subscriptions/given/rules")).titles == ["None"]


async def test_an_updated_rule_keeps_its_name_and_rules_are_listed_by_name(http: Raw) -> None:
    for name in ("B", "a"):
        await http.put(f"{SUBSCRIPTION}/rules/{name}", "<RuleDescription/>")
    changed = await http.put(
        f"{SUBSCRIPTION}/rules/b", '<RuleDescription><Filter i:type="FalseFilter"/></RuleDescription>', update=True
    )
    assert (changed.status, changed.elements["Name"]) == (200, "B")
    assert (await http.get(f"{SUBSCRIPTION}/rules/")).titles == ["$Default", "a", "B"]
    page = await http.get(f"{SUBSCRIPTION}/rules?$skip=1&$top=1")
    assert (page.titles, page.links[1][0]) == (["a"], "next")


async def test_filters_are_counted_by_kind(http: Raw) -> None:
    sql = '<RuleDescription><Filter i:type="SqlFilter"><SqlExpression>1=1</SqlExpression></Filter></RuleDescription>'
    label = '<RuleDescription><Filter i:type="CorrelationFilter"><Label>x</Label></Filter></RuleDescription>'
    await http.put(f"{SUBSCRIPTION}/rules/sql", sql)
    await http.put(f"{SUBSCRIPTION}/rules/label", label)
    shown = (await http.get("/t", "2024-05")).elements
    counts = ("SubscriptionCount", "SqlFilterCount", "CorrelationFilterCount")
    assert [shown[name] for name in counts] == ["1", "2", "1"]


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ('<Filter i:type="LuceneFilter"/>', "The filter is of type 'LuceneFilter'; allowed is SqlFilter, Corr"),
        ("<Filter/>", "The filter is of type ''; allowed is"),
        ('<Filter i:type="SqlFilter"/>', "The SqlFilter has no SqlExpression."),
        ('<Filter i:type="SqlFilter"><SqlExpression>a =</SqlExpression></Filter>', "SQL filter: unexpected the end"),
        (
            '<Filter i:type="SqlFilter"><SqlExpression>a = @p</SqlExpression></Filter>',
            "the parameter @p has no value",
        ),
        ('<Filter i:type="CorrelationFilter"/>', "CorrelationFilter is empty"),
        ('<Action i:type="RunAction"/>', "The action is of type 'RunAction'; allowed is SqlRuleAction, Empty"),
        ('<Action i:type="SqlRuleAction"><SqlExpression>GO</SqlExpression></Action>', "SQL action: "),
        (
            f'<Filter i:type="CorrelationFilter"><Properties>{value("a", "anyURI", "x")}</Properties></Filter>',
            "'anyURI'",
        ),
        (f'<Filter i:type="CorrelationFilter"><Properties>{value("a", "int", "x")}</Properties></Filter>', "no int"),
        (
            f'<Filter i:type="CorrelationFilter"><Properties>{value("a", "int", "2147483648")}</Properties></Filter>',
            "The value of 'a' is '2147483648', which is no int.",
        ),
        (
            f'<Filter i:type="CorrelationFilter"><Properties>{value("a", "dateTime", "soon")}</Properties></Filter>',
            "soon",
        ),
        (
            f'<Filter i:type="CorrelationFilter"><Properties>{value("a", "int", "1") * 2}</Properties></Filter>',
            "The key 'a' is given twice.",
        ),
    ],
)
async def test_a_rule_that_cannot_be_used_is_refused_whole(http: Raw, inside: str, problem: str) -> None:
    refused = await http.put(f"{SUBSCRIPTION}/rules/r", f"<RuleDescription>{inside}</RuleDescription>")
    assert (refused.status, problem in refused.detail) == (400, True), refused.detail
    given = f"<DefaultRuleDescription>{inside}</DefaultRuleDescription>"
    refused = await http.put("/t/subscriptions/x", f"<SubscriptionDescription>{given}</SubscriptionDescription>")
    assert (refused.status, problem in refused.detail) == (400, True), refused.detail
    assert (await http.get("/t/subscriptions")).titles == ["s"]
    assert (await http.get(f"{SUBSCRIPTION}/rules")).titles == ["$Default"]


# ---------------------------------------------------------------- authorisation rules


def key(name: str, *rights: str, keys: tuple[str, str] = ("p", "s")) -> str:
    granted = "".join(f"<AccessRights>{right}</AccessRights>" for right in rights)
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType>'
        f"<ClaimValue>None</ClaimValue><Rights>{granted}</Rights><KeyName>{name}</KeyName>"
        f"<PrimaryKey>{keys[0]}</PrimaryKey><SecondaryKey>{keys[1]}</SecondaryKey></AuthorizationRule>"
    )


def with_keys(kind: str, *keys: str) -> str:
    return f"<{kind}><AuthorizationRules>{''.join(keys)}</AuthorizationRules></{kind}>"


async def test_authorisation_rules_are_kept_and_shown(http: Raw) -> None:
    rules = (key("all", "Manage", "Send", "Listen"), key("one", "Listen", keys=("x", "y")))
    for path, kind in (("/q", "QueueDescription"), ("/x", "TopicDescription")):
        made = await http.put(path, with_keys(kind, *rules))
        assert f"<AuthorizationRules>{''.join(rules)}</AuthorizationRules>" in made.text
        assert (await http.put(path, f"<{kind}/>", update=True)).elements["AuthorizationRules"] is None


def keys_of(reply: Reply) -> list[tuple[str | None, str | None]]:
    """Primary and secondary keys in an answer."""
    found = reply.description.findall(f".//{{{CONNECT}}}AuthorizationRule")
    return [(each.findtext(f"{{{CONNECT}}}PrimaryKey"), each.findtext(f"{{{CONNECT}}}SecondaryKey")) for each in found]


async def test_keys_that_are_left_out_are_made_once_and_stay(http: Raw) -> None:
    made = await http.put("/q", with_keys("QueueDescription", key("k", "Send", keys=("", ""))))
    ((primary, secondary),) = keys_of(made)
    assert [len(base64.b64decode(each or "")) for each in (primary, secondary)] == [32, 32]
    assert primary != secondary
    again = await http.put("/q", with_keys("QueueDescription", key("k", "Listen", keys=("", ""))), update=True)
    assert keys_of(again) == [(primary, secondary)]


async def test_rules_that_the_limits_forbid_are_refused(http: Raw) -> None:
    refused = await http.put("/q", with_keys("QueueDescription", key("k", "Manage")))
    assert refused.status == 400
    assert "Rights is Manage; allowed is Send and Listen together with Manage" in refused.detail


# ---------------------------------------------------------------- who may do what


def token(resource: str, name: str, secret: str, *, ends_in_s: int = 600) -> str:
    expiry = str(NOW // 1000 + ends_in_s)
    signed = quote_plus(resource)
    digest = hmac.new(secret.encode(), f"{signed}\n{expiry}".encode(), hashlib.sha256).digest()
    return f"SharedAccessSignature sig={quote(base64.b64encode(digest))}&se={expiry}&skn={name}&sr={signed}"


ROOT = ("RootManageSharedAccessKey", "SAS_KEY_VALUE")


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path, Clock(start_at=NOW, frozen=True), auth="sas") as server:
        yield server


async def test_each_client_signs_another_address_of_the_same_request(guarded: Server) -> None:
    async with raw(guarded) as http:
        address = f"https://{http.authority}"
        path = "/a%2Ft/Subscriptions/S"
        full = f"http://{http.authority}{path}?api-version=2021-05".lower()
        for resource in (address, f"{address}/", full, full.partition("?")[0], "/a/t/subscriptions/s", "sb://else:1/a"):
            answer = await http("GET", path, Authorization=token(resource, *ROOT))
            assert answer.status == 404, resource  # it is not there, and that may be known


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (None, "MissingToken: "),
        ("Bearer abc", "MalformedToken: "),
        (token("https://h/", "RootManageSharedAccessKey", "wrong"), "InvalidSignature: "),
        (token("https://h/", "invalid", "SAS_KEY_VALUE"), "InvalidSignature: "),
        (token("https://h/other", *ROOT), "InvalidAudience: "),
        (token("https://h/", *ROOT, ends_in_s=0), "ExpiredToken: "),
    ],
)
async def test_a_request_without_a_valid_token_gets_401_and_changes_nothing(
    guarded: Server, header: str | None, problem: str
) -> None:
    headers = {} if header is None else {"Authorization": header}
    async with raw(guarded) as http:
        for method, path in (
            ("PUT", "/q"),
            ("GET", "/queue.1"),
            ("DELETE", "/queue.1"),
            ("GET", "/$Resources/queues"),
            ("GET", "/$namespaceinfo"),
        ):
            refused = await http(method, path, "<entry/>" if method == "PUT" else None, **headers)
            assert (refused.status, refused.detail[: len(problem)]) == (401, problem)
            assert refused.root.findtext("Code") == "401"
    assert guarded.broker.namespace.entity("queue.1") is not None


async def test_the_rules_of_entities_open_them_as_long_as_they_are_there(guarded: Server) -> None:
    async with raw(guarded) as http:
        root = token("https://h", *ROOT)
        keys = (key("m", "Manage", "Send", "Listen", keys=("1", "2")), key("l", "Listen"))
        assert (await http.put("/queue.1", with_keys("QueueDescription", *keys), update=True, token=root)).status == 200
        for secret in ("1", "2"):
            own = token("https://h/queue.1", "m", secret)
            assert (await http("GET", "/queue.1", Authorization=own)).status == 200
            assert (await http("GET", "/$Resources/queues", Authorization=own)).status == 401
            assert (await http.put("/other", "<QueueDescription/>", token=own)).status == 401
        assert (await http.put("/queue.1", "<QueueDescription/>", update=True, token=root)).status == 200
        assert (await http("GET", "/queue.1", Authorization=token("https://h/queue.1", "m", "1"))).status == 401


async def test_the_refusal_of_a_token_without_manage_names_the_right(guarded: Server) -> None:
    async with raw(guarded) as http:
        root = token("https://h", *ROOT)
        await http.put("/t", with_keys("TopicDescription", key("l", "Listen")), token=root)
        await http.put(SUBSCRIPTION, "<SubscriptionDescription/>", token=root)
        listener = token("https://h/t", "l", "p")
        words = "401 SubCode=40100: Unauthorized : Unauthorized access for 'GetSubscription' operation on endpoint "
        for method, path, reported in (
            ("GET", "/t", "Manage,EntityRead claims required for this operation."),
            ("DELETE", "/t", "Authorization failed for specified action: Manage,EntityDelete."),
            ("GET", SUBSCRIPTION, f"{words}'sb://{http.authority}{SUBSCRIPTION}'."),
        ):
            refused = await http(method, path, Authorization=listener)
            assert (refused.status, refused.detail[: len(reported)]) == (401, reported)


async def test_the_rules_of_entities_open_them_over_amqp_too(guarded: Server) -> None:
    access = Access((), verify=True, entity_keys=guarded.broker.namespace.entity_keys)
    async with raw(guarded) as http:
        root = token("https://h", *ROOT)
        body = with_keys("QueueDescription", key("l", "Listen", keys=("1", "2")))
        assert (await http.put("/q", body, token=root)).status == 201
        claim = access.put_token(token("sb://h/q", "l", "2"), "amqp://h/q/$DeadLetterQueue", NOW)
        assert (claim.path, claim.rights) == ("q", frozenset({Right.LISTEN}))
        claim = access.claim_of_key("l", "1")
        assert (claim.path, claim.rights, claim.is_of_entity) == ("q", frozenset({Right.LISTEN}), True)
        await http("DELETE", "/q", Authorization=root)
        with pytest.raises(BrokerError) as refused:
            access.put_token(token("sb://h/q", "l", "2"), "amqp://h/q", NOW)
        assert refused.value.condition is Condition.UNAUTHORIZED_ACCESS
