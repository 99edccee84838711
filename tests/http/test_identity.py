"""Tokens of identities over HTTP: the protocols of managed identities and of a directory, and who gets a token."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from emubus.broker.clock import Clock
from emubus.testing import Auth, EmubusServer, KnownIdentity, QueueDescription, Right, SharedKey

from .control.client import Answered, Http

RESOURCE = "https://servicebus.azure.net"
ID, OBJECT_ID = "11111111-2222-3333-4444-555555555555", "22222222-2222-3333-4444-555555555555"
RESOURCE_ID = "/subscriptions/s/resourcegroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/App"
IMDS, APP_SERVICE = "/metadata/identity/oauth2/token", "/msi/token"
METADATA, HEADER = {"Metadata": "true"}, {"X-IDENTITY-HEADER": "any"}
TOKEN, TOKEN_V1 = "/a-tenant/oauth2/v2.0/token", "/a-tenant/oauth2/token"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("q")], auth=Auth.SAS) as running:
        yield running


@pytest.fixture
def http(server: EmubusServer) -> Http:
    return Http(server.http_port)


def now_s() -> int:
    return Clock().now_ms() // 1000


def claims_of(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def ask(http: Http, path: str, headers: dict[str, str], **query: str) -> Answered:
    return http.send("GET", f"{path}?{urlencode({'resource': RESOURCE, **query})}", None, **headers)


def post(http: Http, path: str = TOKEN, **form: str) -> Answered:
    asked = {"grant_type": "client_credentials", "client_id": ID, "scope": f"{RESOURCE}/.default", **form}
    data = urlencode({name: value for name, value in asked.items() if value}).encode()
    return http.send("POST", path, data, Content_Type="application/x-www-form-urlencoded")


def opens(http: Http, token: str) -> bool:
    return http.send("GET", "/q", None, Authorization=f"Bearer {token}").status == 200


# ---- managed identities


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize(
    ("path", "headers"), [(IMDS, METADATA), (APP_SERVICE, HEADER), (APP_SERVICE, {"secret": "any"})]
)
def test_a_managed_identity_gets_a_token(http: Http, path: str, headers: dict[str, str], slash: str) -> None:
    answered = ask(http, path + slash, headers, **{"api-version": "2019-08-01"})
    assert answered.status == 200
    found = answered.json
    assert (found["resource"], found["token_type"]) == (RESOURCE, "Bearer")
    assert isinstance(found["expires_on"], str)
    assert 86_000 < int(found["expires_on"]) - now_s() <= 86_400
    claims = claims_of(found["access_token"])
    assert (claims["aud"], claims["appid"], claims["exp"]) == (RESOURCE, found["client_id"], int(found["expires_on"]))
    assert opens(http, found["access_token"])
    assert answered.headers["Cache-Control"] == "no-store"


def test_the_form_of_cloud_shell_is_answered(http: Http) -> None:
    data = urlencode({"resource": RESOURCE}).encode()
    headers = {"Content_Type": "application/x-www-form-urlencoded", "Metadata": "true"}
    assert opens(http, http.send("POST", APP_SERVICE, data, **headers).json["access_token"])


@pytest.mark.parametrize(
    ("asked", "claim"),
    [
        ({"client_id": ID}, ("appid", ID)),
        ({"clientid": ID}, ("appid", ID)),
        ({"object_id": OBJECT_ID}, ("oid", OBJECT_ID)),
        ({"principal_id": OBJECT_ID}, ("oid", OBJECT_ID)),
        ({"mi_res_id": RESOURCE_ID}, ("xms_mirid", RESOURCE_ID)),
        ({"msi_res_id": RESOURCE_ID}, ("xms_mirid", RESOURCE_ID)),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
@pytest.mark.parametrize(("path", "headers"), [(IMDS, METADATA), (APP_SERVICE, HEADER)])
def test_a_user_assigned_identity_is_the_one_that_is_named(
    http: Http, path: str, headers: dict[str, str], asked: dict[str, str], claim: tuple[str, str]
) -> None:
    first, again, system = (
        claims_of(ask(http, path, headers, **each).json["access_token"]) for each in (asked, asked, {})
    )
    name, value = claim
    assert first[name] == value
    assert [first[each] for each in ("appid", "oid")] == [again[each] for each in ("appid", "oid")]
    assert first["appid"] != system["appid"]


REFUSED: dict[str, tuple[str, dict[str, str], dict[str, str], int, str]] = {
    "no Metadata header": (IMDS, {}, {}, 400, "Required metadata header not specified"),
    "another Metadata header": (IMDS, {"Metadata": "yes"}, {}, 400, "Required metadata header not specified"),
    "forwarded": (IMDS, {**METADATA, "X-Forwarded-For": "1.2.3.4"}, {}, 400, "X-Forwarded-For"),
    "no identity header": (APP_SERVICE, {}, {}, 401, "X-IDENTITY-HEADER is missing"),
    "no resource": (IMDS, METADATA, {"resource": ""}, 400, "The resource is missing"),
    "two ids": (IMDS, METADATA, {"client_id": ID, "object_id": OBJECT_ID}, 400, "More than one id"),
    "an id with a blank": (IMDS, METADATA, {"client_id": "a b"}, 400, "'a b' can't name an identity"),
    "a resource of two lines": (IMDS, METADATA, {"resource": "a\nb"}, 400, r"The resource is 'a\nb'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_managed_identity_is_refused(http: Http, name: str) -> None:
    path, headers, query, status, text = REFUSED[name]
    answered = ask(http, path, headers, **query)
    assert answered.status == status
    assert answered.json["error"] in ("invalid_request", "invalid_resource")
    assert text in answered.json["error_description"]


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000"])
@pytest.mark.parametrize("path", [APP_SERVICE, IMDS, "/t/oauth2/v2.0/token", "/t/discovery/v2.0/keys"])
def test_no_page_of_another_origin_reads_a_token(http: Http, path: str, origin: str) -> None:
    own = {"Origin": origin, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "metadata"}
    asked = http.send("OPTIONS", path, None, **own)
    assert "Access-Control-Allow-Origin" not in asked.headers
    read = http.send("GET", f"{path}?resource={RESOURCE}", None, Origin=origin, **HEADER)
    assert "Access-Control-Allow-Origin" not in read.headers


# ---- applications


@pytest.mark.parametrize(
    "shown",
    [
        {"client_secret": "any"},
        {"client_assertion_type": ASSERTION, "client_assertion": "x.y.z"},
    ],
    ids=["secret", "federation"],
)
def test_an_application_gets_a_token(http: Http, shown: dict[str, str]) -> None:
    found = post(http, **shown).json
    assert (found["token_type"], found["expires_in"]) == ("Bearer", 3600)
    claims = claims_of(found["access_token"])
    assert (claims["aud"], claims["appid"]) == (RESOURCE, ID)
    assert opens(http, found["access_token"])
    first = post(http, TOKEN_V1, scope="", resource=RESOURCE, **shown).json
    assert (first["resource"], first["expires_in"]) == (RESOURCE, "3600")
    assert opens(http, first["access_token"])


def test_scopes_of_a_sign_in_may_stand_beside_the_one_of_the_resource(http: Http) -> None:
    """Go's library names them in each request, and a resource that ends in a slash."""
    scope = f"{RESOURCE}//.default openid offline_access profile"
    token = post(http, client_secret="s", scope=scope).json["access_token"]
    assert claims_of(token)["aud"] == f"{RESOURCE}/"
    assert opens(http, token)


