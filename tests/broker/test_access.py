"""Shared access signatures, the claims that they give, and what the claims open."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote, quote_plus

import pytest

from emubus.broker.access import DEFAULT_KEY, DEFAULT_KEY_NAME, Access, Claim, parse_token, sign
from emubus.broker.address import parse_address
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import ALL_RIGHTS, Right, SharedKey

NOW = 1_767_225_000_000
EXPIRY = "1767225600"
EXPIRES_AT = 1_767_225_600_000
VECTOR = (
    "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%3A5672%2Fq1&sig=p8GkmsWSy%2Ff3ImKqGnUbIoBHuFBNOlwLSL5mnaOfy1I%3D"
    "&se=1767225600&skn=RootManageSharedAccessKey"
)
STRICT = Access(verify=True)


def token(audience: str, key: str = DEFAULT_KEY, name: str = DEFAULT_KEY_NAME, expiry: str = EXPIRY) -> str:
    return signed(quote_plus(audience), key, name, expiry)


def signed(resource: str, key: str = DEFAULT_KEY, name: str = DEFAULT_KEY_NAME, expiry: str = EXPIRY) -> str:
    signature = quote(sign(resource, expiry, key), safe="")
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={quote(name)}"


def refusal(access: Access, text: str, audience: str = "sb://localhost/q1", now: int = NOW) -> str:
    with pytest.raises(BrokerError) as raised:
        access.put_token(text, audience, now)
    assert raised.value.condition is Condition.UNAUTHORIZED_ACCESS
    return raised.value.description


# ---------------------------------------------------------------- tokens


def claim(path: str, expires_at: int) -> Claim:
    """What the namespace's own key gives; it holds as long as the namespace has the key."""
    return Claim(path, ALL_RIGHTS, expires_at, key_name=DEFAULT_KEY_NAME, key_text=DEFAULT_KEY)


def test_a_signature_is_that_of_the_published_example() -> None:
    assert (
        sign("sb%3A%2F%2Flocalhost%3A5672%2Fq1", EXPIRY, DEFAULT_KEY) == "p8GkmsWSy/f3ImKqGnUbIoBHuFBNOlwLSL5mnaOfy1I="
    )
    assert STRICT.put_token(VECTOR, "sb://localhost:5672/q1", NOW) == claim("q1", EXPIRES_AT)


@pytest.mark.parametrize(
    ("expiry", "at"),
    [("1767225600.25", EXPIRES_AT + 250), ("1767225600.123456", EXPIRES_AT + 123), ("1767225600.0", EXPIRES_AT)],
)
def test_the_expiry_of_a_token_may_have_a_fraction(expiry: str, at: int) -> None:
    """As ServiceBusJavaScriptSdk and scripts write it."""
    assert STRICT.put_token(token("sb://h/q1", expiry=expiry), "sb://h/q1", NOW) == claim("q1", at)
    assert "ExpiredToken" in refusal(STRICT, token("sb://h/q1", expiry=expiry), now=at)


def test_the_parameters_of_a_token_come_in_any_order_and_the_scheme_word_in_any_case() -> None:
    parameters = VECTOR.removeprefix("SharedAccessSignature ").split("&")
    text = f"sharedaccesssignature {'&'.join(reversed(parameters))}"
    assert parse_token(text) == parse_token(VECTOR)


@pytest.mark.parametrize(
    "audience", ["sb://h/q1", "amqp://other:5672/Q1/", "amqps://h/q1/$management", "https://h/q%31"]
)
def test_scheme_authority_case_encoding_and_trailing_slash_of_an_audience_do_not_matter(audience: str) -> None:
    assert STRICT.put_token(VECTOR, audience, NOW).path == "q1"


@pytest.mark.parametrize("resource", ["sb%3a%2f%2flocalhost%2fq1", "sb://localhost/q1", "SB%3A//LOCALHOST/Q1"])
def test_the_resource_is_signed_as_it_was_received_however_it_is_encoded(resource: str) -> None:
    assert STRICT.put_token(signed(resource), "sb://localhost/q1", NOW).path == "q1"


@pytest.mark.parametrize(
    ("resource", "valid"),
    [
        ("localhost", True),
        ("127.0.0.9", True),
        ("host:5672", True),
        ("ns.servicebus.windows.net/q1", True),
        ("q1", True),
        ("q2", False),
        ("localhost/q2", False),
        ("orders.eu", False),
        ("orders.eu/q1", False),
    ],
)
def test_a_resource_without_scheme_may_begin_with_the_host(resource: str, valid: bool) -> None:
    if valid:
        assert STRICT.put_token(signed(resource), "sb://localhost/q1", NOW).path == "q1"
    else:
        assert refusal(STRICT, signed(resource)).startswith("InvalidAudience: ")


def test_an_unencoded_plus_in_a_signature_is_a_plus() -> None:
    resource = next(f"sb://h/q{n}" for n in range(1000) if "+" in sign(f"sb://h/q{n}", EXPIRY, DEFAULT_KEY))
    text = signed(resource).replace("%2B", "+")
    assert STRICT.put_token(text, resource, NOW).rights == ALL_RIGHTS


