"""Runs a command beside a server of its own, which has the service's names and ports.

    python -m tests.conformance.own_network FOLDER [option of `emubus serve` …] -- command …

Unpatched clients dial `*.servicebus.windows.net` at the ports 5671 and 443, or `localhost` at 5672 and 5300, and
believe certificates of the authorities they know. So the command gets a network and a view of the file system of its
own: there the names lead to the server, and its authority stands in the bundles. `entered` starts this module so; that
takes root, or a kernel that lets everybody make user namespaces. The folder has `Config.json` (made unless it is
there), the data and the server's log. Exit code: the command's, or 70 if the server failed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tests.building import ROOT

NAMESPACE: Final = "emulator"
BUNDLES: Final = "EMUBUS_CONFORMANCE_BUNDLES"
"""Environment variable: further files with certificates that clients trust, separated by colons."""
SYSTEM_BUNDLE: Final = Path("/etc/ssl/certs/ca-certificates.crt")
READY: Final = "Emulator Service is Successfully Up!"
SERVER_FAILED: Final = 70
CONFIG: Final = """{"UserConfig": {"Namespaces": [{"Name": "emulator", "Topics": [], "Queues": [
  {"Name": "testQueue", "Properties": {}},
  {"Name": "testQueueWithSessions", "Properties": {"RequiresSession": true}}], "AuthorizationRules": [
  {"KeyName": "both-rule", "Rights": ["Listen", "Send"], "PrimaryKey": "both-rule-key"},
  {"KeyName": "listen-rule", "Rights": ["Listen"], "PrimaryKey": "listen-rule-key"},
  {"KeyName": "send-rule", "Rights": ["Send"], "PrimaryKey": "send-rule-key"},
  {"KeyName": "manage-rule", "Rights": ["Manage", "Send", "Listen"], "PrimaryKey": "manage-rule-key"}]}]}}
"""
"""What the suites expect of a namespace: a rule for each kind of rights, and the queues of the Go SDK's examples."""


class ServerFailedError(Exception):
    """The server did not start, or ended before it was asked to; the text is the end of its log."""


def way_in() -> tuple[str, ...]:
    """The command that enters a network of its own; PermissionError if this machine allows none."""
    own = ("--net", "--mount", "--fork")
    for command in (("unshare", *own), ("unshare", "--user", "--map-root-user", *own)):
        if shutil.which("unshare") is None:
            break
        if subprocess.run((*command, "true"), capture_output=True, check=False).returncode == 0:
            return command
    raise PermissionError(
        "no network of its own can be made for the suites (unshare --net --mount): run as root, in a container with "
        "--privileged, or set kernel.unprivileged_userns_clone=1"
    )


def entered(folder: Path, options: Sequence[str], command: Sequence[str]) -> list[str]:
    """The whole command that runs `command` beside a server with `options`."""
    module = (sys.executable, "-m", "tests.conformance.own_network")
    return [*way_in(), *module, str(folder), *options, "--", *command]


@contextlib.contextmanager
def server(folder: Path, options: Sequence[str]) -> Iterator[None]:
    """A server on the ports of the service; ServerFailedError if it fails before the end of the block."""
    config = folder / "Config.json"
    if not config.exists():
        config.write_text(CONFIG)
    command = [sys.executable, "-P", "-m", "emubus", "serve", "--config", str(config), "--data", str(folder / "data")]
    command += ["--fresh", "--tls", "dev", "--tls-port", "443,5671", *options]
    log, is_ready = folder / "server.log", threading.Event()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    reader = threading.Thread(target=_copy, args=(process.stdout, log, is_ready))
    reader.start()
    try:
        is_ready.wait()
        if process.poll() is not None:
            raise ServerFailedError(_end_of(log))
        yield
    finally:
        ended = process.poll()
        process.send_signal(signal.SIGTERM)
        process.wait()
        reader.join()
    text = log.read_text()
    if ended is not None or "Traceback (most recent call last)" in text:
        raise ServerFailedError(_end_of(log))


def _copy(lines: IO[str], log: Path, is_ready: threading.Event) -> None:
    with log.open("w") as out:
        for line in lines:
            out.write(line)
            out.flush()
            if READY in line:
                is_ready.set()
    is_ready.set()  # it ended


def _end_of(log: Path) -> str:
    return f"the server failed; the end of {log}:\n{log.read_text()[-2000:]}"


def mount(file: Path, over: Path) -> None:
    """Show `file` at the path `over`, here only."""
    subprocess.run(("mount", "--bind", str(file), str(over)), check=True)


def trust(authority: Path, folder: Path) -> Mapping[str, str]:
    """Add the authority to the bundles; the environment that makes clients read them."""
    bundles = [SYSTEM_BUNDLE, *map(Path, filter(None, os.environ.get(BUNDLES, "").split(":")))]
    for number, bundle in enumerate(each for each in bundles if each.exists()):
        with_it = folder / f"bundle-{number}.pem"
        with_it.write_text(f"{bundle.read_text()}\n{authority.read_text()}")
        mount(with_it, bundle)
    everyone = with_it if (with_it := folder / "bundle-0.pem").exists() else authority
    return {
        "SSL_CERT_FILE": str(everyone),
        "REQUESTS_CA_BUNDLE": str(everyone),
        "NODE_EXTRA_CA_CERTS": str(authority),
    }


def main(folder: Path, options: Sequence[str], command: Sequence[str]) -> int:
    """Run the command beside a server; the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n::1 localhost\n127.0.0.1 {NAMESPACE}.servicebus.windows.net\n")
    mount(hosts, Path("/etc/hosts"))
    try:
        with server(folder, options):
            environment = trust(folder / "data" / "tls" / "ca.pem", folder)
            return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode
    except ServerFailedError as error:
        sys.stderr.write(f"{error}\n")
        return SERVER_FAILED


if __name__ == "__main__":
    between = sys.argv.index("--")
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:between], sys.argv[between + 1 :]))