def test_a_tenant_is_named_in_the_token_if_it_is_an_id(http: Http) -> None:
    tenant = "AAAAAAAA-0000-0000-0000-000000000001"
    by_id = claims_of(post(http, f"/{tenant}/oauth2/v2.0/token", client_secret="s").json["access_token"])
    by_name = claims_of(
        post(http, "/example.onmicrosoft.com/oauth2/v2.0/token", client_secret="s").json["access_token"]
    )
    assert by_id["tid"] == tenant.lower()
    assert by_name["tid"] == claims_of(ask(http, IMDS, METADATA).json["access_token"])["tid"]
    assert by_id["oid"] == by_name["oid"]


REFUSED_FORMS: dict[str, tuple[dict[str, str], int, str, int]] = {
    "no grant": ({"grant_type": ""}, 400, "invalid_request", 900144),
    "a user's grant": ({"grant_type": "password"}, 400, "unsupported_grant_type", 70003),
    "no client": ({"client_id": ""}, 400, "invalid_request", 900144),
    "no scope": ({"scope": ""}, 400, "invalid_request", 900144),
    "a scope of users": ({"scope": f"{RESOURCE}/user_impersonation"}, 400, "invalid_scope", 1002012),
    "two scopes": ({"scope": f"{RESOURCE}/.default openid/.default"}, 400, "invalid_scope", 1002012),
    "scopes of a sign-in": ({"scope": "openid profile"}, 400, "invalid_scope", 1002012),
    "nothing shown": ({"client_secret": ""}, 401, "invalid_client", 7000218),
    "an empty assertion": ({"client_secret": "", "client_assertion_type": ASSERTION}, 401, "invalid_client", 700027),
}


