"""Commands over HTTPS: the CA of the server is named by an option or the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer, RemoteEmubus

from .conftest import CommandLine


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmubusServer]:
    """A server with a certificate of the development CA."""
    with EmubusServer((QueueDescription("orders"),), tls_dir=tmp_path_factory.mktemp("tls")) as server:
        yield server


def url_of(server: EmubusServer) -> str:
    return f"https://localhost:{server.http_port}"


def test_a_command_trusts_the_ca_that_it_is_given(
    offline: CommandLine, secured: EmubusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("ls", "--url", url_of(secured))
    assert "orders" in offline.done(*given, "--ca", str(secured.ca_file))
    refused = offline(*given)
    assert refused.code == 3
    assert "CERTIFICATE_VERIFY_FAILED" in refused.err
    monkeypatch.setenv("EMUBUS_CA", str(secured.ca_file))
    assert "orders" in offline.done(*given)


@pytest.mark.parametrize("command", [("ls",), ("import", "--namespace", "Endpoint=sb://localhost;SharedAccessKey=k")])
def test_a_file_without_a_certificate_is_refused(
    offline: CommandLine, secured: EmubusServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    for path in (tmp_path / "none.pem", tmp_path):
        ended = offline(*command, "--url", url_of(secured), "--ca", str(path))
        assert (ended.code, ended.out) == (2, "")
        assert f"{path} has no certificate of a CA that can be read" in ended.err


def test_a_namespace_is_imported_from_https_to_https(offline: CommandLine, secured: EmubusServer) -> None:
    source = secured.tls_connection_string.replace(str(secured.amqp_port), str(secured.http_port))
    assert secured.ca_file is not None
    with EmubusServer(tls_dir=secured.ca_file.parents[1]) as target:
        given = ("import", "--namespace", source, "--url", url_of(target), "--ca", str(secured.ca_file))
        assert offline.done(*given) == "created queue orders\n"
        remote = RemoteEmubus(url_of(target), ca_file=secured.ca_file)
        assert "UseDevelopmentEmulator" not in remote.connection_string
        assert remote.message_counts("orders")["active"] == 0