@pytest.mark.parametrize(
    "text",
    [
        VECTOR.replace("p8Gk", "p8Gl"),
        VECTOR.replace("q1", "q2"),
        VECTOR.replace("1767225600", "1767225601"),
        VECTOR.replace("RootManage", "Unknown"),
        VECTOR.replace("p8Gk", "\udcff"),
        token("sb://localhost/q1", key="another key"),
    ],
)
def test_a_token_that_was_tampered_with_has_an_invalid_signature(text: str) -> None:
    assert refusal(STRICT, text) == "InvalidSignature: The token has an invalid signature."


def test_a_token_ends_at_its_expiry() -> None:
    assert STRICT.put_token(VECTOR, "sb://h/q1", EXPIRES_AT - 1).expires_at == EXPIRES_AT
    ended = "ExpiredToken: The token is expired. Expiration time: '2026-01-01 00:00:00Z'."
    assert refusal(STRICT, VECTOR, now=EXPIRES_AT) == ended


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SharedAccessSignature",
        "eyJhbGciOi.J9.x",
        "SharedAccessSignature sr=a&sig=b&se=1",
        VECTOR.replace("se=", "se=x"),
        VECTOR.replace("se=17", "se=.17"),
        VECTOR.replace("se=17", "se=1.7."),
        VECTOR.replace("se=17", "se=٣"),
    ],
)
def test_what_is_no_token_is_called_malformed(text: str) -> None:
    assert refusal(STRICT, text).startswith("MalformedToken: ")


def test_a_token_for_one_entity_is_not_valid_for_another() -> None:
    assert refusal(STRICT, VECTOR, "sb://localhost/q2").startswith("InvalidAudience: ")
    assert refusal(STRICT, VECTOR, "sb://localhost/q11").startswith("InvalidAudience: ")
    assert refusal(STRICT, VECTOR, "sb://localhost/").startswith("InvalidAudience: ")


def test_without_verification_any_text_gives_all_rights() -> None:
    access = Access(verify=False)
    assert access.put_token("nonsense", "sb://h/q1", NOW) == Claim("q1", ALL_RIGHTS)
    assert access.claim_of_key("x", "y") == Claim("", ALL_RIGHTS)
    assert access.claims_allow([], "q1", Right.MANAGE)


# ---------------------------------------------------------------- keys


LISTENER = SharedKey("listener", "k1", frozenset({Right.LISTEN}), scope="T1", secondary_key="k2")
KEYED = Access([LISTENER, SharedKey("root", "k0")], verify=True, authority="ns")


def test_the_secondary_key_signs_as_well_as_the_first() -> None:
    for key in ("k1", "k2"):
        claim = KEYED.put_token(token("sb://h/t1/subscriptions/s", key, "listener"), "sb://h/t1/Subscriptions/s", NOW)
        assert claim == Claim("t1/subscriptions/s", frozenset({Right.LISTEN}), EXPIRES_AT, True, "listener", key)


def test_the_key_of_an_entity_opens_nothing_else() -> None:
    text = token("sb://h/", "k1", "listener")
    assert refusal(KEYED, text, "sb://h/q1") == "InvalidAudience: The token is not valid for 'sb://ns/q1'."


def test_the_key_of_an_entity_opens_no_entity_whose_name_begins_with_its_name() -> None:
    access = Access([SharedKey("k", "1", scope="qa")], verify=True)
    text = token("sb://h/", "1", "k")
    for below in ("qa/b", "qa/b/subscriptions/s", "qa/subscription/s"):
        assert refusal(access, text, f"sb://h/{below}").startswith("InvalidAudience: ")
    for claim in (access.put_token(text, "sb://h/qa", NOW), access.claim_of_key("k", "1")):
        opened = ("QA", "qa/$DeadLetterQueue", "qa/$management", "qa/Subscriptions/s/$DeadLetterQueue")
        assert [access.claims_allow([claim], address, Right.SEND) for address in opened] == [True] * 4
        assert not access.claims_allow([claim], "qa/b", Right.SEND)


@pytest.mark.parametrize("address", ["qa?://h/qb", "/qa://h/qb", "q/a://h/qb", "qa?x"])
def test_rights_are_needed_on_the_entity_that_an_address_means(address: str) -> None:
    claims = [Claim("qa", ALL_RIGHTS), Claim("q", ALL_RIGHTS), Claim("qb", ALL_RIGHTS), Claim("qa:", ALL_RIGHTS)]
    covering = [claim.path for claim in claims if STRICT.claims_allow([claim], address, Right.SEND)]
    path = parse_address(address).key
    assert covering == [claim.path for claim in claims if f"{path}/".startswith(f"{claim.path}/")]


def test_two_entities_may_have_keys_of_the_same_name() -> None:
    access = Access([SharedKey("k", "1", scope="a"), SharedKey("k", "2", scope="b")], verify=True)
    assert access.put_token(token("sb://h/b", "2", "k"), "sb://h/b", NOW).path == "b"
    assert refusal(access, token("sb://h/b", "1", "k"), "sb://h/b").startswith("InvalidAudience")


