"""Certificates: the user's, or one of a development CA in the data folder.

Knows files, names in certificates and TLS contexts. Does not know who listens. The CA is made when first needed and
kept, so that clients need to be configured once; it may certify the names that it was made for, and no others. The
server's certificate is made at every start, with the current names of the machine.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from .broker.clock import Clock
from .options import variables_of_process
from .storage import StoreError, make_folder

if TYPE_CHECKING:
    import trustme
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca-key.pem"
FOLDER: Final = "tls"
HANDSHAKE_FAILURE: Final = bytes([21, 3, 3, 0, 2, 2, 40])
"""A TLS record: the fatal alert `handshake_failure` [RFC 5246 7.2]."""
NAMES: Final = (
    "localhost",
    "127.0.0.1",
    "::1",
    "emubus",
    "sb-emulator",
    "servicebus-emulator",
    "host.docker.internal",
    "*.servicebus.windows.net",
)
"""Usual names of a server on this machine or in a compose file. The last is for clients that make the address from the
name of a namespace, such as Celery: a hosts file can make any namespace point here."""
PORTS: Final = (443, 5300, 5671, 5672)
"""Usual ports, for names with a port: a container does not know to which port of its host its own are mapped."""
LOOPBACK: Final = "127.0.0.0/8"
ORGANIZATION: Final = "emubus"
AUTHORITY_DAYS: Final = 3_650
"""Clients are configured once. What keeps an old CA harmless is the names that it may certify."""
DAY_S: Final = 86_400
AUTHORITIES_MAX: Final = 1_000
"""That are noted for a user, the last ones: tests make one for each server with TLS."""
ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})


class TlsError(Exception):
    """A certificate can't be used; the text is one line that names the file."""


def context_from_files(certificate: Path, key: Path) -> ssl.SSLContext:
    """A server's context with a certificate (chain) and its key, both PEM; TlsError if they can't be used."""
    for path in (certificate, key):
        if not path.is_file():
            raise TlsError(f"there is no file {path}")
    context = _context()
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(
            f"{certificate} and {key} are not a certificate and its key in PEM, without a password: {error}"
        ) from error
    return context


def development_context(
    folder: Path, names: Sequence[str] = (), ports: Sequence[int] = (), *, makes: bool = True
) -> ssl.SSLContext:
    """A server's context with a certificate of the development CA in `folder`; TlsError.

    A server that does not know its ports yet `makes` no CA, because the CA is for certain ports: if there is none, the
    context has no certificate until `certify`.
    """
    context = _context()
    if makes or (folder / CA_FILE).is_file():
        certify(context, folder, names, ports)
    return context


def stranger_context(names: Sequence[str] = ()) -> ssl.SSLContext:
    """A server's context with a certificate of a CA that nobody knows. TlsError."""
    import trustme

    context, hosts = _context(), _hosts(names)
    with_port = _with_ports(hosts)
    _load(context, trustme.CA.from_pem(*_new_authority(hosts, with_port)), hosts, with_port)
    return context


def certify(context: ssl.SSLContext, folder: Path, names: Sequence[str] = (), ports: Sequence[int] = ()) -> list[str]:
    """Load a new certificate of the development CA in `folder` into a server's context, also in place of an older one.

    It is for the usual names, that of the machine, and `names`, and for each of them with each port, as far as the CA
    may certify them: returns the hosts for which it was not made. The CA is made if missing. TlsError if its files
    can't be read or written.
    """
    hosts = _hosts(names)
    with_port = _with_ports(hosts, ports)
    authority = _authority(folder, hosts, with_port)
    constraints = name_constraints(x509_of(authority.cert_pem.bytes()))
    left_out = [each for each in hosts if not _permits(constraints, each)]
    hosts = [each for each in hosts if each not in left_out]
    _load(context, authority, hosts, [each for each in with_port if _permits(constraints, each)])
    return left_out


def _load(context: ssl.SSLContext, authority: trustme.CA, hosts: Sequence[str], with_port: Sequence[str]) -> None:
    try:
        with tempfile.NamedTemporaryFile() as file:  # the ssl module reads certificates from files only
            file.write(_issue(authority, hosts, with_port))
            file.flush()
            context.load_cert_chain(file.name)
    except OSError as error:
        raise TlsError(f"the server's certificate can't be written to a temporary file: {error}") from error


