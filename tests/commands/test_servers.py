"""Which server a command asks, and with which key: what is typed, variables, and what running servers leave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emubus.commands.client.address import add_server_options, address_of
from emubus.commands.declaring import Command
from emubus.options import ConfigError
from emubus.running import Left, Running, folder, leave, servers
from emubus.testing import EmubusServer

from .conftest import CommandLine

A, B = "http://a:1", "Endpoint=sb://b:2;SharedAccessKeyName=n;SharedAccessKey=key-of-b"
A_STRING = "Endpoint=sb://a:9;SharedAccessKeyName=n;SharedAccessKey=key-of-a"


@pytest.fixture
def left(offline: CommandLine) -> Iterator[list[Left]]:
    """What servers have left, removed at the end."""
    found: list[Left] = []
    yield found
    for each in found:
        each.remove()


def asked(typed: dict[str, str], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> tuple[str, str | None]:
    """The URL and the key of the server that a command asks."""
    command = Command("emubus x")
    add_server_options(command)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    address = address_of(command.parsed({**typed}))
    return address.url, address.key


@pytest.mark.parametrize(
    ("typed", "variables", "expected"),
    [
        ({}, {}, ("http://localhost:5300", None)),
        ({}, {"EMUBUS_HTTP_PORT": "7"}, ("http://localhost:7", None)),
        ({}, {"EMUBUS_URL": A}, ("http://a:1", None)),
        ({}, {"EMUBUS_CONNECTION_STRING": B}, ("http://b:2", "key-of-b")),
        ({}, {"EMUBUS_URL": A, "EMUBUS_CONNECTION_STRING": A_STRING}, ("http://a:1", "key-of-a")),
        ({"url": A}, {"EMUBUS_URL": "http://c:3"}, ("http://a:1", None)),
        ({"connection_string": B}, {"EMUBUS_URL": A}, ("http://b:2", "key-of-b")),
        ({"url": A}, {"EMUBUS_CONNECTION_STRING": B}, ("http://a:1", None)),  # the key of B stays at home
        ({"url": A}, {"EMUBUS_CONNECTION_STRING": A_STRING}, ("http://a:1", "key-of-a")),
        ({"url": A, "connection_string": A_STRING}, {}, ("http://a:1", "key-of-a")),
        (
            {"url": "http://127.0.0.1:1", "connection_string": B.replace("//b", "//localhost")},
            {},
            (
                "http://127.0.0.1:1",
                "key-of-b",
            ),
        ),
        ({"url": A}, {"EMUBUS_SAS_KEY": "k"}, ("http://a:1", "k")),
    ],
)
def test_what_is_typed_comes_before_variables_and_a_key_goes_to_its_server_only(
    offline: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    typed: dict[str, str],
    variables: dict[str, str],
    expected: tuple[str, str | None],
) -> None:
    assert asked(typed, monkeypatch, variables) == expected


@pytest.mark.parametrize(
    ("typed", "variables", "names"),
    [
        ({"url": A, "connection_string": B}, {}, ("--url", "--connection-string")),
        ({}, {"EMUBUS_URL": A, "EMUBUS_CONNECTION_STRING": B}, ("EMUBUS_URL", "EMUBUS_CONNECTION_STRING")),
    ],
)
def test_two_servers_at_once_are_refused(
    offline: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    typed: dict[str, str],
    variables: dict[str, str],
    names: tuple[str, str],
) -> None:
    with pytest.raises(ConfigError) as refused:
        asked(typed, monkeypatch, variables)
    assert str(refused.value) == f"{names[0]} names the server a, and {names[1]} names b: give the one that is meant"


def test_a_command_finds_the_server_that_runs(
    offline: CommandLine, server: EmubusServer, left: list[Left], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = offline("ls", "--url", "http://127.0.0.1:1")
    assert (ended.code, "is emubus running there?" in ended.err) == (3, True)
    url = f"http://127.0.0.1:{server.http_port}"
    left.append(leave(Running(url, server.http_port, server.amqp_port, None)))
    assert offline.done("ls").startswith("PATH")
    assert f"127.0.0.1:{server.amqp_port};" in offline.done("connection-string")
    assert f"127.0.0.1:{server.http_port};" in offline.done("connection-string", "--admin")
    assert offline.done("health") != ""
    assert folder().stat().st_mode & 0o077 == 0
    assert "key" not in next(folder().glob("*.json")).read_text().lower()


def test_of_several_servers_that_of_this_folder_is_meant_or_the_default_port_or_none(
    offline: CommandLine, left: list[Left], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (port, data) in enumerate([(1, "/one"), (2, str(tmp_path / "emubus-data")), (5300, "/two")]):
        monkeypatch.setattr(os, "getpid", lambda number=number: 1_000_000 + number)
        left.append(leave(Running(f"http://localhost:{port}", port, port + 1, data)))
    assert [each.http_port for each in servers()] == [1, 2, 5300]
    assert offline.done("connection-string", "--admin").startswith("Endpoint=sb://localhost:2;")
    monkeypatch.setenv("EMUBUS_DATA", "/one")
    assert offline.done("connection-string", "--admin").startswith("Endpoint=sb://localhost:1;")
    monkeypatch.setenv("EMUBUS_DATA", "/none")
    assert offline.done("connection-string", "--admin").startswith("Endpoint=sb://localhost:5300;")
    left.pop().remove()
    ended = offline("ls")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "2 servers run here: http://localhost:1 (/one), http://localhost:2" in ended.err
    assert "--url or EMUBUS_URL" in ended.err


def test_what_a_killed_server_or_another_user_has_left_is_passed_over(
    offline: CommandLine, left: list[Left], monkeypatch: pytest.MonkeyPatch
) -> None:
    left.append(leave(Running("http://localhost:1", 1, 2, None)))
    text = next(folder().glob("*.json")).read_text()
    killed = folder() / "1.json"
    killed.write_text(text)
    assert len(servers()) == 1
    assert not killed.exists()
    folder().chmod(0o777)
    assert servers() == []
    with pytest.raises(PermissionError, match="others may write in it"):
        leave(Running("http://localhost:1", 1, 2, None))
    folder().chmod(0o700)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"url": 1}', '{"url": "x", "http_port": "1", "amqp_port": 1}', "\xff"]
)
def test_a_file_that_says_nothing_is_passed_over(offline: CommandLine, left: list[Left], text: str) -> None:
    left.append(leave(Running("http://localhost:1", 1, 2, None)))
    next(folder().glob("*.json")).write_text(text)  # the server holds its lock
    assert servers() == []
