"""Tokens of identities: JSON Web Tokens [RFC 7519] that this server signs, and the only ones that it believes.

Knows their claims, one algorithm (RS256) and one key, so that there is nothing to choose for who sends a token. Does
not know who may have one (`web/identity`) and what it opens (`roles.py`, `access.py`).

The key is kept in the data folder: clients keep a token for its whole life, and go on with it after a restart of the
server. A server in memory makes a key for each run. It is made when the first token is asked for, since that takes
longer than a start.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from .errors import BrokerError, Condition
from .ids import new_tracking_id
from .lazy_dataclass import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

KEY_BITS: Final = 2_048
"""What Entra ID uses; more take a second to make."""
SKEW_S: Final = 300
"""How far the clocks of issuer and reader may differ, for the begin of a token. A guess: the default of Microsoft's
libraries for tokens."""
TOKEN_CHARS_MAX: Final = 16 << 10
TENANT: Final = "00000000-0000-0000-0000-00000000e0b5"
"""The tenant of identities that name none."""
APPLICATION: Final = "80a10ef9-8168-493d-abf9-3297c4ef6e3c"
"""Service Bus itself, as a directory knows it; tokens of version 2.0 name it as their audience."""
AUDIENCE_HOST: Final = "servicebus.azure.net"
"""The resource that SDKs ask tokens for."""
_OBJECTS: Final = uuid.UUID("8f1c3a0e-5a0b-4a53-9d58-6d0b8f6c7e11")
"""The name space of object ids that are made from client ids."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a token names: client id, object id, and the id of the resource if it was asked for by that."""

    client_id: str
    object_id: str
    resource_id: str = ""
    tenant: str = TENANT

    @classmethod
    def of_client(cls, client_id: str, tenant: str = TENANT) -> Identity:
        return cls(client_id, str(uuid.uuid5(_OBJECTS, client_id.lower())), tenant=tenant)

    @property
    def principals(self) -> tuple[str, ...]:
        """The texts that a role can be assigned to, in the form that is compared."""
        return tuple(each.lower() for each in (self.client_id, self.object_id, self.resource_id) if each)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bearer:
    """A token that is valid: whom it names, for which resource, and when it ends (Unix ms)."""

    identity: Identity
    audience: str
    expires_at: int


