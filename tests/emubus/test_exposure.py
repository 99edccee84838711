"""The warning of a server that others reach and that verifies nobody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from emubus.config import load_config
from emubus.server import Server

READY_LINE = "Emulator Service is Successfully Up!"
WARNING = "anyone who can reach this machine has full access"
FREE_PORTS = {"durability": "none", "amqp_port": "0", "http_port": "0"}


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def open_to(host: str, auth: str = "none") -> list[str]:
    server = Server(load_config({**FREE_PORTS, "host": host, "auth": auth}, {}))
    assert server.open_to == []  # nothing is bound yet
    await server.start()
    try:
        return server.open_to
    finally:
        await server.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.9", *(["::1"] if has_ipv6() else [])])
async def test_only_this_machine_reaches_a_loopback_address(host: str) -> None:
    assert await open_to(host) == []


@pytest.mark.parametrize("host", ["0.0.0.0", *(["::"] if has_ipv6() else [])])
async def test_others_reach_the_address_for_all(host: str) -> None:
    assert await open_to(host) == [host]


async def test_a_name_is_judged_by_the_addresses_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("0.0.0.0", 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
    assert await open_to("localhost") == ["0.0.0.0"]


async def test_who_verifies_keys_may_be_reached_by_anybody() -> None:
    assert await open_to("0.0.0.0", "sas") == []


def log_of(folder: Path, *options: str) -> list[str]:
    """What a server logs until it is ready."""
    command = [sys.executable, "-P", "-m", "emubus", "serve", "--amqp-port", "0", "--http-port", "0"]
    with subprocess.Popen(
        [*command, "--durability", "none", *options],
        cwd=folder,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline().strip() == READY_LINE
        finally:
            process.terminate()
        return process.stderr.read().splitlines()


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--host", "0.0.0.0"), 1),
        (("--host", "0.0.0.0", "--log-level", "warning"), 1),
        (("--host", "0.0.0.0", "--auth", "sas"), 0),
        ((), 0),
    ],
)
def test_one_line_of_the_log_says_so(tmp_path: Path, options: tuple[str, ...], count: int) -> None:
    warnings = [line for line in log_of(tmp_path, *options) if WARNING in line]
    assert len(warnings) == count
    assert all("warning" in line and "0.0.0.0" in line and "--auth sas" in line for line in warnings)
