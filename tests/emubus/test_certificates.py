"""The development certificate, the trust stores that `emubus ca --install` changes, and the ports that take TLS off."""

from __future__ import annotations

import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from emubus.__main__ import main
from emubus.commands.ca import STORES, TrustStore, install
from emubus.testing import EmubusServer, QueueDescription
from emubus.tls import ca_file

from ..building import ROOT
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


# ---------------------------------------------------------------- emubus ca --install


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
