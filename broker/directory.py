"""Who may have a token, and which identity it names: what a directory such as Entra ID decides.

Knows the identities of the configuration with their secrets and certificates, and that every other client id is an
identity, too: a program that asks for any gets one. Does not know requests (`web/identity`), signatures of our own
tokens (`tokens.py`) and roles (`roles.py`).

Who must show something: an identity that has a secret or a certificate gives a token for that alone. The others give
one to everybody as long as the directory is open: while tokens are not verified, or while the key of the namespace is
the one that everybody knows, a token opens nothing that could not be had without it. Once the operator has set a key
of his own it must be shown, as a secret or as the header of a managed identity.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from .errors import BrokerError
from .lazy_dataclass import dataclass
from .roles import Principal
from .tokens import TENANT, Identity, parts_of

SYSTEM_ASSIGNED: Final = "00000000-0000-0000-0000-000000000001"
"""The client id of the managed identity that a program gets without naming one."""
SKEW_S: Final = 300


class NoToken(Exception):  # noqa: N818 - the answer to a request
    """A token is refused; `code` is that of Entra ID [docs: reference-error-codes], `error` that of OAuth."""

    def __init__(self, code: int, error: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.error = error
        self.text = text


@dataclass(frozen=True, slots=True)
class KnownIdentity:
    """An identity of the configuration; `certificate` is PEM."""

    client_id: str
    secret: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    object_id: str | None = None
    resource_id: str | None = None

    def identity(self, tenant: str = TENANT) -> Identity:
        """Whom its tokens name; an object id that is not given is made from the client id."""
        made = Identity.of_client(self.client_id, tenant)
        return Identity(self.client_id, self.object_id or made.object_id, self.resource_id or "", tenant)


class Directory:
    """The identities of one namespace.

    `is_open()` says whether a token opens nothing that everybody could not open, as long as keys are as they are now;
    `is_key(text)` whether a text is a key with Manage on the namespace.
    """

    def __init__(
        self,
        known: Iterable[KnownIdentity] = (),
        *,
        is_open: Callable[[], bool] = lambda: True,
        is_key: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._known = tuple(known)
        self._is_open = is_open
        self._is_key = is_key

    def managed(self, client_id: str, object_id: str, resource_id: str, shown: str) -> Identity:
        """The managed identity that a program means, which has `shown` its header (or nothing). NoToken.

        Without an id it is the one whose secret was shown, so that each program can have its own by its header alone.
        """
        own = [each for each in self._known if _shows(each, shown)]
        if client_id or object_id or resource_id:
            known = self._find(client_id, object_id, resource_id)
            identity = known.identity() if known else _identity_of_unknown(client_id, object_id, resource_id)
        else:
            known = own[0] if own else self._find(SYSTEM_ASSIGNED, "", "")
            identity = known.identity() if known else Identity.of_client(SYSTEM_ASSIGNED)
        if not self._may(known, shown):
            raise NoToken(
                401,
                "invalid_request",
                f"The identity {identity.client_id} is not given away: set IDENTITY_HEADER to its secret, or, if it "
                "has none, to a key with Manage on the namespace.",
            )
        return identity

    def application(self, client_id: str, secret: str, tenant: str) -> Identity:
        """An application that shows a secret. NoToken."""
        known = self._find(client_id, "", "")
        if not self._may(known, secret):
            raise NoToken(
                7_000_215,
                "invalid_client",
                "Invalid client secret provided. Ensure the secret being sent in the request is the client secret "
                f"value, not the client secret ID, for a secret added to app '{client_id}'.",
            )
        return known.identity(tenant) if known else Identity.of_client(client_id, tenant)

    def asserted(self, client_id: str, assertion: str, tenant: str, now_s: int) -> Identity:
        """An application that shows an assertion: a token signed with its certificate, or one of another issuer.

        That issuer can't be asked here, so that its tokens are believed only where nothing has to be shown. NoToken.
        """
        known = self._find(client_id, "", "")
        if known is not None and known.certificate is not None:
            _check_assertion(known, assertion, now_s)
        elif not assertion or not self._may(known, ""):
            raise _bad_assertion(f"'{client_id}' has no certificate in the configuration that could verify it")
        return known.identity(tenant) if known else Identity.of_client(client_id, tenant)

    def _may(self, known: KnownIdentity | None, shown: str) -> bool:
        if known is not None and (known.secret is not None or known.certificate is not None):
            return _shows(known, shown)
        return self._is_open() or (shown != "" and self._is_key(shown))

    def _find(self, client_id: str, object_id: str, resource_id: str) -> KnownIdentity | None:
        for each in self._known:
            identity = each.identity()
            if (
                (client_id and client_id.lower() == identity.client_id.lower())
                or (object_id and object_id.lower() == identity.object_id.lower())
                or (resource_id and resource_id.lower() == identity.resource_id.lower())
            ):
                return each
        return None


def _identity_of_unknown(client_id: str, object_id: str, resource_id: str) -> Identity:
    """An identity that the configuration does not have."""
    try:
        name = Principal(client_id or object_id or resource_id)
    except BrokerError as error:
        raise NoToken(400, "invalid_request", error.description) from None
    if client_id:
        return Identity.of_client(client_id)
    made = Identity.of_client(str(uuid5(NAMESPACE_OID, name)))
    return Identity(made.client_id, object_id or made.object_id, resource_id)


def _shows(known: KnownIdentity, shown: str) -> bool:
    return bool(known.secret) and hmac.compare_digest(
        str(known.secret).encode(errors="surrogatepass"), shown.encode(errors="surrogatepass")
    )


def _bad_assertion(why: str) -> NoToken:
    return NoToken(700_027, "invalid_client", f"Client assertion failed signature validation: {why}.")


def _check_assertion(known: KnownIdentity, assertion: str, now_s: int) -> None:
    """NoToken unless the assertion was signed with the identity's certificate, for itself and in its time."""
    try:
        head, claims, signed, signature = parts_of(assertion)
    except BrokerError as error:
        raise NoToken(50_027, "invalid_request", f"JWT token is invalid or malformed: {error.description}") from None
    if not _is_signed(known.certificate or "", str(head.get("alg")), signed, signature):
        raise _bad_assertion(f"it was not signed with the certificate of '{known.client_id}'")
    if any(str(claims.get(each, "")).lower() != known.client_id.lower() for each in ("iss", "sub")):
        raise _bad_assertion(f"its issuer and subject must be '{known.client_id}'")
    expires_s, begins_s = claims.get("exp"), claims.get("nbf", 0)
    if not isinstance(expires_s, int | float) or not isinstance(begins_s, int | float):
        raise _bad_assertion("its time (exp, nbf) can't be read")
    if expires_s + SKEW_S <= now_s or now_s < begins_s - SKEW_S:
        raise NoToken(700_024, "invalid_client", "Client assertion is not within its valid time range.")


def _is_signed(certificate: str, algorithm: str, data: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # only for assertions
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509 import load_pem_x509_certificate

    paddings = {"RS256": PKCS1v15(), "PS256": PSS(MGF1(SHA256()), SHA256().digest_size)}  # what libraries sign with
    key = load_pem_x509_certificate(certificate.encode()).public_key()
    if algorithm not in paddings or not isinstance(key, RSAPublicKey):
        return False
    try:
        key.verify(signature, data, paddings[algorithm], SHA256())
    except InvalidSignature:
        return False
    return True


def certificate_problem(pem: str) -> str | None:
    """Why a text can't be the certificate of an identity; None if it can."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.x509 import load_pem_x509_certificate

    try:
        key = load_pem_x509_certificate(pem.encode()).public_key()
    except ValueError:
        return "is no certificate; allowed is PEM text that begins with -----BEGIN CERTIFICATE-----"
    return None if isinstance(key, RSAPublicKey) else "has no RSA key; directories verify RS256 and PS256"
