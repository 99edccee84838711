"""Certificates: the user's, or one of a development CA in the data folder.

Knows files, names in certificates and TLS contexts. Does not know who listens. The CA is made when first needed and
kept, so that clients need to be configured once; the server's certificate is made at every start, with the current
names of the machine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from .storage import StoreError, make_folder

if TYPE_CHECKING:
    import trustme
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
        raise TlsError(f"{certificate} and {key} are not a certificate and its key: {error}") from error
    return context


def development_context(folder: Path, names: Sequence[str] = (), ports: Sequence[int] = ()) -> ssl.SSLContext:
    """A server's context with a certificate of the development CA in `folder`; see `certify`. TlsError."""
    context = _context()
    certify(context, folder, names, ports)
    return context


def stranger_context(names: Sequence[str] = ()) -> ssl.SSLContext:
    """A server's context with a certificate of a CA that nobody knows. TlsError."""
    with tempfile.TemporaryDirectory() as folder:
        return development_context(Path(folder), names)


def certify(context: ssl.SSLContext, folder: Path, names: Sequence[str] = (), ports: Sequence[int] = ()) -> None:
    """Load a new certificate of the development CA in `folder` into a server's context, also in place of an older one.

    It is for the usual names, that of the machine, and `names`, and for each of them with each port. The CA is made if
    missing. TlsError if its files can't be read or written.
    """
    authority = _authority(folder)
    wanted = (*NAMES, socket.gethostname(), *(name for name in names if name not in ANY_ADDRESS))
    hosts = dict.fromkeys(name for name in wanted if name)
    # Go's Service Bus client looks for "localhost:5672", as the address stands in its connection string.
    numbers = sorted({*PORTS, *ports} - {0})
    with_port = [f"{host}:{number}" for host in hosts if not host.startswith("*") for number in numbers]
    try:
        with tempfile.NamedTemporaryFile() as file:  # the ssl module reads certificates from files only
            file.write(_issued(authority, list(hosts), with_port))
            file.flush()
            context.load_cert_chain(file.name)
    except OSError as error:
        raise TlsError(f"the server's certificate can't be written to a temporary file: {error}") from error


def _issued(authority: trustme.CA, hosts: Sequence[str], literal: Sequence[str]) -> bytes:
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
    _authority(folder)


def _authority(folder: Path) -> trustme.CA:
    import trustme  # only for a certificate of our own: it imports cryptography

    certificate, key = folder / CA_FILE, folder / CA_KEY_FILE
    try:
        if certificate.is_file() and key.is_file():
            return trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
        make_folder(folder.parent)
        make_folder(folder)
        authority = trustme.CA(organization_name="emubus", organization_unit_name="development only")
        _write(key, authority.private_key_pem.bytes())
        _write(certificate, authority.cert_pem.bytes(), 0o644)
    except (OSError, ValueError, StoreError) as error:
        raise TlsError(f"the development CA in {folder} can't be used: {error}") from error
    return authority


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