def _hosts(names: Sequence[str] = ()) -> list[str]:
    wanted = (*NAMES, socket.gethostname(), *(name for name in names if name not in ANY_ADDRESS))
    return list(dict.fromkeys(name for name in wanted if name))


def _with_ports(hosts: Sequence[str], ports: Sequence[int] = ()) -> list[str]:
    # Go's Service Bus client looks for "localhost:5672", as the address stands in its connection string.
    numbers = sorted({*PORTS, *ports} - {0})
    return [f"{host}:{number}" for host in hosts if not host.startswith("*") for number in numbers]


def _issue(authority: trustme.CA, hosts: Sequence[str], literal: Sequence[str]) -> bytes:
    """A key and a certificate for `hosts` (names, `*.` names, IP addresses) and `literal` names, in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    made = authority.issue_cert(*hosts)  # trustme takes no names with a port, so they are added, and signed again
    before = x509.load_pem_x509_certificate(made.cert_chain_pems[0].bytes())
    builder = (
        x509.CertificateBuilder()
        .subject_name(before.subject)
        .issuer_name(before.issuer)
        .public_key(before.public_key())
        .serial_number(before.serial_number)
        .not_valid_before(before.not_valid_before_utc)
        .not_valid_after(before.not_valid_after_utc)
    )
    for extension in before.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            value = x509.SubjectAlternativeName([*value, *map(x509.DNSName, literal)])
        builder = builder.add_extension(value, extension.critical)
    issuer = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    signed = builder.sign(cast("CertificateIssuerPrivateKeyTypes", issuer), hashes.SHA256())
    return made.private_key_pem.bytes() + signed.public_bytes(serialization.Encoding.PEM)


def ca_file(data_dir: Path) -> Path:
    """The path of the development CA's certificate in a data folder."""
    return (data_dir / FOLDER / CA_FILE).absolute()


def make_authority(folder: Path) -> None:
    """Make the development CA in `folder` unless it exists; TlsError."""
    hosts = _hosts()
    _authority(folder, hosts, _with_ports(hosts))


def _authority(folder: Path, hosts: Sequence[str], with_port: Sequence[str]) -> trustme.CA:
    import trustme  # only for a certificate of our own: it imports cryptography

    certificate, key = folder / CA_FILE, folder / CA_KEY_FILE
    try:
        if certificate.is_file() and key.is_file():
            return trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
        make_folder(folder.parent)
        make_folder(folder)
        certificate_pem, key_pem = _new_authority(hosts, with_port)
        _write(key, key_pem)
        _write(certificate, certificate_pem, 0o644)
        _note_made(certificate_pem)
        return trustme.CA.from_pem(certificate_pem, key_pem)
    except (OSError, ValueError, StoreError) as error:
        raise TlsError(f"the development CA in {folder} can't be used: {error}") from error


def _new_authority(hosts: Sequence[str], with_port: Sequence[str]) -> tuple[bytes, bytes]:
    """Certificate and key of a new CA in PEM, which may certify these names and no others [RFC 5280 4.2.1.10].

    Who trusts it trusts its key, which lies in a data folder: it must not be good for a bank.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "development only"),
        ]
    )
    addresses = dict.fromkeys(address for each in hosts if (address := _address(each)) not in (None, "127.0.0.1"))
    domains = [each.removeprefix("*.") for each in (*hosts, *with_port) if _address(each) is None]
    permitted = [*map(x509.IPAddress, map(ipaddress.ip_network, (LOOPBACK, *addresses))), *map(x509.DNSName, domains)]
    now = Clock().now_ms() // 1000
    usage = x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now - DAY_S, UTC))  # clocks of clients may be behind
        .not_valid_after(datetime.fromtimestamp(now + AUTHORITY_DAYS * DAY_S, UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints(permitted, None), critical=True)
        .sign(own, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return signed.public_bytes(pem), own.private_bytes(pem, pkcs8, serialization.NoEncryption())


def x509_of(pem: bytes) -> x509.Certificate:
    """A certificate. ValueError if the text has none."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem)


