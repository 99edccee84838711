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
from typing import TYPE_CHECKING, Final

from .storage import StoreError, make_folder

if TYPE_CHECKING:
    import trustme

CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca-key.pem"
FOLDER: Final = "tls"
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


def development_context(folder: Path, names: Sequence[str] = ()) -> ssl.SSLContext:
    """A server's context with a certificate of the development CA in `folder`, for the usual names and `names`.

    The CA is made if missing. TlsError if its files can't be read or written.
    """
    authority = _authority(folder)
    wanted = dict.fromkeys((*NAMES, socket.gethostname(), *(name for name in names if name not in ANY_ADDRESS)))
    certificate = authority.issue_cert(*(name for name in wanted if name))
    context = _context()
    certificate.configure_cert(context)
    return context


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
    ("Go", 'SSL_CERT_FILE={ca}; the data client also TLSConfig: &tls.Config{{ServerName: "localhost"}}'),
    ("curl", "--cacert {ca}"),
)
"""The setting that trusts the CA, for each SDK."""


def trust_lines(path: Path) -> list[str]:
    """The path of the CA, and how to trust it in each SDK, one line each."""
    width = max(len(client) for client, _ in TRUST)
    return [str(path), *(f"{client:{width}}  {setting.format(ca=path)}" for client, setting in TRUST)]
