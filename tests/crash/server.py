"""An emubus in a process of its own, to be killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

READY_S_MAX = 600.0
PORT = re.compile(r"\bamqp_port=(\d+)")
READY_LINE = "Emulator Service is Successfully Up!"

CONFIG = """{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Topics": [], "Queues": [
  {"Name": "plain", "Properties": {"LockDuration": "PT5M", "MaxDeliveryCount": 100}},
  {"Name": "parts", "Properties": {"LockDuration": "PT5M", "MaxDeliveryCount": 100, "EnablePartitioning": true}}
]}], "Logging": {"Type": "Console"}}}"""


class ServerProcess:
    """`emubus serve` on a data folder; `port` is its AMQP port. Ends by `kill` or by itself."""

    def __init__(
        self, data: Path, *options: str, config: str = CONFIG, environment: Mapping[str, str] | None = None
    ) -> None:
        config_file = data.parent / "Config.json"
        config_file.write_text(config)
        command = [sys.executable, "-P", "-m", "emubus", "serve", "--data", str(data), "--config", str(config_file)]
        command += ["--amqp-port", "0", "--http-port", "0", *options]
        self.log = ""
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.port = 0
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log += line
            if found := PORT.search(line):
                self.port = int(found[1])
            if READY_LINE in line:
                return
        raise AssertionError(f"the server ended before it was ready:\n{self.log}")

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """SIGKILL, as a crash does it."""
        self.process.kill()
        self.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; what it still said goes to `log`."""
        self.log += self.process.communicate(timeout=READY_S_MAX)[0]
        return self.process.returncode


def check(data: Path) -> str:
    """`emubus check`; its output, or AssertionError if it found anything."""
    command = [sys.executable, "-P", "-m", "emubus", "check", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_S_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