def name_constraints(certificate: x509.Certificate) -> x509.NameConstraints | None:
    """The names that a CA may certify; None if all: it was made by an older emubus, or elsewhere."""
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return None


def _permits(constraints: x509.NameConstraints | None, host: str) -> bool:
    """Whether a CA with these constraints may certify a host, or one with its port."""
    if constraints is None:
        return True
    address = _address(host)
    permitted = [each.value for each in constraints.permitted_subtrees or ()]
    if address is not None:
        networks = [each for each in permitted if not isinstance(each, str)]
        return any(ipaddress.ip_address(address) in each for each in networks)
    domain = host.removeprefix("*.")
    return any(domain == each or domain.endswith(f".{each}") for each in permitted if isinstance(each, str))


def _address(host: str) -> str | None:
    """An IP address, or None if it is a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


# ---------------------------------------------------------------- whose CA it is


def fingerprint_of(certificate: x509.Certificate) -> str:
    """SHA-256, as browsers and openssl show it."""
    from cryptography.hazmat.primitives import hashes

    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def doubts_about_ca(path: Path) -> list[str]:
    """Why the CA at `path` may not be the user's, a reason each: a folder may have come with a repository.

    What such a folder has can be made up, but not what this user's emubus has noted elsewhere. TlsError.
    """
    key = path.with_name(CA_KEY_FILE)
    try:
        certificate = x509_of(path.read_bytes())
        status = key.stat()
    except (OSError, ValueError) as error:
        raise TlsError(f"the development CA in {path.parent} can't be used: {error}") from error
    found = []
    if fingerprint_of(certificate) not in _fingerprints_made():
        found.append(f"this user's emubus has not noted in {_record()} that it made it")
    if status.st_uid != os.geteuid():
        found.append(f"its key {key} belongs to user {status.st_uid}")
    if status.st_mode & 0o077:
        found.append(f"other users may use its key {key} (mode {status.st_mode & 0o777:03o})")
    return found


def _record() -> Path:
    """Where emubus notes which CAs it made for this user, outside of every data folder."""
    given = variables_of_process().get("XDG_STATE_HOME")
    return (Path(given) if given else Path.home() / ".local" / "state") / "emubus" / "authorities"


def _fingerprints_made() -> list[str]:
    try:
        return _record().read_text(errors="replace").split()
    except (OSError, RuntimeError):  # there is none, or the user has no home
        return []


def _note_made(pem: bytes) -> None:
    """Note that a CA was made here. A user without a home confirms an installation with the fingerprint."""
    with contextlib.suppress(OSError, RuntimeError):
        record = _record()
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        noted = [*_fingerprints_made(), fingerprint_of(x509_of(pem))][-AUTHORITIES_MAX:]
        _write(record, "".join(f"{each}\n" for each in noted).encode())


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file atomically."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


TRUST: Final = (
    ("Python data client", 'ServiceBusClient.from_connection_string(…, connection_verify="{ca}")'),
    ("Python admin client", 'ServiceBusAdministrationClient.from_connection_string(…, connection_verify="{ca}")'),
    ("JavaScript", "NODE_EXTRA_CA_CERTS={ca}"),
    (
        "Java",
        "keytool -importcert -noprompt -alias emubus -file {ca} -keystore emubus.p12 -storepass changeit; then "
        "-Djavax.net.ssl.trustStore=emubus.p12 -Djavax.net.ssl.trustStorePassword=changeit",
    ),
    (".NET on Linux", "SSL_CERT_FILE={ca}"),
    ("Go", "SSL_CERT_FILE={ca}; on a port other than emubus's own also TLSConfig with ServerName"),
    ("curl", "--cacert {ca}, or CURL_CA_BUNDLE={ca}"),
)
"""The setting that trusts the CA, for each SDK."""


def trust_lines(path: Path) -> list[str]:
    """The path of the CA, and how to trust it in each SDK, one line each."""
    width = max(len(client) for client, _ in TRUST)
    return [str(path), *(f"{client:{width}}  {setting.format(ca=path)}" for client, setting in TRUST)]
