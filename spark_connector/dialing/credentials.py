"""Credentials: four kinds, each of which gives a token for an audience.

Knows how shared access signatures are made [wire 2.3], how to find the expiry of a token, and how to call a function of
the user or azure-identity. Does not know links (`cbs`) and options.

Credentials are frozen values that pickle and compare, because they are part of the pool's key; a token is made at each
request. No repr and no error contains a secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import importlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from ..errors import Code, ConnectorError
from ..timing import now_ms

SAS_LIFETIME_S: Final = 3600
ASSUMED_LIFETIME_S: Final = 3000
"""Assumed for a token without an expiry; the shortest of Microsoft Entra ID is an hour."""

SAS_PREFIX: Final = "SharedAccessSignature "
SAS_TYPE: Final = "servicebus.windows.net:sastoken"
JWT_TYPE: Final = "jwt"
SERVICE_BUS_SCOPE: Final = "https://servicebus.azure.net/.default"


@dataclass(frozen=True, slots=True)
class Token:
    """A token and what goes with it on the wire; `expires_at_s` in Unix seconds."""

    text: str = field(repr=False)
    expires_at_s: float

    @property
    def type(self) -> str:
        """The service's name for this kind of token: the two have different beginnings [wire 2.2]."""
        return SAS_TYPE if self.text.startswith(SAS_PREFIX) else JWT_TYPE


@dataclass(frozen=True, slots=True)
class SasKey:
    """An authorisation rule's name and key; signs tokens of an hour itself."""

    name: str
    key: str = field(repr=False)

    def token(self, audience: str) -> Token:
        """A token for `audience` and what lies below it."""
        expires_at_s = now_ms() // 1000 + SAS_LIFETIME_S
        resource = quote(audience, safe="")
        signed = hmac.new(self.key.encode(), f"{resource}\n{expires_at_s}".encode(), hashlib.sha256).digest()
        signature = quote(base64.b64encode(signed), safe="")
        text = f"{SAS_PREFIX}sr={resource}&sig={signature}&se={expires_at_s}&skn={quote(self.name, safe='')}"
        return Token(text, expires_at_s)


@dataclass(frozen=True, slots=True)
class SasToken:
    """A ready shared access signature; it can't be renewed."""

    text: str = field(repr=False)

    def token(self, audience: str) -> Token:
        """The token; ConnectorError(UNAUTHORIZED) if it has expired."""
        return _still_valid(_with_expiry(self.text), "sasToken")


@dataclass(frozen=True, slots=True)
class TokenProvider:
    """A function of the user, `module:function`: audience -> token, or (token, its expiry in Unix seconds)."""

    reference: str

    def token(self, audience: str) -> Token:
        """What the function gives; ConnectorError if there is no such function, or it fails."""
        try:
            given = self._function()(audience)
        except ConnectorError:
            raise
        except Exception as error:  # whatever a user's function raises; its text may hold anything, so only its kind
            raise ConnectorError(
                Code.UNAUTHORIZED,
                f"tokenProvider '{self.reference}' raised {type(error).__name__}: see the worker's log",
            ) from error
        text, expires_at_s = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        if not isinstance(text, str) or not text:
            raise self._invalid(f"gave {type(given).__name__}, not a token or a pair of token and expiry")
        if expires_at_s is None:
            return _still_valid(_with_expiry(text), f"the token of tokenProvider '{self.reference}'")
        if isinstance(expires_at_s, bool) or not isinstance(expires_at_s, int | float):
            raise self._invalid(f"gave an expiry of type {type(expires_at_s).__name__}, not Unix seconds")
        return _still_valid(Token(text, float(expires_at_s)), f"the token of tokenProvider '{self.reference}'")

    def _function(self) -> Callable[[str], object]:
        module_name, colon, name = self.reference.partition(":")
        if not (module_name and colon and name):
            raise self._invalid("is not of the form module:function")
        try:
            function: Any = importlib.import_module(module_name)
            for part in name.split("."):
                function = getattr(function, part)
        except (ImportError, AttributeError) as error:
            raise self._invalid(f"can't be found here ({error}): it must be importable on every worker") from error
        if not callable(function):
            raise self._invalid("is no function")
        found: Callable[[str], object] = function
        return found

    def _invalid(self, reason: str) -> ConnectorError:
        return ConnectorError(Code.OPTION_INVALID, f"tokenProvider '{self.reference}' {reason}")


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """An application of Microsoft Entra ID; needs the package azure-identity."""

    tenant_id: str
    client_id: str
    client_secret: str = field(repr=False)

    def token(self, audience: str) -> Token:
        """A token of the application for Service Bus; ConnectorError(UNAUTHORIZED) if it gets none."""
        try:
            given = self._identity().get_token(SERVICE_BUS_SCOPE)
        except ConnectorError:
            raise
        except Exception as error:  # azure-identity's errors can quote what was sent
            raise ConnectorError(
                Code.UNAUTHORIZED,
                f"Microsoft Entra ID gave no token for clientId '{self.client_id}' in tenantId '{self.tenant_id}' "
                f"({type(error).__name__}): check tenantId, clientId and clientSecret",
            ) from None
        return Token(str(given.token), float(given.expires_on))

    def _identity(self) -> Any:
        key = (os.getpid(), self)
        found = _identities.get(key)
        if found is None:
            try:
                module = importlib.import_module("azure.identity")
            except ImportError as error:
                raise ConnectorError(
                    Code.OPTION_INVALID, "clientSecret needs the package azure-identity on the driver and every worker"
                ) from error
            found = module.ClientSecretCredential(self.tenant_id, self.client_id, self.client_secret)
            _identities[key] = found
        return found


Credential = SasKey | SasToken | TokenProvider | ClientSecret

_identities: dict[tuple[int, ClientSecret], Any] = {}
"""azure-identity keeps tokens and connections in its objects; they are of one process."""


def _with_expiry(text: str) -> Token:
    """A token with the expiry that is written in it."""
    return Token(text, (_sas_expiry_s(text) if text.startswith(SAS_PREFIX) else _jwt_expiry_s(text)) or _assumed_s())


def _assumed_s() -> float:
    return now_ms() / 1000 + ASSUMED_LIFETIME_S


def _sas_expiry_s(text: str) -> float | None:
    for part in text.removeprefix(SAS_PREFIX).split("&"):
        name, _, value = part.partition("=")
        if name.strip().lower() == "se":
            number = unquote(value).strip()
            return float(number) if number.isascii() and number.isdecimal() else None
    return None


def _jwt_expiry_s(text: str) -> float | None:
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    expires_at_s = claims.get("exp") if isinstance(claims, dict) else None
    return float(expires_at_s) if isinstance(expires_at_s, int | float) else None


def _still_valid(token: Token, what: str) -> Token:
    late_s = now_ms() / 1000 - token.expires_at_s
    if late_s >= 0:
        raise ConnectorError(Code.UNAUTHORIZED, f"{what} expired {late_s:.0f} s ago: give a new one")
    return token