@pytest.mark.parametrize("name", REFUSED_FORMS)
def test_what_an_application_is_refused_in_the_words_of_a_directory(http: Http, name: str) -> None:
    form, status, error, code = REFUSED_FORMS[name]
    answered = post(http, **{"client_secret": "s", **form})
    found = answered.json
    assert (answered.status, found["error"], found["error_codes"]) == (status, error, [code])
    assert found["error_description"].startswith(f"AADSTS{code}: ")
    assert found["trace_id"] in found["error_description"]


@pytest.mark.parametrize("version", ["", "/v2.0"])
def test_the_documents_lead_to_the_token_endpoint_and_its_keys(http: Http, server: EmubusServer, version: str) -> None:
    base = f"http://127.0.0.1:{server.http_port}"
    found = http.send("GET", f"/a-tenant{version}/.well-known/openid-configuration").json
    assert found["token_endpoint"] == f"{base}/a-tenant/oauth2{version}/token"
    assert found["issuer"].startswith(f"{base}/a-tenant")
    (key,) = http.send("GET", found["jwks_uri"].removeprefix(base)).json["keys"]
    assert {"kty", "n", "e", "kid", "use"} <= set(key)
    asked = urlencode({"api-version": "1.1", "authorization_endpoint": "https://login.example/x/oauth2/v2.0/authorize"})
    instance = http.send("GET", f"/common/discovery/instance?{asked}").json
    where = instance["tenant_discovery_endpoint"]
    assert where == "https://login.example/x/v2.0/.well-known/openid-configuration"
    assert "login.example" in instance["metadata"][0]["aliases"]


# ---- who must show something


def certified() -> tuple[RSAPrivateKey, str]:
    key = generate_private_key(65_537, 2_048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "app")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, SHA256())
    )
    return key, made.public_bytes(Encoding.PEM).decode()


def assertion(key: RSAPrivateKey, algorithm: str = "PS256", **claims: object) -> str:
    def encoded(value: object) -> str:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    at = now_s()
    own = {"iss": "certified", "sub": "certified", "aud": "x", "nbf": at, "exp": at + 600, **claims}
    signed = f"{encoded({'alg': algorithm, 'typ': 'JWT'})}.{encoded(own)}"
    padding = PKCS1v15() if algorithm == "RS256" else PSS(MGF1(SHA256()), 32)
    return f"{signed}.{encoded(key.sign(signed.encode(), padding, SHA256()))}"


@pytest.fixture(scope="module")
def certificate() -> tuple[RSAPrivateKey, str]:
    return certified()


@pytest.fixture(scope="module", params=["known key", "own key"])
def guarded(request: pytest.FixtureRequest, certificate: tuple[RSAPrivateKey, str]) -> Iterator[tuple[Http, bool]]:
    """With `own key` the root key isn't the one that everybody knows."""
    identities = [KnownIdentity("secretive", secret="s3cret"), KnownIdentity("certified", certificate=certificate[1])]
    own = request.param == "own key"
    with EmubusServer([QueueDescription("q")], auth=Auth.RBAC, identities=identities) as running:
        if own:
            running.close()
        else:
            yield Http(running.http_port), False
    if own:
        config = Path(request.getfixturevalue("tmp_path_factory").mktemp("own")) / "Config.json"
        keys = [
            {"KeyName": "RootManageSharedAccessKey", "Rights": ["Manage"], "PrimaryKey": "own", "SecondaryKey": "own2"},
            {"KeyName": "sends", "Rights": ["Send"], "PrimaryKey": "sends"},
        ]
        entity = {"Name": "ns", "Queues": [{"Name": "q"}], "AuthorizationRules": keys}
        config.write_text(json.dumps({"UserConfig": {"Namespaces": [entity]}}))
        with EmubusServer(config_file=config, auth=Auth.RBAC, identities=identities) as running:
            yield Http(running.http_port), True


