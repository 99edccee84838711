"""`emubus ca`: print the path of the development CA, whose it is and how to trust it, or add it to trust stores.

Knows the trust stores that one command changes: those of Debian, Fedora and macOS, and Java's. Node.js and Python have
none on the machine: they read a variable, which is printed.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ..config import OPTIONS_BY_NAME
from ..exits import EXIT_FAILED, EXIT_OK, CommandError
from ..options import ConfigError, read_options
from ..terminal import write_json, write_lines, write_notes
from ..tls import (
    TlsError,
    ca_file,
    doubts_about_ca,
    fingerprint_of,
    make_authority,
    name_constraints,
    trust_lines,
    x509_of,
)
from .declaring import Command, Parsed

if TYPE_CHECKING:
    from cryptography import x509

COMMAND_SECONDS_MAX: Final = 60
JAVA_PASSWORD: Final = "changeit"
"""That of the trust store that every Java is delivered with."""


class TrustStore(NamedTuple):
    """A trust store of this machine: there if `program` is; `copy_to` gets the file before `command` is run.

    `clients` are those that use it. In `command`, `{ca}` is the file of the CA.
    """

    name: str
    program: str
    command: tuple[str, ...]
    clients: str
    copy_to: Path | None = None


STORES: Final = (
    TrustStore(
        "Debian, Ubuntu",
        "update-ca-certificates",
        ("update-ca-certificates",),
        "curl, Go, .NET",
        Path("/usr/local/share/ca-certificates/emubus.crt"),
    ),
    TrustStore(
        "Fedora, RHEL",
        "update-ca-trust",
        ("update-ca-trust",),
        "curl, Go, .NET",
        Path("/etc/pki/ca-trust/source/anchors/emubus.pem"),
    ),
    TrustStore(
        "macOS",
        "security",
        ("security", "add-trusted-cert", "-r", "trustRoot", "-p", "ssl", "{ca}"),
        "curl, Go, .NET",
    ),
    TrustStore(
        "Java",
        "keytool",
        (
            *("keytool", "-importcert", "-noprompt", "-cacerts", "-alias", "emubus"),
            *("-storepass", JAVA_PASSWORD, "-file", "{ca}"),
        ),
        "the Java of this keytool",
    ),
)
VARIABLES: Final = (
    ("Node.js", "export NODE_EXTRA_CA_CERTS={ca}"),
    ("Python", "export SSL_CERT_FILE={ca} REQUESTS_CA_BUNDLE={ca}"),
)
"""Clients without a trust store on the machine. Python's libraries bring their own; these variables replace it."""


def add_arguments(parser: Command) -> None:
    parser.setting(OPTIONS_BY_NAME["data"])
    parser.switch(
        "--install", help="add the CA to the trust stores of this machine: Debian's, Fedora's, macOS's, Java's"
    )
    parser.option(
        "--fingerprint", metavar="SHA256", help="install the CA with this SHA-256, though emubus may not have made it"
    )
    parser.switch("--json", help="print JSON; not with --install")
    parser.run = run


def run(parsed: Parsed) -> int:
    """Make the CA if it does not exist, so that clients can be set up before the first start; the exit code."""
    path = ca_file(read_options([OPTIONS_BY_NAME["data"]], {"data": parsed.data}).of("data", Path))
    try:
        make_authority(path.parent)
        certificate = x509_of(path.read_bytes())
        reasons = doubts_about_ca(path)
    except (TlsError, OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    fingerprint = fingerprint_of(certificate)
    about = [
        f"Subject: {certificate.subject.rfc4514_string()}",
        f"Made: {certificate.not_valid_before_utc:%Y-%m-%d}; for {_names_of(certificate)}",
        f"SHA-256: {fingerprint}",
    ]
    if parsed.fingerprint is not None and not parsed.install:
        raise ConfigError("--fingerprint goes with --install: it says which CA may be installed")
    if parsed.json and parsed.install:
        raise ConfigError("--json and --install exclude each other: install says what it did in sentences")
    if parsed.json:
        write_json(
            {
                "file": str(path),
                "sha256": fingerprint,
                "subject": certificate.subject.rfc4514_string(),
                "doubts": [*reasons],
            }
        )
        return EXIT_OK
    if not parsed.install:
        write_lines([*trust_lines(path), "", *about])
        write_notes(f"emubus: warning: this CA was perhaps not made by emubus for you: {each}" for each in reasons)
        return EXIT_OK
    write_lines([f"CA: {path}", *about])
    if reasons and not _is_confirmed(parsed.fingerprint, fingerprint):
        raise CommandError(
            f"{path} was not made by emubus for you, as far as it can tell: {'; '.join(reasons)}. The owner of its key "
            "can impersonate the servers that you connect to. Delete its folder, so that a new one is made, or, if you "
            f"know where it comes from, give --fingerprint {fingerprint}"
        )
    if parsed.fingerprint is not None and not _is_confirmed(parsed.fingerprint, fingerprint):
        raise CommandError(f"{path} is not the CA of --fingerprint {parsed.fingerprint}: it has {fingerprint}")
    return install(path)


def _names_of(certificate: x509.Certificate) -> str:
    constraints = name_constraints(certificate)
    if constraints is None:
        return "any name (it has no name constraints: an older emubus made it, or another program)"
    names = [str(each.value) for each in constraints.permitted_subtrees or ()]
    return ", ".join(each for each in names if ":" not in each or each.count(":") > 1) + ", also with ports"


def _is_confirmed(given: str | None, fingerprint: str) -> bool:
    return given is not None and given.replace(":", "").upper() == fingerprint.replace(":", "")


def install(path: Path, stores: Sequence[TrustStore] = STORES) -> int:
    """Add the CA to each of the stores that this machine has, and say what came of it; 1 if one could not be."""
    here = [store for store in stores if shutil.which(store.program) is not None]
    failed = False
    for store in here:
        problem = _add_to_store(store, path)
        failed = failed or problem is not None
        result = f"trusts {path} now ({store.clients})" if problem is None else f"could not be changed: {problem}"
        write_lines([f"{store.name}: {result}"])
    if not here:
        programs = ", ".join(store.program for store in stores)
        write_lines([f"There is no trust store that one command changes here: none of {programs} was found."])
    for client, setting in VARIABLES:
        write_lines([f"{client} needs a variable: {setting.format(ca=path)}"])
    return EXIT_FAILED if failed else EXIT_OK


def _add_to_store(store: TrustStore, path: Path) -> str | None:
    """Add the CA to a store; what went wrong, None if nothing did."""
    command = [part.format(ca=path) for part in store.command]
    try:
        if store.copy_to is not None:
            shutil.copyfile(path, store.copy_to)
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-1:] or ["no output"]
        return f"{' '.join(command)} ended with {done.returncode}: {last[0]}"
    return None
