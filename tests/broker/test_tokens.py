"""Tokens of identities: signed by the server, read back, and refused in every way in which one can be wrong."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from emubus.broker.access import Access, Claim
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import ALL_RIGHTS, Right
from emubus.broker.roles import RoleAssignment, Roles
from emubus.broker.tokens import AUDIENCE_HOST, Identity, Issuer, is_for_messages

NOW_S = 1_767_225_600
AUDIENCE = f"https://{AUDIENCE_HOST}"
WHO = Identity.of_client("11111111-2222-3333-4444-555555555555")
HOST = "bus.servicebus.windows.net"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    found = Issuer()
    found.prepare()
    return found


@pytest.fixture(scope="module")
def stranger() -> Issuer:
    """With another key."""
    found = Issuer()
    found.prepare()
    return found


def encoded(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def refusal(issuer: Issuer, token: str, now_s: int = NOW_S) -> str:
    with pytest.raises(BrokerError) as raised:
        Access(verify=True, authority=HOST, issuer=issuer).put_token(token, f"sb://{HOST}/q", now_s * 1000)
    assert raised.value.condition is Condition.UNAUTHORIZED_ACCESS
    return raised.value.description


def test_a_token_names_its_identity_and_ends(issuer: Issuer) -> None:
    token = issuer.issue(WHO, AUDIENCE, NOW_S, 3600)
    claims = decoded(token.split(".")[1])
    assert (claims["aud"], claims["appid"], claims["azp"]) == (AUDIENCE, WHO.client_id, WHO.client_id)
    assert (claims["oid"], claims["tid"]) == (WHO.object_id, WHO.tenant)
    assert (claims["nbf"], claims["exp"]) == (NOW_S, NOW_S + 3600)
    assert issuer.read(token, NOW_S * 1000).identity == Identity(WHO.client_id, WHO.object_id)
    assert issuer.read(token, (NOW_S + 3600) * 1000 - 1).expires_at == (NOW_S + 3600) * 1000
    assert "ExpiredToken: The token is expired. Expiration time: '2026-01-01 01:00:00Z'." in refusal(
        issuer, token, NOW_S + 3600
    )


def test_the_key_set_verifies_a_token(issuer: Issuer) -> None:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
    from cryptography.hazmat.primitives.hashes import SHA256

    found: Any = issuer.keys()
    (key,) = found["keys"]
    head, claims, signature = issuer.issue(WHO, AUDIENCE, NOW_S, 60).split(".")
    assert decoded(head)["kid"] == key["kid"]

    def number(text: str) -> int:
        return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")

    public = RSAPublicNumbers(number(key["e"]), number(key["n"])).public_key()
    signed = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    public.verify(signed, f"{head}.{claims}".encode(), PKCS1v15(), SHA256())


def changed(part: int, change: Callable[[Any], Any]) -> Callable[[str], str]:
    def forge(token: str) -> str:
        parts = token.split(".")
        parts[part] = encoded(change(decoded(parts[part])))
        return ".".join(parts)

    return forge


INVALID = "InvalidSignature: The token has an invalid signature."
MALFORMED = "MalformedToken: The token is not a JSON Web Token."
FORGERIES: dict[str, tuple[Callable[[str], str], str]] = {
    "another client id": (changed(1, lambda claims: {**claims, "appid": "x"}), INVALID),
    "a later end": (changed(1, lambda claims: {**claims, "exp": 2_000_000_000}), INVALID),
    "no algorithm": (changed(0, lambda head: {**head, "alg": "none"}), INVALID),
    "no algorithm and no signature": (
        lambda token: changed(0, lambda head: {**head, "alg": "none"})(token).rpartition(".")[0] + ".",
        INVALID,
    ),
    "a symmetric algorithm": (changed(0, lambda head: {**head, "alg": "HS256"}), INVALID),
    "another key": (changed(0, lambda head: {**head, "kid": "x"}), "InvalidIssuer: Token issuer is invalid."),
    "no key": (
        changed(0, lambda head: {name: head[name] for name in head if name != "kid"}),
        "InvalidIssuer: Token issuer is invalid.",
    ),
    "an empty signature": (lambda token: token.rpartition(".")[0] + ".", INVALID),
    "the signature of a byte more": (lambda token: token + "AA", INVALID),
    "a head that is a list": (changed(0, lambda _: ["a"]), "MalformedToken"),
    "claims that are a number": (changed(1, lambda _: 5), MALFORMED),
    "no base64": (lambda token: "eyJ!." + token.partition(".")[2], MALFORMED),
    "not JSON": (lambda token: f"eyJh.{token.partition('.')[2]}", MALFORMED),
    "very long": (lambda token: "eyJ" + "A" * 20_000 + "." + token.partition(".")[2], MALFORMED),
    "nested deep": (lambda token: f"eyJh.{encoded(b'[' * 9_000)}.x", MALFORMED),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_token_is_refused(issuer: Issuer, name: str) -> None:
    forge, text = FORGERIES[name]
    assert text in refusal(issuer, forge(issuer.issue(WHO, AUDIENCE, NOW_S, 3600)))


def test_the_token_of_another_issuer_is_refused(issuer: Issuer, stranger: Issuer) -> None:
    """As the service says of a token of another tenant."""
    token = stranger.issue(WHO, AUDIENCE, NOW_S, 3600)
    assert refusal(issuer, token) == "InvalidIssuer: Token issuer is invalid."
    assert refusal(Issuer(), token) == "InvalidIssuer: Token issuer is invalid."  # it has never made a key
    head, claims, _ = issuer.issue(WHO, AUDIENCE, NOW_S, 3600).split(".")
    assert refusal(issuer, f"{head}.{claims}.{token.rpartition('.')[2]}") == INVALID


def test_a_token_is_not_valid_before_its_time(issuer: Issuer) -> None:
    token = issuer.issue(WHO, AUDIENCE, NOW_S, 3600)
    assert issuer.read(token, (NOW_S - 300) * 1000).identity.client_id == WHO.client_id  # clocks differ
    assert "not valid before '2026-01-01 00:00:00Z'" in refusal(issuer, token, NOW_S - 301)


@pytest.mark.parametrize(
    ("audience", "is_ours"),
    [
        (AUDIENCE, True),
        (f"{AUDIENCE}/", True),
        (f"{AUDIENCE}//", True),
        ("80a10ef9-8168-493d-abf9-3297c4ef6e3c", True),
        (f"https://{HOST}", True),
        (f"sb://{HOST}:5671/", True),
        ("https://other.servicebus.windows.net", False),
        ("https://management.azure.com/", False),
        ("https://servicebus.azure.net.example.com", False),
        ("https://example.com/servicebus.azure.net", False),
        ("servicebus.azure.net", False),
        ("https://[", False),
        ("", False),
    ],
)
def test_a_token_is_for_service_bus_or_for_this_namespace(issuer: Issuer, audience: str, is_ours: bool) -> None:
    assert is_for_messages(audience, HOST) is is_ours
    token = issuer.issue(WHO, audience, NOW_S, 3600)
    if is_ours:
        access = Access(verify=True, authority=HOST, issuer=issuer)
        claim = access.put_token(token, f"sb://{HOST}/q", NOW_S * 1000)
        assert claim == Claim("q", ALL_RIGHTS, (NOW_S + 3600) * 1000)
    else:
        assert refusal(issuer, token) == "InvalidAudience: Invalid authorization token audience."


def test_the_key_is_kept_and_a_damaged_one_is_replaced() -> None:
    kept = [b""]

    def new() -> Issuer:
        return Issuer(lambda: kept[0], lambda data: kept.__setitem__(0, data))

    first = new()
    first.prepare()
    token = first.issue(WHO, AUDIENCE, NOW_S, 3600)
    assert new().read(token, NOW_S * 1000).identity.client_id == WHO.client_id  # without a token being asked for
    kept[0] = kept[0][:100]
    damaged = new()
    assert "InvalidIssuer" in refusal(damaged, token)
    damaged.prepare()
    assert damaged.read(damaged.issue(WHO, AUDIENCE, NOW_S, 60), NOW_S * 1000).audience == AUDIENCE
    assert kept[0].startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_token_may_stand_for_a_password(issuer: Issuer) -> None:
    """As JMS clients show it with SASL PLAIN."""
    access = Access(verify=True, authority=HOST, issuer=issuer)
    token = issuer.issue(WHO, AUDIENCE, NOW_S, 60)
    assert access.claim_of_key("$jwt", token, NOW_S * 1000) == Claim("", ALL_RIGHTS, (NOW_S + 60) * 1000)
    for name, now_s in (("jwt", NOW_S), ("$jwt", NOW_S + 60)):
        with pytest.raises(BrokerError):
            access.claim_of_key(name, token, now_s * 1000)


@pytest.mark.parametrize("form", ["{}", "Bearer {}", "bearer  {} "])
async def test_the_roles_of_an_identity_give_its_rights_as_long_as_it_has_them(issuer: Issuer, form: str) -> None:
    roles = Roles([RoleAssignment.parse(WHO.client_id.upper(), "sender", "q")])
    access = Access(verify=True, authority=HOST, issuer=issuer, roles=roles)
    token = form.format(issuer.issue(WHO, AUDIENCE, NOW_S, 3600))
    claims = [access.put_token(token, f"sb://{HOST}/", NOW_S * 1000)]
    assert access.claims_allow(claims, "Q/$DeadLetterQueue", Right.SEND)
    assert not access.claims_allow(claims, "q", Right.LISTEN)
    assert not access.claims_allow(claims, "q2", Right.SEND)
    assert access.opens_anything(claims[0])
    await roles.assign(RoleAssignment.parse(WHO.object_id, "receiver"))
    assert access.claims_allow(claims, "any/subscriptions/s", Right.LISTEN)
    await roles.remove(RoleAssignment.parse(WHO.client_id, "sender", "q"))
    assert not access.claims_allow(claims, "q", Right.SEND)
    await roles.remove(RoleAssignment.parse(WHO.object_id, "receiver"))
    assert not access.opens_anything(claims[0])
