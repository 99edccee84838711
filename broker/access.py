"""Access control: shared keys, the tokens signed with them, tokens of identities, and the claims of a connection.

Knows the SAS token [wire 2.3], authorisation rules with their rights, and the longest-prefix rule [wire 2.2]. Asks
`tokens.py` whom another token names, and `roles.py` what that identity may do when it does it: a role counts from the
moment it is assigned until it is taken away, whenever the token was put. Does not know connections and clocks: the
caller keeps its claims and passes the time.
Without verification it accepts every token and key, like Microsoft's emulator.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Final
from urllib.parse import unquote

from . import service_errors
from .address import parse_address
from .errors import BrokerError, Condition
from .hosts import host_of
from .keys import ALL_RIGHTS, KNOWN_KEY, Right, SharedKey
from .lazy_dataclass import dataclass
from .roles import Roles
from .tokens import Issuer, is_for_messages, is_token

DEFAULT_KEY_NAME: Final = "RootManageSharedAccessKey"
DEFAULT_KEY: Final = KNOWN_KEY
_SAS_PREFIX: Final = "sharedaccesssignature "
_BEARER_PREFIX: Final = "bearer "
_EXPIRY: Final = re.compile(r"\d{1,15}(?:\.\d{1,15})?", re.ASCII)
"""Unix seconds. Scripts write fractions (ServiceBusJavaScriptSdk, `time.time()` in Python)."""


TOKEN_USER: Final = "$jwt"
"""The user name with which a token is shown as a password."""

DEFAULT_SHARED_KEY: Final = SharedKey(DEFAULT_KEY_NAME, DEFAULT_KEY)
"""The key in Microsoft's connection string for its emulator."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Rights on a path and everything below it; path "" is the namespace. `expires_at` None is never.

    `is_of_entity`: the claim comes from a key of the entity at that path. It opens the entity and its subscriptions,
    but no other entity whose name begins with the path. It holds as long as the entity, or the namespace, has that key,
    `key_text` being one of its two texts under `key_name` (`Access.current`). `identity` names the key among all keys.
    `principals`: the claim comes from the token of an identity, whose roles give the rights; `rights` is empty then.
    """

    path: str
    rights: frozenset[Right]
    expires_at: int | None = None
    is_of_entity: bool = False
    key_name: str = ""
    key_text: str = field(default="", repr=False)
    identity: str = field(default="", compare=False)
    principals: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        """Whether this claim applies to an entity path in compared form."""
        return _belongs_to(self.path, path) if self.is_of_entity else _is_prefix(self.path, path)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Need:
    """What an operation needs: one of several `rights` on an address."""

    address: str
    rights: tuple[Right, ...]
    path: str = field(init=False)
    """The entity path of the address, in the form that is compared."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", parse_address(self.address).key)


@dataclass(frozen=True, slots=True)
class SasToken:
    """The four parts of a token: `resource` and `expiry` exactly as received, because they are signed."""

    resource: str
    signature: str
    expiry: str
    key_name: str

    @property
    def expires_at(self) -> int:
        """Unix milliseconds."""
        seconds, _, fraction = self.expiry.partition(".")
        return int(seconds) * 1000 + int(fraction[:3].ljust(3, "0"))


def parse_token(text: str) -> SasToken:
    """Parse a shared access signature, parameters in any order. Raises BrokerError (unauthorized-access)."""
    if text[: len(_SAS_PREFIX)].lower() != _SAS_PREFIX:
        raise _refusal("MalformedToken: The token is not a shared access signature.")
    parts: dict[str, str] = {}
    for pair in text[len(_SAS_PREFIX) :].strip().split("&"):
        name, _, value = pair.partition("=")
        parts.setdefault(name.strip().lower(), value)
    missing = [name for name in ("sr", "sig", "se", "skn") if not parts.get(name)]
    if missing:
        raise _refusal(f"MalformedToken: The token has no {' and no '.join(missing)}.")
    expiry = parts["se"]
    if not _EXPIRY.fullmatch(expiry):
        raise _refusal("MalformedToken: The token's expiry (se) is not a time in Unix seconds.")
    # unquote, not unquote_plus: an unencoded '+' in a signature is a '+'.
    return SasToken(parts["sr"], unquote(parts["sig"]), expiry, unquote(parts["skn"]))


def sign(resource: str, expiry: str, key: str) -> str:
    """Return the base64 signature of an (encoded) resource and an expiry; the key is used as text, not decoded."""
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(errors="surrogatepass"), hashlib.sha256).digest()
    return base64.b64encode(digest).decode("ascii")


def _knows_no_host(host: str) -> bool:
    del host
    return False


def _no_keys(path: str | None) -> Iterable[SharedKey]:
    del path
    return ()