class TokenOverError(BrokerError):
    """A token whose time is over, at `ended_at` (Unix ms)."""

    def __init__(self, ended_at: int) -> None:
        ended = datetime.fromtimestamp(ended_at // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        text = f"ExpiredToken: The token is expired. Expiration time: '{ended}'."
        super().__init__(Condition.UNAUTHORIZED_ACCESS, text)
        self.ended_at = ended_at


class Issuer:
    """Signs and reads tokens. `load` and `save` keep the key; they block."""

    def __init__(self, load: Callable[[], bytes] = bytes, save: Callable[[bytes], None] = lambda _: None) -> None:
        self._load = load
        self._save = save
        self._key: RSAPrivateKey | None = None
        self._turn = threading.Lock()

    def prepare(self) -> None:
        """Load or make the key, once; call it on another thread. BrokerError (server-busy) if it can't be kept."""
        with self._turn:
            if self._key is None:
                self._key = self._loaded() or self._made()

    def issue(self, identity: Identity, audience: str, now_s: int, life_s: int, method: str = "2") -> str:
        """A token. `method` says how the client has shown who it is: 1 by a secret, 2 by a certificate."""
        assert self._key is not None, "prepare it first"
        claims = {
            "aud": audience,
            "iss": f"https://sts.windows.net/{identity.tenant}/",
            "iat": now_s,
            "nbf": now_s,
            "exp": now_s + life_s,
            "appid": identity.client_id,
            "azp": identity.client_id,
            "appidacr": method,
            "idp": f"https://sts.windows.net/{identity.tenant}/",
            "idtyp": "app",
            "oid": identity.object_id,
            "sub": identity.object_id,
            "tid": identity.tenant,
            "uti": new_tracking_id(),
            "ver": "1.0",
            **({"xms_mirid": identity.resource_id} if identity.resource_id else {}),
        }
        head = {"typ": "JWT", "alg": "RS256", "kid": self.key_id, "x5t": self.key_id}
        signed = f"{_base64url(_json(head))}.{_base64url(_json(claims))}"
        return f"{signed}.{_base64url(_signature(self._key, signed.encode()))}"

    def read(self, token: str, now_ms: int) -> Bearer:
        """Whom a token names. BrokerError (unauthorized-access) if it isn't ours or its time is over or not yet."""
        head, claims, signed, signature = parts_of(token)
        with self._turn:
            if self._key is None:
                self._key = self._loaded()
        if head.get("kid") != self.key_id or self._key is None:
            # azure-sdk-for-net 6462, logicapps 1390: a token of another tenant
            raise _refusal("InvalidIssuer: Token issuer is invalid.")
        if head.get("alg") != "RS256" or not _is_signed(self._key, signed, signature):
            raise _refusal("InvalidSignature: The token has an invalid signature.")
        try:
            expires_s, begins_s = _instant(claims["exp"]), _instant(claims["nbf"])
            identity = Identity(str(claims["appid"]), str(claims["oid"]), str(claims.get("xms_mirid", "")))
            found = Bearer(identity, str(claims["aud"]), expires_s * 1000)
        except (KeyError, TypeError):
            raise _refusal("MalformedToken: The token's claims can't be read.") from None
        if found.expires_at <= now_ms:
            raise TokenOverError(found.expires_at)
        if now_ms < (begins_s - SKEW_S) * 1000:
            begins = datetime.fromtimestamp(begins_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
            raise _refusal(f"InvalidToken: The token is not valid before '{begins}'; the broker's clock is behind.")
        return found

    @property
    def key_id(self) -> str:
        """The name of the key, made from it."""
        return _base64url(hashlib.sha256(_json(self._public())).digest()) if self._key is not None else ""

    def keys(self) -> dict[str, object]:
        """The public key as a JSON Web Key Set [RFC 7517]."""
        own = {**self._public(), "use": "sig", "alg": "RS256", "kid": self.key_id, "x5t": self.key_id}
        return {"keys": [own]}

    def _public(self) -> dict[str, str]:
        assert self._key is not None, "prepare it first"
        numbers = self._key.public_key().public_numbers()
        return {"e": _base64url(_bytes(numbers.e)), "kty": "RSA", "n": _base64url(_bytes(numbers.n))}  # as in RFC 7638

    def _loaded(self) -> RSAPrivateKey | None:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey  # only for tokens
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        data = self._load()
        if not data:
            return None
        try:
            found = load_pem_private_key(data, None)
        except (ValueError, TypeError):
            return None
        return found if isinstance(found, RSAPrivateKey) else None

    def _made(self) -> RSAPrivateKey:
        from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = generate_private_key(65_537, KEY_BITS)
        self._save(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return key


def is_token(text: str) -> bool:
    """Whether a text has the form of a JSON Web Token: three parts, the first of which begins a JSON object."""
    return text.startswith("eyJ") and text.count(".") == 2


def parts_of(token: str) -> tuple[Mapping[str, object], Mapping[str, object], bytes, bytes]:
    """Head, claims, what is signed, and the signature of a token, none of it checked. BrokerError if it is none."""
    try:
        if len(token) > TOKEN_CHARS_MAX:
            raise ValueError("it is too long")
        head, claims, signature = token.split(".")
        read = [json.loads(_from_base64url(each)) for each in (head, claims)]
        if not all(isinstance(each, dict) for each in read):
            raise ValueError("its parts are no objects")
        return read[0], read[1], f"{head}.{claims}".encode(), _from_base64url(signature)
    except (ValueError, RecursionError):
        raise _refusal("MalformedToken: The token is not a JSON Web Token.") from None


def is_for_messages(audience: str, host: str) -> bool:
    """Whether a token's audience is Service Bus, or this namespace at `host`, with any scheme, port and final slash."""
    if audience.lower() == APPLICATION:
        return True
    try:
        return urlsplit(audience).hostname in (AUDIENCE_HOST, host.lower())
    except ValueError:
        return False


def _refusal(description: str) -> BrokerError:
    return BrokerError(Condition.UNAUTHORIZED_ACCESS, description)


def _instant(value: object) -> int:
    """Unix seconds of a claim. TypeError."""
    if not isinstance(value, int):
        raise TypeError("no number")
    return value


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_base64url(text: str) -> bytes:
    """Of base64url without padding. ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _signature(key: RSAPrivateKey, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    return key.sign(data, PKCS1v15(), SHA256())


def _is_signed(key: RSAPrivateKey, data: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        key.public_key().verify(signature, data, PKCS1v15(), SHA256())
    except InvalidSignature:
        return False
    return True
