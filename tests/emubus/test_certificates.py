"""The development certificate, the trust stores that `emubus ca --install` changes, and the ports that take TLS off."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from structlog.testing import capture_logs

from emubus import tls
from emubus.__main__ import main
from emubus.commands.ca import STORES, TrustStore, install
from emubus.testing import EmubusServer, QueueDescription
from emubus.tls import ca_file

from ..building import ROOT
from ..log_levels import every_level
from ..programs import PROGRAM_S_MAX

WAIT_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("queue.1")], tls_dir=tmp_path_factory.mktemp("tls")) as running:
        yield running


def names_of(port: int) -> list[str]:
    certificate = x509.load_pem_x509_certificate(ssl.get_server_certificate(("127.0.0.1", port)).encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(each.value) for each in names]


def test_the_certificate_names_local_hosts_with_the_ports_of_the_server(
    server: EmubusServer,
) -> None:
    ports = server.server.ports.values()
    for port in ports:
        names = names_of(port)
        assert {"localhost", "127.0.0.1", "::1", "servicebus-emulator", "*.servicebus.windows.net"} <= set(names)
        assert {f"localhost:{each}" for each in (*ports, 443, 5300, 5671, 5672)} <= set(names)
        assert f"127.0.0.1:{port}" in names
        assert len(names) == len(set(names))


def test_a_client_that_verifies_names_accepts_the_certificate(server: EmubusServer) -> None:
    context = ssl.create_default_context(cafile=server.ca_file)
    for host in ("localhost", "127.0.0.1"):
        url = f"https://{host}:{server.http_port}/health"
        with urllib.request.urlopen(url, timeout=WAIT_S, context=context) as answer:
            assert answer.status == 200


def accepts(folder: Path, host: str, *, ca: Path, as_host: str | None = None) -> str | None:
    """Why OpenSSL refuses a certificate that the CA's key made for a host; None if it accepts it."""
    issuer = trustme.CA.from_pem(ca.read_bytes(), ca.with_name("ca-key.pem").read_bytes())
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=ca)
    file = folder / "server.pem"
    file.write_bytes(tls._issue(issuer, [host], []))
    serving.load_cert_chain(file)
    buffers = [ssl.MemoryBIO() for _ in range(2)]
    client = asking.wrap_bio(buffers[0], buffers[1], server_hostname=as_host or host)
    peer = serving.wrap_bio(buffers[1], buffers[0], server_side=True)
    for _ in range(4):
        for each in (client, peer):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return None


def test_the_ca_is_good_for_the_names_that_it_was_made_for_and_no_others(tmp_path: Path) -> None:
    tls.make_authority(tmp_path / "tls")
    ca = ca_file(tmp_path)
    for host in ("localhost", "a.localhost", "127.0.0.1", "127.8.9.10", "::1", "emubus", "host.docker.internal"):
        assert accepts(tmp_path, host, ca=ca) is None
    assert accepts(tmp_path, "*.servicebus.windows.net", ca=ca, as_host="ns.servicebus.windows.net") is None
    for host in ("bank.example", "www.google.com", "notlocalhost", "windows.net", "10.0.0.1", "8.8.8.8", "::2"):
        assert accepts(tmp_path, host, ca=ca) == "permitted subtree violation"


