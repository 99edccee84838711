"""Tokens of the four kinds of credentials, and what may be seen of them."""

from __future__ import annotations

import base64
import json
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from emubus.spark_connector.dialing import credentials
from emubus.spark_connector.dialing.credentials import Token
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.wire import ClientSecret, Credential, Endpoint, SasKey, SasToken, TokenProvider

NOW_S = 1767225600 - 3600
SECRET = "geheim"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "now_ms", lambda: NOW_S * 1000)


@pytest.fixture(name="give")
def provider_module(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], TokenProvider]:
    def give(value: Any) -> TokenProvider:
        module = types.ModuleType("tokens_of_ours")

        def function(audience: str) -> Any:
            if isinstance(value, Exception):
                raise value
            return value

        module.__dict__["function"] = function
        module.__dict__["number"] = 5
        monkeypatch.setitem(sys.modules, "tokens_of_ours", module)
        return TokenProvider("tokens_of_ours:function")

    return give


def jwt(claims: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"


def refused(credential: Credential) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        credential.token("sb://h/q")
    return caught.value


def test_a_key_signs_as_the_service_does() -> None:
    token = SasKey("RootManageSharedAccessKey", "SAS_KEY_VALUE").token("sb://localhost:5672/q1")
    assert token == Token(
        "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%3A5672%2Fq1&sig=p8GkmsWSy%2Ff3ImKqGnUbIoBHuFBNOlwLSL5mnaOfy1I%3D"
        "&se=1767225600&skn=RootManageSharedAccessKey",
        1767225600,
    )
    assert token.type == "servicebus.windows.net:sastoken"


def test_a_given_signature_tells_its_expiry() -> None:
    text = f"SharedAccessSignature sig=x&se={NOW_S + 5}&skn=k&sr=y"
    assert SasToken(text).token("sb://h/q") == Token(text, NOW_S + 5)


def test_an_expired_signature_is_refused_before_it_is_sent() -> None:
    error = refused(SasToken(f"SharedAccessSignature sr=y&sig={SECRET}&se={NOW_S - 7}&skn=k"))
    assert (error.code, error.retriable) == (Code.UNAUTHORIZED, False)
    assert error.text == "sasToken expired 7 s ago: give a new one"


@pytest.mark.parametrize(
    ("given", "token"),
    [
        ((jwt({"exp": 1}), NOW_S + 60), Token(jwt({"exp": 1}), NOW_S + 60)),
        (jwt({"exp": NOW_S + 70}), Token(jwt({"exp": NOW_S + 70}), NOW_S + 70)),
        (jwt([1]), Token(jwt([1]), NOW_S + 3000)),
        ("no.json.here", Token("no.json.here", NOW_S + 3000)),
        ("opaque", Token("opaque", NOW_S + 3000)),
        ("SharedAccessSignature se=soon", Token("SharedAccessSignature se=soon", NOW_S + 3000)),
    ],
)
def test_a_function_gives_a_token_with_or_without_its_expiry(
    give: Callable[[Any], TokenProvider], given: Any, token: Token
) -> None:
    assert give(given).token("sb://h/q") == token


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        (ValueError(SECRET), Code.UNAUTHORIZED, "raised ValueError"),
        (None, Code.OPTION_INVALID, "gave NoneType, not a token"),
        ("", Code.OPTION_INVALID, "gave str, not a token"),
        ((SECRET, "tomorrow"), Code.OPTION_INVALID, "gave an expiry of type str, not Unix seconds"),
        ((SECRET, NOW_S - 1), Code.UNAUTHORIZED, "expired 1 s ago"),
    ],
)
def test_a_function_that_gives_no_token_is_named(
    give: Callable[[Any], TokenProvider], given: Any, code: Code, text: str
) -> None:
    error = refused(give(given))
    assert error.code is code
    assert "tokenProvider 'tokens_of_ours:function'" in error.text
    assert text in error.text
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("json", "is not of the form module:function"),
        (":dumps", "is not of the form module:function"),
        ("no_such_module_here:f", "can't be found here (No module named 'no_such_module_here')"),
        ("json:nothing", "can't be found here"),
        ("tokens_of_ours:number", "is no function"),
    ],
)
def test_a_reference_to_no_function_is_named(give: Callable[[Any], TokenProvider], reference: str, text: str) -> None:
    give("x")
    error = refused(TokenProvider(reference))
    assert error.code is Code.OPTION_INVALID
    assert f"tokenProvider '{reference}' {text}" in error.text


def test_a_client_secret_is_given_to_azure_identity_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, ...]] = []
    scopes: list[str] = []

    class ClientSecretCredential:
        def __init__(self, *values: str) -> None:
            made.append(values)

        def get_token(self, scope: str) -> Any:
            scopes.append(scope)
            return types.SimpleNamespace(token="jwt", expires_on=NOW_S + 9)

    module = types.ModuleType("azure.identity")
    module.__dict__["ClientSecretCredential"] = ClientSecretCredential
    monkeypatch.setitem(sys.modules, "azure.identity", module)
    credential = ClientSecret("tenant", "client-1", SECRET)
    assert credential.token("sb://h/q") == credential.token("sb://h/p") == Token("jwt", NOW_S + 9)
    assert made == [("tenant", "client-1", SECRET)]
    assert scopes == ["https://servicebus.azure.net/.default"] * 2


def test_a_client_secret_without_azure_identity_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    error = refused(ClientSecret("tenant", "client-2", SECRET))
    assert (error.code, error.text) == (
        Code.OPTION_INVALID,
        "clientSecret needs the package azure-identity on the driver and every worker",
    )


def test_what_azure_identity_says_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class ClientSecretCredential:
        def __init__(self, *values: str) -> None:
            self.values = values

        def get_token(self, scope: str) -> Any:
            raise RuntimeError(f"{self.values} {scope}")

    module = types.ModuleType("azure.identity")
    module.__dict__["ClientSecretCredential"] = ClientSecretCredential
    monkeypatch.setitem(sys.modules, "azure.identity", module)
    error = refused(ClientSecret("tenant", "client-3", SECRET))
    assert (error.code, error.__cause__, error.__suppress_context__) == (Code.UNAUTHORIZED, None, True)
    assert "client-3" in error.text
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    "credential",
    [SasKey("name", SECRET), SasToken(SECRET), TokenProvider("a:b"), ClientSecret("tenant", "client", SECRET)],
)
def test_credentials_pickle_compare_and_hide_their_secret(credential: Credential) -> None:
    copied = pickle.loads(pickle.dumps(credential))
    assert (copied, hash(copied)) == (credential, hash(credential))
    assert SECRET not in repr(credential)
    assert SECRET not in f"{credential}"


def test_a_token_hides_itself() -> None:
    assert SECRET not in repr(Token(SECRET, 5))


def test_an_endpoint_pickles_and_names_its_host_in_addresses() -> None:
    endpoint = Endpoint("h", 1, ca_file="x")
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint
    assert (endpoint.address_host, Endpoint("h", address_host="ns").address_host) == ("h", "ns")
    assert (endpoint.where, Endpoint("::1", 5).where) == ("h:1", "[::1]:5")