class Access:
    """The keys of a namespace and the claims that they give.

    `keys` are those of the namespace as it was configured, which requests may change. `entity_keys(path)` returns the
    current keys of the entities at or above a path, with None those of all entities. `is_elsewhere(host)` says whether
    a host names another namespace of this process: a token for it is none for this one, though the two may have the
    same key. `roles` say what the identities of tokens may do; without them an identity may do all.
    """

    def __init__(
        self,
        keys: Iterable[SharedKey] = (DEFAULT_SHARED_KEY,),
        *,
        verify: bool,
        authority: str = "localhost",
        entity_keys: Callable[[str | None], Iterable[SharedKey]] = _no_keys,
        is_elsewhere: Callable[[str], bool] = _knows_no_host,
        issuer: Issuer | None = None,
        roles: Roles | None = None,
    ) -> None:
        assert verify or roles is None, "who is not asked for a token has no roles"
        self.configured = self._keys = tuple(keys)
        self._issuer = issuer or Issuer()
        self.roles = roles
        self._entity_keys = entity_keys
        self.verify = verify
        self._authority = authority
        self._is_elsewhere = is_elsewhere

    @property
    def keys(self) -> tuple[SharedKey, ...]:
        return self._keys

    def replace_keys(self, keys: Iterable[SharedKey]) -> None:
        """Have other keys of the namespace; claims of keys that are gone hold no longer."""
        self._keys = tuple(keys)

    def put_token(self, token: str, audience: str, now: int, *, asked: str | None = None) -> Claim:
        """Return the claim of a token on an audience (any scheme and authority). Raises BrokerError if it gives none.

        `now` is in Unix milliseconds. `$cbs` passes its tokens, `web/` its Authorization header with the address of the
        request as `asked`. The signed resource must be at or above `asked`, by default the audience.
        """
        path = _path_of_rights(audience)
        if not self.verify:
            return Claim(path, ALL_RIGHTS)
        bearer = _bearer(token)
        if bearer is not None:
            return self._claim_of_identity(bearer, path, now)
        parsed = parse_token(token)
        named = self._named(parsed.key_name, path)
        signed = [(key, text) for key in named for text in _texts(key) if _has_signed(text, parsed)]
        if not signed:
            raise _refusal("InvalidSignature: The token has an invalid signature.")
        if parsed.expires_at <= now:
            ended = datetime.fromtimestamp(parsed.expires_at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
            raise _refusal(f"ExpiredToken: The token is expired. Expiration time: '{ended}'.")
        if any(self._is_elsewhere(_host(each)) for each in (audience, unquote(parsed.resource))):
            raise _refusal(f"InvalidAudience: The token is not valid for '{self._resource(path)}'.")
        wanted = path if asked is None else _path_of_rights(asked)
        if any(_is_prefix(_path_of_rights(each), wanted) for each in _readings(unquote(parsed.resource))):
            for key, text in signed:
                if key.scope is None or _belongs_to(_path_of_rights(key.scope), path):
                    return _claim(key, text, path, parsed.expires_at)
        raise _refusal(f"InvalidAudience: The token is not valid for '{self._resource(path)}'.")

    def _claim_of_identity(self, token: str, path: str, now: int) -> Claim:
        """The claim of an identity's token on a path. BrokerError."""
        found = self._issuer.read(token, now)
        if not is_for_messages(found.audience, self._authority):
            # azure-sdk-for-js 26360, azure-docs 19707
            raise _refusal("InvalidAudience: Invalid authorization token audience.")
        name = f"identity {found.identity.client_id}"
        if self.roles is None:
            return Claim(path, ALL_RIGHTS, found.expires_at, identity=name)
        principals = found.identity.principals
        return Claim(path, frozenset(), found.expires_at, identity=name, principals=principals)

    def claim_of_key(self, name: str, key: str, now: int | None = None) -> Claim:
        """Return the claim of a plain key (SASL PLAIN), or of a token in its place. Raises BrokerError if it is none.

        JMS clients show the token of an identity so [wire 1.2]; it is taken where `now` says whether it is over.
        """
        if not self.verify:
            return Claim("", ALL_RIGHTS)
        if name == TOKEN_USER and now is not None:
            return self._claim_of_identity(key, "", now)
        for known in self._named(name, None):
            if any(_equal(key, text) for text in _texts(known)):
                return _claim(known, key, _path_of_rights(known.scope or ""), None)
        raise _refusal("InvalidSignature: The key name or the key is not valid.")

    def current(self, claim: Claim) -> Claim | None:
        """The claim with the rights that its key has now; None if the entity or namespace has lost the key."""
        if not claim.key_name:
            return claim  # nothing was verified, or no key gave it
        keys: Iterable[SharedKey] = self._keys
        if claim.is_of_entity:  # of the entity itself, or of the configuration for that entity
            configured = (
                each
                for each in self._keys
                if each.scope is not None and _belongs_to(_path_of_rights(each.scope), claim.path)
            )
            keys = (*self._entity_keys(claim.path), *configured)
        for key in keys:
            if key.name == claim.key_name and claim.key_text in _texts(key):
                return replace(claim, rights=key.rights)
        return None

    def opens_anything(self, claim: Claim) -> bool:
        """Whether a claim gives any right. Anybody may get the token of an identity without roles."""
        return not claim.principals or self.roles is None or self.roles.know(claim.principals)

    def _rights(self, claim: Claim, path: str) -> frozenset[Right]:
        """What a claim that covers a path gives there."""
        if self.roles is None or not claim.principals:
            return claim.rights
        return self.roles.rights(claim.principals, path)

    def claims_allow(self, claims: Iterable[Claim], address: str, right: Right, now: int | None = None) -> bool:
        """Whether the longest claim on an address has a right; with `now`, expired claims do not count."""
        if not self.verify:
            return True
        path = parse_address(address).key
        covering = [
            claim
            for claim in claims
            if claim.covers(path) and (now is None or claim.expires_at is None or now < claim.expires_at)
        ]
        longest = max((len(claim.path) for claim in covering), default=-1)
        return any(
            not {right, Right.MANAGE}.isdisjoint(self._rights(claim, path))
            for claim in covering
            if len(claim.path) == longest
        )

    def require(self, claims: Iterable[Claim], address: str, right: Right, now: int | None = None) -> None:
        """Raise BrokerError with the service's text unless `claims_allow`."""
        if not self.claims_allow(claims, address, right, now):
            raise service_errors.claim_missing(right.value, self._resource(parse_address(address).entity))

    def _named(self, name: str, path: str | None) -> Iterator[SharedKey]:
        """Return the keys of a name: those of the namespace and of the entities at or above a path."""
        return (key for key in chain(self._keys, self._entity_keys(path)) if key.name == name)

    def _resource(self, path: str) -> str:
        return f"sb://{self._authority}/{path}"


def _bearer(text: str) -> str | None:
    """The token of an identity in an HTTP header, or as SDKs put it over AMQP; None for any other text."""
    if text[: len(_BEARER_PREFIX)].lower() == _BEARER_PREFIX:
        return text[len(_BEARER_PREFIX) :].strip()
    return text if is_token(text) else None


def _refusal(description: str) -> BrokerError:
    return BrokerError(Condition.UNAUTHORIZED_ACCESS, description)


def _path_of_rights(address: str) -> str:
    """Return the path that rights refer to: the entity, also for its sub-queues and its `$management`.

    Some clients sign the query of a request, too; it is dropped.
    """
    return parse_address(address.partition("?")[0]).key


def _readings(resource: str) -> Iterator[str]:
    """Yield a signed address and, if it begins with a host but no scheme, the part after the host.

    With a SharedAccessSignature in the connection string the Go SDK signs the host alone, JavaScript host and port.
    An entity's name may contain dots: only the forms of `_HOST` count as a host.
    """
    yield resource
    if "://" not in resource:
        host, _, rest = resource.partition("/")
        if _HOST(host) is not None:
            yield rest


_HOST: Final = re.compile(
    r"localhost|[^:]+:\d{1,5}|(?:\d{1,3}\.){3}\d{1,3}|\[[0-9a-f:.]+\]|.+\.servicebus\..+", re.IGNORECASE
).fullmatch
"""A host with a port, an IP address, or the service's own host."""


def _host(address: str) -> str:
    """The host of an address, empty for a path alone."""
    if "://" in address:
        return host_of(address)
    host = address.partition("/")[0]
    return host if _HOST(host) is not None else ""


def _is_prefix(path: str, of: str) -> bool:
    return not path or of == path or of.startswith(path + "/")


def _belongs_to(entity: str, path: str) -> bool:
    """Whether a compared path is the entity or one of its subscriptions."""
    return path == entity or path.startswith(f"{entity}/subscriptions/")


def _texts(key: SharedKey) -> tuple[str, ...]:
    return (key.key,) if key.secondary_key is None else (key.key, key.secondary_key)


def _claim(key: SharedKey, text: str, path: str, expires_at: int | None) -> Claim:
    if key.scope is None:
        return Claim(path, key.rights, expires_at, False, key.name, text, identity=key.name)
    identity = f"{key.name} of {key.scope}"
    return Claim(path, key.rights, expires_at, True, key.name, text, identity)


def _has_signed(key_text: str, token: SasToken) -> bool:
    return _equal(sign(token.resource, token.expiry, key_text), token.signature)


def _equal(left: str, right: str) -> bool:
    # surrogatepass: HTTP headers may contain invalid UTF-8, which must compare as different and not raise.
    return hmac.compare_digest(left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass"))