def test_a_server_with_a_name_that_its_ca_lacks_leaves_it_out_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls.make_authority(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    left_out = tls.certify(context, tmp_path / "tls", ["bus.example", "10.1.2.3", "localhost", "127.0.0.9"])
    assert left_out == ["bus.example", "10.1.2.3"]
    monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
    with every_level(), capture_logs() as logs, EmubusServer([], tls_dir=tmp_path) as server:
        assert "renamed" not in names_of(server.http_port)
    (told,) = [each for each in logs if "was not made for these names" in each["event"]]
    assert told["names"] == "renamed"


def test_a_ca_of_an_older_emubus_goes_on(tmp_path: Path) -> None:
    """It has no constraints: it was made by trustme alone."""
    old = trustme.CA(organization_name="emubus", organization_unit_name="development only")
    (tmp_path / "tls").mkdir(mode=0o700)
    old.cert_pem.write_to_path(str(tmp_path / "tls" / "ca.pem"))
    old.private_key_pem.write_to_path(str(tmp_path / "tls" / "ca-key.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert tls.certify(context, tmp_path / "tls", ["bus.example"]) == []
    with EmubusServer([], tls_dir=tmp_path) as server:
        asking = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.pem")
        with urllib.request.urlopen(
            f"https://localhost:{server.http_port}/health", timeout=WAIT_S, context=asking
        ) as answer:
            assert answer.status == 200


# ---------------------------------------------------------------- emubus ca


@pytest.fixture(autouse=True)
def _own_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def foreign_ca(folder: Path, *, mode: int = 0o600) -> Path:
    """A CA as emubus makes them, that came with a repository: with the same subject and constraints."""
    tls.make_authority(folder / "tls")
    (folder / "tls" / "ca-key.pem").chmod(mode)
    tls._record().unlink()
    return ca_file(folder)


def test_the_command_says_whose_ca_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ca", "--data", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    certificate = x509.load_pem_x509_certificate(ca_file(tmp_path).read_bytes())
    assert shown.out.splitlines()[0] == str(ca_file(tmp_path))
    assert f"SHA-256: {tls.fingerprint_of(certificate)}" in shown.out
    assert "Subject: OU=development only,O=emubus" in shown.out
    assert f"Made: {certificate.not_valid_before_utc:%Y-%m-%d}; for 127.0.0.0/8, ::1/128, localhost, " in shown.out
    assert shown.err == ""
    foreign_ca(tmp_path)
    assert main(["ca", "--data", str(tmp_path)]) == 0
    assert "was perhaps not made by emubus for you" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "is_noted", "reason"),
    [
        (0o600, False, "has not noted in"),
        (0o644, False, "has not noted in"),
        (0o644, True, "other users may use its key"),
        (0o620, True, "other users may use its key"),
    ],
)
def test_a_ca_that_emubus_did_not_make_here_is_not_installed(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int, is_noted: bool, reason: str
) -> None:
    write_program(programs, "keytool", f'echo "$@" >> {tmp_path}/log')
    path = foreign_ca(tmp_path / "data", mode=mode)
    if is_noted:
        tls._note_made(path.read_bytes())
    fingerprint = tls.fingerprint_of(x509.load_pem_x509_certificate(path.read_bytes()))
    for more in ([], ["--fingerprint", "00:11"]):
        assert main(["ca", "--data", str(tmp_path / "data"), "--install", *more]) == 1
        shown = capsys.readouterr()
        assert reason in shown.err
        assert len(shown.err.splitlines()) == 1
        assert f"SHA-256: {fingerprint}" in shown.out
    assert not (tmp_path / "log").exists()
    for confirmed in (fingerprint, fingerprint.replace(":", "").lower()):
        assert main(["ca", "--data", str(tmp_path / "data"), "--install", "--fingerprint", confirmed]) == 0
    assert len((tmp_path / "log").read_text().splitlines()) == 2


def test_another_ca_than_that_of_the_fingerprint_is_not_installed(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a folder whose CA emubus has made: the folder may be another one than is meant."""
    write_program(programs, "keytool", f'echo "$@" >> {tmp_path}/log')
    assert main(["ca", "--data", str(tmp_path / "data")]) == 0
    assert main(["ca", "--data", str(tmp_path / "data"), "--install", "--fingerprint", "00:11"]) == 1
    assert "is not the CA of --fingerprint 00:11: it has " in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


def test_a_user_without_a_home_is_asked_for_the_fingerprint(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert main(["ca", "--data", str(tmp_path / "data"), "--install"]) == 1
    assert "--fingerprint" in capsys.readouterr().err


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; `write_program` puts programs there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def write_program(folder: Path, name: str, line: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_the_ca_is_added_to_every_trust_store_of_the_machine(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = tmp_path / "ca.pem"
    certificate.write_text("a certificate")
    copied = tmp_path / "emubus.crt"
    write_program(programs, "update-trust", f'echo "update $#" >> {tmp_path}/log')
    write_program(programs, "keytool", f'echo "$@" >> {tmp_path}/log')
    stores = (
        TrustStore("Debian", "update-trust", ("update-trust",), "curl", copied),
        *(store for store in STORES if store.program in ("keytool", "security")),
    )
    assert install(certificate, stores) == 0
    assert copied.read_text() == "a certificate"
    log = (tmp_path / "log").read_text().splitlines()
    assert log[0] == "update 0"
    assert log[1].startswith("-importcert ")
    assert log[1].endswith(f"-file {certificate}")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["Debian", "Java"]
    assert lines[2:] == [
        f"Node.js needs a variable: export NODE_EXTRA_CA_CERTS={certificate}",
        f"Python needs a variable: export SSL_CERT_FILE={certificate} REQUESTS_CA_BUNDLE={certificate}",
    ]


def test_a_store_that_cannot_be_changed_is_named_with_its_reason(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_program(programs, "keytool", 'echo "alias <emubus> already exists"; exit 1')
    write_program(programs, "update-trust", "exit 0")
    stores = (
        TrustStore("Debian", "update-trust", ("update-trust",), "curl", tmp_path / "missing" / "emubus.crt"),
        TrustStore("Java", "keytool", ("keytool", "-cacerts"), "Java"),
    )
    certificate = tmp_path / "ca.pem"
    certificate.write_text("a certificate")
    assert install(certificate, stores) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Debian: could not be changed: [Errno 2]")
    assert lines[1] == "Java: could not be changed: keytool -cacerts ended with 1: alias <emubus> already exists"


def test_the_command_makes_the_ca_and_says_that_there_is_no_trust_store(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ca", "--data", str(tmp_path / "data"), "--install"]) == 0
    path = ca_file(tmp_path / "data")
    x509.load_pem_x509_certificate(path.read_bytes())
    out = capsys.readouterr().out
    assert "There is no trust store that one command changes here" in out
    assert f"NODE_EXTRA_CA_CERTS={path}" in out


# ---------------------------------------------------------------- docker/tls_ports.py


@pytest.fixture
def ports_in_front(server: EmubusServer, tmp_path: Path) -> Iterator[list[int]]:
    """Two ports with TLS that lead to the server."""
    target = f"0=127.0.0.1:{server.http_port}"
    command = [sys.executable, str(ROOT / "docker" / "tls_ports.py"), "--data", str(tmp_path), target, target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield [int(process.stdout.readline()) for _ in range(2)]
        finally:
            process.terminate()


def test_the_ports_in_front_take_tls_off_and_pass_everything_on(ports_in_front: list[int], tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=ca_file(tmp_path))
    body = b"x" * 200_000
    address = f"https://127.0.0.1:{ports_in_front[1]}/queue.1/messages"
    for url, data, method in ((address, body, "POST"), (f"{address}/head?timeout=5", None, "DELETE")):
        request = urllib.request.Request(url, data, method=method)
        with urllib.request.urlopen(request, timeout=WAIT_S, context=context) as answer:
            received = answer.read()
    assert received == body


# ---------------------------------------------------------------- Windows


def test_windows_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["serve"]) == 1
    assert capsys.readouterr().err == (
        "emubus: error: the broker does not run on Windows; use WSL 2, or the container image\n"
    )


def test_the_test_kit_is_refused_where_there_is_no_uvloop() -> None:
    code = "import sys; sys.modules['uvloop'] = None\nimport emubus.testing"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=PROGRAM_S_MAX
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: the broker does not run on Windows")