def test_an_identity_with_a_secret_is_given_away_for_it_alone(guarded: tuple[Http, bool]) -> None:
    http, _ = guarded
    right, wrong = {"X-IDENTITY-HEADER": "s3cret"}, {"X-IDENTITY-HEADER": "s3cre"}
    assert ask(http, APP_SERVICE, right, client_id="secretive").status == 200
    assert claims_of(ask(http, APP_SERVICE, right).json["access_token"])["appid"] == "secretive"  # by its header alone
    assert ask(http, APP_SERVICE, wrong, client_id="Secretive").status == 401
    assert ask(http, APP_SERVICE, {"X-IDENTITY-HEADER": "own"}, client_id="secretive").status == 401
    assert ask(http, IMDS, METADATA, client_id="secretive").status == 401
    assert post(http, client_id="secretive", client_secret="s3cret").status == 200
    assert post(http, client_id="SECRETIVE", client_secret="S3cret").json["error_codes"] == [7000215]
    shown = {"client_assertion_type": ASSERTION, "client_assertion": "x.y.z"}
    assert post(http, client_id="secretive", **shown).json["error_codes"] == [700027]


@pytest.mark.parametrize("algorithm", ["RS256", "PS256"])
def test_an_identity_with_a_certificate_is_given_away_for_what_it_has_signed(
    guarded: tuple[Http, bool], certificate: tuple[RSAPrivateKey, str], algorithm: str
) -> None:
    http, _ = guarded
    key = certificate[0]

    def shown(token: str) -> Answered:
        return post(http, client_id="certified", client_assertion_type=ASSERTION, client_assertion=token)

    assert shown(assertion(key, algorithm)).status == 200
    for token, code in (
        (assertion(certified()[0], algorithm), 700027),
        (assertion(key, algorithm, sub="other"), 700027),
        (assertion(key, algorithm, exp=now_s() - 301), 700024),
        (assertion(key, algorithm, nbf=now_s() + 900), 700024),
        (assertion(key, algorithm, exp="soon"), 700027),
        (assertion(key, algorithm)[:-8], 700027),
        ("x.y.z", 50027),
    ):
        assert shown(token).json["error_codes"] == [code], token
    assert post(http, client_id="certified", client_secret="any").json["error_codes"] == [7000215]
    assert ask(http, IMDS, METADATA, client_id="certified").status == 401


def test_with_a_key_of_ones_own_a_token_is_for_those_who_show_it(guarded: tuple[Http, bool]) -> None:
    http, is_own = guarded
    refused = 401 if is_own else 200
    assert ask(http, IMDS, METADATA).status == refused
    for header in ("any", "sends", ""):
        assert ask(http, APP_SERVICE, {"X-IDENTITY-HEADER": header}).status == refused
    assert post(http, client_secret="any").status == refused
    assert post(http, client_assertion_type=ASSERTION, client_assertion="x.y.z").status == refused
    for key in ("own", "own2") if is_own else ():
        assert ask(http, APP_SERVICE, {"X-IDENTITY-HEADER": key}).status == 200
        assert post(http, client_secret=key).status == 200


def test_a_token_goes_on_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with EmubusServer([QueueDescription("q")], auth=Auth.RBAC, data_dir=folder) as running:
        token = ask(Http(running.http_port), IMDS, METADATA, client_id="id").json["access_token"]
        running.assign_role("id", "owner")
        assert opens(Http(running.http_port), token)
    assert (folder / "token-key.pem").stat().st_mode & 0o077 == 0
    with EmubusServer([QueueDescription("q")], auth=Auth.RBAC, data_dir=folder) as running:
        assert [each.principal for each in running.roles()] == ["id"]
        assert opens(Http(running.http_port), token)
        running.advance(86_400_000)
        assert not opens(Http(running.http_port), token)


def test_without_verification_any_token_opens_everything() -> None:
    with EmubusServer([QueueDescription("q")], auth=Auth.NONE) as running:
        http = Http(running.http_port)
        assert opens(http, ask(http, IMDS, METADATA).json["access_token"])
        assert opens(http, "of.somebody.else")


def test_the_page_shows_roles_and_changes_them(tmp_path: Path) -> None:
    with EmubusServer([QueueDescription("q")], keys=[SharedKey("k", "k", frozenset({Right.SEND}))]) as running:
        own = {"Origin": f"http://127.0.0.1:{running.http_port}", "Content_Type": "application/x-www-form-urlencoded"}
        http = Http(running.http_port)
        form = urlencode({"identity": "An-Id", "role": "Azure Service Bus Data Sender", "entity": "q"}).encode()
        assert http.send("POST", "/emubus/page/assign-role", form, **own).status == 303
        page = http.send("GET", "/emubus/page/roles").content.decode()
        assert "an-id" in page
        assert "Roles count with <code>--auth rbac</code>" in page
        assert http.send("POST", "/emubus/page/remove-role", form, **own).status == 303
        assert running.roles() == []
        refused = http.send("POST", "/emubus/page/remove-role", form, **own)
        assert refused.status == 404
        assert "does not have the role" in refused.content.decode()