def test_a_key_can_be_presented_itself() -> None:
    assert KEYED.claim_of_key("listener", "k2") == Claim("t1", frozenset({Right.LISTEN}), None, True, "listener", "k2")
    for name, key in (("listener", "k3"), ("nobody", "k1"), ("listener", ""), ("listener", "kö")):
        with pytest.raises(BrokerError, match="InvalidSignature"):
            KEYED.claim_of_key(name, key)


# ---------------------------------------------------------------- claims


@pytest.mark.parametrize(
    ("path", "address", "is_covered"),
    [
        ("", "q1", True),
        ("q1", "sb://h/Q1/$DeadLetterQueue", True),
        ("q1", "q1/$management", True),
        ("q1", "q11", False),
        ("q1", "q", False),
        ("t1", "t1/Subscriptions/s", True),
        ("t1/subscriptions/s", "t1", False),
        ("t1/subscriptions/s", "t1/subscriptions/S/$DeadLetterQueue/$management", True),
    ],
)
def test_a_claim_opens_an_entity_and_everything_below_it(path: str, address: str, is_covered: bool) -> None:
    assert STRICT.claims_allow([Claim(path, ALL_RIGHTS)], address, Right.SEND) is is_covered


def test_manage_includes_send_and_listen_which_do_not_include_each_other() -> None:
    for held, wanted, is_allowed in [
        (Right.MANAGE, Right.SEND, True),
        (Right.MANAGE, Right.LISTEN, True),
        (Right.SEND, Right.LISTEN, False),
        (Right.LISTEN, Right.SEND, False),
        (Right.SEND, Right.MANAGE, False),
    ]:
        assert STRICT.claims_allow([Claim("", frozenset({held}))], "q1", wanted) is is_allowed


def test_the_longest_claim_decides() -> None:
    claims = [Claim("", ALL_RIGHTS), Claim("q1", frozenset({Right.LISTEN}))]
    assert not STRICT.claims_allow(claims, "q1", Right.SEND)
    assert STRICT.claims_allow(claims, "q1", Right.LISTEN)
    assert STRICT.claims_allow(claims, "q2", Right.SEND)


def test_an_expired_claim_opens_nothing_and_hides_nothing() -> None:
    claims = [Claim("", ALL_RIGHTS), Claim("q1", frozenset({Right.LISTEN}), expires_at=NOW)]
    assert not STRICT.claims_allow(claims, "q1", Right.SEND, NOW - 1)
    assert STRICT.claims_allow(claims, "q1", Right.SEND, NOW)


def test_the_refusal_without_a_claim_names_the_claim_that_is_needed() -> None:
    with pytest.raises(BrokerError) as raised:
        KEYED.require([], "amqp://localhost:5672/Q1/$management", Right.SEND)
    assert raised.value.condition is Condition.UNAUTHORIZED_ACCESS
    assert raised.value.description == (
        "Unauthorized access. 'Send' claim(s) are required to perform this operation. Resource: 'sb://ns/Q1'."
    )
    KEYED.require([Claim("q1", frozenset({Right.SEND}))], "Q1", Right.SEND)


def test_a_claim_is_as_good_as_the_key_that_the_entity_has_now() -> None:
    keys = [LISTENER]
    access = Access([SharedKey("root", "k0")], verify=True, entity_keys=lambda _: keys)
    shown = [access.claim_of_key("listener", text) for text in ("k1", "k2")]
    signed_for = access.put_token(token("sb://h/t1/subscriptions/s", "k1", "listener"), "t1/subscriptions/s", NOW)
    of_namespace = access.claim_of_key("root", "k0")
    assert "k1" not in repr(shown)

    def rights_now() -> list[frozenset[Right] | None]:
        found = [access.current(claim) for claim in (*shown, signed_for, of_namespace)]
        return [None if claim is None else claim.rights for claim in found]

    listen, send = frozenset({Right.LISTEN}), frozenset({Right.SEND})
    assert rights_now() == [listen, listen, listen, ALL_RIGHTS]
    keys[:] = [replace(LISTENER, rights=send)]
    assert rights_now() == [send, send, send, ALL_RIGHTS]
    keys[:] = [replace(LISTENER, secondary_key="k3")]
    assert rights_now() == [listen, None, listen, ALL_RIGHTS]
    for others in ([], [replace(LISTENER, name="other")]):
        keys[:] = others
        assert rights_now() == [None, None, None, ALL_RIGHTS]


def test_a_configured_key_of_an_entity_opens_it_as_long_as_it_is_configured() -> None:
    key = SharedKey("only-a", "secret", frozenset({Right.LISTEN}), scope="A")
    access = Access([key], verify=True)
    claim = access.claim_of_key("only-a", "secret")
    assert access.current(claim) == claim
    assert access.claims_allow([claim], "a", Right.LISTEN)
    assert not access.claims_allow([claim], "b", Right.LISTEN)
    access.replace_keys([replace(key, scope="b")])
    assert access.current(claim) is None
